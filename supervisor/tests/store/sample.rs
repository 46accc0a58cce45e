//! One of everything that can be in a store.

use std::time::Duration;

use agency_supervisor::attempt::{Ended, Ending, Epoch, Failure, FailureKind, Merge, Phase, TaskKey};
use agency_supervisor::store::{Claim, Claimed, Mode, Owner, Store};
use serde_json::{Value, json};

use crate::place::{ALL, Place, TTL};

/// Every phase, and every kind of what it can carry.
pub(crate) fn phases() -> Vec<Phase> {
    let merge = Merge {
        base: "ba5e".into(),
        candidate: "ca7d".into(),
        onto: Some("0f70".into()),
        commit: Some("c033".into()),
        number: 2,
        lost: 0,
    };
    let elsewhere = Merge { onto: None, commit: None, number: 1, ..merge.clone() };
    let kinds = [
        FailureKind::Exit,
        FailureKind::Stopped,
        FailureKind::Scope,
        FailureKind::Nothing,
        FailureKind::Verify,
        FailureKind::Conflict,
        FailureKind::Start,
        FailureKind::Decision,
    ];
    let failure = |kind| Failure { kind, reason: format!("because of {kind:?}") };
    let mut phases = vec![
        Phase::Started,
        Phase::Ended(Ended::Work { base: "ba5e".into(), candidate: "ca7d".into() }),
        Phase::Ended(Ended::Blocked { reason: "which of the two?".into() }),
        Phase::Ended(Ended::Failed { failure: failure(FailureKind::Exit) }),
        Phase::Ended(Ended::Canceled),
        Phase::Merged(merge.clone()),
        Phase::Merged(elsewhere.clone()),
        Phase::Proved { merge, passed: true },
        Phase::Proved { merge: elsewhere, passed: false },
        Phase::Landed { commit: "c033".into() },
        Phase::Over(Ending::Done { commit: "c033".into() }),
        Phase::Over(Ending::Kept { candidate: "ca7d".into() }),
        Phase::Over(Ending::Blocked { reason: "which of the two?".into() }),
        Phase::Over(Ending::Lost { reason: "the machine stopped".into() }),
        Phase::Over(Ending::Canceled),
    ];
    phases.extend(kinds.map(|kind| Phase::Over(Ending::Failed { failure: failure(kind) })));
    phases
}

/// Fills an empty store: an attempt in each phase, one that was adopted and is to be canceled, failures that count
/// and some that do not, somebody who left, and something forgotten.
pub(crate) async fn fill<P: Place>(place: &P, store: &P::Store) {
    let owner = |pid| Owner { host: "host".into(), boot: "b007".into(), pid };
    let left = store.enter(&owner(100)).await.expect("entered");
    let here = store.enter(&owner(u32::MAX)).await.expect("entered");
    let mut held = Vec::new();
    for (number, phase) in phases().into_iter().enumerate() {
        let task = TaskKey { protocol: "sample".into(), id: format!("T{number}") };
        for after in [None, Some(1)] {
            let after = after.map(Epoch);
            let claim =
                Claim { task: &task, title: "Tëst \"it\"", agent: "claude-code", after, beyond: Epoch(0) };
            let term = if number % 2 == 0 { left } else { here };
            if let Claimed::Held(lease) = store.claim(&claim, term, TTL).await.expect("answered") {
                place.pass(Duration::from_secs(1));
                store.note(&lease, "a note").await.expect("held");
                store.advance(&lease, &phase).await.expect("held");
                held.push(lease);
            }
        }
    }
    store.ask_to_cancel(&held[0].task).await.expect("asked");
    store.adopt(&held[0], here, TTL).await.expect("answered").expect("as it was seen");
    store.forgive(&held[held.len() - 1].task).await.expect("forgiven");
    store.leave(left).await.expect("left");
    store.set_mode(Mode::Paused).await.expect("set");
    store.prune(crate::place::wall() - 3).await.expect("pruned");
}

/// All that can be read of a store.
pub(crate) async fn read(store: &impl Store) -> Value {
    let latest = store.latest().await.expect("read");
    let (mut attempts, mut failures) = (Vec::new(), Vec::new());
    for last in &latest {
        attempts.extend(store.attempts(&last.task).await.expect("read"));
        failures.push(store.failures(&last.task).await.expect("read"));
    }
    json!({
        "owners": store.owners().await.expect("read"),
        "mode": store.mode().await.expect("read"),
        "open": store.open().await.expect("read"),
        "latest": latest,
        "attempts": attempts,
        "failures": failures,
        "events": store.events(0, ALL).await.expect("read"),
    })
}
