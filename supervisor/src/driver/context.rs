//! What all attempts of a run share, and how one of them is driven with it.

use std::path::PathBuf;
use std::sync::Arc;

use agency_landing as landing;
use agency_landing::names::TaskName;
use agency_landing::repository::LandingRepository;
use agency_protocols::board::{BoardAgenda, BoardError, ReadyTask};
use tokio::sync::watch;
use tracing::Instrument;

use super::{AttemptDriver, DriveError, DriveResult, DriverSignal, OutcomeSoFar, StepHook, unexpected};
use crate::agent_slots::{AgentSlots, SlotGuard};
use crate::attempt::{Attempt, AttemptEnd, Epoch, Merge, Phase, TaskKey};
use crate::board_sync::BoardSync;
use crate::board_thread::BoardThread;
use crate::clock::BootInstant;
use crate::job::JobFolder;
use crate::job::claim_reader::ClaimReader;
use crate::job::order::JobKind;
use crate::job::shim_client::ShimProgram;
use crate::own_terms::OwnTerms;
use crate::records;
use crate::run_event::EventSink;
use crate::settings::{LandingTarget, RunSettings};
use crate::store::AttemptStore;
use crate::trace;
use crate::train::Train;
use crate::unmerged;

/// What all attempts of a supervisor share.
pub struct RunContext<S> {
    pub(crate) store: Arc<S>,
    pub(crate) board_thread: BoardThread,
    pub(crate) repository: Arc<LandingRepository>,
    /// Where the board's commits go, and with them the branch, if git carries them.
    pub(crate) sharing: Option<BoardSync>,
    pub(crate) settings: RunSettings,
    pub(crate) shim: ShimProgram,
    pub(crate) reader: ClaimReader,
    pub(crate) terms: OwnTerms,
    pub(crate) train: Train,
    pub(crate) slots: Arc<AgentSlots>,
    /// When this run began.
    pub(crate) began: BootInstant,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) step_hook: StepHook,
}

impl<S> std::fmt::Debug for RunContext<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunContext").field("terms", &self.terms).finish_non_exhaustive()
    }
}

impl<S: AttemptStore> RunContext<S> {
    /// Takes an attempt as far as it goes.
    pub(crate) async fn drive(
        &self,
        attempt: Attempt,
        start: Option<ReadyTask>,
        wanted: watch::Receiver<DriverSignal>,
        slot: Option<SlotGuard>,
    ) -> DriveResult {
        let span = tracing::info_span!(
            "attempt",
            task = %attempt.task,
            attempt = attempt.epoch.0,
            agent = %attempt.agent,
            outcome = tracing::field::Empty,
        );
        let key = attempt.task.clone();
        let mut driver = match self.driver(attempt, start, wanted, slot) {
            Ok(driver) => driver,
            Err(error) => return (Err(error), None),
        };
        async {
            let rest = match driver.run().await {
                Err(DriveError::Board(
                    error @ (BoardError::NoSuchTask { .. } | BoardError::Refused { .. }),
                )) => driver.leave_the_board(error.to_string()).await,
                rest => rest,
            };
            self.train.leave(&key, matches!(rest, Ok(OutcomeSoFar::Over(AttemptEnd::Done { .. }))));
            let outcome = match &rest {
                Ok(OutcomeSoFar::Over(ending)) => ending.name(),
                Ok(OutcomeSoFar::Waits(_)) => "waits",
                Ok(OutcomeSoFar::Parked(_)) => "parked",
                Ok(OutcomeSoFar::Interrupted) => "interrupted",
                Err(error) if error.is_fenced() => "fenced",
                Err(_) => "error",
            };
            tracing::Span::current().record("outcome", outcome);
            trace::record_outcome(wrong_in(&rest).as_deref());
            // The supervisor that took the attempt from us counts its agent.
            let fenced = matches!(&rest, Err(error) if error.is_fenced());
            (rest, driver.left().filter(|_| !fenced))
        }
        .instrument(span)
        .await
    }

