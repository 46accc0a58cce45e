//! What is forgotten, and what is not.

use std::time::Duration;

use agency_supervisor::attempt::{AttemptEnd, Epoch, Term};
use agency_supervisor::store::AttemptStore;

use crate::place::{
    Place, adopt, all_events, assert_not_in_charge, claim_after, end, enter, failed, hold, task, wall, whole,
};

const DAY: Duration = Duration::from_secs(86_400);

async fn epochs(store: &impl AttemptStore, id: &str) -> Vec<u64> {
    store.attempts(&task(id)).await.expect("read").iter().map(|attempt| attempt.epoch.0).collect()
}

pub(crate) async fn the_last_attempt_of_each_task_and_open_ones_stay<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    for _ in 0..3 {
        whole(&store, term, "over", failed()).await;
        whole(&store, term, "open", failed()).await;
    }
    hold(&store, term, "open").await;
    hold(&store, term, "first").await;
    place.pass(DAY);
    assert_eq!(store.prune(wall()).await.expect("pruned"), 5);
    assert_eq!(epochs(&store, "over").await, [3]);
    assert_eq!(epochs(&store, "open").await, [4]);
    assert_eq!(epochs(&store, "first").await, [1]);
    let before = place.picture().await;
    assert_eq!(store.prune(i64::MAX).await.expect("pruned"), 0);
    assert_eq!(place.picture().await, before);
    assert_eq!(store.renew(term, DAY).await.expect("renewed").len(), 2);
}

pub(crate) async fn events_go_with_their_attempts_and_their_numbers_are_not_given_again<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    let first = hold(&store, term, "T1").await;
    let other = hold(&store, term, "T2").await;
    store.note(&first, "a note").await.expect("held");
    end(&store, &first, failed()).await;
    end(&store, &other, failed()).await;
    whole(&store, term, "T1", failed()).await;
    assert_eq!(store.prune(wall() + 1).await.expect("pruned"), 1);
    let numbers =
        async || -> Vec<u64> { all_events(&store).await.iter().map(|event| event.number).collect() };
    assert_eq!(numbers().await, [2, 5, 6, 7]);
    whole(&store, term, "T2", failed()).await;
    assert_eq!(numbers().await, [2, 5, 6, 7, 8, 9]);
    assert_eq!(store.events(2, 2).await.expect("read").len(), 2, "a page is not cut short by what is gone");
}

pub(crate) async fn what_was_recorded_since_stays<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    whole(&store, term, "T1", failed()).await;
    let long = hold(&store, term, "T1").await;
    place.pass(DAY);
    // Claimed long ago, and only now over.
    end(&store, &long, failed()).await;
    whole(&store, term, "T1", failed()).await;
    assert_eq!(store.prune(wall()).await.expect("pruned"), 1);
    assert_eq!(epochs(&store, "T1").await, [2, 3]);
    assert_eq!(store.prune(i64::MIN).await.expect("pruned"), 0);
    assert_eq!(store.prune(0).await.expect("pruned"), 0);
}

pub(crate) async fn epochs_go_on_after_pruning<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    for _ in 0..3 {
        whole(&store, term, "T1", failed()).await;
    }
    assert_eq!(store.prune(i64::MAX).await.expect("pruned"), 2);
    assert_eq!(hold(&store, term, "T1").await.epoch, Epoch(4));
}

pub(crate) async fn supervisors_that_left_are_forgotten_and_their_terms_are_not_given_again<P: Place>(
    place: &P,
) {
    let store = place.open().await;
    let (old, recent, here) = (enter(&store).await, enter(&store).await, enter(&store).await);
    store.leave(old).await.expect("left");
    place.pass(DAY);
    store.leave(recent).await.expect("left");
    store.prune(wall()).await.expect("pruned");
    let terms = async || -> Vec<Term> {
        store.owners().await.expect("read").into_iter().map(|(term, _)| term).collect()
    };
    assert_eq!(terms().await, [recent, here]);
    assert_not_in_charge(claim_after(&store, old, "T1", None).await, old);
    store.leave(here).await.expect("left");
    store.prune(wall() + 1).await.expect("pruned");
    assert_eq!(terms().await, []);
    assert_eq!(enter(&store).await, Term(4));
}

pub(crate) async fn a_supervisor_that_left_something_open_is_not_forgotten<P: Place>(place: &P) {
    let store = place.open().await;
    let (gone, heir) = (enter(&store).await, enter(&store).await);
    let lease = hold(&store, gone, "T1").await;
    store.leave(gone).await.expect("left");
    store.prune(i64::MAX).await.expect("pruned");
    assert_eq!(store.owners().await.expect("read").len(), 2, "whose it is must be known");
    let lease = adopt(&store, &lease, heir).await;
    store.prune(i64::MAX).await.expect("pruned");
    assert_eq!(store.owners().await.expect("read").len(), 1);
    end(&store, &lease, AttemptEnd::Canceled).await;
}
