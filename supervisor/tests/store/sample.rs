//! One of everything that can be in a store.

use std::time::Duration;

use agency_supervisor::attempt::{
    AgentWork, AttemptEnd, AttemptFailure, Audit, Epoch, FailureKind, HumanDecision, Merge, Phase,
    RunningAudit, TaskKey, UsageTotals, WorkResult,
};
use agency_supervisor::store::{AttemptStore, ClaimRequest, ClaimResult, QueueMode, SupervisorProcess};
use serde_json::{Value, json};

use crate::place::{ALL, Place, TTL};

/// Every phase, and every kind of what it can carry.
pub(crate) fn phases() -> Vec<Phase> {
    let work = AgentWork { base: "ba5e".into(), candidate: "ca7d".into() };
    let answer = HumanDecision { pass: true, person: "ann".into(), reason: "it is meant so".into() };
    let audit = Audit { auditor: "gemini".into(), number: 2, answer: Some(answer) };
    let asked = Audit { answer: None, ..audit.clone() };
    let merge = Merge {
        work: work.clone(),
        audit: Some(audit.clone()),
        onto: Some("0f70".into()),
        commit: Some("c033".into()),
        number: 2,
        lost: 0,
    };
    let elsewhere = Merge { audit: None, onto: None, commit: None, number: 1, ..merge.clone() };
    let kinds = [
        FailureKind::Exit,
        FailureKind::Stopped,
        FailureKind::Scope,
        FailureKind::Nothing,
        FailureKind::Audit,
        FailureKind::Verify,
        FailureKind::Conflict,
        FailureKind::Start,
        FailureKind::Decision,
    ];
    let failure = |kind| AttemptFailure::new(kind, format!("because of {kind:?}"));
    let found = AttemptFailure::new(FailureKind::Audit, "it is wrong").with_work(&work);
    let auditing = RunningAudit {
        work: work.clone(),
        audit: asked.clone(),
        unheard: 1,
        why: Some("prose".into()),
        put_off: 0,
    };
    let mut phases = vec![
        Phase::Started,
        Phase::Ended(WorkResult::Work(work.clone())),
        Phase::Ended(WorkResult::Blocked { reason: "which of the two?".into() }),
        Phase::Ended(WorkResult::Failed { failure: failure(FailureKind::Exit) }),
        Phase::Ended(WorkResult::Failed { failure: found }),
        Phase::Ended(WorkResult::Canceled),
        Phase::Auditing(auditing),
        Phase::Undecided { work: work.clone(), audit: asked, why: "which of the two?".into() },
        Phase::Audited { work, audit },
        Phase::Merged(merge.clone()),
        Phase::Merged(elsewhere.clone()),
        Phase::Proved { merge, passed: true },
        Phase::Proved { merge: elsewhere, passed: false },
        Phase::Landed { commit: "c033".into() },
        Phase::Over(AttemptEnd::Done { commit: "c033".into() }),
        Phase::Over(AttemptEnd::Kept { candidate: "ca7d".into() }),
        Phase::Over(AttemptEnd::Blocked { reason: "which of the two?".into() }),
        Phase::Over(AttemptEnd::Lost { reason: "the machine stopped".into() }),
        Phase::Over(AttemptEnd::Canceled),
    ];
    phases.extend(kinds.map(|kind| Phase::Over(AttemptEnd::failed(failure(kind)))));
    phases
}

/// Fills an empty store: an attempt in each phase, one that was adopted and is to be canceled, failures that count
/// and some that do not, somebody who left, and something forgotten.
pub(crate) async fn fill<P: Place>(place: &P, store: &P::Store) {
    let owner = |pid| SupervisorProcess { host: "host".into(), boot: "b007".into(), pid };
    let left = store.enter(&owner(100)).await.expect("entered");
    let here = store.enter(&owner(u32::MAX)).await.expect("entered");
    let mut held = Vec::new();
    for (number, phase) in phases().into_iter().enumerate() {
        let task = TaskKey { protocol: "sample".into(), id: format!("T{number}") };
        for after in [None, Some(1)] {
            let after = after.map(Epoch);
            let claim = ClaimRequest {
                task: &task,
                title: "Tëst \"it\"",
                agent: "claude-code",
                after,
                beyond: Epoch(0),
            };
            let term = if number % 2 == 0 { left } else { here };
            if let ClaimResult::Held(lease) = store.claim(&claim, term, TTL).await.expect("answered") {
                place.pass(Duration::from_secs(1));
                store.note(&lease, "a note").await.expect("held");
                match &phase {
                    Phase::Over(ending) => {
                        let spent = UsageTotals { time_ms: 1500, tokens: 12, cost_micros: 40_000 };
                        store.end(&lease, ending, spent).await.expect("held");
                    }
                    phase => store.advance(&lease, phase).await.expect("held"),
                }
                if matches!(phase, Phase::Undecided { .. }) {
                    let answer =
                        HumanDecision { pass: false, person: "ann".into(), reason: "the first".into() };
                    assert!(store.answer(&task, lease.epoch, &answer).await.expect("answered"));
                }
                held.push(lease);
            }
        }
    }
    store.ask_to_cancel(&held[0].task).await.expect("asked");
    store.adopt(&held[0], here, TTL).await.expect("answered").expect("as it was seen");
    store.forgive(&held[held.len() - 1].task).await.expect("forgiven");
    store.leave(left).await.expect("left");
    store.set_mode(QueueMode::Paused).await.expect("set");
    store.prune(crate::place::wall() - 3).await.expect("pruned");
}

/// All that can be read of a store.
pub(crate) async fn read(store: &impl AttemptStore) -> Value {
    let latest = store.latest().await.expect("read");
    let (mut attempts, mut failures, mut spent) = (Vec::new(), Vec::new(), Vec::new());
    for last in &latest {
        attempts.extend(store.attempts(&last.task).await.expect("read"));
        failures.push(store.failures(&last.task).await.expect("read"));
        spent.push(store.spent(&last.task).await.expect("read"));
    }
    json!({
        "owners": store.owners().await.expect("read"),
        "mode": store.mode().await.expect("read"),
        "open": store.open().await.expect("read"),
        "latest": latest,
        "attempts": attempts,
        "failures": failures,
        "spent": spent,
        "events": store.events(0, ALL).await.expect("read"),
    })
}
