//! Errors of this crate. Answers of a landing are not errors ([`crate::land::LandOutcome`]).

use std::io;
use std::path::{Path, PathBuf};

use agency_sandbox::git::GitError;
use agency_sandbox::harvest::apply::ApplyError;
use agency_sandbox::path::RelPath;
use agency_sandbox::untrusted::UntrustedError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{}` is not the name of {what}", agency_sandbox::path::escape(name.as_bytes()))]
    Name { what: &'static str, name: String },
    #[error("{} can't be landed in: {reason}", path.display())]
    Unsupported { path: PathBuf, reason: String },
    #[error("can't {doing}")]
    Git { doing: &'static str, source: GitError },
    #[error("git answered in a form that is not known when asked to {doing}")]
    Answer { doing: &'static str },
    #[error("can't {doing} {}", path.display())]
    Files { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the references can't be changed: {message}")]
    Refs { message: String },
    #[error("the repository has no {kind} {object}")]
    Missing { kind: String, object: String },
    #[error("{object} is not a record of {what} that this program knows")]
    Record { what: &'static str, object: String },
    #[error("{} is not a record of a landing that this program knows: {reason}", path.display())]
    Journal { path: PathBuf, reason: String },
    #[error("the work has {count} violations, the first is {first}")]
    Violations { count: usize, first: String },
    #[error("{path} can't be read from what the agent left")]
    Upper { path: RelPath, source: io::Error },
    #[error("{path} is not what was harvested any more")]
    Changed { path: RelPath },
    #[error("{path} is, or is in, a submodule; what agents do to those can't be landed")]
    Submodule { path: RelPath },
    #[error("the commit made of the work differs from it at {path}")]
    Differs { path: RelPath },
    #[error("the files of {} can't be brought along", root.display())]
    Apply { root: PathBuf, source: ApplyError },
    #[error("{what} has been locked by another process for too long")]
    Busy { what: String },
    #[error("can't {doing} {remote}: {message}")]
    Remote { doing: &'static str, remote: String, message: String },
    /// The remote did not answer: it may have received the request or not.
    #[error("there is no answer from {remote}: {message}")]
    Unreachable { doing: &'static str, remote: String, message: String },
    #[error("a file of the board can't be put back: {reason}")]
    Board { reason: String },
    #[error("the input of git is closed")]
    Pipe(#[from] io::Error),
    /// Only the observer of a test asks for this.
    #[error("stopped as after a crash")]
    Stopped,
}

impl Error {
    /// Whether the error is about references in the repository, so that a person has to repair them.
    pub fn is_about_references(&self) -> bool {
        matches!(
            self,
            Self::Unsupported { .. }
                | Self::Name { .. }
                | Self::Refs { .. }
                | Self::Record { .. }
                | Self::Missing { .. }
                | Self::Git { .. }
        )
    }
}

impl From<GitError> for Error {
    fn from(source: GitError) -> Self {
        Self::Git { doing: "run git", source }
    }
}

/// A file of the repository that we do not use.
pub(super) fn untrusted(path: &Path) -> impl Fn(UntrustedError) -> Error {
    let path = path.to_owned();
    move |error| Error::Unsupported { path: path.clone(), reason: error.to_string() }
}

pub(super) fn git(doing: &'static str) -> impl Fn(GitError) -> Error {
    move |source| Error::Git { doing, source }
}

pub(super) fn files<E: Into<io::Error>>(doing: &'static str, path: &Path) -> impl Fn(E) -> Error {
    let path = path.to_owned();
    move |source| Error::Files { doing, path: path.clone(), source: source.into() }
}
