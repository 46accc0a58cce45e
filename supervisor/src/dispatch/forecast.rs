//! What a run would do if it began now. Nothing is touched, and it is decided as a run decides ([`plan`]).

use std::collections::{HashMap, HashSet};
use std::path::Path;

use agency_protocols::board::Start;
use sysinfo::System;

use super::parking::Parking;
use super::plan::{self, Choice, Hindrance, World};
use super::{Wishes, barred, free_memory, limits};
use crate::attempt::{Attempt, Phase, TaskKey};
use crate::charge;
use crate::clock::{self, BootClock, Clock, Instant};
use crate::owner;
use crate::settings::Settings;
use crate::store::{Mode, Store, StoreError};

/// What is under way in a repository, and under whom.
#[derive(Debug, Default)]
pub struct UnderWay {
    /// Nobody looks after these any more: a run takes them over.
    pub left: Vec<Attempt>,
    /// Others are at these.
    pub elsewhere: Vec<Attempt>,
    /// Agents that can't work before a moment.
    pub parked: HashMap<String, Instant>,
    pub mode: Mode,
}

impl UnderWay {
    fn has(&self, key: &TaskKey) -> bool {
        self.left.iter().chain(&self.elsewhere).any(|attempt| attempt.task == *key)
    }
}

/// Looks at the store, if there is one.
pub async fn under_way(state: &Path) -> Result<UnderWay, StoreError> {
    if !charge::store_path(state).exists() {
        return Ok(UnderWay::default());
    }
    let store = charge::open_store(state).await?;
    let owners: HashMap<_, _> = store.owners().await?.into_iter().collect();
    let now = store.now().await?;
    let is_left = |attempt: &Attempt| match attempt.held {
        Some(held) => {
            held.until <= now
                || owners.get(&held.term).is_none_or(|owner| owner::is_dead(state, held.term, owner))
        }
        None => false,
    };
    let (left, elsewhere) = store.open().await?.into_iter().partition(is_left);
    let latest = store.latest().await?;
    let parked = Parking::recorded(&store, latest.iter()).await?.until(clock::wall(), BootClock.now());
    Ok(UnderWay { left, elsewhere, parked, mode: store.mode().await? })
}

/// What would become of what may start.
#[derive(Debug, PartialEq, Eq)]
pub struct Forecast {
    /// In this order.
    pub now: Vec<Start>,
    /// When there is room for them.
    pub later: Vec<(Start, Hindrance)>,
    /// Not at all, whatever room there is, and why.
    pub never: Vec<(Start, String)>,
}

/// Plays the beginning of a run through: what starts takes the room that the next one does not find any more.
pub fn forecast(
    ready: &[Start],
    under_way: &UnderWay,
    wishes: &Wishes,
    settings: &Settings,
    protocol: &str,
) -> Forecast {
    let key = |start: &Start| TaskKey { protocol: protocol.to_owned(), id: start.task.to_string() };
    let elsewhere = under_way.elsewhere.iter().map(|attempt| attempt.task.clone());
    let unasked = ready.iter().filter(|start| !wishes.cover(start)).map(key);
    let barred = |start: &&Start| wishes.cover(start) && !under_way.has(&key(start));
    let never: Vec<(Start, String)> = ready
        .iter()
        .filter(barred)
        .filter_map(|start| Some((start.clone(), barred::why_not(start, settings)?)))
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
        let world = World {
            ready,
            protocol,
            busy: &busy,
            judging: &judging,
            aside: &aside,
            // Who has just failed waits within a run, and not before one.
            not_before: &HashMap::new(),
            parked: &under_way.parked,
            now: BootClock.now(),
            limits: &limits,
            free_memory,
            closed: false,
        };
        let Choice::Start(start) = plan::choose(&world) else {
            let left =
                ready.iter().filter(|start| !busy.contains_key(&key(start)) && !aside.contains(&key(start)));
            let hindered =
                |start: &Start| Some((start.clone(), plan::hindrance(&world, start.agent.as_str())?));
            return Forecast { now, later: left.filter_map(hindered).collect(), never };
        };
        let start = start.clone();
        busy.insert(key(&start), start.agent.to_string());
        now.push(start);
    }
}
