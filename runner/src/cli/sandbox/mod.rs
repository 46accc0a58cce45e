//! `agency sandbox`: one command, held to a scope.
//!
//! What is asked becomes a policy ([`policy`]); the command runs under it; what it changed is judged and
//! applied, written as a patch or thrown away ([`result`]); and what happened is told ([`report`]).

pub(crate) mod arguments;
mod policy;
mod report;
mod result;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use agency_sandbox::harvest::apply::FileClockTime;
use agency_sandbox::host::HostUser;
use agency_sandbox::launch::LaunchError;
use agency_sandbox::monitor::{MonitorDecision, RunMonitor};
use agency_sandbox::namespace_prefetch::NamespacePrefetch;
use agency_sandbox::policy::IsolationLevel;
use agency_sandbox::session::{SessionCommand, SessionFolders};
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::prepare::{PrepareError, PreparedWorkspace};

use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;
use crate::cli::message;
use crate::cli::sandbox::arguments::SandboxArgs;
use result::FinishedRun;

pub(crate) fn run(command: &SandboxArgs) -> Result<u8, CommandError> {
    let level = IsolationLevel::from(command.isolation);
    let network = policy::network(command)?;
    let host = HostUser::observe();
    // This takes longest, so it begins before anything else is looked at.
    let ahead = NamespacePrefetch::start(&host, level, &command.without.iter().copied().collect(), &network);
    let current = std::env::current_dir().map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
    let folder = WorkspaceFolder::discover(&current).map_err(|error| state_folder::folder_error(&error))?;
    message::notices(state_folder::legacy_state_notice(&folder));
    let policy = policy::policy(command, level, network, &folder, &host, &current)?;
    policy::result(command, &current)?;

    let state = state_folder::of_folder(&folder)?;
    let live = result::open_folder(&folder.root)?;
    result::recover(&state, live.as_fd())?;
    let folders = SessionFolders::open(level, &host, &state, &state_folder::copies_folder(&host)?)
        .map_err(|error| own_failure(error.source))?;
    let mut session = folders.begin(|run, state| match &command.base {
        None => {
            let in_memory = policy::in_memory(level, command.layer)?;
            PreparedWorkspace::from_folder(&folder, in_memory, run, state).map_err(groundless)
        }
        Some(rev) => PreparedWorkspace::from_commit(&folder, rev, run, state).map_err(groundless),
    })?;
    session.ground.workspace = session.ground.workspace.with_fsmonitor(&policy);
    let started =
        if command.apply { Some(FileClockTime::now(live.as_fd()).map_err(own_failure)?) } else { None };

    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let shown = if command.json { error.as_fd() } else { output.as_fd() };
    let asked = SessionCommand {
        policy: &policy,
        host: &host,
        command: &command.command,
        start: &folder.start,
        terminal: command.tty,
        streams: [input.as_fd(), shown, error.as_fd()],
        attendant: &NoticeAttendant,
    };
    let outcome = session.launch(&asked, Some(ahead)).map_err(refused)?;

    let work =
        FinishedRun { command, policy: &policy, session: &session, state: &state, outcome: &outcome, live };
    let judged = work.judge()?;
    let result = work.settle(&judged, started)?;
    report::tell(command, &policy, &folder, &outcome, &judged, &result)
}

/// Whoever waits for the command to start.
struct NoticeAttendant;

impl RunMonitor for NoticeAttendant {
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
        message::notice(what);
    }
}

fn own_failure<E: std::error::Error + 'static>(error: E) -> CommandError {
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
