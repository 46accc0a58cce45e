//! `agency archive`: finished tasks, put aside.

use agency_protocols::names::TaskId;
use clap::Args;

use crate::app::archive::archive;
use crate::app::board::Caller;
use crate::app::error::CommandError;
use crate::cli::caller::repository;
use crate::cli::message;
use crate::cli::output::print_json;

/// Archive finished tasks with their reports and artifacts
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency archive --older-than 30")]
pub(crate) struct ArchiveArgs {
    /// Only tasks older than this many days
    #[arg(long, value_name = "DAYS")]
    older_than: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &ArchiveArgs, who: &Caller) -> Result<u8, CommandError> {
    let answer = archive(&repository()?, who, command.older_than)?;
    if command.json {
        print_json(&answer)?;
    } else if answer.tasks.is_empty() {
        message::notice("nothing is old enough and finished");
    } else {
        let ids: Vec<&str> = answer.tasks.iter().map(TaskId::as_str).collect();
        message::notice(&format!("put {} aside: {}", answer.count, ids.join(", ")));
    }
    Ok(0)
}
