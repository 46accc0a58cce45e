//! Commits of a board's own: these lines and nothing else, whatever a person has open beside them; and a crash after any
//! step.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use agency_landing::board_commit::{self, BoardCommitDraft, BoardCommitOutcome, BoardCommitStep, CommitEdit};
use agency_landing::commit::Signature;
use agency_landing::land::{self, LandOutcome as Landed};
use agency_landing::names::{Oid, RefName};
use agency_landing::remote::{self, PushResult};
use agency_landing::repository::LandingRepository;
use agency_landing::{Error, refs};

use crate::support::{World, worlds_by_git};

const WORK: &str = "# Work\n\n- id: A\n  state: todo\n\n- id: B\n  state: todo\n";

fn edit(before: &str, after: &str) -> CommitEdit {
    CommitEdit { path: "work.md".into(), before: before.into(), after: after.into() }
}

fn claim() -> CommitEdit {
    edit("- id: A\n  state: todo\n", "- id: A\n  state: in_progress\n  owner: agent:x\n")
}

fn main_branch() -> RefName {
    RefName::branch("main").expect("a name")
}

fn world(world: World) -> World {
    world.write("work.md", WORK.as_bytes());
    world.commit("Work");
    world
}

/// Takes edits out of the files, as a store would.
fn take_out(root: &Path, edits: &[CommitEdit]) -> Result<(), Error> {
    for edit in edits.iter().rev() {
        let path = root.join(&edit.path);
        let text = fs::read_to_string(&path).expect("text");
        match edit.revert_in(&text) {
            Some(Some(back)) => fs::write(&path, back).expect("written"),
            Some(None) => fs::remove_file(&path).expect("removed"),
            None => {}
        }
    }
    Ok(())
}

