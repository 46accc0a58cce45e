//! The board as the engine sees it.

use std::collections::BTreeMap;

use jiff::Zoned;

use super::acts::note;
use super::artifact;
use super::layout::{self, Kind, Place};
use super::report::{Report, ReportStatus};
use super::status::{self, Status};
use super::task::Task;
use super::{Found, KodingX};
use crate::board::{
    Agenda, Board, BoardError, Brief, Claimant, Event, Evidence, Judged, Outcome, Role, Scope, Seen, Start,
    Told, Waiting,
};
use crate::claim::ReportClaim;
use crate::finding::Finding;
use crate::moment::Moment;
use crate::names::{Actor, AgentName, TaskId};
use crate::store::Effects;
use crate::store::tree::Tree;
use crate::text::frontmatter::Frontmatter;

impl Board for KodingX {
    fn protocol(&self) -> &'static str {
        "kodingx"
    }

    fn folder(&self) -> Option<&'static str> {
        Some(layout::ROOT)
    }

    fn own(&self) -> Vec<String> {
        vec![format!("{}/**", layout::ROOT)]
    }

    fn scope_field(&self) -> &'static str {
        "`may_touch` of the task's scope"
    }

    fn profiles(&self) -> Option<&'static str> {
        Some(layout::PROFILES)
    }

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
        let reported = self.reported(tree, &listing.tasks)?;
        let mut agenda = Agenda::default();
        for (place, task) in &listing.tasks {
            match standing(task, reported.get(task.id.as_str()).copied(), &known) {
                Standing::Ready(role) => {
                    let handed_in = reported.get(task.id.as_str()) == Some(&Reported::Outside);
                    agenda.ready.extend(start(place, task, role, handed_in));
                }
                Standing::Reported => agenda.reported.push(task.id.clone()),
                Standing::Waits(why) => agenda.waiting.push(Waiting { task: task.id.clone(), why }),
                Standing::Elsewhere => {}
            }
        }
        agenda.ready.sort_by(|a, b| (a.urgency, &a.file).cmp(&(b.urgency, &b.file)));
        agenda.findings = findings;
        Ok(agenda)
    }

    fn brief(&self, tree: &Tree, task: &TaskId) -> Result<Brief, BoardError> {
        let found = self.find(tree, task)?;
        let contract = format!("{}/{}.md", layout::AGENTS, found.value.assignee);
        Ok(Brief {
            task: found.text,
            contract: tree.read_text(&contract)?,
            report: super::told::instructions(task, &found.value.assignee),
            reported: None,
        })
    }

    fn audit(&self, tree: &Tree, task: &TaskId, auditor: &AgentName) -> Result<Brief, BoardError> {
        let contract = format!("{}/{auditor}.md", layout::AGENTS);
        Ok(Brief {
            task: self.find(tree, task)?.text,
            contract: tree.read_text(&contract)?,
            report: crate::verdict::instructions(task, auditor),
            reported: self.reports(tree, task)?.0.pop().map(|report| report.text),
        })
    }

    fn is_wanted(&self, tree: &Tree, task: &TaskId) -> Result<bool, BoardError> {
        match self.find(tree, task) {
            Ok(found) => Ok(!found.place.archived
                && !matches!(found.value.status, Status::Blocked | Status::Done | Status::Canceled)),
            Err(BoardError::NoSuchTask { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_done(&self, tree: &Tree, task: &TaskId) -> Result<bool, BoardError> {
        match self.find(tree, task) {
            Ok(found) => Ok(!found.place.archived && found.value.status == Status::Done),
            Err(BoardError::NoSuchTask { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The orchestrator assigns a new task and starts it in one step.
    fn claim(
        &self,
        tree: &Tree,
        task: &TaskId,
        claimant: &Claimant<'_>,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let (found, agent) = (self.find(tree, task)?, claimant.agent);
        if found.value.assignee != *agent {
            let reason = format!("{task} is assigned to {}, not to {agent}", found.value.assignee);
            return Err(BoardError::refused(reason));
        }
        match found.value.status {
            Status::New | Status::Assigned => self.set(tree, &found, Status::InProgress, None, now),
            // An attempt that was interrupted goes on.
            Status::InProgress => Ok(Effects::none()),
            status => Err(BoardError::refused(format!("{task} is {status} and can't be started"))),
        }
    }

    /// §3.5: a report arrived.
    fn receive(
        &self,
        tree: &Tree,
        task: &TaskId,
        now: &Zoned,
    ) -> Result<(Option<String>, Effects), BoardError> {
        let found = self.find(tree, task)?;
        let reports = self.reports(tree, task)?.0;
        let Some(report) = reports.iter().rfind(|report| is_handed_in(report, &found.value)) else {
            return Err(BoardError::refused(format!("nobody has left a report on {task}")));
        };
        let blocked = (report.value.status == ReportStatus::Blocked).then(|| {
            super::told::reason(Frontmatter::parse(&report.text).map_or("", |matter| matter.body()))
        });
        let received = match found.value.status {
            // As if its builder had started and ended, in one step.
            Status::New | Status::Assigned | Status::InProgress if blocked.is_none() => {
                self.set(tree, &found, Status::ReadyForReview, None, now)?
            }
            Status::New | Status::Assigned => self.set(tree, &found, Status::InProgress, None, now)?,
            Status::InProgress | Status::ReadyForReview => Effects::none(),
            status => return Err(BoardError::refused(format!("{task} is {status}"))),
        };
        Ok((blocked, received))
    }

    /// Nothing of this is in the protocol's files: leases and heartbeats are the engine's.
    fn record(&self, _: &Tree, _: &TaskId, event: &Event, _: &Zoned) -> Result<Effects, BoardError> {
        match event {
            Event::Heartbeat => Ok(Effects::none()),
        }
    }

    fn report(&self, claim: Option<&ReportClaim>, seen: &Seen<'_>) -> Told {
        super::told::corrected(claim, seen, self.zone())
    }

    fn verified(
        &self,
        tree: &Tree,
        task: &TaskId,
        evidence: &Evidence,
        now: &Zoned,
    ) -> Result<(Judged, Effects), BoardError> {
        let known = self.artifact(tree, task)?.filter(|artifact| {
            let id = evidence.bound_to.get("verify");
            id.is_some() && artifact.value.evidence.get("verify") == id
        });
        let (result, risks, effects) = match known {
            Some(artifact) => (artifact.value.result, artifact.value.risk_check, Effects::none()),
            None => {
                let (verified, effects) = KodingX::verified(self, tree, task, evidence, None, now)?;
                (verified.result, verified.risk_check, effects)
            }
        };
        let judged = match (result, evidence.passed) {
            (artifact::Verdict::Pass, _) => Judged::Accepted,
            (_, false) => Judged::Failed,
            (_, true) => Judged::Waits { why: risks.map(|risks| risks.blocking_reason).unwrap_or_default() },
        };
        Ok((judged, effects))
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
        let moved = |to, actor: &Actor, reason| match found.value.status == to {
            true => Ok(Effects::none()),
            false => self.move_task(tree, task, to, actor, reason, now).map(|(_, effects)| effects),
        };
        match outcome {
            Outcome::Reported { report } => {
                let kept = self.keep_report(tree, &found, report, now)?;
                Ok(kept.and(moved(Status::ReadyForReview, &builder, None)?))
            }
            Outcome::Blocked { .. } if found.value.status == Status::Blocked => Ok(Effects::none()),
            Outcome::Blocked { report, reason } => {
                let local = self.local(now);
                let (kept, asked_for) = match report {
                    Some(report) => (
                        self.keep_report(tree, &found, report, now)?,
                        self.followups(tree, &found, report, &local)?,
                    ),
                    None => (Effects::none(), (Effects::none(), Vec::new())),
                };
                let from = found.value.status;
                // What was ready goes back to its builder and is given up there, in one step.
                let actor = match from {
                    Status::ReadyForReview => Actor::Orchestrator,
                    _ => {
                        status::transition(
                            from,
                            Status::Blocked,
                            &builder,
                            &found.value.assignee,
                            Some(reason),
                        )
                        .map_err(|refused| BoardError::refused(format!("{task}: {refused}")))?;
                        builder
                    }
                };
                let note = note(from, Status::Blocked, &actor, Some(reason));
                let (_, given_up) =
                    self.moved(tree, &found, Status::Blocked, note.as_deref(), asked_for, &local)?;
                Ok(kept.and(given_up))
            }
            Outcome::Returned { reason } => moved(Status::InProgress, &Actor::Orchestrator, Some(reason)),
            Outcome::Landed { .. } => moved(Status::Done, &Actor::Orchestrator, None),
            Outcome::Canceled { reason } => moved(Status::Canceled, &Actor::Orchestrator, Some(reason)),
            Outcome::Reopened { reason } => moved(Status::Assigned, &Actor::Orchestrator, Some(reason)),
        }
    }
}

impl KodingX {
    fn set(
        &self,
        tree: &Tree,
        found: &Found<Task>,
        status: Status,
        reason: Option<&str>,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let mut task = found.value.clone();
        task.status = status;
        let note = reason.map(|reason| note(found.value.status, status, &Actor::Orchestrator, Some(reason)));
        self.rewrite(tree, found, &task, &["status"], note.flatten().as_deref(), &self.local(now))
    }

    /// Which open tasks there are reports on, and whether one of them is their builder's own that nobody has dealt with.
    fn reported(
        &self,
        tree: &Tree,
        tasks: &[(Place, Task)],
    ) -> Result<BTreeMap<String, Reported>, BoardError> {
        let is_open = |task: &Task| !task.status.is_final() && task.status != Status::Blocked;
        let open: BTreeMap<&str, &Task> = tasks
            .iter()
            .filter(|(_, task)| is_open(task))
            .map(|(_, task)| (task.id.as_str(), task))
            .collect();
        let mut by_task: BTreeMap<String, Vec<Place>> = BTreeMap::new();
        for place in layout::places(tree, Kind::Report, false)? {
            if open.contains_key(place.id()) {
                by_task.entry(place.id().to_owned()).or_default().push(place);
            }
        }
        let whose = |id: &str, places: Vec<Place>| {
            let reports = self.read_reports(tree, places.into_iter()).0;
            match open.get(id).is_some_and(|task| reports.iter().any(|report| is_handed_in(report, task))) {
                true => Reported::Outside,
                false => Reported::Dealt,
            }
        };
        Ok(by_task
            .into_iter()
            .map(|(id, places)| {
                let whose = whose(&id, places);
                (id, whose)
            })
            .collect())
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

/// A report on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reported {
    /// Somebody outside has left it, and nobody has dealt with it yet.
    Outside,
    /// An attempt's own, or one whose work went back.
    Dealt,
}

/// Whether a report is by the task's own builder, and nobody has dealt with it: what others leave lying about is no
/// report on it.
pub(super) fn is_handed_in(report: &Found<Report>, task: &Task) -> bool {
    let (said, place) = (&report.value, &report.place);
    said.is_handed_in()
        && said.task_id == task.id
        && said.agent == task.assignee
        && place.agent.as_deref() == Some(task.assignee.as_str())
}

enum Standing {
    Ready(Role),
    /// An attempt has reported it.
    Reported,
    Waits(String),
    /// Nothing is to be done about it now.
    Elsewhere,
}

fn standing(task: &Task, reported: Option<Reported>, known: &BTreeMap<&str, Status>) -> Standing {
    let role = match task.status {
        Status::New | Status::Assigned | Status::InProgress => Role::Builder,
        Status::ReadyForReview if reported.is_none() => {
            return Standing::Waits("it is said to be ready, and there is no report on it".to_owned());
        }
        Status::ReadyForReview if reported == Some(Reported::Dealt) => return Standing::Reported,
        Status::ReadyForReview => Role::Reviewer,
        Status::Blocked => {
            return Standing::Waits("it is blocked; a person or the orchestrator has to look".to_owned());
        }
        Status::Done | Status::Canceled => return Standing::Elsewhere,
    };
    let open = task.scope.as_ref().map(|scope| !scope.must_touch.is_empty() || !scope.may_touch.is_empty());
    match open {
        Some(true) => {}
        Some(false) => {
            return Standing::Waits(
                "its scope is empty: nothing is writable until someone gives one".to_owned(),
            );
        }
        None => {
            return Standing::Waits(
                "its scope is missing or wrong: nothing is writable until someone gives one".to_owned(),
            );
        }
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

fn start(place: &Place, task: &Task, role: Role, handed_in: bool) -> Option<Start> {
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
            author: scope.author,
        },
        profile: task.dod_profile.clone(),
        urgency: task.priority as u8,
        handed_in,
        may_change_nothing: false,
        branch: None,
    })
}

/// Tasks that wait for each other, each circle once.
pub(super) fn cycles(tasks: &[(Place, Task)]) -> Vec<Finding> {
    let by_id: BTreeMap<&str, &(Place, Task)> =
        tasks.iter().map(|entry| (entry.1.id.as_str(), entry)).collect();
    let waits_for = by_id.iter().map(|(id, (_, task))| (*id, task.depends_on.as_slice())).collect();
    let finding = |circle: Vec<&str>| {
        let place = circle.last().and_then(|id| by_id.get(id)).map(|(place, _)| place.path.as_str());
        let message = format!("tasks wait for each other: {}", circle.join(" → "));
        Finding::error(place.unwrap_or_default(), None, "6.2", message).of_field("depends_on")
    };
    crate::circles::circles(&waits_for).into_iter().map(finding).collect()
}
