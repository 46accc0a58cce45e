//! `kill -9` at any moment: what was said to be written is there, and what was not is there as a whole or not at
//! all.

use std::collections::HashMap;
use std::time::Duration;

use agency_supervisor::attempt::{AttemptEnd, Epoch, Term};
use agency_supervisor::store::sqlite::SqliteStore;
use agency_supervisor::store::{AttemptStore, StoreEvent};
use serde::Deserialize;

use crate::place::{Place, all_events, block_on, end, enter, hold};
use crate::processes::Program;
use crate::sqlite::{InAFile, assert_intact};

/// Something the program said after its write returned.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    Entered { entered: Term },
    Told { task: String, epoch: Epoch, term: Term, what: String, detail: String },
}

impl Said {
    fn is_among(&self, events: &[StoreEvent], terms: &[Term]) -> bool {
        match self {
            Self::Entered { entered } => terms.contains(entered),
            Self::Told { task, epoch, term, what, detail } => events.iter().any(|event| {
                (&event.task.id, &event.what, &event.detail) == (task, what, detail)
                    && (event.epoch, event.term) == (*epoch, *term)
            }),
        }
    }
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What is said of the attempts and what happened to them is one story.
async fn assert_sound(store: &SqliteStore, events: &[StoreEvent]) {
    assert!(events.iter().map(|event| event.number).eq(1..=u64::try_from(events.len()).expect("few")));
    let latest = store.latest().await.expect("read");
    let mut open = Vec::new();
    for last in &latest {
        let mut failed = 0;
        for attempt in store.attempts(&last.task).await.expect("read") {
            let own = || events.iter().filter(|one| one.task == attempt.task && one.epoch == attempt.epoch);
            let recorded = own().rfind(|event| event.detail.starts_with('{')).expect("an event");
            assert_eq!(recorded.detail, serde_json::to_string(&attempt.phase).expect("JSON"));
            assert_eq!(attempt.held.is_none(), attempt.phase.is_over());
            if let Some(held) = attempt.held {
                assert_eq!(Some(held.term), own().next_back().map(|event| event.term));
                open.push(attempt.task.clone());
            }
            failed += u32::from(recorded.detail.contains("failed"));
        }
        assert_eq!(store.failures(&last.task).await.expect("read"), failed);
    }
    assert!(open.len() <= 1, "the program had one at a time: {open:?}");
    assert_eq!(store.open().await.expect("read").len(), open.len());
}

#[test]
fn killed_at_any_moment_every_write_that_returned_is_there() {
    let place = InAFile::new();
    let (mut dice, mut said, mut killed_within) = (Dice(20_240), Vec::new(), 0);
    for kills in 1..=30 {
        let program = Program::start(&place, &["act=work"]);
        let lines = usize::try_from(dice.below(25)).expect("small");
        for line in program.kill_after(lines, Duration::from_micros(dice.below(6000))) {
            said.push(serde_json::from_str::<Said>(&line).expect("a write"));
        }
        block_on(async {
            let store = place.open().await;
            let events = all_events(&store).await;
            let terms: Vec<Term> =
                store.owners().await.expect("read").into_iter().map(|(term, _)| term).collect();
            for one in &said {
                assert!(one.is_among(&events, &terms), "{one:?} was said and is not there");
            }
            // Of one write nobody knows, each time.
            let (known, written) = (said.len(), events.len() + terms.len());
            assert!((known..=known + kills).contains(&written), "{known} were said, {written} are there");
            assert_sound(&store, &events).await;
            killed_within += usize::from(!store.open().await.expect("read").is_empty());
            store.close().await.expect("closed");
            assert_intact(&place.path()).await;
        });
    }
    assert!(killed_within >= 5, "it was killed in the middle of an attempt {killed_within} times");
    let mut counts = HashMap::new();
    for one in &said {
        if let Said::Told { what, .. } = one {
            *counts.entry(what.as_str()).or_insert(0) += 1;
        }
    }
    for what in ["claimed", "started", "note", "over", "adopted"] {
        assert!(counts.get(what).is_some_and(|count| *count >= 5), "{counts:?}");
    }
}

#[test]
fn killed_while_a_store_is_made_the_next_one_makes_it() {
    let mut dice = Dice(7);
    for _ in 0..12 {
        let place = InAFile::new();
        for _ in 0..2 {
            Program::start(&place, &["act=work"]).kill_after(0, Duration::from_micros(dice.below(15_000)));
        }
        block_on(async {
            let store = place.open().await;
            let events = all_events(&store).await;
            assert_sound(&store, &events).await;
            let term = enter(&store).await;
            hold(&store, term, "another one").await;
            store.close().await.expect("closed");
            assert_intact(&place.path()).await;
        });
    }
}

/// Others have the store open when a writer is killed: they need not open it again.
#[test]
fn who_has_the_store_open_goes_on_when_a_writer_is_killed() {
    let place = InAFile::new();
    block_on(async {
        let store = place.open().await;
        let term = enter(&store).await;
        let mut dice = Dice(3);
        for number in 0..5 {
            let before = store.version().await.expect("asked");
            Program::start(&place, &["act=work"]).kill_after(9, Duration::from_micros(dice.below(3000)));
            assert_ne!(store.version().await.expect("asked"), before);
            let lease = hold(&store, term, &format!("mine {number}")).await;
            end(&store, &lease, AttemptEnd::Canceled).await;
        }
    });
}
