//! How the queue stands: what is at work, what could be, and what waits for whom.

use std::collections::HashSet;

use super::action::Actions;
use super::queue::RunQueue;
use super::summary::TaskResult;
use super::waiting::WaitingAttempt;
use crate::attempt::{Attempt, AttemptEnd, TaskKey};
use crate::run_event::{HumanWait, QueueStatus, RunEvent};

impl RunQueue {
    /// Says how the queue stands, if that is news.
    pub(super) fn tell_status(&mut self, wall: i64, actions: &mut Actions) {
        let status = self.status(wall);
        if self.told != status {
            actions.emit(RunEvent::Standing(status.clone()));
            self.told = status;
        }
    }

    fn status(&self, wall: i64) -> QueueStatus {
        let mut running: Vec<String> = self.running.keys().map(|key| key.id.clone()).collect();
        running.sort();
        let for_you = |(key, one): (&TaskKey, &WaitingAttempt)| {
            one.rest.for_a_person.then(|| HumanWait { task: key.id.clone(), why: one.rest.why.clone() })
        };
        let mut waits_for_you: Vec<HumanWait> = self.resting.iter().filter_map(for_you).collect();
        waits_for_you.sort_by(|a, b| a.task.cmp(&b.task));
        let unasked: HashSet<TaskKey> = self.unasked().into_iter().collect();
        let barred: HashSet<TaskKey> = self.barred().into_iter().map(|(key, _)| key).collect();
        let offered: HashSet<TaskKey> = self
            .agenda
            .ready
            .iter()
            .map(|start| self.key(start.task.as_str()))
            .filter(|key| !self.running.contains_key(key) && !unasked.contains(key) && !barred.contains(key))
            .collect();
        let aside = |key: &&TaskKey| {
            self.taken.contains(*key) || self.given_up.contains(*key) || self.resting.contains_key(*key)
        };
        let asked = |id: &str| self.wishes.tasks.as_ref().is_none_or(|tasks| tasks.contains(id));
        let untouched = |id: &str| asked(id) && !self.summary.tasks.contains_key(&self.key(id));
        let good = |fate: &TaskResult| {
            matches!(fate, TaskResult::Ended(AttemptEnd::Done { .. } | AttemptEnd::Kept { .. }))
        };
        // What failed and is tried again has not come to its end.
        let is_tried_again = |key: &TaskKey| self.running.contains_key(key) || offered.contains(key);
        let failed = |(key, fate): &(&TaskKey, &TaskResult)| {
            matches!(fate, TaskResult::Ended(_)) && !good(fate) && !is_tried_again(key)
        };
        let others = |attempt: &&Attempt| attempt.held.is_some_and(|held| !self.terms.contains(&held.term));
        QueueStatus {
            running,
            ready: offered.iter().filter(|key| !aside(key)).count(),
            waits_for_you,
            held_back: self.agenda.waiting.iter().filter(|one| untouched(one.task.as_str())).count()
                + barred.difference(&unasked).filter(|key| untouched(&key.id)).count(),
            elsewhere: self.latest.values().filter(others).count(),
            parked: self.parking.told(wall),
            done: self.summary.tasks.values().filter(|fate| good(fate)).count(),
            failed: self.summary.tasks.iter().filter(failed).count(),
        }
    }
}
