//! `kill -9` before and after every step, and what the next landing makes of it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agency_landing::steps::LandStep;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Actor, Put, Said, World, edited, ends, gits, is_root, lines, worlds_by_git};

/// What putting files in place goes through.
const WITHIN: [&str; 9] = [
    "PlaceFiles:Checked",
    "PlaceFiles:Announced",
    "PlaceFiles:StageMade",
    "PlaceFiles:Staged",
    "PlaceFiles:Prepared",
    "PlaceFiles:Operated",
    "PlaceFiles:Synced",
    "PlaceFiles:Committed",
    "PlaceFiles:StageRemoved",
];

fn moments(steps: &[LandStep]) -> Vec<String> {
    steps.iter().flat_map(|step| ["Before", "After"].map(|when| format!("{step:?}:{when}"))).collect()
}

/// Work of every kind, on top of `main`, and what the files are to be.
fn work(world: &World, number: usize) -> String {
    let text = format!("work {number}\n");
    let (odd, put) = (number % 2 == 1, Put::File(text.as_bytes()));
    let kind = if odd { Put::Program(text.as_bytes()) } else { put };
    let (file, folder) = if odd { (Put::Gone, put) } else { (put, Put::Gone) };
    let mut changes = vec![("src/1.txt", put), ("src/2.txt", kind), ("swap", file), ("swap/inside", folder)];
    changes.push(("sometimes", if odd { put } else { Put::Gone }));
    world.candidate(&world.at("main"), &changes)
}

fn world(git: PathBuf, actor: Actor) -> World {
    let world = World::new(git, actor, &[]);
    world.write("swap", b"a file at first\n");
    world.commit("Start");
    world.write("src/3.txt", b"the person's, all the time\n");
    world.write("docs/guide", b"staged, all the time\n");
    world.git(&["add", "docs/guide"]);
    world
}

const THEIRS: &str = "M  docs/guide\n M src/3.txt";

fn kill_and_land(world: &World, moments: &[String]) {
    for (number, moment) in moments.iter().enumerate() {
        let (task, before) = (format!("T{number}"), world.at("main"));
        let work = work(world, number + 1);
        let said = world.land_with(&task, &work, &[&format!("kill={moment}")]);
        assert!(said.killed, "{moment} never comes: {said:?}");
        let at = world.at("main");
        assert!([&before, &work].contains(&&at), "{moment}");
        let again = world.land(&task, &work);
        let expected = if at == work { "already_landed" } else { "landed" };
        assert_eq!(again.outcome(), expected, "{moment}: {}", again.value);
        assert_eq!(world.at("main"), work, "{moment}");
        assert_eq!(world.status(), THEIRS, "{moment}");
        assert_eq!(world.read("src/1.txt"), format!("work {}\n", number + 1), "{moment}");
        assert_eq!(world.read("src/3.txt"), "the person's, all the time\n");
        world.assert_tidy();
    }
}

#[test]
fn killed_before_and_after_every_step_the_work_lands_once() {
    for git in gits() {
        kill_and_land(&world(git, Actor::Same), &moments(&LandStep::ALL));
    }
}

#[test]
fn killed_while_files_are_put_in_place_the_work_lands_once() {
    kill_and_land(&world(ends().1, Actor::Same), &WITHIN.map(str::to_owned));
}

#[test]
fn killed_before_and_after_every_step_as_an_ordinary_user() {
    if is_root() {
        kill_and_land(&world(ends().0, Actor::User), &moments(&LandStep::ALL));
    }
}

#[test]
fn killed_when_the_branch_is_not_checked_out() {
    for world in worlds_by_git() {
        world.git(&["checkout", "--quiet", "--detach"]);
        for (number, moment) in moments(&[LandStep::Prepare, LandStep::Commit]).iter().enumerate() {
            for kill in ["kill", "kill_group"] {
                let task = format!("T{number}{kill}");
                let put = format!("{task}\n");
                let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(put.as_bytes()))]);
                assert!(world.land_with(&task, &work, &[&format!("{kill}={moment}")]).killed);
                let said = world.land(&task, &work);
                assert!(["landed", "already_landed"].contains(&said.outcome()), "{moment}: {said:?}");
                assert_eq!(world.at("main"), work);
                world.assert_tidy();
            }
        }
    }
}

