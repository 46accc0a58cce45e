//! What is known about attempts, durably, and shared by every supervisor of a repository.
//!
//! A store answers one question without fail: whose task is it? Each write by an owner names its lease, task,
//! epoch and term; a lease that was lost changes nothing, and its owner is told so ([`AttemptStoreError::Fenced`]).
//! Whether the machine stops just before or just after a write, the next reader sees all of it or nothing. A write
//! that returned is durable. One that failed with [`AttemptStoreError::Unusable`], or was dropped before it returned, may
//! have happened or not: look again.
//!
//! The fence is the term and not the time. A lease whose time is up, and that no supervisor took, still counts: the
//! work done under it is still the only one. That it is up only tells others that they may take it.
//!
//! The engine is written against this trait. [`sqlite`] is the one there is.

pub mod sqlite;

use std::future::Future;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::{Attempt, AttemptEnd, Epoch, HumanDecision, Lease, Phase, TaskKey, Term, UsageTotals};
use crate::clock::BootInstant;

/// A place where attempts are kept.
pub trait AttemptStore: Send + Sync + std::fmt::Debug + 'static {
    /// The store's own time, by which leases end.
    fn now(&self) -> impl Future<Output = Result<BootInstant, AttemptStoreError>> + Send;

    /// A supervisor takes charge, and gets a term that none had before.
    fn enter(
        &self,
        owner: &SupervisorProcess,
    ) -> impl Future<Output = Result<Term, AttemptStoreError>> + Send;

    /// A supervisor goes. What it still held is its own until another one takes it, which is possible at once; it gets
    /// no more, and its leases are not renewed any more.
    fn leave(&self, term: Term) -> impl Future<Output = Result<(), AttemptStoreError>> + Send;

    /// The supervisors that are or were in charge under these terms, the first one first.
    fn owners(
        &self,
    ) -> impl Future<Output = Result<Vec<(Term, SupervisorProcess)>, AttemptStoreError>> + Send;

    /// A new attempt at a task, if none is open and the last one is the one the claimer knows of. The epoch is one
    /// more than any before, here or elsewhere.
    fn claim(
        &self,
        claim: &ClaimRequest<'_>,
        term: Term,
        ttl: Duration,
    ) -> impl Future<Output = Result<ClaimResult, AttemptStoreError>> + Send;

    /// Puts the end of every lease of a term off. Returns those it still has, by task.
    fn renew(
        &self,
        term: Term,
        ttl: Duration,
    ) -> impl Future<Output = Result<Vec<Lease>, AttemptStoreError>> + Send;

    /// Takes an open attempt over from another owner: the same epoch, a new term. `None` if it is not as it was
    /// seen any more. That the other is dead, or its time up, is for the caller to know.
    fn adopt(
        &self,
        seen: &Lease,
        term: Term,
        ttl: Duration,
    ) -> impl Future<Output = Result<Option<Lease>, AttemptStoreError>> + Send;

    /// Records the next phase of an attempt, and that it happened. [`Phase::Over`] ends it and its lease. Which
    /// phase may follow which is for the caller to know.
    fn advance(
        &self,
        lease: &Lease,
        phase: &Phase,
    ) -> impl Future<Output = Result<(), AttemptStoreError>> + Send;

    /// Ends an attempt and its lease, and records what its agents used: both or neither.
    fn end(
        &self,
        lease: &Lease,
        ending: &AttemptEnd,
        spent: UsageTotals,
    ) -> impl Future<Output = Result<(), AttemptStoreError>> + Send;

    /// Records something that is worth knowing and changes no phase.
    fn note(&self, lease: &Lease, text: &str) -> impl Future<Output = Result<(), AttemptStoreError>> + Send;

    /// Whether a lease still counts. By the time the answer is there it may not, unless the caller keeps others out.
    fn holds(&self, lease: &Lease) -> impl Future<Output = Result<bool, AttemptStoreError>> + Send;

    /// Every attempt that is not over, the oldest first.
    fn open(&self) -> impl Future<Output = Result<Vec<Attempt>, AttemptStoreError>> + Send;

    /// All attempts at a task, the first one first.
    fn attempts(
        &self,
        task: &TaskKey,
    ) -> impl Future<Output = Result<Vec<Attempt>, AttemptStoreError>> + Send;

    /// The last attempt at each task, by task.
    fn latest(&self) -> impl Future<Output = Result<Vec<Attempt>, AttemptStoreError>> + Send;

    /// What happened after an event, in the order in which it did; at most so many. Numbers go up by one: a caller
    /// that asks again from the last one misses nothing, but what was pruned.
    fn events(
        &self,
        after: u64,
        most: usize,
    ) -> impl Future<Output = Result<Vec<StoreEvent>, AttemptStoreError>> + Send;

    /// Asks for the end of a task's open attempt; `false` if there is none. Once asked for, it stays so.
    fn ask_to_cancel(&self, task: &TaskKey) -> impl Future<Output = Result<bool, AttemptStoreError>> + Send;

    /// A person decides the outcome of an attempt that an auditor left open; `false` if it does not wait for that.
    fn answer(
        &self,
        task: &TaskKey,
        epoch: Epoch,
        answer: &HumanDecision,
    ) -> impl Future<Output = Result<bool, AttemptStoreError>> + Send;

    /// What was used for a task since it was last forgiven, but what was pruned.
    fn spent(&self, task: &TaskKey) -> impl Future<Output = Result<UsageTotals, AttemptStoreError>> + Send;

    /// Forgets that a task failed: its attempts so far, the open one with them, do not count any more.
    fn forgive(&self, task: &TaskKey) -> impl Future<Output = Result<(), AttemptStoreError>> + Send;

    /// Attempts at a task up to this one do not count any more.
    fn forgiven(&self, task: &TaskKey) -> impl Future<Output = Result<Epoch, AttemptStoreError>> + Send;

    /// How many of a task's attempts failed by the agent's fault since it was last forgiven, pruned ones with them.
    fn failures(&self, task: &TaskKey) -> impl Future<Output = Result<u32, AttemptStoreError>> + Send;

    /// What every supervisor is asked to heed.
    fn mode(&self) -> impl Future<Output = Result<QueueMode, AttemptStoreError>> + Send;

    fn set_mode(&self, mode: QueueMode) -> impl Future<Output = Result<(), AttemptStoreError>> + Send;

    /// A number that is another one after every change by another process. Cheap enough to ask often. It may be
    /// another one without a change, too.
    fn version(&self) -> impl Future<Output = Result<u64, AttemptStoreError>> + Send;

    /// Forgets attempts that are over and older than this (seconds since 1970), but the last of each task, and
    /// what happened to them; also supervisors that left before it. Returns how many attempts.
    fn prune(&self, before: i64) -> impl Future<Output = Result<u64, AttemptStoreError>> + Send;
}

