//! How many of an agent are at work at the same time, whether they build or judge.
//!
//! An agent that judges is the same program, with the same quota, as one that builds; so both count. An attempt has a
//! place only while its agent is at work, and an attempt that has one waits for no other: a builder gives its own back
//! before its work is judged. So attempts never wait in a circle. One that waits to judge goes before one that would
//! begin: work that is nearly done goes first, and is not overtaken for ever. Only an agent that is at work already is
//! counted without asking: an attempt that was taken over before its agent had begun waits like any other.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// How many of each agent are at work here.
#[derive(Debug, Default)]
pub(crate) struct AgentSlots {
    /// By agent, where it has a number of its own.
    most: BTreeMap<String, usize>,
    counts: Mutex<HashMap<String, SlotCount>>,
    freed: Notify,
}

#[derive(Debug, Default, Clone, Copy)]
struct SlotCount {
    building: usize,
    judging: usize,
    /// To judge.
    waiting: usize,
}

/// What a place is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotPurpose {
    Build,
    Judge,
    /// To wait for a place to judge.
    Wait,
}

impl SlotCount {
    fn of(&mut self, duty: SlotPurpose) -> &mut usize {
        match duty {
            SlotPurpose::Build => &mut self.building,
            SlotPurpose::Judge => &mut self.judging,
            SlotPurpose::Wait => &mut self.waiting,
        }
    }

    /// Whether there is room for one more.
    fn leaves_room(self, duty: SlotPurpose, most: usize) -> bool {
        let at_work = self.building + self.judging;
        match duty {
            SlotPurpose::Build => at_work + self.waiting < most,
            SlotPurpose::Judge => at_work < most,
            SlotPurpose::Wait => true,
        }
    }
}

/// A place that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    slots: Arc<AgentSlots>,
    agent: String,
    duty: SlotPurpose,
}

impl SlotGuard {
    pub(crate) fn is_for(&self, agent: &str, duty: SlotPurpose) -> bool {
        self.agent == agent && self.duty == duty
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        if let Some(count) = self.slots.counts().get_mut(&self.agent) {
            *count.of(self.duty) -= 1;
        }
        self.slots.freed.notify_waiters();
    }
}

impl AgentSlots {
    pub(crate) fn new(most: BTreeMap<String, usize>) -> Arc<Self> {
        Arc::new(Self { most, ..Self::default() })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<String, SlotCount>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, if there is one.
    pub(crate) fn try_acquire(self: &Arc<Self>, agent: &str, duty: SlotPurpose) -> Option<SlotGuard> {
        let most = self.most.get(agent).copied().unwrap_or(usize::MAX);
        let mut counts = self.counts();
        let count = counts.entry(agent.to_owned()).or_default();
        if !count.leaves_room(duty, most) {
            return None;
        }
        *count.of(duty) += 1;
        drop(counts);
        Some(SlotGuard { slots: Arc::clone(self), agent: agent.to_owned(), duty })
    }

    /// A place for an agent that is at work already, begun by any supervisor.
    pub(crate) fn acquire_for_running(self: &Arc<Self>, agent: &str, duty: SlotPurpose) -> SlotGuard {
        *self.counts().entry(agent.to_owned()).or_default().of(duty) += 1;
        SlotGuard { slots: Arc::clone(self), agent: agent.to_owned(), duty }
    }

    /// Waits for a place. An attempt that waits to judge goes first; one that stops waiting is not waited for.
    pub(crate) async fn acquire(self: &Arc<Self>, agent: &str, duty: SlotPurpose) -> SlotGuard {
        let waiting =
            (duty == SlotPurpose::Judge).then(|| self.acquire_for_running(agent, SlotPurpose::Wait));
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on nothing that is freed is missed.
            freed.as_mut().enable();
            if let Some(slot) = self.try_acquire(agent, duty) {
                drop(waiting);
                return slot;
            }
            freed.await;
        }
    }

