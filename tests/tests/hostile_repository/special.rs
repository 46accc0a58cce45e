//! Files that are none: pipes that never answer, devices that never end, links that lead out, more than anybody reads.

use std::fs::{self, File};
use std::path::PathBuf;

use agency_tests::repository::actors;
use rustix::fs::FileType;

use crate::world::{COMMANDS, SECRET, World, link, special};

/// Files that every repository has or may have, and that a command of ours, or git, opens by name.
const READ: &[&str] = &[
    "agency.toml",
    ".git/HEAD",
    ".git/config",
    ".git/packed-refs",
    ".git/shallow",
    ".git/info/exclude",
    ".git/commondir",
    ".git/objects/info/alternates",
    ".git/index",
    ".git/info/attributes",
    ".git/config.worktree",
    ".git/refs/heads/main",
    ".git/refs/agency/store",
    ".git/objects/pack/pack-1.idx",
    ".kodingx/AGENCY.yaml",
    "codifica.json",
];

/// Puts something in the place of a file, tries everything, and puts the file back.
fn in_place_of(world: &World, name: &str, put: impl Fn(&PathBuf)) {
    let (place, aside) = (world.ground.path().join(name), world.outside("aside"));
    fs::create_dir_all(place.parent().expect("a parent")).expect("made");
    let there = fs::rename(&place, &aside).is_ok();
    put(&place);
    world.give(&place);
    world.try_everything(name);
    let _ = fs::remove_file(&place);
    if there {
        fs::rename(&aside, &place).expect("back");
    }
}

#[test]
fn a_pipe_holds_nobody_up() {
    for actor in actors() {
        let world = World::new(actor);
        for name in READ {
            in_place_of(&world, name, |place| special(place, FileType::Fifo));
        }
    }
}

#[test]
fn a_link_to_an_endless_device_or_to_a_secret_is_not_followed() {
    for actor in actors() {
        let world = World::new(actor);
        for name in READ {
            in_place_of(&world, name, |place| link("/dev/zero".as_ref(), place));
            let secret = world.outside("ssh/id_rsa");
            in_place_of(&world, name, |place| link(&secret, place));
        }
    }
}

#[test]
fn a_huge_file_is_not_read() {
    for actor in actors() {
        let world = World::new(actor);
        for name in READ.iter().filter(|name| !name.ends_with("index")) {
            in_place_of(&world, name, |place| {
                let file = File::create(place).expect("made");
                file.set_len(8 << 30).expect("long, and nothing in it");
            });
        }
        let children = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN);
        let largest = children.expect("asked").max_rss() / 1024;
        assert!(largest < 300, "{largest} MiB");
    }
}

#[test]
fn each_refusal_names_the_file_and_what_to_do() {
    for actor in actors() {
        let world = World::new(actor);
        link("/dev/zero".as_ref(), &world.ground.path().join("agency.toml"));
        world.assert_refused(&[&["run"], &["trust", "--yes"]], &["agency.toml"]);
        fs::remove_file(world.ground.path().join("agency.toml")).expect("removed");
        special(&world.git("config"), FileType::Fifo);
        world.give(&world.git("config"));
        world.assert_refused(COMMANDS, &[".git/config is a pipe, not a regular file; remove it"]);
    }
}

/// Git opens an object by its name, and waits for a pipe for ever.
#[test]
fn a_pipe_in_place_of_an_object_holds_nobody_up() {
    for actor in actors() {
        let world = World::new(actor);
        let tree = world.ground.git(&["rev-parse", "HEAD^{tree}"]);
        let (folder, file) = tree.trim().split_at(2);
        special(&world.git(&format!("objects/{folder}/{file}")), FileType::Fifo);
        world.give(&world.git(&format!("objects/{folder}/{file}")));
        world.assert_refused(
            &[&["run"], &["sandbox", "--base", "HEAD", "--", "true"]],
            &["is a pipe, not a regular file; remove it"],
        );
        world.try_everything("a pipe as the tree of HEAD");
    }
}

/// The trap works: a program that trusts names reads what is behind them.
#[test]
fn the_secret_behind_a_link_can_be_read_by_who_follows_it() {
    let world = World::new(actors()[0]);
    link(&world.outside("ssh/id_rsa"), &world.ground.path().join("agency.toml"));
    assert_eq!(world.ground.read("agency.toml"), SECRET);
}