/// A supervisor, so that another can tell whether it still lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorProcess {
    pub host: String,
    /// The boot it runs in: after the next one it is dead, with any process id.
    pub boot: String,
    pub pid: u32,
}

/// What is to be claimed.
#[derive(Debug, Clone, Copy)]
pub struct ClaimRequest<'a> {
    pub task: &'a TaskKey,
    pub title: &'a str,
    pub agent: &'a str,
    /// The last attempt at it that the claimer knows of. Another one since, and the claim is refused: what was
    /// decided over is not so any more.
    pub after: Option<Epoch>,
    /// Epochs that are known from elsewhere: a first attempt comes after them. A store may have been thrown away.
    pub beyond: Epoch,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimResult {
    Held(Lease),
    /// Another attempt has it, or had it meanwhile.
    Taken,
}

/// Something that happened to an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoreEvent {
    pub number: u64,
    pub task: TaskKey,
    pub epoch: Epoch,
    pub term: Term,
    /// Seconds since 1970.
    pub at: i64,
    /// The name of a phase, or `note`, `adopted`, `cancel`, `answer`.
    pub what: String,
    /// The phase itself as JSON, or a text.
    pub detail: String,
}

/// How supervisors are to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    #[default]
    Running,
    /// Nothing new is started; what runs goes on.
    Paused,
    /// Nothing new is started, and supervisors go when what runs has ended.
    Draining,
}

impl QueueMode {
    /// Its name, as it is shown and kept.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Draining => "draining",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AttemptStoreError {
    /// The caller has lost the lease. It must stop what it does for it.
    #[error("attempt {} at {} belongs to another supervisor now", .0.epoch, .0.task)]
    Fenced(Lease),
    /// The caller never entered, or has left.
    #[error("term {0} is not in charge, and can't take a task on")]
    NotInCharge(Term),
    #[error("the store {path} was made by a newer agency (schema {found}, this one knows {known})")]
    Newer { path: String, found: i64, known: i64 },
    /// Another program writes, and does not come to an end.
    #[error(
        "another program has kept the store {path} to itself for half a minute; an agency that was stopped (Ctrl-Z) does that until it goes on or is ended"
    )]
    Busy { path: String },
    #[error("the store {path} can't be used")]
    Unusable { path: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// Not what was written there, or not all of it.
    #[error("the store {path} is damaged: {what}")]
    Damaged { path: String, what: String },
    #[error("the store has something in it that this program does not understand: {what}")]
    Unexpected { what: String },
}
