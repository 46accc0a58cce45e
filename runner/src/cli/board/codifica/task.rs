//! Tasks made, listed, shown, moved, given to somebody.

use agency_protocols::board::BoardError;
use agency_protocols::codifica::actions::NewTask;
use agency_protocols::codifica::task::TaskState;
use agency_protocols::codifica::task::{Priority, Task};
use agency_protocols::codifica::{Codifica, ListedTask, StateListing};
use agency_protocols::finding::Finding;
use agency_protocols::names::{Actor, AgentName, TaskId};
use serde::Serialize;

use super::CodificaTaskJson;
use crate::app::approval::require_person;
use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::error::CommandError;
use crate::cli::argument_file::read_argument_file;
use crate::cli::board::task::{
    ListTasksArgs, MoveTaskArgs, TaskFieldArgs, TaskRow, format_rows, json, matches_filter,
};
use crate::cli::exit::findings_exit_code;
use crate::cli::message;
use crate::cli::message::warn_findings;
use crate::cli::output::{for_terminal, print, print_json};

#[derive(Debug, Serialize)]
struct CodificaTaskAnswer<'a> {
    version: u32,
    task: CodificaTaskJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
}

pub(in crate::cli::board) fn make(
    title: &str,
    wanted: &TaskFieldArgs,
    as_json: bool,
    here: &RepoContext,
    board: &Codifica,
) -> Result<u8, CommandError> {
    let scoped =
        !(wanted.must_touch.is_empty() && wanted.may_touch.is_empty() && wanted.must_not_touch.is_empty());
    if scoped || !wanted.risk.is_empty() || !wanted.external.is_empty() {
        return Err(CommandError::usage(
            "a task of Codifica has no scope, risks or references of its own (§5)",
        )
        .with_hint("what agents may change is `rules.file_scope` of codifica.json"));
    }
    let body = wanted.body.as_ref().map(read_argument_file).transpose()?;
    let new = NewTask {
        title: title.to_owned(),
        kind: wanted.kind.clone(),
        owner: wanted.assignee.clone(),
        priority: Priority::ALL[wanted.priority as usize],
        description: wanted.description.clone().or(body),
        depends_on: wanted.depends_on.clone(),
        labels: wanted.label.clone(),
        acceptance: wanted.acceptance.clone(),
        checklist: wanted.checklist.clone(),
        derived_from: wanted.derived_from.clone(),
        context_files: wanted.context_file.clone(),
        constraints: wanted.constraint.clone(),
        dod_profile: wanted.dod_profile.clone(),
    };
    let (file, task) = here.update_board(board, |tree| board.new_task(tree, &new))?;
    if as_json {
        let line = board.find(here.tree(), &task.id).map_or(0, |found| found.span.line);
        print_json(&CodificaTaskAnswer {
            version: 1,
            task: CodificaTaskJson { file: &file, line, task: &task },
            body: None,
        })?;
        return Ok(0);
    }
    print(&format!("{}\n", task.id))?;
    message::notice(&format!("made in {file}"));
    if task.kind == agency_protocols::codifica::task::TaskType::Build && task.acceptance.is_empty() {
        message::notice(
            "a build task does not start without acceptance criteria (§7.2): give it --acceptance",
        );
    }
    Ok(0)
}

pub(in crate::cli::board) fn move_task(
    command: &MoveTaskArgs,
    who: &Caller,
    here: &RepoContext,
    board: &Codifica,
) -> Result<u8, CommandError> {
    let to = TaskState::typed(&command.to).ok_or_else(|| unknown(&command.to))?;
    let (id, reason) = (&command.id, command.reason.as_deref());
    let mut actor = who.actor();
    if actor == Actor::Orchestrator {
        // What a person may do, a person is asked for; nobody else is the orchestrator in this protocol.
        let person_may = board.move_task(here.tree(), id, to, &Actor::Human(None), reason, &here.now);
        if person_may.is_ok() {
            actor = Actor::Human(require_person(here, who, &format!("moving {id} to {to}"))?);
        }
    }
    let task = here.update_board(board, |tree| board.move_task(tree, id, to, &actor, reason, &here.now))?;
    changed(here, board, &task, command.json)
}

pub(in crate::cli::board) fn assign(
    here: &RepoContext,
    board: &Codifica,
    (id, agent): (&TaskId, &AgentName),
    actor: &Actor,
    as_json: bool,
) -> Result<u8, CommandError> {
    let task = here.update_board(board, |tree| board.assign(tree, id, agent, actor))?;
    changed(here, board, &task, as_json)
}

