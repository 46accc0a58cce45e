//! Attempts that become ours: by a claim, or from a supervisor that does not look after them any more.

use agency_protocols::board::ReadyTask;

use super::action::{Action, Actions, Asked, ClaimOutcome, Moment, OrphanSearch};
use super::queue::RunQueue;
use super::summary::TaskResult;
use crate::attempt::{Attempt, LeaseHolder, Phase, TaskKey, UsageTotals};
use crate::run_event::RunEvent;

impl RunQueue {
    /// A claim was answered: what is ours now is driven.
    pub(super) fn claimed(
        &mut self,
        key: TaskKey,
        start: &ReadyTask,
        outcome: ClaimOutcome,
        now: Moment,
        actions: &mut Actions,
    ) {
        match outcome {
            ClaimOutcome::UsedUp(why) => {
                actions.emit(RunEvent::Waits { task: key.clone(), attempt: 0, why: why.clone() });
                self.summary.tasks.insert(key.clone(), TaskResult::Waits(why));
                self.given_up.insert(key);
            }
            ClaimOutcome::NoPlace => {}
            ClaimOutcome::Taken => {
                self.taken.insert(key);
            }
            ClaimOutcome::Held { lease, until } => {
                self.begun.insert((key.clone(), lease.epoch));
                let attempt = Attempt {
                    task: key,
                    epoch: lease.epoch,
                    title: start.title.clone(),
                    agent: start.agent.to_string(),
                    phase: Phase::Claimed,
                    held: Some(LeaseHolder { term: lease.term, until }),
                    cancel: false,
                    answer: None,
                    spent: UsageTotals::default(),
                    claimed_at: now.wall,
                    recorded_at: now.wall,
                };
                actions.emit(RunEvent::Phase { attempt: attempt.clone() });
                self.drive(attempt, actions);
            }
        }
    }

    /// What others left was looked for: what was adopted is driven.
    pub(super) fn orphans_found(&mut self, search: OrphanSearch, now: Moment, actions: &mut Actions) {
        let OrphanSearch { terms, adopted, elsewhere, cut_short } = search;
        self.terms = terms;
        self.taken.extend(elsewhere);
        for attempt in &adopted {
            self.taken.remove(&attempt.task);
            actions.push(Action::RenewShims(attempt.clone()));
            actions.emit(RunEvent::Adopted { attempt: attempt.clone() });
        }
        // They may stand on each other: all of them are in their places before the first goes on.
        adopted.iter().for_each(|attempt| actions.push(Action::Rejoin(attempt.clone())));
        adopted.into_iter().for_each(|attempt| self.drive(attempt, actions));
        if let Some(what) = cut_short {
            self.unanswered(&Asked::Orphans, &what, now, actions);
        }
    }
}
