//! Issues of a tracker, made into tasks.

use agency_protocols::board_verbs::{TaskRequest, TaskSummary};
use serde::Serialize;

use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::import::{ImportError, Issue, IssueQuery, TrackerServer, fetch};

/// The tracker, and which of its issues.
pub(crate) enum ImportSource {
    Github { repo: String, label: Option<String> },
    Jira { project: String, status: Option<String> },
}

/// What was imported.
#[derive(Debug, Serialize)]
pub(crate) struct ImportAnswer {
    version: u32,
    /// How many issues the tracker had.
    pub(crate) found: usize,
    pub(crate) imported: Vec<TaskSummary>,
}

/// Makes a task of each issue that was not imported before.
pub(crate) fn import(
    here: &RepoContext,
    who: &Caller,
    source: &ImportSource,
    address: Option<String>,
) -> Result<ImportAnswer, CommandError> {
    let board = here.board(who)?;
    // A protocol that takes no issues says so before a tracker is asked.
    board.task_import(here.tree(), &[], &here.now).map_err(board_error)?;
    let query = match source {
        ImportSource::Github { repo, label } => IssueQuery::github(repo, label.as_deref()),
        ImportSource::Jira { project, status } => IssueQuery::jira(project, status.as_deref()),
    };
    let issues = query.and_then(|query| fetch(&query, &TrackerServer::new(address))).map_err(refused)?;
    let requests: Vec<TaskRequest> = issues.iter().map(task_of).collect();
    let imported = here.update_board(board.as_ref(), |tree| board.task_import(tree, &requests, &here.now))?;
    Ok(ImportAnswer { version: 1, found: issues.len(), imported })
}

/// Untrusted issue text as a task. Its scope is empty, so nothing is writable until a person gives it one.
fn task_of(issue: &Issue) -> TaskRequest {
    let urgency = issue.priority.filter(|urgency| *urgency <= 3).unwrap_or(2);
    TaskRequest {
        title: issue.title.clone(),
        urgency,
        labels: issue.labels.clone(),
        external_refs: vec![
            (issue.tracker.to_owned(), issue.reference.clone()),
            ("url".to_owned(), issue.url.clone()),
        ],
        body: Some(format!(
            "\n## Problem\n\nImported from {}. What follows is the issue's own text.\n\n{}\n",
            issue.url,
            quoted(&issue.body)
        )),
        ..TaskRequest::default()
    }
}

/// A quotation: no text in it begins a heading, header or region of ours.
fn quoted(body: &str) -> String {
    body.lines().map(|line| format!("> {line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn refused(error: ImportError) -> CommandError {
    let code = match &error {
        ImportError::NotFound { .. } => ErrorKind::NoSuch,
        ImportError::NotARepository { .. }
        | ImportError::NotAProject { .. }
        | ImportError::NotAValue { .. }
        | ImportError::NoAddress
        | ImportError::Address { .. }
        | ImportError::Variable { .. }
        | ImportError::Certificates { .. } => ErrorKind::Usage,
        _ => ErrorKind::Internal,
    };
    CommandError::new(code, &error).with_hint(error.hint())
}