    /// How many of each agent judge, or wait to.
    pub(crate) fn judging(&self) -> HashMap<String, usize> {
        self.counts().iter().map(|(agent, count)| (agent.clone(), count.judging + count.waiting)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn slots() -> Arc<AgentSlots> {
        AgentSlots::new(BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 1)]))
    }

    /// Asks once, without waiting.
    fn now<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn builders_and_judges_count_alike() {
        let slots = slots();
        let building = slots.try_acquire("a", SlotPurpose::Build).expect("there is room");
        assert!(
            slots.try_acquire("a", SlotPurpose::Build).is_none()
                && slots.try_acquire("a", SlotPurpose::Judge).is_none()
        );
        assert!(
            slots.try_acquire("b", SlotPurpose::Judge).is_some()
                && slots.try_acquire("anybody", SlotPurpose::Build).is_some()
        );
        drop(building);
        let judging = slots.try_acquire("a", SlotPurpose::Judge).expect("there is room");
        assert!(slots.try_acquire("a", SlotPurpose::Build).is_none());
        assert_eq!(slots.judging()["a"], 1);
        drop(judging);
        assert!(slots.try_acquire("a", SlotPurpose::Build).is_some());
    }

    #[test]
    fn who_waits_to_judge_comes_before_who_would_begin() {
        let slots = slots();
        let building = slots.try_acquire("a", SlotPurpose::Build).expect("there is room");
        let mut builder = pin!(slots.acquire("a", SlotPurpose::Build));
        assert!(now(builder.as_mut()).is_none());
        let mut judge = pin!(slots.acquire("a", SlotPurpose::Judge));
        assert!(now(judge.as_mut()).is_none());
        drop(building);
        assert!(now(builder.as_mut()).is_none(), "somebody waits");
        assert!(slots.try_acquire("a", SlotPurpose::Build).is_none(), "somebody waits");
        let judging = now(judge.as_mut()).expect("its turn");
        assert!(judging.is_for("a", SlotPurpose::Judge));
        assert_eq!(slots.judging()["a"], 1);
        assert!(now(builder.as_mut()).is_none());
        drop(judging);
        assert!(now(builder).is_some_and(|slot| slot.is_for("a", SlotPurpose::Build)));
    }

    #[test]
    fn who_waits_to_begin_is_told_when_nobody_waits_to_judge_any_more() {
        let slots = slots();
        let building = slots.try_acquire("a", SlotPurpose::Build).expect("there is room");
        let mut builder = pin!(slots.acquire("a", SlotPurpose::Build));
        {
            let mut judge = pin!(slots.acquire("a", SlotPurpose::Judge));
            assert!(now(judge.as_mut()).is_none());
            drop(building);
            assert!(now(builder.as_mut()).is_none());
        }
        assert!(now(builder).is_some());
    }

    #[test]
    fn who_stops_waiting_is_not_waited_for() {
        let slots = slots();
        let _found = [
            slots.acquire_for_running("a", SlotPurpose::Judge),
            slots.acquire_for_running("a", SlotPurpose::Judge),
        ];
        {
            let mut judge = pin!(slots.acquire("a", SlotPurpose::Judge));
            assert!(now(judge.as_mut()).is_none());
            assert_eq!(slots.judging()["a"], 3, "those that were found count, however many");
        }
        assert_eq!(slots.judging()["a"], 2);
    }

    /// Each was built by whom the other is judged by. A builder that kept its place would wait for ever.
    #[test]
    fn two_that_judge_each_other_do_not_wait_in_a_circle() {
        let slots = slots();
        let places =
            ["a", "b"].map(|agent| slots.try_acquire(agent, SlotPurpose::Build).expect("there is room"));
        let (mut one, mut other) =
            (pin!(slots.acquire("b", SlotPurpose::Judge)), pin!(slots.acquire("a", SlotPurpose::Judge)));
        assert!(now(one.as_mut()).is_none() && now(other.as_mut()).is_none());
        // Their agents have ended.
        drop(places);
        assert!(now(one).is_some() && now(other).is_some());
    }
}
