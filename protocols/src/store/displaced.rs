//! The version of a file that an exchange displaced, and whether a process still writes to it.

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use super::error::BoardStoreError;
use super::etag::ETag;
use super::tree::{RepoTree, RepoTreeError};

/// Whether a process has a file, opened to read, open for writing.
pub type WriterCheck = fn(BorrowedFd<'_>) -> std::io::Result<bool>;

/// How long a program that has a displaced file open is waited for: it saves, and closes it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

/// The version of a file that an exchange displaced. It lies beside the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DisplacedFile {
    Nothing,
    /// These bytes; no process has the file open for writing.
    File(Vec<u8>),
    /// Not a regular file, or one too large to read: not a file of ours.
    Odd,
    /// A program has it open for writing, and does not close it.
    Open,
}

impl DisplacedFile {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::File(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    pub(super) fn is(&self, expected: &str) -> bool {
        matches!(self, Self::File(bytes) if ETag::of(bytes).to_string() == expected)
    }

    /// Reads the displaced version of a file, when no process has it open for writing any more.
    pub(super) fn read(tree: &RepoTree, path: &str, check: WriterCheck) -> Result<Self, BoardStoreError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let file = match tree.open_staged(path) {
                Ok(Some(file)) => file,
                Ok(None) => return Ok(Self::Nothing),
                Err(RepoTreeError::Link { .. } | RepoTreeError::Irregular { .. }) => {
                    return Ok(Self::Odd);
                }
                Err(error) => return Err(error.into()),
            };
            // An error of the check counts as "not open".
            match check(file.as_fd()) {
                Ok(true) if Instant::now() >= until => return Ok(Self::Open),
                Ok(true) => thread::sleep(PAUSE),
                Ok(false) | Err(_) => break,
            }
        }
        match tree.staged(path) {
            Ok(Some(bytes)) => Ok(Self::File(bytes)),
            Ok(None) => Ok(Self::Nothing),
            Err(RepoTreeError::Large { .. }) => Ok(Self::Odd),
            Err(error) => Err(error.into()),
        }
    }

    /// Why a change is refused that displaced this.
    pub(super) fn refusal(&self, path: &str) -> BoardStoreError {
        let path = path.to_owned();
        match self {
            Self::Open => BoardStoreError::Open { path },
            _ => BoardStoreError::Conflict { path },
        }
    }
}
