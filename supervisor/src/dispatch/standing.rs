//! How the queue stands: what is at work, what could be, and what waits for whom.

use std::collections::HashSet;

use serde::Serialize;

use super::Dispatcher;
use super::parking::ParkedAgent;
use super::rest::Resting;
use super::summary::Fate;
use crate::attempt::{Attempt, Ending, TaskKey};
use crate::clock;
use crate::notice::Notice;
use crate::store::Store;

/// Where a run is, in numbers and a few names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// The tasks that are being worked on here.
    pub running: Vec<String>,
    /// How many could start, and wait for their turn.
    pub ready: usize,
    /// What can't go on before a person has done something.
    pub waits_for_you: Vec<ForYou>,
    /// How many the board holds back: for other tasks, or for a decision.
    pub held_back: usize,
    /// How many another supervisor has.
    pub elsewhere: usize,
    /// Agents that can't work now, and their tasks with them.
    pub parked: Vec<ParkedAgent>,
    /// How many came to a good end in this run.
    pub done: usize,
    /// How many came to another one.
    pub failed: usize,
}

/// A task that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForYou {
    pub task: String,
    /// What for, in a sentence.
    pub why: String,
}

impl<S: Store> Dispatcher<S> {
    /// Says how the queue stands, if that is news.
    pub(super) fn tell_standing(&mut self) {
        let standing = self.standing();
        if self.told != standing {
            self.shop.teller.tell(&Notice::Standing(standing.clone()));
            self.told = standing;
        }
    }

    fn standing(&self) -> Standing {
        let mut running: Vec<String> = self.running.keys().map(|key| key.id.clone()).collect();
        running.sort();
        let for_you = |(key, one): (&TaskKey, &Resting)| {
            one.for_a_person.then(|| ForYou { task: key.id.clone(), why: one.why.clone() })
        };
        let mut waits_for_you: Vec<ForYou> = self.resting.iter().filter_map(for_you).collect();
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
        let good = |fate: &Fate| matches!(fate, Fate::Ended(Ending::Done { .. } | Ending::Kept { .. }));
        // What failed and is tried again has not come to its end.
        let is_tried_again = |key: &TaskKey| self.running.contains_key(key) || offered.contains(key);
        let failed = |(key, fate): &(&TaskKey, &Fate)| {
            matches!(fate, Fate::Ended(_)) && !good(fate) && !is_tried_again(key)
        };
        let others = |attempt: &&Attempt| attempt.held.is_some_and(|held| held.term != self.shop.term);
        Standing {
            running,
            ready: offered.iter().filter(|key| !aside(key)).count(),
            waits_for_you,
            held_back: self.agenda.waiting.iter().filter(|one| untouched(one.task.as_str())).count()
                + barred.difference(&unasked).filter(|key| untouched(&key.id)).count(),
            elsewhere: self.latest.values().filter(others).count(),
            parked: self.parking.told(clock::wall()),
            done: self.summary.tasks.values().filter(|fate| good(fate)).count(),
            failed: self.summary.tasks.iter().filter(failed).count(),
        }
    }
}
