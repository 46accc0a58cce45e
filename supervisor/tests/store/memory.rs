//! The simple store: what the others are compared with. It keeps all that ever happened and derives its answers
//! from that, where a database keeps counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agency_supervisor::attempt::{
    Attempt, AttemptEnd, Epoch, HumanDecision, Lease, LeaseHolder, Phase, TaskKey, Term, UsageTotals,
};
use agency_supervisor::clock::{BootInstant, Clock, ManualClock};
use agency_supervisor::store::{
    AttemptStore, AttemptStoreError, ClaimRequest, ClaimResult, QueueMode, StoreEvent, SupervisorProcess,
};

use crate::place::{Picture, Place, pass_wall, wall};

/// A connection to a store that is gone when the last one is.
#[derive(Debug)]
pub(crate) struct Memory {
    state: Arc<Mutex<State>>,
    clock: Arc<ManualClock>,
    /// Without it, whoever asks is believed. Only there to be found out.
    fence: bool,
}

#[derive(Debug, Default)]
struct State {
    mode: QueueMode,
    owners: BTreeMap<Term, Supervisor>,
    /// By task and epoch.
    attempts: BTreeMap<(TaskKey, Epoch), Attempt>,
    events: Vec<StoreEvent>,
    failed: Vec<(TaskKey, Epoch)>,
    forgiven: BTreeMap<TaskKey, Epoch>,
    changes: u64,
}

#[derive(Debug)]
struct Supervisor {
    owner: SupervisorProcess,
    left_at: Option<i64>,
    forgotten: bool,
}

impl State {
    fn in_charge(&self, term: Term) -> Result<(), AttemptStoreError> {
        match self.owners.get(&term) {
            Some(Supervisor { left_at: None, .. }) => Ok(()),
            _ => Err(AttemptStoreError::NotInCharge(term)),
        }
    }

    fn last(&self, task: &TaskKey) -> Option<&Attempt> {
        self.attempts.values().rfind(|attempt| attempt.task == *task)
    }

    /// The attempt of a lease, if it still counts.
    fn held(&mut self, lease: &Lease, fence: bool) -> Option<&mut Attempt> {
        let attempt = self.attempts.get_mut(&(lease.task.clone(), lease.epoch))?;
        (!fence || attempt.lease().as_ref() == Some(lease)).then_some(attempt)
    }

    fn tell(&mut self, lease: &Lease, what: &str, detail: String) {
        let number = u64::try_from(self.events.len()).expect("memory") + 1;
        self.events.push(StoreEvent {
            number,
            task: lease.task.clone(),
            epoch: lease.epoch,
            term: lease.term,
            at: wall(),
            what: what.into(),
            detail,
        });
        if let Some(attempt) = self.attempts.get_mut(&(lease.task.clone(), lease.epoch)) {
            attempt.recorded_at = wall();
        }
    }

    fn began(&self, attempt: &Attempt) -> u64 {
        let of = |event: &&StoreEvent| event.task == attempt.task && event.epoch == attempt.epoch;
        self.events.iter().find(of).map_or(0, |event| event.number)
    }
}

fn json(phase: &Phase) -> String {
    serde_json::to_string(phase).expect("JSON")
}

impl Memory {
    fn read(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> MutexGuard<'_, State> {
        let mut state = self.read();
        state.changes += 1;
        state
    }

    fn holding(&self, term: Term, ttl: Duration) -> LeaseHolder {
        LeaseHolder { term, until: self.clock.now() + ttl }
    }
}

impl AttemptStore for Memory {
    async fn now(&self) -> Result<BootInstant, AttemptStoreError> {
        Ok(self.clock.now())
    }

    async fn enter(&self, owner: &SupervisorProcess) -> Result<Term, AttemptStoreError> {
        let mut state = self.write();
        let term = Term(state.owners.last_key_value().map_or(0, |(last, _)| last.0) + 1);
        state.owners.insert(term, Supervisor { owner: owner.clone(), left_at: None, forgotten: false });
        Ok(term)
    }

