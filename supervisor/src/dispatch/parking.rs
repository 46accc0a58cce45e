//! Agents that can't work now: which, until when, and why. What one attempt ran into, the others of the same agent
//! would too.

use std::collections::HashMap;

use serde::Serialize;

use super::{Dispatcher, RunError};
use crate::attempt::{Attempt, Ending, Parked, Phase, TaskKey, Want};
use crate::clock::{self, BootClock, Clock, Instant};
use crate::life::parking::LONGEST;
use crate::store::{Store, StoreError};

/// How often in a row an agent's model may be out of reach until the agent is not tried any more in this run.
const MISSES: u32 = 5;

/// An agent that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParkedAgent {
    pub agent: String,
    pub why: String,
    /// Seconds since 1970; `None` for a person to say.
    pub until: Option<i64>,
}

/// Which agents wait.
#[derive(Debug, Default)]
pub(super) struct Parking {
    /// By the attempt that ran into it.
    found: HashMap<TaskKey, (Attempt, Parked)>,
    /// Those that are not tried any more in this run.
    given_up: HashMap<String, (Attempt, String)>,
    misses: HashMap<String, u32>,
}

impl Parking {
    /// An attempt ran into it here.
    pub(super) fn park(&mut self, attempt: Attempt, parked: &Parked) {
        let agent = attempt.agent.clone();
        let misses = self.misses.entry(agent.clone()).or_default();
        *misses = if parked.want == Want::Model { *misses + 1 } else { 0 };
        if parked.until.is_none() || *misses >= MISSES {
            self.given_up.insert(agent, (attempt, parked.reason.clone()));
        } else {
            self.learn(attempt, parked);
        }
    }

    /// An attempt ran into it, here or elsewhere, now or before.
    fn learn(&mut self, attempt: Attempt, parked: &Parked) {
        if parked.until.is_some() {
            self.found.insert(attempt.task.clone(), (attempt, parked.clone()));
        }
    }

    /// An agent has worked: its model is there.
    pub(super) fn worked(&mut self, agent: &str) {
        self.misses.remove(agent);
        self.found.retain(|_, (attempt, parked)| attempt.agent != agent || parked.want != Want::Model);
    }

    /// Why an agent is not tried any more.
    pub(super) fn why_not(&self, agent: &str) -> Option<String> {
        self.given_up.get(agent).map(|(_, why)| format!("{agent} can't be used: {why}"))
    }

    /// Until when each agent waits.
    pub(super) fn until(&self, wall: i64, now: Instant) -> HashMap<String, Instant> {
        let mut waits: HashMap<String, Instant> = HashMap::new();
        for (attempt, parked) in self.found.values() {
            let left = parked.until.and_then(|until| u64::try_from(until - wall).ok());
            // However the clock has been set meanwhile.
            if let Some(left) = left.filter(|left| *left > 0).map(|left| left.min(LONGEST.unsigned_abs())) {
                let until = now + std::time::Duration::from_secs(left);
                waits
                    .entry(attempt.agent.clone())
                    .and_modify(|known| *known = until.max(*known))
                    .or_insert(until);
            }
        }
        waits
    }

    /// The same, for people.
    pub(super) fn told(&self, wall: i64) -> Vec<ParkedAgent> {
        let mut told: HashMap<&str, &Parked> = HashMap::new();
        for (attempt, parked) in self.found.values().filter(|(_, parked)| parked.until > Some(wall)) {
            let known = told.entry(attempt.agent.as_str()).or_insert(parked);
            if parked.until > known.until {
                *known = parked;
            }
        }
        let mut told: Vec<ParkedAgent> = told
            .into_iter()
            .map(|(agent, parked)| ParkedAgent {
                agent: agent.to_owned(),
                why: parked.reason.clone(),
                until: parked.until,
            })
            .collect();
        told.extend(self.given_up.iter().map(|(agent, (_, why))| ParkedAgent {
            agent: agent.clone(),
            why: why.clone(),
            until: None,
        }));
        told.sort_by(|a, b| a.agent.cmp(&b.agent));
        told
    }

