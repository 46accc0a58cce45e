//! An attempt in trouble ends alone.
//!
//! A person may take a task off the board, move it or delete it at any moment, also between the last breath of its agent
//! and its report. Records may be unreadable after a crash of the machine. Neither may keep the queue from going on, and
//! neither may land afterwards: the attempt comes to an end of its own, with its reason, and whether there is another one
//! is a person's decision.

use agency_protocols::board::{BoardError, Outcome as BoardOutcome, Start};
use tokio::sync::watch;

use super::{Blame, Life, LifeError, Rest, Step, Wanted, Workshop};
use crate::attempt::{Attempt, Ending, Phase};
use crate::errand::outcome::StopReason;
use crate::errand::send;
use crate::store::Store;

impl<S: Store> Workshop<S> {
    /// Brings an attempt to its end that can't be taken further.
    pub(crate) async fn set_aside(
        &self,
        attempt: Attempt,
        blame: Blame,
        reason: String,
    ) -> Result<Ending, LifeError> {
        let (_keep, wanted) = watch::channel(Wanted::GoOn);
        let mut life = self.life(attempt, None::<Start>, wanted, None)?;
        life.hold().await?;
        life.stop_everything().await?;
        if let Some(commit) = life.landed_unnoticed().await? {
            life.attempt.phase = Phase::Landed { commit };
            return life.settle().await;
        }
        match blame {
            Blame::Task => life.end(Ending::Lost { reason }).await,
            _ => life.block(reason).await,
        }
    }
}

impl<S: Store> Life<'_, S> {
    /// The board did not take what this attempt has to say. A task that nobody wants any more ends as canceled, one that
    /// was moved as lost.
    pub(super) async fn leave_the_board(&mut self, reason: String) -> Result<Rest, LifeError> {
        if !self.unwanted && !self.shop.is_wanted(&self.attempt.task).await? {
            self.unwanted = true;
            return self.settle().await.map(Rest::Over);
        }
        self.end(Ending::Lost { reason }).await.map(Rest::Over)
    }

    /// A person has to look: the board says BLOCKED, in the words of its protocol.
    async fn block(&mut self, reason: String) -> Result<Ending, LifeError> {
        let outcome = BoardOutcome::Blocked { report: None, reason: reason.clone() };
        match self.step(Step::Settle, self.tell_board(Some(outcome))).await {
            // Where the board can't take it, the attempt says it alone.
            Ok(()) | Err(LifeError::Board(BoardError::Unreadable(_) | BoardError::Ambiguous { .. })) => {}
            Err(error) => return Err(error),
        }
        self.end(Ending::Blocked { reason }).await
    }

    /// Nothing of the attempt runs any more when this returns, whatever its records say.
    async fn stop_everything(&self) -> Result<(), LifeError> {
        let folder = self.shop.records(&self.attempt);
        let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(()) };
        for entry in entries.flatten() {
            let place = crate::errand::Place::new(entry.path());
            while place.is_alive()? {
                send::stop(&place, self.shop.term, StopReason::Canceled).await?;
                send::gone(&place).await?;
                // It has its lock for a moment longer than its socket.
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        }
        Ok(())
    }
}
