//! What an agent did, from its end to the board.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

use std::path::Path;

use agency_protocols::board::{BoardOutcome, CorrectedReport, ObservedAttempt, RecordedUsage};
use agency_protocols::claim::{AgentClaim, ClaimKind};
use agency_sandbox::scope::{Scope, ScopeVerdict};
use jiff::{Timestamp, Zoned};

use super::{AttemptDriver, AttemptStep, DriveError, park_policy, unexpected};
use crate::attempt::{AgentWork, AttemptEnd, AttemptFailure, FailureKind, Phase, UsageTotals, WorkResult};
use crate::job::claim_reader::AgentText;
use crate::job::order::{AgentOrder, BudgetOwner, JobKind};
use crate::job::outcome::{AgentOutcome, JobOutcome, JobResult, ProgramEnd, StopReason};
use crate::job::{JobError, JobFolder, JobState};
use crate::log_excerpt;
use crate::store::AttemptStore;
use agency_landing::names::Oid;
use agency_landing::{self, candidate, tree_diff};

impl<S: AttemptStore> AttemptDriver<'_, S> {
    pub(super) async fn collect(&mut self) -> Result<(), DriveError> {
        let outcome = self.outcome()?;
        let order = self.agent_order()?;
        if is_out_of_the_runs_time(&outcome, &order) {
            return self.lose("the budget of the run had no more time for it").await;
        }
        let ended = match self.judge(&outcome, &order).await {
            Err(error) if is_gone(&error) => return self.lose(GONE).await,
            ended => ended?,
        };
        if let WorkResult::Work(work) = &ended {
            let lease = self.hold().await?;
            let commit = Oid::parse(&work.candidate)?;
            match self.step(AttemptStep::Keep, self.keep(lease, commit)).await {
                Err(error) if is_gone(&error) => return self.lose(GONE).await,
                kept => kept?,
            }
            self.step(AttemptStep::Report, self.report(&outcome)).await?;
        }
        let phase = Phase::Ended(ended);
        self.step(AttemptStep::Collect, self.record(&phase)).await?;
        self.reach(phase);
        Ok(())
    }

    /// Ends the attempt without a result, at no cost to the task; the task is tried again.
    async fn lose(&mut self, reason: &str) -> Result<(), DriveError> {
        self.attempt.phase = Phase::Over(self.end(AttemptEnd::Lost { reason: reason.to_owned() }).await?);
        Ok(())
    }

    /// The outcome of the agent's job.
    pub(super) fn outcome(&self) -> Result<JobOutcome, DriveError> {
        match self.agent_place().state()? {
            JobState::Over(outcome) => Ok(*outcome),
            _ => Err(unexpected("the agent's outcome is gone")),
        }
    }

    pub(super) fn agent_order(&self) -> Result<AgentOrder, DriveError> {
        match self.agent_place().read_order()?.what {
            JobKind::Agent(order) => Ok(*order),
            JobKind::Audit(_) | JobKind::Proof(_) => {
                Err(unexpected("the agent's order is not one for an agent"))
            }
        }
    }

    async fn keep(&self, lease: agency_landing::lease::GitLease, commit: Oid) -> Result<(), DriveError> {
        let kept = self.blocking(move |repository| candidate::keep(repository, &lease, &commit)).await?;
        match kept {
            true => Ok(()),
            false => Err(crate::store::AttemptStoreError::Fenced(self.lease.clone()).into()),
        }
    }

    async fn report(&self, outcome: &JobOutcome) -> Result<(), DriveError> {
        let told = self.told(outcome).await?;
        let (task, _) = self.names()?;
        let outcome = BoardOutcome::Reported { report: told.text };
        self.write_board(move |board, tree| Ok(((), board.settle(tree, &task, &outcome, &Zoned::now())?)))
            .await
    }

    /// The report as it is kept; `None` where another program has left one.
    pub(super) async fn report_text(&self) -> Result<Option<String>, DriveError> {
        match self.agent_place().state()? {
            JobState::Over(outcome) => Ok(Some(self.told(&outcome).await?.text)),
            _ => Ok(None),
        }
    }

    /// What the agents of this attempt used so far.
    pub(super) fn spent(&self) -> UsageTotals {
        agents_done(&self.context.records(&self.attempt)).map(|done| spent_by(&done)).sum()
    }

    /// The agent's report, corrected by what was seen.
    pub(super) async fn told(&self, outcome: &JobOutcome) -> Result<CorrectedReport, DriveError> {
        let (task, agent) = self.names()?;
        let (files, usage) = match &outcome.done {
            JobResult::Agent(done) => (done.changed.clone(), done.usage),
            _ => (Vec::new(), None),
        };
        let claim = match self.claim(&outcome.done, ClaimKind::Report, &self.attempt.agent).await? {
            Some(AgentClaim::Report(report)) => Some(report),
            Some(AgentClaim::Verdict(_) | AgentClaim::NoVerdict { .. }) => {
                return Err(unexpected("the agent's claim is that of an auditor"));
            }
            None => None,
        };
        let used = usage.map(|usage| RecordedUsage {
            tokens: usage.tokens,
            input_tokens: usage.input,
            output_tokens: usage.output,
            cost_micros: usage.cost_micros,
        });
        let (ended, attempt) = (sentence(outcome), self.attempt.epoch.0);
        let at = |seconds| Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
        let (started, finished) = (at(outcome.started_at), at(outcome.ended_at));
        let told = self.context.board_thread.read(move |board, _| {
            let seen = ObservedAttempt {
                task: &task,
                agent: &agent,
                attempt,
                started,
                finished,
                files: &files,
                ended: &ended,
                used,
            };
            Ok(board.report(claim.as_deref(), &seen))
        });
        Ok(told.await?)
    }

    /// What an agent of this attempt wrote. What an older shim left as text is read now, as the shim would have.
    pub(super) async fn claim(
        &self,
        done: &JobResult,
        kind: ClaimKind,
        agent: &str,
    ) -> Result<Option<AgentClaim>, DriveError> {
        let JobResult::Agent(done) = done else { return Ok(None) };
        let (None, Some(text)) = (&done.claim, &done.report) else { return Ok(done.claim.clone()) };
        let (reader, task, agent, text) =
            (self.context.reader.clone(), self.attempt.task.clone(), agent.to_owned(), text.clone());
        let read = move || reader.read(AgentText { kind, task: &task, agent: &agent, text: &text });
        match tokio::task::spawn_blocking(read).await {
            Ok(read) => Ok(Some(read.map_err(|source| JobError::Start { source })?)),
            Err(_) => Err(unexpected("a thread broke")),
        }
    }

    async fn judge(&self, outcome: &JobOutcome, order: &AgentOrder) -> Result<WorkResult, DriveError> {
        if outcome.stopped == Some(StopReason::Canceled) {
            return Ok(WorkResult::Canceled);
        }
        let failed = |kind, reason| Ok(WorkResult::Failed { failure: AttemptFailure::new(kind, reason) });
        let done = match &outcome.done {
            JobResult::Agent(done) => done,
            JobResult::NotRun { reason, hint, of_setup } => {
                let hint = hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                let kind = if *of_setup { FailureKind::Setup } else { FailureKind::Start };
                return failed(kind, format!("it could not be started: {reason}{hint}"));
            }
            // The attempt was canceled, so it is not begun again.
            JobResult::NoRoom { .. } | JobResult::Away { .. } => return Ok(WorkResult::Canceled),
            JobResult::Lost { .. } => return Err(unexpected("an agent that was lost has left nothing")),
            JobResult::Unread { reason } => {
                return failed(FailureKind::Harvest, format!("what it did could not be kept: {reason}"));
            }
            JobResult::Stopped => return Ok(WorkResult::Canceled),
            JobResult::Proof(_) => return Err(unexpected("the agent's outcome is that of a proof")),
        };
        let excuse = park_policy::excuse(done);
        if let Some(heard) = excuse
            && let Some(ended) = self.excused(heard, outcome.ended_at).await?
        {
            return Ok(ended);
        }
        if let Some(failure) = failure(done, order, self.context.board_thread.scope_field) {
            let last = self.last_words();
            let reason = match (failure.kind, excuse) {
                (FailureKind::Exit, Some(heard)) => format!("{}: {}", failure.reason, heard.says),
                (FailureKind::Exit, None) if !last.is_empty() => {
                    format!("{}; its last words: {last}", failure.reason)
                }
                _ => failure.reason,
            };
            return failed(failure.kind, reason);
        }
        if let Some(reason) = self.told(outcome).await?.blocked {
            // It is the agent's own, and may have as many lines as it likes.
            return Ok(WorkResult::Blocked { reason: log_excerpt::on_one_line(&reason) });
        }
        if let Some(start) = &order.start {
            return self.mended(order, done.candidate.as_ref().unwrap_or(start)).await;
        }
        match &done.candidate {
            Some(candidate) if done.did_something => {
                Ok(WorkResult::Work(AgentWork { base: order.base.clone(), candidate: candidate.clone() }))
            }
            // What it found out is in its report.
            _ if order.may_change_nothing => {
                Ok(WorkResult::Work(AgentWork { base: order.base.clone(), candidate: order.base.clone() }))
            }
            _ => failed(FailureKind::Nothing, format!("it made no change{}", required(order))),
        }
    }

    /// Judges work that goes on from earlier work as a whole: an attempt that takes everything back has done nothing.
    /// One that changes nothing stands by what it had.
    async fn mended(&self, order: &AgentOrder, candidate: &str) -> Result<WorkResult, DriveError> {
        let work = AgentWork { base: order.base.clone(), candidate: candidate.to_owned() };
        let (base, made) = (Oid::parse(&work.base)?, Oid::parse(candidate)?);
        let changed = self.blocking(move |repository| tree_diff::between(repository, &base, &made)).await?;
        let must = Scope::parse(&order.scope.must, &[]).map_err(|error| unexpected(&error.to_string()))?;
        let counts = |change: &tree_diff::ChangedPath| {
            must.write.is_empty() || must.judge(&change.path) == ScopeVerdict::InScope
        };
        Ok(match changed.iter().any(counts) {
            true => WorkResult::Work(work),
            false => {
                let reason = format!("it took back what it had done, and made no change{}", required(order));
                WorkResult::Failed { failure: AttemptFailure::new(FailureKind::Nothing, reason) }
            }
        })
    }

    /// The end of its output, on one line.
    fn last_words(&self) -> String {
        const MOST: u64 = 400;
        let log = std::fs::File::open(self.agent_place().output());
        log.and_then(|mut log| log_excerpt::tail_on_one_line(&mut log, 0, MOST)).unwrap_or_default()
    }
}

