//! `agency status`: what is going on.

use agency_protocols::detect::Protocol;
use agency_protocols::finding::Finding;
use agency_protocols::kodingx::layout::{Kind, STATE, places};
use agency_protocols::kodingx::status::Status;
use agency_protocols::text::frontmatter::Frontmatter;
use clap::Args;
use serde::Serialize;

use super::task::{Shown, table};
use super::{Here, Who, code, mention, print, print_json};
use crate::message::Failure;

/// Say what is going on: tasks by state, reports, the last verification
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency status --json")]
pub(crate) struct StatusCommand {
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    version: u32,
    protocol: Protocol,
    project: &'a str,
    counts: serde_json::Map<String, serde_json::Value>,
    tasks: Vec<Shown<'a>>,
    /// How many reports are in the outbox.
    reports: usize,
    last_verify: Option<serde_json::Value>,
    findings: &'a [Finding],
}

pub(crate) fn run(command: &StatusCommand, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let board = here.board(who)?;
    let failed = |error| super::refused(agency_protocols::board::BoardError::Tree(error));
    let listing = board.tasks(here.tree()).map_err(failed)?;
    let reports = places(here.tree(), Kind::Report, false).map_err(failed)?.len();
    let state = here.tree().read_text(STATE).map_err(failed)?.unwrap_or_default();
    let last_verify = Frontmatter::parse(&state)
        .ok()
        .and_then(|matter| matter.value("last_verify").ok().flatten())
        .filter(|verify| verify.get("task_id").is_some_and(|id| !id.is_null()))
        .and_then(|verify| serde_json::to_value(verify).ok());
    let count = |status: Status| listing.tasks.iter().filter(|(_, task)| task.status == status).count();
    if command.json {
        print_json(&Summary {
            version: 1,
            protocol: Protocol::Kodingx,
            project: &board.manifest.project,
            counts: Status::ALL.iter().map(|status| (status.to_string(), count(*status).into())).collect(),
            tasks: listing.tasks.iter().map(|(place, task)| Shown { file: &place.path, task }).collect(),
            reports,
            last_verify,
            findings: &listing.findings,
        })?;
        return Ok(code(&listing.findings));
    }
    let mut open: Vec<_> =
        listing.tasks.iter().map(|(_, task)| task).filter(|task| !task.status.is_final()).collect();
    open.sort_by_key(|task| (urgency(task.status), task.priority));
    let counts: Vec<String> = Status::ALL
        .iter()
        .filter(|status| count(**status) > 0)
        .map(|status| format!("{} {status}", count(*status)))
        .collect();
    let mut text = table(open.into_iter());
    text.push_str(&if counts.is_empty() { "no tasks yet".to_owned() } else { counts.join(", ") });
    text.push_str(&format!("; {reports} reports"));
    if let Some(verify) = last_verify {
        let word = |key: &str| verify[key].as_str().unwrap_or_default().to_owned();
        text.push_str(&format!(
            "; last verified: {} {} ({})",
            word("task_id"),
            word("result"),
            word("timestamp")
        ));
    }
    text.push('\n');
    print(&text)?;
    mention(&listing.findings);
    Ok(code(&listing.findings))
}

/// What needs somebody comes first.
fn urgency(status: Status) -> u8 {
    match status {
        Status::Blocked => 0,
        Status::ReadyForReview => 1,
        Status::InProgress => 2,
        Status::Assigned => 3,
        Status::New => 4,
        Status::Done | Status::Canceled => 5,
    }
}