    /// What a store knows, from the last attempts at its tasks.
    pub(super) async fn recorded<'a, S: Store>(
        store: &S,
        latest: impl Iterator<Item = &'a Attempt>,
    ) -> Result<Self, StoreError> {
        let mut parking = Self::default();
        parking.look(store, latest).await?;
        Ok(parking)
    }

    /// Looks again. Whoever retries a task does not want its agent to wait any longer.
    async fn look<'a, S: Store>(
        &mut self,
        store: &S,
        latest: impl Iterator<Item = &'a Attempt>,
    ) -> Result<(), StoreError> {
        for attempt in latest {
            match &attempt.phase {
                Phase::Over(Ending::Parked(parked)) => self.learn(attempt.clone(), parked),
                _ => drop(self.found.remove(&attempt.task)),
            }
        }
        let mut forgiven = Vec::new();
        for (key, (attempt, _)) in &self.found {
            if store.forgiven(key).await? >= attempt.epoch {
                forgiven.push(key.clone());
            }
        }
        forgiven.iter().for_each(|key| drop(self.found.remove(key)));
        let mut helped = Vec::new();
        for (agent, (attempt, _)) in &self.given_up {
            if store.forgiven(&attempt.task).await? >= attempt.epoch {
                helped.push(agent.clone());
            }
        }
        for agent in helped {
            self.given_up.remove(&agent);
            self.misses.remove(&agent);
        }
        Ok(())
    }
}

impl<S: Store> Dispatcher<S> {
    pub(super) async fn look_at_parked(&mut self) -> Result<(), RunError> {
        Ok(self.parking.look(&*self.shop.store, self.latest.values()).await?)
    }

    pub(super) fn parked_until(&self) -> HashMap<String, Instant> {
        self.parking.until(clock::wall(), BootClock.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn attempt(id: &str, agent: &str) -> Attempt {
        Attempt::sample(id, agent, Phase::Claimed)
    }

    fn parked(want: Want, until: Option<i64>) -> Parked {
        Parked { want, reason: "r".into(), until }
    }

    #[test]
    fn an_agent_waits_for_the_last_of_its_reasons() {
        let mut parking = Parking::default();
        parking.park(attempt("T1", "codex"), &parked(Want::Quota, Some(130)));
        parking.park(attempt("T2", "codex"), &parked(Want::Quota, Some(160)));
        parking.park(attempt("T3", "claude"), &parked(Want::Quota, Some(90)));
        let until = parking.until(100, Instant(0));
        assert_eq!(until, HashMap::from([("codex".to_owned(), Instant(0) + Duration::from_secs(60))]));
        assert_eq!(
            parking.told(100),
            [ParkedAgent { agent: "codex".into(), why: "r".into(), until: Some(160) }]
        );
        assert_eq!(parking.why_not("codex"), None);
    }

    #[test]
    fn an_agent_that_a_person_has_to_help_is_not_tried_again() {
        let mut parking = Parking::default();
        parking.park(attempt("T1", "codex"), &parked(Want::Person, None));
        assert!(parking.why_not("codex").is_some_and(|why| why.contains("codex can't be used: r")));
        assert!(parking.until(0, Instant(0)).is_empty());
    }

    #[test]
    fn a_model_that_stays_out_of_reach_is_given_up() {
        let mut parking = Parking::default();
        for _ in 1..MISSES {
            parking.park(attempt("T1", "codex"), &parked(Want::Model, Some(10)));
        }
        assert_eq!(parking.why_not("codex"), None);
        parking.worked("codex");
        assert!(parking.until(0, Instant(0)).is_empty(), "it is there again");
        for _ in 0..MISSES {
            parking.park(attempt("T1", "codex"), &parked(Want::Model, Some(10)));
        }
        assert!(parking.why_not("codex").is_some());
    }
}
