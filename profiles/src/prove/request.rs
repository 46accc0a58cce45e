//! What is to be proved, where its files lie, and why there may be no proof.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use agency_sandbox::host::HostUser;
use agency_sandbox::launch::LaunchError;
use agency_sandbox::monitor::RunMonitor;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::ContainerConfig;
use agency_sandbox::policy::IsolationLevel;
use agency_sandbox::scope::GlobError;
use agency_sandbox::session::{SessionFolderError, SessionFolders};
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::prepare::PrepareError;
use agency_sandbox::workspace::snapshot::SetupLayer;
use agency_sandbox::workspace::state::StateFolder;
use jiff::Timestamp;

use crate::git_tree::TreeIdError;
use crate::proof::CommandProof;

/// What is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofCandidate<'a> {
    /// The folder as it is, uncommitted work included.
    Live,
    /// A commit of its repository.
    Commit(&'a str),
}

/// A request for a proof: the candidate, the sandbox, the folders, and whether the profile is trusted.
pub struct ProofRequest<'a> {
    pub folder: &'a WorkspaceFolder,
    pub candidate: ProofCandidate<'a>,
    pub level: IsolationLevel,
    /// The configuration of containers, where a profile has none.
    pub container: Option<&'a ContainerConfig>,
    pub host: &'a HostUser,
    /// The state folder for runs.
    pub state: &'a StateFolder,
    /// The parent folder of private copies, at the level that needs them.
    pub copies: &'a Path,
    /// The folder for logs, one for each command. It is made if it is missing.
    pub logs: &'a Path,
    /// The variables a profile's `env` can name.
    pub variables: &'a [(OsString, OsString)],
    /// Variables that every command gets; no secrets.
    pub handed: &'a [(OsString, OsString)],
    /// Whether a person trusts the repository's own profiles.
    pub trusted: bool,
    /// Stop at the first command that does not succeed.
    pub fail_fast: bool,
    /// Paths of the folder that may change meanwhile, because they are no part of the work: a protocol's own
    /// files. The logs need not be named.
    pub aside: &'a [RelPath],
    /// The layer that a setup made, for a commit. A folder as it is has its own.
    pub prepared: Option<&'a SetupLayer>,
    pub clock: &'a dyn Fn() -> Timestamp,
    /// Monitors a command while it runs, and may stop it.
    pub attendant: &'a dyn RunMonitor,
}

impl std::fmt::Debug for ProofRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Variables may hold secrets.
        f.debug_struct("ProofRequest")
            .field("folder", &self.folder.root)
            .field("candidate", &self.candidate)
            .finish_non_exhaustive()
    }
}

/// Progress of a proof. The first index is 0.
#[derive(Debug, Clone, Copy)]
pub enum ProofEvent<'a> {
    Started { index: usize, total: usize, cmd: &'a str, log: &'a Path },
    Ended { index: usize, total: usize, command: &'a CommandProof },
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    #[error("{} is the repository's own, and is not trusted", show(files))]
    NotTrusted { files: Vec<PathBuf> },
    #[error("the profile has no commands")]
    Nothing,
    #[error("can't write {}", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("can't keep the files of a run in {}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Ground(#[from] PrepareError),
    #[error(transparent)]
    Tree(#[from] TreeIdError),
    /// The sandbox's own failure.
    #[error("`{cmd}` was not run")]
    Launch { cmd: String, source: LaunchError },
    #[error("stopped before it was done")]
    Stopped,
    #[error("interrupted by signal {signal}")]
    Interrupted { signal: i32 },
    #[error("the whole folder can't be made writable")]
    Scope(#[from] GlobError),
}

const USUAL_HINT: &str = "`agency doctor` tells what this host offers";

impl ProveError {
    /// A hint for a person, where a command could not be run.
    pub fn hint(&self) -> String {
        let Self::Launch { source, .. } = self else { return USUAL_HINT.to_owned() };
        source.hint().unwrap_or_else(|| USUAL_HINT.to_owned())
    }

    /// Whether this host lacks a requested isolation.
    pub fn is_unavailable(&self) -> bool {
        let Self::Launch { source, .. } = self else { return false };
        source.is_unavailable()
    }
}

fn show(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// The folders of the commands' runs.
pub(super) struct ProofFolders {
    pub(super) sessions: SessionFolders,
}

impl ProofFolders {
    pub(super) fn open(order: &ProofRequest<'_>) -> Result<Self, ProveError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(order.logs)
            .map_err(|source| ProveError::Log { path: order.logs.to_owned(), source })?;
        let sessions = SessionFolders::open(order.level, order.host, order.state, order.copies)
            .map_err(|SessionFolderError { path, source }| ProveError::State { path, source })?;
        Ok(Self { sessions })
    }
}
