//! The board: what every protocol has in common, as the engine uses it.
//!
//! A dialect is a state machine over its own files. The engine asks which tasks may start ([`Board::agenda`]), reports
//! a start ([`Board::claim`]), events of an attempt ([`Board::record`]) and its end ([`Board::settle`]). A dialect
//! writes nothing itself: it reads the files under the lock of the store, and answers with the [`Effects`] it wants.

use std::collections::BTreeMap;

use jiff::{Timestamp, Zoned};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::claim::ReportClaim;
use crate::finding::Finding;
use crate::names::{Actor, AgentName, TaskId};
use crate::store::tree::{RepoTree, RepoTreeError};
use crate::store::{BoardStoreError, Effects};

/// One protocol's files.
pub trait Board: std::fmt::Debug + Send + Sync {
    /// The protocol's name, as it is typed.
    fn protocol(&self) -> &'static str;

    /// The folder of its files, where it has one. Agents see it as it is, and can't write it.
    fn folder(&self) -> Option<&'static str>;

    /// The board's own files, as globs. A change of only these files needs no new proof.
    fn owned_globs(&self) -> Vec<String>;

    /// Whether git carries the board from clone to clone. Such a board is updated from the upstream before it is read.
    fn is_shared(&self) -> bool {
        false
    }

    /// The field in which a person adds files that an agent may change, for a sentence: "add it to …".
    fn scope_field(&self) -> &'static str;

    /// The folder of the repository's own profiles, where the protocol has one.
    fn profiles_folder(&self) -> Option<&'static str>;

    /// The tasks that may start now, those that wait and why, and the files that could not be read.
    fn agenda(&self, tree: &RepoTree) -> Result<BoardAgenda, BoardError>;

    /// The brief for an agent that starts on a task.
    fn brief(&self, tree: &RepoTree, task: &TaskId) -> Result<TaskBrief, BoardError>;

    /// Whether work on a task is still wanted: a person may cancel it during a run.
    fn is_wanted(&self, tree: &RepoTree, task: &TaskId) -> Result<bool, BoardError>;

    /// Whether the board says that a task is done. An archived task counts as done.
    fn is_done(&self, tree: &RepoTree, task: &TaskId) -> Result<bool, BoardError>;

    /// The brief for an agent that judges the work of another. Its report is a verdict.
    fn audit_brief(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        auditor: &AgentName,
    ) -> Result<TaskBrief, BoardError>;

    /// An agent starts on a task.
    fn claim(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        claimant: &Claimant<'_>,
        now: &Zoned,
    ) -> Result<Effects, BoardError>;

    /// Receives a report on work that was done outside of a run. Returns why the builder can't go on, if the report
    /// says so.
    fn receive(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        now: &Zoned,
    ) -> Result<(Option<String>, Effects), BoardError>;

    /// Records an event of a running attempt.
    fn record(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        event: &BoardEvent,
        now: &Zoned,
    ) -> Result<Effects, BoardError>;

    /// The report on an attempt: the agent's claims, corrected by what was observed.
    fn report(&self, claim: Option<&ReportClaim>, seen: &ObservedAttempt<'_>) -> CorrectedReport;

    /// Records the result of a Definition of Done. The same result twice is recorded once.
    fn record_proof(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        evidence: &ProofEvidence,
        now: &Zoned,
    ) -> Result<(ProofDecision, Effects), BoardError>;

    /// Records the end of an attempt. A second call changes nothing.
    fn settle(
        &self,
        tree: &RepoTree,
        task: &TaskId,
        outcome: &BoardOutcome,
        now: &Zoned,
    ) -> Result<Effects, BoardError>;
}

/// Who starts on a task.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub agent: &'a AgentName,
    /// The name of the attempt, unique in this clone.
    pub session: &'a str,
}

/// The tasks of a board by what can be done about them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoardAgenda {
    /// The most urgent first.
    pub ready: Vec<ReadyTask>,
    pub waiting: Vec<WaitingTask>,
    /// Tasks that an attempt has reported as ready. They belong to that attempt as long as it exists.
    pub reported: Vec<TaskId>,
    /// Tasks that other clones or people have, with what can be done about them.
    pub elsewhere: Vec<WaitingTask>,
    /// What the tasks that may start build on.
    pub dependencies: BTreeMap<TaskId, Vec<TaskId>>,
    pub findings: Vec<Finding>,
}

impl BoardAgenda {
    /// Notes what a task builds on.
    pub(crate) fn note_dependencies(&mut self, task: &TaskId, depends_on: &[String]) {
        let known: Vec<TaskId> = depends_on.iter().filter_map(|id| TaskId::parse(id).ok()).collect();
        if !known.is_empty() {
            self.dependencies.insert(task.clone(), known);
        }
    }
}

/// A task that may start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadyTask {
    pub task: TaskId,
    pub title: String,
    pub role: TaskRole,
    pub agent: AgentName,
    /// The file the task is written in, relative to the repository.
    pub file: String,
    pub scope: TaskScope,
    /// The Definition of Done that it must pass.
    pub profile: String,
    /// Zero is the most urgent.
    pub urgency: u8,
    /// Whether its builder has left a report on it outside of a run.
    pub handed_in: bool,
    /// Whether a report alone, without changed files, can complete it.
    pub may_change_nothing: bool,
    /// The name of the task's own branch, where the protocol gives one.
    pub branch: Option<String>,
}