/// Git is killed too, as when a machine loses power: it leaves the locks of references behind.
#[test]
fn killed_together_with_git_the_locks_are_known_as_ours() {
    for world in worlds_by_git() {
        let mut locked = 0;
        let steps = [LandStep::Prepare, LandStep::PlaceFiles, LandStep::PlaceIndex, LandStep::Commit];
        for (number, moment) in moments(&steps).iter().enumerate() {
            let task = format!("T{number}");
            let text = format!("{task}\n");
            let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(text.as_bytes()))]);
            assert!(world.land_with(&task, &work, &[&format!("kill_group={moment}")]).killed);
            locked += usize::from(world.root().join(".git/refs/heads/main.lock").exists());
            let said = world.land(&task, &work);
            assert!(["landed", "already_landed"].contains(&said.outcome()), "{moment}: {said:?}");
            assert_eq!((world.at("main"), world.status().as_str()), (work, ""));
            world.assert_tidy();
        }
        assert!(locked >= 4, "the branch was locked while files were placed: {locked}");
    }
}

/// Git makes a lock and fills it a moment later. Killed in between, it leaves an empty one.
#[test]
fn an_empty_lock_that_a_killed_git_left_is_known_as_ours_after_a_while() {
    for world in worlds_by_git() {
        let (work, lock) = killed_with_a_lock(&world);
        fs::write(&lock, "").expect("written");
        // References of ours move meanwhile, and the lock is not forgotten.
        Said::of(world.program("T2", &["act=claim", "epoch=1"]).spawn().expect("starts")).is("claimed");
        // It may be a person's who removes a branch, for a moment.
        while world.land("T1", &work).outcome() == "busy" {
            assert!(age(&lock) < Duration::from_secs(60), "it stays");
        }
        assert_eq!((world.at("main"), world.status().as_str()), (work, ""));
        world.assert_tidy();
    }
}

/// Work that is to land, and the lock that a git of ours was killed with when it did.
fn killed_with_a_lock(world: &World) -> (String, PathBuf) {
    let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(b"agent\n"))]);
    assert!(world.land_with("T1", &work, &["kill_group=Prepare:After"]).killed);
    (work, world.root().join(".git/refs/heads/main.lock"))
}

/// Since a file was made or touched.
fn age(path: &Path) -> Duration {
    let changed = fs::metadata(path).map_or(0, |stat| stat.ctime());
    SystemTime::now()
        .duration_since(UNIX_EPOCH + Duration::from_secs(changed.cast_unsigned()))
        .unwrap_or_default()
}

/// As if the git that was killed had been asked an hour ago.
fn an_hour_later(world: &World) {
    let path = world.place().join("taking.json");
    let mut notes: Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("notes");
    let noted = &mut notes["intents"][0]["noted"]["secs_since_epoch"];
    *noted = (noted.as_u64().expect("a time") - 3600).into();
    fs::write(&path, notes.to_string()).expect("written");
}

/// The same lock, held by a person's git that was stopped: it is as old as one of ours, and its owner lives.
#[test]
fn an_empty_lock_of_a_persons_git_that_was_stopped_stays() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let (work, lock) = killed_with_a_lock(&world);
        fs::remove_file(&lock).expect("removed");
        an_hour_later(&world);
        let mut command = world.command(&world.root(), &["update-ref", "--stdin"]);
        let mut git = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        let (mut input, output) = (git.stdin.take().expect("input"), git.stdout.take().expect("output"));
        write!(input, "start\nverify refs/heads/main {base}\nprepare\n").expect("written");
        let mut output = BufReader::new(output).lines();
        assert!(output.any(|line| line.is_ok_and(|line| line == "prepare: ok")));
        let pid = Pid::from_child(&git);
        kill_process(pid, Signal::STOP).expect("stopped");
        assert_eq!(fs::read(&lock).expect("it is there"), b"");
        // More than one looks at it, and for longer than one of ours would stay.
        while age(&lock) < Duration::from_secs(4) {
            world.land("T1", &work).is("busy");
        }
        assert!(lock.exists());
        kill_process(pid, Signal::CONT).expect("goes on");
        writeln!(input, "commit").expect("written");
        drop(input);
        assert!(git.wait().expect("ended").success(), "its lock was taken from it");
        world.land("T1", &work).is("landed");
        world.assert_tidy();
    }
}

