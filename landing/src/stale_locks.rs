//! Stale locks of people's branches: a git of ours was killed while it held them.
//!
//! Before a git of ours takes such a lock, we note which (`taking.json`); when that git has ended by itself, we remove
//! the note. A note that stays shows that a git of ours was killed, and that the lock may be its own. The lock of a
//! branch may also be that of a person's running git: that one has to stay.
//!
//! - A lock that says where we were about to move the branch is ours.
//! - Git makes a lock and fills it a moment later, so one of ours may be empty. So is a person's who removes or verifies the
//!   branch, for as long as their git takes: a slow hook, or one that was stopped. Git makes ours as soon as it is asked. One
//!   that was made just then and stays is ours. One that was made later is taken for ours only when it stays for minutes,
//!   the same all the time.
//! - A lock that is older than the note is not ours.
//!
//! The caller has the turn to move references.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::error::{Error, files};
use super::file_access::read_file;
use super::file_stamp::{self, FileIdentity};
use super::names::{Oid, RefName};
use agency_sandbox::durable;

/// Git makes a lock within this time after it was asked.
const AT_ONCE: Duration = Duration::from_secs(2);
/// An empty lock that was made when ours should have been is ours after this time.
const REST: Duration = Duration::from_secs(2);
/// An empty lock that was made later is ours only when it stays for this time.
const LONG_REST: Duration = Duration::from_secs(600);
/// How far the clock of files may be behind the one that we read.
const TICK: Duration = Duration::from_millis(100);

/// A lock that a git of ours is about to take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LockIntent {
    branch: String,
    /// The text of the lock; empty if the branch does not move.
    to: String,
    /// When the note was written, before git was asked.
    noted: SystemTime,
    /// An empty lock, as it was at the first check after that git was killed, and the time of the check.
    seen: Option<(RefLock, SystemTime)>,
}

/// The state of a lock file. Every change of the file gives another state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct RefLock {
    file: FileIdentity,
    made: SystemTime,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct LockNotes {
    version: u32,
    intents: Vec<LockIntent>,
}

const VERSION: u32 = 1;

impl LockIntent {
    pub(super) fn new(branch: &RefName, to: Option<&Oid>) -> Self {
        let to = to.map_or(String::new(), Oid::to_string);
        Self { branch: branch.as_str().to_owned(), to, noted: SystemTime::now(), seen: None }
    }
}

impl RefLock {
    fn at(path: &Path) -> Option<Self> {
        let stat = fs::symlink_metadata(path).ok()?;
        Some(Self { file: FileIdentity::of(&stat), made: file_stamp::change_time(&stat) })
    }
}

/// The owner of a lock.
#[derive(Debug, PartialEq, Eq)]
enum LockOwner {
    Ours,
    Theirs,
    /// A later check decides.
    Undecided,
}

/// Decides whose a lock is. `text` is the lock's text.
fn lock_owner(intent: &LockIntent, lock: &RefLock, text: &str, now: SystemTime) -> LockOwner {
    let since = |then: SystemTime| now.duration_since(then).unwrap_or_default();
    if lock.made + TICK < intent.noted {
        return LockOwner::Theirs;
    }
    if !text.is_empty() {
        return if text == intent.to { LockOwner::Ours } else { LockOwner::Theirs };
    }
    let is_at_rest = match &intent.seen {
        Some((seen, _)) if seen != lock => return LockOwner::Theirs,
        _ if lock.made <= intent.noted + AT_ONCE => since(lock.made) > REST,
        Some((_, first)) => since(*first) > LONG_REST,
        None => false,
    };
    if is_at_rest { LockOwner::Ours } else { LockOwner::Undecided }
}

fn path(place: &Path) -> PathBuf {
    place.join("taking.json")
}

/// Replaces the notes: about locks that git will take, and about undecided ones.
pub(super) fn note(place: &Path, intents: Vec<LockIntent>) -> Result<(), Error> {
    let path = path(place);
    let written = match intents.is_empty() {
        true => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
        false => serde_json::to_vec(&LockNotes { version: VERSION, intents })
            .map_err(io::Error::from)
            .and_then(|text| durable::write(&path, &text)),
    };
    written.map_err(files("write", &path))
}

