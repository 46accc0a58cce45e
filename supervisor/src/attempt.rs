//! One attempt at a task: what is recorded of it, and how it may end.
//!
//! ```text
//! Claimed   it has a lease
//! Started   its agent may run
//! Ended     what the agent did is known, kept, and reported
//! Auditing  another agent looks at it
//! Undecided that one leaves it to a person
//! Audited   it may go on
//! Merged    it is on the branch, as a commit that no reference shows yet
//! Proved    the Definition of Done was tried on exactly that commit
//! Landed    the branch has it
//! Over      the board knows, the lease is given back
//! ```
//!
//! A phase is what is certain. What was done after it and not recorded is seen from the outside when the attempt
//! is taken up again (`driver`), so a crash between any two costs nothing but a second look.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A task, of any protocol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    pub protocol: String,
    pub id: String,
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.protocol, self.id)
    }
}

/// Counts the attempts at a task, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// Counts the supervisors that ever took charge in a repository. Every one gets a term of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Term(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The right to work on a task. Every write names it, and one that lost it changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    pub task: TaskKey,
    pub epoch: Epoch,
    pub term: Term,
}

/// What is recorded of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub task: TaskKey,
    pub epoch: Epoch,
    pub title: String,
    pub agent: String,
    pub phase: Phase,
    /// The supervisor that holds it, and until when; `None` once it is over.
    pub held: Option<LeaseHolder>,
    /// A user asked for its end.
    pub cancel: bool,
    /// What a person said where the auditor left it to them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<HumanDecision>,
    /// What its agents used, once it is over.
    #[serde(default, skip_serializing_if = "UsageTotals::is_nothing")]
    pub spent: UsageTotals,
    /// When it was claimed, and when something was last recorded of it: seconds since 1970, for people.
    pub claimed_at: i64,
    pub recorded_at: i64,
}

impl Attempt {
    pub fn lease(&self) -> Option<Lease> {
        let term = self.held.as_ref()?.term;
        Some(Lease { task: self.task.clone(), epoch: self.epoch, term })
    }
}

/// The supervisor that holds an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    pub term: Term,
    /// By the store's clock.
    pub until: crate::clock::BootInstant,
}

/// What is certain about an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    Claimed,
    Started,
    Ended(WorkResult),
    Auditing(RunningAudit),
    Undecided { work: AgentWork, audit: Audit, why: String },
    Audited { work: AgentWork, audit: Audit },
    Merged(Merge),
    Proved { merge: Merge, passed: bool },
    Landed { commit: String },
    Over(AttemptEnd),
}

impl Phase {
    /// Its name, as it is shown.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Started => "started",
            Self::Ended(_) => "ended",
            Self::Auditing(_) => "auditing",
            Self::Undecided { .. } => "undecided",
            Self::Audited { .. } => "audited",
            Self::Merged(_) => "merged",
            Self::Proved { .. } => "proved",
            Self::Landed { .. } => "landed",
            Self::Over(_) => "over",
        }
    }

    /// The work that is on its way to a branch.
    pub const fn work(&self) -> Option<&AgentWork> {
        match self {
            Self::Ended(WorkResult::Work(work))
            | Self::Auditing(RunningAudit { work, .. })
            | Self::Undecided { work, .. }
            | Self::Audited { work, .. }
            | Self::Merged(Merge { work, .. })
            | Self::Proved { merge: Merge { work, .. }, .. } => Some(work),
            Self::Claimed | Self::Started | Self::Ended(_) | Self::Landed { .. } | Self::Over(_) => None,
        }
    }

    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Over(_))
    }
}

/// What an agent left, once every process of it is dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ended", rename_all = "snake_case")]
pub enum WorkResult {
    /// A commit.
    Work(AgentWork),
    /// It says that it can't go on.
    Blocked { reason: String },
    /// It did not do what it should have; another attempt may.
    Failed { failure: AttemptFailure },
    /// It could not work, and says why.
    Parked(ParkDetails),
    /// A user asked for its end.
    Canceled,
}

/// What an agent made, and what that is compared with: the branch as it was when it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentWork {
    pub base: String,
    pub candidate: String,
}

impl AgentWork {
    /// Whether the work was done outside, and is on the branch already.
    pub fn is_already_landed(&self) -> bool {
        self.base == self.candidate
    }
}

/// An auditor at work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningAudit {
    pub work: AgentWork,
    pub audit: Audit,
    /// How many audits before this one came to no verdict, and why the last of them did not.
    pub unheard: u32,
    pub why: Option<String>,
    /// How often in a row the auditor could not work.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub put_off: u32,
}

/// Who judged the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    pub auditor: String,
    /// Counts the audits of an attempt.
    pub number: u32,
    /// A person who said it instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<HumanDecision>,
}

impl Audit {
    /// The name of its job, within the attempt.
    pub fn job_name(&self) -> String {
        format!("audit-{}", self.number)
    }
}

/// What a person says about work that an auditor left to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HumanDecision {
    pub pass: bool,
    pub person: String,
    pub reason: String,
}