/// A look finds no lock, so whatever comes later is somebody else's.
#[test]
fn an_empty_lock_that_was_made_after_a_look_stays() {
    for world in worlds_by_git() {
        let (work, lock) = killed_with_a_lock(&world);
        fs::remove_file(&lock).expect("removed");
        Said::of(world.program("T2", &["act=claim", "epoch=1"]).spawn().expect("starts")).is("claimed");
        fs::write(&lock, "").expect("written");
        while age(&lock) < Duration::from_secs(4) {
            world.land("T1", &work).is("busy");
        }
        fs::remove_file(&lock).expect("removed");
        world.land("T1", &work).is("landed");
        world.assert_tidy();
    }
}

/// The attempt that was killed lost its lease: nothing of it may stay, whether its git lives on or not.
#[test]
fn the_next_task_takes_back_what_a_killed_one_left() {
    for kill in ["kill", "kill_group"] {
        let world = World::new(ends().0, Actor::Same, &[]);
        for (number, moment) in moments(&LandStep::ALL).iter().enumerate() {
            let (stale, next) = (format!("S{number}"), format!("N{number}"));
            let base = world.at("main");
            let text = format!("stale {number}\n");
            let lost = world.candidate(
                &base,
                &[("src/1.txt", Put::File(text.as_bytes())), (&stale, Put::File(b"stale\n"))],
            );
            assert!(world.land_with(&stale, &lost, &[&format!("{kill}={moment}")]).killed);
            let landed = world.at("main") == lost;
            Said::of(world.program(&stale, &["act=claim", "epoch=2"]).spawn().expect("starts")).is("claimed");
            let other = world.candidate(&base, &[(&next, Put::File(b"next\n"))]);
            world.land(&next, &other).is("landed");
            assert_eq!(world.exists(&stale), landed, "{moment}");
            assert_eq!(world.read("src/1.txt") == text, landed, "{moment}");
            assert_eq!(world.read(&next), "next\n");
            assert_eq!(world.status(), "", "{moment}");
            world.assert_tidy();
        }
    }
}

#[test]
fn a_lock_of_a_branch_that_we_did_not_leave_stays_whatever_it_says() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n"))]);
        // A person's git takes the branch to the very commit that is to land.
        let lock = world.root().join(".git/refs/heads/main.lock");
        fs::write(&lock, format!("{work}\n")).expect("written");
        world.land("T1", &work).is("busy");
        assert!(lock.exists());
        assert_eq!((world.at("main"), world.status().as_str()), (base, ""));
        fs::remove_file(&lock).expect("removed");
        world.land("T1", &work).is("landed");
        world.assert_tidy();
    }
}

#[test]
fn an_index_lock_that_was_ours_and_is_a_persons_now_stays() {
    for world in worlds_by_git() {
        let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(b"agent\n"))]);
        assert!(world.land_with("T1", &work, &["kill=LockIndex:After"]).killed);
        // The same inode, as when a file gets the number of one that was just removed.
        let lock = world.root().join(".git/index.lock");
        fs::write(&lock, "theirs").expect("written");
        world.land("T1", &work).is("busy");
        assert_eq!(fs::read(&lock).expect("it is there"), b"theirs");
        fs::remove_file(&lock).expect("removed");
        world.land("T1", &work).is("landed");
        world.assert_tidy();
    }
}

#[test]
fn who_can_not_take_back_what_was_left_leaves_no_lock_of_its_own() {
    for world in worlds_by_git() {
        let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(b"agent\n"))]);
        assert!(world.land_with("T1", &work, &["kill=PlaceIndex:After"]).killed);
        let lock = world.root().join(".git/index.lock");
        fs::write(&lock, "theirs").expect("written");
        world.land("T1", &work).is("busy");
        assert_eq!(world.locks(), std::slice::from_ref(&lock));
        fs::remove_file(&lock).expect("removed");
        world.land("T1", &work).is("landed");
        world.assert_tidy();
    }
}

