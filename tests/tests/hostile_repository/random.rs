//! Anything, anywhere: random trees of links, pipes, devices, folders and files, of odd owners and modes, planted at names
//! that mean something, at any path that is there, and beside any of them. No command changes, shows or deletes anything
//! outside, takes long, takes much, or panics.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use agency_tests::repository::actors;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rustix::fs::FileType;

use crate::world::{World, link, special};

/// Names that mean something to git, to a board or to us.
const PLACES: &[&str] = &[
    "agency.toml",
    "codifica.json",
    ".kodingx",
    ".kodingx/AGENCY.yaml",
    ".kodingx/STATE.md",
    ".kodingx/inbox",
    ".kodingx/inbox/shell",
    ".kodingx/outbox",
    ".kodingx/dod_profiles",
    ".kodingx/dod_profiles/quick.yml",
    ".kodingx/verify",
    ".git/agency",
    ".git/agency/sandboxes",
    ".git/agency/store.sqlite",
    ".git/commondir",
    ".git/config",
    ".git/config.worktree",
    ".git/gitdir",
    ".git/HEAD",
    ".git/index",
    ".git/info",
    ".git/info/exclude",
    ".git/logs",
    ".git/modules",
    ".git/modules/x/config",
    ".git/objects",
    ".git/objects/info/alternates",
    ".git/objects/pack",
    ".git/packed-refs",
    ".git/refs",
    ".git/refs/agency/store",
    ".git/refs/agency/lease/kodingx/T0001",
    ".git/refs/heads/main",
    ".git/shallow",
    ".git/worktrees",
    ".git/worktrees/x/gitdir",
];

/// Where something is planted. Paths that are there are counted, in the order of their names.
#[derive(Debug, Clone)]
enum Place {
    Named(&'static str),
    There(prop::sample::Index),
    Beside(prop::sample::Index, &'static str),
}

fn places() -> impl Strategy<Value = Place> {
    let suffixes = prop::sample::select(vec![".lock", ".new", ".agency-new", ".git", ".idx", "~", "/x"]);
    prop_oneof![
        3 => prop::sample::select(PLACES.to_vec()).prop_map(Place::Named),
        4 => any::<prop::sample::Index>().prop_map(Place::There),
        1 => (any::<prop::sample::Index>(), suffixes).prop_map(|(at, suffix)| Place::Beside(at, suffix)),
    ]
}

impl Place {
    fn path(&self, world: &World) -> PathBuf {
        let root = world.ground.path();
        match self {
            Self::Named(name) => root.join(name),
            Self::There(at) => at.get(&everything(root)).clone(),
            Self::Beside(at, suffix) => {
                let mut path = at.get(&everything(root)).clone().into_os_string();
                path.push(suffix);
                path.into()
            }
        }
    }
}

/// Every path of git and of the board, as it is now.
fn everything(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.join(".git"), root.join(".kodingx")];
    let mut next = 0;
    while let Some(folder) = all.get(next).cloned() {
        next += 1;
        if folder.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            let mut inside: Vec<PathBuf> =
                fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
            inside.sort();
            all.extend(inside);
        }
    }
    all
}

#[derive(Debug, Clone)]
enum Planted {
    Link(&'static str),
    Pipe,
    Device,
    Folder,
    File(Vec<u8>),
    Mode(u32),
    Owner,
}

fn planted() -> impl Strategy<Value = Planted> {
    let targets = prop::sample::select(vec![
        "ssh",
        "ssh/id_rsa",
        "home",
        "file",
        "/dev/zero",
        "/proc/self/root",
        "none",
        ".",
    ]);
    let texts = prop::sample::select(vec![
        b"ref: refs/heads/main\n".to_vec(),
        b"gitdir: /\n".to_vec(),
        b"\xff\x00\xfe".to_vec(),
        b"[[[[[[[[[[[[[[".repeat(8000),
        b"[include]\n\tpath = /dev/zero\n[core]\n\tfsmonitor = touch /tmp/x\n".to_vec(),
        b"agency store 1\nid x\n".to_vec(),
    ]);
    prop_oneof![
        4 => targets.prop_map(Planted::Link),
        2 => Just(Planted::Pipe),
        1 => Just(Planted::Device),
        2 => Just(Planted::Folder),
        2 => texts.prop_map(Planted::File),
        1 => prop::sample::select(vec![0o000, 0o777, 0o4755, 0o1777]).prop_map(Planted::Mode),
        1 => Just(Planted::Owner),
    ]
}

fn plant(world: &World, place: &Path, what: &Planted) {
    let root = nix::unistd::Uid::current().is_root();
    if place.parent().is_some_and(|parent| fs::create_dir_all(parent).is_err()) {
        return;
    }
    if !matches!(what, Planted::Mode(_) | Planted::Owner) && place.symlink_metadata().is_ok() {
        let _ = fs::remove_file(place).or_else(|_| fs::remove_dir_all(place));
    }
    match what {
        Planted::Link(target) if target.starts_with('/') => link(target.as_ref(), place),
        Planted::Link(target) => link(&world.outside(target), place),
        Planted::Pipe => special(place, FileType::Fifo),
        Planted::Device if root => special(place, FileType::CharacterDevice),
        Planted::Device => special(place, FileType::Fifo),
        Planted::Folder => drop(fs::create_dir(place)),
        Planted::File(text) => drop(fs::write(place, text)),
        Planted::Mode(mode) if place.exists() && !place.is_symlink() => {
            drop(fs::set_permissions(place, fs::Permissions::from_mode(*mode)));
        }
        Planted::Owner if root && place.symlink_metadata().is_ok() => {
            drop(std::os::unix::fs::lchown(place, Some(61_999), Some(61_999)));
            return;
        }
        Planted::Mode(_) | Planted::Owner => return,
    }
    if let Some((uid, gid)) = world.ground.owner().filter(|_| place.symlink_metadata().is_ok()) {
        let _ = std::os::unix::fs::lchown(place, Some(uid), Some(gid));
    }
}

#[test]
fn nothing_that_lies_in_a_repository_reaches_out_of_it() {
    // A few every time, always the same; more with a larger number in the environment.
    let cases = std::env::var("AGENCY_TEST_CASES").ok().and_then(|number| number.parse().ok()).unwrap_or(16);
    let config =
        Config { cases, rng_seed: RngSeed::Fixed(19), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let trees = prop::collection::vec((places(), planted()), 1..6);
    let tried = runner.run(&trees, |tree| {
        for actor in actors() {
            let world = World::new(actor);
            let mut planted = Vec::new();
            for (place, what) in &tree {
                let path = place.path(&world);
                plant(&world, &path, what);
                planted.push((path, what));
            }
            world.try_everything(&format!("{planted:?}"));
            world.assert_small();
        }
        Ok(())
    });
    tried.expect("nothing reaches out");
}
