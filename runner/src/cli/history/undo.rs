//! `agency undo`: takes landed work back.

use agency_protocols::names::TaskId;
use clap::Args;

use crate::app::board::{Caller, task_id};
use crate::app::error::CommandError;
use crate::app::history::undo::{UndoRequest, undo};
use crate::app::wording::short_commit;
use crate::cli::caller::{ConfigArgs, repository_with_task};
use crate::cli::message;
use crate::cli::output::print_json;

/// Take landed work back with a verified revert, and open its task again
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency undo T0007 --reason \"The rounding was right\" --as human:ann")]
pub(crate) struct UndoArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// The reason; the commit and the task say it
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    configuration: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &UndoArgs, who: &Caller) -> Result<u8, CommandError> {
    let (here, id) = repository_with_task(who, &command.id)?;
    let request =
        UndoRequest { task: id, reason: command.reason.clone(), options: command.configuration.options() };
    let answer = undo(&here, who, &request)?;
    if command.json {
        print_json(&answer)?;
        return Ok(0);
    }
    let (id, undone) = (&answer.task, short_commit(&answer.undone));
    let branch = answer.branch.strip_prefix("refs/heads/").unwrap_or(&answer.branch);
    message::notice(&match &answer.commit {
        Some(commit) => format!(
            "{id}: {} takes {undone} back on {branch}; the next `agency run` takes the task",
            short_commit(commit)
        ),
        None => {
            format!("{id}: {branch} has nothing of {undone} any more; the next `agency run` takes the task")
        }
    });
    Ok(0)
}
