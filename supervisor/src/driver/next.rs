//! What is to be done next about an attempt, from what is recorded and what is seen. Nothing else decides it,
//! whether the attempt just got there or was found like this after a crash.

use crate::attempt::{AttemptEnd, Merge, Phase, WorkResult};
use crate::job::JobState;
use crate::job::outcome::{JobOutcome, JobResult, StopReason};

/// What was seen of an attempt from outside.
#[derive(Debug)]
pub struct AttemptFacts {
    /// How far its job has come, where its phase has one.
    pub job: Option<JobState>,
    /// The task is not wanted any more.
    pub canceled: bool,
    /// An auditor is to judge the work of others.
    pub audited: bool,
    /// A person has decided the outcome.
    pub answered: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextStep {
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
    /// An auditor is to look at what it did.
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
    /// Its result can't be known.
    GiveUp {
        reason: String,
    },
    Merge,
    Prove,
    Attest,
    Land,
    Settle,
    Nothing(AttemptEnd),
}

pub fn next(phase: &Phase, seen: &AttemptFacts) -> NextStep {
    match phase {
        Phase::Claimed if seen.canceled => NextStep::Settle,
        Phase::Claimed => NextStep::Begin,
        Phase::Started => match &seen.job {
            Some(JobState::Over(outcome)) => match outcome.stopped {
                None => match (not_begun(outcome), &outcome.done) {
                    (Some(_), _) if seen.canceled => NextStep::Settle,
                    (Some(next), _) => next,
                    (None, JobResult::Lost { reason }) => NextStep::GiveUp { reason: reason.clone() },
                    (None, _) => NextStep::Collect,
                },
                Some(StopReason::Canceled) => NextStep::Collect,
                Some(StopReason::LeaseEnded) => {
                    NextStep::GiveUp { reason: "its lease ran out, and no supervisor renewed it".to_owned() }
                }
                Some(StopReason::Signal) => {
                    NextStep::GiveUp { reason: "stopped by a person; not counted".to_owned() }
                }
            },
            Some(JobState::Alive) => NextStep::Await,
            // Its agent was never begun, or has ended and its work was not collected. Either can be done, or left.
            Some(JobState::Waiting) if seen.canceled => NextStep::Settle,
            Some(JobState::Waiting) => NextStep::Send,
            Some(JobState::Lost) => NextStep::GiveUp { reason: "its shim was killed".to_owned() },
            Some(JobState::Unordered) | None => {
                NextStep::GiveUp { reason: "its records are gone".to_owned() }
            }
        },
        Phase::Ended(_) | Phase::Undecided { .. } | Phase::Audited { .. } | Phase::Proved { .. }
            if seen.canceled =>
        {
            NextStep::Settle
        }
        Phase::Merged(_) | Phase::Auditing(_) if seen.canceled && !is_running(seen) => NextStep::Settle,
        Phase::Ended(WorkResult::Work(_)) if seen.audited => NextStep::Audit,
        // It went on when there was no auditor yet.
        Phase::Proved { merge, .. } if is_unjudged(merge, seen) => NextStep::Audit,
        Phase::Merged(merge) if is_unjudged(merge, seen) && !is_running(seen) => NextStep::Audit,
        Phase::Ended(WorkResult::Work(_)) | Phase::Audited { .. } => NextStep::Merge,
        Phase::Ended(
            WorkResult::Blocked { .. }
            | WorkResult::Failed { .. }
            | WorkResult::Parked(_)
            | WorkResult::Canceled,
        ) => NextStep::Settle,
        Phase::Auditing(_) => match &seen.job {
            Some(JobState::Over(outcome)) if came_to_its_end(outcome) => {
                not_begun(outcome).unwrap_or(NextStep::Heed)
            }
            Some(JobState::Alive) => NextStep::Await,
            // One that was killed or stopped is asked again, under a name of its own.
            Some(JobState::Lost | JobState::Over(_)) => NextStep::Audit,
            Some(JobState::Waiting | JobState::Unordered) | None => NextStep::Ask,
        },
        Phase::Undecided { .. } if seen.answered => NextStep::Decide,
        Phase::Undecided { why, .. } => NextStep::Leave { why: why.clone() },
        Phase::Merged(_) => match &seen.job {
            Some(JobState::Over(outcome)) if came_to_its_end(outcome) => {
                not_begun(outcome).unwrap_or(NextStep::Attest)
            }
            Some(JobState::Alive) => NextStep::Await,
            // A proof that was killed or stopped is made again, under a name of its own.
            Some(JobState::Lost | JobState::Over(_)) => NextStep::Merge,
            Some(JobState::Waiting | JobState::Unordered) | None => NextStep::Prove,
        },
        Phase::Proved { passed: true, .. } => NextStep::Land,
        Phase::Proved { passed: false, .. } | Phase::Landed { .. } => NextStep::Settle,
        Phase::Over(ending) => NextStep::Nothing(ending.clone()),
    }
}

/// What is done about a job that was not begun, and may be begun again.
fn not_begun(outcome: &JobOutcome) -> Option<NextStep> {
    match &outcome.done {
        JobResult::NoRoom { reason } => Some(NextStep::TakeBack { reason: reason.clone(), host_fault: true }),
        JobResult::Away { reason } => Some(NextStep::TakeBack { reason: reason.clone(), host_fault: false }),
        _ => None,
    }
}

/// Whether a job was done before anything ended it.
fn came_to_its_end(outcome: &JobOutcome) -> bool {
    outcome.stopped.is_none() && !matches!(outcome.done, JobResult::Lost { .. })
}

fn is_unjudged(merge: &Merge, seen: &AttemptFacts) -> bool {
    seen.audited && merge.audit.is_none()
}

fn is_running(seen: &AttemptFacts) -> bool {
    matches!(seen.job, Some(JobState::Alive))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{AgentWork, AttemptFailure, Audit, FailureKind, RunningAudit};
    use proptest::prelude::*;

    fn standing(which: u8) -> Option<JobState> {
        let over = |done| {
            let outcome =
                JobOutcome { version: 1, started_at: 0, ended_at: 0, times: None, stopped: None, done };
            JobState::Over(Box::new(outcome))
        };
        match which {
            0 => Some(JobState::Unordered),
            1 => Some(JobState::Waiting),
            2 => Some(JobState::Alive),
            3 => Some(JobState::Lost),
            4 => Some(over(JobResult::Stopped)),
            5 => Some(over(JobResult::NoRoom { reason: "full".into() })),
            6 => Some(over(JobResult::Away { reason: "no engine".into() })),
            7 => Some(over(JobResult::Lost { reason: "no engine".into() })),
            _ => None,
        }
    }

    fn phases() -> impl Strategy<Value = Phase> {
        let failure = || AttemptFailure::new(FailureKind::Exit, "x");
        let work = || AgentWork { base: "a".into(), candidate: "b".into() };
        let audit = || Audit { auditor: "gemini".into(), number: 1, answer: None };
        let merge = move || Merge { work: work(), audit: None, onto: None, commit: None, number: 1, lost: 0 };
        prop_oneof![
            Just(Phase::Claimed),
            Just(Phase::Started),
            Just(Phase::Ended(WorkResult::Work(work()))),
            Just(Phase::Auditing(RunningAudit {
                work: work(),
                audit: audit(),
                unheard: 0,
                why: None,
                put_off: 0
            })),
            Just(Phase::Undecided { work: work(), audit: audit(), why: "?".into() }),
            Just(Phase::Audited { work: work(), audit: audit() }),
            Just(Phase::Ended(WorkResult::Failed { failure: failure() })),
            Just(Phase::Ended(WorkResult::Canceled)),
            Just(Phase::Merged(merge())),
            any::<bool>().prop_map(move |passed| Phase::Proved { merge: merge(), passed }),
            Just(Phase::Landed { commit: "c".into() }),
            Just(Phase::Over(AttemptEnd::Canceled)),
        ]
    }

    prop_compose! {
        fn sights()(which in 0_u8..7, canceled in any::<bool>(), audited in any::<bool>(), answered in any::<bool>())
            -> (u8, AttemptFacts)
        {
            (which, AttemptFacts { job: standing(which), canceled, audited, answered })
        }
    }

    proptest! {
        #[test]
        fn an_agent_that_may_have_been_begun_is_never_begun_again((which, seen) in sights()) {
            let begun = matches!(which, 2..=5);
            let decided = next(&Phase::Started, &seen);
            prop_assert!(!(begun && matches!(decided, NextStep::Begin | NextStep::Send)), "{:?}", decided);
        }

        #[test]
        fn only_what_was_proved_lands(phase in phases(), (_, seen) in sights()) {
            let proved = matches!(phase, Phase::Proved { passed: true, .. });
            prop_assert!(next(&phase, &seen) != NextStep::Land || (proved && !seen.canceled && !seen.audited));
        }

        #[test]
        fn where_somebody_judges_nothing_goes_on_unjudged(phase in phases(), (_, mut seen) in sights()) {
            seen.audited = true;
            let decided = next(&phase, &seen);
            prop_assert!(decided != NextStep::Merge || matches!(phase, Phase::Audited { .. }), "{:?}", decided);
            prop_assert!(!matches!(decided, NextStep::Land | NextStep::Prove), "{:?}", decided);
        }

        #[test]
        fn what_is_left_to_a_person_waits_for_their_word(phase in phases(), (_, mut seen) in sights()) {
            (seen.answered, seen.canceled) = (false, false);
            if let Phase::Undecided { why, .. } = &phase {
                prop_assert_eq!(next(&phase, &seen), NextStep::Leave { why: why.clone() });
            }
        }

        #[test]
        fn what_has_landed_is_told_to_the_board_whatever_anybody_wants((_, seen) in sights()) {
            let landed = Phase::Landed { commit: "c".into() };
            prop_assert_eq!(next(&landed, &seen), NextStep::Settle);
        }

        #[test]
        fn whatever_runs_is_waited_for(phase in phases(), (_, mut seen) in sights()) {
            seen.job = standing(2);
            let decided = next(&phase, &seen);
            if matches!(phase, Phase::Started | Phase::Auditing(_) | Phase::Merged(_)) {
                prop_assert_eq!(decided, NextStep::Await);
            }
        }
    }
}
