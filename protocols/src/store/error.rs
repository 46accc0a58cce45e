//! Why a change of board files failed.

use std::io;
use std::path::PathBuf;

use super::lock::FileLockError;
use super::tree::RepoTreeError;

#[derive(Debug, thiserror::Error)]
pub enum BoardStoreError {
    #[error(transparent)]
    Tree(#[from] RepoTreeError),
    #[error(transparent)]
    Lock(#[from] FileLockError),
    #[error("{path} was changed meanwhile by another process; nothing was written")]
    Conflict { path: String },
    #[error("another program has {path} open for writing and does not close it; close it there")]
    Open { path: String },
    #[error("{path} was changed twice while it was written; one version of it is kept in {saved}")]
    Saved { path: String, saved: String },
    #[error("can't keep a journal in {}", path.display())]
    Journal { path: PathBuf, source: io::Error },
    #[error("the journal {} can't be read: {reason}; nothing is written until a person has looked at it", path.display())]
    OddJournal { path: PathBuf, reason: String },
}
