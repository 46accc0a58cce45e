//! What a run would do if it began now. Nothing is touched, and it is decided as a run decides ([`plan`]).

use std::collections::{HashMap, HashSet};
use std::path::Path;

use agency_protocols::board::ReadyTask;
use sysinfo::System;

use super::parked_agents::ParkedAgents;
use super::plan::{self, PlanFacts, StartChoice, StartDelay};
use super::{RunOptions, free_memory, limits, not_started};
use crate::attempt::{Attempt, Phase, TaskKey};
use crate::clock::{self, BootClock, BootInstant, Clock};
use crate::owner_lock;
use crate::settings::RunSettings;
use crate::store::sqlite::{open_store, store_path};
use crate::store::{AttemptStore, AttemptStoreError, QueueMode};

/// What is under way in a repository, and under whom.
#[derive(Debug, Default)]
pub struct RepoActivity {
    /// No supervisor looks after these any more: a run takes them over.
    pub left: Vec<Attempt>,
    /// Others are at these.
    pub elsewhere: Vec<Attempt>,
    /// Agents that can't work before a moment.
    pub parked: HashMap<String, BootInstant>,
    pub mode: QueueMode,
}

impl RepoActivity {
    fn has(&self, key: &TaskKey) -> bool {
        self.left.iter().chain(&self.elsewhere).any(|attempt| attempt.task == *key)
    }
}

/// Looks at the store, if there is one.
pub async fn under_way(state: &Path) -> Result<RepoActivity, AttemptStoreError> {
    if !store_path(state).exists() {
        return Ok(RepoActivity::default());
    }
    let store = open_store(state).await?;
    let owners: HashMap<_, _> = store.owners().await?.into_iter().collect();
    let now = store.now().await?;
    let is_left = |attempt: &Attempt| match attempt.held {
        Some(held) => {
            held.until <= now
                || owners.get(&held.term).is_none_or(|owner| owner_lock::is_dead(state, held.term, owner))
        }
        None => false,
    };
    let (left, elsewhere) = store.open().await?.into_iter().partition(is_left);
    let latest = store.latest().await?;
    let parked = ParkedAgents::recorded(&store, &latest).await?.until(clock::wall_seconds(), BootClock.now());
    Ok(RepoActivity { left, elsewhere, parked, mode: store.mode().await? })
}

/// What would happen to the tasks that may start.
#[derive(Debug, PartialEq, Eq)]
pub struct Forecast {
    /// In this order.
    pub now: Vec<ReadyTask>,
    /// When there is room for them.
    pub later: Vec<(ReadyTask, StartDelay)>,
    /// Not at all, even with room, and why.
    pub never: Vec<(ReadyTask, String)>,
}

/// Plays the beginning of a run through: what starts takes the room that the next one does not find any more.
pub fn forecast(
    ready: &[ReadyTask],
    under_way: &RepoActivity,
    wishes: &RunOptions,
    settings: &RunSettings,
    protocol: &str,
) -> Forecast {
    let key = |start: &ReadyTask| TaskKey { protocol: protocol.to_owned(), id: start.task.to_string() };
    let elsewhere = under_way.elsewhere.iter().map(|attempt| attempt.task.clone());
    let unasked = ready.iter().filter(|start| !wishes.includes(start)).map(key);
    let barred = |start: &&ReadyTask| wishes.includes(start) && !under_way.has(&key(start));
    let never: Vec<(ReadyTask, String)> = ready
        .iter()
        .filter(barred)
        .filter_map(|start| Some((start.clone(), not_started::reason_not_started(start, settings)?)))
        .collect();
    let barred = never.iter().map(|(start, _)| key(start));
    let aside: HashSet<TaskKey> = elsewhere.chain(unasked).chain(barred).collect();
    let mut busy: HashMap<TaskKey, String> =
        under_way.left.iter().map(|attempt| (attempt.task.clone(), attempt.agent.clone())).collect();
    let mut judging: HashMap<String, usize> = HashMap::new();
    for attempt in &under_way.left {
        if let Phase::Auditing(auditing) = &attempt.phase {
            *judging.entry(auditing.audit.auditor.clone()).or_default() += 1;
        }
    }
    let (limits, free_memory) = (limits(settings), free_memory(System::new().ok().as_mut()));
    let mut now = Vec::new();
    loop {
        let world = PlanFacts {
            ready,
            protocol,
            busy: &busy,
            judging: &judging,
            aside: &aside,
            // A task that has just failed waits within a run, and not before one.
            not_before: &HashMap::new(),
            parked: &under_way.parked,
            now: BootClock.now(),
            limits: &limits,
            free_memory,
            closed: false,
        };
        let StartChoice::Start(start) = plan::choose(&world) else {
            let left =
                ready.iter().filter(|start| !busy.contains_key(&key(start)) && !aside.contains(&key(start)));
            let hindered =
                |start: &ReadyTask| Some((start.clone(), plan::start_delay(&world, start.agent.as_str())?));
            return Forecast { now, later: left.filter_map(hindered).collect(), never };
        };
        let start = start.clone();
        busy.insert(key(&start), start.agent.to_string());
        now.push(start);
    }
}
