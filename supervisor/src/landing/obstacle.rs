//! What a landing waits for: something of a person's, and where it is.

use std::fmt;
use std::path::{Path, PathBuf};

use agency_sandbox::path::{RelPath, escape};
use serde::{Serialize, Serializer};

use super::worktree::Operation;

/// One thing in the way. The branch does not move before it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// The work tree it is in.
    #[serde(serialize_with = "shown")]
    pub root: PathBuf,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// Edited, and not committed.
    Edited {
        path: RelPath,
    },
    /// Deleted, and not committed.
    Deleted {
        path: RelPath,
    },
    /// The index has something else than the last commit.
    Staged {
        path: RelPath,
    },
    /// Git does not know it, and a file is to be put there.
    Untracked {
        path: RelPath,
    },
    /// Git was told not to look at it (`--skip-worktree`), and it is there.
    Hidden {
        path: RelPath,
    },
    /// The person's git runs a program on it. We don't, and so can't know what it should look like.
    Filtered {
        path: RelPath,
        filter: String,
    },
    /// Git takes the folder for a repository, or would with what is to be put there.
    Repository {
        path: RelPath,
    },
    Unreadable {
        path: RelPath,
        error: String,
    },
    /// A person is in the middle of something.
    Operation {
        operation: Operation,
    },
    /// `index.lock` is there.
    Locked,
    /// A work tree that a person locked, and whose folder is not there now.
    Away,
    /// Nobody knows where the files of this git directory are.
    Homeless,
    /// The branch is checked out more than once.
    Twice,
}

impl Obstacle {
    /// The file to look at, if it is about one.
    pub fn path(&self) -> Option<&RelPath> {
        match &self.what {
            What::Edited { path }
            | What::Deleted { path }
            | What::Staged { path }
            | What::Untracked { path }
            | What::Hidden { path }
            | What::Filtered { path, .. }
            | What::Repository { path }
            | What::Unreadable { path, .. } => Some(path),
            What::Operation { .. } | What::Locked | What::Away | What::Homeless | What::Twice => None,
        }
    }
}

fn shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(path.as_os_str().as_encoded_bytes()))
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = escape(self.root.as_os_str().as_encoded_bytes());
        match &self.what {
            What::Edited { path } => write!(f, "{path} has been edited in {root}; commit it or take it back"),
            What::Deleted { path } => {
                write!(f, "{path} has been deleted in {root}; commit it or take it back")
            }
            What::Staged { path } => {
                write!(f, "{path} has staged changes in {root}; commit them or take them back")
            }
            What::Untracked { path } => {
                write!(f, "{path} is in {root}, and git does not know it; move it away or commit it")
            }
            What::Hidden { path } => {
                write!(f, "{path} is in {root}, and git was told not to look at it (--skip-worktree)")
            }
            What::Filtered { path, filter } => write!(
                f,
                "{path} goes through the filter `{}` in {root}, which is not run here; \
                 switch to another branch there, or land on a branch of its own",
                escape(filter.as_bytes())
            ),
            What::Repository { path } => write!(
                f,
                "{path} in {root} would be a folder that git takes for a repository (HEAD beside objects and refs, \
                 or beside commondir); move what is there away, or merge by hand"
            ),
            What::Unreadable { path, error } => write!(f, "{path} can't be compared in {root}: {error}"),
            What::Operation { operation } => {
                write!(f, "{operation} is under way in {root}; end it or abort it")
            }
            What::Locked => {
                write!(f, "git is at work in {root}; if none is, remove index.lock from its git directory")
            }
            What::Away => write!(f, "{root} has the branch checked out, is locked, and is not there"),
            What::Homeless => {
                write!(f, "{root} has the branch checked out, and does not say where its files are")
            }
            What::Twice => write!(f, "{root} is one of several work trees that have the branch checked out"),
        }
    }
}
