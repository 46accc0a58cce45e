//! What every protocol has in common, as the engine sees it.
//!
//! A dialect is a state machine over its own files. The engine asks what may start ([`Board::next`]), says
//! what it started ([`Board::claim`]), what happened meanwhile ([`Board::record`]) and how it ended
//! ([`Board::settle`]). A dialect touches nothing itself: it looks at the files it is shown, under the lock of
//! the store, and answers with the [`Effects`] it wants.

use jiff::{Timestamp, Zoned};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::claim::ReportClaim;
use crate::finding::Finding;
use crate::names::{Actor, AgentName, TaskId};
use crate::store::tree::{Tree, TreeError};
use crate::store::{Effects, StoreError};

/// One protocol's files.
pub trait Board: std::fmt::Debug + Send + Sync {
    /// The protocol's name, as it is typed.
    fn protocol(&self) -> &'static str;

    /// The folder of its files, where it has one. Agents see it as it is, and can't write it.
    fn folder(&self) -> Option<&'static str>;

    /// Everything of the repository that is the board's, as globs: what changes nothing else needs no new proof.
    fn own(&self) -> Vec<String>;

    /// Whether git carries it from clone to clone: it is to be brought up to date before it is read.
    fn is_shared(&self) -> bool {
        false
    }

    /// Where a person adds what an agent may change, for a sentence: "add it to …".
    fn scope_field(&self) -> &'static str;

    /// The folder of the repository's own profiles, where the protocol has one.
    fn profiles(&self) -> Option<&'static str>;

    /// What may start now, what waits and for what, and which files could not be read.
    fn next(&self, tree: &Tree) -> Result<Agenda, BoardError>;

    /// What an agent that starts on a task is told.
    fn brief(&self, tree: &Tree, task: &TaskId) -> Result<Brief, BoardError>;

    /// Whether work on a task is still wanted: a person's word during a run counts.
    fn is_wanted(&self, tree: &Tree, task: &TaskId) -> Result<bool, BoardError>;

    /// Whether the board says that a task is done. One that is archived is nobody's concern any more.
    fn is_done(&self, tree: &Tree, task: &TaskId) -> Result<bool, BoardError>;

    /// What an agent is told that judges the work of another. Its report is a verdict.
    fn audit(&self, tree: &Tree, task: &TaskId, auditor: &AgentName) -> Result<Brief, BoardError>;

    /// An agent starts on a task.
    fn claim(
        &self,
        tree: &Tree,
        task: &TaskId,
        claimant: &Claimant<'_>,
        now: &Zoned,
    ) -> Result<Effects, BoardError>;

    /// Somebody outside has worked on a task and left a report. Says why they can't go on, if the report does.
    fn receive(
        &self,
        tree: &Tree,
        task: &TaskId,
        now: &Zoned,
    ) -> Result<(Option<String>, Effects), BoardError>;

    /// Something happened while it works.
    fn record(&self, tree: &Tree, task: &TaskId, event: &Event, now: &Zoned) -> Result<Effects, BoardError>;

    /// The report on an attempt: what the agent claims, corrected by what was seen.
    fn report(&self, claim: Option<&ReportClaim>, seen: &Seen<'_>) -> Told;

    /// What was found when its Definition of Done was tried. Said twice, it is recorded once.
    fn verified(
        &self,
        tree: &Tree,
        task: &TaskId,
        evidence: &Evidence,
        now: &Zoned,
    ) -> Result<(Judged, Effects), BoardError>;

    /// It came to an end. What is so already needs no change, so this may be said twice.
    fn settle(
        &self,
        tree: &Tree,
        task: &TaskId,
        outcome: &Outcome,
        now: &Zoned,
    ) -> Result<Effects, BoardError>;
}

/// Who starts on a task.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    pub agent: &'a AgentName,
    /// The attempt, by a name that nothing else has in this clone.
    pub session: &'a str,
}

/// What a board has to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agenda {
    /// The most urgent first.
    pub ready: Vec<Start>,
    pub waiting: Vec<Waiting>,
    /// What an attempt has reported as ready: its own matter, as long as there is that attempt.
    pub reported: Vec<TaskId>,
    pub findings: Vec<Finding>,
}

