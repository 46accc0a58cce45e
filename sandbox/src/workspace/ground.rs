//! What a command works on: a folder as it is, or a commit of its repository.
//!
//! Both are a [`Workspace`]. They differ in what holds still: a live folder may change under the command, a
//! commit can't, because its layers are held for as long as the ground is.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::control::Control;
use crate::harvest::{self, Base, Harvest, Limits, Rules};
use crate::path::RelPath;
use crate::policy::Policy;
use crate::scope::Scope;
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
    /// Whether it is a repository's.
    repository: bool,
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
        Ok(Self { workspace, ignored, layers: None, repository: folder.repository.is_some() })
    }

    /// A commit, checked out once and kept.
    pub fn commit(folder: &Folder, rev: &str, run: &Run, state: &State) -> Result<Self, GroundError> {
        let Some(repository) = &folder.repository else {
            return Err(GroundError::NoRepository { rev: rev.to_owned(), root: folder.root.clone() });
        };
        let snapshots = Snapshots::open(state, repository, Path::new("git"))?;
        let layers = snapshots.layers(rev)?;
        let workspace = snapshots.workspace(&layers, &folder.root, run)?;
        let ignored = snapshots.ignored(&layers);
        Ok(Self { workspace, ignored, layers: Some(layers), repository: true })
    }

    /// The layers of the commit; `None` for a live folder.
    pub fn layers(&self) -> Option<&Layers> {
        self.layers.as_ref()
    }

    /// Every change in the upper layer of a run on it, judged by the exact scope.
    pub fn harvest(&self, upper: BorrowedFd<'_>, policy: &Policy) -> io::Result<Harvest> {
        let hidden: Vec<RelPath> = self.workspace.out_of_sight(&policy.hide).collect();
        let everything = Scope::parse(&["**"], &[]).map_err(io::Error::other)?;
        let judges = policy.wants(Control::Harvest);
        let rules = Rules {
            scope: if judges { &policy.scope } else { &everything },
            scratch: &|path, is_directory| self.ignored.is_scratch(path, is_directory),
            repository: self.repository,
            hidden: &hidden,
            secrets: &policy.secrets,
            limits: Limits::default(),
        };
        let mut harvest = harvest::harvest(upper, &self.base()?, &rules);
        if !judges {
            harvest.violations.clear();
            harvest.violations_left_out = 0;
        }
        Ok(harvest)
    }

    /// What it was before the run.
    pub fn base(&self) -> io::Result<Base> {
        let lowers = self.workspace.overlays.first().map(|overlay| overlay.lowers.as_slice());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |lower: &PathBuf| rustix::fs::open(lower, flags, Mode::empty());
        Ok(Base::new(lowers.unwrap_or_default().iter().map(open).collect::<Result<Vec<OwnedFd>, _>>()?))
    }
}
