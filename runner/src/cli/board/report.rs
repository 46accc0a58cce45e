//! `agency report`: what a builder says it did.

use agency_protocols::kodingx::report::Report;
use agency_protocols::names::TaskId;
use clap::Args;
use serde::Serialize;

use super::codifica;
use super::task::board_with_task;
use crate::app::board::any_board::AnyBoard;
use crate::app::board::{Caller, task_id};
use crate::app::error::{CommandError, ErrorKind};
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
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ReportAnswer<'a> {
    version: u32,
    file: &'a str,
    report: &'a Report,
    body: &'a str,
    /// Earlier reports on the same task, the oldest first.
    earlier: Vec<&'a str>,
}

pub(crate) fn run(command: &ReportArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let board = match board_with_task(&here, who, &command.id)? {
        AnyBoard::Kodingx(board) => board,
        AnyBoard::Codifica(board) => {
            return codifica::evidence::report(&command.id, command.json, &here, &board);
        }
    };
    board.find(here.tree(), &command.id).map_err(crate::app::board::board_error)?;
    let (reports, findings) = board
        .reports(here.tree(), &command.id)
        .map_err(|error| crate::app::board::board_error(error.into()))?;
    warn_findings(&findings);
    let Some((latest, earlier)) = reports.split_last() else {
        return Err(CommandError::new_message(
            ErrorKind::NoSuch,
            format!("there is no report on {}", command.id),
        ));
    };
    if command.json {
        let body =
            agency_protocols::text::frontmatter::Frontmatter::parse(&latest.text).map(|matter| matter.body());
        print_json(&ReportAnswer {
            version: 1,
            file: &latest.place.path,
            report: &latest.value,
            body: body.unwrap_or_default(),
            earlier: earlier.iter().map(|report| report.place.path.as_str()).collect(),
        })?;
    } else {
        message::notice(&latest.place.path);
        print(&for_terminal(&latest.text))?;
    }
    Ok(0)
}
