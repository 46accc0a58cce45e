//! A cache of the greatest number in many folders, so that not every folder is read every time.
//!
//! A board of ten thousand tasks has a thousand folders, and a new task must know the highest id in any of them. We put
//! new tasks into the folder of today, which is always read. New tasks also come by git, and from people who write them
//! by hand. So the result is kept for a minute, and only while no file that git touches has changed; then the change
//! time of every folder is read again, and the few changed folders are listed. A task written by hand into an old
//! folder within that minute is missed. Two clones produce the same error every day: the same id twice, which is a
//! finding with its remedy.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A folder, and its change time: no program can set this time, unlike the time of modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FolderStamp<'e> {
    pub name: &'e str,
    pub inode: u64,
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// The result for the folders of one folder, as of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FolderCacheEntry {
    since: i64,
    fingerprint: u64,
    number: u64,
    /// When their change times were last read, and the stamp of git's files then.
    asked: i64,
    evidence: u64,
}

#[derive(Debug, Default)]
pub struct FolderCache {
    file: Option<PathBuf>,
    known: RefCell<BTreeMap<String, FolderCacheEntry>>,
    changed: Cell<bool>,
}

/// Clocks of file systems are coarse: a folder that changed within this many seconds may change again in the same tick.
const SETTLED: i64 = 3;
/// With more changed folders than this, the time is moved forward.
const MANY: usize = 8;
/// For how many seconds folders are not read again.
const FRESH: i64 = 60;

impl FolderCache {
    /// Loads the cache; empty, if it can't be read.
    pub(super) fn load(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = |line: &str| {
            let mut parts = line.rsplitn(6, '\t');
            let evidence = parts.next()?.parse().ok()?;
            let asked = parts.next()?.parse().ok()?;
            let number = parts.next()?.parse().ok()?;
            let fingerprint = parts.next()?.parse().ok()?;
            let since = parts.next()?.parse().ok()?;
            Some((parts.next()?.to_owned(), FolderCacheEntry { since, fingerprint, number, asked, evidence }))
        };
        let known = RefCell::new(text.lines().filter_map(line).collect());
        Self { file: Some(file.to_owned()), known, changed: Cell::new(false) }
    }

    /// Saves the cache for the next process. It need not survive a crash, and nothing depends on it.
    pub(super) fn save(&self) {
        let (Some(file), true) = (&self.file, self.changed.get()) else { return };
        let known = self.known.borrow();
        let lines =
            known.iter().map(|(folder, FolderCacheEntry { since, fingerprint, number, asked, evidence })| {
                format!("{folder}\t{since}\t{fingerprint}\t{number}\t{asked}\t{evidence}\n")
            });
        let text: String = lines.collect();
        let beside = file.with_extension("new");
        if std::fs::write(&beside, text).is_ok() {
            let _ = std::fs::rename(&beside, file);
        }
    }

    /// The result of the last minute, unless a file that git touches has changed.
    pub fn cached(&self, top: &str, evidence: u64) -> Option<u64> {
        let known = self.known.borrow().get(top).copied()?;
        let age = seconds() - known.asked;
        (known.evidence == evidence && (0..FRESH).contains(&age)).then_some(known.number)
    }

