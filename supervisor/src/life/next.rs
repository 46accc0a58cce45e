//! What is to be done next about an attempt, from what is recorded and what is seen. Nothing else decides it,
//! whether the attempt just got there or was found like this after a crash.

use crate::attempt::{Ended, Ending, Merge, Phase};
use crate::errand::Standing;
use crate::errand::outcome::{Done, Outcome, StopReason};

/// What was seen of an attempt from outside.
#[derive(Debug)]
pub struct Seen {
    /// How far its errand has come, where its phase has one.
    pub errand: Option<Standing>,
    /// Nobody wants it any more.
    pub canceled: bool,
    /// Somebody is to judge the work of others.
    pub audited: bool,
    /// A person has said what becomes of it.
    pub answered: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Announce it, write its order down, send a shim, and let it go.
    Begin,
    /// The shim went before it had its word, or before it had collected what its agent did.
    Send,
    /// A shim is at work.
    Await,
    /// It was not begun: the machine lacked something, or what it needs did not answer.
    TakeBack {
        reason: String,
        host_fault: bool,
    },
    /// The agent is done.
    Collect,
    /// Somebody is to look at what it did.
    Audit,
    /// An auditor is to be started.
    Ask,
    /// The auditor is done.
    Heed,
    /// A person has answered.
    Decide,
    /// A person has to answer.
    Leave {
        why: String,
    },
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
                None => match (not_begun(outcome), &outcome.done) {
                    (Some(_), _) if seen.canceled => Next::Settle,
                    (Some(next), _) => next,
                    (None, Done::Lost { reason }) => Next::GiveUp { reason: reason.clone() },
                    (None, _) => Next::Collect,
                },
                Some(StopReason::Canceled) => Next::Collect,
                Some(StopReason::LeaseEnded) => {
                    Next::GiveUp { reason: "its lease ran out, and nobody was there to renew it".to_owned() }
                }
                Some(StopReason::Signal) => Next::GiveUp { reason: "it was stopped from outside".to_owned() },
            },
            Some(Standing::Alive) => Next::Await,
            // Its agent was never begun, or has ended and nobody has collected what it did. Either can be done, or left.
            Some(Standing::Waiting) if seen.canceled => Next::Settle,
            Some(Standing::Waiting) => Next::Send,
            Some(Standing::Lost) => Next::GiveUp { reason: "its shim was killed".to_owned() },
            Some(Standing::Unordered) | None => Next::GiveUp { reason: "its records are gone".to_owned() },
        },
        Phase::Ended(_) | Phase::Undecided { .. } | Phase::Audited { .. } | Phase::Proved { .. }
            if seen.canceled =>
        {
            Next::Settle
        }
        Phase::Merged(_) | Phase::Auditing(_) if seen.canceled && !is_running(seen) => Next::Settle,
        Phase::Ended(Ended::Work(_)) if seen.audited => Next::Audit,
        // It went on when nobody judged here yet.
        Phase::Proved { merge, .. } if is_unjudged(merge, seen) => Next::Audit,
        Phase::Merged(merge) if is_unjudged(merge, seen) && !is_running(seen) => Next::Audit,
        Phase::Ended(Ended::Work(_)) | Phase::Audited { .. } => Next::Merge,
        Phase::Ended(Ended::Blocked { .. } | Ended::Failed { .. } | Ended::Parked(_) | Ended::Canceled) => {
            Next::Settle
        }
        Phase::Auditing(_) => match &seen.errand {
            Some(Standing::Over(outcome)) if came_to_its_end(outcome) => {
                not_begun(outcome).unwrap_or(Next::Heed)
            }
            Some(Standing::Alive) => Next::Await,
            // One that was killed or stopped is asked again, under a name of its own.
            Some(Standing::Lost | Standing::Over(_)) => Next::Audit,
            Some(Standing::Waiting | Standing::Unordered) | None => Next::Ask,
        },
        Phase::Undecided { .. } if seen.answered => Next::Decide,
        Phase::Undecided { why, .. } => Next::Leave { why: why.clone() },
        Phase::Merged(_) => match &seen.errand {
            Some(Standing::Over(outcome)) if came_to_its_end(outcome) => {
                not_begun(outcome).unwrap_or(Next::Attest)
            }
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

/// What is done about an errand that was not begun, and may be begun again.
fn not_begun(outcome: &Outcome) -> Option<Next> {
    match &outcome.done {
        Done::NoRoom { reason } => Some(Next::TakeBack { reason: reason.clone(), host_fault: true }),
        Done::Away { reason } => Some(Next::TakeBack { reason: reason.clone(), host_fault: false }),
        _ => None,
    }
}

/// Whether nobody and nothing ended an errand before it was done.
fn came_to_its_end(outcome: &Outcome) -> bool {
    outcome.stopped.is_none() && !matches!(outcome.done, Done::Lost { .. })
}

fn is_unjudged(merge: &Merge, seen: &Seen) -> bool {
    seen.audited && merge.audit.is_none()
}

fn is_running(seen: &Seen) -> bool {
    matches!(seen.errand, Some(Standing::Alive))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{Audit, Auditing, Failure, FailureKind, Work};
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
            6 => Some(over(Done::Away { reason: "no engine".into() })),
            7 => Some(over(Done::Lost { reason: "no engine".into() })),
            _ => None,
        }
    }

    fn phases() -> impl Strategy<Value = Phase> {
        let failure = || Failure::new(FailureKind::Exit, "x");
        let work = || Work { base: "a".into(), candidate: "b".into() };
        let audit = || Audit { auditor: "gemini".into(), number: 1, answer: None };
        let merge = move || Merge { work: work(), audit: None, onto: None, commit: None, number: 1, lost: 0 };
        prop_oneof![
            Just(Phase::Claimed),
            Just(Phase::Started),
            Just(Phase::Ended(Ended::Work(work()))),
            Just(Phase::Auditing(Auditing {
                work: work(),
                audit: audit(),
                unheard: 0,
                why: None,
                put_off: 0
            })),
            Just(Phase::Undecided { work: work(), audit: audit(), why: "?".into() }),
            Just(Phase::Audited { work: work(), audit: audit() }),
            Just(Phase::Ended(Ended::Failed { failure: failure() })),
            Just(Phase::Ended(Ended::Canceled)),
            Just(Phase::Merged(merge())),
            any::<bool>().prop_map(move |passed| Phase::Proved { merge: merge(), passed }),
            Just(Phase::Landed { commit: "c".into() }),
            Just(Phase::Over(Ending::Canceled)),
        ]
    }

    prop_compose! {
        fn sights()(which in 0_u8..7, canceled in any::<bool>(), audited in any::<bool>(), answered in any::<bool>())
            -> (u8, Seen)
        {
            (which, Seen { errand: standing(which), canceled, audited, answered })
        }
    }

    proptest! {
        #[test]
        fn an_agent_that_may_have_been_begun_is_never_begun_again((which, seen) in sights()) {
            let begun = matches!(which, 2..=5);
            let decided = next(&Phase::Started, &seen);
            prop_assert!(!(begun && matches!(decided, Next::Begin | Next::Send)), "{:?}", decided);
        }

        #[test]
        fn only_what_was_proved_lands(phase in phases(), (_, seen) in sights()) {
            let proved = matches!(phase, Phase::Proved { passed: true, .. });
            prop_assert!(next(&phase, &seen) != Next::Land || (proved && !seen.canceled && !seen.audited));
        }

        #[test]
        fn where_somebody_judges_nothing_goes_on_unjudged(phase in phases(), (_, mut seen) in sights()) {
            seen.audited = true;
            let decided = next(&phase, &seen);
            prop_assert!(decided != Next::Merge || matches!(phase, Phase::Audited { .. }), "{:?}", decided);
            prop_assert!(!matches!(decided, Next::Land | Next::Prove), "{:?}", decided);
        }

        #[test]
        fn what_is_left_to_a_person_waits_for_their_word(phase in phases(), (_, mut seen) in sights()) {
            (seen.answered, seen.canceled) = (false, false);
            if let Phase::Undecided { why, .. } = &phase {
                prop_assert_eq!(next(&phase, &seen), Next::Leave { why: why.clone() });
            }
        }

        #[test]
        fn what_has_landed_is_told_to_the_board_whatever_anybody_wants((_, seen) in sights()) {
            let landed = Phase::Landed { commit: "c".into() };
            prop_assert_eq!(next(&landed, &seen), Next::Settle);
        }

        #[test]
        fn whatever_runs_is_waited_for(phase in phases(), (_, mut seen) in sights()) {
            seen.errand = standing(2);
            let decided = next(&phase, &seen);
            if matches!(phase, Phase::Started | Phase::Auditing(_) | Phase::Merged(_)) {
                prop_assert_eq!(decided, Next::Await);
            }
        }
    }
}
