//! One command in a sandbox: it runs under a policy, and its changes are judged and kept or discarded.

mod changes;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Instant;

use agency_sandbox::harvest::Harvest;
use agency_sandbox::harvest::apply::FileClockTime;
use agency_sandbox::host::HostUser;
use agency_sandbox::launch::{LaunchError, LaunchOutcome};
use agency_sandbox::monitor::{MonitorDecision, RunMonitor};
use agency_sandbox::namespace_prefetch::NamespacePrefetch;
use agency_sandbox::policy::Policy;
use agency_sandbox::session::{SandboxSession, SessionCommand, SessionFolders};
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::prepare::{PrepareError, PreparedWorkspace};

use crate::app::error::{CommandError, ErrorKind};
use crate::app::front_end::FrontEnd;
use crate::app::state_folder;
pub(crate) use changes::ChangesOutcome;
use changes::{FinishedRun, open_folder, recover};

/// A command, and what holds it.
pub(crate) struct SandboxRequest<'a> {
    pub(crate) folder: &'a WorkspaceFolder,
    pub(crate) host: &'a HostUser,
    pub(crate) policy: &'a Policy,
    pub(crate) command: &'a [OsString],
    /// The commit to work on; the folder as it is without one.
    pub(crate) base: Option<&'a str>,
    /// Whether the changes of a folder are kept in memory.
    pub(crate) in_memory: bool,
    pub(crate) keep: KeptChanges,
    /// Whether the command gets a terminal of its own.
    pub(crate) has_terminal: bool,
    /// Input, output and errors of the command.
    pub(crate) streams: [BorrowedFd<'a>; 3],
}

/// What is done with changes in scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeptChanges {
    None,
    Apply,
    Patch(PathBuf),
}

/// How the command ended, and what became of its changes.
pub(crate) struct SandboxAnswer {
    pub(crate) outcome: LaunchOutcome,
    pub(crate) harvest: Harvest,
    pub(crate) changes: ChangesOutcome,
    /// Its folders are removed after the outcome, which waits until the kernel has taken the sandbox apart.
    _session: SandboxSession,
}

/// Runs the command to its end. `ahead` are namespaces that are being made already, because that takes longest.
pub(crate) fn run(
    request: &SandboxRequest<'_>,
    ahead: NamespacePrefetch,
    front_end: &dyn FrontEnd,
) -> Result<SandboxAnswer, CommandError> {
    let SandboxRequest { folder, host, policy, keep, .. } = request;
    let state = state_folder::of_folder(folder)?;
    let live = open_folder(&folder.root)?;
    recover(&state, live.as_fd(), front_end)?;
    let folders = SessionFolders::open(policy.level, host, &state, &state_folder::copies_folder(host)?)
        .map_err(|error| sandbox_failed(error.source))?;
    let mut session = folders.begin(|run, state| {
        match request.base {
            None => PreparedWorkspace::from_folder(folder, request.in_memory, run, state),
            Some(rev) => PreparedWorkspace::from_commit(folder, rev, run, state),
        }
        .map_err(groundless)
    })?;
    session.ground.workspace = session.ground.workspace.with_fsmonitor(policy);
    let started = match keep {
        KeptChanges::Apply => Some(FileClockTime::now(live.as_fd()).map_err(sandbox_failed)?),
        KeptChanges::None | KeptChanges::Patch(_) => None,
    };
    let asked = SessionCommand {
        policy,
        host,
        command: request.command,
        start: &folder.start,
        terminal: request.has_terminal,
        streams: request.streams,
        attendant: &StartProgress(front_end),
    };
    let outcome = session.launch(&asked, Some(ahead)).map_err(refused)?;
    let finished = FinishedRun { keep, policy, session: &session, state: &state, outcome: &outcome, live };
    let harvest = finished.judge()?;
    let changes = finished.settle(&harvest, started)?;
    Ok(SandboxAnswer { outcome, harvest, changes, _session: session })
}

/// Passes on what is slow before the command starts.
struct StartProgress<'f>(&'f dyn FrontEnd);

impl RunMonitor for StartProgress<'_> {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn due(&self) -> Option<Instant> {
        None
    }

    fn attend(&self, _: Instant) -> MonitorDecision {
        MonitorDecision::GoOn
    }

    fn progress(&self, what: &str) {
        self.0.notice(what);
    }
}

pub(crate) fn sandbox_failed<E: std::error::Error + 'static>(error: E) -> CommandError {
    CommandError::new(ErrorKind::SandboxFailed, &error)
}

/// A folder that can't be worked on is our failure; a commit that is not there is a mistake in the arguments.
fn groundless(error: PrepareError) -> CommandError {
    match error {
        PrepareError::NoRepository { rev, root } => {
            CommandError::usage(format!("--base {rev}: {} is not in a repository", root.display()))
        }
        PrepareError::Folder(error) => state_folder::folder_error(&error),
        PrepareError::Snapshot(error) => CommandError::new(ErrorKind::Usage, &error),
    }
}

fn refused(error: LaunchError) -> CommandError {
    let code = if error.is_unavailable() { ErrorKind::Unavailable } else { ErrorKind::SandboxFailed };
    let failure = CommandError::new(code, &error);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
