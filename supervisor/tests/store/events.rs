//! What happened: numbered without gaps, in the order in which it did.

use std::time::Duration;

use agency_supervisor::attempt::{AttemptEnd, Phase};
use agency_supervisor::store::{AttemptStore, StoreEvent};

use crate::place::{Place, adopt, all_events, assert_fenced, block_on, end, enter, hold, task, wall, whole};

fn numbers(events: &[StoreEvent]) -> Vec<u64> {
    events.iter().map(|event| event.number).collect()
}

pub(crate) async fn numbers_are_consecutive_over_all_tasks<P: Place>(place: &P) {
    let (one, other) = (place.open().await, place.open().await);
    let term = enter(&one).await;
    let (first, second) = (hold(&one, term, "T1").await, hold(&other, term, "T2").await);
    for number in 0..5 {
        one.note(&first, &number.to_string()).await.expect("held");
        other.advance(&second, &Phase::Started).await.expect("held");
    }
    end(&other, &first, AttemptEnd::Canceled).await;
    let events = all_events(&one).await;
    assert_eq!(numbers(&events), (1..=13).collect::<Vec<_>>());
    assert_eq!(all_events(&other).await, events);
}

pub(crate) async fn an_event_says_what_happened_to_whom_by_whom_and_when<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other) = (enter(&store).await, enter(&store).await);
    let began = wall();
    let lease = hold(&store, one, "T1").await;
    place.pass(Duration::from_secs(5));
    store.note(&lease, "a \"note\"\nof two lines").await.expect("held");
    place.pass(Duration::from_secs(5));
    let newer = adopt(&store, &lease, other).await;
    end(&store, &newer, AttemptEnd::Done { commit: "c0ffee".into() }).await;
    let told: Vec<_> = all_events(&store)
        .await
        .into_iter()
        .inspect(|event| assert_eq!((&event.task, event.epoch), (&lease.task, lease.epoch)))
        .map(|event| (event.what, event.term, event.at - began, event.detail))
        .collect();
    let over = r#"{"phase":"over","ending":"done","commit":"c0ffee"}"#;
    let expected = [
        ("claimed", one, 0, r#"{"phase":"claimed"}"#),
        ("note", one, 5, "a \"note\"\nof two lines"),
        ("adopted", other, 10, "from term 1"),
        ("over", other, 10, over),
    ];
    assert_eq!(told, expected.map(|(what, term, at, detail)| (what.into(), term, at, detail.into())));
}

pub(crate) async fn a_page_has_as_many_as_asked_for_and_the_next_one_goes_on<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    assert_eq!(all_events(&store).await, []);
    for _ in 0..5 {
        whole(&store, term, "T1", AttemptEnd::Canceled).await;
    }
    let page = async |after, most| numbers(&store.events(after, most).await.expect("read"));
    assert_eq!(page(0, 4).await, [1, 2, 3, 4]);
    assert_eq!(page(4, 4).await, [5, 6, 7, 8]);
    assert_eq!(page(8, 4).await, [9, 10]);
    assert_eq!(page(10, 4).await, [] as [u64; 0]);
    assert_eq!(page(0, 0).await, [] as [u64; 0]);
    assert_eq!(page(9, usize::MAX).await, [10]);
    assert_eq!(page(u64::MAX, 4).await, [] as [u64; 0]);
}

/// A larger number that could be seen before a smaller one would be the end of the smaller one.
pub(crate) async fn who_reads_in_pages_while_others_write_misses_nothing<P: Place>(place: &P) {
    const WRITERS: usize = 4;
    const NOTES: usize = 25;
    let reader = place.open().await;
    let term = enter(&reader).await;
    let seen = std::thread::scope(|scope| {
        let write = |writer| {
            move || {
                block_on(async {
                    let store = place.open().await;
                    let lease = hold(&store, term, &format!("T{writer}")).await;
                    for note in 0..NOTES {
                        store.note(&lease, &format!("{writer} {note}")).await.expect("held");
                    }
                });
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(write(writer))).collect();
        let reading = async move {
            let mut seen: Vec<StoreEvent> = Vec::new();
            loop {
                // Asked before the page is read: an empty one after it is the end.
                let all = writers.iter().all(|writer| writer.is_finished());
                let page = reader.events(seen.last().map_or(0, |event| event.number), 7).await.expect("read");
                if page.is_empty() && all {
                    return seen;
                }
                seen.extend(page);
                std::thread::yield_now();
            }
        };
        scope.spawn(|| block_on(reading)).join().expect("it ends well")
    });
    let count = u64::try_from(WRITERS * (NOTES + 1)).expect("small");
    assert_eq!(numbers(&seen), (1..=count).collect::<Vec<_>>());
    for writer in 0..WRITERS {
        let own = task(&format!("T{writer}"));
        let notes: Vec<&str> = seen
            .iter()
            .filter(|event| event.task == own && event.what == "note")
            .map(|event| event.detail.as_str())
            .collect();
        assert_eq!(notes, (0..NOTES).map(|note| format!("{writer} {note}")).collect::<Vec<_>>());
    }
}

pub(crate) async fn a_write_that_was_refused_leaves_no_gap<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other) = (enter(&store).await, enter(&store).await);
    let lost = hold(&store, one, "T1").await;
    let lease = adopt(&store, &lost, other).await;
    for _ in 0..3 {
        assert_fenced(store.note(&lost, "stale").await, &lost);
        assert_fenced(store.advance(&lost, &Phase::Started).await, &lost);
        store.note(&lease, "held").await.expect("held");
    }
    assert_eq!(numbers(&all_events(&store).await), [1, 2, 3, 4, 5]);
}
