//! A sandbox session: one command's workspace, its folders, its launch, and the order in which they are removed.
//!
//! [`SessionFolders`] are the folders of a level, opened once for any number of sessions. A [`SandboxSession`] owns what one
//! command needs: the run folder, the prepared workspace and, when the command has ended, what the kernel is still taking
//! apart.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use crate::host::HostUser;
use crate::launch::{self, LaunchError, LaunchOutcome, LaunchRequest, SandboxRemains};
use crate::monitor::RunMonitor;
use crate::namespace_prefetch::NamespacePrefetch;
use crate::path::RelPath;
use crate::policy::{IsolationLevel, Policy};
use crate::workspace::WriteLayer;
use crate::workspace::prepare::PreparedWorkspace;
use crate::workspace::snapshot::SetupLayer;
use crate::workspace::state::{RunFolder, StateFolder};

/// A folder of sessions that can't be opened.
#[derive(Debug, thiserror::Error)]
#[error("can't use {}", path.display())]
pub struct SessionFolderError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// The folders in which sessions of one level keep their files.
#[derive(Debug, Clone)]
pub struct SessionFolders {
    /// Has the run folders.
    runs: StateFolder,
    /// Has the snapshots.
    state: StateFolder,
    /// An empty folder on which first processes build their views.
    staging: PathBuf,
}

impl SessionFolders {
    /// Opens them. A level that moves the workspace keeps its runs below `copies`, the others in `state`.
    pub fn open(
        level: IsolationLevel,
        host: &HostUser,
        state: &StateFolder,
        copies: &Path,
    ) -> Result<Self, SessionFolderError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| SessionFolderError { path, source }
        };
        let runs = match level.moves_workspace() {
            true => StateFolder::for_copies(copies, host.is_root()).map_err(failed(copies))?,
            false => state.clone(),
        };
        let staging = state.folder("stage").map_err(failed(state.path()))?;
        Ok(Self { runs, state: state.clone(), staging })
    }

    /// A new session. `prepare` makes its workspace.
    pub fn begin<E>(
        &self,
        prepare: impl FnOnce(&RunFolder, &StateFolder) -> Result<PreparedWorkspace, E>,
    ) -> Result<SandboxSession, E> {
        self.resume(self.runs.run(), prepare)
    }

    /// A session in a run folder that a killed process left.
    pub fn resume<E>(
        &self,
        run: RunFolder,
        prepare: impl FnOnce(&RunFolder, &StateFolder) -> Result<PreparedWorkspace, E>,
    ) -> Result<SandboxSession, E> {
        let ground = prepare(&run, &self.state)?;
        let staging = self.staging.clone();
        Ok(SandboxSession { run, remains: SandboxRemains::default(), ground, setup: None, staging })
    }
}

/// One command to run in a session.
pub struct SessionCommand<'a> {
    pub policy: &'a Policy,
    pub host: &'a HostUser,
    pub command: &'a [OsString],
    /// The folder of the workspace in which it starts.
    pub start: &'a RelPath,
    /// Gives it a terminal instead of pipes.
    pub terminal: bool,
    /// Our standard streams, in their usual order.
    pub streams: [BorrowedFd<'a>; 3],
    pub attendant: &'a dyn RunMonitor,
}

impl std::fmt::Debug for SessionCommand<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionCommand").field("command", &self.command).finish_non_exhaustive()
    }
}

/// The sandbox of one command. The order of its fields is the order in which they are dropped: the run's layers are removed
/// while the kernel still takes the sandbox apart, then that is waited for, and last the layers of the snapshot and of the
/// setup are released, which were mounted until then.
#[derive(Debug)]
pub struct SandboxSession {
    run: RunFolder,
    remains: SandboxRemains,
    /// The workspace. Callers add to it before the launch.
    pub ground: PreparedWorkspace,
    setup: Option<SetupLayer>,
    staging: PathBuf,
}

impl SandboxSession {
    pub fn run(&self) -> &RunFolder {
        &self.run
    }

    /// The folder of the upper layer, for a process that collects the changes when this one was killed. A layer in memory
    /// has none.
    pub fn upper_path(&self, level: IsolationLevel) -> Option<PathBuf> {
        if level.copies_workspace() {
            return Some(self.run.path().join("upper"));
        }
        match self.ground.workspace.overlays.first().map(|overlay| &overlay.layer) {
            Some(WriteLayer::Disk { upper, .. }) => Some(upper.clone()),
            Some(WriteLayer::Memory) | None => None,
        }
    }

    /// Puts a setup's layer over the tree, and holds it for as long as the session lives.
    pub fn add_setup(&mut self, setup: SetupLayer) {
        self.ground.workspace = self.ground.workspace.clone().with_setup(&setup);
        self.setup = Some(setup);
    }

    /// Runs the command, in namespaces that were made ahead or are made now. The calling process must have a single thread.
    /// The session keeps the outcome's remains.
    pub fn launch(
        &mut self,
        command: &SessionCommand<'_>,
        ahead: Option<NamespacePrefetch>,
    ) -> Result<LaunchOutcome, LaunchError> {
        let request = LaunchRequest {
            policy: command.policy,
            host: command.host,
            workspace: &self.ground.workspace,
            run: &self.run,
            staging: &self.staging,
            command: command.command,
            start: command.start,
            terminal: command.terminal,
            streams: command.streams,
            attendant: command.attendant,
        };
        let mut outcome = launch::run(&request, ahead)?;
        self.remains = std::mem::take(&mut outcome.remains);
        Ok(outcome)
    }
}
