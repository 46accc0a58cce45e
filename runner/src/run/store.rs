//! `agency store rebuild`: a damaged store is made anew.

use agency_sandbox::host::Host;
use agency_supervisor::charge;
use agency_supervisor::rebuild::{self, RebuildError, Rebuilt};
use agency_supervisor::store::StoreError;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::board::{Here, ask_person, print_json};
use crate::message::{self, Failure, INTERNAL, USAGE};
use crate::state;

/// What helps against a store that is damaged.
pub(super) const REMEDY: &str =
    "`agency store rebuild` makes a new one from git and the records, and keeps the damaged one";

/// Mend the store of attempts
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  agency store rebuild --yes")]
pub(crate) enum StoreCommand {
    Rebuild(Rebuild),
}

/// Make a damaged store anew, from git and the records of attempts
///
/// What landed stays landed, attempts that were open are closed as lost and their tasks can be tried again, and new
/// attempts are numbered above all that were found. The damaged file is kept beside the new one. How often tasks failed
/// and what they used is forgotten. A store that is whole is left as it is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency store rebuild --yes")]
pub(crate) struct Rebuild {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Document {
    version: u32,
    /// Nothing, where the store is whole.
    rebuilt: Option<Rebuilt>,
}

pub(crate) fn run(command: &StoreCommand) -> Result<u8, Failure> {
    let StoreCommand::Rebuild(command) = command;
    let here = Here::find()?;
    state::check_writable(&here.folder)?;
    let state = state::of(&here.folder)?;
    let repository =
        charge::open_repository(&here.folder, state.path(), &Host::observe().home).map_err(super::refused)?;
    // References of another store say nothing about this one.
    super::confirm_store(&here, &repository, state.path())?;
    if !command.yes {
        ask_person(
            "rebuilding a store",
            "agency store rebuild --yes",
            "make the store anew from git and the records?",
            "nothing was rebuilt",
        )?;
    }
    let rebuilt = super::runtime()?.block_on(rebuild::rebuild(&repository, state.path())).map_err(refused)?;
    if command.json {
        print_json(&Document { version: 1, rebuilt })?;
        return Ok(0);
    }
    match rebuilt {
        None => message::notice("the store is whole; nothing was rebuilt"),
        Some(Rebuilt { kept, tasks, landed, lost }) => {
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

fn refused(error: RebuildError) -> Failure {
    match error {
        RebuildError::InUse { .. } => Failure::new(USAGE, &error).with_hint("end it first: `agency drain`"),
        RebuildError::AtWork { .. } => {
            Failure::new(USAGE, &error).with_hint("it ends by itself when its lease does; try again then")
        }
        RebuildError::Store(error) => unusable(&error),
        error => Failure::new(INTERNAL, &error),
    }
}

/// What is said of a store that can't be used.
pub(super) fn unusable(error: &StoreError) -> Failure {
    match error {
        StoreError::Damaged { .. } => Failure::new(USAGE, error).with_hint(REMEDY),
        error => Failure::new(INTERNAL, error),
    }
}
