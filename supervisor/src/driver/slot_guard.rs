//! The place of an agent that is at work on an attempt ([`crate::agent_slots`]): an agent at work has it, an agent that
//! is to begin waits for it, and an agent that works on keeps it while no driver looks after its attempt.

use super::next::NextStep;
use super::{AttemptDriver, DriveError, unexpected};
use crate::agent_slots::{SlotGuard, SlotPurpose};
use crate::attempt::{Attempt, Phase, RunningAudit};
use crate::job::{JobFolder, JobState};
use crate::store::AttemptStore;

/// An agent at work without a driver at the moment. It has its place for as long as it is at work.
#[derive(Debug)]
pub(crate) struct UnattendedAgent {
    place: JobFolder,
    pub(crate) slot: SlotGuard,
}

impl UnattendedAgent {
    /// Whether it is known to be. No attempt waits for a place that may never be free.
    pub(crate) fn is_at_work(&self) -> bool {
        matches!(self.place.state(), Ok(JobState::Alive))
    }
}

/// The agent that is at work on an attempt, or is to be next, and its purpose.
fn worker<'a>(attempt: &'a Attempt, next: &NextStep) -> Option<(&'a str, SlotPurpose)> {
    match (&attempt.phase, next) {
        (Phase::Claimed | Phase::Started, NextStep::Begin | NextStep::Send | NextStep::Await) => {
            Some((&attempt.agent, SlotPurpose::Build))
        }
        (Phase::Auditing(RunningAudit { audit, .. }), NextStep::Ask | NextStep::Await) => {
            Some((&audit.auditor, SlotPurpose::Judge))
        }
        _ => None,
    }
}

impl<S: AttemptStore> AttemptDriver<'_, S> {
    /// An agent at work has a place, whether we began it or found it; no other keeps one. An agent that is yet to begin
    /// waits for one then.
    pub(super) fn take_place(&mut self, next: &NextStep) {
        let worker = worker(&self.attempt, next);
        self.slot = self
            .slot
            .take()
            .filter(|slot| worker.is_some_and(|(agent, duty)| slot.is_for(agent, duty)))
            .or_else(|| {
                let (agent, duty) = worker.filter(|_| *next == NextStep::Await)?;
                Some(self.context.slots.acquire_for_running(agent, duty))
            });
    }

    /// The agent that is still at work when nothing more can be done about it now.
    pub(super) fn left(mut self) -> Option<UnattendedAgent> {
        if !self.is_at_work().is_ok_and(|at_work| at_work) {
            return None;
        }
        // What was in the way may have come before the first look.
        self.take_place(&NextStep::Await);
        let place = self.current_place();
        self.slot.map(|slot| UnattendedAgent { place, slot })
    }

    /// Waits until one more of an agent may be at work; `false` if another signal comes meanwhile.
    pub(super) async fn wait_for_place(
        &mut self,
        agent: &str,
        duty: SlotPurpose,
    ) -> Result<bool, DriveError> {
        if self.slot.is_some() {
            return Ok(true);
        }
        tokio::select! {
            // A signal is heard before anything is begun.
            biased;
            changed = self.wanted.changed() => match changed {
                Ok(()) => Ok(false),
                Err(_) => Err(unexpected("nobody is in charge of this attempt any more")),
            },
            slot = self.context.slots.acquire(agent, duty) => {
                self.slot = Some(slot);
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{AgentWork, Audit};

    #[test]
    fn a_place_is_for_who_is_at_work_or_about_to_be() {
        let work = AgentWork { base: "a".into(), candidate: "b".into() };
        let audit = Audit { auditor: "judge".into(), number: 1, answer: None };
        let auditing = Phase::Auditing(RunningAudit { work, audit, unheard: 0, why: None, put_off: 0 });
        let of = |phase: &Phase, next| {
            worker(&Attempt::sample("T1", "builder", phase.clone()), &next)
                .map(|(agent, duty)| (agent.to_owned(), duty))
        };
        let (building, judging) = (
            Some(("builder".to_owned(), SlotPurpose::Build)),
            Some(("judge".to_owned(), SlotPurpose::Judge)),
        );
        assert_eq!(of(&Phase::Claimed, NextStep::Begin), building);
        assert_eq!(of(&Phase::Started, NextStep::Send), building);
        assert_eq!(of(&Phase::Started, NextStep::Await), building);
        assert_eq!(of(&auditing, NextStep::Ask), judging);
        assert_eq!(of(&auditing, NextStep::Await), judging);
        let over = [
            (Phase::Started, NextStep::Collect),
            (Phase::Claimed, NextStep::Settle),
            (auditing, NextStep::Heed),
        ];
        for (phase, next) in over {
            assert_eq!(of(&phase, next), None, "its agent is not at work");
        }
    }
}
