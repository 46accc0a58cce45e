//! `agency sandbox`: one command, held to a scope.
//!
//! What is asked becomes a policy ([`asked`]); the command runs under it; what it changed is judged and
//! applied, written as a patch or thrown away ([`result`]); and what happened is told ([`report`]).

mod asked;
mod report;
mod result;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use agency_sandbox::ahead::Ahead;
use agency_sandbox::harvest::apply::Mark;
use agency_sandbox::host::Host;
use agency_sandbox::launch::{self, LaunchError, Request};
use agency_sandbox::policy::Level;
use agency_sandbox::supervise::{Attendant, Wish};
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::ground::{Ground, GroundError};
use agency_sandbox::workspace::state::State;

use crate::arguments::Sandbox;
use crate::isolation::level;
use crate::message::{self, Failure, OWN_FAILURE, UNAVAILABLE, USAGE};
use crate::state;
use result::Work;

pub(crate) fn run(command: &Sandbox) -> Result<u8, Failure> {
    let level = level(command.isolation);
    let network = asked::network(command)?;
    let host = Host::observe();
    // This takes longest, so it begins before anything else is looked at.
    let ahead = Ahead::send(&host, level, &command.without.iter().copied().collect(), &network);
    let current = std::env::current_dir().map_err(|error| Failure::new(USAGE, &error))?;
    let folder = Folder::around(&current).map_err(|error| state::refused(&error))?;
    state::mention_legacy(&folder);
    let policy = asked::policy(command, level, network, &folder, &host, &current)?;
    asked::result(command, &current)?;

    let state = state::of(&folder)?;
    let live = result::open_folder(&folder.root)?;
    result::recover(&state, live.as_fd())?;
    let run = match level {
        Level::Landlock => {
            State::for_copies(&state::copies(&host)?, host.is_root()).map_err(own_failure)?.run()
        }
        Level::Process | Level::Container => state.run(),
    };
    let staging = state.folder("stage").map_err(own_failure)?;
    let mut ground = match &command.base {
        None => Ground::live(&folder, asked::in_memory(level, command.layer)?, &run, &state),
        Some(rev) => Ground::commit(&folder, rev, &run, &state),
    }
    .map_err(groundless)?;
    ground.workspace = ground.workspace.answered(&policy);
    let started = if command.apply { Some(Mark::now(live.as_fd()).map_err(own_failure)?) } else { None };

    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let shown = if command.json { error.as_fd() } else { output.as_fd() };
    let outcome = launch::run(
        &Request {
            policy: &policy,
            host: &host,
            workspace: &ground.workspace,
            run: &run,
            staging: &staging,
            command: &command.command,
            start: &folder.start,
            terminal: command.tty,
            streams: [input.as_fd(), shown, error.as_fd()],
            attendant: &Person,
        },
        Some(ahead),
    )
    .map_err(refused)?;

    let work =
        Work { command, policy: &policy, ground: &ground, run: &run, state: &state, outcome: &outcome, live };
    let judged = work.judge()?;
    let result = work.settle(&judged, started)?;
    let code = report::tell(command, &policy, &folder, &outcome, &judged, &result);
    // The layers go while the kernel is still taking the sandbox apart; then that is waited for.
    drop(run);
    drop(outcome);
    code
}

/// Whoever waits for the command to start.
struct Person;

impl Attendant for Person {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn due(&self) -> Option<Instant> {
        None
    }

    fn attend(&self, _: Instant) -> Wish {
        Wish::GoOn
    }

    fn told(&self, what: &str) {
        message::notice(what);
    }
}

fn own_failure<E: std::error::Error + 'static>(error: E) -> Failure {
    Failure::new(OWN_FAILURE, &error)
}

/// A folder that can't be worked on is our failure; a commit that is not there is a mistake in the arguments.
fn groundless(error: GroundError) -> Failure {
    match error {
        GroundError::NoRepository { rev, root } => {
            Failure::usage(format!("--base {rev}: {} is not in a repository", root.display()))
        }
        GroundError::Folder(error) => state::refused(&error),
        GroundError::Snapshot(error) => Failure::new(USAGE, &error),
    }
}

fn refused(error: LaunchError) -> Failure {
    let code = if error.is_unavailable() { UNAVAILABLE } else { OWN_FAILURE };
    let failure = Failure::new(code, &error);
    match error.hint() {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
