//! `agency sandbox`: one command, held to a scope.
//!
//! What is typed becomes a policy ([`policy`]); `app::sandbox` runs the command; what happened is printed ([`report`]).

pub(crate) mod arguments;
mod policy;
mod report;

use std::os::fd::AsFd;

use agency_sandbox::host::HostUser;
use agency_sandbox::namespace_prefetch::NamespacePrefetch;
use agency_sandbox::policy::IsolationLevel;
use agency_sandbox::workspace::folder::WorkspaceFolder;

use crate::app::error::{CommandError, ErrorKind};
use crate::app::sandbox::{self, KeptChanges, SandboxRequest};
use crate::app::state_folder;
use crate::cli::message;
use crate::cli::prompt::TerminalFrontEnd;
use crate::cli::sandbox::arguments::SandboxArgs;

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
    let in_memory = command.base.is_none() && policy::in_memory(level, command.layer)?;
    let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let shown = if command.json { error.as_fd() } else { output.as_fd() };
    let request = SandboxRequest {
        folder: &folder,
        host: &host,
        policy: &policy,
        command: &command.command,
        base: command.base.as_deref(),
        in_memory,
        keep: kept_changes(command),
        has_terminal: command.tty,
        streams: [input.as_fd(), shown, error.as_fd()],
    };
    let answer = sandbox::run(&request, ahead, &TerminalFrontEnd)?;
    report::tell(command, &policy, &folder, &answer)
}

fn kept_changes(command: &SandboxArgs) -> KeptChanges {
    match (&command.patch, command.apply) {
        (Some(file), _) => KeptChanges::Patch(file.clone()),
        (None, true) => KeptChanges::Apply,
        (None, false) => KeptChanges::None,
    }
}
