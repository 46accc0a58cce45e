//! What a command works on: a folder as it is, or a commit of its repository.
//!
//! Both are a [`Workspace`]. They differ in what holds still: a live folder may change under the command, a
//! commit can't, because its layers are held for as long as the ground is.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::control::Control;
use crate::harvest::{self, BaseLayers, Harvest, HarvestLimits, HarvestRules};
use crate::path::RelPath;
use crate::policy::Policy;
use crate::scope::Scope;
use crate::workspace::Workspace;
use crate::workspace::folder::{FolderError, WorkspaceFolder};
use crate::workspace::ignore_rules::IgnoreRules;
use crate::workspace::snapshot::{SnapshotError, SnapshotLayers, Snapshots};
use crate::workspace::state::{RunFolder, StateFolder};

/// The ground of one run.
#[derive(Debug)]
pub struct PreparedWorkspace {
    pub workspace: Workspace,
    /// What is scratch on it.
    pub ignored: IgnoreRules,
    /// Those of a commit, held for as long as they are mounted.
    layers: Option<SnapshotLayers>,
    /// Whether it is a repository's.
    repository: bool,
}

/// Why there is nothing to work on.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("{} is not in a repository, so there is no commit `{rev}`", root.display())]
    NoRepository { rev: String, root: PathBuf },
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

impl PreparedWorkspace {
    /// The folder as it is. With `in_memory`, what the command changes is caught there.
    pub fn from_folder(
        folder: &WorkspaceFolder,
        in_memory: bool,
        run: &RunFolder,
        state: &StateFolder,
    ) -> Result<Self, PrepareError> {
        let ignored = folder.ignored();
        let workspace = folder.workspace(run, &ignored, state, in_memory)?;
        Ok(Self { workspace, ignored, layers: None, repository: folder.repository.is_some() })
    }

    /// A commit, checked out once and kept.
    pub fn from_commit(
        folder: &WorkspaceFolder,
        rev: &str,
        run: &RunFolder,
        state: &StateFolder,
    ) -> Result<Self, PrepareError> {
        let Some(repository) = &folder.repository else {
            return Err(PrepareError::NoRepository { rev: rev.to_owned(), root: folder.root.clone() });
        };
        let snapshots = Snapshots::open(state, repository, Path::new("git"))?;
        let layers = snapshots.layers(rev)?;
        let workspace = snapshots.workspace(&layers, &folder.root, run)?;
        let ignored = snapshots.ignored(&layers);
        Ok(Self { workspace, ignored, layers: Some(layers), repository: true })
    }

    /// The layers of the commit; `None` for a live folder.
    pub fn layers(&self) -> Option<&SnapshotLayers> {
        self.layers.as_ref()
    }

    /// Every change in the upper layer of a run on it, judged by the exact scope.
    pub fn harvest(&self, upper: BorrowedFd<'_>, policy: &Policy) -> io::Result<Harvest> {
        let hidden: Vec<RelPath> = self.workspace.hidden_paths(&policy.hide).collect();
        let everything = Scope::parse(&["**"], &[]).map_err(io::Error::other)?;
        let judges = policy.requires(Control::Harvest);
        let rules = HarvestRules {
            scope: if judges { &policy.scope } else { &everything },
            scratch: &|path, is_directory| self.ignored.is_scratch(path, is_directory),
            repository: self.repository,
            hidden: &hidden,
            secrets: &policy.secrets,
            limits: HarvestLimits::default(),
        };
        let mut harvest = harvest::harvest(upper, &self.base()?, &rules);
        if !judges {
            harvest.violations.clear();
            harvest.violations_left_out = 0;
        }
        Ok(harvest)
    }

    /// What it was before the run.
    pub fn base(&self) -> io::Result<BaseLayers> {
        let lowers = self.workspace.overlays.first().map(|overlay| overlay.lowers.as_slice());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |lower: &PathBuf| rustix::fs::open(lower, flags, Mode::empty());
        Ok(BaseLayers::new(lowers.unwrap_or_default().iter().map(open).collect::<Result<Vec<OwnedFd>, _>>()?))
    }
}
