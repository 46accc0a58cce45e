//! Whoever lost a lease changes nothing with it, and is told so; and this suite would notice if it were not so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use agency_supervisor::attempt::{
    AgentWork, Attempt, AttemptEnd, Epoch, HumanDecision, Lease, Merge, Phase, TaskKey, Term, UsageTotals,
    WorkResult,
};
use agency_supervisor::clock::BootInstant;
use agency_supervisor::store::{
    AttemptStore, AttemptStoreError, ClaimRequest, ClaimResult, QueueMode, StoreEvent, SupervisorProcess,
};

use crate::memory::{InMemory, Memory};
use crate::place::{
    Place, TTL, adopt, all_events, assert_fenced, block_on, blocked, end, enter, failed, hold, task, whole,
};

/// Every phase an owner may want to record.
fn phases() -> Vec<Phase> {
    let merge = Merge {
        work: AgentWork { base: "b".into(), candidate: "c".into() },
        audit: None,
        onto: None,
        commit: Some("m".into()),
        number: 1,
        lost: 0,
    };
    let endings = [AttemptEnd::Done { commit: "m".into() }, AttemptEnd::Canceled, blocked(), failed()];
    let mut phases = vec![
        Phase::Claimed,
        Phase::Started,
        Phase::Ended(WorkResult::Canceled),
        Phase::Merged(merge.clone()),
        Phase::Proved { merge, passed: true },
        Phase::Landed { commit: "m".into() },
    ];
    phases.extend(endings.map(Phase::Over));
    phases
}

/// Tries everything that can be done with a lease that is lost, and returns what should not have been possible.
async fn violations<P: Place>(place: &P, store: &impl AttemptStore, lost: &Lease) -> Vec<String> {
    let mut found = Vec::new();
    let mut before = place.picture().await;
    let mut judge = async |what: String, refused: bool| {
        let after = place.picture().await;
        if !refused {
            found.push(format!("{what} was not refused"));
        }
        if after != before {
            found.push(format!("{what} changed something"));
        }
        before = after;
    };
    let fenced = |answer: Result<(), AttemptStoreError>| matches!(answer, Err(AttemptStoreError::Fenced(of)) if of == *lost);
    for phase in phases() {
        let answer = store.advance(lost, &phase).await;
        judge(format!("{phase:?}"), fenced(answer)).await;
    }
    let answer =
        store.end(lost, &AttemptEnd::Canceled, UsageTotals { tokens: 7, ..UsageTotals::default() }).await;
    judge("an end".into(), fenced(answer)).await;
    let answer = store.note(lost, "a note").await;
    judge("a note".into(), fenced(answer)).await;
    let adopted = store.adopt(lost, lost.term, TTL).await;
    judge("adopting".into(), matches!(adopted, Ok(None))).await;
    found
}

/// How a lease can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Adopted,
    AdoptedAndEnded,
    NextOpen,
    NextEnded,
}

const LOSSES: [Loss; 4] = [Loss::Adopted, Loss::AdoptedAndEnded, Loss::NextOpen, Loss::NextEnded];

/// A lease that was lost this way, while its owner believes to be in charge.
async fn lost(store: &impl AttemptStore, loss: Loss) -> Lease {
    let (old, new) = (enter(store).await, enter(store).await);
    // Another task of the same owner, which is still held, must not count for this one.
    hold(store, old, "T0").await;
    let lost = hold(store, old, "T1").await;
    store.advance(&lost, &Phase::Started).await.expect("held");
    let newer = adopt(store, &lost, new).await;
    if loss == Loss::Adopted {
        return lost;
    }
    end(store, &newer, blocked()).await;
    match loss {
        Loss::NextOpen => drop(hold(store, new, "T1").await),
        Loss::NextEnded => drop(whole(store, new, "T1", blocked()).await),
        Loss::Adopted | Loss::AdoptedAndEnded => {}
    }
    lost
}

async fn assert_held_by_the_fence<P: Place>(place: &P, loss: Loss) {
    let (store, other) = (place.open().await, place.open().await);
    let lost = lost(&store, loss).await;
    for store in [&store, &other] {
        assert_eq!(violations(place, store, &lost).await, [] as [String; 0]);
    }
}

pub(crate) async fn a_lease_that_was_adopted_changes_nothing_any_more<P: Place>(place: &P) {
    assert_held_by_the_fence(place, Loss::Adopted).await;
}

