//! Why there is no snapshot.

use std::io;
use std::path::PathBuf;

use super::index::IndexError;
use crate::git::GitError;
use crate::path::escape;
use crate::untrusted::UntrustedError;
use crate::workspace::repository::RepositoryError;

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{what} {}", path.display())]
    Files { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Untrusted(#[from] UntrustedError),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error("git can't read the repository {}", path.display())]
    Git { path: PathBuf, source: GitError },
    #[error("there is no commit `{}` in this repository", escape(rev.as_bytes()))]
    NoCommit { rev: String, source: Option<GitError> },
    #[error("the repository {} can't be worked on: {reason}", path.display())]
    Unsupported { path: PathBuf, reason: String },
    #[error("the commit's tree can't be checked out: `{}` {reason}", escape(path))]
    Hostile { path: Vec<u8>, reason: &'static str },
    #[error(
        "the object {object} of `{}` is not in this repository{}",
        escape(path),
        if *partial { ", which is a partial clone; fetch it, for example with `git fetch --refetch`" } else { "" }
    )]
    Missing { path: Vec<u8>, object: String, partial: bool },
    #[error("git's index {} can't be understood: {reason}", path.display())]
    Index { path: PathBuf, reason: IndexError },
}

pub(super) type SnapshotResult<T> = Result<T, SnapshotError>;

/// Names what was done to which file.
pub(super) fn at<E: Into<io::Error>>(
    what: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(E) -> SnapshotError {
    move |source| SnapshotError::Files { what, path: path.into(), source: source.into() }
}