    /// The greatest number in any of these folders, which are those in `top`. Only folders that changed since the last
    /// time are read.
    pub fn greatest_number<E>(
        &self,
        top: &str,
        evidence: u64,
        folders: &[FolderStamp<'_>],
        work_out: impl Fn(&str) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let all = |folders: &[&FolderStamp<'_>]| {
            folders.iter().try_fold(0, |greatest: u64, folder| Ok(greatest.max(work_out(folder.name)?)))
        };
        let before = |moment: i64| -> (Vec<&FolderStamp<'_>>, Vec<&FolderStamp<'_>>) {
            folders.iter().partition(|folder| folder.seconds <= moment)
        };
        let asked = seconds();
        let known = self.known.borrow().get(top).copied();
        let still = known.filter(|known| {
            let (old, new) = before(known.since);
            fingerprint(&old) == known.fingerprint && new.len() <= MANY
        });
        let known = match still {
            Some(known) => FolderCacheEntry { asked, evidence, ..known },
            None => {
                let since = asked - SETTLED;
                let (old, _) = before(since);
                FolderCacheEntry {
                    since,
                    fingerprint: fingerprint(&old),
                    number: all(&old)?,
                    asked,
                    evidence,
                }
            }
        };
        let number = known.number.max(all(&before(known.since).1)?);
        self.known.borrow_mut().insert(top.to_owned(), FolderCacheEntry { number, ..known });
        self.changed.set(true);
        Ok(number)
    }

    /// Empties the cache, also for other processes: a number was given out in a folder that the cache does not watch.
    pub fn invalidate(&self) {
        self.known.borrow_mut().clear();
        self.changed.set(false);
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    i64::try_from(now).unwrap_or(i64::MAX)
}

fn fingerprint(folders: &[&FolderStamp<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    folders.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn folder(name: &str, seconds: i64) -> FolderStamp<'_> {
        FolderStamp { name, inode: 1, seconds, nanoseconds: 0 }
    }

    /// The greatest number, and which folders were looked at for it.
    fn asked(memory: &FolderCache, folders: &[FolderStamp<'_>]) -> (u64, Vec<String>) {
        let looked = RefCell::new(Vec::new());
        let number = memory.greatest_number("top", 0, folders, |name| {
            looked.borrow_mut().push(name.to_owned());
            Ok::<_, ()>(name.len() as u64)
        });
        (number.expect("a number"), looked.into_inner())
    }

    #[test]
    fn what_has_not_changed_is_not_looked_at_again() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("memory");
        let memory = FolderCache::load(&file);
        let mut folders = vec![folder("a", 1000), folder("bbb", 1001)];
        assert_eq!(asked(&memory, &folders), (3, vec!["a".to_owned(), "bbb".to_owned()]));
        memory.save();

        let memory = FolderCache::load(&file);
        assert_eq!(asked(&memory, &folders), (3, vec![]));
        let today = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs().cast_signed();
        folders.push(folder("today", today));
        assert_eq!(asked(&memory, &folders), (5, vec!["today".to_owned()]));
    }

    #[test]
    fn a_folder_that_changed_is_looked_at_and_so_is_one_that_was_swapped_for_another() {
        let memory = FolderCache::default();
        asked(&memory, &[folder("a", 1000), folder("bb", 1001)]);
        let changed = [folder("a", 1000), folder("bb", 1002)];
        assert_eq!(asked(&memory, &changed).1, ["a", "bb"]);
        let swapped = [folder("a", 1000), FolderStamp { inode: 2, ..folder("bb", 1002) }];
        assert_eq!(asked(&memory, &swapped).1, ["a", "bb"]);
        assert_eq!(asked(&memory, &swapped[..1]).1, ["a"], "one is gone");
    }

    #[test]
    fn what_was_found_is_fresh_until_git_touches_something_or_it_is_forgotten() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("memory");
        let memory = FolderCache::load(&file);
        assert_eq!(memory.cached("top", 0), None);
        asked(&memory, &[folder("a", 1000)]);
        memory.save();
        let memory = FolderCache::load(&file);
        assert_eq!((memory.cached("top", 0), memory.cached("top", 1)), (Some(1), None));
        memory.known.borrow_mut().entry("top".into()).and_modify(|known| known.asked -= FRESH);
        assert_eq!(memory.cached("top", 0), None, "a minute later");
        memory.invalidate();
        assert_eq!(FolderCache::load(&file).cached("top", 0), None);
    }

    #[test]
    fn a_file_that_is_no_memory_is_forgotten() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("memory");
        std::fs::write(&file, b"nonsense\n1\t2\n").expect("written");
        assert!(FolderCache::load(&file).known.borrow().is_empty());
    }
}
