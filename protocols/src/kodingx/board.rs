//! The board as the engine sees it.

use std::collections::BTreeMap;

use jiff::Zoned;

use super::actions::note;
use super::artifact;
use super::done_gate::DoneGate;
use super::layout::{self, BoardFileKind, BoardPath};
use super::report::{Report, ReportStatus};
use super::status::{self, TaskStatus};
use super::task::Task;
use super::{BoardFile, KodingX};
use crate::board::{
    Board, BoardAgenda, BoardError, BoardEvent, BoardOutcome, Claimant, CorrectedReport, ObservedAttempt,
    ProofDecision, ProofEvidence, ReadyTask, TaskBrief, TaskRole, TaskScope, WaitingTask,
};
use crate::claim::ReportClaim;
use crate::finding::Finding;
use crate::names::{Actor, AgentName, TaskId};
use crate::store::Effects;
use crate::store::tree::RepoTree;
use crate::text::frontmatter::Frontmatter;
use crate::timestamp::OffsetTimestamp;

impl Board for KodingX {
    fn protocol(&self) -> &'static str {
        "kodingx"
    }

    fn folder(&self) -> Option<&'static str> {
        Some(layout::ROOT)
    }

    fn owned_globs(&self) -> Vec<String> {
        vec![format!("{}/**", layout::ROOT)]
    }

    fn scope_field(&self) -> &'static str {
        "`may_touch` of the task's scope"
    }

    fn profiles_folder(&self) -> Option<&'static str> {
        Some(layout::PROFILES)
    }

    fn agenda(&self, tree: &RepoTree) -> Result<BoardAgenda, BoardError> {
        let (listing, archived) = (self.tasks(tree)?, self.archived_tasks(tree)?);
        let mut findings = listing.findings;
        findings.extend(cycles(&listing.tasks));
        let known: BTreeMap<&str, TaskStatus> = listing
            .tasks
            .iter()
            .chain(&archived.tasks)
            .map(|(_, task)| (task.id.as_str(), task.status))
            .collect();
        let reported = self.reported(tree, &listing.tasks)?;
        let mut agenda = BoardAgenda::default();
        for (place, task) in &listing.tasks {
            match readiness(task, reported.get(task.id.as_str()).copied(), &known) {
                TaskReadiness::Ready(role) => {
                    agenda.note_dependencies(&task.id, &task.depends_on);
                    let handed_in = reported.get(task.id.as_str()) == Some(&ReportHandling::Outside);
                    agenda.ready.extend(start(place, task, role, handed_in));
                }
                TaskReadiness::Reported => agenda.reported.push(task.id.clone()),
                TaskReadiness::Waits(why) => agenda.waiting.push(WaitingTask { task: task.id.clone(), why }),
                TaskReadiness::Elsewhere => {}
            }
        }
        agenda.ready.sort_by(|a, b| (a.urgency, &a.file).cmp(&(b.urgency, &b.file)));
        agenda.findings = findings;
        Ok(agenda)
    }

    fn brief(&self, tree: &RepoTree, task: &TaskId) -> Result<TaskBrief, BoardError> {
        let found = self.find(tree, task)?;
        let contract = format!("{}/{}.md", layout::AGENTS, found.value.assignee);
        Ok(TaskBrief {
            task: found.text,
            contract: tree.read_text(&contract)?,
            report: super::builder_report::instructions(task, &found.value.assignee),
            reported: None,
        })
    }

    fn audit_brief(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        auditor: &AgentName,
    ) -> Result<TaskBrief, BoardError> {
        let contract = format!("{}/{auditor}.md", layout::AGENTS);
        Ok(TaskBrief {
            task: self.find(tree, task)?.text,
            contract: tree.read_text(&contract)?,
            report: crate::verdict::instructions(task, auditor),
            reported: self.reports(tree, task)?.0.pop().map(|report| report.text),
        })
    }

    fn is_wanted(&self, tree: &RepoTree, task: &TaskId) -> Result<bool, BoardError> {
        match self.find(tree, task) {
            Ok(found) => Ok(!found.place.archived
                && !matches!(
                    found.value.status,
                    TaskStatus::Blocked | TaskStatus::Done | TaskStatus::Canceled
                )),
            Err(BoardError::NoSuchTask { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_done(&self, tree: &RepoTree, task: &TaskId) -> Result<bool, BoardError> {
        match self.find(tree, task) {
            Ok(found) => Ok(!found.place.archived && found.value.status == TaskStatus::Done),
            Err(BoardError::NoSuchTask { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The orchestrator assigns a new task and starts it in one step.
    fn claim(
        &self,
        tree: &RepoTree,
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
            TaskStatus::New | TaskStatus::Assigned => {
                self.set(tree, &found, TaskStatus::InProgress, None, now)
            }
            // An attempt that was interrupted goes on.
            TaskStatus::InProgress => Ok(Effects::none()),
            status => Err(BoardError::refused(format!("{task} is {status} and can't be started"))),
        }
    }

    /// §3.5: a report arrived.
    fn receive(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        now: &Zoned,
    ) -> Result<(Option<String>, Effects), BoardError> {
        let found = self.find(tree, task)?;
        let reports = self.reports(tree, task)?.0;
        let Some(report) = reports.iter().rfind(|report| is_handed_in(report, &found.value)) else {
            return Err(BoardError::refused(format!("there is no report on {task}")));
        };
        let blocked = (report.value.status == ReportStatus::Blocked).then(|| {
            super::builder_report::reason(Frontmatter::parse(&report.text).map_or("", |matter| matter.body()))
        });
        let received = match found.value.status {
            // As if its builder had started and finished, in one step.
            TaskStatus::New | TaskStatus::Assigned | TaskStatus::InProgress if blocked.is_none() => {
                self.set(tree, &found, TaskStatus::ReadyForReview, None, now)?
            }
            TaskStatus::New | TaskStatus::Assigned => {
                self.set(tree, &found, TaskStatus::InProgress, None, now)?
            }
            TaskStatus::InProgress | TaskStatus::ReadyForReview => Effects::none(),
            status => return Err(BoardError::refused(format!("{task} is {status}"))),
        };
        Ok((blocked, received))
    }

    /// The protocol's files have none of this: leases and heartbeats are the engine's.
    fn record(&self, _: &RepoTree, _: &TaskId, event: &BoardEvent, _: &Zoned) -> Result<Effects, BoardError> {
        match event {
            BoardEvent::Heartbeat => Ok(Effects::none()),
        }
    }

    fn report(&self, claim: Option<&ReportClaim>, seen: &ObservedAttempt<'_>) -> CorrectedReport {
        super::builder_report::corrected(claim, seen, self.zone())
    }

    fn record_proof(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        evidence: &ProofEvidence,
        now: &Zoned,
    ) -> Result<(ProofDecision, Effects), BoardError> {
        let known = self.artifact(tree, task)?.filter(|artifact| {
            let id = evidence.bound_to.get("verify");
            id.is_some() && artifact.value.evidence.get("verify") == id
        });
        let (result, risks, effects) = match known {
            Some(artifact) => (artifact.value.result, artifact.value.risk_check, Effects::none()),
            None => {
                let (verified, effects) =
                    KodingX::record_verification(self, tree, task, evidence, None, now)?;
                (verified.result, verified.risk_check, effects)
            }
        };
        let judged = match (result, evidence.passed) {
            (artifact::VerifyResult::Pass, _) => ProofDecision::Accepted,
            (_, false) => ProofDecision::Failed,
            (_, true) => {
                ProofDecision::Waits { why: risks.map(|risks| risks.blocking_reason).unwrap_or_default() }
            }
        };
        Ok((judged, effects))
    }

    fn settle(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        outcome: &BoardOutcome,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let found = self.find(tree, task)?;
        let builder = Actor::Agent(found.value.assignee.clone());
        let moved = |to, actor: &Actor, reason| match found.value.status == to {
            true => Ok(Effects::none()),
            false => self.move_task(tree, task, to, actor, reason, now).map(|(_, effects)| effects),
        };
        match outcome {
            BoardOutcome::Reported { report } => {
                let kept = self.keep_report(tree, &found, report, now)?;
                Ok(kept.and(moved(TaskStatus::ReadyForReview, &builder, None)?))
            }
            BoardOutcome::Blocked { .. } if found.value.status == TaskStatus::Blocked => Ok(Effects::none()),
            BoardOutcome::Blocked { report, reason } => {
                let local = self.local(now);
                let (kept, asked_for) = match report {
                    Some(report) => (
                        self.keep_report(tree, &found, report, now)?,
                        self.followups(tree, &found, report, &local)?,
                    ),
                    None => (Effects::none(), (Effects::none(), Vec::new())),
                };
                let from = found.value.status;
                // A task that was ready goes back to its builder and is given up there, in one step.
                let actor = match from {
                    TaskStatus::ReadyForReview => Actor::Orchestrator,
                    _ => {
                        status::transition(
                            from,
                            TaskStatus::Blocked,
                            &builder,
                            &found.value.assignee,
                            Some(reason),
                        )
                        .map_err(|refused| BoardError::refused(format!("{task}: {refused}")))?;
                        builder
                    }
                };
                let note = note(from, TaskStatus::Blocked, &actor, Some(reason));
                let (_, given_up) =
                    self.move_effects(tree, &found, TaskStatus::Blocked, note.as_deref(), asked_for, &local)?;
                Ok(kept.and(given_up))
            }
            BoardOutcome::Returned { reason } => {
                moved(TaskStatus::InProgress, &Actor::Orchestrator, Some(reason))
            }
            BoardOutcome::Landed { commit } => {
                let told = self.report_landed(tree, task, commit)?;
                match found.value.status {
                    TaskStatus::Done => Ok(told),
                    _ => {
                        let to = (TaskStatus::Done, DoneGate::Landed);
                        let moved = self.move_through(tree, task, to, &Actor::Orchestrator, None, now)?;
                        Ok(told.and(moved.1))
                    }
                }
            }
            BoardOutcome::Canceled { reason } => {
                moved(TaskStatus::Canceled, &Actor::Orchestrator, Some(reason))
            }
            // It was reported and did not land: it goes back to its builder.
            BoardOutcome::Reopened { reason } if found.value.status == TaskStatus::ReadyForReview => {
                moved(TaskStatus::InProgress, &Actor::Orchestrator, Some(reason))
            }
            BoardOutcome::Reopened { reason } => {
                moved(TaskStatus::Assigned, &Actor::Orchestrator, Some(reason))
            }
        }
    }
}

impl KodingX {
    fn set(
        &self,
        tree: &RepoTree,
        found: &BoardFile<Task>,
        status: TaskStatus,
        reason: Option<&str>,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let mut task = found.value.clone();
        task.status = status;
        let note = reason.map(|reason| note(found.value.status, status, &Actor::Orchestrator, Some(reason)));
        self.rewrite(tree, found, &task, &["status"], note.flatten().as_deref(), &self.local(now))
    }

    /// The open tasks that have reports, each with whether one is its builder's own from outside of a run and not
    /// handled yet.
    fn reported(
        &self,
        tree: &RepoTree,
        tasks: &[(BoardPath, Task)],
    ) -> Result<BTreeMap<String, ReportHandling>, BoardError> {
        let is_open = |task: &Task| !task.status.is_final() && task.status != TaskStatus::Blocked;
        let open: BTreeMap<&str, &Task> = tasks
            .iter()
            .filter(|(_, task)| is_open(task))
            .map(|(_, task)| (task.id.as_str(), task))
            .collect();
        let mut by_task: BTreeMap<String, Vec<BoardPath>> = BTreeMap::new();
        for place in layout::list_files(tree, BoardFileKind::Report, false)? {
            if open.contains_key(place.id()) {
                by_task.entry(place.id().to_owned()).or_default().push(place);
            }
        }
        let whose = |id: &str, places: Vec<BoardPath>| {
            let reports = self.read_reports(tree, places.into_iter()).0;
            match open.get(id).is_some_and(|task| reports.iter().any(|report| is_handed_in(report, task))) {
                true => ReportHandling::Outside,
                false => ReportHandling::Dealt,
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

    /// The engine's last report on a task, with what became of its work. A report from outside stays as it was written.
    fn report_landed(&self, tree: &RepoTree, task: &TaskId, commit: &str) -> Result<Effects, BoardError> {
        let mut effects = Effects::none();
        if let Some(report) = self.reports(tree, task)?.0.pop().filter(|one| one.value.attempt.is_some()) {
            let path = &report.place.path;
            let text = Report::as_landed(&report.text, commit)
                .map_err(|error| super::actions::unreadable(path, error))?;
            effects.replace(path, &report.text, text);
        }
        Ok(effects)
    }

    /// The report in the outbox of its agent, under today's date. A later one of the same day replaces it.
    fn keep_report(
        &self,
        tree: &RepoTree,
        found: &BoardFile<Task>,
        report: &str,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let date = OffsetTimestamp::from_zoned(&self.local(now)).date();
        let path = layout::report_path(&found.value.assignee, &date, &found.place.stem);
        let mut effects = Effects::none();
        effects.put(&path, tree.read_text(&path)?.as_deref(), report);
        Ok(effects)
    }
}

/// A report on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReportHandling {
    /// Written outside of a run, and not handled yet.
    Outside,
    /// An attempt's own, or one that is handled because its work went back.
    Dealt,
}

/// Whether a report is by the task's own builder, from outside of a run, and not handled yet. Reports by other agents
/// do not count.
pub(super) fn is_handed_in(report: &BoardFile<Report>, task: &Task) -> bool {
    let (said, place) = (&report.value, &report.place);
    said.is_handed_in()
        && said.task_id == task.id
        && said.agent == task.assignee
        && place.agent.as_deref() == Some(task.assignee.as_str())
}

enum TaskReadiness {
    Ready(TaskRole),
    /// An attempt has reported it.
    Reported,
    Waits(String),
    /// No action is needed now.
    Elsewhere,
}

fn readiness(
    task: &Task,
    reported: Option<ReportHandling>,
    known: &BTreeMap<&str, TaskStatus>,
) -> TaskReadiness {
    let role = match task.status {
        TaskStatus::New | TaskStatus::Assigned | TaskStatus::InProgress => TaskRole::Builder,
        TaskStatus::ReadyForReview if reported.is_none() => {
            return TaskReadiness::Waits("it is said to be ready, and there is no report on it".to_owned());
        }
        TaskStatus::ReadyForReview if reported == Some(ReportHandling::Dealt) => {
            return TaskReadiness::Reported;
        }
        TaskStatus::ReadyForReview => TaskRole::Reviewer,
        TaskStatus::Blocked => {
            return TaskReadiness::Waits("it is blocked; `agency retry` tries it again".to_owned());
        }
        TaskStatus::Done | TaskStatus::Canceled => return TaskReadiness::Elsewhere,
    };
    let open = task.scope.as_ref().map(|scope| !scope.must_touch.is_empty() || !scope.may_touch.is_empty());
    match open {
        Some(true) => {}
        Some(false) => {
            return TaskReadiness::Waits(
                "its scope is empty: nothing is writable until someone gives one".to_owned(),
            );
        }
        None => {
            return TaskReadiness::Waits(
                "its scope is missing or wrong: nothing is writable until someone gives one".to_owned(),
            );
        }
    }
    for dependency in &task.depends_on {
        match known.get(dependency.as_str()) {
            Some(TaskStatus::Done) => {}
            Some(TaskStatus::Canceled) => {
                return TaskReadiness::Waits(format!("it depends on {dependency}, which was canceled"));
            }
            Some(status) => {
                return TaskReadiness::Waits(format!("it depends on {dependency}, which is {status}"));
            }
            None => return TaskReadiness::Waits(format!("it depends on {dependency}, which does not exist")),
        }
    }
    TaskReadiness::Ready(role)
}

fn start(place: &BoardPath, task: &Task, role: TaskRole, handed_in: bool) -> Option<ReadyTask> {
    let scope = task.scope.clone().unwrap_or_default();
    if task.scope.is_none() && role == TaskRole::Builder {
        return None;
    }
    Some(ReadyTask {
        task: task.id.clone(),
        title: task.title.clone(),
        role,
        agent: task.assignee.clone(),
        file: place.path.clone(),
        scope: TaskScope {
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

/// Tasks that wait for each other, each cycle once.
pub(super) fn cycles(tasks: &[(BoardPath, Task)]) -> Vec<Finding> {
    let by_id: BTreeMap<&str, &(BoardPath, Task)> =
        tasks.iter().map(|entry| (entry.1.id.as_str(), entry)).collect();
    let waits_for = by_id.iter().map(|(id, (_, task))| (*id, task.depends_on.as_slice())).collect();
    let finding = |circle: Vec<&str>| {
        let place = circle.last().and_then(|id| by_id.get(id)).map(|(place, _)| place.path.as_str());
        let message = format!("tasks wait for each other: {}", circle.join(" → "));
        Finding::error(place.unwrap_or_default(), None, "6.2", message).of_field("depends_on")
    };
    crate::cycles::find_cycles(&waits_for).into_iter().map(finding).collect()
}
