//! `agency store rebuild`: a damaged store is made anew.

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::app::error::CommandError;
use crate::app::queue::rebuild::{RebuildSummary, rebuild_store};
use crate::cli::message;
use crate::cli::output::print_json;

/// Repair the store of attempts
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  agency store rebuild --yes")]
pub(crate) enum StoreCommand {
    Rebuild(RebuildArgs),
}

/// Rebuild a damaged store from git and the records of attempts
///
/// Landed work stays landed. Open attempts are closed as lost, and their tasks can be tried again. New attempts get higher
/// numbers than all that were found. The damaged file is kept beside the new one. Failure counts and usage are lost. An
/// intact store is not changed.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency store rebuild --yes")]
pub(crate) struct RebuildArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct RebuildAnswer {
    version: u32,
    /// Nothing, if the store is intact.
    rebuilt: Option<RebuildSummary>,
}

pub(crate) fn run(command: &StoreCommand) -> Result<u8, CommandError> {
    let StoreCommand::Rebuild(command) = command;
    let rebuilt = rebuild_store(&crate::cli::caller::repository()?, command.yes)?;
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
