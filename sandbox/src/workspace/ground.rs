//! What a command works on: a folder as it is, or a commit of its repository.
//!
//! Both are a [`Workspace`]. They differ in what holds still: a live folder may change under the command, a
//! commit can't, because its layers are held for as long as the ground is.

use std::path::{Path, PathBuf};

use crate::workspace::Workspace;
use crate::workspace::folder::{Folder, FolderError};
use crate::workspace::ignored::Ignored;
use crate::workspace::snapshot::{Layers, SnapshotError, Snapshots};
use crate::workspace::state::{Run, State};

/// The ground of one run.
#[derive(Debug)]
pub struct Ground {
    pub workspace: Workspace,
    /// What is scratch on it.
    pub ignored: Ignored,
    /// Those of a commit, held for as long as they are mounted.
    layers: Option<Layers>,
}

/// Why there is nothing to work on.
#[derive(Debug, thiserror::Error)]
pub enum GroundError {
    #[error("{} is not in a repository, so there is no commit `{rev}`", root.display())]
    NoRepository { rev: String, root: PathBuf },
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

impl Ground {
    /// The folder as it is. With `in_memory`, what the command changes is caught there.
    pub fn live(folder: &Folder, in_memory: bool, run: &Run, state: &State) -> Result<Self, GroundError> {
        let ignored = folder.ignored();
        let workspace = folder.workspace(run, &ignored, state, in_memory)?;
        Ok(Self { workspace, ignored, layers: None })
    }

    /// A commit, checked out once and kept.
    pub fn commit(folder: &Folder, rev: &str, run: &Run, state: &State) -> Result<Self, GroundError> {
        let Some(repository) = &folder.repository else {
            return Err(GroundError::NoRepository { rev: rev.to_owned(), root: folder.root.clone() });
        };
        let snapshots = Snapshots::open(state, repository, Path::new("git"))?;
        let layers = snapshots.layers(rev)?;
        let workspace = snapshots.workspace(&layers, &folder.root, run)?;
        Ok(Self { workspace, ignored: snapshots.ignored(&layers), layers: Some(layers) })
    }

    /// The layers of the commit; `None` for a live folder.
    pub fn layers(&self) -> Option<&Layers> {
        self.layers.as_ref()
    }
}
