//! What is to be done next about an attempt, from what is recorded and what is seen. Nothing else decides it,
//! whether the attempt just got there or was found like this after a crash.

use crate::attempt::{Ended, Ending, Phase};
use crate::errand::Standing;
use crate::errand::outcome::{Done, Outcome, StopReason};

/// What was seen of an attempt from outside.
#[derive(Debug)]
pub struct Seen {
    /// How far its errand has come, where its phase has one.
    pub errand: Option<Standing>,
    /// Nobody wants it any more.
    pub canceled: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Announce it, write its order down, send a shim, and let it go.
    Begin,
    /// The shim went before it had its word.
    Send,
    /// A shim is at work.
    Await,
    /// There was no room for it, and it was not begun.
    TakeBack {
        reason: String,
    },
    /// The agent is done.
    Collect,
    /// It can't be known what became of it.
    GiveUp {
        reason: String,
    },
    Merge,
    Prove,
    Attest,
    Land,
    Settle,
    Nothing(Ending),
}

pub fn next(phase: &Phase, seen: &Seen) -> Next {
    match phase {
        Phase::Claimed if seen.canceled => Next::Settle,
        Phase::Claimed => Next::Begin,
        Phase::Started => match &seen.errand {
            Some(Standing::Over(outcome)) => match outcome.stopped {
                None => match no_room(outcome) {
                    Some(_) if seen.canceled => Next::Settle,
                    Some(reason) => Next::TakeBack { reason },
                    None => Next::Collect,
                },
                Some(StopReason::Canceled) => Next::Collect,
                Some(StopReason::LeaseEnded) => {
                    Next::GiveUp { reason: "its lease ran out, and nobody was there to renew it".to_owned() }
                }
                Some(StopReason::Signal) => Next::GiveUp { reason: "it was stopped from outside".to_owned() },
            },
            Some(Standing::Alive) => Next::Await,
            // It was never begun, so it can be begun, or left.
            Some(Standing::Waiting) if seen.canceled => Next::Settle,
            Some(Standing::Waiting) => Next::Send,
            Some(Standing::Lost) => Next::GiveUp { reason: "its shim was killed".to_owned() },
            Some(Standing::Unordered) | None => Next::GiveUp { reason: "its records are gone".to_owned() },
        },
        Phase::Ended(_) | Phase::Proved { .. } if seen.canceled => Next::Settle,
        Phase::Merged(_) if seen.canceled && !is_running(seen) => Next::Settle,
        Phase::Ended(Ended::Work { .. }) => Next::Merge,
        Phase::Ended(Ended::Blocked { .. } | Ended::Failed { .. } | Ended::Canceled) => Next::Settle,
        Phase::Merged(_) => match &seen.errand {
            Some(Standing::Over(outcome)) if outcome.stopped.is_none() => match no_room(outcome) {
                Some(reason) => Next::TakeBack { reason },
                None => Next::Attest,
            },
            Some(Standing::Alive) => Next::Await,
            // A proof that was killed or stopped is made again, under a name of its own.
            Some(Standing::Lost | Standing::Over(_)) => Next::Merge,
            Some(Standing::Waiting | Standing::Unordered) | None => Next::Prove,
        },
        Phase::Proved { passed: true, .. } => Next::Land,
        Phase::Proved { passed: false, .. } | Phase::Landed { .. } => Next::Settle,
        Phase::Over(ending) => Next::Nothing(ending.clone()),
    }
}

fn no_room(outcome: &Outcome) -> Option<String> {
    match &outcome.done {
        Done::NoRoom { reason } => Some(reason.clone()),
        _ => None,
    }
}

fn is_running(seen: &Seen) -> bool {
    matches!(seen.errand, Some(Standing::Alive))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{Failure, FailureKind, Merge};
    use proptest::prelude::*;

    fn standing(which: u8) -> Option<Standing> {
        let over = |done| {
            let outcome =
                Outcome { version: 1, started_at: 0, ended_at: 0, times: None, stopped: None, done };
            Standing::Over(Box::new(outcome))
        };
        match which {
            0 => Some(Standing::Unordered),
            1 => Some(Standing::Waiting),
            2 => Some(Standing::Alive),
            3 => Some(Standing::Lost),
            4 => Some(over(Done::Stopped)),
            5 => Some(over(Done::NoRoom { reason: "full".into() })),
            _ => None,
        }
    }

    fn phases() -> impl Strategy<Value = Phase> {
        let failure = || Failure { kind: FailureKind::Exit, reason: "x".into() };
        let merge = || Merge {
            base: "a".into(),
            candidate: "b".into(),
            onto: None,
            commit: None,
            number: 1,
            lost: 0,
        };
        prop_oneof![
            Just(Phase::Claimed),
            Just(Phase::Started),
            Just(Phase::Ended(Ended::Work { base: "a".into(), candidate: "b".into() })),
            Just(Phase::Ended(Ended::Failed { failure: failure() })),
            Just(Phase::Ended(Ended::Canceled)),
            Just(Phase::Merged(merge())),
            any::<bool>().prop_map(move |passed| Phase::Proved { merge: merge(), passed }),
            Just(Phase::Landed { commit: "c".into() }),
            Just(Phase::Over(Ending::Canceled)),
        ]
    }

    proptest! {
        #[test]
        fn an_agent_that_may_have_been_begun_is_never_begun_again(which in 0_u8..7, canceled in any::<bool>()) {
            let begun = matches!(which, 2..=5);
            let decided = next(&Phase::Started, &Seen { errand: standing(which), canceled });
            prop_assert!(!(begun && matches!(decided, Next::Begin | Next::Send)), "{:?}", decided);
        }

        #[test]
        fn only_what_was_proved_lands(phase in phases(), which in 0_u8..7, canceled in any::<bool>()) {
            let decided = next(&phase, &Seen { errand: standing(which), canceled });
            let proved = matches!(phase, Phase::Proved { passed: true, .. });
            prop_assert!(decided != Next::Land || (proved && !canceled));
        }

        #[test]
        fn what_has_landed_is_told_to_the_board_whatever_anybody_wants(canceled in any::<bool>()) {
            let landed = Phase::Landed { commit: "c".into() };
            prop_assert_eq!(next(&landed, &Seen { errand: None, canceled }), Next::Settle);
        }

        #[test]
        fn whatever_runs_is_waited_for(phase in phases(), canceled in any::<bool>()) {
            let decided = next(&phase, &Seen { errand: standing(2), canceled });
            if matches!(phase, Phase::Started | Phase::Merged(_)) {
                prop_assert_eq!(decided, Next::Await);
            }
        }
    }
}
