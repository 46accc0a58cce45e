//! Files that are none: pipes that never answer, devices that never end, links that lead out, more than anybody reads.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use agency_tests::processes::emulated;
use agency_tests::queue::{HONEST, Queue};
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
        world.assert_small();
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

/// Git reads what its configuration includes, however much that is, and its locks are waited for.
#[test]
fn a_large_include_and_a_lock_that_came_along_hold_nobody_up() {
    for actor in actors() {
        let world = World::new(actor);
        let config = fs::read_to_string(world.git("config")).expect("a configuration");
        let line = "[section]\n\tkey = value of some length, so that there are many bytes in few lines\n";
        // In pieces: what this process holds would count as its children's.
        let (piece, mut large) = (line.repeat(4096), File::create(world.outside("large")).expect("made"));
        for _ in 0..(400 << 20) / piece.len() {
            large.write_all(piece.as_bytes()).expect("written");
        }
        let include = format!("{config}[include]\n\tpath = {}\n", world.outside("large").display());
        for text in [include.clone(), include.replace("path = ", "path = \\\n")] {
            fs::write(world.git("config"), text).expect("written");
            world.give(&world.git("config"));
            // What is not asked of the configuration goes on.
            for arguments in COMMANDS {
                world.agency(arguments);
            }
            world.assert_small();
        }
        let refused = world.agency(&["run"]);
        assert_eq!(refused.code, 2, "{refused:?}");
        fs::write(world.git("config"), include).expect("written");
        world.agency(&["run"]).assert_names(&["its configuration can't be read", "large; make it smaller"]);
        fs::write(world.git("config"), config).expect("written");
        fs::remove_file(world.outside("large")).expect("removed");

        for name in ["refs/heads/main.lock", "index.lock", "packed-refs.lock", "HEAD.lock"] {
            in_place_of(&world, &format!(".git/{name}"), |place| fs::write(place, "").expect("written"));
        }
    }
}

/// A lock that nobody gives back is named with its remedy, and the work waits for a person.
#[test]
fn a_lock_that_came_along_is_named_and_the_remedy_helps() {
    for actor in actors() {
        let queue = Queue::of(actor, HONEST);
        let tasks = queue.tasks(2);
        let lock = queue.path().join(".git/refs/heads/main.lock");
        fs::write(&lock, "").expect("written");
        let began = std::time::Instant::now();
        let said = queue.run(&["--parallel", "2"]);
        assert_eq!(said.code, 10, "{said:?}");
        let took = began.elapsed();
        assert!(took < emulated(std::time::Duration::from_secs(15)), "{took:?}");
        said.assert_names(&["refs/heads/main.lock is held by another program", "remove it"]);
        assert!(lock.exists() && queue.landed().is_empty());
        fs::remove_file(&lock).expect("removed");
        assert_eq!(queue.run(&[]).code, 0);
        queue.assert_landed(&tasks);
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
