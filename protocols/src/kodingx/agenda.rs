//! The board as the engine sees it.

use std::collections::BTreeMap;

use jiff::Zoned;

use super::layout::{self, Place};
use super::status::Status;
use super::task::Task;
use super::{Found, KodingX};
use crate::board::{Agenda, Board, BoardError, Event, Outcome, Role, Scope, Start, Waiting};
use crate::finding::Finding;
use crate::moment::Moment;
use crate::names::{Actor, AgentName, TaskId};
use crate::store::Effects;
use crate::store::tree::Tree;

impl Board for KodingX {
    fn next(&self, tree: &Tree) -> Result<Agenda, BoardError> {
        let (listing, archived) = (self.tasks(tree)?, self.archived_tasks(tree)?);
        let mut findings = listing.findings;
        findings.extend(cycles(&listing.tasks));
        let known: BTreeMap<&str, Status> = listing
            .tasks
            .iter()
            .chain(&archived.tasks)
            .map(|(_, task)| (task.id.as_str(), task.status))
            .collect();
        let mut agenda = Agenda::default();
        for (place, task) in &listing.tasks {
            match standing(task, &known) {
                Standing::Ready(role) => agenda.ready.extend(start(place, task, role)),
                Standing::Waits(why) => agenda.waiting.push(Waiting { task: task.id.clone(), why }),
                Standing::Elsewhere => {}
            }
        }
        agenda.ready.sort_by(|a, b| (a.urgency, &a.file).cmp(&(b.urgency, &b.file)));
        agenda.findings = findings;
        Ok(agenda)
    }

    /// The orchestrator assigns a new task and starts it in one step.
    fn claim(
        &self,
        tree: &Tree,
        task: &TaskId,
        agent: &AgentName,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let found = self.find(tree, task)?;
        if found.value.assignee != *agent {
            let reason = format!("{task} is assigned to {}, not to {agent}", found.value.assignee);
            return Err(BoardError::refused(reason));
        }
        match found.value.status {
            Status::New | Status::Assigned => self.set(tree, &found, Status::InProgress, now),
            // An attempt that was interrupted goes on.
            Status::InProgress => Ok(Effects::none()),
            status => Err(BoardError::refused(format!("{task} is {status} and can't be started"))),
        }
    }

    /// Nothing of this is in the protocol's files: leases and heartbeats are the engine's.
    fn record(&self, _: &Tree, _: &TaskId, event: &Event, _: &Zoned) -> Result<Effects, BoardError> {
        match event {
            Event::Heartbeat => Ok(Effects::none()),
        }
    }

    fn settle(
        &self,
        tree: &Tree,
        task: &TaskId,
        outcome: &Outcome,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let found = self.find(tree, task)?;
        let builder = Actor::Agent(found.value.assignee.clone());
        let moved = |to, actor: &Actor, reason| {
            self.move_task(tree, task, to, actor, reason, now).map(|(_, effects)| effects)
        };
        match outcome {
            Outcome::Reported { report } => {
                let kept = self.keep_report(tree, &found, report, now)?;
                Ok(kept.and(moved(Status::ReadyForReview, &builder, None)?))
            }
            Outcome::Blocked { report, reason } => {
                let kept = match report {
                    Some(report) => self.keep_report(tree, &found, report, now)?,
                    None => Effects::none(),
                };
                Ok(kept.and(moved(Status::Blocked, &builder, Some(reason))?))
            }
            Outcome::Returned { reason } => moved(Status::InProgress, &Actor::Orchestrator, Some(reason)),
            Outcome::Landed => moved(Status::Done, &Actor::Orchestrator, None),
        }
    }
}

impl KodingX {
    fn set(
        &self,
        tree: &Tree,
        found: &Found<Task>,
        status: Status,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let mut task = found.value.clone();
        task.status = status;
        self.rewrite(tree, found, &task, &["status"], None, &self.local(now))
    }