const GONE: &str = "what it did is gone: a garbage collection took it away before it had a name";

/// Whether work is neither in the repository nor in a spare copy any more.
fn is_gone(error: &DriveError) -> bool {
    matches!(error, DriveError::Landing(agency_landing::Error::Missing { .. }))
}

/// How the agents of an attempt ended, the builder and its auditors, by the folder of its records.
fn agents_done(folder: &Path) -> impl Iterator<Item = Box<AgentOutcome>> + use<> {
    let folder = folder.to_owned();
    let builder = std::iter::once(folder.join("agent"));
    let audits =
        (1..).map(move |number| folder.join(format!("audit-{number}"))).take_while(|path| path.exists());
    builder.chain(audits).filter_map(|path| match JobFolder::new(path).state() {
        Ok(JobState::Over(outcome)) => match outcome.done {
            JobResult::Agent(done) => Some(done),
            _ => None,
        },
        _ => None,
    })
}

fn spent_by(done: &AgentOutcome) -> UsageTotals {
    let usage = done.usage.unwrap_or_default();
    UsageTotals {
        time_ms: done.elapsed_ms,
        tokens: usage.tokens,
        cost_micros: usage.cost_micros.unwrap_or(0),
    }
}

/// The part of what an attempt used that only stands for claims of more than can be.
pub(crate) fn impossible(folder: &Path) -> UsageTotals {
    let claims = agents_done(folder).filter(|done| done.usage.is_some_and(|usage| usage.impossible));
    claims.map(|done| UsageTotals { time_ms: 0, ..spent_by(&done) }).sum()
}

