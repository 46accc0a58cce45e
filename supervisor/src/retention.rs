//! What goes when it is settled and old: folders of attempts, references of tasks, and what the store says of both.
//!
//! A reference goes when two things are certain: it is not needed any more for its purpose, and nothing of it has
//! happened for a month. What is not certain stays.
//!
//! ```text
//! candidate   its task has landed, with this attempt or with a later one;
//!             or the store knows that it came to nothing, and a later attempt has made something
//! lease       it is given back, its task has landed since, and none of the task's candidates is left
//! landed      never: it is how git knows that a task has landed, and may not be claimed any more
//! ```
//!
//! So of a task that has not landed, three things stay: work that was kept (`--land none`), the last work, from which
//! the next attempt goes on, and anything the store has no memory of. The store's own rows go last, and only when the
//! references went: the references are judged by them. An interrupted run leaves a state that the next one finds the
//! same or further on.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::attempt::{Attempt, AttemptEnd, Phase, TaskKey};
use crate::records;
use crate::store::{AttemptStore, AttemptStoreError};
use agency_landing::refs::RefCommand;
use agency_landing::repository::LandingRepository;
use agency_landing::settled_refs::{self, CandidateCommit, TaskRefFacts, TaskRefs};

/// Why something old could not be cleared away.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RetentionError {
    #[error("can't remove old records")]
    Records(#[from] io::Error),
    #[error("can't remove old references")]
    References(#[from] agency_landing::Error),
    #[error("can't remove old references: {} is there for more than an hour; if no git is at work, remove it", .0.display())]
    Locked(PathBuf),
    #[error(transparent)]
    Store(#[from] AttemptStoreError),
}

/// Clears away what is settled and old. May be done at any time, and beside others who do the same.
pub(crate) async fn tidy_up<S: AttemptStore>(
    state: &Path,
    store: &S,
    repository: &Arc<LandingRepository>,
    now: i64,
) -> Result<(), RetentionError> {
    let before = now - i64::try_from(records::AGE.as_secs()).unwrap_or(i64::MAX);
    records::prune(state, store).await?;
    let named = blocking(repository, settled_refs::task_refs).await?;
    let latest: HashMap<TaskKey, Attempt> =
        store.latest().await?.into_iter().map(|attempt| (attempt.task.clone(), attempt)).collect();
    let mut going = Vec::new();
    for named in named {
        let key = TaskKey { protocol: named.task.protocol().to_owned(), id: named.task.id().to_owned() };
        if !is_worth_a_look(&named, latest.get(&key), before) {
            continue;
        }
        // Asked before git is: an attempt that takes the task up later moves its lease, and then nothing goes.
        let attempts = store.attempts(&key).await?;
        let known =
            blocking(repository, move |repository| settled_refs::read_facts(repository, &named)).await?;
        going.extend(known.map(|known| settled_lines(&known, &attempts, before)).filter(|it| !it.is_empty()));
    }
    match blocking(repository, move |repository| settled_refs::remove(repository, &going)).await? {
        None => store.prune(before).await.map(drop).map_err(Into::into),
        Some(lock) if lock.since.elapsed().is_ok_and(|age| age > LONG) => {
            Err(RetentionError::Locked(lock.path))
        }
        // Another process is at it; there is a next time.
        Some(_) => Ok(()),
    }
}

/// No git holds the lock of packed references for so long: one that does was killed, or sleeps.
const LONG: Duration = Duration::from_secs(3600);

async fn blocking<T: Send + 'static>(
    repository: &Arc<LandingRepository>,
    work: impl FnOnce(&LandingRepository) -> Result<T, agency_landing::Error> + Send + 'static,
) -> Result<T, RetentionError> {
    let repository = Arc::clone(repository);
    match tokio::task::spawn_blocking(move || work(&repository)).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(io::Error::other("a thread that looked at git broke").into()),
    }
}

/// Whether something of a task could go, as far as that is cheap to tell.
fn is_worth_a_look(named: &TaskRefs, last: Option<&Attempt>, before: i64) -> bool {
    let quiet = last.is_none_or(|last| last.phase.is_over() && last.recorded_at < before);
    let left = named.lease.is_some() || named.pin.is_some() || !named.candidates.is_empty();
    named.candidates.len() > 1 || (named.landed.is_some() && left && quiet)
}

/// What goes of a task, and what has to be so when it does: it was not claimed since, nor landed anew.
fn settled_lines(known: &TaskRefFacts, attempts: &[Attempt], before: i64) -> Vec<RefCommand> {
    let is_held = known.lease.as_ref().is_some_and(|last| !last.released);
    if is_held || attempts.iter().any(|one| !one.phase.is_over()) {
        return Vec::new();
    }
    let (going, staying): (Vec<&CandidateCommit>, Vec<&CandidateCommit>) =
        known.candidates.iter().partition(|made| is_superfluous(made, known, attempts, before));
    let lease_goes = staying.is_empty() && is_lease_superfluous(known, attempts, before);
    if going.is_empty() && !lease_goes {
        return Vec::new();
    }
    // No attempt is open, so nothing stands on it.
    let pin = known.pin.as_ref().map(|at| RefCommand::Delete { name: known.task.pin(), at: at.clone() });
    let candidates = going
        .iter()
        .map(|made| RefCommand::Delete { name: known.task.candidate(made.epoch), at: made.commit.clone() });
    let name = known.task.lease();
    let lease = match &known.lease {
        Some(last) if lease_goes => RefCommand::Delete { name, at: last.lease.object.clone() },
        last => RefCommand::Verify { name, at: last.as_ref().map(|last| last.lease.object.clone()) },
    };
    let at = known.landed.as_ref().map(|landed| landed.object.clone());
    let landed = RefCommand::Verify { name: known.task.landed(), at };
    candidates.chain(pin).chain([lease, landed]).collect()
}

