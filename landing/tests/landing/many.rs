//! Many landings: one after the other, and at once.

use std::collections::{BTreeMap, BTreeSet};

use agency_landing::candidate;
use agency_landing::commit::{self, CommitMetadata, Signature};
use agency_landing::land::{self, LandOutcome};
use agency_landing::lease::{self, LeaseResult};
use agency_landing::merge::{self, MergeOutcome};
use agency_landing::names::{Oid, RefName, TaskName};
use agency_landing::plan::{LandRequest, LandWork};
use agency_landing::refs;
use agency_landing::repository::LandingRepository;
use agency_sandbox::scope::Scope;

use crate::support::{Said, World, worlds_by_git};

/// Candidates on one base, each with a file of its own.
fn candidates(world: &World, prefix: &str, count: usize) -> Vec<(String, String)> {
    let base = world.at("main");
    let tasks: Vec<String> = (0..count).map(|number| format!("{prefix}{number}")).collect();
    let mut stream = String::new();
    for task in &tasks {
        let (name, length) = (format!("refs/candidates/{task}"), task.len());
        stream.push_str(&format!(
            "commit {name}\ncommitter A <a@b> 1700000000 +0000\ndata 4\nWork\nfrom {base}\n"
        ));
        stream.push_str(&format!("M 100644 inline work/{task}\ndata {length}\n{task}\n\n"));
    }
    let input = world.outside("stream");
    std::fs::write(&input, stream).expect("written");
    let mut import = world.command(&world.root(), &["fast-import", "--quiet"]);
    let done = import.stdin(std::fs::File::open(&input).expect("opens")).status().expect("git runs");
    assert!(done.success());
    let listed =
        world.git(&["for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/candidates"]);
    let found: BTreeMap<&str, &str> =
        listed.lines().filter_map(|line| line.split_once(' ')).map(|(object, task)| (task, object)).collect();
    tasks.iter().map(|task| (task.clone(), found[task.as_str()].to_owned())).collect()
}

fn assert_each_once(world: &World, tasks: &[(String, String)], start: &str) {
    let log = world.git(&["log", "--format=%H", "--name-only", "--diff-filter=A", &format!("{start}..main")]);
    let files: Vec<&str> = log.lines().filter(|line| line.starts_with("work/")).collect();
    let expected: BTreeSet<String> = tasks.iter().map(|(task, _)| format!("work/{task}")).collect();
    assert_eq!(files.len(), tasks.len(), "each once");
    assert_eq!(files.iter().map(|file| (*file).to_owned()).collect::<BTreeSet<_>>(), expected);
    assert_eq!(world.status(), "");
    for (task, _) in tasks {
        assert_eq!(world.read(&format!("work/{task}")), *task);
    }
}

#[test]
fn two_hundred_candidates_land_in_a_row_each_exactly_once() {
    let world = worlds_by_git().pop().expect("a git");
    let start = world.at("main");
    let tasks = candidates(&world, "T", 200);
    for (task, work) in &tasks {
        world.land(task, work).is("landed");
    }
    assert_eq!(world.git(&["rev-list", "--count", &format!("{start}..main")]), "200");
    assert_each_once(&world, &tasks, &start);
    for (task, work) in tasks.iter().step_by(20) {
        world.land(task, work).is("already_landed");
    }
    assert_eq!(world.git(&["rev-list", "--count", &format!("{start}..main")]), "200");
    world.assert_tidy();
}

#[test]
fn landings_of_several_processes_at_once_all_land_and_none_is_lost() {
    for world in worlds_by_git() {
        let start = world.at("main");
        let tasks = candidates(&world, "T", 16);
        for pair in tasks.chunks(4) {
            let running: Vec<_> = pair
                .iter()
                .map(|(task, work)| {
                    let arguments = [format!("candidate={work}"), "scope=**".to_owned()];
                    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                    world.program(task, &arguments).spawn().expect("it starts")
                })
                .collect();
            for child in running {
                Said::of(child).is("landed");
            }
        }
        assert_each_once(&world, &tasks, &start);
        world.assert_tidy();
    }
}

