//! The end of an attempt, as the board is told.

use agency_protocols::board::{BoardError, BoardOutcome};
use agency_protocols::store::Effects;
use jiff::Zoned;

use super::{AttemptDriver, AttemptStep, DriveError, NOT_OFFERED, unexpected};
use crate::attempt::{AgentWork, AttemptEnd, AttemptFailure, FailureKind, Merge, Phase, WorkResult};
use crate::failed_commands::FailedCommands;
use crate::job::JobState;
use crate::job::outcome::JobResult;
use crate::run_event::RunEvent;
use crate::store::AttemptStore;
use agency_landing::names::Oid;
use agency_landing::{self, landed_record, lease, tree_diff};

/// What a task that is given up on says.
const CANCELED: &str = "canceled by `agency cancel`";

/// So much of why an earlier attempt did not do is told again.
const REMEMBERED: usize = 200;

impl<S: AttemptStore> AttemptDriver<'_, S> {
    /// Tells the board how it ended, and gives the lease back.
    pub(super) async fn settle(&mut self) -> Result<AttemptEnd, DriveError> {
        let (ending, outcome) = self.verdict().await?;
        self.step(AttemptStep::Settle, self.tell_board(outcome)).await?;
        self.end(ending).await
    }

    /// How it ended, and what the board is to know of it.
    async fn verdict(&self) -> Result<(AttemptEnd, Option<BoardOutcome>), DriveError> {
        if let Phase::Landed { commit } = &self.attempt.phase {
            let commit = commit.clone();
            return Ok((AttemptEnd::Done { commit: commit.clone() }, Some(BoardOutcome::Landed { commit })));
        }
        let unwanted = self.is_unwanted();
        if unwanted && let Some(commit) = self.landed_unnoticed().await? {
            return Ok((AttemptEnd::Done { commit: commit.clone() }, Some(BoardOutcome::Landed { commit })));
        }
        match &self.attempt.phase {
            Phase::Ended(WorkResult::Canceled) => Ok((AttemptEnd::Canceled, Some(canceled()))),
            // Nothing has begun. Another clone took the task, as far as this board is carried by git.
            Phase::Claimed
                if unwanted && self.context.sharing.is_some() && !self.is_canceled_by_user().await? =>
            {
                Ok((AttemptEnd::Lost { reason: NOT_OFFERED.to_owned() }, None))
            }
            _ if unwanted => Ok((AttemptEnd::Canceled, Some(canceled()))),
            Phase::Ended(WorkResult::Blocked { reason }) => {
                let report = self.report_text().await?;
                let outcome = BoardOutcome::Blocked { report, reason: reason.clone() };
                Ok((AttemptEnd::Blocked { reason: reason.clone() }, Some(outcome)))
            }
            Phase::Ended(WorkResult::Failed { failure }) => self.failure(failure.clone()).await,
            Phase::Ended(WorkResult::Parked(parked)) => Ok((AttemptEnd::Parked(parked.clone()), None)),
            Phase::Proved { merge, passed: false } => self.failure(self.failed_checks(merge)?).await,
            _ => Err(unexpected("this attempt is not at its end")),
        }
    }

    /// Whether a user asked for the end of this attempt with `agency cancel`.
    async fn is_canceled_by_user(&self) -> Result<bool, DriveError> {
        let attempts = self.context.store.attempts(&self.attempt.task).await?;
        Ok(attempts.iter().any(|one| one.epoch == self.attempt.epoch && one.cancel))
    }

    /// The commit that has it, if an owner before us landed it and died before it was recorded.
    pub(super) async fn landed_unnoticed(&self) -> Result<Option<String>, DriveError> {
        let task = self.task.clone();
        let landed = self.blocking(move |repository| landed_record::read(repository, &task)).await?;
        let ours = landed.filter(|landed| landed.epoch == self.attempt.epoch.0);
        Ok(ours.map(|landed| landed.commit.to_string()))
    }

    /// Another attempt, or the end of it.
    async fn failure(
        &self,
        failure: AttemptFailure,
    ) -> Result<(AttemptEnd, Option<BoardOutcome>), DriveError> {
        let failures = self.context.store.failures(&self.attempt.task).await? + 1;
        let reason = failure.reason.clone();
        let enough = match failure.kind.is_retryable() && failures < self.context.settings.attempts {
            true => self.why_no_more(&failure, failures).await?,
            false => Some(String::new()),
        };
        let outcome = match (&enough, failure.kind) {
            // A builder gets back what it had reported as ready.
            (None, FailureKind::Audit | FailureKind::Verify | FailureKind::Conflict) => {
                Some(BoardOutcome::Returned { reason })
            }
            (None, _) => None,
            (Some(why), _) => {
                let story = self.story(failures).await?;
                let reason = format!("{reason}{why}{story}");
                Some(BoardOutcome::Blocked { report: self.report_text().await?, reason })
            }
        };
        Ok((AttemptEnd::Failed { failure, given_up: enough }, outcome))
    }

    /// What keeps a task from another attempt that its agent would deserve.
    async fn why_no_more(
        &self,
        failure: &AttemptFailure,
        failures: u32,
    ) -> Result<Option<String>, DriveError> {
        if let Some(used) = self.context.settings.budget.task.used_up(&self.used().await?, 0) {
            return Ok(Some(format!("; its budget is used up: {used}")));
        }
        let repeats = self.repeats(failure, failures).await?;
        Ok((repeats >= self.context.settings.repeats)
            .then(|| format!("; there is no progress: the same work failed {repeats} times in the same way")))
    }

    /// How often in a row attempts have failed like this one, with the same work. What was forgiven does not count, and
    /// work that was done outside is never the same: what it changed was not seen.
    async fn repeats(&self, failure: &AttemptFailure, failures: u32) -> Result<u32, DriveError> {
        let work = failure.work.clone().filter(|work| !work.is_already_landed());
        let Some(work) = work else { return Ok(1) };
        let counted = usize::try_from(failures - 1).unwrap_or(usize::MAX);
        let attempts = self.context.store.attempts(&self.attempt.task).await?;
        let before = attempts.iter().rev().filter(|one| one.epoch < self.attempt.epoch);
        let alike: Vec<AgentWork> = before
            .filter(|one| !matches!(one.phase, Phase::Over(AttemptEnd::Lost { .. } | AttemptEnd::Parked(_))))
            .map_while(|one| match &one.phase {
                Phase::Over(AttemptEnd::Failed { failure: earlier, .. }) if earlier.kind == failure.kind => {
                    earlier.work.clone()
                }
                _ => None,
            })
            .take(counted)
            .collect();
        self.blocking(move |repository| {
            let changes = |work: &AgentWork| {
                tree_diff::between(repository, &Oid::parse(&work.base)?, &Oid::parse(&work.candidate)?)
            };
            let (mine, mut repeats) = (changes(&work)?, 1);
            for earlier in &alike {
                match changes(earlier) {
                    Ok(theirs) if theirs == mine => repeats += 1,
                    // Work that git has cleared away is not known to be the same.
                    Ok(_) | Err(agency_landing::Error::Missing { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
            Ok(repeats)
        })
        .await
    }

    /// How the attempts before this one ended, for the person who has to look.
    async fn story(&self, failures: u32) -> Result<String, DriveError> {
        if failures < 2 {
            return Ok(String::new());
        }
        let attempts = self.context.store.attempts(&self.attempt.task).await?;
        let before = attempts.iter().filter(|one| one.epoch < self.attempt.epoch);
        let told: Vec<String> = before
            .filter_map(|one| match &one.phase {
                Phase::Over(AttemptEnd::Failed { failure, .. }) => {
                    let reason: String = failure.reason.chars().take(REMEMBERED).collect();
                    Some(format!("attempt {}: {reason}", one.epoch))
                }
                _ => None,
            })
            .collect();
        // Those that do not count any more are not told.
        let counted = told.len().saturating_sub(usize::try_from(failures - 1).unwrap_or(usize::MAX));
        Ok(format!(" ({failures} attempts); {}", told[counted..].join("; ")))
    }

    /// Which checks failed, how, and where the log of the first one is.
    fn failed_checks(&self, merge: &Merge) -> Result<AttemptFailure, DriveError> {
        let failure =
            |reason: String| AttemptFailure::new(FailureKind::Verify, reason).with_work(&merge.work);
        let JobState::Over(outcome) = self.proof_place(merge).state()? else {
            return Ok(failure("checks failed".to_owned()));
        };
        let JobResult::Proof(proof) = outcome.done else {
            return Ok(failure("checks could not run".to_owned()));
        };
        Ok(match FailedCommands::of(&proof.evidence) {
            None => failure("checks failed".to_owned()),
            Some(failed) => {
                AttemptFailure { log: failed.log(), ..failure(format!("checks failed: {failed}")) }
            }
        })
    }

    pub(super) async fn tell_board(&self, outcome: Option<BoardOutcome>) -> Result<(), DriveError> {
        let Some(outcome) = outcome else { return Ok(()) };
        let (task, _) = self.names()?;
        let told = self.write_board(move |board, tree| {
            // A user who took the task off the board meanwhile has had the last word on it.
            if !matches!(outcome, BoardOutcome::Landed { .. }) && !board.is_wanted(tree, &task)? {
                return Ok(((), Effects::none()));
            }
            Ok(((), board.settle(tree, &task, &outcome, &Zoned::now())?))
        });
        match told.await {
            Err(DriveError::Board(error @ (BoardError::Refused { .. } | BoardError::NoSuchTask { .. }))) => {
                let what = format!("the board does not take how this attempt ended: {error}");
                self.tell(RunEvent::Trouble { task: Some(self.attempt.task.clone()), what });
                Ok(())
            }
            other => other,
        }
    }

    /// Gives the lease back, first in git and then in the store: so a lease in git always has a holder.
    pub(super) async fn end(&mut self, ending: AttemptEnd) -> Result<AttemptEnd, DriveError> {
        let (task, epoch, term) = (self.task.clone(), self.lease.epoch.0, self.lease.term.0);
        let held = self.held.clone();
        let released = self.blocking(move |repository| {
            let own = match held {
                Some(held) => Some(held),
                // An owner before us may have left its own.
                None => {
                    let last = lease::read(repository, &task)?.filter(|last| !last.released);
                    last.map(|last| last.lease).filter(|found| found.epoch == epoch && found.term <= term)
                }
            };
            match own {
                Some(own) => lease::release(repository, &own).map(drop),
                None => Ok(()),
            }
        });
        let spent = self.spent();
        self.step(AttemptStep::Release, async {
            released.await?;
            Ok(self.context.store.end(&self.lease, &ending, spent).await?)
        })
        .await?;
        self.agent_place().discard_ended();
        self.tell(RunEvent::Over {
            task: self.attempt.task.clone(),
            attempt: self.attempt.epoch.0,
            agent: self.attempt.agent.clone(),
            ending: ending.clone(),
        });
        Ok(ending)
    }
}

fn canceled() -> BoardOutcome {
    BoardOutcome::Canceled { reason: CANCELED.to_owned() }
}
