//! `agency store rebuild`: a damaged store is made anew.

use agency_sandbox::host::HostUser;
use agency_supervisor::rebuild::{self, RebuildError, RebuildSummary};
use agency_supervisor::startup;
use agency_supervisor::store::AttemptStoreError;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::app::approval::{ConfirmationRequest, confirm};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;
use crate::cli::message;
use crate::cli::output::print_json;

/// What helps against a store that is damaged.
pub(super) const REMEDY: &str =
    "`agency store rebuild` makes a new one from git and the records, and keeps the damaged one";

/// Mend the store of attempts
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  agency store rebuild --yes")]
pub(crate) enum StoreCommand {
    Rebuild(RebuildArgs),
}

/// Make a damaged store anew, from git and the records of attempts
///
/// What landed stays landed, attempts that were open are closed as lost and their tasks can be tried again, and new
/// attempts are numbered above all that were found. The damaged file is kept beside the new one. How often tasks failed
/// and what they used is forgotten. A store that is whole is left as it is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency store rebuild --yes")]
pub(crate) struct RebuildArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct RebuildAnswer {
    version: u32,
    /// Nothing, where the store is whole.
    rebuilt: Option<RebuildSummary>,
}

pub(crate) fn run(command: &StoreCommand) -> Result<u8, CommandError> {
    let StoreCommand::Rebuild(command) = command;
    let here = crate::cli::caller::repository()?;
    state_folder::check_writable(&here.folder)?;
    let state = state_folder::of_folder(&here.folder)?;
    let repository = startup::open_repository(&here.folder, state.path(), &HostUser::observe().home)
        .map_err(super::startup_error)?;
    // References of another store say nothing about this one.
    super::confirm_store(&here, &repository, state.path())?;
    if !command.yes {
        confirm(
            &here,
            &ConfirmationRequest {
                act: "rebuilding a store",
                without_asking: "agency store rebuild --yes",
                question: "make the store anew from git and the records?",
                refused: "nothing was rebuilt",
            },
        )?;
    }
    let rebuilt =
        crate::app::runtime::new()?.block_on(rebuild::rebuild(&repository, state.path())).map_err(refused)?;
    if command.json {
        print_json(&RebuildAnswer { version: 1, rebuilt })?;
        return Ok(0);
    }
    match rebuilt {
        None => message::notice("the store is whole; nothing was rebuilt"),
        Some(RebuildSummary { kept, tasks, landed, lost }) => {
            if let Some(kept) = kept {
                message::notice(&format!("the damaged store is kept as {}", kept.display()));
            }
            message::notice(&format!(
                "the new store knows {tasks} tasks: {landed} have landed, {lost} were open and are lost; `agency run` goes on"
            ));
        }
    }
    Ok(0)
}

fn refused(error: RebuildError) -> CommandError {
    match error {
        RebuildError::InUse { .. } => {
            CommandError::new(ErrorKind::Usage, &error).with_hint("end it first: `agency drain`")
        }
        RebuildError::AtWork { .. } => CommandError::new(ErrorKind::Usage, &error)
            .with_hint("it ends by itself when its lease does; try again then"),
        RebuildError::Store(error) => store_error(&error),
        error => CommandError::internal(&error),
    }
}

/// What is said of a store that can't be used.
pub(super) fn store_error(error: &AttemptStoreError) -> CommandError {
    match error {
        AttemptStoreError::Damaged { .. } => CommandError::new(ErrorKind::Usage, error).with_hint(REMEDY),
        error => CommandError::internal(error),
    }
}
