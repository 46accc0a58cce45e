//! The life of an attempt: from a claim to an end that the board knows.
//!
//! ```text
//! Claim     the store knows whose it is
//! Announce  so does git, and the board says that it is being worked on
//! Order     what the agent is to do is written down, and not changed any more
//! Send      a shim waits for its word
//! Permit    the store knows that the agent may run
//! Begin     it is let go
//! Keep      its commit has a name
//! Report    the board has its report
//! Collect   the store knows what it did
//! Ask       an auditor looks at it, where there is one
//! Heed      the store knows what it said
//! Merge     it is on the branch as it will be, as a commit that no reference shows
//! Prove     the Definition of Done is tried there
//! Attest    the board has the proof
//! Land      the branch has it
//! Settle    the board knows how it ended
//! Release   the lease is given back
//! ```
//!
//! There is no second way for attempts that were interrupted. An attempt is always taken on by looking at it: the
//! phase in the store, and what its jobs left in their folders ([`next`]). Every step may be done again, and
//! changes nothing when it was done already; so it does not matter which supervisor did the last one, or whether that
//! was finished.

mod abandon;
mod audit;
mod begin;
mod close;
mod collect;
mod context;
mod fault_domain;
mod land;
pub mod next;
pub(crate) mod park_policy;
mod slot_guard;
mod starting_point;
mod step;

pub(crate) use collect::impossible;

use std::sync::Arc;

use agency_protocols::board::{Board, BoardError, ReadyTask};
use agency_protocols::store::Effects;
use agency_protocols::store::tree::RepoTree;
use agency_sandbox::policy::ContainerConfig;
use agency_sandbox::policy::IsolationLevel;
use tokio::sync::watch;
use tracing::Instrument;

use crate::agent_slots::SlotGuard;
use crate::attempt::{Attempt, AttemptEnd, Audit, Lease, Merge, ParkDetails, Phase, UsageTotals, WorkResult};
use crate::job::order::{self, JobKind, JobOrder};
use crate::job::outcome::StopReason;
use crate::job::{JobError, JobFolder, JobState};
use crate::run_event::RunEvent;
use crate::store::{AttemptStore, AttemptStoreError};
use crate::trace;
use agency_landing::names::TaskName;
use agency_landing::repository::LandingRepository;
pub use context::RunContext;
pub(crate) use fault_domain::FaultDomain;
use next::{AttemptFacts, NextStep};
pub(crate) use slot_guard::UnattendedAgent;
pub use step::{AttemptStep, StepHook, StepSide};

/// Why an attempt could not be taken further. It stays as it is, and may be taken on again.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    #[error(transparent)]
    Store(#[from] AttemptStoreError),
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Landing(#[from] agency_landing::Error),
    #[error(transparent)]
    Board(#[from] BoardError),
    /// The machine lacked something, and nothing was begun.
    #[error("{reason}")]
    Host { reason: String },
    /// A program that it needs, such as a container engine, did not answer, and nothing was begun.
    #[error("{reason}")]
    Away { reason: String },
    #[error("{what}")]
    Unexpected { what: String },
}

/// Where an attempt has come to when nothing more can be done about it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutcomeSoFar {
    Over(AttemptEnd),
    /// Something of a person's is in the way; what, in a sentence.
    Waits(String),
    /// The agent that is to judge it can't work now.
    Parked(ParkDetails),
    /// It was asked to stop, and can be taken on again.
    Interrupted,
}

/// What those in charge want of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverSignal {
    GoOn,
    /// The task is not wanted any more.
    Cancel,
    /// We are to end: what it runs is stopped, and the attempt does not count.
    Stop,
}

/// One attempt, being taken on.
#[derive(Debug)]
pub(crate) struct AttemptDriver<'a, S> {
    pub(crate) context: &'a RunContext<S>,
    pub(crate) lease: Lease,
    pub(crate) task: TaskName,
    pub(crate) attempt: Attempt,
    /// What the board says of it; `None` if it does not offer it any more.
    pub(crate) start: Option<ReadyTask>,
    pub(crate) wanted: watch::Receiver<DriverSignal>,
    /// A person had taken it off the board before it was taken on.
    pub(crate) unwanted: bool,
    /// Its lease in git, once it was looked at.
    pub(crate) held: Option<agency_landing::lease::GitLease>,
    /// Its agent's place, or its auditor's, while one of them is at work.
    pub(crate) slot: Option<SlotGuard>,
}

/// How far an attempt was taken, and who stays at work on it.
pub(crate) type DriveResult = (Result<OutcomeSoFar, DriveError>, Option<UnattendedAgent>);

/// Whether an attempt is on its way to a branch. If its end is certain, the board is told of it in any case.
fn may_land(phase: &Phase) -> bool {
    match phase {
        Phase::Claimed | Phase::Landed { .. } | Phase::Over(_) => false,
        Phase::Ended(ended) => matches!(ended, WorkResult::Work(_)),
        Phase::Proved { passed, .. } => *passed,
        Phase::Started
        | Phase::Auditing(_)
        | Phase::Undecided { .. }
        | Phase::Audited { .. }
        | Phase::Merged(_) => true,
    }
}