    pub(super) fn driver(
        &self,
        attempt: Attempt,
        start: Option<ReadyTask>,
        wanted: watch::Receiver<DriverSignal>,
        slot: Option<SlotGuard>,
    ) -> Result<AttemptDriver<'_, S>, DriveError> {
        let lease = attempt.lease().ok_or_else(|| unexpected("an attempt that nobody holds"))?;
        // Once it was begun, its branch is called what it was called then.
        let begun = JobFolder::new(self.records(&attempt).join("agent")).read_order().ok();
        let named = match begun.map(|order| order.what) {
            Some(JobKind::Agent(order)) => order.branch,
            _ => start.as_ref().and_then(|start| start.branch.clone()),
        };
        let task = TaskName::new(&attempt.task.protocol, &attempt.task.id)?.with_branch(named.as_deref());
        Ok(AttemptDriver {
            context: self,
            lease,
            task,
            attempt,
            start,
            wanted,
            unwanted: false,
            held: None,
            slot,
        })
    }

    /// An attempt that was merged takes its place among what is on its way to the branch.
    pub(crate) fn rejoin(&self, attempt: &Attempt) {
        if let Phase::Merged(merge) | Phase::Proved { merge, passed: true } = &attempt.phase {
            self.join(&attempt.task, merge);
        }
    }

    pub(super) fn join(&self, task: &TaskKey, merge: &Merge) {
        if let (LandingTarget::Merge, Some(onto)) = (self.settings.land, &merge.onto) {
            self.train.join(task, onto, merge.subject());
        }
    }

    /// What there is to do on the board, and can be done on the branch as it is.
    pub(crate) async fn agenda(&self) -> Result<BoardAgenda, BoardError> {
        let (protocol, mut agenda) = self.board_thread.read_agenda().await?;
        if agenda.dependencies.is_empty() {
            return Ok(agenda);
        }
        let (repository, base) = (Arc::clone(&self.repository), self.settings.branch.clone());
        let look = move || {
            unmerged::hold_back(&repository, &base, protocol, &mut agenda);
            agenda
        };
        tokio::task::spawn_blocking(look).await.map_err(|_| BoardError::Refused {
            reason: "a thread that looked at git broke".to_owned(),
            hint: None,
        })
    }

    /// Whether the board still wants work on a task. A file that can't be read at the moment has not been taken off it.
    pub(crate) async fn is_wanted(&self, key: &TaskKey) -> Result<bool, BoardError> {
        let Ok(task) = agency_protocols::names::TaskId::parse(&key.id) else { return Ok(true) };
        match self.board_thread.read(move |board, tree| board.is_wanted(tree, &task)).await {
            Err(BoardError::Unreadable(_) | BoardError::Ambiguous { .. }) => Ok(true),
            found => found,
        }
    }

    /// The last attempt at a task that git knows of, zero if there is none.
    pub(crate) async fn known_to_git(&self, key: &TaskKey) -> Result<Epoch, DriveError> {
        let (task, repository) = (TaskName::new(&key.protocol, &key.id)?, Arc::clone(&self.repository));
        let look = move || -> Result<u64, agency_landing::Error> {
            let claimed = agency_landing::lease::read(&repository, &task)?.map_or(0, |last| last.lease.epoch);
            let landed = landing::landed_record::read(&repository, &task)?.map_or(0, |landed| landed.epoch);
            Ok(claimed.max(landed))
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(found) => Ok(Epoch(found?)),
            Err(_) => Err(unexpected("a thread that looked at git broke")),
        }
    }

    /// The folder of an attempt's records.
    pub(crate) fn records(&self, attempt: &Attempt) -> PathBuf {
        records::folder_of(&self.settings.state, attempt)
    }
}

/// What is wrong with an outcome, in a word for a trace.
fn wrong_in(rest: &Result<OutcomeSoFar, DriveError>) -> Option<String> {
    match rest {
        Ok(OutcomeSoFar::Over(AttemptEnd::Failed { failure, .. })) => {
            let kind = serde_json::to_value(failure.kind).unwrap_or_default();
            Some(kind.as_str().unwrap_or("failed").to_owned())
        }
        Ok(OutcomeSoFar::Over(AttemptEnd::Lost { .. })) => Some("lost".to_owned()),
        Ok(OutcomeSoFar::Over(AttemptEnd::Parked(_))) => Some("parked".to_owned()),
        Ok(
            OutcomeSoFar::Over(_)
            | OutcomeSoFar::Waits(_)
            | OutcomeSoFar::Parked(_)
            | OutcomeSoFar::Interrupted,
        ) => None,
        Err(error) if error.is_fenced() => Some("fenced".to_owned()),
        Err(_) => Some("error".to_owned()),
    }
}