/// What agents used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    /// How long they were at work, in milliseconds.
    pub time_ms: u64,
    /// What they say they used; zero where they say nothing.
    pub tokens: u64,
    /// In millionths of the unit people count in.
    pub cost_micros: u64,
}

impl UsageTotals {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::AddAssign for UsageTotals {
    fn add_assign(&mut self, more: Self) {
        self.time_ms = self.time_ms.saturating_add(more.time_ms);
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost_micros = self.cost_micros.saturating_add(more.cost_micros);
    }
}

impl std::iter::Sum for UsageTotals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

/// The work on a branch, as a commit that nothing names yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merge {
    #[serde(flatten)]
    pub work: AgentWork,
    /// The audit that let it pass, where there is an auditor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
    /// Where the branch was; `None` where the task has a branch of its own that is not there yet.
    pub onto: Option<String>,
    /// `None` when the branch has all of it already.
    pub commit: Option<String>,
    /// Counts the merges of an attempt: each is proved by itself.
    pub number: u32,
    /// How many proofs before this one were killed, one after the other.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Merge {
    /// The commit that is to be proved.
    pub fn subject(&self) -> &str {
        self.commit.as_ref().or(self.onto.as_ref()).unwrap_or(&self.work.candidate)
    }

    /// The name of its proof, within the attempt.
    pub fn proof_name(&self) -> String {
        format!("verify-{}", self.number)
    }
}

/// Why an agent could not work. The task is not at fault: the attempt does not count, and the agent waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkDetails {
    pub want: ParkReason,
    /// A sentence a person understands.
    pub reason: String,
    /// When it may be tried again: seconds since 1970. `None` for a person to say.
    pub until: Option<i64>,
}

/// What an agent lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParkReason {
    /// It has used up what it may use for now.
    Quota,
    /// Its model can't be reached, or answers nothing that makes sense.
    Model,
    /// No user is logged in, a key is refused, or the agent wants to be asked something.
    Person,
}

/// Why an attempt did not do what it should have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptFailure {
    pub kind: FailureKind,
    /// A sentence a person understands.
    pub reason: String,
    /// The commit whose work did not do, where there is one: the next attempt goes on from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<AgentWork>,
    /// Where the output of the command that failed is, on this machine. It is no part of the reason: a board that is
    /// committed does not say where a repository lies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
}

impl AttemptFailure {
    pub fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), work: None, log: None }
    }

    pub fn with_work(self, work: &AgentWork) -> Self {
        Self { work: Some(work.clone()), ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It ended with a code other than zero, or by a signal.
    Exit,
    /// It ran for too long, was silent for too long, or used too much memory.
    Stopped,
    /// It changed what it may not.
    Scope,
    /// It changed nothing of what it must.
    Nothing,
    /// The auditor found something.
    Audit,
    /// The Definition of Done does not hold.
    Verify,
    /// The checks could not be run: the profile can't be resolved, or its setup failed.
    Checks,
    /// People changed the same lines meanwhile.
    Conflict,
    /// It could not be started: a program or a control is missing.
    Start,
    /// Its workspace could not be prepared.
    Setup,
    /// What it did could not be read or kept.
    Harvest,
    /// A person has to decide something first.
    Decision,
}

impl FailureKind {
    /// Whether trying again may help.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::Exit
            | Self::Stopped
            | Self::Nothing
            | Self::Audit
            | Self::Verify
            | Self::Conflict
            | Self::Harvest => true,
            // The same scope refuses the same work, and what is missing stays missing.
            Self::Scope | Self::Checks | Self::Start | Self::Setup | Self::Decision => false,
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum AttemptEnd {
    /// Landed, and the board knows.
    Done {
        commit: String,
    },
    /// The work is verified and kept, and was not to be landed.
    Kept {
        candidate: String,
    },
    Blocked {
        reason: String,
    },
    Failed {
        failure: AttemptFailure,
        /// Why there is no other attempt, where the failure alone does not say it; `None` if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given_up: Option<String>,
    },
    /// The machine's fault, not the agent's: it does not count.
    Lost {
        reason: String,
    },
    /// The agent could not work: it does not count either.
    Parked(ParkDetails),
    Canceled,
}

impl AttemptEnd {
    /// A failure after which it is tried again.
    pub const fn failed(failure: AttemptFailure) -> Self {
        Self::Failed { failure, given_up: None }
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Kept { .. } => "kept",
            Self::Blocked { .. } => "blocked",
            Self::Failed { .. } => "failed",
            Self::Lost { .. } => "lost",
            Self::Parked(_) => "parked",
            Self::Canceled => "canceled",
        }
    }
}

#[cfg(test)]
impl Attempt {
    /// A first attempt that no supervisor holds, for tests that look at what differs from it.
    pub(crate) fn sample(id: &str, agent: &str, phase: Phase) -> Self {
        Self {
            task: TaskKey { protocol: "kodingx".into(), id: id.into() },
            epoch: Epoch(1),
            title: "x".into(),
            agent: agent.into(),
            phase,
            held: None,
            cancel: false,
            answer: None,
            spent: UsageTotals::default(),
            claimed_at: 0,
            recorded_at: 0,
        }
    }
}
