//! State that came with a repository. It is not ours, and never read.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use agency_tests::queue::{HONEST, Queue};
use agency_tests::repository::{Actor, actors};
use rustix::fs::FileType;

use crate::world::{World, link, special};

/// Everything that was ever kept in `.git/agency`, and is kept in the state folder now.
const STATE: &[&str] = &[
    "",
    "apply",
    "apply/apply.json",
    "caches",
    "identity.json",
    "landing",
    "landing/desk",
    "landing/landing.json",
    "landing/landing.lock",
    "landing/making.lock",
    "landing/objects.git",
    "landing/refs.git",
    "landing/refs.lock",
    "landing/work",
    "owners",
    "runs",
    "runs/kodingx.T0001.1/agent/order.json",
    "runs/kodingx.T0001.1/agent/outcome.json",
    "sandboxes",
    "setup",
    "site",
    "snapshots",
    "snapshots/building",
    "snapshots/git",
    "stage",
    "store.sqlite",
    "trust",
    "verify",
];

#[test]
fn links_where_state_once_lay_lead_nowhere() {
    for actor in actors() {
        let world = World::new(actor);
        let before = world.everything_outside();
        for name in STATE {
            for target in ["home", "file"] {
                let place = world.git(&format!("agency/{name}"));
                let place = Path::new(place.to_str().expect("text").trim_end_matches('/')).to_owned();
                let _ = fs::remove_dir_all(&place);
                link(&world.outside(target), &place);
                world.give(&place);
                for arguments in [
                    &["sandbox", "--base", "HEAD", "--", "true"][..],
                    &["task", "new", "--title", "x"],
                    &["ps"],
                ] {
                    let said = world.agency(arguments);
                    assert_eq!(said.code, 0, "{name} -> {target}: {arguments:?}: {said:?}");
                }
                fs::remove_file(&place).expect("removed");
                let changes = before.diff(&world.everything_outside());
                assert!(changes.is_empty(), "{name} -> {target}: {}", changes.join("\n"));
            }
        }
    }
}

#[test]
fn pipes_folders_and_files_where_state_once_lay_hold_nobody_up() {
    for actor in actors() {
        let world = World::new(actor);
        for name in STATE.iter().filter(|name| !name.is_empty()) {
            let place = world.git(&format!("agency/{name}"));
            for kind in ["pipe", "folder", "file"] {
                match kind {
                    "pipe" => special(&place, FileType::Fifo),
                    "folder" => fs::create_dir(&place).expect("made"),
                    _ => fs::write(&place, "{\"version\":1}").expect("written"),
                }
                world.give(&place);
                let said = world.agency(&["sandbox", "--base", "HEAD", "--", "true"]);
                assert_eq!(said.code, 0, "{name} as a {kind}: {said:?}");
                let _ = fs::remove_file(&place).or_else(|_| fs::remove_dir(&place));
            }
        }
        world.try_everything("what is left of them");
    }
}

/// A state folder as a run leaves it, taken from another repository, with orders that would be carried out on the host's
/// network and with its secrets, and journals that would write above the work tree.
#[test]
fn a_whole_planted_state_is_told_once_and_never_carried_out() {
    actors().into_iter().for_each(a_whole_planted_state_is_told_once_and_never_carried_out_by);
}

fn a_whole_planted_state_is_told_once_and_never_carried_out_by(actor: Actor) {
    let donor = Queue::of(actor, "exit 3");
    let id = donor.tasks(1).remove(0);
    assert_eq!(donor.run(&[]).code, 10);
    let world = Queue::of(actor, HONEST);
    let ran = world.ground.user().join("ran");
    let planted = world.path().join(".git/agency");
    let copied = std::process::Command::new("cp").arg("-a").args([&donor.state(), &planted]).status();
    assert!(copied.expect("cp").success());
    let order = planted.join(format!("runs/kodingx.{id}.1/agent/order.json"));
    let text = fs::read_to_string(&order).expect("an order");
    let mut forged: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    forged["root"] = world.path().display().to_string().into();
    forged["what"]["command"] = serde_json::json!(["touch", ran]);
    fs::write(&order, forged.to_string()).expect("written");
    fs::remove_file(order.with_file_name("outcome.json")).expect("removed");
    let journal = serde_json::json!({
        "version": 1, "phase": "applying", "stage": "../..",
        "operations": [{"path": "forged", "action": {"add": {"slot": 1, "new": {
            "inode": 1, "directory": false, "modified": [0, 0], "size": 0}}}}],
    });
    fs::create_dir_all(planted.join("apply")).expect("made");
    fs::write(planted.join("apply/apply.json"), journal.to_string()).expect("written");
    if let Some((uid, gid)) = world.ground.owner() {
        let owner = format!("{uid}:{gid}");
        let given = std::process::Command::new("chown").args(["-R", &owner]).arg(&planted).status();
        assert!(given.expect("chown").success());
    }
    let tasks = world.tasks(1);
    for arguments in [&["sandbox", "--", "true"][..], &["run"]] {
        let said = world.ground.agency(arguments);
        assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
        assert_eq!(
            said.err.matches(".git/agency was left by an older version or by another person").count(),
            1,
            "{said:?}"
        );
    }
    world.assert_landed(&tasks);
    assert!(!ran.exists(), "a planted order was carried out");
    assert_eq!(fs::read_to_string(&order).expect("there"), forged.to_string(), "it is as it was");
}

/// What is ours belongs to the person who works there, and to nobody else.
#[test]
fn state_lies_in_the_state_folder_and_is_the_owners_alone() {
    for actor in actors() {
        let world = World::new(actor);
        for arguments in [&["sandbox", "--base", "HEAD", "--", "true"][..], &["run"]] {
            world.agency(arguments);
        }
        assert!(!world.ground.exists(".git/agency"), "nothing is kept in the repository");
        let owner = world.ground.owner().map_or(0, |(uid, _)| uid);
        for path in [world.ground.state_home().join("repositories"), world.ground.state()] {
            let meta = fs::symlink_metadata(&path).expect("it is there");
            assert_eq!((meta.uid(), meta.mode() & 0o077), (owner, 0), "{}", path.display());
        }
    }
}
