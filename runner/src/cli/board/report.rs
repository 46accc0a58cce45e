//! `agency report`: the latest report on a task.

use agency_protocols::names::TaskId;
use clap::Args;

use crate::app::board::{Caller, task_id};
use crate::app::error::CommandError;
use crate::app::reports;
use crate::cli::caller::repository_with_task;
use crate::cli::message;
use crate::cli::message::warn_findings;
use crate::cli::output::{for_terminal, print, print_json};

/// Print the latest report on a task
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency report T0007")]
pub(crate) struct ReportArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &ReportArgs, who: &Caller) -> Result<u8, CommandError> {
    let (here, id) = repository_with_task(who, &command.id)?;
    let page = reports::latest(&here, who, &id)?;
    warn_findings(&page.findings);
    if command.json {
        print_json(page.document.as_ref().ok_or_else(|| reports::missing(&page))?)?;
    } else {
        let text = page.text.as_deref().ok_or_else(|| reports::missing(&page))?;
        message::notice(&page.place);
        print(&for_terminal(text))?;
        message::notices(reports::outcome_sentence(&id, &page));
    }
    Ok(0)
}