fn is_superfluous(made: &CandidateCommit, known: &TaskRefFacts, attempts: &[Attempt], before: i64) -> bool {
    let attempt = attempts.iter().find(|one| one.epoch.0 == made.epoch);
    let last = [made.at, attempt.map(|one| one.recorded_at)].into_iter().flatten().max();
    let has_landed = known.landed.as_ref().is_some_and(|landed| landed.epoch >= made.epoch);
    let came_to_nothing = attempt.is_some_and(|one| match &one.phase {
        Phase::Over(AttemptEnd::Kept { .. } | AttemptEnd::Done { .. }) => false,
        Phase::Over(_) => true,
        _ => false,
    });
    let is_last = known.candidates.iter().all(|other| other.epoch <= made.epoch);
    last.is_some_and(|last| last < before) && (has_landed || (came_to_nothing && !is_last))
}

/// The record of the landing is the better fence then: it bars every attempt up to its own ([`agency_landing::lease`]).
fn is_lease_superfluous(known: &TaskRefFacts, attempts: &[Attempt], before: i64) -> bool {
    let (Some(last), Some(landed)) = (&known.lease, &known.landed) else { return false };
    let seen = attempts.iter().map(|one| one.recorded_at).chain(known.landed_at).max();
    last.released && landed.epoch >= last.lease.epoch && seen.is_some_and(|seen| seen < before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{AgentWork, AttemptFailure, Epoch, FailureKind};
    use agency_landing::landed_record::LandedRecord;
    use agency_landing::lease::{GitLease, LastLease};
    use agency_landing::names::{Oid, RefName, TaskName};
    use proptest::prelude::*;

    const BEFORE: i64 = 1_000;
    const OLD: i64 = 10;
    const YOUNG: i64 = 5_000;

    fn oid(number: u64) -> Oid {
        Oid::parse(&format!("{:040x}", number + 1)).expect("a name")
    }

    fn task() -> TaskName {
        TaskName::new("kodingx", "T1").expect("a task")
    }

    /// A task with these candidates, all of them old, whose last attempt has given its lease back.
    fn known(epochs: &[u64], landed: Option<u64>) -> TaskRefFacts {
        let last = epochs.iter().copied().chain(landed).max().unwrap_or(1);
        let made = |epoch: &u64| CandidateCommit { epoch: *epoch, commit: oid(*epoch), at: Some(OLD) };
        let landed = landed.map(|epoch| LandedRecord {
            epoch,
            term: 1,
            branch: RefName::branch("main").expect("a name"),
            commit: oid(500 + epoch),
            object: oid(600 + epoch),
        });
        TaskRefFacts {
            task: task(),
            candidates: epochs.iter().map(made).collect(),
            lease: Some(LastLease {
                lease: GitLease { task: task(), epoch: last, term: 1, object: oid(400) },
                released: true,
            }),
            landed_at: landed.as_ref().map(|_| OLD),
            landed,
            pin: None,
        }
    }

    fn attempt(epoch: u64, phase: Phase, recorded_at: i64) -> Attempt {
        Attempt { epoch: Epoch(epoch), recorded_at, ..Attempt::sample("T1", "codex", phase) }
    }

    fn failed(epoch: u64) -> Phase {
        let work = AgentWork { base: oid(0).to_string(), candidate: oid(epoch).to_string() };
        Phase::Over(AttemptEnd::failed(AttemptFailure::new(FailureKind::Verify, "no").with_work(&work)))
    }

    fn done() -> Phase {
        Phase::Over(AttemptEnd::Done { commit: oid(501).to_string() })
    }

    /// The names of what goes.
    fn gone(known: &TaskRefFacts, attempts: &[Attempt]) -> Vec<String> {
        let name = |line: &RefCommand| match line {
            RefCommand::Delete { name, .. } => {
                Some(name.as_str().trim_start_matches("refs/agency/").to_owned())
            }
            _ => None,
        };
        settled_lines(known, attempts, BEFORE).iter().filter_map(name).collect()
    }

    #[test]
    fn of_a_task_that_landed_long_ago_only_the_landing_is_left() {
        let attempts = [attempt(2, done(), OLD)];
        assert_eq!(
            gone(&known(&[1, 2], Some(2)), &attempts),
            ["kodingx/T1/1", "kodingx/T1/2", "lease/kodingx/T1"]
        );
        // The store may have been thrown away: git knows enough.
        assert_eq!(gone(&known(&[1, 2], Some(2)), &[]).len(), 3);
        assert_eq!(gone(&known(&[], Some(2)), &[]), ["lease/kodingx/T1"]);
    }

    #[test]
    fn what_is_removed_is_so_only_while_the_task_is_as_it_was_seen() {
        let (seen, lease, landed) = (known(&[1], Some(1)), task().lease(), task().landed());
        let lines = settled_lines(&seen, &[], BEFORE);
        assert!(lines.contains(&RefCommand::Delete { name: lease.clone(), at: oid(400) }));
        assert!(lines.contains(&RefCommand::Verify { name: landed.clone(), at: Some(oid(601)) }));
        let attempts = [attempt(1, failed(1), OLD), attempt(2, failed(2), OLD)];
        let lines = settled_lines(&known(&[1, 2], None), &attempts, BEFORE);
        assert!(lines.contains(&RefCommand::Verify { name: lease, at: Some(oid(400)) }));
        assert!(lines.contains(&RefCommand::Verify { name: landed, at: None }));
    }

    #[test]
    fn what_is_young_stays_whoever_says_so() {
        let all = known(&[1, 2], Some(2));
        assert_eq!(gone(&all, &[attempt(2, done(), YOUNG)]), ["kodingx/T1/1"], "of the store");
        let mut by_git = all.clone();
        by_git.candidates[1].at = Some(YOUNG);
        assert_eq!(gone(&by_git, &[]), ["kodingx/T1/1"], "of git");
        by_git.candidates[1].at = None;
        assert_eq!(gone(&by_git, &[]), ["kodingx/T1/1"], "nobody can tell");
        let lease = TaskRefFacts { landed_at: Some(YOUNG), ..known(&[], Some(2)) };
        assert_eq!(gone(&lease, &[]), [] as [&str; 0]);
    }

    #[test]
    fn a_task_that_somebody_is_at_keeps_everything() {
        let all = known(&[1, 2], Some(2));
        assert_eq!(gone(&all, &[attempt(3, Phase::Claimed, OLD)]), [] as [&str; 0]);
        let mut held = all;
        held.lease.as_mut().expect("a lease").released = false;
        assert_eq!(gone(&held, &[]), [] as [&str; 0]);
    }

    #[test]
    fn a_task_that_has_not_landed_keeps_its_last_work_and_what_was_kept_and_what_nobody_remembers() {
        let attempts = [
            attempt(1, failed(1), OLD),
            attempt(2, Phase::Over(AttemptEnd::Kept { candidate: oid(2).to_string() }), OLD),
            attempt(4, failed(4), OLD),
            attempt(5, Phase::Over(AttemptEnd::Canceled), OLD),
        ];
        assert_eq!(gone(&known(&[1, 2, 3, 4, 5], None), &attempts), ["kodingx/T1/1", "kodingx/T1/4"]);
    }

    #[test]
    fn a_task_that_was_opened_again_keeps_its_lease_and_what_came_after_the_landing() {
        let attempts = [attempt(2, done(), OLD), attempt(3, failed(3), OLD)];
        assert_eq!(gone(&known(&[1, 2, 3], Some(2)), &attempts), ["kodingx/T1/1", "kodingx/T1/2"]);
        // Its last attempt made nothing, and was later than the landing: only the lease knows of it.
        let mut later = known(&[], Some(2));
        later.lease.as_mut().expect("a lease").lease.epoch = 3;
        assert_eq!(gone(&later, &[attempt(3, Phase::Over(AttemptEnd::Canceled), OLD)]), [] as [&str; 0]);
    }

    proptest! {
        /// The next attempt goes on from the last failure with work that the store remembers when it has forgotten what
        /// is old: everything young, and the last attempt.
        #[test]
        fn what_the_next_attempt_goes_on_from_is_never_removed(
            endings in prop::collection::vec((0_u8..4, any::<bool>()), 1..6), landed in prop::option::of(1_u64..6),
        ) {
            let attempts: Vec<Attempt> = (1..).zip(&endings).map(|(epoch, (kind, young))| {
                let phase = match kind {
                    0 | 1 => failed(epoch),
                    2 => Phase::Over(AttemptEnd::Lost { reason: "x".into() }),
                    _ => Phase::Over(AttemptEnd::Kept { candidate: oid(epoch).to_string() }),
                };
                attempt(epoch, phase, if *young { YOUNG } else { OLD })
            }).collect();
            let last = attempts.len() as u64;
            let landed = landed.filter(|landed| *landed < last);
            let epochs: Vec<u64> = (1..=last).collect();
            let gone = gone(&known(&epochs, landed), &attempts);
            let kept: Vec<&Attempt> =
                attempts.iter().filter(|one| one.recorded_at >= BEFORE || one.epoch.0 == last).collect();
            for one in kept {
                let name = format!("kodingx/T1/{}", one.epoch);
                prop_assert!(!gone.contains(&name), "{name} of {gone:?}");
            }
            prop_assert!(!gone.contains(&"lease/kodingx/T1".to_owned()));
        }
    }
}
