//! What counts against a task: failures by the agent's fault, since it was last forgiven.

use agency_supervisor::attempt::{AttemptEnd, AttemptFailure, Epoch, FailureKind};
use agency_supervisor::store::AttemptStore;

use crate::place::{Place, blocked, end, enter, failed, hold, task, wall, whole};

async fn failures(store: &impl AttemptStore, id: &str) -> u32 {
    store.failures(&task(id)).await.expect("read")
}

pub(crate) async fn only_what_failed_by_the_agents_fault_counts<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    assert_eq!(failures(&store, "T1").await, 0);
    let others = [
        AttemptEnd::Done { commit: "c".into() },
        AttemptEnd::Kept { candidate: "c".into() },
        blocked(),
        AttemptEnd::Lost { reason: "the machine stopped".into() },
        AttemptEnd::Canceled,
    ];
    for ending in others {
        whole(&store, term, "T1", ending).await;
        assert_eq!(failures(&store, "T1").await, 0);
    }
    let kinds = [FailureKind::Exit, FailureKind::Stopped, FailureKind::Scope, FailureKind::Verify];
    for (kind, count) in kinds.into_iter().zip(1..) {
        let failure = AttemptFailure::new(kind, "no");
        whole(&store, term, "T1", AttemptEnd::failed(failure)).await;
        assert_eq!(failures(&store, "T1").await, count);
        whole(&store, term, "T1", AttemptEnd::Canceled).await;
        assert_eq!(failures(&store, "T1").await, count, "nothing else takes it back");
    }
}

pub(crate) async fn what_is_forgiven_does_not_count<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    for _ in 0..3 {
        whole(&store, term, "T1", failed()).await;
    }
    store.forgive(&task("T1")).await.expect("forgiven");
    assert_eq!(failures(&store, "T1").await, 0);
    store.forgive(&task("T1")).await.expect("forgiven");
    whole(&store, term, "T1", failed()).await;
    assert_eq!(failures(&store, "T1").await, 1);
    store.forgive(&task("T1")).await.expect("forgiven again");
    assert_eq!(failures(&store, "T1").await, 0);
}

pub(crate) async fn the_open_attempt_is_forgiven_too<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    whole(&store, term, "T1", failed()).await;
    let open = hold(&store, term, "T1").await;
    store.forgive(&task("T1")).await.expect("forgiven");
    end(&store, &open, failed()).await;
    assert_eq!(failures(&store, "T1").await, 0);
    whole(&store, term, "T1", failed()).await;
    assert_eq!(failures(&store, "T1").await, 1);
}

pub(crate) async fn failures_are_counted_for_each_task<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    for id in ["T1", "T2", "T2"] {
        whole(&store, term, id, failed()).await;
    }
    let forgiven = async |id: &str| store.forgiven(&task(id)).await.expect("read");
    assert_eq!(forgiven("T1").await, Epoch(0));
    store.forgive(&task("T1")).await.expect("forgiven");
    assert_eq!((forgiven("T1").await, forgiven("T2").await), (Epoch(1), Epoch(0)));
    assert_eq!((failures(&store, "T1").await, failures(&store, "T2").await), (0, 2));
    let mut namesake = task("T2");
    namesake.protocol = "other".into();
    assert_eq!(store.failures(&namesake).await.expect("read"), 0);
}

pub(crate) async fn a_task_without_attempts_can_be_forgiven<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    store.forgive(&task("T1")).await.expect("forgiven");
    assert_eq!(failures(&store, "T1").await, 0);
    whole(&store, term, "T1", failed()).await;
    assert_eq!(failures(&store, "T1").await, 1, "what comes after counts");
}

pub(crate) async fn failures_are_known_after_their_attempts_are_forgotten<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    for _ in 0..4 {
        whole(&store, term, "T1", failed()).await;
        whole(&store, term, "T2", failed()).await;
    }
    store.forgive(&task("T2")).await.expect("forgiven");
    assert_eq!(store.prune(wall() + 1).await.expect("pruned"), 6);
    assert_eq!((failures(&store, "T1").await, failures(&store, "T2").await), (4, 0));
    for id in ["T1", "T2"] {
        whole(&store, term, id, failed()).await;
    }
    assert_eq!((failures(&store, "T1").await, failures(&store, "T2").await), (5, 1));
}
