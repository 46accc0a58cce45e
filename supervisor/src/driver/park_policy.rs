//! What is made of an agent that says that it could not work.

use super::{AttemptDriver, DriveError};
use crate::attempt::{AttemptEnd, AttemptFailure, FailureKind, ParkDetails, ParkReason, Phase, WorkResult};
use crate::job::outcome::{AgentOutcome, ProgramEnd};
use crate::output_signals::OutputSignal;
use crate::output_signals::rules::SignalMeaning;
use crate::store::AttemptStore;

/// How long an agent waits that does not say for how long: for its quota, and for its model.
const QUOTA: i64 = 15 * 60;
const MODEL: i64 = 60;
/// An agent waits no longer than this on its own word: it is tried again then.
pub(crate) const LONGEST: i64 = 6 * 60 * 60;
/// How often in a row a task is put off. One that needs more than a whole quota would never be done.
pub(super) const MOST: u32 = 10;

/// Whether an agent came to an end of which its own words need no account.
fn is_well(done: &AgentOutcome) -> bool {
    done.end == (ProgramEnd::Exited { code: 0 }) && done.candidate.is_some() && done.did_something
}

/// What an agent said that explains an end without work.
pub(super) fn excuse(done: &AgentOutcome) -> Option<&OutputSignal> {
    // An agent that left its scope, or had to be stopped at a limit, is not excused.
    let by_itself = matches!(done.end, ProgramEnd::Exited { .. } | ProgramEnd::Asked);
    done.heard.as_ref().filter(|_| by_itself && done.violations.is_empty() && !is_well(done))
}

/// Until when an agent is left alone, if what it says is a reason for that.
pub(super) fn parked(heard: &OutputSignal, now: i64) -> Option<ParkDetails> {
    let (want, usual) = match heard.means {
        SignalMeaning::Quota => (ParkReason::Quota, Some(QUOTA)),
        SignalMeaning::Unreachable => (ParkReason::Model, Some(MODEL)),
        SignalMeaning::Unfit => (ParkReason::Person, None),
        SignalMeaning::Blocked | SignalMeaning::Failed => return None,
    };
    let until = usual.map(|usual| heard.until.unwrap_or(now + usual).clamp(now + 1, now + LONGEST));
    Some(ParkDetails { want, reason: heard.says.clone(), until })
}

impl<S: AttemptStore> AttemptDriver<'_, S> {
    /// The result of an attempt whose agent says why it has not worked; `None` if that explains nothing.
    pub(super) async fn excused(
        &self,
        heard: &OutputSignal,
        now: i64,
    ) -> Result<Option<WorkResult>, DriveError> {
        if heard.means == SignalMeaning::Blocked {
            return Ok(Some(WorkResult::Blocked { reason: heard.says.clone() }));
        }
        let Some(parked) = parked(heard, now) else { return Ok(None) };
        // What only a person can help is not tried over and over.
        if parked.want == ParkReason::Person || self.put_off_before().await? + 1 < MOST as usize {
            return Ok(Some(WorkResult::Parked(parked)));
        }
        let reason = format!("it was put off {MOST} times, the last time because {}", parked.reason);
        Ok(Some(WorkResult::Failed { failure: AttemptFailure::new(FailureKind::Exit, reason) }))
    }

    /// How often in a row this task was put off, since a user last forgave it.
    async fn put_off_before(&self) -> Result<usize, DriveError> {
        let store = &self.context.store;
        let forgiven = store.forgiven(&self.attempt.task).await?;
        let attempts = store.attempts(&self.attempt.task).await?;
        let before =
            attempts.iter().rev().filter(|one| one.epoch < self.attempt.epoch && one.epoch > forgiven);
        Ok(before.take_while(|one| matches!(one.phase, Phase::Over(AttemptEnd::Parked(_)))).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(means: SignalMeaning, until: Option<i64>) -> Option<Option<i64>> {
        parked(&OutputSignal { means, says: "x".into(), until }, 1000).map(|parked| parked.until)
    }

    #[test]
    fn an_agent_waits_as_long_as_it_says_within_reason() {
        assert_eq!(until(SignalMeaning::Quota, Some(5000)), Some(Some(5000)));
        assert_eq!(until(SignalMeaning::Quota, None), Some(Some(1000 + QUOTA)));
        assert_eq!(until(SignalMeaning::Quota, Some(i64::MAX)), Some(Some(1000 + LONGEST)));
        assert_eq!(until(SignalMeaning::Quota, Some(-5)), Some(Some(1001)));
        assert_eq!(until(SignalMeaning::Unreachable, None), Some(Some(1000 + MODEL)));
        assert_eq!(until(SignalMeaning::Unfit, Some(5000)), Some(None), "a person has to do something");
        assert_eq!(until(SignalMeaning::Failed, None), None);
    }
}
