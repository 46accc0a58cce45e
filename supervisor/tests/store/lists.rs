//! What is read comes back as it was written, in the order that is promised, over every connection.

use agency_supervisor::attempt::{Attempt, AttemptEnd, Epoch, Phase};
use agency_supervisor::store::{AttemptStore, ClaimRequest, ClaimResult, QueueMode};

use crate::place::{Place, TTL, adopt, claim_after, end, enter, failed, hold, task, whole};
use crate::sample;

fn names(attempts: &[Attempt]) -> Vec<(&str, u64)> {
    attempts.iter().map(|attempt| (attempt.task.id.as_str(), attempt.epoch.0)).collect()
}

pub(crate) async fn open_attempts_are_listed_the_oldest_first<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other) = (enter(&store).await, enter(&store).await);
    assert_eq!(store.open().await.expect("read"), []);
    // By the clock for people they all begin at once.
    let later = hold(&store, one, "a later one").await;
    whole(&store, one, "T1", failed()).await;
    for (term, id) in [(one, "z"), (other, "b"), (one, "T1"), (other, "a")] {
        hold(&store, term, id).await;
    }
    let order = [("a later one", 1), ("z", 1), ("b", 1), ("T1", 2), ("a", 1)];
    assert_eq!(names(&store.open().await.expect("read")), order);
    // Whatever happens to one later, it began when it began.
    let later = adopt(&store, &later, other).await;
    store.advance(&later, &Phase::Started).await.expect("held");
    store.renew(one, TTL).await.expect("renewed");
    assert_eq!(names(&store.open().await.expect("read")), order);
    end(&store, &later, AttemptEnd::Canceled).await;
    hold(&store, one, "a later one").await;
    let order = [("z", 1), ("b", 1), ("T1", 2), ("a", 1), ("a later one", 2)];
    assert_eq!(names(&store.open().await.expect("read")), order);
}

pub(crate) async fn the_last_attempt_of_each_task_is_listed_by_task<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    assert_eq!(store.latest().await.expect("read"), []);
    // An order of letters that some databases would make another one of.
    let ids = ["é", "z", "Z", "a b", "a", "T10", "T9", "_", "a-b", "日"];
    for id in ids {
        whole(&store, term, id, failed()).await;
    }
    hold(&store, term, "T9").await;
    whole(&store, term, "Z", AttemptEnd::Canceled).await;
    let latest = store.latest().await.expect("read");
    let mut sorted = ids;
    sorted.sort_unstable();
    let expected: Vec<(&str, u64)> =
        sorted.iter().map(|id| (*id, if ["T9", "Z"].contains(id) { 2 } else { 1 })).collect();
    assert_eq!(names(&latest), expected);
    let held: Vec<&str> =
        latest.iter().filter(|one| one.held.is_some()).map(|one| one.task.id.as_str()).collect();
    assert_eq!(held, ["T9"]);
}

pub(crate) async fn attempts_at_a_task_are_listed_from_the_first<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    for _ in 0..11 {
        whole(&store, term, "T1", failed()).await;
        whole(&store, term, "T10", failed()).await;
    }
    let attempts = store.attempts(&task("T1")).await.expect("read");
    assert_eq!(names(&attempts), (1..=11).map(|epoch| ("T1", epoch)).collect::<Vec<_>>());
    assert_eq!(store.attempts(&task("T")).await.expect("read"), []);
}

pub(crate) async fn every_phase_comes_back_as_it_was_recorded<P: Place>(place: &P) {
    let (store, other) = (place.open().await, place.open().await);
    let term = enter(&store).await;
    for phase in sample::phases() {
        let lease = hold(&store, term, "T1").await;
        store.advance(&lease, &phase).await.expect("held");
        let last = other.attempts(&task("T1")).await.expect("read").pop().expect("an attempt");
        assert_eq!(last.phase, phase);
        assert_eq!(last.held.is_none(), phase.is_over());
        if !phase.is_over() {
            end(&store, &lease, AttemptEnd::Canceled).await;
        }
    }
}