/// Why an attempt ends that never began: its task went meanwhile, or another clone took it.
const NOT_OFFERED: &str = "the board does not offer it any more";

pub(crate) fn unexpected(what: &str) -> DriveError {
    DriveError::Unexpected { what: what.to_owned() }
}

impl<S: AttemptStore> AttemptDriver<'_, S> {
    async fn run(&mut self) -> Result<OutcomeSoFar, DriveError> {
        self.take_over().await?;
        loop {
            let (seen, job) = (self.look()?, self.current_place());
            let next = next::next(&self.attempt.phase, &seen);
            self.take_place(&next);
            tracing::debug!(phase = self.attempt.phase.name(), ?next, "looked");
            match next {
                NextStep::Begin => {
                    if let Some(reason) = self.begin().await? {
                        return self.end(AttemptEnd::Lost { reason }).await.map(OutcomeSoFar::Over);
                    }
                }
                NextStep::Send => self.send_again().await?,
                NextStep::Await => self.wait().await?,
                NextStep::TakeBack { reason, host_fault } => {
                    self.current_place().reset()?;
                    return Err(if host_fault {
                        DriveError::Host { reason }
                    } else {
                        DriveError::Away { reason }
                    });
                }
                NextStep::Collect => {
                    self.collect().await?;
                    trace::record_job(&job, seen.job.as_ref());
                }
                NextStep::Audit => {
                    trace::record_job(&job, seen.job.as_ref());
                    self.audit().await?;
                }
                NextStep::Ask => {
                    if let Some(rest) = self.start_auditor().await? {
                        return Ok(rest);
                    }
                }
                NextStep::Heed => {
                    let rest = self.take_verdict().await?;
                    trace::record_job(&job, seen.job.as_ref());
                    if let Some(rest) = rest {
                        return Ok(rest);
                    }
                }
                NextStep::Decide => self.decide().await?,
                NextStep::Leave { why } => {
                    return Ok(OutcomeSoFar::Waits(format!(
                        "{why}; `agency decide` says what becomes of it"
                    )));
                }
                NextStep::GiveUp { reason } => {
                    trace::record_job(&job, seen.job.as_ref());
                    return self.end(AttemptEnd::Lost { reason }).await.map(OutcomeSoFar::Over);
                }
                NextStep::Merge => {
                    trace::record_job(&job, seen.job.as_ref());
                    self.merge().await?;
                }
                NextStep::Prove => self.prove().await?,
                NextStep::Attest => {
                    self.attest().await?;
                    trace::record_job(&job, seen.job.as_ref());
                }
                NextStep::Land => {
                    if let Some(rest) = self.land().await? {
                        return Ok(rest);
                    }
                }
                NextStep::Settle => return self.settle().await.map(OutcomeSoFar::Over),
                NextStep::Nothing(ending) => return Ok(OutcomeSoFar::Over(ending)),
            }
            // A request to stop wants nothing new to be begun.
            if *self.wanted.borrow() == DriverSignal::Stop && !self.is_at_work()? {
                return Ok(OutcomeSoFar::Interrupted);
            }
        }
    }

    /// Fences every earlier owner of an attempt that was begun, and asks whether a person took its task off the board.
    async fn take_over(&mut self) -> Result<(), DriveError> {
        // An owner before us may sleep in the middle of landing it. From here on it can't.
        if !matches!(self.attempt.phase, Phase::Claimed | Phase::Over(_)) {
            match self.hold().await {
                // It was given back by ourselves, and the store could not be told any more. What is left to do is to
                // tell it; to land, it would have to be held.
                Err(error) if error.is_fenced() && self.context.store.holds(&self.lease).await? => {}
                held => drop(held?),
            }
        }
        if may_land(&self.attempt.phase) {
            self.unwanted = !self.context.is_wanted(&self.attempt.task).await?;
        }
        Ok(())
    }

    fn is_at_work(&self) -> Result<bool, DriveError> {
        Ok(matches!(self.look()?.job, Some(JobState::Alive)))
    }

    /// What can be told from outside.
    fn look(&self) -> Result<AttemptFacts, DriveError> {
        let job = match &self.attempt.phase {
            Phase::Started => Some(self.agent_place().state()?),
            Phase::Auditing(auditing) => Some(self.audit_place(&auditing.audit).state()?),
            Phase::Merged(merge) => Some(self.proof_place(merge).state()?),
            _ => None,
        };
        Ok(AttemptFacts {
            job,
            canceled: self.is_unwanted(),
            audited: self.context.settings.auditor.is_some(),
            answered: self.attempt.answer.is_some(),
        })
    }

    pub(crate) fn is_unwanted(&self) -> bool {
        self.unwanted || *self.wanted.borrow() == DriverSignal::Cancel
    }

    fn agent_place(&self) -> JobFolder {
        JobFolder::new(self.context.records(&self.attempt).join("agent"))
    }

    fn audit_place(&self, audit: &Audit) -> JobFolder {
        JobFolder::new(self.context.records(&self.attempt).join(audit.job_name()))
    }

    fn proof_place(&self, merge: &Merge) -> JobFolder {
        JobFolder::new(self.context.records(&self.attempt).join(merge.proof_name()))
    }

    fn current_place(&self) -> JobFolder {
        match &self.attempt.phase {
            Phase::Auditing(auditing) => self.audit_place(&auditing.audit),
            Phase::Merged(merge) => self.proof_place(merge),
            _ => self.agent_place(),
        }
    }

    /// An order for a sandbox of this attempt.
    fn ordered(&self, level: IsolationLevel, container: Option<ContainerConfig>, what: JobKind) -> JobOrder {
        let settings = &self.context.settings;
        JobOrder {
            version: order::VERSION,
            task: self.attempt.task.clone(),
            epoch: self.attempt.epoch,
            root: settings.root.clone(),
            state: settings.state.clone(),
            copies: settings.copies.clone(),
            level,
            container,
            trace: trace::for_new_job(),
            what,
        }
    }

    /// What was used for the task so far, by this attempt and those before it.
    async fn used(&self) -> Result<UsageTotals, DriveError> {
        let mut used = self.context.store.spent(&self.attempt.task).await?;
        used += self.spent();
        Ok(used)
    }

    /// Does a step, with witnesses.
    pub(crate) async fn step<T>(
        &self,
        step: AttemptStep,
        effect: impl Future<Output = Result<T, DriveError>>,
    ) -> Result<T, DriveError> {
        (self.context.step_hook)(&self.attempt.task, step, StepSide::Before);
        let done = trace::with_status(effect).instrument(step.span()).await?;
        (self.context.step_hook)(&self.attempt.task, step, StepSide::After);
        Ok(done)
    }

    /// Records the next phase.
    pub(crate) async fn advance(&mut self, phase: Phase) -> Result<(), DriveError> {
        self.record(&phase).await?;
        self.reach(phase);
        Ok(())
    }

    async fn record(&self, phase: &Phase) -> Result<(), DriveError> {
        Ok(self.context.store.advance(&self.lease, phase).await?)
    }

    /// Takes note of a phase that is recorded.
    fn reach(&mut self, phase: Phase) {
        self.attempt.phase = phase;
        self.tell(RunEvent::Phase { attempt: self.attempt.clone() });
    }

    /// Changes the board, if the lease still counts. That is asked under the board's lock, so that no other writer
    /// comes between: a supervisor that was replaced while it slept writes nothing.
    pub(crate) async fn write_board<T: Send + 'static>(
        &self,
        mut verb: impl FnMut(&dyn Board, &RepoTree) -> Result<(T, Effects), BoardError> + Send + 'static,
    ) -> Result<T, DriveError> {
        let (store, lease) = (Arc::clone(&self.context.store), self.lease.clone());
        let runtime = tokio::runtime::Handle::current();
        let written = self.context.board_thread.write(move |board, tree| {
            Ok(match runtime.block_on(store.holds(&lease)) {
                Ok(true) => {
                    let (answer, effects) = verb(board, tree)?;
                    (Ok(answer), effects)
                }
                Ok(false) => (Err(AttemptStoreError::Fenced(lease.clone())), Effects::none()),
                Err(error) => (Err(error), Effects::none()),
            })
        });
        Ok(written.await??)
    }

    pub(crate) fn tell(&self, notice: RunEvent) {
        self.context.events.tell(&notice);
    }

    /// Runs something that waits for git or for files, on a thread where it may.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LandingRepository) -> Result<T, agency_landing::Error> + Send + 'static,
    ) -> Result<T, DriveError> {
        let repository = Arc::clone(&self.context.repository);
        match tokio::task::spawn_blocking(move || work(&repository)).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(unexpected("a thread that landed work broke")),
        }
    }

    /// Waits for a job to end. A cancellation is heard meanwhile.
    async fn wait(&mut self) -> Result<(), DriveError> {
        let place = self.current_place();
        loop {
            let wish = *self.wanted.borrow_and_update();
            let why = match wish {
                DriverSignal::GoOn if self.unwanted => Some(StopReason::Canceled),
                DriverSignal::GoOn => None,
                DriverSignal::Cancel => Some(StopReason::Canceled),
                DriverSignal::Stop => Some(StopReason::Signal),
            };
            if let Some(why) = why {
                crate::job::shim_client::stop(&place, self.lease.term, why).await?;
            }
            tokio::select! {
                gone = crate::job::shim_client::wait_until_gone(&place) => {
                    gone?;
                    if !matches!(place.state()?, JobState::Alive) {
                        return Ok(());
                    }
                    // It has its lock for a moment longer than its socket, or not yet its socket.
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                }
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return Err(unexpected("nobody is in charge of this attempt any more"));
                    }
                }
            }
        }
    }
}