/// The files that had to change, for a sentence that says that they did not.
fn required(order: &AgentOrder) -> String {
    match order.scope.must.is_empty() {
        true => String::new(),
        false => format!(" to required files ({})", order.scope.must.join(", ")),
    }
}

/// Whether an agent was stopped for want of the run's time, which is no fault of its own.
pub(super) fn is_out_of_the_runs_time(outcome: &JobOutcome, order: &AgentOrder) -> bool {
    let stopped = matches!(&outcome.done, JobResult::Agent(done) if done.end == ProgramEnd::Wall && done.violations.is_empty());
    stopped && order.short_of_time == Some(BudgetOwner::Run)
}

/// What the agent did wrong, if its end alone says so.
fn failure(done: &AgentOutcome, order: &AgentOrder, scope_field: &str) -> Option<AttemptFailure> {
    let minutes = |ms: Option<u64>| match ms.unwrap_or_default() {
        ms if ms >= 60_000 && ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms => format!("{} s", ms as f64 / 1000.0),
    };
    let (kind, reason) = match done.end {
        _ if !done.violations.is_empty() => {
            let more = match done.violations.len() as u64 + done.violations_left_out {
                1 => String::new(),
                count => format!("; and {} more", count - 1),
            };
            let open = match &done.openings[..] {
                [] => String::new(),
                names => {
                    let names: Vec<String> = names.iter().take(3).map(|name| format!("`{name}`")).collect();
                    format!(". To allow it, add {} to {scope_field}", names.join(", "))
                }
            };
            let reason = format!("change refused: {}{more}{open}", done.violations[0]);
            (FailureKind::Scope, reason)
        }
        ProgramEnd::Exited { code: 0 } => return None,
        ProgramEnd::Exited { code } => (FailureKind::Exit, format!("it ended with exit code {code}")),
        ProgramEnd::Signaled { signal } => (FailureKind::Exit, format!("it was ended by signal {signal}")),
        ProgramEnd::Wall => {
            let why = match order.short_of_time {
                Some(_) => ", which is all that its budget had left",
                None => "",
            };
            let limit = minutes(order.limits.wall_ms);
            (FailureKind::Stopped, format!("it ran for longer than {limit}{why}"))
        }
        ProgramEnd::Stall => {
            (FailureKind::Stopped, format!("no output or file change for {}", minutes(order.limits.stall_ms)))
        }
        ProgramEnd::Memory => (FailureKind::Stopped, "it used more memory than it may".to_owned()),
        ProgramEnd::Asked => (FailureKind::Stopped, "it was stopped".to_owned()),
        // That is this task's alone: another one of the same agent may be shorter.
        ProgramEnd::NotStarted { error } if error == rustix::io::Errno::TOOBIG.raw_os_error() => (
            FailureKind::Decision,
            "its task is too long for an argument of a program: shorten it, or give the agent {prompt_file}"
                .to_owned(),
        ),
        ProgramEnd::NotStarted { error } => (
            FailureKind::Start,
            format!("its program could not be started: {}", std::io::Error::from_raw_os_error(error)),
        ),
    };
    Some(AttemptFailure::new(kind, reason))
}

