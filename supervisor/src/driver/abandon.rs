//! An attempt in trouble ends alone.
//!
//! A person may take a task off the board, move it or delete it at any moment, also between the last breath of its agent
//! and its report. Records may be unreadable after a crash of the machine. Neither may keep the queue from going on, and
//! neither may land afterwards: the attempt comes to an end of its own, with its reason, and whether there is another one
//! is a person's decision.

use agency_protocols::board::{BoardError, BoardOutcome, ReadyTask};
use tokio::sync::watch;

use super::{AttemptDriver, AttemptStep, DriveError, DriverSignal, FaultDomain, OutcomeSoFar, RunContext};
use crate::attempt::{Attempt, AttemptEnd, Phase};
use crate::job::outcome::StopReason;
use crate::job::shim_client;
use crate::store::AttemptStore;

impl<S: AttemptStore> RunContext<S> {
    /// Brings an attempt to its end that can't be taken further.
    pub(crate) async fn abandon(
        &self,
        attempt: Attempt,
        blame: FaultDomain,
        reason: String,
    ) -> Result<AttemptEnd, DriveError> {
        let (_keep, wanted) = watch::channel(DriverSignal::GoOn);
        let mut driver = self.driver(attempt, None::<ReadyTask>, wanted, None)?;
        driver.hold().await?;
        driver.stop_everything().await?;
        if let Some(commit) = driver.landed_unnoticed().await? {
            driver.attempt.phase = Phase::Landed { commit };
            return driver.settle().await;
        }
        match blame {
            FaultDomain::Task => driver.end(AttemptEnd::Lost { reason }).await,
            _ => driver.block(reason).await,
        }
    }
}

impl<S: AttemptStore> AttemptDriver<'_, S> {
    /// The board did not take what this attempt has to say. A task that is not wanted any more ends as canceled, one
    /// that was moved as lost.
    pub(super) async fn leave_the_board(&mut self, reason: String) -> Result<OutcomeSoFar, DriveError> {
        if !self.unwanted && !self.context.is_wanted(&self.attempt.task).await? {
            self.unwanted = true;
            return self.settle().await.map(OutcomeSoFar::Over);
        }
        self.end(AttemptEnd::Lost { reason }).await.map(OutcomeSoFar::Over)
    }

    /// A person has to look: the board says BLOCKED, in the words of its protocol.
    async fn block(&mut self, reason: String) -> Result<AttemptEnd, DriveError> {
        let outcome = BoardOutcome::Blocked { report: None, reason: reason.clone() };
        match self.step(AttemptStep::Settle, self.tell_board(Some(outcome))).await {
            // Where the board can't take it, the attempt says it alone.
            Ok(()) | Err(DriveError::Board(BoardError::Unreadable(_) | BoardError::Ambiguous { .. })) => {}
            Err(error) => return Err(error),
        }
        self.end(AttemptEnd::Blocked { reason }).await
    }

    /// Stops all that runs for the attempt before it returns, even if the records say that nothing runs.
    async fn stop_everything(&self) -> Result<(), DriveError> {
        let folder = self.context.records(&self.attempt);
        let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(()) };
        for entry in entries.flatten() {
            let place = crate::job::JobFolder::new(entry.path());
            while place.is_alive()? {
                shim_client::stop(&place, self.lease.term, StopReason::Canceled).await?;
                shim_client::wait_until_gone(&place).await?;
                // It has its lock for a moment longer than its socket.
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        }
        Ok(())
    }
}