pub(crate) async fn texts_come_back_as_they_were_given<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    let texts = [
        "",
        " ",
        "it's \"quoted\"; DROP TABLE attempts; --",
        "$1 ? %s {}",
        "two\nlines\r\n\ttabs",
        "é e\u{301} 日本 🦀 \u{202e}",
        &"long ".repeat(50_000),
    ];
    for (number, text) in texts.into_iter().enumerate() {
        let mut task = task(text);
        task.protocol = format!("{number}{text}");
        let claim = ClaimRequest { task: &task, title: text, agent: text, after: None, beyond: Epoch(0) };
        let ClaimResult::Held(lease) = store.claim(&claim, term, TTL).await.expect("it answers") else {
            panic!("{text} is taken")
        };
        store.note(&lease, text).await.expect("held");
        let found = store.attempts(&task).await.expect("read");
        assert_eq!((&found[0].task, found[0].title.as_str(), found[0].agent.as_str()), (&task, text, text));
        let last = store.events(0, 1_000).await.expect("read").pop().expect("an event");
        assert_eq!((last.task, last.detail.as_str()), (task, text));
    }
    assert_eq!(store.open().await.expect("read").len(), 7);
}

pub(crate) async fn tasks_of_two_protocols_are_two_tasks<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    let ours = hold(&store, term, "T1").await;
    let mut theirs = task("T1");
    theirs.protocol = "other".into();
    let claim = ClaimRequest { task: &theirs, title: "", agent: "", after: None, beyond: Epoch(0) };
    let ClaimResult::Held(theirs) = store.claim(&claim, term, TTL).await.expect("it answers") else {
        panic!("it is another task")
    };
    end(&store, &ours, failed()).await;
    store.note(&theirs, "goes on").await.expect("held");
    assert_eq!(store.failures(&theirs.task).await.expect("read"), 0);
    assert_eq!(store.attempts(&theirs.task).await.expect("read")[0].epoch, Epoch(1));
}

pub(crate) async fn everybody_sees_the_mode_that_was_set_last<P: Place>(place: &P) {
    let (one, other) = (place.open().await, place.open().await);
    assert_eq!(other.mode().await.expect("read"), QueueMode::Running);
    for mode in [QueueMode::Paused, QueueMode::Draining, QueueMode::Draining, QueueMode::Running] {
        one.set_mode(mode).await.expect("set");
        assert_eq!(one.mode().await.expect("read"), mode);
        assert_eq!(other.mode().await.expect("read"), mode);
        assert_eq!(place.open().await.mode().await.expect("read"), mode);
    }
}

pub(crate) async fn the_version_changes_when_somebody_else_writes<P: Place>(place: &P) {
    let (reader, writer) = (place.open().await, place.open().await);
    let mut last = reader.version().await.expect("asked");
    let mut changed = async |what: &str| {
        let now = reader.version().await.expect("asked");
        assert_ne!(now, last, "{what}");
        last = now;
    };
    let (term, heir) = (enter(&writer).await, enter(&writer).await);
    changed("enter").await;
    let lease = hold(&writer, term, "T1").await;
    changed("claim").await;
    place.pass(TTL / 2);
    writer.renew(term, TTL).await.expect("renewed");
    changed("renew").await;
    writer.note(&lease, "a note").await.expect("held");
    changed("note").await;
    writer.ask_to_cancel(&task("T1")).await.expect("asked");
    changed("cancel").await;
    let lease = adopt(&writer, &lease, heir).await;
    changed("adopt").await;
    end(&writer, &lease, failed()).await;
    changed("advance").await;
    writer.forgive(&task("T1")).await.expect("forgiven");
    changed("forgive").await;
    writer.set_mode(QueueMode::Paused).await.expect("set");
    changed("mode").await;
    writer.leave(term).await.expect("left");
    changed("leave").await;
    whole(&writer, heir, "T1", failed()).await;
    changed("another attempt").await;
    assert_eq!(writer.prune(i64::MAX).await.expect("pruned"), 1);
    changed("prune").await;
}

pub(crate) async fn what_one_recorded_the_other_reads<P: Place>(place: &P) {
    let (one, other) = (place.open().await, place.open().await);
    let term = enter(&one).await;
    let lease = hold(&one, term, "T1").await;
    for phase in sample::phases().into_iter().filter(|phase| !phase.is_over()) {
        one.advance(&lease, &phase).await.expect("held");
        assert_eq!(other.open().await.expect("read")[0].phase, phase);
    }
    end(&other, &lease, AttemptEnd::Canceled).await;
    assert_eq!(one.open().await.expect("read"), []);
    assert_eq!(claim_after(&other, term, "T1", None).await.expect("it answers"), ClaimResult::Taken);
}
