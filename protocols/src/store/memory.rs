//! A number worked out from the names in many folders, good for as long as the folders stay the same.
//!
//! A board of ten thousand tasks has a thousand folders, and a new task must know the highest id in any of
//! them. Listing them all costs more than everything else; asking each when it last changed does not. So the
//! number is kept with a fingerprint of the folders it came from: of those that had not changed since some
//! moment. The few that changed later are looked at. It is only ever a shortcut: what is not remembered, or
//! not the same, is looked at again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A folder, and when it last changed: nobody can set this, as they can a time of modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamped<'e> {
    pub name: &'e str,
    pub inode: u64,
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// What is known of the folders of one folder that had not changed since a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    since: i64,
    fingerprint: u64,
    number: u64,
}

#[derive(Debug, Default)]
pub struct Memory {
    known: RefCell<BTreeMap<String, Known>>,
    changed: Cell<bool>,
}

/// Clocks of file systems are coarse: a folder that changed so many seconds ago may change again in the same
/// tick.
const SETTLED: i64 = 3;
/// With more folders than this that changed since, the moment is moved.
const MANY: usize = 8;

impl Memory {
    /// What was remembered before; nothing, if that can't be read.
    pub(super) fn load(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = |line: &str| {
            let mut parts = line.rsplitn(4, '\t');
            let number = parts.next()?.parse().ok()?;
            let fingerprint = parts.next()?.parse().ok()?;
            let since = parts.next()?.parse().ok()?;
            Some((parts.next()?.to_owned(), Known { since, fingerprint, number }))
        };
        Self { known: RefCell::new(text.lines().filter_map(line).collect()), changed: Cell::new(false) }
    }

    /// Keeps it for the next process. It need not survive a crash, and nothing depends on it.
    pub(super) fn keep(&self, file: &Path) {
        if !self.changed.get() {
            return;
        }
        let known = self.known.borrow();
        let lines = known.iter().map(|(folder, Known { since, fingerprint, number })| {
            format!("{folder}\t{since}\t{fingerprint}\t{number}\n")
        });
        let text: String = lines.collect();
        let beside = file.with_extension("new");
        if std::fs::write(&beside, text).is_ok() {
            let _ = std::fs::rename(&beside, file);
        }
    }

    /// The greatest number of any of these folders, which are those in `top`.
    pub fn greatest<E>(
        &self,
        top: &str,
        folders: &[Stamped<'_>],
        work_out: impl Fn(&str) -> Result<u64, E>,
    ) -> Result<u64, E> {
        let all = |folders: &[&Stamped<'_>]| {
            folders.iter().try_fold(0, |greatest: u64, folder| Ok(greatest.max(work_out(folder.name)?)))
        };
        let before = |moment: i64| -> (Vec<&Stamped<'_>>, Vec<&Stamped<'_>>) {
            folders.iter().partition(|folder| folder.seconds <= moment)
        };
        let known = self.known.borrow().get(top).copied();
        if let Some(known) = known {
            let (old, new) = before(known.since);
            if fingerprint(&old) == known.fingerprint && new.len() <= MANY {
                return Ok(known.number.max(all(&new)?));
            }
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let since = i64::try_from(now).unwrap_or(i64::MAX) - SETTLED;
        let (old, new) = before(since);
        let number = all(&old)?;
        let known = Known { since, fingerprint: fingerprint(&old), number };
        self.known.borrow_mut().insert(top.to_owned(), known);
        self.changed.set(true);
        Ok(number.max(all(&new)?))
    }
}

fn fingerprint(folders: &[&Stamped<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    folders.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn folder(name: &str, seconds: i64) -> Stamped<'_> {
        Stamped { name, inode: 1, seconds, nanoseconds: 0 }
    }

    /// The greatest number, and which folders were looked at for it.
    fn asked(memory: &Memory, folders: &[Stamped<'_>]) -> (u64, Vec<String>) {
        let looked = RefCell::new(Vec::new());
        let number = memory.greatest("top", folders, |name| {
            looked.borrow_mut().push(name.to_owned());
            Ok::<_, ()>(name.len() as u64)
        });
        (number.expect("a number"), looked.into_inner())
    }

    #[test]
    fn what_has_not_changed_is_not_looked_at_again() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("memory");
        let memory = Memory::load(&file);
        let mut folders = vec![folder("a", 1000), folder("bbb", 1001)];
        assert_eq!(asked(&memory, &folders), (3, vec!["a".to_owned(), "bbb".to_owned()]));
        memory.keep(&file);

        let memory = Memory::load(&file);
        assert_eq!(asked(&memory, &folders), (3, vec![]));
        let today = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs().cast_signed();
        folders.push(folder("today", today));
        assert_eq!(asked(&memory, &folders), (5, vec!["today".to_owned()]));
    }

    #[test]
    fn a_folder_that_changed_is_looked_at_and_so_is_one_that_was_swapped_for_another() {
        let memory = Memory::default();
        asked(&memory, &[folder("a", 1000), folder("bb", 1001)]);
        let changed = [folder("a", 1000), folder("bb", 1002)];
        assert_eq!(asked(&memory, &changed).1, ["a", "bb"]);
        let swapped = [folder("a", 1000), Stamped { inode: 2, ..folder("bb", 1002) }];
        assert_eq!(asked(&memory, &swapped).1, ["a", "bb"]);
        assert_eq!(asked(&memory, &swapped[..1]).1, ["a"], "one is gone");
    }

    #[test]
    fn a_file_that_is_no_memory_is_forgotten() {
        let place = tempfile::tempdir().expect("a folder");
        let file = place.path().join("memory");
        std::fs::write(&file, b"nonsense\n1\t2\n").expect("written");
        assert!(Memory::load(&file).known.borrow().is_empty());
    }
}