fn kill_twice(world: &World, first: &str) {
    let within = ["Checked", "Prepared", "Operated", "Synced", "Committed"];
    let within = within.map(|step| format!("PlaceFiles:{step}"));
    for (number, moment) in moments(&LandStep::UNDOING).iter().chain(&within).enumerate() {
        let (task, base) = (format!("T{number}"), world.at("main"));
        let text = format!("{task}\n");
        let new = format!("new-{number}");
        let changes = [("src/1.txt", Put::File(text.as_bytes())), (&new, Put::File(b"new\n"))];
        let work = world.candidate(&base, &changes);
        assert!(world.land_with(&task, &work, &[&format!("kill={first}")]).killed);
        let kill = format!("kill={moment}:undo");
        assert!(world.land_with(&task, &work, &[&kill]).killed, "{moment} never comes");
        assert_eq!(world.at("main"), base);
        Said::of(world.program(&task, &["act=recover"]).spawn().expect("starts"));
        assert_eq!((world.at("main"), world.status().as_str()), (base, ""), "{first}, {moment}");
        world.assert_tidy();
        world.land(&task, &work).is("landed");
        assert_eq!((world.at("main"), world.status().as_str()), (work, ""), "{first}, {moment}");
    }
}

#[test]
fn killed_again_while_files_are_taken_back() {
    kill_twice(&World::new(ends().0, Actor::Same, &[]), "PlaceFiles:After");
}

#[test]
fn killed_again_while_files_and_index_are_taken_back() {
    kill_twice(&World::new(ends().1, Actor::Same, &[]), "PlaceIndex:After");
}

#[test]
fn what_a_person_edits_after_the_crash_stays_theirs() {
    for world in worlds_by_git() {
        for (number, moment) in ["PlaceFiles:After", "PlaceIndex:After"].iter().enumerate() {
            let (task, base) = (format!("T{number}"), world.at("main"));
            let work = world.candidate(
                &base,
                &[
                    ("src/1.txt", Put::File(&edited(100, 125, "agent"))),
                    ("src/2.txt", Put::File(&edited(200, 225, "agent"))),
                    ("new", Put::File(b"agent\n")),
                ],
            );
            assert!(world.land_with(&task, &work, &[&format!("kill={moment}")]).killed);
            assert!(world.read("src/1.txt").contains("agent"), "the work was put in place");
            let mine = world.read("src/1.txt").replace("line 103", "person");
            world.write("src/1.txt", mine.as_bytes());
            world.land(&task, &work).waits_for(&[("edited", "src/1.txt")]);
            assert_eq!(world.read("src/1.txt"), mine);
            assert_eq!(world.read("src/2.txt"), lines(200), "taken back");
            assert!(!world.exists("new"), "taken back");
            assert_eq!((world.at("main"), world.status().as_str()), (base, " M src/1.txt"));
            world.assert_tidy();
            world.git(&["checkout", "--quiet", "src/1.txt"]);
        }
    }
}

/// Only the journal knows whose it is: it looks like what the landing would have put there.
#[test]
fn what_a_person_had_staged_exactly_so_before_stays_staged() {
    for world in worlds_by_git() {
        let same = Put::File(b"the same\n");
        let changes =
            [("src/1.txt", same), ("new", same), ("README", Put::Gone), ("src/2.txt", Put::File(b"work\n"))];
        let work = world.candidate(&world.at("main"), &changes);
        for name in ["src/1.txt", "new"] {
            world.write(name, b"the same\n");
        }
        world.git(&["add", "src/1.txt", "new"]);
        world.git(&["rm", "--quiet", "README"]);
        let before = (world.status(), world.git(&["diff", "--cached"]));
        assert_eq!(before.0, "D  README\nA  new\nM  src/1.txt");
        let recovered = |moment: &str| {
            let recover = world.program("T1", &["act=recover"]).spawn().expect("it starts");
            assert!(!Said::of(recover).killed);
            assert_eq!((world.status(), world.git(&["diff", "--cached"])), before, "{moment}");
        };
        for moment in moments(&LandStep::ALL[..5]) {
            assert!(world.land_with("T1", &work, &[&format!("kill={moment}")]).killed, "{moment}");
            recovered(&moment);
        }
        for moment in moments(&LandStep::UNDOING) {
            assert!(world.land_with("T1", &work, &["kill=PlaceIndex:After"]).killed);
            assert!(world.land_with("T1", &work, &[&format!("kill={moment}:undo")]).killed, "{moment}");
            recovered(&moment);
        }
        world.land("T1", &work).is("landed");
        assert_eq!((world.status().as_str(), world.at("main")), ("", work));
        world.assert_tidy();
    }
}

