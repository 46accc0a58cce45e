//! Tasks made, listed, shown, moved, given to somebody.

use agency_protocols::board::BoardError;
use agency_protocols::codifica::acts::NewTask;
use agency_protocols::codifica::task::{Priority, Task};
use agency_protocols::codifica::transitions::State;
use agency_protocols::codifica::{Codifica, Listed, Listing};
use agency_protocols::finding::Finding;
use agency_protocols::names::{Actor, AgentName, TaskId};
use serde::Serialize;

use super::Shown;
use crate::board::task::{List, Move, Row, Wanted, is_wanted, json, rows_of, shown};
use crate::board::{Here, Who, code, mention, person, print, print_json, refused, text_of};
use crate::message::{self, Failure};

#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    task: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
}

pub(in crate::board) fn make(
    title: &str,
    wanted: &Wanted,
    as_json: bool,
    here: &Here,
    board: &Codifica,
) -> Result<u8, Failure> {
    let scoped =
        !(wanted.must_touch.is_empty() && wanted.may_touch.is_empty() && wanted.must_not_touch.is_empty());
    if scoped || !wanted.risk.is_empty() || !wanted.external.is_empty() {
        return Err(Failure::usage("a task of Codifica has no scope, risks or references of its own (§5)")
            .with_hint("what agents may change is `rules.file_scope` of codifica.json"));
    }
    let body = wanted.body.as_ref().map(text_of).transpose()?;
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
    let (file, task) = here.act_on(board, |tree| board.new_task(tree, &new))?;
    if as_json {
        let line = board.find(here.tree(), &task.id).map_or(0, |found| found.span.line);
        print_json(&Document { version: 1, task: Shown { file: &file, line, task: &task }, body: None })?;
        return Ok(0);
    }
    print(&format!("{}\n", task.id))?;
    message::notice(&format!("made in {file}"));
    if task.kind == agency_protocols::codifica::task::Kind::Build && task.acceptance.is_empty() {
        message::notice(
            "a build task does not start without acceptance criteria (§7.2): give it --acceptance",
        );
    }
    Ok(0)
}

pub(in crate::board) fn move_it(
    command: &Move,
    who: &Who,
    here: &Here,
    board: &Codifica,
) -> Result<u8, Failure> {
    let to = State::typed(&command.to).ok_or_else(|| unknown(&command.to))?;
    let (id, reason) = (&command.id, command.reason.as_deref());
    let mut actor = who.actor();
    if actor == Actor::Orchestrator {
        // What a person may do, a person is asked for; nobody else is the orchestrator in this protocol.
        let person_may = board.move_task(here.tree(), id, to, &Actor::Human(None), reason, &here.now);
        if person_may.is_ok() {
            actor = Actor::Human(person(who, &format!("moving {id} to {to}"))?);
        }
    }
    let task = here.act_on(board, |tree| board.move_task(tree, id, to, &actor, reason, &here.now))?;
    changed(here, board, &task, command.json)
}

pub(in crate::board) fn assign(
    here: &Here,
    board: &Codifica,
    (id, agent): (&TaskId, &AgentName),
    actor: &Actor,
    as_json: bool,
) -> Result<u8, Failure> {
    let task = here.act_on(board, |tree| board.assign(tree, id, agent, actor))?;
    changed(here, board, &task, as_json)
}

fn changed(here: &Here, board: &Codifica, task: &Task, as_json: bool) -> Result<u8, Failure> {
    if as_json {
        let found = board.find(here.tree(), &task.id).map_err(refused)?;
        let task = Shown { file: &found.file, line: found.span.line, task: &found.task };
        print_json(&Document { version: 1, task, body: None })?;
    } else {
        print(&format!("{} {} {}\n", task.id, task.state, task.owner))?;
    }
    Ok(0)
}

fn unknown(state: &str) -> Failure {
    let known: Vec<&str> = State::ALL.iter().map(|state| state.as_str()).collect();
    Failure::usage(format!("there is no state `{state}`; there are {}", known.join(", ")))
}

pub(in crate::board) fn list(command: &List, here: &Here, board: &Codifica) -> Result<u8, Failure> {
    let unheard = command.status.iter().find(|text| State::typed(text).is_none());
    if let Some(text) = unheard {
        return Err(unknown(text));
    }
    let listing = board.tasks(here.tree()).map_err(refused)?;
    let tasks = wanted(command, &listing);
    if command.json {
        let tasks: Vec<Shown<'_>> = tasks.iter().map(|listed| shown_in(&listing, listed)).collect();
        let findings = &listing.findings;
        print_json(&serde_json::json!({ "version": 1, "tasks": tasks, "findings": findings }))?;
    } else {
        print(&rows_of(&tasks.iter().map(|listed| row(&listed.task)).collect::<Vec<_>>()))?;
        mention(&listing.findings);
    }
    Ok(code(&listing.findings))
}

/// Lines for people, documents for programs, and what could not be read.
type Lines = (Vec<Row>, Vec<serde_json::Value>, Vec<Finding>);

/// For a list of several protocols.
pub(in crate::board) fn listed(command: &List, here: &Here, board: &Codifica) -> Result<Lines, Failure> {
    let listing = board.tasks(here.tree()).map_err(refused)?;
    let tasks = wanted(command, &listing);
    let rows = tasks.iter().map(|listed| row(&listed.task).prefixed("codifica")).collect();
    let shown = tasks.iter().map(|listed| json(&shown_in(&listing, listed))).collect();
    Ok((rows, shown, listing.findings))
}

fn wanted<'l>(command: &List, listing: &'l Listing) -> Vec<&'l Listed> {
    let all = listing.tasks.iter();
    all.filter(|one| is_wanted(command, one.task.state.as_str(), one.task.owner.agent())).collect()
}

pub(super) fn shown_in<'l>(listing: &'l Listing, listed: &'l Listed) -> Shown<'l> {
    Shown { file: listing.path(listed), line: listed.span.line, task: &listed.task }
}

pub(super) fn row(task: &Task) -> Row {
    Row {
        id: task.id.to_string(),
        priority: task.priority.to_string(),
        state: task.state.to_string(),
        owner: task.owner.to_string(),
        title: task.title.clone(),
    }
}

pub(in crate::board) fn show(
    id: &TaskId,
    as_json: bool,
    here: &Here,
    board: &Codifica,
) -> Result<u8, Failure> {
    let found = board.find(here.tree(), id).map_err(refused)?;
    if as_json {
        let task = Shown { file: &found.file, line: found.span.line, task: &found.task };
        print_json(&Document { version: 1, task, body: Some(found.block()) })?;
    } else {
        message::notice(&format!("{}:{}", found.file, found.span.line));
        print(&shown(found.block()))?;
    }
    Ok(0)
}

/// A task that must be there, whatever becomes of it.
pub(super) fn there(
    board: &Codifica,
    here: &Here,
    id: &TaskId,
) -> Result<agency_protocols::codifica::Found, Failure> {
    board.find(here.tree(), id).map_err(|error: BoardError| refused(error))
}