pub(crate) async fn a_lease_stays_lost_when_the_newer_owner_ended_blocked<P: Place>(place: &P) {
    assert_held_by_the_fence(place, Loss::AdoptedAndEnded).await;
}

pub(crate) async fn a_lease_stays_lost_when_the_next_attempt_is_open<P: Place>(place: &P) {
    assert_held_by_the_fence(place, Loss::NextOpen).await;
}

pub(crate) async fn a_lease_stays_lost_when_the_next_attempt_ended_blocked<P: Place>(place: &P) {
    assert_held_by_the_fence(place, Loss::NextEnded).await;
}

/// The term is the same, and still in charge: it is the epoch that tells.
pub(crate) async fn a_lease_of_an_attempt_that_the_same_term_ended_is_lost<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    let first = whole(&store, term, "T1", failed()).await;
    assert_eq!(violations(place, &store, &first).await, [] as [String; 0]);
    let second = hold(&store, term, "T1").await;
    assert_eq!(violations(place, &store, &first).await, [] as [String; 0]);
    store.note(&second, "still held").await.expect("held");
}

pub(crate) async fn a_lease_that_was_never_given_changes_nothing<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    let real = hold(&store, term, "T1").await;
    let mut elsewhere = real.clone();
    elsewhere.task.protocol = "other".into();
    let forged = [
        Lease { epoch: Epoch(2), ..real.clone() },
        Lease { epoch: Epoch(0), ..real.clone() },
        Lease { term: Term(2), ..real.clone() },
        Lease { term: Term(u64::MAX), epoch: Epoch(u64::MAX), ..real.clone() },
        Lease { task: task("T2"), ..real.clone() },
        elsewhere,
    ];
    let before = place.picture().await;
    for lease in forged {
        assert_fenced(store.advance(&lease, &Phase::Started).await, &lease);
        assert_fenced(store.note(&lease, "a note").await, &lease);
        assert_eq!(store.adopt(&lease, term, TTL).await.expect("it answers"), None);
    }
    assert_eq!(place.picture().await, before);
}

/// The old owner writes all the time while it loses its lease.
pub(crate) async fn after_an_adoption_nothing_of_the_old_owner_is_recorded<P: Place>(place: &P) {
    let store = place.open().await;
    let (old, new) = (enter(&store).await, enter(&store).await);
    let lease = hold(&store, old, "T1").await;
    let (said, heard) = mpsc::channel();
    let taken = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            block_on(async {
                let (store, mut written) = (place.open().await, 0);
                loop {
                    let late = taken.load(Ordering::SeqCst);
                    let answer = store.note(&lease, "still here").await;
                    if answer.is_err() {
                        assert_fenced(answer, &lease);
                        return written;
                    }
                    assert!(!late, "the lease was taken before this was written");
                    written += 1;
                    said.send(()).expect("somebody listens");
                }
            })
        });
        (0..5).for_each(|_| heard.recv().expect("it writes"));
        scope.spawn(|| block_on(adopt(&store, &lease, new))).join().expect("adopted");
        taken.store(true, Ordering::SeqCst);
        writer.join().expect("it ends well")
    });
    let events = all_events(&store).await;
    let adopted = events.iter().position(|event| event.what == "adopted").expect("adopted");
    assert!(events[..adopted].iter().all(|event| event.term == old));
    assert!(events[adopted..].iter().all(|event| event.term == new), "{events:?}");
    assert_eq!(events[..adopted].iter().filter(|event| event.what == "note").count(), written);
}

/// Two stores without a fence: one writes in the name of whoever holds the task now, the other asks nobody.
pub(crate) async fn without_the_fence_the_same_writes_are_found_out<P: Place>(place: &P) {
    let unfenced = Unfenced(place.open().await);
    let lost_lease = lost(&unfenced, Loss::Adopted).await;
    let found = violations(place, &unfenced, &lost_lease).await;
    // The first ending takes the attempt from its owner for good, and after it nothing is open.
    for what in ["Started", "Landed { commit: \"m\" }", "Over(Done { commit: \"m\" })"] {
        for verdict in ["was not refused", "changed something"] {
            assert!(found.contains(&format!("{what} {verdict}")), "{what}: {found:?}");
        }
    }
    for loss in LOSSES {
        let place = InMemory::new();
        let store: Memory = place.open_without_a_fence();
        let lost = lost(&store, loss).await;
        let found = violations(&place, &store, &lost).await;
        let writes = phases().len() + 1;
        assert!(found.len() >= 2 * writes, "{loss:?}: {found:?}");
    }
}