#[test]
fn a_person_who_commits_what_the_crash_left_has_committed_it() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work =
            world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n")), ("new", Put::File(b"agent\n"))]);
        assert!(world.land_with("T1", &work, &["kill=PlaceIndex:After"]).killed);
        assert_eq!(world.status(), "A  new\nM  src/1.txt");
        world.git(&["commit", "--quiet", "-m", "What I found"]);
        let theirs = world.at("main");
        world.land("T1", &work).is("landed");
        assert_eq!(world.at("main"), theirs, "it is there already");
        assert_eq!((world.read("src/1.txt").as_str(), world.status().as_str()), ("agent\n", ""));
        world.land("T1", &work).is("already_landed");
        world.assert_tidy();
    }
}

#[test]
fn a_person_can_not_commit_over_files_that_are_half_placed() {
    for world in worlds_by_git() {
        let base = world.at("main");
        let work = world.candidate(&base, &[("src/1.txt", Put::File(b"agent\n"))]);
        assert!(world.land_with("T1", &work, &["kill=PlaceFiles:After"]).killed);
        let refused =
            world.command(&world.root(), &["commit", "-am", "too early"]).output().expect("git runs");
        assert!(!refused.status.success());
        let said = Said::of(world.program("T1", &["act=recover"]).spawn().expect("starts"));
        assert_eq!(said.outcome(), "TakenBack { theirs: [] }");
        assert_eq!((world.at("main"), world.status().as_str()), (base, ""));
        world.assert_tidy();
    }
}

#[test]
fn a_work_tree_that_was_removed_after_the_crash_holds_nobody_up() {
    for world in worlds_by_git() {
        world.git(&["checkout", "--quiet", "--detach"]);
        let linked = world.outside("linked");
        let path = linked.to_str().expect("a path");
        for (number, moment) in ["PlaceFiles:Operated", "PlaceIndex:After"].iter().enumerate() {
            let task = format!("T{number}");
            world.git(&["worktree", "add", "--quiet", path, "main"]);
            let work = world.candidate(&world.at("main"), &[("src/1.txt", Put::File(task.as_bytes()))]);
            assert!(world.land_with(&task, &work, &[&format!("kill={moment}")]).killed);
            fs::remove_dir_all(&linked).expect("removed");
            world.git(&["worktree", "prune"]);
            world.land(&task, &work).is("landed");
            assert_eq!(world.at("main"), work);
            // Nor is the next one in a new work tree at the same place.
            world.git(&["worktree", "add", "--quiet", path, "main"]);
            let more = world.candidate(&work, &[("src/2.txt", Put::File(task.as_bytes()))]);
            world.land(&format!("{task} more"), &more).is("landed");
            assert_eq!(fs::read(linked.join("src/2.txt")).expect("read"), task.as_bytes());
            world.git(&["worktree", "remove", path]);
            world.assert_tidy();
        }
    }
}

#[test]
fn a_person_who_removed_what_the_crash_displaced_holds_nobody_up() {
    for world in worlds_by_git() {
        let work = world.candidate(
            &world.at("main"),
            &[("src/1.txt", Put::File(b"agent\n")), ("src/2.txt", Put::File(b"agent\n"))],
        );
        assert!(world.land_with("T1", &work, &["kill=PlaceFiles:Operated"]).killed);
        let entries = fs::read_dir(world.root()).expect("listed").flatten();
        let stage =
            entries.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains(".agency-"));
        fs::remove_dir_all(stage.expect("a stage")).expect("removed");
        world.land("T1", &work).is("landed");
        assert_eq!((world.at("main"), world.status().as_str()), (work, ""));
        world.assert_tidy();
    }
}