/// Removes stale locks of people's branches. Returns the notes about undecided locks, which stay noted.
pub(super) fn clear(place: &Path, common: &Path) -> Result<Vec<LockIntent>, Error> {
    const MOST: u64 = 1 << 20;
    let path = path(place);
    let Some(text) = read_file(&path, MOST).map_err(files("read", &path))? else { return Ok(Vec::new()) };
    // We write it in one step, so a broken file is not ours.
    let left = serde_json::from_slice(&text).unwrap_or_else(|_| LockNotes::default());
    let now = SystemTime::now();
    let mut undecided = Vec::new();
    for intent in &left.intents {
        let Ok(name) = RefName::parse(&intent.branch) else { continue };
        let file = common.join(format!("{}.lock", name.as_str()));
        let Some(lock) = RefLock::at(&file) else { continue };
        let Some(text) = read_file(&file, MOST).map_err(files("read", &file))? else { continue };
        match lock_owner(intent, &lock, String::from_utf8_lossy(&text).trim_end(), now) {
            LockOwner::Ours => fs::remove_file(&file).map_err(files("remove", &file))?,
            LockOwner::Theirs => {}
            LockOwner::Undecided => {
                let seen = intent.seen.or(Some((lock, now)));
                undecided.push(LockIntent { seen, ..intent.clone() });
            }
        }
    }
    if undecided != left.intents {
        note(place, undecided.clone())?;
    }
    Ok(undecided)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    const TO: &str = "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1";

    fn at(seconds: f64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_000_000) + Duration::from_secs_f64(seconds)
    }

    fn lock(made: f64) -> RefLock {
        let folder = tempfile::tempdir().expect("a folder");
        let file = FileIdentity::of(&fs::metadata(folder.path()).expect("looked at"));
        RefLock { file, made: at(made) }
    }

    /// Noted at 10.
    fn intent(seen: Option<(RefLock, f64)>) -> LockIntent {
        let seen = seen.map(|(lock, first)| (lock, at(first)));
        LockIntent { branch: "refs/heads/main".to_owned(), to: TO.to_owned(), noted: at(10.0), seen }
    }

    #[test]
    fn a_lock_that_says_where_the_branch_was_to_go_is_ours_unless_it_was_there_before() {
        assert_eq!(lock_owner(&intent(None), &lock(10.01), TO, at(10.02)), LockOwner::Ours);
        assert_eq!(lock_owner(&intent(None), &lock(5000.0), TO, at(9000.0)), LockOwner::Ours);
        assert_eq!(
            lock_owner(&intent(None), &lock(10.01), &TO.replace('a', "b"), at(9000.0)),
            LockOwner::Theirs
        );
        assert_eq!(lock_owner(&intent(None), &lock(9.0), TO, at(9000.0)), LockOwner::Theirs);
    }

    #[test]
    fn an_empty_lock_that_was_made_when_ours_was_is_ours_after_a_moment() {
        // The clock of files is a little behind.
        for made in [9.99, 10.0, 11.9] {
            assert_eq!(lock_owner(&intent(None), &lock(made), "", at(12.0 - 0.05)), LockOwner::Undecided);
            assert_eq!(lock_owner(&intent(None), &lock(made), "", at(14.0)), LockOwner::Ours);
        }
    }

    #[test]
    fn an_empty_lock_that_was_made_later_rests_for_minutes_and_is_the_same_all_the_time() {
        let found = lock(3600.0);
        assert_eq!(lock_owner(&intent(None), &found, "", at(9000.0)), LockOwner::Undecided);
        assert_eq!(lock_owner(&intent(Some((found, 9000.0))), &found, "", at(9500.0)), LockOwner::Undecided);
        assert_eq!(lock_owner(&intent(Some((found, 9000.0))), &found, "", at(9601.0)), LockOwner::Ours);
        assert_eq!(
            lock_owner(&intent(Some((found, 9000.0))), &lock(3600.5), "", at(9601.0)),
            LockOwner::Theirs
        );
        // The clock was set back.
        assert_eq!(lock_owner(&intent(Some((found, 9000.0))), &found, "", at(4000.0)), LockOwner::Undecided);
    }

    #[test]
    fn an_empty_lock_that_was_there_before_our_git_began_is_theirs_for_ever() {
        for now in [11.0, 1e6] {
            assert_eq!(lock_owner(&intent(None), &lock(9.0), "", at(now)), LockOwner::Theirs);
        }
    }
}
