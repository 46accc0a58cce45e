//! What a setup left: which trees may share it, and that it is whole or not there.

mod snapshot_support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use agency_sandbox::path::RelPath;
use agency_sandbox::workspace::snapshot::{SetupKey, SetupLayer, SetupLayers, SetupRecipe, Snapshots};
use snapshot_support::*;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

fn key_of(snapshots: &Snapshots, rev: &str, recipe: &SetupRecipe<'_>) -> SetupKey {
    let layers = snapshots.layers(rev).expect("layers");
    snapshots.setups().expect("setups").key(&layers, recipe).expect("a key")
}

fn repo() -> Repo {
    let repo = Repo::new();
    repo.put(".gitignore", "/deps/\n");
    repo.put("lock", "one");
    repo.put("src/a", "one");
    repo.commit("first");
    repo
}

/// A key knows the contents of its files and what the tree has in scratch, and nothing else of a tree.
#[test]
fn a_key_changes_with_what_it_depends_on_and_with_nothing_else() {
    let repo = repo();
    let snapshots = repo.snapshots();
    let (lock, absent, nested) =
        ([path("lock")], [path("lock"), path("absent")], [path("src"), path("src/a")]);
    let recipe = SetupRecipe { command: "make", keyed_by: &lock, network: "none", place: "here" };
    let key = |rev: &str, recipe: &SetupRecipe<'_>| key_of(&snapshots, rev, recipe);
    let first = key("HEAD", &recipe);
    assert_eq!(first, key("HEAD", &recipe));
    let with_absent = key("HEAD", &SetupRecipe { keyed_by: &absent, ..recipe.clone() });
    for other in [
        SetupRecipe { command: "make all", ..recipe.clone() },
        SetupRecipe { network: "full", ..recipe.clone() },
        SetupRecipe { place: "there", ..recipe.clone() },
        SetupRecipe { keyed_by: &absent, ..recipe.clone() },
        SetupRecipe { keyed_by: &nested, ..recipe.clone() },
    ] {
        assert_ne!(first, key("HEAD", &other), "{other:?}");
    }
    repo.put("src/a", "two");
    repo.commit("another file");
    assert_eq!(first, key("HEAD", &recipe));
    repo.put("absent", "there now");
    repo.commit("a file that was missing");
    assert_eq!(first, key("HEAD", &recipe));
    assert_ne!(with_absent, key("HEAD", &SetupRecipe { keyed_by: &absent, ..recipe.clone() }));
    for (file, content) in
        [("lock", "two"), (".gitignore", "/deps/\n/others/\n"), ("deps/tracked", "by force")]
    {
        let before = key("HEAD", &recipe);
        repo.put(file, content);
        repo.commit("something that matters");
        assert_ne!(before, key("HEAD", &recipe), "{file}");
    }
    repo.put("lock", "one");
    repo.put(".gitignore", "/deps/\n");
    fs::remove_file(repo.root.join("deps/tracked")).expect("removed");
    repo.commit("as it was");
    assert_eq!(first, key("HEAD", &recipe));
}

/// What a run of a setup left in its folder.
fn made(repo: &Repo) -> PathBuf {
    let made = repo.temp.path().join("made");
    fs::create_dir_all(made.join("deps/sub")).expect("made");
    fs::create_dir_all(made.join("src")).expect("made");
    for (name, content) in [("deps/one", "1"), ("deps/sub/two", "2"), ("src/a", "spoilt"), ("stray", "s")] {
        fs::write(made.join(name), content).expect("written");
    }
    fs::set_permissions(made.join("deps/one"), fs::Permissions::from_mode(0o4755)).expect("a mode");
    symlink("sub/two", made.join("deps/link")).expect("a link");
    made
}

fn keep(setups: &SetupLayers<'_>, snapshots: &Snapshots, key: &SetupKey, made: &Path) -> SetupLayer {
    let layers = snapshots.layers("HEAD").expect("layers");
    let turn = setups.lock(key).expect("asked").expect("a turn");
    setups.publish(&turn, &layers, made).expect("kept")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn only_scratch_is_kept_and_nothing_that_lends_rights() {
    let repo = repo();
    let snapshots = repo.snapshots();
    let setups = snapshots.setups().expect("setups");
    let recipe = SetupRecipe { command: "make", keyed_by: &[path("lock")], network: "none", place: "here" };
    let key = key_of(&snapshots, "HEAD", &recipe);
    assert!(setups.find(&key).expect("looked").is_none());
    let layer = keep(&setups, &snapshots, &key, &made(&repo)).layer().to_owned();
    assert_eq!(names(&layer), ["deps"]);
    assert_eq!(names(&layer.join("deps")), ["link", "one", "sub"]);
    let mode = fs::metadata(layer.join("deps/one")).expect("looked").permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    assert_eq!(fs::read_link(layer.join("deps/link")).expect("a link"), Path::new("sub/two"));
    assert_eq!(setups.find(&key).expect("looked").expect("found").layer(), layer);
    assert!(setups.find(&key.for_tree("x")).expect("looked").is_none());
}

/// One at a time; and whoever was killed leaves neither a turn nor a layer.
#[test]
fn a_turn_is_one_persons_and_half_a_layer_is_none() {
    let repo = repo();
    let snapshots = repo.snapshots();
    let setups = snapshots.setups().expect("setups");
    let recipe = SetupRecipe { command: "make", keyed_by: &[path("lock")], network: "none", place: "here" };
    let key = key_of(&snapshots, "HEAD", &recipe);
    let place = repo.state().path().join("setup");
    let turn = setups.lock(&key).expect("asked").expect("a turn");
    assert!(setups.lock(&key).expect("asked").is_none());
    assert!(setups.lock(&key.for_tree("x")).expect("asked").is_some(), "another key is another turn");
    drop(turn);
    assert_eq!(names(&place), Vec::<String>::new());
    // A file that nobody has a lock on, and half a layer.
    fs::write(place.join(format!("making-{}", key.as_str())), "").expect("written");
    let half = place.join(format!("new-{}", key.as_str()));
    fs::create_dir_all(half.join("layer/deps/half")).expect("made");
    assert!(setups.find(&key).expect("looked").is_none());
    let kept = keep(&setups, &snapshots, &key, &made(&repo));
    assert!(!half.exists() && !kept.layer().join("deps/half").exists());
    assert_eq!(names(&place), [key.as_str(), "building"]);
}

#[test]
fn the_last_few_are_kept_and_whatever_somebody_uses() {
    let repo = repo();
    let snapshots = repo.snapshots();
    let setups = snapshots.setups().expect("setups");
    let recipe = SetupRecipe { command: "make", keyed_by: &[path("lock")], network: "none", place: "here" };
    let key = key_of(&snapshots, "HEAD", &recipe);
    let made = made(&repo);
    let keys: Vec<SetupKey> = (0..8).map(|number| key.for_tree(&number.to_string())).collect();
    let held = keep(&setups, &snapshots, &keys[0], &made);
    for key in &keys[1..] {
        keep(&setups, &snapshots, key, &made);
    }
    let found = |key: &SetupKey| setups.find(key).expect("looked").is_some();
    assert!(held.layer().join("deps/one").exists());
    assert!(found(&keys[0]) && found(&keys[7]));
    let there = keys.iter().filter(|key| found(key)).count();
    assert!((4..=5).contains(&there), "{there}");
}
