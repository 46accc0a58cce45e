//! Locks of people's branches that a git of ours was killed with.
//!
//! Before a git of ours takes such a lock, it is noted which (`taking.json`); when that git has ended by itself, the note
//! goes. A note that stays says that a git of ours was killed, and that the lock may be its own. The lock of a branch may be
//! a person's, too, who is in the middle of something: theirs has to stay.
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
use super::names::{Oid, RefName};
use super::repository::{Repository, read_file};
use super::stamp::{self, Identity};
use crate::durable;

/// So soon after it was asked to, git makes a lock.
const AT_ONCE: Duration = Duration::from_secs(2);
/// No git holds an empty lock for longer that was made when ours made its own.
const REST: Duration = Duration::from_secs(2);
/// So long an empty lock stays that ours would have made late.
const LONG_REST: Duration = Duration::from_secs(600);
/// The clock of files may be that much behind the one that we read.
const TICK: Duration = Duration::from_millis(100);

/// A lock that a git of ours is about to take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Intent {
    branch: String,
    /// What the lock will say; nothing if the branch does not move.
    to: String,
    /// When that was, before git was asked.
    noted: SystemTime,
    /// An empty lock, as it was when somebody first looked after that git was killed, and when that was.
    seen: Option<(Lock, SystemTime)>,
}

/// A lock as it is. Whoever touches it makes it another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Lock {
    file: Identity,
    made: SystemTime,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Notes {
    version: u32,
    intents: Vec<Intent>,
}

const VERSION: u32 = 1;

impl Intent {
    pub(super) fn new(branch: &RefName, to: Option<&Oid>) -> Self {
        let to = to.map_or(String::new(), Oid::to_string);
        Self { branch: branch.as_str().to_owned(), to, noted: SystemTime::now(), seen: None }
    }
}

impl Lock {
    fn at(path: &Path) -> Option<Self> {
        let stat = fs::symlink_metadata(path).ok()?;
        Some(Self { file: Identity::of(&stat), made: stamp::made(&stat) })
    }
}

/// Whose a lock is.
#[derive(Debug, PartialEq, Eq)]
enum Whose {
    Ours,
    Theirs,
    /// Only time can tell.
    Undecided,
}

/// `text` is what the lock says.
fn whose(intent: &Intent, lock: &Lock, text: &str, now: SystemTime) -> Whose {
    let since = |then: SystemTime| now.duration_since(then).unwrap_or_default();
    if lock.made + TICK < intent.noted {
        return Whose::Theirs;
    }
    if !text.is_empty() {
        return if text == intent.to { Whose::Ours } else { Whose::Theirs };
    }
    let is_at_rest = match &intent.seen {
        Some((seen, _)) if seen != lock => return Whose::Theirs,
        _ if lock.made <= intent.noted + AT_ONCE => since(lock.made) > REST,
        Some((_, first)) => since(*first) > LONG_REST,
        None => false,
    };
    if is_at_rest { Whose::Ours } else { Whose::Undecided }
}

fn path(repository: &Repository) -> PathBuf {
    repository.place.join("taking.json")
}

/// Notes which locks are about to be taken or are undecided, in place of what was noted before.
pub(super) fn note(repository: &Repository, intents: Vec<Intent>) -> Result<(), Error> {
    let path = path(repository);
    let written = match intents.is_empty() {
        true => match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        },
        false => serde_json::to_vec(&Notes { version: VERSION, intents })
            .map_err(io::Error::from)
            .and_then(|text| durable::write(&path, &text)),
    };
    written.map_err(files("write", &path))
}

/// Removes locks of people's branches that a git of ours was killed with. Returns the notes about those that are
/// undecided, which stay noted.
pub(super) fn clear(repository: &Repository) -> Result<Vec<Intent>, Error> {
    const MOST: u64 = 1 << 20;
    let path = path(repository);
    let Some(text) = read_file(&path, MOST).map_err(files("read", &path))? else { return Ok(Vec::new()) };
    // It is whole or it is not ours.
    let left = serde_json::from_slice(&text).unwrap_or_else(|_| Notes::default());
    let now = SystemTime::now();
    let mut undecided = Vec::new();
    for intent in &left.intents {
        let Ok(name) = RefName::parse(&intent.branch) else { continue };
        let file = repository.real.common.join(format!("{}.lock", name.as_str()));
        let Some(lock) = Lock::at(&file) else { continue };
        let Some(text) = read_file(&file, MOST).map_err(files("read", &file))? else { continue };
        match whose(intent, &lock, String::from_utf8_lossy(&text).trim_end(), now) {
            Whose::Ours => fs::remove_file(&file).map_err(files("remove", &file))?,
            Whose::Theirs => {}
            Whose::Undecided => {
                let seen = intent.seen.or(Some((lock, now)));
                undecided.push(Intent { seen, ..intent.clone() });
            }
        }
    }
    if undecided != left.intents {
        note(repository, undecided.clone())?;
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

    fn lock(made: f64) -> Lock {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Identity::of(&fs::metadata(folder.path()).expect("looked at"));
        Lock { file, made: at(made) }
    }

    /// Noted at 10.
    fn intent(seen: Option<(Lock, f64)>) -> Intent {
        let seen = seen.map(|(lock, first)| (lock, at(first)));
        Intent { branch: "refs/heads/main".to_owned(), to: TO.to_owned(), noted: at(10.0), seen }
    }

    #[test]
    fn a_lock_that_says_where_the_branch_was_to_go_is_ours_unless_it_was_there_before() {
        assert_eq!(whose(&intent(None), &lock(10.01), TO, at(10.02)), Whose::Ours);
        assert_eq!(whose(&intent(None), &lock(5000.0), TO, at(9000.0)), Whose::Ours);
        assert_eq!(whose(&intent(None), &lock(10.01), &TO.replace('a', "b"), at(9000.0)), Whose::Theirs);
        assert_eq!(whose(&intent(None), &lock(9.0), TO, at(9000.0)), Whose::Theirs);
    }

    #[test]
    fn an_empty_lock_that_was_made_when_ours_was_is_ours_after_a_moment() {
        // The clock of files is a little behind.
        for made in [9.99, 10.0, 11.9] {
            assert_eq!(whose(&intent(None), &lock(made), "", at(12.0 - 0.05)), Whose::Undecided);
            assert_eq!(whose(&intent(None), &lock(made), "", at(14.0)), Whose::Ours);
        }
    }

    #[test]
    fn an_empty_lock_that_was_made_later_rests_for_minutes_and_is_the_same_all_the_time() {
        let found = lock(3600.0);
        assert_eq!(whose(&intent(None), &found, "", at(9000.0)), Whose::Undecided);
        assert_eq!(whose(&intent(Some((found, 9000.0))), &found, "", at(9500.0)), Whose::Undecided);
        assert_eq!(whose(&intent(Some((found, 9000.0))), &found, "", at(9601.0)), Whose::Ours);
        assert_eq!(whose(&intent(Some((found, 9000.0))), &lock(3600.5), "", at(9601.0)), Whose::Theirs);
        // The clock was set back.
        assert_eq!(whose(&intent(Some((found, 9000.0))), &found, "", at(4000.0)), Whose::Undecided);
    }

    #[test]
    fn an_empty_lock_that_was_there_before_our_git_began_is_theirs_for_ever() {
        for now in [11.0, 1e6] {
            assert_eq!(whose(&intent(None), &lock(9.0), "", at(now)), Whose::Theirs);
        }
    }
}