fn changed(here: &RepoContext, board: &Codifica, task: &Task, as_json: bool) -> Result<u8, CommandError> {
    if as_json {
        let found = board.find(here.tree(), &task.id).map_err(board_error)?;
        let task = CodificaTaskJson { file: &found.file, line: found.span.line, task: &found.task };
        print_json(&CodificaTaskAnswer { version: 1, task, body: None })?;
    } else {
        print(&format!("{} {} {}\n", task.id, task.state, task.owner))?;
    }
    Ok(0)
}

fn unknown(state: &str) -> CommandError {
    let known: Vec<&str> = TaskState::ALL.iter().map(|state| state.as_str()).collect();
    CommandError::usage(format!("there is no state `{state}`; there are {}", known.join(", ")))
}

pub(in crate::cli::board) fn list(
    command: &ListTasksArgs,
    here: &RepoContext,
    board: &Codifica,
) -> Result<u8, CommandError> {
    let unheard = command.status.iter().find(|text| TaskState::typed(text).is_none());
    if let Some(text) = unheard {
        return Err(unknown(text));
    }
    let listing = board.tasks(here.tree()).map_err(board_error)?;
    let tasks = wanted(command, &listing);
    if command.json {
        let tasks: Vec<CodificaTaskJson<'_>> =
            tasks.iter().map(|listed| shown_in(&listing, listed)).collect();
        let findings = &listing.findings;
        print_json(&serde_json::json!({ "version": 1, "tasks": tasks, "findings": findings }))?;
    } else {
        print(&format_rows(&tasks.iter().map(|listed| row(&listed.task)).collect::<Vec<_>>()))?;
        warn_findings(&listing.findings);
    }
    Ok(findings_exit_code(&listing.findings))
}

/// Lines for people, documents for programs, and what could not be read.
type TaskListParts = (Vec<TaskRow>, Vec<serde_json::Value>, Vec<Finding>);

/// For a list of several protocols.
pub(in crate::cli::board) fn listed(
    command: &ListTasksArgs,
    here: &RepoContext,
    board: &Codifica,
) -> Result<TaskListParts, CommandError> {
    let listing = board.tasks(here.tree()).map_err(board_error)?;
    let tasks = wanted(command, &listing);
    let rows = tasks.iter().map(|listed| row(&listed.task).prefixed("codifica")).collect();
    let shown = tasks.iter().map(|listed| json(&shown_in(&listing, listed))).collect();
    Ok((rows, shown, listing.findings))
}

fn wanted<'l>(command: &ListTasksArgs, listing: &'l StateListing) -> Vec<&'l ListedTask> {
    let all = listing.tasks.iter();
    all.filter(|one| matches_filter(command, one.task.state.as_str(), one.task.owner.agent())).collect()
}

pub(super) fn shown_in<'l>(listing: &'l StateListing, listed: &'l ListedTask) -> CodificaTaskJson<'l> {
    CodificaTaskJson { file: listing.path(listed), line: listed.span.line, task: &listed.task }
}

pub(super) fn row(task: &Task) -> TaskRow {
    TaskRow {
        id: task.id.to_string(),
        priority: task.priority.to_string(),
        state: task.state.to_string(),
        owner: task.owner.to_string(),
        title: task.title.clone(),
    }
}

pub(in crate::cli::board) fn show(
    id: &TaskId,
    as_json: bool,
    here: &RepoContext,
    board: &Codifica,
) -> Result<u8, CommandError> {
    let found = board.find(here.tree(), id).map_err(board_error)?;
    if as_json {
        let task = CodificaTaskJson { file: &found.file, line: found.span.line, task: &found.task };
        print_json(&CodificaTaskAnswer { version: 1, task, body: Some(found.block()) })?;
    } else {
        message::notice(&format!("{}:{}", found.file, found.span.line));
        print(&for_terminal(found.block()))?;
    }
    Ok(0)
}

/// A task that must be there, whatever becomes of it.
pub(super) fn find_task(
    board: &Codifica,
    here: &RepoContext,
    id: &TaskId,
) -> Result<agency_protocols::codifica::LocatedTask, CommandError> {
    board.find(here.tree(), id).map_err(|error: BoardError| board_error(error))
}
