//! The files that a verb read, and whether each was whole.
//!
//! Git and some editors write a file in its place: for a moment it is not there, empty or cut off. What a verb refuses
//! then says nothing about the board.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use super::displaced::WriterCheck;
use super::tree::RepoTree;

/// Which file a name led to, and its state before it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadStamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl ReadStamp {
    fn of(file: &Metadata) -> Self {
        Self { inode: file.ino(), size: file.len(), changed: (file.ctime(), file.ctime_nsec()) }
    }
}

/// The files that were read. A file that was not there has no stamp.
#[derive(Debug, Default)]
pub(super) struct ReadFiles(HashMap<String, Option<ReadStamp>>);

impl ReadFiles {
    /// Whether one of them has changed since it was read, or is being written.
    pub(super) fn are_being_written(&self, tree: &RepoTree, check: WriterCheck) -> bool {
        self.0.iter().any(|(name, read)| match tree.open_file(name) {
            Ok(Some(file)) => {
                let now = file.metadata().ok().map(|file| ReadStamp::of(&file));
                // An error of the check counts as "not open".
                now != *read || check(file.as_fd()).unwrap_or(false)
            }
            Ok(None) => read.is_some(),
            // The verb's own error says what is there instead.
            Err(_) => false,
        })
    }
}

/// Notes which files are read while a verb is called; `None` while none is.
#[derive(Debug, Default)]
pub(super) struct ReadLog(RefCell<Option<ReadFiles>>);

impl ReadLog {
    pub(super) fn begin(&self) {
        *self.0.borrow_mut() = Some(ReadFiles::default());
    }

    /// The first time counts: what the verb decided may come from there.
    pub(super) fn note(&self, name: &str, file: Option<&Metadata>) {
        if let Some(ReadFiles(noted)) = self.0.borrow_mut().as_mut() {
            noted.entry(name.to_owned()).or_insert_with(|| file.map(ReadStamp::of));
        }
    }

    pub(super) fn end(&self) -> ReadFiles {
        self.0.take().unwrap_or_default()
    }
}
