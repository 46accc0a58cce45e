//! Agents that can't work now: which, until when, and why. What one attempt ran into, the others of the same agent
//! would too.

use std::collections::HashMap;

use crate::attempt::{Attempt, AttemptEnd, Epoch, ParkDetails, ParkReason, Phase, TaskKey};
use crate::clock::BootInstant;
use crate::driver::park_policy::LONGEST;
use crate::run_event::ParkedAgent;
use crate::store::{AttemptStore, AttemptStoreError};

/// How often in a row an agent's model may be out of reach until the agent is not tried any more in this run.
const MISSES: u32 = 5;

/// Which agents wait.
#[derive(Debug, Default)]
pub(super) struct ParkedAgents {
    /// By the attempt that ran into it.
    found: HashMap<TaskKey, (Attempt, ParkDetails)>,
    /// Those that are not tried any more in this run.
    given_up: HashMap<String, (Attempt, String)>,
    misses: HashMap<String, u32>,
}

impl ParkedAgents {
    /// An attempt ran into it here.
    pub(super) fn park(&mut self, attempt: Attempt, parked: &ParkDetails) {
        let agent = attempt.agent.clone();
        let misses = self.misses.entry(agent.clone()).or_default();
        *misses = if parked.want == ParkReason::Model { *misses + 1 } else { 0 };
        if parked.until.is_none() || *misses >= MISSES {
            self.given_up.insert(agent, (attempt, parked.reason.clone()));
        } else {
            self.learn(attempt, parked);
        }
    }

    /// An attempt ran into it, here or elsewhere, now or before.
    fn learn(&mut self, attempt: Attempt, parked: &ParkDetails) {
        if parked.until.is_some() {
            self.found.insert(attempt.task.clone(), (attempt, parked.clone()));
        }
    }

    /// An agent has worked: its model is there.
    pub(super) fn worked(&mut self, agent: &str) {
        self.misses.remove(agent);
        self.found.retain(|_, (attempt, parked)| attempt.agent != agent || parked.want != ParkReason::Model);
    }

    /// Why an agent is not tried any more.
    pub(super) fn why_not(&self, agent: &str) -> Option<String> {
        self.given_up.get(agent).map(|(_, why)| format!("{agent} can't be used: {why}"))
    }

    /// Until when each agent waits.
    pub(super) fn until(&self, wall: i64, now: BootInstant) -> HashMap<String, BootInstant> {
        let mut waits: HashMap<String, BootInstant> = HashMap::new();
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
        let mut told: HashMap<&str, &ParkDetails> = HashMap::new();
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
    pub(super) async fn recorded<S: AttemptStore>(
        store: &S,
        latest: &[Attempt],
    ) -> Result<Self, AttemptStoreError> {
        let mut parking = Self::default();
        parking.look(latest.iter(), &forgiven(store, Vec::new(), latest).await?);
        Ok(parking)
    }

    /// The tasks whose attempts ran into it.
    pub(super) fn tasks(&self) -> Vec<TaskKey> {
        let given_up = self.given_up.values().map(|(attempt, _)| &attempt.task);
        self.found.keys().chain(given_up).cloned().collect()
    }

    /// Looks again. A person who retries a task does not want its agent to wait any longer.
    pub(super) fn look<'a>(
        &mut self,
        latest: impl Iterator<Item = &'a Attempt>,
        forgiven: &HashMap<TaskKey, Epoch>,
    ) {
        for attempt in latest {
            match &attempt.phase {
                Phase::Over(AttemptEnd::Parked(parked)) => self.learn(attempt.clone(), parked),
                _ => drop(self.found.remove(&attempt.task)),
            }
        }
        let is_forgiven =
            |attempt: &Attempt| forgiven.get(&attempt.task).is_some_and(|upto| *upto >= attempt.epoch);
        self.found.retain(|_, (attempt, _)| !is_forgiven(attempt));
        let helped = self.given_up.iter().filter(|(_, (attempt, _))| is_forgiven(attempt));
        for agent in helped.map(|(agent, _)| agent.clone()).collect::<Vec<String>>() {
            self.given_up.remove(&agent);
            self.misses.remove(&agent);
        }
    }
}

/// Up to which attempt tasks were forgiven for which an agent waits: those that are named, and those whose last attempt ran
/// into it.
pub(super) async fn forgiven<S: AttemptStore>(
    store: &S,
    mut tasks: Vec<TaskKey>,
    latest: &[Attempt],
) -> Result<HashMap<TaskKey, Epoch>, AttemptStoreError> {
    let parked = |attempt: &&Attempt| matches!(attempt.phase, Phase::Over(AttemptEnd::Parked(_)));
    tasks.extend(latest.iter().filter(parked).map(|attempt| attempt.task.clone()));
    let mut forgiven = HashMap::new();
    for task in tasks {
        let upto = store.forgiven(&task).await?;
        forgiven.insert(task, upto);
    }
    Ok(forgiven)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn attempt(id: &str, agent: &str) -> Attempt {
        Attempt::sample(id, agent, Phase::Claimed)
    }

    fn parked(want: ParkReason, until: Option<i64>) -> ParkDetails {
        ParkDetails { want, reason: "r".into(), until }
    }

    #[test]
    fn an_agent_waits_for_the_last_of_its_reasons() {
        let mut parking = ParkedAgents::default();
        parking.park(attempt("T1", "codex"), &parked(ParkReason::Quota, Some(130)));
        parking.park(attempt("T2", "codex"), &parked(ParkReason::Quota, Some(160)));
        parking.park(attempt("T3", "claude"), &parked(ParkReason::Quota, Some(90)));
        let until = parking.until(100, BootInstant(0));
        assert_eq!(until, HashMap::from([("codex".to_owned(), BootInstant(0) + Duration::from_secs(60))]));
        assert_eq!(
            parking.told(100),
            [ParkedAgent { agent: "codex".into(), why: "r".into(), until: Some(160) }]
        );
        assert_eq!(parking.why_not("codex"), None);
    }

    #[test]
    fn an_agent_that_a_person_has_to_help_is_not_tried_again() {
        let mut parking = ParkedAgents::default();
        parking.park(attempt("T1", "codex"), &parked(ParkReason::Person, None));
        assert!(parking.why_not("codex").is_some_and(|why| why.contains("codex can't be used: r")));
        assert!(parking.until(0, BootInstant(0)).is_empty());
    }

    #[test]
    fn a_model_that_stays_out_of_reach_is_given_up() {
        let mut parking = ParkedAgents::default();
        for _ in 1..MISSES {
            parking.park(attempt("T1", "codex"), &parked(ParkReason::Model, Some(10)));
        }
        assert_eq!(parking.why_not("codex"), None);
        parking.worked("codex");
        assert!(parking.until(0, BootInstant(0)).is_empty(), "it is there again");
        for _ in 0..MISSES {
            parking.park(attempt("T1", "codex"), &parked(ParkReason::Model, Some(10)));
        }
        assert!(parking.why_not("codex").is_some());
    }
}
