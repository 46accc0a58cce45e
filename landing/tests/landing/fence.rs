//! Who lost the lease lands nothing, although the branch never moved.

use agency_landing::commit::Signature;
use agency_landing::land::{self, LandOutcome};
use agency_landing::lease::{self, GitLease, LastLease, LeaseResult};
use agency_landing::names::{Oid, RefName, TaskName};
use agency_landing::plan::{self, LandFacts, LandRequest, LandWork};
use agency_landing::refs::{RefCommand, RefTransaction, ReflogReason};
use agency_landing::repository::LandingRepository;
use agency_landing::{candidate, landed_record};
use agency_sandbox::scope::Scope;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::support::{Put, Said, worlds, worlds_by_git};

fn who() -> Signature {
    Signature::new("agency", "agency@localhost", 1_700_000_000, 0)
}

fn take(repository: &LandingRepository, task: &TaskName, epoch: u64, expected: Option<&Oid>) -> GitLease {
    match lease::take(repository, task, (epoch, 1), expected).expect("it answers") {
        LeaseResult::Held(lease) => lease,
        LeaseResult::Lost { found } => panic!("lost to {found:?}"),
    }
}

#[test]
fn an_owner_that_was_stopped_past_its_lease_lands_nothing_when_it_wakes_up() {
    for world in worlds() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"stale\n"))]);
        for moment in ["LockIndex:Before", "Prepare:Before"] {
            let arguments =
                [format!("candidate={work}"), "scope=**".into(), format!("stop={moment}"), "epoch=1".into()];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            world.git(&["update-ref", "-d", "refs/agency/lease/kodingx/T1"]);
            let owner = world.program("T1", &arguments).spawn().expect("it starts");
            let pid = Pid::from_child(&owner);
            let (_, status) = waitpid(Some(pid), WaitOptions::UNTRACED).expect("waits").expect("a status");
            assert!(status.stopped(), "{status:?}");
            // The next attempt claims the task and ends without landing anything.
            Said::of(world.program("T1", &["act=claim", "epoch=2"]).spawn().expect("it starts"))
                .is("claimed");
            kill_process(pid, Signal::CONT).expect("woken");
            Said::of(owner).is("stale");
            assert_eq!((world.at("main"), world.status().as_str()), (base.clone(), ""));
            assert!(!world.git(&["for-each-ref"]).contains("refs/agency/landed"));
            world.assert_tidy();
        }
    }
}

/// The plan sees a lost lease too. What holds when it is lost after that is one line of the transaction.
#[test]
fn without_the_line_that_verifies_the_lease_the_same_stale_attempt_lands() {
    for world in worlds_by_git() {
        let (repository, task) = (world.open(), TaskName::new("kodingx", "T1").expect("a task"));
        let base = Oid::parse(&world.at("main")).expect("a commit");
        let work = world.candidate(base.as_str(), &[("src/1.txt", Put::File(b"stale\n"))]);
        let work = Oid::parse(&work).expect("a commit");
        world.git(&["checkout", "--quiet", "--detach"]);
        let stale = take(&repository, &task, 1, None);
        let target = RefName::branch("main").expect("a name");
        let (scope, who) = (Scope::parse(&["**"], &[]).expect("globs"), who());
        let request = LandRequest {
            lease: &stale,
            target: &target,
            expected: Some(&base),
            work: LandWork::Commit { commit: &work, base: &base },
            scope: &scope,
            reopened_after: None,
            who: &who,
        };
        // What the stale owner saw when it still held the lease.
        let lines = plan::lines(&request, &LandFacts::default(), &stale.object);
        let newer = take(&repository, &task, 2, Some(&stale.object));
        let reason = ReflogReason { who: &who, text: "landing".into() };
        let moved = |lines: &[RefCommand]| RefTransaction::prepare(&repository, lines, &reason)?.commit();
        let refused = moved(&lines).expect_err("the fence holds");
        assert!(refused.to_string().contains("refs/agency/lease/kodingx/T1"), "{refused}");
        assert_eq!(world.at("main"), base.as_str());
        assert!(
            matches!(land::land(&repository, &request), Ok(LandOutcome::Stale { found: Some(found) }) if found == newer.object)
        );

        let unfenced: Vec<RefCommand> =
            lines.into_iter().filter(|line| !matches!(line, RefCommand::Verify { .. })).collect();
        assert_eq!(unfenced.len(), 2);
        moved(&unfenced).expect("nothing else would have held it");
        assert_eq!(world.at("main"), work.as_str());
    }
}

