//! Who is in charge: a term for each, and what it may no longer do when it has left.

use std::time::Duration;

use agency_supervisor::attempt::{AttemptEnd, Phase, Term};
use agency_supervisor::store::{AttemptStore, SupervisorProcess};

use crate::place::{
    Place, TTL, adopt, assert_not_in_charge, at_once, claim_after, end, enter, hold, owner, task,
};

pub(crate) async fn each_supervisor_gets_a_term_nobody_had_before<P: Place>(place: &P) {
    let (one, other) = (place.open().await, place.open().await);
    assert_eq!(enter(&one).await, Term(1));
    assert_eq!(enter(&other).await, Term(2));
    one.leave(Term(1)).await.expect("left");
    // The same supervisor, as far as anybody can tell.
    assert_eq!(enter(&one).await, Term(3));
    drop((one, other));
    assert_eq!(enter(&place.open().await).await, Term(4));
}

pub(crate) async fn many_who_enter_at_once_get_terms_of_their_own<P: Place>(place: &P) {
    // The store is not there yet: all of them make it.
    let mut terms = at_once(16, async |_| enter(&place.open().await).await.0);
    terms.sort_unstable();
    assert_eq!(terms, (1..=16).collect::<Vec<_>>());
}

pub(crate) async fn a_term_that_left_can_not_claim_adopt_or_renew<P: Place>(place: &P) {
    let store = place.open().await;
    let (left, other) = (enter(&store).await, enter(&store).await);
    hold(&store, left, "mine").await;
    let theirs = hold(&store, other, "theirs").await;
    store.leave(left).await.expect("left");
    let before = place.picture().await;
    assert_not_in_charge(claim_after(&store, left, "new", None).await, left);
    assert_not_in_charge(store.adopt(&theirs, left, TTL).await, left);
    assert_eq!(store.renew(left, TTL).await.expect("it answers"), []);
    assert_eq!(place.picture().await, before);
}

pub(crate) async fn a_term_that_never_entered_gets_nothing<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    let theirs = hold(&store, term, "theirs").await;
    let before = place.picture().await;
    for nobody in [Term(0), Term(2), Term(u64::MAX)] {
        assert_not_in_charge(claim_after(&store, nobody, "new", None).await, nobody);
        assert_not_in_charge(store.adopt(&theirs, nobody, TTL).await, nobody);
        assert_eq!(store.renew(nobody, TTL).await.expect("it answers"), []);
        store.leave(nobody).await.expect("it answers");
    }
    assert_eq!(place.picture().await, before);
}

pub(crate) async fn what_a_term_held_when_it_left_can_be_adopted_at_once<P: Place>(place: &P) {
    let store = place.open().await;
    let (left, next) = (enter(&store).await, enter(&store).await);
    let lease = hold(&store, left, "T1").await;
    let held = store.open().await.expect("read")[0].held.expect("held");
    assert!(held.until > store.now().await.expect("a time"), "its time is not up");
    store.leave(left).await.expect("left");
    let held = store.open().await.expect("read")[0].held.expect("still held");
    assert_eq!(held.term, left);
    assert!(held.until <= store.now().await.expect("a time"), "its time is up");
    let adopted = adopt(&store, &lease, next).await;
    end(&store, &adopted, AttemptEnd::Canceled).await;
}

pub(crate) async fn a_term_that_left_may_finish_what_nobody_took<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    let lease = hold(&store, term, "T1").await;
    store.leave(term).await.expect("left");
    store.advance(&lease, &Phase::Started).await.expect("still its own");
    end(&store, &lease, AttemptEnd::Canceled).await;
    assert_eq!(store.open().await.expect("read"), []);
    assert_not_in_charge(claim_after(&store, term, "T1", Some(1)).await, term);
}

pub(crate) async fn leaving_twice_is_leaving_once<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    store.leave(term).await.expect("left");
    let before = place.picture().await;
    place.pass(Duration::from_secs(60));
    store.leave(term).await.expect("it answers");
    assert_eq!(place.picture().await, before);
}

pub(crate) async fn owners_are_listed_with_all_that_is_known_of_them<P: Place>(place: &P) {
    let store = place.open().await;
    let somebody = SupervisorProcess { host: "ein Rechner".into(), boot: "7d0c-é".into(), pid: u32::MAX };
    store.enter(&owner(7)).await.expect("it enters");
    store.enter(&somebody).await.expect("it enters");
    store.leave(Term(1)).await.expect("left");
    let expected = [(Term(1), owner(7)), (Term(2), somebody)];
    assert_eq!(store.owners().await.expect("read"), expected);
    // Whoever holds something is among them.
    let lease = hold(&store, Term(2), "T1").await;
    let open = store.attempts(&task("T1")).await.expect("read");
    assert_eq!(open[0].lease(), Some(lease));
}
