//! References that nobody needs any more go, and let nobody in who was kept out.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use agency_landing::commit::Signature;
use agency_landing::land::{self, LandOutcome};
use agency_landing::lease::{self, GitLease, LeaseResult};
use agency_landing::names::{Oid, RefName, TaskName};
use agency_landing::plan::{self, LandFacts, LandRequest, LandWork};
use agency_landing::refs::{RefCommand, RefTransaction, ReflogReason};
use agency_landing::repository::LandingRepository;
use agency_landing::settled_refs::{self, TaskRefFacts};
use agency_landing::{candidate, landed_record};
use agency_sandbox::scope::Scope;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Put, World, worlds_by_git};

fn task(id: &str) -> TaskName {
    TaskName::new("kodingx", id).expect("a task")
}

fn oid(text: &str) -> Oid {
    Oid::parse(text).expect("a name")
}

fn take(repository: &LandingRepository, task: &TaskName, epoch: u64, expected: Option<&Oid>) -> GitLease {
    match lease::take(repository, task, (epoch, 1), expected).expect("it answers") {
        LeaseResult::Held(lease) => lease,
        LeaseResult::Lost { found } => panic!("lost to {found:?}"),
    }
}

/// An attempt lands, and gives its lease back.
fn lands(world: &World, repository: &LandingRepository, id: &str, epoch: u64) {
    let work = world.candidate(&world.at("main"), &[(&format!("src/{id}"), Put::File(b"landed\n"))]);
    world.land_with(id, &work, &[&format!("epoch={epoch}")]).is("landed");
    let last = lease::read(repository, &task(id)).expect("read").expect("a lease");
    assert!(lease::release(repository, &last.lease).expect("given back"));
}

fn known(repository: &LandingRepository, id: &str) -> TaskRefFacts {
    let named = settled_refs::task_refs(repository).expect("listed");
    let named = named.into_iter().find(|named| named.task == task(id)).expect("it has references");
    settled_refs::read_facts(repository, &named).expect("looked").expect("understood")
}

/// Everything of a task but the record of its landing.
fn everything(known: &TaskRefFacts) -> Vec<RefCommand> {
    let last = known.lease.as_ref().expect("a lease");
    let made = known.candidates.iter();
    let made = made
        .map(|made| RefCommand::Delete { name: known.task.candidate(made.epoch), at: made.commit.clone() });
    let lease = RefCommand::Delete { name: known.task.lease(), at: last.lease.object.clone() };
    let at = known.landed.as_ref().map(|landed| landed.object.clone());
    made.chain([lease, RefCommand::Verify { name: known.task.landed(), at }]).collect()
}

