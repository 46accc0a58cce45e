//! What a landing costs, in gits that are started for it, and in time.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use agency_landing::commit::{self, CommitMetadata, Signature};
use agency_landing::land::{self, LandOutcome};
use agency_landing::lease::{self, LeaseResult};
use agency_landing::merge::{self, MergeOutcome};
use agency_landing::names::{RefName, TaskName};
use agency_landing::plan::{LandRequest, LandWork};
use agency_landing::repository::LandingRepository;
use agency_landing::{candidate, refs};
use agency_sandbox::scope::Scope;

use crate::candidates::Attempt;
use crate::support::{Actor, World, ends};

/// A git that notes each of its starts.
pub(crate) fn noting(world: &World) -> (PathBuf, PathBuf) {
    let (program, notes) = (world.outside("noting-git"), world.outside("notes"));
    let script =
        format!("#!/bin/sh\necho \"$1\" >> '{}'\nexec '{}' \"$@\"\n", notes.display(), world.git.display());
    fs::write(&program, script).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
    fs::write(&notes, "").expect("written");
    (program, notes)
}

/// One task from its claim to its end, and what each part took.
fn round(
    world: &World,
    repository: &LandingRepository,
    attempt: &Attempt,
    number: usize,
    moved: bool,
    mut part: impl FnMut(&'static str, Duration),
) {
    let mut begun = Instant::now();
    let mut ended = |name: &'static str, begun: &mut Instant| {
        part(name, begun.elapsed());
        *begun = Instant::now();
    };
    let task = TaskName::new("kodingx", &format!("T{number}")).expect("a task");
    let target = RefName::branch("main").expect("a name");
    let who = Signature::new("agency", "agency@localhost", 1_700_000_000, 0);
    let scope = Scope::parse(&["**"], &[]).expect("globs");
    let base = refs::at(repository, &target).expect("read").expect("a branch");
    attempt.put("src/1.txt", format!("{number}\n").as_bytes());
    let harvest = attempt.harvest(&["**"]);
    if moved {
        world.write("README", format!("{number}\n").as_bytes());
        world.commit("Moves");
    }
    begun = begun.max(Instant::now());
    let Ok(LeaseResult::Held(lease)) = lease::take(repository, &task, (2, 1), None) else { panic!("lost") };
    ended("take", &mut begun);
    let work = attempt.write_on(repository, &base, &harvest, &task).expect("made").expect("a commit");
    ended("candidate::write", &mut begun);
    assert!(candidate::keep(repository, &lease, &work).expect("kept"));
    ended("keep", &mut begun);
    let tip = refs::at(repository, &target).expect("read").expect("a branch");
    let Ok(MergeOutcome::Clean { tree }) = merge::merge_candidate(repository, &base, &work, &tip) else {
        panic!("conflict")
    };
    ended("merge", &mut begun);
    let statement = CommitMetadata {
        author: &who,
        committer: &who,
        subject: "Work",
        body: "",
        task: &task,
        epoch: 2,
        verify: None,
    };
    let commit = match tip == base {
        true => work.clone(),
        false => commit::write(repository, &tree, &tip, &statement).expect("made"),
    };
    ended("commit", &mut begun);
    let request = LandRequest {
        lease: &lease,
        target: &target,
        expected: Some(&tip),
        work: LandWork::Commit { commit: &commit, base: &tip },
        scope: &scope,
        reopened_after: None,
        who: &who,
    };
    let landed = land::land(repository, &request).expect("answered");
    assert!(matches!(landed, LandOutcome::Landed { .. }), "{landed:?}");
    ended("land", &mut begun);
    assert!(lease::release(repository, &lease).expect("given back"));
    ended("release", &mut begun);
}

#[test]
fn a_git_is_started_only_for_what_no_other_can_do() {
    let world = World::new(ends().1, Actor::Same, &[]);
    let (program, notes) = noting(&world);
    let repository = world.open_with(&program);
    let attempt = Attempt::on(&world);
    round(&world, &repository, &attempt, 1, true, |_, _| {});
    for (number, moved) in [(2, false), (3, true)] {
        let mut started = BTreeMap::new();
        fs::write(&notes, "").expect("written");
        round(&world, &repository, &attempt, number, moved, |name, _| {
            let gits = fs::read_to_string(&notes).expect("read");
            fs::write(&notes, "").expect("written");
            started.insert(name, gits.lines().map(str::to_owned).collect::<Vec<_>>());
        });
        let merged: &[&str] = if moved { &["merge-tree"] } else { &[] };
        assert_eq!(started["merge"], merged);
        assert_eq!(started["land"], ["ls-files", "update-index", "update-ref"]);
        for name in ["take", "candidate::write", "keep", "commit", "release"] {
            assert_eq!(started[name], [] as [&str; 0], "{name}");
        }
    }
}

#[test]
#[ignore = "prints how long each part takes, in a repository of 2,000 files"]
#[allow(clippy::print_stdout)]
fn how_long_a_landing_takes() {
    let world = World::new(ends().1, Actor::Same, &[]);
    for number in 0..2000 {
        world.write(&format!("many/{}/{number}.txt", number % 40), format!("{number}\n").as_bytes());
    }
    world.commit("Many");
    let begun = Instant::now();
    let repository = world.open();
    let first = begun.elapsed();
    let begun = Instant::now();
    drop(world.open());
    println!("open: {first:?} at first, then {:?}", begun.elapsed());
    let attempt = Attempt::on(&world);
    for moved in [false, true] {
        let mut times: BTreeMap<&'static str, Vec<Duration>> = BTreeMap::new();
        for number in 0..51 {
            let number = 1000 * usize::from(moved) + number;
            round(&world, &repository, &attempt, number, moved, |name, time| {
                times.entry(name).or_default().push(time);
            });
        }
        for (name, mut times) in times {
            times.sort();
            println!("moved {moved}: {name} {:?}", times[times.len() / 2]);
        }
    }
}