/// Takes whoever holds the task now for the one who asks.
#[derive(Debug)]
struct Unfenced<S>(S);

impl<S: AttemptStore> Unfenced<S> {
    async fn current(&self, lease: &Lease) -> Lease {
        let open = self.0.open().await.expect("read");
        let held = open.iter().find(|attempt| attempt.task == lease.task).and_then(Attempt::lease);
        held.unwrap_or_else(|| lease.clone())
    }
}

impl<S: AttemptStore> AttemptStore for Unfenced<S> {
    async fn advance(&self, lease: &Lease, phase: &Phase) -> Result<(), AttemptStoreError> {
        self.0.advance(&self.current(lease).await, phase).await
    }

    async fn end(
        &self,
        lease: &Lease,
        ending: &AttemptEnd,
        spent: UsageTotals,
    ) -> Result<(), AttemptStoreError> {
        self.0.end(&self.current(lease).await, ending, spent).await
    }

    async fn holds(&self, lease: &Lease) -> Result<bool, AttemptStoreError> {
        self.0.holds(&self.current(lease).await).await
    }

    async fn note(&self, lease: &Lease, text: &str) -> Result<(), AttemptStoreError> {
        self.0.note(&self.current(lease).await, text).await
    }

    async fn adopt(
        &self,
        seen: &Lease,
        term: Term,
        ttl: Duration,
    ) -> Result<Option<Lease>, AttemptStoreError> {
        self.0.adopt(&self.current(seen).await, term, ttl).await
    }

    // The rest is as it is.

    async fn now(&self) -> Result<BootInstant, AttemptStoreError> {
        self.0.now().await
    }

    async fn enter(&self, owner: &SupervisorProcess) -> Result<Term, AttemptStoreError> {
        self.0.enter(owner).await
    }

    async fn leave(&self, term: Term) -> Result<(), AttemptStoreError> {
        self.0.leave(term).await
    }

    async fn owners(&self) -> Result<Vec<(Term, SupervisorProcess)>, AttemptStoreError> {
        self.0.owners().await
    }

    async fn claim(
        &self,
        claim: &ClaimRequest<'_>,
        term: Term,
        ttl: Duration,
    ) -> Result<ClaimResult, AttemptStoreError> {
        self.0.claim(claim, term, ttl).await
    }

    async fn renew(&self, term: Term, ttl: Duration) -> Result<Vec<Lease>, AttemptStoreError> {
        self.0.renew(term, ttl).await
    }

    async fn open(&self) -> Result<Vec<Attempt>, AttemptStoreError> {
        self.0.open().await
    }

    async fn attempts(&self, task: &TaskKey) -> Result<Vec<Attempt>, AttemptStoreError> {
        self.0.attempts(task).await
    }

    async fn latest(&self) -> Result<Vec<Attempt>, AttemptStoreError> {
        self.0.latest().await
    }

    async fn events(&self, after: u64, most: usize) -> Result<Vec<StoreEvent>, AttemptStoreError> {
        self.0.events(after, most).await
    }

    async fn ask_to_cancel(&self, task: &TaskKey) -> Result<bool, AttemptStoreError> {
        self.0.ask_to_cancel(task).await
    }

    async fn answer(
        &self,
        task: &TaskKey,
        epoch: Epoch,
        answer: &HumanDecision,
    ) -> Result<bool, AttemptStoreError> {
        self.0.answer(task, epoch, answer).await
    }

    async fn spent(&self, task: &TaskKey) -> Result<UsageTotals, AttemptStoreError> {
        self.0.spent(task).await
    }

    async fn forgive(&self, task: &TaskKey) -> Result<(), AttemptStoreError> {
        self.0.forgive(task).await
    }

    async fn forgiven(&self, task: &TaskKey) -> Result<Epoch, AttemptStoreError> {
        self.0.forgiven(task).await
    }

    async fn failures(&self, task: &TaskKey) -> Result<u32, AttemptStoreError> {
        self.0.failures(task).await
    }

    async fn mode(&self) -> Result<QueueMode, AttemptStoreError> {
        self.0.mode().await
    }

    async fn set_mode(&self, mode: QueueMode) -> Result<(), AttemptStoreError> {
        self.0.set_mode(mode).await
    }

    async fn version(&self) -> Result<u64, AttemptStoreError> {
        self.0.version().await
    }

    async fn prune(&self, before: i64) -> Result<u64, AttemptStoreError> {
        self.0.prune(before).await
    }
}