fn references(world: &World) -> Vec<String> {
    let listed = world.git(&["for-each-ref", "--format=%(refname)", "refs/agency"]);
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn what_is_removed_is_gone_from_where_git_packed_it_too_and_the_landing_stays() {
    for world in worlds_by_git() {
        let repository = world.open();
        for id in ["T1", "T2", "T3"] {
            lands(&world, &repository, id, 1);
        }
        world.git(&["pack-refs", "--all"]);
        // One of them is packed, and a file of its own as well.
        lands(&world, &repository, "T4", 1);
        let seen: Vec<TaskRefFacts> = ["T1", "T2", "T4"].map(|id| known(&repository, id)).into();
        assert!(seen.iter().all(|one| one.candidates.len() == 1 && one.landed_at.is_some()), "{seen:?}");
        let going: Vec<Vec<RefCommand>> = seen.iter().map(everything).collect();
        settled_refs::remove(&repository, &going).expect("removed");
        settled_refs::remove(&repository, &going).expect("once is enough");
        assert_eq!(
            references(&world),
            [
                "refs/agency/kodingx/T3/1",
                "refs/agency/landed/kodingx/T1",
                "refs/agency/landed/kodingx/T2",
                "refs/agency/landed/kodingx/T3",
                "refs/agency/landed/kodingx/T4",
                "refs/agency/lease/kodingx/T3",
            ]
        );
        assert_eq!(landed_record::read(&repository, &task("T1")).expect("read").expect("a landing").epoch, 1);
        world.assert_tidy();
    }
}

#[test]
fn a_task_that_somebody_took_up_since_it_was_looked_at_keeps_all_of_its_own() {
    for world in worlds_by_git() {
        let repository = world.open();
        for id in ["T1", "T2"] {
            lands(&world, &repository, id, 1);
        }
        let going: Vec<Vec<RefCommand>> = ["T1", "T2"].map(|id| everything(&known(&repository, id))).into();
        let last = known(&repository, "T1").lease.expect("a lease").lease.object;
        let newer = take(&repository, &task("T1"), 2, Some(&last));
        settled_refs::remove(&repository, &going).expect("removed what could be");
        assert!(lease::holds(&repository, &newer).expect("asked"));
        let left = references(&world);
        assert!(left.contains(&"refs/agency/kodingx/T1/1".to_owned()), "{left:?}");
        assert!(!left.iter().any(|name| name.ends_with("lease/kodingx/T2")), "the others go: {left:?}");
        world.assert_tidy();
    }
}

/// Whatever a stale attempt had in its hands when it fell asleep, before its lease was cleared away.
#[test]
fn a_stale_attempt_lands_nothing_when_its_lease_is_gone() {
    for world in worlds_by_git() {
        let (repository, own) = (world.open(), task("T1"));
        let base = oid(&world.at("main"));
        let work = oid(&world.candidate(base.as_str(), &[("src/1.txt", Put::File(b"stale\n"))]));
        world.git(&["checkout", "--quiet", "--detach"]);
        let stale = take(&repository, &own, 1, None);
        let target = RefName::branch("side").expect("a name");
        world.git(&["branch", "side", base.as_str()]);
        let (scope, who) = (
            Scope::parse(&["**"], &[]).expect("globs"),
            Signature::new("a", "a@localhost", 1_700_000_000, 0),
        );
        let request = LandRequest {
            lease: &stale,
            target: &target,
            expected: Some(&base),
            work: LandWork::Commit { commit: &work, base: &base },
            scope: &scope,
            // It even believes that a person opened the task again.
            reopened_after: Some(2),
            who: &who,
        };
        let before = plan::lines(&request, &LandFacts::default(), &stale.object);
        lands(&world, &repository, "T1", 2);
        let record = landed_record::read(&repository, &own).expect("read");
        let facts = LandFacts { landed: record, ..LandFacts::default() };
        let after = plan::lines(&request, &facts, &stale.object);
        settled_refs::remove(&repository, &[everything(&known(&repository, "T1"))]).expect("removed");
        assert_eq!(lease::read(&repository, &own).expect("read"), None);

        // It held its lease, and was about to move the branch.
        let reason = ReflogReason { who: &who, text: "landing".into() };
        for lines in [before, after] {
            let moved =
                RefTransaction::prepare(&repository, &lines, &reason).and_then(RefTransaction::commit);
            let refused = moved.expect_err("a lease that is gone verifies nothing");
            assert!(refused.to_string().contains("refs/agency/lease/kodingx/T1"), "{refused}");
        }
        assert!(matches!(land::land(&repository, &request), Ok(LandOutcome::Stale { found: None })));
        assert!(!candidate::keep(&repository, &stale, &work).expect("answered"));
        assert!(!lease::release(&repository, &stale).expect("answered"));
        // It was about to claim, and finds the place free.
        for (epoch, term) in [(1, 1), (1, 9), (2, 1)] {
            let taken = lease::take(&repository, &own, (epoch, term), None).expect("answered");
            assert_eq!(taken, LeaseResult::Lost { found: None }, "attempt {epoch}, term {term}");
        }
        assert_eq!((world.at("side"), references(&world).len()), (base.to_string(), 1));
        // A newer owner of the attempt that landed, whose store is an old one, may: to hear that it did.
        let LeaseResult::Held(heir) = lease::take(&repository, &own, (2, 9), None).expect("answered") else {
            panic!("it has to be closed by somebody");
        };
        let heard = land::land(&repository, &LandRequest { lease: &heir, ..request }).expect("answered");
        assert!(matches!(heard, LandOutcome::AlreadyLanded { .. }), "{heard:?}");
        assert_eq!(world.at("side"), base.to_string());
        assert!(lease::release(&repository, &heir).expect("given back"));
        settled_refs::remove(&repository, &[everything(&known(&repository, "T1"))]).expect("removed");
        // Whoever comes after the landing may.
        let next = take(&repository, &own, 3, None);
        assert!(lease::holds(&repository, &next).expect("asked"));
        assert_eq!(take(&repository, &own, 3, None), next, "taking what one has is nothing new");
    }
}

/// The place was free when it looked, was taken, and is free again.
#[test]
fn without_the_line_that_verifies_the_landing_a_claim_that_slept_through_it_succeeds() {
    for world in worlds_by_git() {
        let (repository, own) = (world.open(), task("T1"));
        let record = oid(&world.git(&["hash-object", "-w", "README"]));
        let claim = RefCommand::Update { name: own.lease(), from: None, to: record.clone() };
        let nothing_landed = RefCommand::Verify { name: own.landed(), at: None };
        lands(&world, &repository, "T1", 1);
        settled_refs::remove(&repository, &[everything(&known(&repository, "T1"))]).expect("removed");
        let who = Signature::new("a", "a@localhost", 1_700_000_000, 0);
        let reason = ReflogReason { who: &who, text: "claiming".into() };
        let moved = |lines: &[RefCommand]| RefTransaction::prepare(&repository, lines, &reason)?.commit();
        let refused = moved(&[claim.clone(), nothing_landed]).expect_err("it has landed");
        assert!(refused.to_string().contains("refs/agency/landed/kodingx/T1"), "{refused}");
        moved(&[claim]).expect("nothing else would have held it");
    }
}

/// A git that only sleeps has the same lock as one that was killed: without it, it would lose branches when it wakes up.
#[test]
fn nothing_goes_while_somebody_has_the_packed_references_and_no_lock_is_cleared_away() {
    for world in worlds_by_git() {
        let repository = world.open();
        for id in ["T1", "T2"] {
            lands(&world, &repository, id, 1);
        }
        world.git(&["pack-refs", "--all"]);
        let going: Vec<Vec<RefCommand>> = ["T1", "T2"].map(|id| everything(&known(&repository, id))).into();
        let all = references(&world);
        let paths = ["packed-refs.lock", "packed-refs.new"].map(|name| world.root().join(".git").join(name));
        for age in [Duration::ZERO, Duration::from_secs(86_400)] {
            for path in &paths {
                let file = File::create(path).expect("made");
                file.set_modified(SystemTime::now() - age).expect("dated");
            }
            let lock = settled_refs::remove(&repository, &going).expect("looked").expect("it is locked");
            assert_eq!(lock.path, paths[0].canonicalize().expect("there"));
            assert!(lock.since.elapsed().expect("past") >= age);
            assert!(paths.iter().all(|path| path.exists()));
            assert_eq!(references(&world), all);
        }
        paths.iter().for_each(|path| fs::remove_file(path).expect("removed by a person"));
        assert_eq!(settled_refs::remove(&repository, &going).expect("removed"), None);
        assert_eq!(references(&world).len(), 2);
        world.assert_tidy();
    }
}

/// Ends every git that moves references for this process, in the middle of what it does.
fn kill_movers() {
    let mut killed = 0;
    for thread in fs::read_dir("/proc/self/task").expect("threads").flatten() {
        let children = fs::read_to_string(thread.path().join("children")).expect("children");
        for child in children.split_whitespace() {
            let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            if words.split(|byte| *byte == 0).any(|word| word == b"update-ref") {
                let pid = Pid::from_raw(child.parse().expect("a number")).expect("a process");
                kill_process(pid, Signal::KILL).expect("killed");
                killed += 1;
            }
        }
    }
    assert!(killed > 0, "nobody was moving anything");
}

#[test]
fn a_git_that_is_killed_while_it_removes_has_removed_nothing_and_its_lock_is_told_of() {
    for world in worlds_by_git() {
        let repository = world.open();
        lands(&world, &repository, "T1", 1);
        world.git(&["pack-refs", "--all"]);
        let (going, all) = (everything(&known(&repository, "T1")), references(&world));
        let who = Signature::new("a", "a@localhost", 1_700_000_000, 0);
        let reason = ReflogReason { who: &who, text: "removing".into() };
        let prepared = RefTransaction::prepare(&repository, &going, &reason).expect("prepared");
        kill_movers();
        drop(prepared);
        assert_eq!(references(&world), all, "all of it, or nothing");
        // It has left two files; a person removes each when they are told of it.
        for _ in 0..2 {
            let lock = settled_refs::remove(&repository, std::slice::from_ref(&going)).expect("looked");
            assert_eq!(references(&world), all);
            fs::remove_file(lock.expect("git has left it").path).expect("removed by a person");
        }
        assert_eq!(settled_refs::remove(&repository, &[going]).expect("removed"), None);
        assert_eq!(references(&world), ["refs/agency/landed/kodingx/T1"]);
        world.assert_tidy();
    }
}

#[test]
fn two_that_remove_the_same_at_the_same_time_are_both_content() {
    for world in worlds_by_git() {
        let (one, other) = (world.open(), world.open());
        let ids: Vec<String> = (0..5).map(|number| format!("T{number}")).collect();
        ids.iter().for_each(|id| lands(&world, &one, id, 1));
        let going: Vec<Vec<RefCommand>> = ids.iter().map(|id| everything(&known(&one, id))).collect();
        std::thread::scope(|scope| {
            for repository in [&one, &other] {
                scope.spawn(|| settled_refs::remove(repository, &going).expect("removed"));
            }
        });
        assert_eq!(references(&world).len(), ids.len());
        world.assert_tidy();
    }
}
