//! A claim: one has the task, and everybody else is told that it is taken.

use agency_supervisor::attempt::{Attempt, AttemptEnd, Epoch, Lease, LeaseHolder, Phase, UsageTotals};
use agency_supervisor::store::{AttemptStore, ClaimRequest, ClaimResult};

use crate::place::{
    Place, TTL, at_once, block_on, blocked, claim_after, end, enter, failed, hold, supervisors, task, wall,
    whole,
};
use crate::processes::Program;
use crate::sqlite::InAFile;

pub(crate) async fn epochs_count_from_one_for_each_task<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    for epoch in 1..=3 {
        for id in ["T1", "T2"] {
            let lease = whole(&store, term, id, failed()).await;
            assert_eq!(lease, Lease { task: task(id), epoch: Epoch(epoch), term });
        }
    }
}

/// A store that was thrown away does not give numbers out again that git remembers.
pub(crate) async fn a_first_attempt_comes_after_those_that_are_known_elsewhere<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    let of = task("T1");
    let claim =
        |after, beyond| ClaimRequest { task: &of, title: "", agent: "a", after, beyond: Epoch(beyond) };
    let lease = Lease { task: of.clone(), epoch: Epoch(8), term };
    let claimed = store.claim(&claim(None, 7), term, TTL).await.expect("it answers");
    assert_eq!(claimed, ClaimResult::Held(lease.clone()));
    assert!(store.holds(&lease).await.expect("it answers"));
    end(&store, &lease, failed()).await;
    assert!(!store.holds(&lease).await.expect("it answers"));
    let claimed = store.claim(&claim(Some(Epoch(8)), 99), term, TTL).await.expect("it answers");
    assert_eq!(claimed, ClaimResult::Held(Lease { epoch: Epoch(9), ..lease }), "its own count goes before");
}

pub(crate) async fn an_open_attempt_is_refused_to_everybody<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other) = (enter(&store).await, enter(&store).await);
    let lease = hold(&store, one, "T1").await;
    let phases = [Phase::Started, Phase::Landed { commit: "c".into() }];
    for phase in &phases {
        for term in [one, other] {
            for after in [None, Some(1), Some(2)] {
                let answer = claim_after(&store, term, "T1", after).await.expect("it answers");
                assert_eq!(answer, ClaimResult::Taken);
            }
        }
        store.advance(&lease, phase).await.expect("held");
    }
    // That its time is up is a reason to adopt it, and none to begin again.
    place.pass(TTL * 2);
    assert_eq!(claim_after(&store, other, "T1", Some(1)).await.expect("it answers"), ClaimResult::Taken);
}

pub(crate) async fn a_claim_over_something_that_is_not_the_last_is_refused<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    for after in [Some(0), Some(1), Some(u64::MAX)] {
        assert_eq!(claim_after(&store, term, "T1", after).await.expect("it answers"), ClaimResult::Taken);
    }
    whole(&store, term, "T1", failed()).await;
    whole(&store, term, "T1", AttemptEnd::Canceled).await;
    for after in [None, Some(0), Some(1), Some(3)] {
        assert_eq!(claim_after(&store, term, "T1", after).await.expect("it answers"), ClaimResult::Taken);
    }
    let expected = Lease { task: task("T1"), epoch: Epoch(3), term };
    assert_eq!(
        claim_after(&store, term, "T1", Some(2)).await.expect("it answers"),
        ClaimResult::Held(expected)
    );
}

pub(crate) async fn a_refused_claim_changes_nothing<P: Place>(place: &P) {
    let store = place.open().await;
    let (one, other) = (enter(&store).await, enter(&store).await);
    hold(&store, one, "T1").await;
    whole(&store, one, "T2", blocked()).await;
    let before = place.picture().await;
    for (id, after) in [("T1", None), ("T1", Some(1)), ("T2", None), ("T3", Some(1))] {
        assert_eq!(claim_after(&store, other, id, after).await.expect("it answers"), ClaimResult::Taken);
    }
    assert_eq!(place.picture().await, before);
}

pub(crate) async fn an_attempt_begins_with_what_was_claimed<P: Place>(place: &P) {
    let store = place.open().await;
    let term = enter(&store).await;
    hold(&store, term, "T1").await;
    let expected = Attempt {
        task: task("T1"),
        epoch: Epoch(1),
        title: "A title".into(),
        agent: "an agent".into(),
        phase: Phase::Claimed,
        held: Some(LeaseHolder { term, until: store.now().await.expect("a time") + TTL }),
        cancel: false,
        answer: None,
        spent: UsageTotals::default(),
        claimed_at: wall(),
        recorded_at: wall(),
    };
    assert_eq!(store.attempts(&task("T1")).await.expect("read"), [expected]);
}

pub(crate) async fn of_32_claimers_one_has_it<P: Place>(place: &P) {
    let claimers = supervisors(place, 32).await;
    for round in 0..3 {
        let answers = at_once(32, async |number| {
            let (store, term) = &claimers[number];
            claim_after(store, *term, "T1", (round > 0).then_some(round)).await
        });
        let held: Vec<usize> =
            (0..32).filter(|number| matches!(answers[*number], Ok(ClaimResult::Held(_)))).collect();
        let taken = answers.iter().filter(|answer| matches!(answer, Ok(ClaimResult::Taken))).count();
        assert_eq!((held.len(), taken), (1, 31), "{answers:?}");
        let (store, term) = &claimers[held[0]];
        let lease = Lease { task: task("T1"), epoch: Epoch(round + 1), term: *term };
        assert_eq!(answers[held[0]].as_ref().expect("held"), &ClaimResult::Held(lease.clone()));
        end(store, &lease, AttemptEnd::Canceled).await;
    }
}

/// The other one claimed, worked and ended between the look and the claim: what was decided over is not so.
pub(crate) async fn a_claimer_that_was_slower_is_refused_after_the_other_ended<P: Place>(place: &P) {
    let (fast, slow) = (place.open().await, place.open().await);
    let (first, second) = (enter(&fast).await, enter(&slow).await);
    let seen = slow.attempts(&task("T1")).await.expect("read");
    assert_eq!(seen, []);
    whole(&fast, first, "T1", AttemptEnd::Done { commit: "c".into() }).await;
    assert_eq!(claim_after(&slow, second, "T1", None).await.expect("it answers"), ClaimResult::Taken);
    assert_eq!(slow.attempts(&task("T1")).await.expect("read").len(), 1);
}

/// Each opens the store, which is made by whoever is first, enters and claims, as programs that start together.
#[test]
fn of_several_processes_that_claim_one_has_it() {
    for round in 0..4 {
        let place = InAFile::new();
        let mut programs: Vec<Program> = (0..6).map(|_| Program::start(&place, &["act=claim"])).collect();
        if round % 2 == 0 {
            // With open stores and terms of their own, all wait for this word.
            programs.iter_mut().for_each(|program| assert!(program.line().starts_with("entered ")));
        }
        programs.iter_mut().for_each(Program::go);
        let said: Vec<String> = programs.into_iter().map(Program::rest).collect();
        let with = |word: &str| said.iter().filter(|said| said.contains(word)).count();
        assert_eq!((with("held"), with("taken")), (1, 5), "{said:?}");
        block_on(async {
            let store = place.open().await;
            assert_eq!(store.owners().await.expect("read").len(), 6);
            assert_eq!(store.open().await.expect("read").len(), 1);
        });
    }
}
