//! How long a lease lasts, how another takes it over, and how somebody asks for its end.

use std::time::Duration;

use agency_supervisor::attempt::{AttemptEnd, Lease, LeaseHolder, Phase, Term};
use agency_supervisor::clock::BootInstant;
use agency_supervisor::store::AttemptStore;

use crate::place::{
    Place, TTL, adopt, all_events, assert_fenced, at_once, end, enter, hold, supervisors, task, wall, whole,
};

async fn until(store: &impl AttemptStore, id: &str) -> BootInstant {
    let attempts = store.attempts(&task(id)).await.expect("read");
    attempts.last().and_then(|attempt| attempt.held).expect("held").until
}

pub(crate) async fn renewing_puts_off_all_leases_of_a_term_and_no_others<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other) = (enter(&store).await, enter(&store).await);
    for (term, id) in [(one, "T1"), (one, "T2"), (other, "T3")] {
        hold(&store, term, id).await;
    }
    let claimed = store.now().await.expect("a time");
    place.pass(Duration::from_secs(300));
    let now = store.now().await.expect("a time");
    assert_eq!(now, claimed + Duration::from_secs(300));
    store.renew(one, TTL * 2).await.expect("renewed");
    assert_eq!((until(&store, "T1").await, until(&store, "T2").await), (now + TTL * 2, now + TTL * 2));
    assert_eq!(until(&store, "T3").await, claimed + TTL);
    // Nothing happened to the attempts.
    assert_eq!(all_events(&store).await.len(), 3);
}

pub(crate) async fn renewing_returns_what_is_still_held_by_task<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other) = (enter(&store).await, enter(&store).await);
    let mut held = Vec::new();
    for id in ["T9", "T10", "a", "Z", "é", "T1"] {
        held.push(hold(&store, one, id).await);
    }
    held.sort_by(|one, other| one.task.cmp(&other.task));
    assert_eq!(store.renew(one, TTL).await.expect("renewed"), held);
    let ended = held.remove(1);
    end(&store, &ended, AttemptEnd::Canceled).await;
    let taken = held.remove(2);
    let taken = adopt(&store, &taken, other).await;
    assert_eq!(store.renew(one, TTL).await.expect("renewed"), held);
    assert_eq!(store.renew(other, TTL).await.expect("renewed"), [taken]);
}

/// The work done under it is still the only one.
pub(crate) async fn a_lease_whose_time_is_up_still_counts_until_somebody_takes_it<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other) = (enter(&store).await, enter(&store).await);
    let lease = hold(&store, one, "T1").await;
    place.pass(TTL * 3);
    assert!(until(&store, "T1").await < store.now().await.expect("a time"));
    store.advance(&lease, &Phase::Started).await.expect("still its own");
    store.note(&lease, "late").await.expect("still its own");
    assert_eq!(store.renew(one, TTL).await.expect("renewed"), std::slice::from_ref(&lease));
    assert!(until(&store, "T1").await > store.now().await.expect("a time"));
    place.pass(TTL * 3);
    adopt(&store, &lease, other).await;
    assert_fenced(store.note(&lease, "too late").await, &lease);
    assert_eq!(store.renew(one, TTL).await.expect("it answers"), []);
}

pub(crate) async fn adopting_keeps_the_attempt_and_changes_its_owner<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other) = (enter(&store).await, enter(&store).await);
    let lease = hold(&store, one, "T1").await;
    store.advance(&lease, &Phase::Started).await.expect("held");
    let before = store.attempts(&task("T1")).await.expect("read").remove(0);
    place.pass(TTL);
    let adopted = adopt(&store, &lease, other).await;
    assert_eq!(adopted, Lease { term: other, ..lease.clone() });
    let mut expected = before;
    expected.held = Some(LeaseHolder { term: other, until: store.now().await.expect("a time") + TTL });
    expected.recorded_at = wall();
    assert_eq!(store.attempts(&task("T1")).await.expect("read"), [expected]);
    let last = all_events(&store).await.pop().expect("an event");
    assert_eq!((last.what.as_str(), last.term, last.epoch), ("adopted", other, lease.epoch));
    // And back, which is as good as to a third one.
    let back = adopt(&store, &adopted, one).await;
    assert_eq!(back, lease);
    store.note(&back, "here again").await.expect("held");
}