/// What a start is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskRole {
    Builder,
    /// The work was done outside of a run and reported as ready; it is to be judged.
    Reviewer,
}

/// The files that may change: `touch` but never `keep`. Of `must`, at least one has to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TaskScope {
    pub must: Vec<String>,
    pub touch: Vec<String>,
    pub keep: Vec<String>,
    #[serde(skip_serializing_if = "ScopeAuthor::is_person")]
    pub author: ScopeAuthor,
}

/// Who wrote a scope. One that an agent wrote opens no file that tools obey: that is a person's decision.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeAuthor {
    #[default]
    Person,
    Agent,
}

impl ScopeAuthor {
    /// The author of a scope that an actor writes.
    pub fn of(actor: &Actor) -> Self {
        match actor {
            Actor::Agent(_) => Self::Agent,
            Actor::Orchestrator | Actor::Human(_) => Self::Person,
        }
    }

    pub fn is_person(&self) -> bool {
        *self == Self::Person
    }
}

/// A task that can't start yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitingTask {
    pub task: TaskId,
    /// A sentence for a person.
    pub why: String,
}

/// What happens while an agent works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoardEvent {
    Heartbeat,
}

/// The brief of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskBrief {
    /// The task, as it is written.
    pub task: String,
    /// The rules by which this agent works here.
    pub contract: Option<String>,
    /// How the agent has to write its report.
    pub report: String,
    /// The builder's report, for the auditor.
    pub reported: Option<String>,
}

/// What the supervisor observed of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct ObservedAttempt<'a> {
    pub task: &'a TaskId,
    pub agent: &'a AgentName,
    /// Which attempt at the task it was.
    pub attempt: u64,
    pub started: Timestamp,
    pub finished: Timestamp,
    /// Every file that differs.
    pub files: &'a [String],
    /// How it ended, in a sentence.
    pub ended: &'a str,
    /// The usage that the agent reports.
    pub used: Option<RecordedUsage>,
}

/// Usage that an agent reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RecordedUsage {
    /// All tokens; input and output tokens apart, where the agent tells them.
    pub tokens: u64,
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    /// In millionths of the unit people count in.
    #[serde(rename = "cost", serialize_with = "as_amount")]
    pub cost_micros: Option<u64>,
}

fn as_amount<S: serde::Serializer>(micros: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    micros.map(|micros| micros as f64 / 1_000_000.0).serialize(serializer)
}

impl RecordedUsage {
    /// The cost, as people write it.
    pub fn cost(&self) -> Option<String> {
        let micros = self.cost_micros?;
        let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let short = text.trim_end_matches('0');
        // Two digits at least: it is money.
        Some(text[..short.len().max(text.len() - 4)].to_owned())
    }
}

/// A report, as the board keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorrectedReport {
    pub text: String,
    /// Why the agent can't go on, if it says so.
    pub blocked: Option<String>,
}

/// A board's decision about a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofDecision {
    /// Nothing is in the way of landing the work.
    Accepted,
    /// The Definition of Done does not hold.
    Failed,
    /// A person has to decide something first.
    Waits { why: String },
}

/// How an attempt ended, for the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoardOutcome {
    /// The agent reports its work as ready. `report` is the text of its report as it is to be kept.
    Reported { report: String },
    /// The agent says that it can't go on, or its attempts are used up.
    Blocked { report: Option<String>, reason: String },
    /// An auditor returned the work to its builder.
    Returned { reason: String },
    /// It is verified and landed.
    Landed { commit: String },
    /// The task was canceled.
    Canceled { reason: String },
    /// The task was given up, and is to be tried again.
    Reopened { reason: String },
}

/// The observations of a run of a Definition of Done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProofEvidence {
    pub profile: String,
    pub passed: bool,
    /// One object for each command, as the artifact holds it.
    pub commands: Vec<Value>,
    pub notes: Vec<String>,
    /// Commit, tree, profile's hash, attestation and everything else that binds the result to the proved commit.
    pub bound_to: Map<String, Value>,
}

/// Why a board can't do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    #[error(transparent)]
    Store(#[from] BoardStoreError),
    #[error(transparent)]
    Tree(#[from] RepoTreeError),
    /// There is no board, or the file that makes it one can't be understood.
    #[error(transparent)]
    Marker(Box<dyn std::error::Error + Send + Sync>),
    #[error("there is no board here")]
    NoBoard,
    #[error("there is no task {id} here")]
    NoSuchTask { id: String },
    #[error("{} tasks have the id {id}: {}", .files.len(), .files.join(", "))]
    Ambiguous { id: String, files: Vec<String> },
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unreadable(Vec<Finding>),
    #[error("{reason}")]
    Refused { reason: String, hint: Option<String> },
    /// Its commit could not be made; nothing was changed.
    #[error("{reason}")]
    Unshared { reason: String },
    /// The upstream, which must take the change, does not answer at the moment; nothing was changed.
    #[error("{reason}")]
    Unreachable { reason: String },
    /// A person has to merge this clone and the upstream first; nothing was changed.
    #[error("{reason}")]
    Apart { reason: String },
}

impl BoardError {
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        BoardError::Refused { reason: reason.into(), hint: None }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        match self {
            BoardError::Refused { reason, .. } => BoardError::Refused { reason, hint: Some(hint.into()) },
            other => other,
        }
    }
}
