//! Numbers worked out from the names in a folder, good for as long as the folder stays the same.
//!
//! A board of ten thousand tasks has a thousand folders, and a new task must know the highest id in any of
//! them. Listing them all costs more than everything else; asking each when it last changed does not. It is
//! only ever a shortcut: what is not remembered, or can't be read, is looked at.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// When a folder last changed: nobody can set this, as they can a time of modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub inode: u64,
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl Stamp {
    /// Whether it lies so far back that a change since would show. Clocks of file systems are coarse.
    fn is_settled(self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        i64::try_from(now).is_ok_and(|now| self.seconds + 3 < now)
    }
}

#[derive(Debug, Default)]
pub struct Memory {
    known: RefCell<HashMap<String, (Stamp, u64)>>,
    changed: Cell<bool>,
}

impl Memory {
    /// What was remembered before; nothing, if that can't be read.
    pub(super) fn load(file: &Path) -> Self {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let line = |line: &str| {
            let mut parts = line.rsplitn(5, '\t');
            let number = parts.next()?.parse().ok()?;
            let nanoseconds = parts.next()?.parse().ok()?;
            let seconds = parts.next()?.parse().ok()?;
            let inode = parts.next()?.parse().ok()?;
            Some((parts.next()?.to_owned(), (Stamp { inode, seconds, nanoseconds }, number)))
        };
        Self { known: RefCell::new(text.lines().filter_map(line).collect()), changed: Cell::new(false) }
    }

    /// Keeps it for the next process. It need not survive a crash, and nothing depends on it.
    pub(super) fn keep(&self, file: &Path) {
        if !self.changed.get() {
            return;
        }
        let known = self.known.borrow();
        let lines = known.iter().map(|(folder, (stamp, number))| {
            let Stamp { inode, seconds, nanoseconds } = stamp;
            format!("{folder}\t{inode}\t{seconds}\t{nanoseconds}\t{number}\n")
        });
        let text: String = lines.collect();
        let beside = file.with_extension("new");
        if std::fs::write(&beside, text).is_ok() {
            let _ = std::fs::rename(&beside, file);
        }
    }

    /// The number of a folder, worked out only if it is not known for this very state of the folder.
    pub fn recall<E>(
        &self,
        folder: &str,
        stamp: Stamp,
        work_out: impl FnOnce() -> Result<u64, E>,
    ) -> Result<u64, E> {
        if let Some((known, number)) = self.known.borrow().get(folder)
            && *known == stamp
        {
            return Ok(*number);
        }
        let number = work_out()?;
        if stamp.is_settled(SystemTime::now()) {
            self.known.borrow_mut().insert(folder.to_owned(), (stamp, number));
            self.changed.set(true);
        }
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_worked_out_again_until_the_folder_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("memory");
        let old = Stamp { inode: 1, seconds: 1000, nanoseconds: 5 };
        let memory = Memory::load(&file);
        assert_eq!(memory.recall("a\tb", old, || Ok::<_, ()>(7)), Ok(7));
        memory.keep(&file);
        let memory = Memory::load(&file);
        assert_eq!(memory.recall("a\tb", old, || Err("looked again")), Ok(7));
        let later = Stamp { nanoseconds: 6, ..old };
        assert_eq!(memory.recall("a\tb", later, || Ok::<_, ()>(8)), Ok(8));
    }

    #[test]
    fn a_folder_that_changed_just_now_is_looked_at_again() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let fresh = Stamp { inode: 1, seconds: now.cast_signed(), nanoseconds: 0 };
        let memory = Memory::default();
        assert_eq!(memory.recall("a", fresh, || Ok::<_, ()>(1)), Ok(1));
        assert_eq!(memory.recall("a", fresh, || Ok::<_, ()>(2)), Ok(2));
    }

    #[test]
    fn a_file_that_is_no_memory_is_forgotten() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("memory");
        std::fs::write(&file, b"nonsense\n\xff\n1\t2\t3\n").expect("written");
        assert!(Memory::load(&file).known.borrow().is_empty());
    }
}
