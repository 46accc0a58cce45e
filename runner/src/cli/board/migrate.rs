//! `agency migrate`: a board in another version of its protocol.

use clap::Args;

use crate::app::board::Caller;
use crate::app::error::CommandError;
use crate::app::migrate::migrate;
use crate::cli::caller::repository;
use crate::cli::message;
use crate::cli::output::print_json;

/// Convert a board to another version of its protocol
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency migrate --to agency/1.1")]
pub(crate) struct MigrateArgs {
    /// The version: agency/1.1, or 0.2 for Codifica
    #[arg(long, value_name = "VERSION")]
    to: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &MigrateArgs, who: &Caller) -> Result<u8, CommandError> {
    let answer = migrate(&repository()?, who, &command.to)?;
    match (command.json, answer.changed) {
        (true, _) => print_json(&answer)?,
        (false, true) => message::notice(&format!("from {} to {}", answer.from, answer.to)),
        (false, false) => message::notice(&format!("it is {} already", answer.to)),
    }
    Ok(0)
}