    /// The report in the outbox of its agent, under today's date. A later one of the same day replaces it.
    fn keep_report(
        &self,
        tree: &Tree,
        found: &Found<Task>,
        report: &str,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let date = Moment::of(&self.local(now)).date();
        let path = layout::report_path(&found.value.assignee, &date, &found.place.stem);
        let mut effects = Effects::none();
        effects.put(&path, tree.read_text(&path)?.as_deref(), report);
        Ok(effects)
    }
}

enum Standing {
    Ready(Role),
    Waits(String),
    /// Nothing is to be done about it now.
    Elsewhere,
}

fn standing(task: &Task, known: &BTreeMap<&str, Status>) -> Standing {
    let role = match task.status {
        Status::New | Status::Assigned | Status::InProgress => Role::Builder,
        Status::ReadyForReview => return Standing::Ready(Role::Reviewer),
        Status::Blocked => {
            return Standing::Waits("it is blocked; a person or the orchestrator has to look".to_owned());
        }
        Status::Done | Status::Canceled => return Standing::Elsewhere,
    };
    if task.scope.is_none() {
        return Standing::Waits(
            "its scope is missing or wrong: nothing is writable until someone gives one".to_owned(),
        );
    }
    for dependency in &task.depends_on {
        match known.get(dependency.as_str()) {
            Some(Status::Done) => {}
            Some(Status::Canceled) => {
                return Standing::Waits(format!("it depends on {dependency}, which was canceled"));
            }
            Some(status) => return Standing::Waits(format!("it depends on {dependency}, which is {status}")),
            None => return Standing::Waits(format!("it depends on {dependency}, which does not exist")),
        }
    }
    Standing::Ready(role)
}

fn start(place: &Place, task: &Task, role: Role) -> Option<Start> {
    let scope = task.scope.clone().unwrap_or_default();
    if task.scope.is_none() && role == Role::Builder {
        return None;
    }
    Some(Start {
        task: task.id.clone(),
        title: task.title.clone(),
        role,
        agent: task.assignee.clone(),
        file: place.path.clone(),
        scope: Scope {
            touch: scope.must_touch.iter().chain(&scope.may_touch).cloned().collect(),
            must: scope.must_touch,
            keep: scope.must_not_touch,
        },
        profile: task.dod_profile.clone(),
        urgency: task.priority as u8,
    })
}

/// Tasks that wait for each other, each circle once.
pub(super) fn cycles(tasks: &[(Place, Task)]) -> Vec<Finding> {
    let by_id: BTreeMap<&str, &(Place, Task)> =
        tasks.iter().map(|entry| (entry.1.id.as_str(), entry)).collect();
    let mut clear: BTreeMap<&str, bool> = BTreeMap::new();
    let mut found = Vec::new();
    for start in by_id.keys().copied() {
        // Depth first, with the way there; what was looked at once is not looked at again.
        let mut way: Vec<(&str, usize)> = vec![(start, 0)];
        if clear.contains_key(start) {
            continue;
        }
        clear.insert(start, false);
        while let Some((id, next)) = way.last_mut() {
            let dependency = by_id.get(*id).and_then(|(_, task)| task.depends_on.get(*next));
            *next += 1;
            match dependency.and_then(|dependency| by_id.get_key_value(dependency.as_str())) {
                Some((dependency, (place, _))) => match clear.get(dependency) {
                    None => {
                        clear.insert(dependency, false);
                        way.push((dependency, 0));
                    }
                    Some(false) => {
                        let from = way.iter().position(|(id, _)| id == dependency).unwrap_or(0);
                        let mut circle: Vec<&str> = way[from..].iter().map(|(id, _)| *id).collect();
                        circle.push(dependency);
                        let message = format!("tasks wait for each other: {}", circle.join(" → "));
                        found.push(Finding::error(&place.path, None, "6.2", message).of_field("depends_on"));
                    }
                    Some(true) => {}
                },
                None if dependency.is_some() => {}
                None => {
                    if let Some((id, _)) = way.pop() {
                        clear.insert(id, true);
                    }
                }
            }
        }
    }
    found
}
