//! The latest report on a task, and what became of its work.

use agency_landing::landed_work;
use agency_landing::names::TaskName;
use agency_protocols::board_verbs::ReportPage;
use agency_protocols::names::TaskId;

use crate::app::board::{Caller, RepoContext, board_error, lost_commits};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::tasks::board_with_task;

pub(crate) fn latest(here: &RepoContext, who: &Caller, id: &TaskId) -> Result<ReportPage, CommandError> {
    let board = board_with_task(here, who, id)?;
    let mut page = board.latest_report(here.tree(), id).map_err(board_error)?;
    add_landing(here, board.protocol(), id, &mut page);
    if let Some(document) = &mut page.document {
        document["outcome"] = serde_json::to_value(&page.outcome).unwrap_or_default();
    }
    Ok(page)
}

/// Adds what git knows of the landed commit: an attempt that went on with earlier work reports only what it added.
fn add_landing(here: &RepoContext, protocol: &str, id: &TaskId, page: &mut ReportPage) {
    let outcome = &mut page.outcome;
    if outcome.commit.is_none() {
        return;
    }
    let work = lost_commits::opened(here).zip(TaskName::new(protocol, id.as_str()).ok());
    let work = work.and_then(|(repository, task)| landed_work::read(&repository, &task).ok().flatten());
    // The record of another landing says nothing about this one.
    let work = work.filter(|work| outcome.commit.as_deref() == Some(work.landed.commit.as_str()));
    if let Some(work) = work {
        let branch = work.landed.branch.as_str();
        outcome.branch = Some(branch.strip_prefix("refs/heads/").unwrap_or(branch).to_owned());
        outcome.files = work.files;
    }
}

/// What became of the work, in a sentence; nothing while it is open.
pub(crate) fn outcome_sentence(id: &TaskId, page: &ReportPage) -> Option<String> {
    let outcome = &page.outcome;
    let commit = outcome.commit.as_ref()?;
    let short: String = commit.chars().take(12).collect();
    // It may have been taken back, or opened again.
    let landed = if outcome.state.eq_ignore_ascii_case("done") { "landed" } else { "it had landed" };
    let mut text = format!("{id} is {}: {landed}", outcome.state);
    if let Some(branch) = &outcome.branch {
        text.push_str(&format!(" on {branch}"));
    }
    text.push_str(&format!(" as {short}"));
    if let Some(verification) = &outcome.verification {
        text.push_str(&format!(", verified {} ({})", verification.result, verification.artifact));
    }
    let shown: Vec<&str> = outcome.files.iter().take(SHOWN_FILES).map(String::as_str).collect();
    if !shown.is_empty() {
        let more = match outcome.files.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text.push_str(&format!("; changed {}{more}", shown.join(", ")));
    }
    Some(text)
}

/// How many files a sentence names.
const SHOWN_FILES: usize = 20;

/// The error for a task without a report.
pub(crate) fn missing(page: &ReportPage) -> CommandError {
    CommandError::new_message(ErrorKind::NoSuch, page.missing.as_str())
}
