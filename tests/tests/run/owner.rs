//! Root in somebody's repository has their rights and no others.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use agency_tests::ground::Ground;
use agency_tests::repository::{Actor, skip};

/// A board that belongs to an ordinary user; `None` without root, who alone can visit it.
fn theirs(test: &str) -> Option<Ground> {
    if !nix::unistd::Uid::current().is_root() {
        skip(test, "only root can work in somebody else's repository");
        return None;
    }
    let ground = Ground::of(Actor::User, &[("src/a.txt", "one\n")]);
    ground.ok(&["init", "--orchestrator", "other", "--builders", "shell"]);
    ground.commit_all();
    Some(ground)
}

/// `agency`, started by root.
fn by_root(ground: &Ground, arguments: &[&str]) -> Output {
    let mut command = Command::new(ground.program_path());
    command.env("AGENCY_STATE_DIR", ground.state_home());
    command.args(arguments).current_dir(ground.path()).output().expect("agency starts")
}

#[test]
fn what_root_does_there_is_the_owners() {
    let Some(ground) = theirs("what_root_does_there_is_the_owners") else { return };
    for arguments in [&["pause"][..], &["resume"], &["ps", "--json"], &["run"]] {
        let output = by_root(&ground, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    let mut waiting = vec![ground.state()];
    while let Some(path) = waiting.pop() {
        let stat = fs::symlink_metadata(&path).expect("looked");
        assert_eq!(Some((stat.uid(), stat.gid())), ground.owner(), "{}", path.display());
        if stat.is_dir() {
            waiting.extend(fs::read_dir(&path).expect("listed").flatten().map(|entry| entry.path()));
        }
    }
}

/// An owner who puts a link where root would write gets nothing written there.
#[test]
fn root_follows_no_link_of_the_owners_to_what_they_may_not_write() {
    let Some(ground) = theirs("root_follows_no_link_of_the_owners_to_what_they_may_not_write") else {
        return;
    };
    let roots = tempfile::tempdir().expect("a folder");
    let target = roots.path().join("target");
    let state = ground.state();
    fs::remove_dir_all(&state).expect("removed");
    symlink(&target, &state).expect("linked");
    let output = by_root(&ground, &["pause"]);
    assert!(!output.status.success(), "{output:?}");
    assert!(!Path::new(&target).exists(), "root made it");
}