#[test]
fn the_same_attempt_landed_by_two_processes_at_once_lands_once() {
    for world in worlds_by_git() {
        let (start, tasks) = (world.at("main"), candidates(&world, "T", 6));
        // One more commit, so that each of them has to make a commit of its own.
        world.write("README", b"moved\n");
        world.commit("Moved");
        for (task, work) in &tasks {
            let claimed = Said::of(world.program(task, &["act=claim"]).spawn().expect("starts"));
            let lease = claimed.value["lease"].as_str().expect("a lease").to_owned();
            let arguments = [format!("candidate={work}"), "scope=**".to_owned(), format!("lease={lease}")];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let twins = [0, 1].map(|_| world.program(task, &arguments).spawn().expect("it starts"));
            let mut said = twins.map(|child| Said::of(child).outcome().to_owned());
            said.sort();
            assert_eq!(said, ["already_landed", "landed"]);
        }
        assert_each_once(&world, &tasks, &start);
    }
}

#[test]
fn a_person_who_commits_all_the_time_loses_nothing() {
    for world in worlds_by_git() {
        let tasks = candidates(&world, "T", 8);
        for (number, (task, work)) in tasks.iter().enumerate() {
            let arguments = [format!("candidate={work}"), "scope=**".to_owned()];
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let child = world.program(task, &arguments).spawn().expect("it starts");
            let name = format!("person-{number}");
            world.write(&name, b"mine\n");
            // Each may be refused while the other is at it, and tries again.
            let committed = || {
                let add = world.command(&world.root(), &["add", &name]).output().expect("git runs");
                let arguments = ["commit", "--quiet", "-m", &name, "--", &name];
                let commit = world.command(&world.root(), &arguments).output().expect("git runs");
                add.status.success() && commit.status.success()
            };
            while !committed() {}
            let mut said = Said::of(child);
            while said.outcome() != "landed" && said.outcome() != "already_landed" {
                assert!(["busy", "waits"].contains(&said.outcome()), "{said:?}");
                said = world.land(task, work);
            }
        }
        let files = world.git(&["ls-tree", "-r", "--name-only", "main"]);
        for number in 0..tasks.len() {
            assert!(
                files.contains(&format!("person-{number}")) && files.contains(&format!("work/T{number}"))
            );
        }
        assert_eq!(world.status(), "");
        world.assert_tidy();
    }
}

/// As an engine does it that keeps one repository open.
pub(crate) fn land_here(repository: &LandingRepository, task: &str, work: &str) {
    let task = TaskName::new("kodingx", task).expect("a task");
    let who = Signature::new("agency", "agency@localhost", 1_700_000_000, 0);
    let work = Oid::parse(work).expect("a commit");
    let Ok(LeaseResult::Held(lease)) = lease::take(repository, &task, (1, 1), None) else {
        panic!("{task} is lost")
    };
    assert!(candidate::keep(repository, &lease, &work).expect("kept"));
    let base = candidate::base_of(repository, &work).expect("a base");
    let (target, scope) =
        (RefName::branch("main").expect("a name"), Scope::parse(&["**"], &[]).expect("globs"));
    loop {
        let tip = refs::at(repository, &target).expect("read").expect("a branch");
        let Ok(MergeOutcome::Clean { tree }) = merge::merge_candidate(repository, &base, &work, &tip) else {
            panic!("{task}")
        };
        let statement = CommitMetadata {
            author: &who,
            committer: &who,
            subject: "Work",
            body: "",
            task: &task,
            epoch: 1,
            verify: None,
        };
        let commit = commit::write(repository, &tree, &tip, &statement).expect("made");
        let request = LandRequest {
            lease: &lease,
            target: &target,
            expected: Some(&tip),
            work: LandWork::Commit { commit: &commit, base: &tip },
            scope: &scope,
            reopened_after: None,
            who: &who,
        };
        match land::land(repository, &request).expect("answered") {
            LandOutcome::Landed { .. } => break,
            LandOutcome::Moved { .. } => {}
            other => panic!("{task}: {other:?}"),
        }
    }
    assert!(lease::release(repository, &lease).expect("given back"));
}

#[test]
fn threads_that_share_one_repository_land_each_task_exactly_once() {
    for world in worlds_by_git() {
        let (start, tasks) = (world.at("main"), candidates(&world, "T", 24));
        let repository = world.open();
        std::thread::scope(|scope| {
            for share in tasks.chunks(6) {
                let repository = &repository;
                scope.spawn(move || {
                    for (task, work) in share {
                        land_here(repository, task, work);
                    }
                });
            }
        });
        assert_each_once(&world, &tasks, &start);
        for object in world.git(&["for-each-ref", "--format=%(objectname)", "refs/agency/lease"]).lines() {
            assert!(world.git(&["cat-file", "blob", object]).starts_with("agency released "), "{object}");
        }
        drop(repository);
        world.assert_tidy();
    }
}