pub(crate) async fn of_many_who_adopt_at_once_one_has_it<P: Place>(place: &P) {
    let store = place.open().await;
    let dead = enter(&store).await;
    let lease = hold(&store, dead, "T1").await;
    let heirs = supervisors(place, 12).await;
    let adopted = at_once(12, async |number| {
        let (store, term) = &heirs[number];
        store.adopt(&lease, *term, TTL).await.expect("it answers")
    });
    let adopted: Vec<Lease> = adopted.into_iter().flatten().collect();
    assert_eq!(adopted.len(), 1, "{adopted:?}");
    assert_eq!(store.open().await.expect("read")[0].lease().as_ref(), adopted.first());
}

pub(crate) async fn an_attempt_that_is_not_as_it_was_seen_is_not_adopted<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other, third) = (enter(&store).await, enter(&store).await, enter(&store).await);
    let seen = hold(&store, one, "T1").await;
    let adopted = adopt(&store, &seen, other).await;
    let before = place.picture().await;
    assert_eq!(store.adopt(&seen, third, TTL).await.expect("it answers"), None);
    assert_eq!(place.picture().await, before);
    end(&store, &adopted, AttemptEnd::Canceled).await;
    let before = place.picture().await;
    assert_eq!(store.adopt(&adopted, third, TTL).await.expect("it answers"), None);
    assert_eq!(place.picture().await, before);
    hold(&store, other, "T1").await;
    let before = place.picture().await;
    assert_eq!(store.adopt(&adopted, third, TTL).await.expect("it answers"), None);
    assert_eq!(place.picture().await, before);
}

pub(crate) async fn a_long_lease_does_not_overflow<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    hold(&store, term, "T1").await;
    store.renew(term, Duration::MAX).await.expect("renewed");
    let now = store.now().await.expect("a time");
    assert!(until(&store, "T1").await > now + Duration::from_secs(1_000_000_000));
}

pub(crate) async fn a_request_to_cancel_stays<P: Place>(place: &P) {
    let (store, person) = (place.open().await, place.open().await);
    let (one, other) = (enter(&store).await, enter(&store).await);
    let lease = hold(&store, one, "T1").await;
    hold(&store, one, "T2").await;
    assert!(person.ask_to_cancel(&task("T1")).await.expect("it answers"));
    let asked = all_events(&store).await;
    assert_eq!((asked[2].what.as_str(), &asked[2].task, asked[2].term), ("cancel", &task("T1"), one));
    assert!(person.ask_to_cancel(&task("T1")).await.expect("it answers"));
    assert_eq!(all_events(&store).await, asked, "asking again is nothing new");
    let cancel = async || -> Vec<bool> {
        store.attempts(&task("T1")).await.expect("read").iter().map(|attempt| attempt.cancel).collect()
    };
    store.advance(&lease, &Phase::Started).await.expect("held");
    assert_eq!(cancel().await, [true]);
    store.renew(one, TTL).await.expect("renewed");
    let lease = adopt(&store, &lease, other).await;
    assert_eq!(cancel().await, [true]);
    end(&store, &lease, AttemptEnd::Canceled).await;
    assert_eq!(cancel().await, [true]);
    hold(&store, one, "T1").await;
    assert_eq!(cancel().await, [true, false], "the next attempt is another one");
    assert!(!store.attempts(&task("T2")).await.expect("read")[0].cancel);
}

pub(crate) async fn a_request_to_cancel_needs_an_open_attempt<P: Place>(place: &P) {
    let store = place.open().await;
    let term: Term = enter(&store).await;
    whole(&store, term, "T1", AttemptEnd::Canceled).await;
    let before = place.picture().await;
    assert!(!store.ask_to_cancel(&task("T1")).await.expect("it answers"));
    assert!(!store.ask_to_cancel(&task("T2")).await.expect("it answers"));
    assert_eq!(place.picture().await, before);
}