/// A task that may start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Start {
    pub task: TaskId,
    pub title: String,
    pub role: Role,
    pub agent: AgentName,
    /// The file the task is written in, relative to the repository.
    pub file: String,
    pub scope: Scope,
    /// The Definition of Done it is held to.
    pub profile: String,
    /// Zero is the most urgent.
    pub urgency: u8,
    /// Whoever it is for has left a report on it by themselves.
    pub handed_in: bool,
    /// What it says may be all there is to show for it.
    pub may_change_nothing: bool,
    /// What the task's own branch is called, where the protocol says so.
    pub branch: Option<String>,
}

/// What a start is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Builder,
    /// Somebody outside has done and reported it, and says that it is ready; it is to be judged.
    Reviewer,
}

/// What may change: `touch` but never `keep`; of `must`, at least one path has to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Scope {
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
    /// Who acts writes it.
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
pub struct Waiting {
    pub task: TaskId,
    /// A sentence a person understands.
    pub why: String,
}

/// What happens while an agent works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Heartbeat,
}

/// What an auditor says about somebody's work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    pub ruling: Ruling,
    pub findings: Vec<Remark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Ruling {
    Pass,
    /// It goes back to its builder.
    Fail,
    /// A person has to say.
    NeedsReview,
}

impl Ruling {
    pub const ALL: [Self; 3] = [Self::Pass, Self::Fail, Self::NeedsReview];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::NeedsReview => "NEEDS_REVIEW",
        }
    }
}

impl std::fmt::Display for Ruling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// One thing an auditor found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    pub file: Option<String>,
    pub line: Option<u64>,
    pub message: String,
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: {}", self.message),
            (Some(file), None) => write!(f, "{file}: {}", self.message),
            (None, _) => f.write_str(&self.message),
        }
    }
}

/// What an agent is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brief {
    /// The task, as it is written.
    pub task: String,
    /// How this agent is to work here.
    pub contract: Option<String>,
    /// How it is to write its report.
    pub report: String,
    /// What the builder says, for whoever judges it.
    pub reported: Option<String>,
}

/// What was seen of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
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
    /// What it says it used.
    pub used: Option<Used>,
}

/// What an agent says it used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Used {
    /// All of them; those it read and those it wrote, where it tells them apart.
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

impl Used {
    /// The cost, as people write it.
    pub fn cost(&self) -> Option<String> {
        let micros = self.cost_micros?;
        let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        let short = text.trim_end_matches('0');
        // Two digits at least: it is money.
        Some(text[..short.len().max(text.len() - 4)].to_owned())
    }
}

/// A report, as it is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub text: String,
    /// Why the agent can't go on, if it says so.
    pub blocked: Option<String>,
}

/// What a board makes of a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// Nothing is in the way of landing the work.
    Accepted,
    /// The Definition of Done does not hold.
    Failed,
    /// A person has to decide something first.
    Waits { why: String },
}

/// How an attempt ended, for the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The agent reports its work as ready. `report` is the text of its report as it is to be kept.
    Reported { report: String },
    /// The agent says it can't go on, or was given up on.
    Blocked { report: Option<String>, reason: String },
    /// It was judged and goes back to its builder.
    Returned { reason: String },
    /// It is verified and landed.
    Landed { commit: String },
    /// Nobody wants it any more.
    Canceled { reason: String },
    /// It was given up on, and is to be tried again.
    Reopened { reason: String },
}

/// What was observed when a Definition of Done was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    pub profile: String,
    pub passed: bool,
    /// One object for each command, as the artifact holds it.
    pub commands: Vec<Value>,
    pub notes: Vec<String>,
    /// Commit, tree, profile's hash, attestation and whatever else binds the result to what was tried.
    pub bound_to: Map<String, Value>,
}

/// Why a board can't do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tree(#[from] TreeError),
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
    /// What it wants of git could not be done, and nothing of it was.
    #[error("{reason}")]
    Unshared { reason: String },
    /// The upstream that has to know of it does not answer at the moment; nothing was done.
    #[error("{reason}")]
    Unreachable { reason: String },
    /// A person has to bring this clone and the upstream together first; nothing was done.
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
