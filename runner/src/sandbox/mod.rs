//! `agency sandbox`: one command, held to a scope.
//!
//! What is asked becomes a policy ([`asked`]); the command runs under it; what it changed is judged and
//! applied, written as a patch or thrown away ([`result`]); and what happened is told ([`report`]).

mod asked;
mod report;
mod result;

use std::os::fd::AsFd;
use std::path::Path;

use agency_sandbox::ahead::Ahead;
use agency_sandbox::harvest::apply::Mark;
use agency_sandbox::host::Host;
use agency_sandbox::launch::{self, LaunchError, Request};
use agency_sandbox::policy::Level;
use agency_sandbox::workspace::Workspace;
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::ignored::Ignored;
use agency_sandbox::workspace::snapshot::{self, Snapshots};
use agency_sandbox::workspace::state::{Run, State};

use crate::arguments::Sandbox;
use crate::message::{Failure, OWN_FAILURE, UNAVAILABLE, USAGE};
use result::Work;

pub(crate) use asked::user_state;

pub(crate) fn run(command: &Sandbox) -> Result<u8, Failure> {
    let level = asked::level(command.isolation)?;
    let network = asked::network(command)?;
    let host = Host::observe();
    // This takes longest, so it begins before anything else is looked at.
    let ahead = Ahead::send(&host, level, &command.without.iter().copied().collect(), &network);
    let current = std::env::current_dir().map_err(|error| Failure::new(USAGE, &error))?;
    let folder = Folder::around(&current).map_err(|error| Failure::new(USAGE, &error))?;
    let policy = asked::policy(command, level, network, &folder, &host, &current)?;
    asked::result(command, &current)?;

    let state = folder.state(&asked::user_state(&host)).map_err(own_failure)?;
    let live = result::open_folder(&folder.root)?;
    result::recover(&state, live.as_fd())?;
    let run = match level {
        Level::Landlock => {
            State::for_copies(&asked::copies(&host), host.is_root()).map_err(own_failure)?.run()
        }
        Level::Process | Level::Container => state.run(),
    };
    let staging = state.folder("stage").map_err(own_failure)?;
    let Ground { workspace, ignored, _layers } = match &command.base {
        None => Ground::live(asked::in_memory(level, command.layer)?, &folder, &run, &state)?,
        Some(rev) => Ground::commit(rev, &folder, &run, &state)?,
    };
    let started = if command.apply { Some(Mark::now(live.as_fd()).map_err(own_failure)?) } else { None };

    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let shown = if command.json { error.as_fd() } else { output.as_fd() };
    let outcome = launch::run(
        &Request {
            policy: &policy,
            host: &host,
            workspace: &workspace,
            run: &run,
            staging: &staging,
            command: &command.command,
            start: &folder.start,
            terminal: command.tty,
            streams: [input.as_fd(), shown, error.as_fd()],
        },
        Some(ahead),
    )
    .map_err(refused)?;

    let work = Work {
        command,
        policy: &policy,
        workspace: &workspace,
        run: &run,
        state: &state,
        repository: folder.repository.is_some(),
        outcome: &outcome,
        live,
    };
    let judged = work.judge(&ignored)?;
    let result = work.settle(&judged, started)?;
    let code = report::tell(command, &policy, &outcome, &judged, &result);
    // The layers go while the kernel is still taking the sandbox apart; then that is waited for.
    drop(run);
    drop(outcome);
    code
}

/// What the command works on.
struct Ground {
    workspace: Workspace,
    ignored: Ignored,
    /// Held for as long as they are mounted.
    _layers: Option<snapshot::Layers>,
}

impl Ground {
    /// The folder as it is.
    fn live(in_memory: bool, folder: &Folder, run: &Run, state: &State) -> Result<Self, Failure> {
        let ignored = folder.ignored();
        let workspace = folder.workspace(run, &ignored, state, in_memory).map_err(own_failure)?;
        Ok(Self { workspace, ignored, _layers: None })
    }

    /// A commit, checked out once and kept.
    fn commit(rev: &str, folder: &Folder, run: &Run, state: &State) -> Result<Self, Failure> {
        let Some(repository) = &folder.repository else {
            return Err(Failure::usage(format!(
                "--base {rev}: {} is not in a repository",
                folder.root.display()
            )));
        };
        let unusable = |error| Failure::new(USAGE, &error);
        let snapshots = Snapshots::open(state, repository, Path::new("git")).map_err(unusable)?;
        let layers = snapshots.layers(rev).map_err(unusable)?;
        let workspace = snapshots.workspace(&layers, &folder.root, run).map_err(unusable)?;
        Ok(Self { workspace, ignored: snapshots.ignored(&layers), _layers: Some(layers) })
    }
}

fn own_failure<E: std::error::Error + 'static>(error: E) -> Failure {
    Failure::new(OWN_FAILURE, &error)
}

fn refused(error: LaunchError) -> Failure {
    match &error {
        LaunchError::Unavailable { hint, .. } => Failure::new(UNAVAILABLE, &error).with_hint(hint.clone()),
        LaunchError::NotHeld { .. } => Failure::new(UNAVAILABLE, &error)
            .with_hint("nothing was started; `agency doctor` tells what this host offers"),
        LaunchError::Internal { .. } => own_failure(error),
    }
}
