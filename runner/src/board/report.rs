//! `agency report`: what a builder says it did.

use agency_protocols::kodingx::report::Report;
use agency_protocols::names::TaskId;
use clap::Args;
use serde::Serialize;

use super::spoken::Spoken;
use super::task::{one_of, shown};
use super::{Here, Who, codifica, mention, print, print_json, task_id};
use crate::message::{self, Failure, NO_SUCH};

/// Print the latest report on a task
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency report T0007")]
pub(crate) struct ReportCommand {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    file: &'a str,
    report: &'a Report,
    body: &'a str,
    /// Earlier reports on the same task, the oldest first.
    earlier: Vec<&'a str>,
}

pub(crate) fn run(command: &ReportCommand, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let board = match one_of(&here, who, &command.id)? {
        Spoken::Kodingx(board) => board,
        Spoken::Codifica(board) => return codifica::told::report(&command.id, command.json, &here, &board),
    };
    board.find(here.tree(), &command.id).map_err(super::refused)?;
    let (reports, findings) =
        board.reports(here.tree(), &command.id).map_err(|error| super::refused(error.into()))?;
    mention(&findings);
    let Some((latest, earlier)) = reports.split_last() else {
        return Err(Failure::new_message(NO_SUCH, format!("there is no report on {}", command.id)));
    };
    if command.json {
        let body =
            agency_protocols::text::frontmatter::Frontmatter::parse(&latest.text).map(|matter| matter.body());
        print_json(&Document {
            version: 1,
            file: &latest.place.path,
            report: &latest.value,
            body: body.unwrap_or_default(),
            earlier: earlier.iter().map(|report| report.place.path.as_str()).collect(),
        })?;
    } else {
        message::notice(&latest.place.path);
        print(&shown(&latest.text))?;
    }
    Ok(0)
}
