//! A kind of store, and how the promises get at one: its connections, its clocks, and all that is in it.

use std::cell::Cell;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use agency_supervisor::attempt::{
    AttemptEnd, AttemptFailure, Epoch, FailureKind, Lease, Phase, TaskKey, Term,
};
use agency_supervisor::store::{
    AttemptStore, AttemptStoreError, ClaimRequest, ClaimResult, StoreEvent, SupervisorProcess,
};

pub(crate) const TTL: Duration = Duration::from_secs(900);

/// What is read at once when all is read.
pub(crate) const ALL: usize = 1_000_000;

/// Where a store is.
pub(crate) trait Place: Sync + Sized {
    type Store: AttemptStore + 'static;

    /// An empty store.
    fn new() -> Self;

    /// One more connection to it.
    fn open(&self) -> impl Future<Output = Self::Store>;

    /// All that is in it, down to what only the store itself understands.
    fn picture(&self) -> impl Future<Output = Picture>;

    /// Lets the store's time go on, and this thread's time for people with it.
    fn pass(&self, duration: Duration);
}

/// All that is in a store, to be compared.
#[derive(PartialEq, Eq)]
pub(crate) struct Picture {
    /// What a person can read.
    pub(crate) rows: String,
    pub(crate) bytes: Vec<u8>,
}

impl Debug for Picture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\nin {} bytes", self.rows, self.bytes.len())
    }
}

thread_local! {
    static WALL: Cell<i64> = const { Cell::new(1_700_000_000) };
}

/// The time for people: it stands still, and each thread has its own.
pub(crate) fn wall() -> i64 {
    WALL.get()
}

pub(crate) fn pass_wall(duration: Duration) {
    WALL.set(wall() + i64::try_from(duration.as_secs()).expect("not that long"));
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

/// Tries a promise on a new store of a kind.
pub(crate) fn run<P: Place>(promise: impl AsyncFn(&P)) {
    let place = P::new();
    block_on(promise(&place));
}

/// Does the same on so many threads, all of which begin together, and returns what came of it.
pub(crate) fn at_once<T: Send>(count: usize, act: impl AsyncFn(usize) -> T + Sync) -> Vec<T> {
    let start = std::sync::Barrier::new(count);
    std::thread::scope(|scope| {
        let (act, start) = (&act, &start);
        let begin = |number| {
            move || {
                start.wait();
                block_on(act(number))
            }
        };
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(begin(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends well")).collect()
    })
}

/// So many connections, each with a term of its own.
pub(crate) async fn supervisors<P: Place>(place: &P, count: usize) -> Vec<(P::Store, Term)> {
    let mut all = Vec::new();
    for _ in 0..count {
        let store = place.open().await;
        let term = enter(&store).await;
        all.push((store, term));
    }
    all
}

pub(crate) fn task(id: &str) -> TaskKey {
    TaskKey { protocol: "sample".into(), id: id.into() }
}

pub(crate) fn owner(pid: u32) -> SupervisorProcess {
    SupervisorProcess { host: "host".into(), boot: "boot".into(), pid }
}

pub(crate) fn failed() -> AttemptEnd {
    AttemptEnd::failed(AttemptFailure::new(FailureKind::Exit, "it ended with 1"))
}

pub(crate) fn blocked() -> AttemptEnd {
    AttemptEnd::Blocked { reason: "which of the two?".into() }
}

pub(crate) async fn enter(store: &impl AttemptStore) -> Term {
    store.enter(&owner(1)).await.expect("it enters")
}

pub(crate) async fn claim_after(
    store: &impl AttemptStore,
    term: Term,
    id: &str,
    after: Option<u64>,
) -> Result<ClaimResult, AttemptStoreError> {
    let claim = ClaimRequest {
        task: &task(id),
        title: "A title",
        agent: "an agent",
        after: after.map(Epoch),
        beyond: Epoch(0),
    };
    store.claim(&claim, term, TTL).await
}

/// Claims the next attempt at a task.
pub(crate) async fn hold(store: &impl AttemptStore, term: Term, id: &str) -> Lease {
    let last = store.attempts(&task(id)).await.expect("read").last().map(|attempt| attempt.epoch.0);
    match claim_after(store, term, id, last).await.expect("it answers") {
        ClaimResult::Held(lease) => lease,
        ClaimResult::Taken => panic!("{id} is taken"),
    }
}

pub(crate) async fn adopt(store: &impl AttemptStore, seen: &Lease, term: Term) -> Lease {
    store.adopt(seen, term, TTL).await.expect("it answers").expect("it is as it was seen")
}

pub(crate) async fn end(store: &impl AttemptStore, lease: &Lease, ending: AttemptEnd) {
    store.advance(lease, &Phase::Over(ending)).await.expect("it is held");
}

/// Claims the next attempt at a task, and ends it.
pub(crate) async fn whole(store: &impl AttemptStore, term: Term, id: &str, ending: AttemptEnd) -> Lease {
    let lease = hold(store, term, id).await;
    end(store, &lease, ending).await;
    lease
}

pub(crate) async fn all_events(store: &impl AttemptStore) -> Vec<StoreEvent> {
    store.events(0, ALL).await.expect("read")
}

#[track_caller]
pub(crate) fn assert_fenced<T: Debug>(answer: Result<T, AttemptStoreError>, lease: &Lease) {
    assert!(matches!(&answer, Err(AttemptStoreError::Fenced(of)) if of == lease), "{answer:?}");
}

#[track_caller]
pub(crate) fn assert_not_in_charge<T: Debug>(answer: Result<T, AttemptStoreError>, term: Term) {
    assert!(matches!(&answer, Err(AttemptStoreError::NotInCharge(of)) if *of == term), "{answer:?}");
}