/// Commits, putting the file in place as a store would.
fn commit(
    world: &World,
    repository: &LandingRepository,
    edits: &[CommitEdit],
    publish: Option<land::PublishCheck<'_>>,
    stop_after: Option<BoardCommitStep>,
) -> Result<BoardCommitOutcome, Error> {
    let (who, target) = (Signature::new("A", "a@b", 1, 0), main_branch());
    let draft = BoardCommitDraft { target: &target, edits, message: "A: claimed", who: &who, take_out };
    let mut place = || {
        for edit in edits {
            let path = world.root().join(&edit.path);
            let text = fs::read_to_string(&path).expect("text");
            assert_eq!(text.matches(&edit.before).count(), 1);
            fs::write(&path, text.replacen(&edit.before, &edit.after, 1)).expect("written");
        }
        Ok(true)
    };
    board_commit::commit_observed(repository, &draft, &mut place, publish, &mut |step| {
        if Some(step) == stop_after { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

fn show(world: &World, at: &str) -> String {
    world.git(&["show", at]) + "\n"
}

#[test]
fn only_the_lines_of_the_board_are_committed_and_everything_of_a_persons_stays() {
    for world in worlds_by_git().into_iter().map(world) {
        let repository = world.open();
        // A new task that is not committed, a staged change, and an edit elsewhere.
        world.write("work.md", WORK.replace("# Work", "# Our work").as_bytes());
        world.git(&["add", "work.md"]);
        let mine = format!("{}\n- id: C\n  state: todo\n", WORK.replace("# Work", "# Our work"));
        world.write("work.md", mine.as_bytes());
        world.write("src/1.txt", b"the person's\n");
        world.write("docs/guide", b"staged\n");
        world.git(&["add", "docs/guide"]);
        let done = commit(&world, &repository, &[claim()], None, None).expect("done");
        assert!(matches!(done, BoardCommitOutcome::Committed { .. }), "{done:?}");
        let edit = claim();
        assert_eq!(show(&world, "HEAD:work.md"), WORK.replace(&edit.before, &edit.after));
        assert_eq!(
            show(&world, ":work.md"),
            WORK.replace("# Work", "# Our work").replace(&edit.before, &edit.after)
        );
        assert_eq!(world.read("work.md"), mine.replace(&edit.before, &edit.after));
        assert_eq!(world.git(&["show", "--stat", "--format=", "HEAD"]).lines().count(), 2, "one file");
        assert_eq!(world.status(), "M  docs/guide\n M src/1.txt\nMM work.md");
        assert!(world.locks().is_empty());
        world.git(&["fsck", "--strict"]);
    }
}

#[test]
fn lines_that_a_person_is_at_are_left_to_them() {
    for world in worlds_by_git().into_iter().map(world) {
        let repository = world.open();
        let before = world.at("main");
        // The task is not in the last commit as it is in the file.
        let theirs = edit("- id: A\n  state: todo\n  note: mine\n", "- id: A\n  state: in_progress\n");
        let refused = commit(&world, &repository, &[theirs], None, None).expect("looked");
        assert_eq!(refused, BoardCommitOutcome::Unclean { path: "work.md".into(), place: "the last commit" });
        world.write("work.md", WORK.replace("- id: A\n", "- id: A\n  note: staged\n").as_bytes());
        world.git(&["add", "work.md"]);
        world.write("work.md", WORK.as_bytes());
        let refused = commit(&world, &repository, &[claim()], None, None).expect("looked");
        assert_eq!(refused, BoardCommitOutcome::Unclean { path: "work.md".into(), place: "what is staged" });
        assert_eq!((world.at("main"), world.read("work.md")), (before, WORK.to_owned()));
        assert!(world.locks().is_empty());
    }
}

#[test]
fn a_crash_after_any_step_is_taken_back_or_done_and_loses_nothing() {
    for world in worlds_by_git().into_iter().map(world) {
        world.write("src/1.txt", b"the person's\n");
        let mine = format!("{WORK}\n- id: C\n  state: todo\n");
        world.write("work.md", mine.as_bytes());
        let status = world.status();
        for step in BoardCommitStep::ALL {
            let (repository, before) = (world.open(), world.at("main"));
            let file = world.read("work.md");
            let from = if file.contains("in_progress") { "in_progress" } else { "todo" };
            let to = if from == "todo" { "in_progress" } else { "todo" };
            let wanted = edit(&format!("- id: A\n  state: {from}\n"), &format!("- id: A\n  state: {to}\n"));
            let stopped = commit(&world, &repository, std::slice::from_ref(&wanted), None, Some(step));
            assert!(matches!(stopped, Err(Error::Stopped)), "{step:?}: {stopped:?}");
            drop(repository);
            let repository = world.open();
            board_commit::recover(&repository, take_out).expect("recovered");
            let moved = world.at("main") != before;
            assert_eq!(moved, matches!(step, BoardCommitStep::Commit | BoardCommitStep::Forget), "{step:?}");
            let expected = if moved { file.replace(&wanted.before, &wanted.after) } else { file.clone() };
            assert_eq!(world.read("work.md"), expected, "{step:?}");
            assert_eq!(world.status(), status, "{step:?}");
            assert!(world.locks().is_empty(), "{step:?}: {:?}", world.locks());
            if !moved {
                let done = commit(&world, &repository, &[wanted], None, None).expect("done");
                assert!(matches!(done, BoardCommitOutcome::Committed { .. }), "{step:?}: {done:?}");
            }
            world.git(&["fsck", "--strict"]);
        }
        assert_eq!(world.git(&["rev-list", "--count", "main"]), "10", "one commit for each step");
    }
}

/// The same repository, shared.
fn shared(world: &World) -> String {
    let remote = world.outside("remote.git").display().to_string();
    world.git(&["clone", "--quiet", "--bare", ".", &remote]);
    world.git(&["remote", "add", "origin", &remote]);
    world.git(&["fetch", "--quiet", "origin"]);
    world.git(&["branch", "--quiet", "--set-upstream-to=origin/main", "main"]);
    remote
}

#[test]
fn what_the_upstream_does_not_take_has_never_happened() {
    for world in worlds_by_git().into_iter().map(world) {
        let remote = shared(&world);
        let repository = world.open();
        let upstream = remote::upstream(&repository, &main_branch()).expect("an upstream");
        assert_eq!(upstream.to_string(), "origin/main");
        // Somebody else is faster.
        let other = world.candidate("main", &[("work.md", crate::support::Put::File(b"theirs\n"))]);
        world.git(&["push", "--quiet", &remote, &format!("{other}:refs/heads/main")]);
        let (before, picture) = (world.at("main"), world.picture());
        let publish = |made: &Oid| Ok(remote::push(&repository, &upstream, made)? == PushResult::Taken);
        let done = commit(&world, &repository, &[claim()], Some(&publish), None).expect("asked");
        assert_eq!(done, BoardCommitOutcome::Behind);
        assert_eq!(
            (world.at("main"), world.status(), world.picture()),
            (before.clone(), String::new(), picture)
        );
        assert_eq!(world.git_at(Path::new(&remote), &["rev-parse", "main"]), other);
        // Brought up to date, the checkout has what they did.
        let theirs = remote::fetch(&repository, &upstream).expect("fetched").expect("a branch");
        let who = Signature::new("A", "a@b", 1, 0);
        let from = Oid::parse(&before).expect("a commit");
        let forwarded =
            land::fast_forward(&repository, &main_branch(), (&from, &theirs), &who).expect("forwarded");
        assert!(matches!(forwarded, Landed::Landed { .. }), "{forwarded:?}");
        assert_eq!(
            (world.at("main"), world.read("work.md"), world.status()),
            (other.clone(), "theirs\n".into(), String::new())
        );
        assert_eq!(refs::at(&repository, &main_branch()).expect("read").expect("there").to_string(), other);
        assert_eq!(world.git(&["rev-parse", "origin/main"]), other, "what a person's git compares with");
    }
}

/// It was pushed, and we died before anything here knew.
#[test]
fn what_the_upstream_took_before_a_crash_comes_back_as_others_work_does() {
    for world in worlds_by_git().into_iter().map(world) {
        shared(&world);
        let before = world.at("main");
        let repository = world.open();
        let upstream = remote::upstream(&repository, &main_branch()).expect("an upstream");
        let publish = |made: &Oid| Ok(remote::push(&repository, &upstream, made)? == PushResult::Taken);
        let stopped =
            commit(&world, &repository, &[claim()], Some(&publish), Some(BoardCommitStep::PlaceFiles));
        assert!(matches!(stopped, Err(Error::Stopped)));
        assert_eq!(world.at("main"), before);
        board_commit::recover(&repository, take_out).expect("recovered");
        assert_eq!((world.read("work.md"), world.status()), (WORK.to_owned(), String::new()));
        let theirs = remote::fetch(&repository, &upstream).expect("fetched").expect("a branch");
        let (who, from) = (Signature::new("A", "a@b", 1, 0), Oid::parse(&before).expect("a commit"));
        land::fast_forward(&repository, &main_branch(), (&from, &theirs), &who).expect("forwarded");
        assert!(world.read("work.md").contains("owner: agent:x"), "{}", world.read("work.md"));
        assert_eq!(
            (world.status(), world.git(&["rev-list", "--count", "main"])),
            (String::new(), "3".into())
        );
    }
}

#[test]
fn a_hook_and_an_odd_address_of_the_repository_run_nothing() {
    for world in worlds_by_git().into_iter().map(world) {
        let remote = shared(&world);
        let trap = world.outside("sprung");
        let script = format!("#!/bin/sh\ntouch {}\nexit 1\n", trap.display());
        for hook in ["pre-push", "reference-transaction", "post-merge", "pre-commit", "commit-msg"] {
            let path = format!(".git/hooks/{hook}");
            world.write(&path, script.as_bytes());
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(world.root().join(path), mode).expect("set");
        }
        world.git(&["config", "core.sshCommand", &format!("touch {}", trap.display())]);
        world.git(&["config", "remote.origin.uploadpack", &format!("touch {};", trap.display())]);
        let repository = world.open();
        let upstream = remote::upstream(&repository, &main_branch()).expect("an upstream");
        let publish = |made: &Oid| Ok(remote::push(&repository, &upstream, made)? == PushResult::Taken);
        assert!(remote::fetch(&repository, &upstream).expect("fetched").is_some());
        let done = commit(&world, &repository, &[claim()], Some(&publish), None).expect("done");
        assert!(matches!(done, BoardCommitOutcome::Committed { .. }), "{done:?}");
        assert_eq!(world.git_at(Path::new(&remote), &["rev-parse", "main"]), world.at("main"));
        world.git(&["config", "remote.origin.url", &format!("ext::sh -c 'touch {}'", trap.display())]);
        world.git(&["config", "protocol.ext.allow", "always"]);
        let repository = world.open();
        let upstream = remote::upstream(&repository, &main_branch()).expect("an upstream");
        assert!(remote::fetch(&repository, &upstream).is_err());
        assert!(!trap.exists(), "something of the repository's was run");
    }
}
