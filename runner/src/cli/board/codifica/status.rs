//! What is going on: tasks by state, and claims that nobody has heard of for too long.

use agency_protocols::codifica::Codifica;
use agency_protocols::codifica::task::TaskState;
use agency_protocols::finding::Finding;
use serde_json::{Value, json};

use super::task::{row, shown_in};
use crate::app::board::{RepoContext, board_error, lost_commits};
use crate::app::error::CommandError;
use crate::cli::board::task::{format_rows, json as value};

/// How a board stands.
pub(in crate::cli::board) struct CodificaStatus {
    pub(in crate::cli::board) document: Value,
    pub(in crate::cli::board) text: String,
    pub(in crate::cli::board) findings: Vec<Finding>,
}

/// `prefix` is said before every id, where there are boards of other protocols.
pub(in crate::cli::board) fn render_status(
    here: &RepoContext,
    board: &Codifica,
    prefix: bool,
) -> Result<CodificaStatus, CommandError> {
    let mut listing = board.tasks(here.tree()).map_err(board_error)?;
    listing.findings.extend(lost_commits::codifica_findings(here, board));
    let selection = board.select(&listing, here.now.timestamp());
    let count = |state: TaskState| listing.tasks.iter().filter(|listed| listed.task.state == state).count();
    let counts: serde_json::Map<String, Value> =
        TaskState::ALL.iter().map(|state| (state.to_string(), count(*state).into())).collect();
    let named = |id: &str| if prefix { format!("codifica:{id}") } else { id.to_owned() };
    let tasks: Vec<Value> = listing
        .tasks
        .iter()
        .map(|listed| {
            let mut task = value(&shown_in(&listing, listed));
            task["id"] = named(listed.task.id.as_str()).into();
            task
        })
        .collect();
    let waiting: Vec<Value> = selection
        .waiting
        .iter()
        .map(|(listed, why)| json!({ "task": named(listed.task.id.as_str()), "why": why }))
        .collect();
    let document = json!({
        "version": 1,
        "protocol": "codifica",
        "counts": counts,
        "tasks": tasks,
        "waiting": waiting,
        "findings": &listing.findings,
    });
    let mut open: Vec<_> =
        listing.tasks.iter().map(|listed| &listed.task).filter(|task| !task.state.is_final()).collect();
    open.sort_by_key(|task| (urgency(task.state), task.priority));
    let rows: Vec<_> = open
        .into_iter()
        .map(|task| if prefix { row(task).prefixed("codifica") } else { row(task) })
        .collect();
    let mut text = format_rows(&rows);
    let reclaimable = selection.waiting.iter().filter(|(_, why)| why.contains("(§8.1.1)"));
    for (listed, why) in reclaimable {
        text.push_str(&format!("stale: {}: {why}\n", named(listed.task.id.as_str())));
    }
    let counts: Vec<String> = TaskState::ALL
        .iter()
        .filter(|state| count(**state) > 0)
        .map(|state| format!("{} {state}", count(*state)))
        .collect();
    text.push_str(&if counts.is_empty() { "no tasks yet".to_owned() } else { counts.join(", ") });
    text.push('\n');
    Ok(CodificaStatus { document, text, findings: listing.findings })
}

/// What needs somebody comes first.
fn urgency(state: TaskState) -> u8 {
    match state {
        TaskState::Blocked => 0,
        TaskState::ToBeTested => 1,
        TaskState::InProgress => 2,
        TaskState::Todo => 3,
        TaskState::Done | TaskState::Rejected => 4,
    }
}
