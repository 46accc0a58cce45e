//! The board as the engine sees it.

use jiff::{Timestamp, Zoned};

use super::actions::{TaskMove, apply_move, format_time};
use super::notes::{Artifact, ExecutionNote, Provenance, RECOMMENDS};
use super::report::Report;
use super::selection::{opens_again, takes_back};
use super::task::{TaskOwner, TaskState};
use super::task_edit::TaskEditor;
use super::{Codifica, LocatedTask, PROFILE, PROFILES, block, notes, unreadable};
use crate::board::{
    Board, BoardAgenda, BoardError, BoardEvent, BoardOutcome, Claimant, CorrectedReport, ObservedAttempt,
    ProofDecision, ProofEvidence, ReadyTask, TaskBrief, TaskRole, WaitingTask,
};
use crate::claim::ReportClaim;
use crate::names::{Actor, AgentName, TaskId};
use crate::store::Effects;
use crate::store::tree::RepoTree;
use crate::text::slug::slug;

impl Board for Codifica {
    fn protocol(&self) -> &'static str {
        "codifica"
    }

    /// `None`: its files lie where `codifica.json` says, and agents see the committed ones.
    fn folder(&self) -> Option<&'static str> {
        None
    }

    fn owned_globs(&self) -> Vec<String> {
        let mut own = self.board_files();
        own.push(format!("{}/*/verify-*.json", self.contract.assets));
        own
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn scope_field(&self) -> &'static str {
        "`rules.file_scope.include` of codifica.json"
    }

    fn profiles_folder(&self) -> Option<&'static str> {
        Some(PROFILES)
    }

    fn agenda(&self, tree: &RepoTree) -> Result<BoardAgenda, BoardError> {
        let listing = self.tasks(tree)?;
        let selection = self.select(&listing, Timestamp::now());
        let mut agenda =
            BoardAgenda { findings: super::dependencies::cycles(&listing), ..BoardAgenda::default() };
        let kept = if selection.ready.is_empty() { Vec::new() } else { self.protected_globs(tree)? };
        for (listed, agent) in &selection.ready {
            let task = &listed.task;
            agenda.note_dependencies(&task.id, &task.depends_on);
            agenda.ready.push(ReadyTask {
                task: task.id.clone(),
                title: task.title.clone(),
                role: TaskRole::Builder,
                agent: agent.clone(),
                file: listing.path(listed).to_owned(),
                scope: self.scope(&kept, &task.id),
                profile: task.dod_profile.clone().unwrap_or_else(|| PROFILE.to_owned()),
                urgency: task.priority as u8,
                handed_in: false,
                may_change_nothing: task.kind.may_change_nothing(),
                branch: self.contract.rules.branch_pattern.as_ref().map(|pattern| {
                    let named = pattern.replace("{type}", &task.kind.to_string());
                    named.replace("{id}", task.id.as_str()).replace("{slug}", &slug(&task.title))
                }),
            });
        }
        agenda.waiting = selection
            .waiting
            .iter()
            .map(|(listed, why)| WaitingTask { task: listed.task.id.clone(), why: why.clone() })
            .collect();
        agenda.reported = selection.reported.iter().map(|(listed, _)| listed.task.id.clone()).collect();
        let elsewhere = selection.elsewhere.into_iter();
        agenda.elsewhere =
            elsewhere.map(|(listed, why)| WaitingTask { task: listed.task.id.clone(), why }).collect();
        agenda.findings.extend(listing.findings);
        Ok(agenda)
    }

    fn brief(&self, tree: &RepoTree, task: &TaskId) -> Result<TaskBrief, BoardError> {
        self.task_brief(tree, task)
    }

    /// A person who unassigned, reassigned or finished the task decides.
    fn is_done(&self, tree: &RepoTree, task: &TaskId) -> Result<bool, BoardError> {
        match self.find(tree, task) {
            Ok(found) => Ok(found.task.state == TaskState::Done),
            Err(BoardError::NoSuchTask { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_wanted(&self, tree: &RepoTree, task: &TaskId) -> Result<bool, BoardError> {
        let found = match self.find(tree, task) {
            Err(BoardError::NoSuchTask { .. }) => return Ok(false),
            other => other?,
        };
        let block = found.parsed()?;
        Ok(match found.task.state {
            TaskState::InProgress | TaskState::ToBeTested => self.is_ours(&block),
            // The task was ours, and a person moved it back.
            TaskState::Todo => {
                let last = notes::steps(&block).pop();
                let put_back = last.is_some_and(|step| step.by.is_some_and(|by| by.starts_with("human")));
                !(put_back && notes::was_claimed_by(&block, |session| self.is_our_session(session)))
            }
            TaskState::Done | TaskState::Blocked | TaskState::Rejected => false,
        })
    }

    fn audit_brief(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        auditor: &AgentName,
    ) -> Result<TaskBrief, BoardError> {
        let found = self.find(tree, task)?;
        let reported = notes::notes(&found.parsed()?).pop().map(|note| note.note);
        let contract = format!(
            "This repository uses the Codifica protocol; its specification is `{}`. Judge the work by the task's \
             acceptance criteria.\n",
            self.contract.spec
        );
        Ok(TaskBrief {
            task: found.block().trim_end().to_owned(),
            contract: Some(contract),
            report: crate::verdict::instructions(task, auditor),
            reported,
        })
    }

    /// §8.1: state, owner and time of the claim, in a single commit.
    fn claim(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        claimant: &Claimant<'_>,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let (found, agent) = (self.find(tree, task)?, claimant.agent);
        match found.task.state {
            TaskState::Todo => {}
            // An attempt that was interrupted goes on.
            TaskState::InProgress
                if found.task.owner.agent() == Some(agent) && self.is_ours(&found.parsed()?) =>
            {
                return Ok(Effects::none());
            }
            state => {
                let reason = format!(
                    "{task} is {state} and belongs to {}: it can't be claimed (§8.1)",
                    found.task.owner
                );
                return Err(BoardError::refused(reason));
            }
        }
        self.may_claim(tree, agent)?;
        let actor = Actor::Agent(agent.clone());
        let session = match &self.setting.site {
            Some(site) => format!("{site}/{}", claimant.session),
            None => claimant.session.to_owned(),
        };
        let provenance = Provenance::of_session(Some(&session));
        let wanted = TaskMove { to: TaskState::InProgress, actor: &actor, reason: None, provenance };
        self.may_move(tree, &found, &wanted, now)?;
        let mut draft = self.draft(&found)?;
        apply_move(&mut draft, &found.task, &wanted, now).map_err(|error| unreadable(&found.file, error))?;
        let patch = self.finished(found, draft)?;
        Ok(self.effects(vec![patch], format!("{task}: claimed by agent:{agent}"), true))
    }

    fn receive(
        &self,
        _: &RepoTree,
        task: &TaskId,
        _: &Zoned,
    ) -> Result<(Option<String>, Effects), BoardError> {
        Err(BoardError::refused(format!(
            "{task}: whoever works outside claims and moves their tasks themselves"
        )))
    }

    /// §8.1.1: there is no heartbeat in this protocol.
    fn record(&self, _: &RepoTree, _: &TaskId, event: &BoardEvent, _: &Zoned) -> Result<Effects, BoardError> {
        match event {
            BoardEvent::Heartbeat => Ok(Effects::none()),
        }
    }

    fn report(&self, claim: Option<&ReportClaim>, seen: &ObservedAttempt<'_>) -> CorrectedReport {
        super::report::corrected(claim, seen)
    }

    fn record_proof(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        evidence: &ProofEvidence,
        now: &Zoned,
    ) -> Result<(ProofDecision, Effects), BoardError> {
        let owner = self.find(tree, task)?.task.owner;
        let by = owner
            .agent()
            .map_or_else(|| super::actions::RUNNER_ACTOR.to_owned(), |agent| format!("agent:{agent}"));
        let (verified, effects) = Codifica::record_verification(self, tree, task, evidence, &by, now)?;
        Ok((if verified.passed { ProofDecision::Accepted } else { ProofDecision::Failed }, effects))
    }

    fn settle(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        outcome: &BoardOutcome,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let found = self.find(tree, task)?;
        if matches!(outcome, BoardOutcome::Reopened { .. }) {
            self.check_reopen(&found, now)?;
            // Nothing keeps the next run from it that is written there.
            if found.task.state == TaskState::Todo {
                return Ok(Effects::none());
            }
        }
        let Some(agent) = found.task.owner.agent().cloned() else {
            return Err(BoardError::refused(format!(
                "{task} belongs to {}, and to no agent",
                found.task.owner
            )));
        };
        let ending = Settlement { board: self, tree, found, agent: Actor::Agent(agent), now };
        match outcome {
            BoardOutcome::Reported { report } => ending.reported(&Report::parse(report)),
            BoardOutcome::Blocked { report, reason } => ending.blocked(report.as_deref(), reason),
            BoardOutcome::Returned { reason } => ending.returned(reason),
            BoardOutcome::Landed { commit } => ending.landed(commit),
            BoardOutcome::Canceled { reason } => ending.blocked(None, reason),
            BoardOutcome::Reopened { reason } => ending.reopened(reason),
        }
    }
}

impl Codifica {
    /// Refuses another try at a task that the next run would not take all the same: one that is for a person, or that
    /// another clone has.
    fn check_reopen(&self, found: &LocatedTask, now: &Zoned) -> Result<(), BoardError> {
        let (task, block) = (&found.task, found.parsed()?);
        let (id, state, owner) = (&task.id, task.state, &task.owner);
        let stale = self.stale_for(&block, task.claimed_at.as_deref(), now.timestamp());
        let takes_back = takes_back(task, stale.is_some());
        let refused = |reason: String, hint: String| Err(BoardError::refused(reason).with_hint(hint));
        match (state, owner) {
            (TaskState::Todo, _) => Ok(()),
            (TaskState::Blocked, _) => {
                refused(format!("{id} is {state}: only a person opens it again (§7.1)"), opens_again(id))
            }
            (TaskState::Done | TaskState::Rejected, _) => refused(
                format!("{id} is {state}: only a person opens it again (§7.1)"),
                format!("agency task move {id} todo --as human --reason 'to be done again'"),
            ),
            (TaskState::ToBeTested, TaskOwner::Human) => refused(
                format!("{id} is {state} by a person (§7.2)"),
                format!("agency task move {id} todo --as human"),
            ),
            (TaskState::InProgress | TaskState::ToBeTested, TaskOwner::Agent(_)) if self.is_ours(&block) => {
                Ok(())
            }
            (TaskState::InProgress | TaskState::ToBeTested, _) => refused(
                format!(
                    "{id} is {state} and belongs to {owner}, and not to this clone: a run does not take it (§8.1)"
                ),
                takes_back,
            ),
        }
    }
}

/// Writes the end of an attempt into its task.
struct Settlement<'a> {
    board: &'a Codifica,
    tree: &'a RepoTree,
    found: LocatedTask,
    agent: Actor,
    now: &'a Zoned,
}

impl Settlement<'_> {
    /// The agent reports its work as ready: adds its note and artifacts, and moves the task to be tested.
    fn reported(&self, report: &Report) -> Result<Effects, BoardError> {
        if self.found.task.state == TaskState::ToBeTested {
            return Ok(Effects::none());
        }
        let note = self.note(&report.note, Some(&report.summary))?;
        let known = notes::artifacts(&self.found.parsed()?);
        self.moved_with(TaskState::ToBeTested, None, None, |draft| {
            draft.push("execution_notes", &note.node())?;
            let is_new = |one: &&Artifact| known.iter().all(|other| other.path != one.path);
            let mut new = report.artifacts.iter().filter(is_new);
            new.try_for_each(|artifact| draft.push("artifacts", &artifact.node()))
        })
    }

    /// §7.2: an agent can't block a task. It recommends that a person does, and why.
    fn blocked(&self, report: Option<&str>, reason: &str) -> Result<Effects, BoardError> {
        if notes::requested_block(&self.found.parsed()?).is_some() {
            return Ok(Effects::none());
        }
        let more = report.map(Report::parse).map(|report| format!("\n\n{}", report.note)).unwrap_or_default();
        let said = format!("Recommend blocking: {reason}");
        let note = self.note(&format!("{RECOMMENDS}{}{more}", reason.trim()), Some(&said))?;
        self.noted(&note, "recommends to be blocked")
    }

    /// The task goes back to `todo`; the next agent claims it anew.
    fn returned(&self, reason: &str) -> Result<Effects, BoardError> {
        match self.found.task.state {
            TaskState::ToBeTested => self.moved_with(TaskState::Todo, Some(reason), None, |_| Ok(())),
            _ => Ok(Effects::none()),
        }
    }

    fn landed(&self, commit: &str) -> Result<Effects, BoardError> {
        if self.found.task.state == TaskState::Done {
            return Ok(Effects::none());
        }
        let short: String = commit.chars().take(12).collect();
        let last = notes::notes(&self.found.parsed()?).into_iter().rev();
        // The proof has a summary, too; the agent's summary says what it did.
        let said = last.filter_map(|note| note.summary).find(|summary| !summary.starts_with("Verif"));
        let said = said.unwrap_or_else(|| self.found.task.title.clone());
        let mut note = self.note(&format!("Landed as {short}."), Some(&said))?;
        note.provenance.commit_sha = Some(commit.to_owned());
        self.moved_with(TaskState::Done, None, Some(commit), |draft| {
            draft.push("execution_notes", &note.node())
        })
    }

    /// Another try is wanted.
    fn reopened(&self, reason: &str) -> Result<Effects, BoardError> {
        match self.found.task.state {
            TaskState::InProgress => {
                let note = self.note(&format!("Tried again: {}", reason.trim()), None)?;
                self.noted(&note, "is tried again")
            }
            TaskState::ToBeTested => self.moved_with(TaskState::Todo, Some(reason), None, |_| Ok(())),
            TaskState::Todo | TaskState::Blocked | TaskState::Done | TaskState::Rejected => {
                Ok(Effects::none())
            }
        }
    }

    fn note(&self, text: &str, summary: Option<&str>) -> Result<ExecutionNote, BoardError> {
        Ok(ExecutionNote {
            by: Some(self.agent.to_string()),
            note: text.to_owned(),
            summary: summary.map(str::to_owned),
            timestamp: Some(format_time(self.now)),
            provenance: Provenance::of_session(notes::session(&self.found.parsed()?).as_deref()),
        })
    }

    fn noted(&self, note: &ExecutionNote, what: &str) -> Result<Effects, BoardError> {
        let mut draft = self.board.draft(&self.found)?;
        draft.push("execution_notes", &note.node()).map_err(|error| unreadable(&self.found.file, error))?;
        let message = format!("{}: {} {what}", self.found.task.id, self.agent);
        Ok(self.board.effects(vec![self.board.finished(self.found.clone(), draft)?], message, false))
    }

    /// A move by the agent, with further edits of the task.
    fn moved_with(
        &self,
        to: TaskState,
        reason: Option<&str>,
        commit: Option<&str>,
        more: impl FnOnce(&mut TaskEditor) -> Result<(), block::BlockError>,
    ) -> Result<Effects, BoardError> {
        let session = notes::session(&self.found.parsed()?);
        let provenance = Provenance { session_id: session, commit_sha: commit.map(str::to_owned) };
        let wanted = TaskMove { to, actor: &self.agent, reason, provenance };
        self.board.may_move(self.tree, &self.found, &wanted, self.now)?;
        let mut draft = self.board.draft(&self.found)?;
        more(&mut draft)
            .and_then(|()| apply_move(&mut draft, &self.found.task, &wanted, self.now))
            .map_err(|error| unreadable(&self.found.file, error))?;
        let message = format!("{}: {} -> {to} by {}", self.found.task.id, self.found.task.state, self.agent);
        Ok(self.board.effects(vec![self.board.finished(self.found.clone(), draft)?], message, false))
    }
}