/// How an agent ended, for its report.
fn sentence(outcome: &JobOutcome) -> String {
    let how = match &outcome.done {
        JobResult::Agent(done) => match done.end {
            ProgramEnd::Exited { code } => format!("It ended with exit code {code}"),
            ProgramEnd::Signaled { signal } => format!("It was ended by signal {signal}"),
            ProgramEnd::Wall => "It was stopped: it ran for too long".to_owned(),
            ProgramEnd::Stall => "It was stopped: it showed no output and changed no file".to_owned(),
            ProgramEnd::Memory => "It was stopped: it used too much memory".to_owned(),
            ProgramEnd::Asked => "It was stopped".to_owned(),
            ProgramEnd::NotStarted { .. } => "Its program could not be started".to_owned(),
        },
        _ => return "It was not run.".to_owned(),
    };
    let seconds = (outcome.ended_at - outcome.started_at).max(0);
    let mut text = format!("{how}, after {seconds} s.");
    if let JobResult::Agent(done) = &outcome.done {
        for violation in done.violations.iter().take(20) {
            text.push_str(&format!(" Refused: {violation}."));
        }
        if done.changed_left_out > 0 {
            text.push_str(&format!(" {} more files changed than are listed.", done.changed_left_out));
        }
        for warning in done.warnings.iter().take(20) {
            text.push_str(&format!(" Noted: {warning}."));
        }
    }
    text
}
