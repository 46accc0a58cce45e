//! Obstacles: a person's change or operation that a landing waits for, and where it is.

use std::fmt;
use std::path::{Path, PathBuf};

use agency_sandbox::path::{RelPath, escape};
use serde::{Serialize, Serializer};

use super::worktree::GitOperation;

/// One obstacle. The branch does not move before it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// The work tree it is in.
    #[serde(serialize_with = "shown")]
    pub root: PathBuf,
    #[serde(flatten)]
    pub what: ObstacleKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum ObstacleKind {
    /// Edited, and not committed.
    Edited {
        path: RelPath,
    },
    /// Deleted, and not committed.
    Deleted {
        path: RelPath,
    },
    /// The index has another entry than the last commit.
    Staged {
        path: RelPath,
    },
    /// An untracked file is where the work has a file.
    Untracked {
        path: RelPath,
    },
    /// The file is there, and git was told to skip it (`--skip-worktree`).
    Hidden {
        path: RelPath,
    },
    /// The person's git filters the file with a program. We do not run it, so we can't know what the file should look
    /// like.
    Filtered {
        path: RelPath,
        filter: String,
    },
    /// Git takes the folder for a repository, or would when the work's files are in it.
    Repository {
        path: RelPath,
    },
    Unreadable {
        path: RelPath,
        error: String,
    },
    /// A person has begun an operation, such as a rebase.
    Operation {
        operation: GitOperation,
    },
    /// `index.lock` is there.
    Locked,
    /// A work tree that a person locked, and whose folder is not there now.
    Away,
    /// The git directory does not say where its work tree is.
    Homeless,
    /// The branch is checked out more than once.
    Twice,
}

impl Obstacle {
    /// The file concerned, if there is one.
    pub fn path(&self) -> Option<&RelPath> {
        match &self.what {
            ObstacleKind::Edited { path }
            | ObstacleKind::Deleted { path }
            | ObstacleKind::Staged { path }
            | ObstacleKind::Untracked { path }
            | ObstacleKind::Hidden { path }
            | ObstacleKind::Filtered { path, .. }
            | ObstacleKind::Repository { path }
            | ObstacleKind::Unreadable { path, .. } => Some(path),
            ObstacleKind::Operation { .. }
            | ObstacleKind::Locked
            | ObstacleKind::Away
            | ObstacleKind::Homeless
            | ObstacleKind::Twice => None,
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
            ObstacleKind::Edited { path } => {
                write!(f, "{path} has been edited in {root}; commit it or take it back")
            }
            ObstacleKind::Deleted { path } => {
                write!(f, "{path} has been deleted in {root}; commit it or take it back")
            }
            ObstacleKind::Staged { path } => {
                write!(f, "{path} has staged changes in {root}; commit them or take them back")
            }
            ObstacleKind::Untracked { path } => {
                write!(f, "{path} is in {root}, and git does not know it; move it away or commit it")
            }
            ObstacleKind::Hidden { path } => {
                write!(f, "{path} is in {root}, and git was told not to look at it (--skip-worktree)")
            }
            ObstacleKind::Filtered { path, filter } => write!(
                f,
                "{path} goes through the filter `{}` in {root}, which is not run here; \
                 switch to another branch there, or land on a branch of its own",
                escape(filter.as_bytes())
            ),
            ObstacleKind::Repository { path } => write!(
                f,
                "{path} in {root} would be a folder that git takes for a repository (HEAD beside objects and refs, \
                 or beside commondir); move what is there away, or merge by hand"
            ),
            ObstacleKind::Unreadable { path, error } => {
                write!(f, "{path} can't be compared in {root}: {error}")
            }
            ObstacleKind::Operation { operation } => {
                write!(f, "{operation} is under way in {root}; end it or abort it")
            }
            ObstacleKind::Locked => {
                write!(f, "git is at work in {root}; if none is, remove index.lock from its git directory")
            }
            ObstacleKind::Away => write!(f, "{root} has the branch checked out, is locked, and is not there"),
            ObstacleKind::Homeless => {
                write!(f, "{root} has the branch checked out, and does not say where its files are")
            }
            ObstacleKind::Twice => {
                write!(f, "{root} is one of several work trees that have the branch checked out")
            }
        }
    }
}
