//! What a run came to, told at its end.

use std::collections::{BTreeMap, HashSet};

use super::queue::RunQueue;
use crate::attempt::{Attempt, AttemptEnd, TaskKey};

/// What a run came to.
#[derive(Debug, Default)]
pub struct RunSummary {
    /// How each task that was worked on ended last.
    pub tasks: BTreeMap<TaskKey, TaskResult>,
    /// What the board could not tell or would not start, with the reason.
    pub waiting: Vec<(String, String)>,
    pub findings: Vec<agency_protocols::finding::Finding>,
    /// How many tasks another supervisor has.
    pub elsewhere: usize,
    pub interrupted: bool,
    /// What went wrong and belongs to no task's work.
    pub troubles: Vec<String>,
}

/// A task whose work was reported, by an attempt that is over or that the store does not know any more.
const UNLANDED: &str =
    "its work is reported and did not land; `agency task move` gives it back to its builder";

/// The result of a task in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskResult {
    Ended(AttemptEnd),
    Waits(String),
    /// It is still open.
    Open,
}

impl RunQueue {
    /// What this run is about and did not come to, because it was told to end.
    fn not_started(&self) -> Vec<(String, String)> {
        if !self.draining && !self.summary.interrupted {
            return Vec::new();
        }
        let unasked: HashSet<TaskKey> = self.unasked().into_iter().collect();
        let others = |key: &TaskKey| self.latest.get(key).is_some_and(|attempt| attempt.held.is_some());
        let barred: HashSet<TaskKey> = self.barred().into_iter().map(|(key, _)| key).collect();
        let left = self.agenda.ready.iter().filter(|start| {
            let key = self.key(start.task.as_str());
            let ours = !unasked.contains(&key) && !barred.contains(&key) && !others(&key);
            ours && !self.summary.tasks.contains_key(&key)
        });
        left.map(|start| (start.task.to_string(), "the run ended before it started".to_owned())).collect()
    }

    pub(super) fn finish(mut self) -> RunSummary {
        for (key, resting) in &self.resting {
            self.summary
                .tasks
                .entry(key.clone())
                .or_insert_with(|| TaskResult::Waits(resting.rest.why.clone()));
        }
        // A run that is left at once, or waits for an answer in vain, leaves them as they are.
        for key in self.running.keys().chain(self.settling.keys()) {
            self.summary.tasks.insert(key.clone(), TaskResult::Open);
        }
        let asked = |id: &str| self.wishes.tasks.as_ref().is_none_or(|tasks| tasks.contains(id));
        // Of what was worked on, it is told how that ended.
        let told = |id: &str| self.summary.tasks.contains_key(&self.key(id));
        let unasked: HashSet<TaskKey> = self.unasked().into_iter().collect();
        let barred = self.barred().into_iter().filter(|(key, _)| !unasked.contains(key) && !told(&key.id));
        let held = |id: &str| self.latest.get(&self.key(id)).is_some_and(|last| last.held.is_some());
        let unlanded = self.agenda.reported.iter().map(ToString::to_string);
        let unlanded = unlanded.filter(|id| asked(id) && !told(id) && !held(id));
        let waiting: Vec<(String, String)> = self
            .agenda
            .waiting
            .iter()
            .filter(|waiting| asked(waiting.task.as_str()) && !told(waiting.task.as_str()))
            .map(|waiting| (waiting.task.to_string(), waiting.why.clone()))
            .chain(self.not_started())
            .chain(barred.map(|(key, why)| (key.id, why)))
            .chain(unlanded.map(|id| (id, UNLANDED.to_owned())))
            .collect();
        self.summary.waiting = waiting;
        self.summary.findings = self.agenda.findings.clone();
        let others = |attempt: &&Attempt| attempt.held.is_some_and(|held| !self.terms.contains(&held.term));
        self.summary.elsewhere = self.latest.values().filter(others).count();
        self.summary
    }
}