    async fn leave(&self, term: Term) -> Result<(), AttemptStoreError> {
        let mut state = self.write();
        if let Some(supervisor) = state.owners.get_mut(&term) {
            supervisor.left_at.get_or_insert(wall());
        }
        for held in state.attempts.values_mut().filter_map(|attempt| attempt.held.as_mut()) {
            if held.term == term {
                held.until = BootInstant(0);
            }
        }
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<(Term, SupervisorProcess)>, AttemptStoreError> {
        let state = self.read();
        let known = state.owners.iter().filter(|(_, supervisor)| !supervisor.forgotten);
        Ok(known.map(|(term, supervisor)| (*term, supervisor.owner.clone())).collect())
    }

    async fn claim(
        &self,
        claim: &ClaimRequest<'_>,
        term: Term,
        ttl: Duration,
    ) -> Result<ClaimResult, AttemptStoreError> {
        let mut state = self.write();
        state.in_charge(term)?;
        let last = state.last(claim.task);
        if last.is_some_and(|last| last.held.is_some()) || last.map(|last| last.epoch) != claim.after {
            return Ok(ClaimResult::Taken);
        }
        let epoch = Epoch(last.map_or(claim.beyond.0, |last| last.epoch.0) + 1);
        let attempt = Attempt {
            task: claim.task.clone(),
            epoch,
            title: claim.title.into(),
            agent: claim.agent.into(),
            phase: Phase::Claimed,
            held: Some(self.holding(term, ttl)),
            cancel: false,
            answer: None,
            spent: UsageTotals::default(),
            claimed_at: wall(),
            recorded_at: wall(),
        };
        let lease = Lease { task: claim.task.clone(), epoch, term };
        state.attempts.insert((claim.task.clone(), epoch), attempt);
        state.tell(&lease, "claimed", json(&Phase::Claimed));
        Ok(ClaimResult::Held(lease))
    }

    async fn renew(&self, term: Term, ttl: Duration) -> Result<Vec<Lease>, AttemptStoreError> {
        let mut state = self.write();
        if state.in_charge(term).is_err() {
            return Ok(Vec::new());
        }
        let until = self.holding(term, ttl);
        let held = state.attempts.values_mut().filter(|one| one.held.is_some_and(|held| held.term == term));
        Ok(held
            .filter_map(|attempt| {
                attempt.held = Some(until);
                attempt.lease()
            })
            .collect())
    }

    async fn adopt(
        &self,
        seen: &Lease,
        term: Term,
        ttl: Duration,
    ) -> Result<Option<Lease>, AttemptStoreError> {
        let mut state = self.write();
        state.in_charge(term)?;
        let Some(attempt) = state.held(seen, true) else { return Ok(None) };
        attempt.held = Some(self.holding(term, ttl));
        let lease = Lease { term, ..seen.clone() };
        state.tell(&lease, "adopted", format!("from term {}", seen.term));
        Ok(Some(lease))
    }

    async fn advance(&self, lease: &Lease, phase: &Phase) -> Result<(), AttemptStoreError> {
        let mut state = self.write();
        let Some(attempt) = state.held(lease, self.fence) else {
            return Err(AttemptStoreError::Fenced(lease.clone()));
        };
        attempt.phase = phase.clone();
        if phase.is_over() {
            attempt.held = None;
        }
        if matches!(phase, Phase::Over(AttemptEnd::Failed { .. })) {
            state.failed.push((lease.task.clone(), lease.epoch));
        }
        state.tell(lease, phase.name(), json(phase));
        Ok(())
    }

    async fn end(
        &self,
        lease: &Lease,
        ending: &AttemptEnd,
        spent: UsageTotals,
    ) -> Result<(), AttemptStoreError> {
        self.advance(lease, &Phase::Over(ending.clone())).await?;
        let key = (lease.task.clone(), lease.epoch);
        self.write().attempts.get_mut(&key).expect("it was just ended").spent = spent;
        Ok(())
    }

    async fn holds(&self, lease: &Lease) -> Result<bool, AttemptStoreError> {
        Ok(self.write().held(lease, true).is_some())
    }

    async fn note(&self, lease: &Lease, text: &str) -> Result<(), AttemptStoreError> {
        let mut state = self.write();
        if state.held(lease, self.fence).is_none() {
            return Err(AttemptStoreError::Fenced(lease.clone()));
        }
        state.tell(lease, "note", text.into());
        Ok(())
    }

    async fn open(&self) -> Result<Vec<Attempt>, AttemptStoreError> {
        let state = self.read();
        let mut open: Vec<Attempt> =
            state.attempts.values().filter(|attempt| attempt.held.is_some()).cloned().collect();
        open.sort_by_key(|attempt| state.began(attempt));
        Ok(open)
    }

    async fn attempts(&self, task: &TaskKey) -> Result<Vec<Attempt>, AttemptStoreError> {
        Ok(self.read().attempts.values().filter(|attempt| attempt.task == *task).cloned().collect())
    }

    async fn latest(&self) -> Result<Vec<Attempt>, AttemptStoreError> {
        let state = self.read();
        let is_last = |attempt: &&Attempt| state.last(&attempt.task) == Some(attempt);
        Ok(state.attempts.values().filter(is_last).cloned().collect())
    }

    async fn events(&self, after: u64, most: usize) -> Result<Vec<StoreEvent>, AttemptStoreError> {
        let state = self.read();
        let known = |event: &&StoreEvent| state.attempts.contains_key(&(event.task.clone(), event.epoch));
        let later = state.events.iter().filter(|event| event.number > after);
        Ok(later.filter(known).take(most).cloned().collect())
    }

    async fn ask_to_cancel(&self, task: &TaskKey) -> Result<bool, AttemptStoreError> {
        let mut state = self.write();
        let Some((lease, asked)) = state.last(task).and_then(|last| Some((last.lease()?, last.cancel)))
        else {
            return Ok(false);
        };
        if !asked {
            state.held(&lease, true).expect("it was just seen").cancel = true;
            state.tell(&lease, "cancel", String::new());
        }
        Ok(true)
    }

    async fn answer(
        &self,
        task: &TaskKey,
        epoch: Epoch,
        answer: &HumanDecision,
    ) -> Result<bool, AttemptStoreError> {
        let mut state = self.write();
        let waits = |last: &&Attempt| last.epoch == epoch && matches!(last.phase, Phase::Undecided { .. });
        let Some(lease) = state.last(task).filter(waits).and_then(Attempt::lease) else { return Ok(false) };
        state.held(&lease, true).expect("it was just seen").answer = Some(answer.clone());
        state.tell(&lease, "answer", serde_json::to_string(answer).expect("JSON"));
        Ok(true)
    }

    async fn spent(&self, task: &TaskKey) -> Result<UsageTotals, AttemptStoreError> {
        let state = self.read();
        let forgiven = state.forgiven.get(task).copied().unwrap_or(Epoch(0));
        let counts = state.attempts.values().filter(|one| one.task == *task && one.epoch > forgiven);
        Ok(counts.map(|one| one.spent).sum())
    }

    async fn forgive(&self, task: &TaskKey) -> Result<(), AttemptStoreError> {
        let mut state = self.write();
        let last = state.last(task).map_or(Epoch(0), |last| last.epoch);
        state.forgiven.insert(task.clone(), last);
        Ok(())
    }

    async fn forgiven(&self, task: &TaskKey) -> Result<Epoch, AttemptStoreError> {
        Ok(self.read().forgiven.get(task).copied().unwrap_or(Epoch(0)))
    }

    async fn failures(&self, task: &TaskKey) -> Result<u32, AttemptStoreError> {
        let state = self.read();
        let forgiven = state.forgiven.get(task).copied().unwrap_or(Epoch(0));
        let counts = state.failed.iter().filter(|(of, epoch)| of == task && *epoch > forgiven);
        Ok(u32::try_from(counts.count()).expect("few"))
    }

    async fn mode(&self) -> Result<QueueMode, AttemptStoreError> {
        Ok(self.read().mode)
    }

    async fn set_mode(&self, mode: QueueMode) -> Result<(), AttemptStoreError> {
        self.write().mode = mode;
        Ok(())
    }

    async fn version(&self) -> Result<u64, AttemptStoreError> {
        Ok(self.read().changes)
    }

    async fn prune(&self, before: i64) -> Result<u64, AttemptStoreError> {
        let mut state = self.write();
        let goes = |attempt: &Attempt| {
            let is_last = state.last(&attempt.task) == Some(attempt);
            attempt.phase.is_over() && attempt.recorded_at < before && !is_last
        };
        let gone: Vec<_> =
            state.attempts.iter().filter(|(_, attempt)| goes(attempt)).map(|(key, _)| key.clone()).collect();
        for key in &gone {
            state.attempts.remove(key);
        }
        let holders: Vec<Term> =
            state.attempts.values().filter_map(|attempt| Some(attempt.held?.term)).collect();
        for (term, supervisor) in &mut state.owners {
            let left = supervisor.left_at.is_some_and(|at| at < before);
            supervisor.forgotten |= left && !holders.contains(term);
        }
        Ok(u64::try_from(gone.len()).expect("memory"))
    }
}

#[derive(Debug)]
pub(crate) struct InMemory {
    state: Arc<Mutex<State>>,
    clock: Arc<ManualClock>,
}

impl InMemory {
    /// By the clock of another place.
    pub(crate) fn by(clock: &Arc<ManualClock>) -> Self {
        Self { state: Arc::default(), clock: clock.clone() }
    }

    pub(crate) fn open_without_a_fence(&self) -> Memory {
        Memory { state: self.state.clone(), clock: self.clock.clone(), fence: false }
    }
}

impl Place for InMemory {
    type Store = Memory;

    fn new() -> Self {
        Self::by(&Arc::new(ManualClock::at(BootInstant(1_000_000))))
    }

    async fn open(&self) -> Memory {
        Memory { fence: true, ..self.open_without_a_fence() }
    }

    async fn picture(&self) -> Picture {
        let state = self.state.lock().expect("nobody panicked");
        // Without the number of changes, in which those that were refused are counted, too.
        let State { mode, owners, attempts, events, failed, forgiven, changes: _ } = &*state;
        let rows = format!("{mode:?} {owners:?} {attempts:?} {events:?} {failed:?} {forgiven:?}");
        Picture { rows, bytes: Vec::new() }
    }

    fn pass(&self, duration: Duration) {
        self.clock.advance(duration);
        pass_wall(duration);
    }
}