#[test]
fn a_stale_attempt_can_not_even_keep_its_candidate() {
    for world in worlds_by_git() {
        let (repository, task) = (world.open(), TaskName::new("kodingx", "T1").expect("a task"));
        let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(b"stale\n"))]);
        let work = Oid::parse(&work).expect("a commit");
        let stale = take(&repository, &task, 1, None);
        assert!(candidate::keep(&repository, &stale, &work).expect("kept"));
        assert_eq!(world.at("refs/agency/kodingx/T1/1"), work.as_str());
        let newer = take(&repository, &task, 2, Some(&stale.object));
        let other = Oid::parse(&world.at("main")).expect("a commit");
        assert!(!candidate::keep(&repository, &stale, &other).expect("answered"));
        assert_eq!(candidate::read(&repository, &stale).expect("read"), Some(work));
        assert_eq!(candidate::read(&repository, &newer).expect("read"), None);
    }
}

#[test]
fn a_lease_is_taken_from_where_it_was_seen_and_from_nowhere_else() {
    for world in worlds_by_git() {
        let (repository, task) = (world.open(), TaskName::new("kodingx", "a/b:c d").expect("a task"));
        assert_eq!(lease::read(&repository, &task).expect("read"), None);
        let first = take(&repository, &task, 1, None);
        assert_eq!(take(&repository, &task, 1, None), first, "taking what one has is nothing new");
        let last = |lease: &GitLease, released| Some(LastLease { lease: lease.clone(), released });
        assert_eq!(lease::read(&repository, &task).expect("read"), last(&first, false));
        assert!(lease::holds(&repository, &first).expect("asked"));

        // Packed or not, it is where it is.
        world.git(&["pack-refs", "--all"]);
        let second = take(&repository, &task, 2, Some(&first.object));
        assert!(!lease::holds(&repository, &first).expect("asked"));
        for expected in [None, Some(&first.object)] {
            let late = lease::take(&repository, &task, (3, 1), expected).expect("answered");
            assert_eq!(late, LeaseResult::Lost { found: Some(second.object.clone()) });
        }
        assert!(!lease::release(&repository, &first).expect("answered"));
        world.git(&["pack-refs", "--all"]);
        assert!(lease::release(&repository, &second).expect("answered"));
        let over = lease::read(&repository, &task).expect("read").expect("a record");
        assert!(over.released && over.bars(2, 1) && over.bars(1, 9) && !over.bars(2, 2) && !over.bars(3, 1));
        assert!(!lease::release(&repository, &second).expect("answered"));
        let gone = lease::take(&repository, &task, (3, 1), Some(&second.object)).expect("answered");
        assert_eq!(gone, LeaseResult::Lost { found: Some(over.lease.object) });
    }
}

#[test]
fn of_many_who_claim_at_once_one_has_it() {
    for world in worlds_by_git() {
        let claims: Vec<_> = (1..=6)
            .map(|term| {
                let term = format!("term={term}");
                world.program("T1", &["act=claim", &term]).spawn().expect("it starts")
            })
            .collect();
        let said: Vec<Said> = claims.into_iter().map(Said::of).collect();
        let now = world.at("refs/agency/lease/kodingx/T1");
        let holders = said.iter().filter(|said| said.value["lease"] == now.as_str()).count();
        assert_eq!(holders, 1, "{said:?}");
    }
}

#[test]
fn a_task_lands_once_unless_a_person_opened_it_again() {
    for world in worlds() {
        let base = world.at("main");
        let first = world.candidate(&base, &[("src/1.txt", Put::File(b"first\n"))]);
        world.land_with("T1", &first, &["epoch=1"]).is("landed");
        world.land_with("T1", &first, &["epoch=1"]).is("already_landed");
        let second = world.candidate(&first, &[("src/1.txt", Put::File(b"second\n"))]);
        let said = world.land_with("T1", &second, &["epoch=2"]);
        assert_eq!(said.is("landed_before").value["landed"]["epoch"], 1);
        assert_eq!(world.read("src/1.txt"), "first\n");
        world.land_with("T1", &second, &["epoch=3", "reopened=1"]).is("landed");
        assert_eq!((world.read("src/1.txt").as_str(), world.at("main")), ("second\n", second));
    }
}

#[test]
fn what_landed_is_known_whatever_happens_to_the_branch() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"first\n"))]);
        world.land("T1", &work).is("landed");
        world.git(&["reset", "--quiet", "--hard", &base]);
        world.land("T1", &work).is("already_landed");
        assert_eq!(world.at("main"), base);
        let task = TaskName::new("kodingx", "T1").expect("a task");
        let record = landed_record::read(&world.open(), &task).expect("read").expect("a record");
        assert_eq!((record.epoch, record.commit.as_str()), (1, work.as_str()));
        assert_eq!(record.branch, RefName::branch("main").expect("a name"));
    }
}
