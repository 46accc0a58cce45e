//! Whoever else builds, uses, removes or dies: a snapshot is whole, or it is not there.

mod snapshot_support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use agency_sandbox::workspace::snapshot::{SnapshotCost, SnapshotTuning};
use agency_sandbox::workspace::state::StateHome;
use snapshot_support::*;

/// Set for the copies of this program that other tests start as builders: where the repository is, and what
/// to build.
const BUILD: &str = "AGENCY_TEST_BUILD";

/// Not a test by itself: a process that wants layers, prints what it took, and goes.
#[test]
#[allow(clippy::print_stdout)]
fn builder() {
    let Ok(task) = std::env::var(BUILD) else { return };
    let (root, rev) = task.split_once('\n').expect("a repository and a commit");
    let folder =
        agency_sandbox::workspace::folder::WorkspaceFolder::discover(Path::new(root)).expect("a folder");
    // Beside the repository, as every test has it.
    let home = folder.root.parent().expect("a parent").join("state");
    let state = folder.state(&StateHome::at(&home)).expect("state");
    let repository = folder.repository.as_ref().expect("a repository");
    let snapshots =
        agency_sandbox::workspace::snapshot::Snapshots::open(&state, repository, Path::new("git"))
            .expect("snapshots");
    println!("made {:?}", snapshots.layers(rev).expect("layers").made);
}

fn another(repo: &Repo, rev: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "builder", "--nocapture"])
        .env(BUILD, format!("{}\n{rev}", repo.root.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn many(repo: &Repo, files: usize) -> String {
    for number in 0..files {
        repo.put(format!("d{}/f{number}", number % 20), format!("content of {number}\n").repeat(20));
    }
    repo.commit("many")
}

#[test]
fn of_many_who_want_the_same_one_makes_it_and_the_others_wait() {
    let repo = Repo::new();
    let commit = many(&repo, 600);
    repo.put("d1/f1", "changed");
    let moved = repo.commit("moved");
    for (rev, wanted) in [(&commit, "made Snapshot"), (&moved, "made Delta")] {
        let children: Vec<_> = (0..6).map(|_| another(&repo, rev).spawn().expect("started")).collect();
        let mut made = 0;
        for child in children {
            let output = child.wait_with_output().expect("it ends");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
            made += usize::from(text.contains(wanted));
            assert!(text.contains(wanted) || text.contains("made Nothing"), "{text}");
        }
        assert_eq!(made, 1, "{rev}");
    }
    let snapshots = repo.snapshots();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(snapshots.layers(&moved).expect("layers").made, SnapshotCost::Nothing));
        }
    });
}

#[test]
fn a_builder_killed_at_any_moment_leaves_nothing_that_is_taken_for_whole() {
    let repo = Repo::in_memory();
    let commit = many(&repo, 600);
    for number in 0..80 {
        repo.put(format!("d{}/new{number}", number % 20), "new");
        let _ = fs::remove_file(repo.root.join(format!("d{}/f{number}", number % 20)));
    }
    let moved = repo.commit("moved");
    let truths = [(&commit, repo.truth(&commit)), (&moved, repo.truth(&moved))];
    let trees = [&commit, &moved].map(|rev| repo.run(["rev-parse", &format!("{rev}^{{tree}}")]));
    let store = repo.state().path().join("snapshots");
    let began = Instant::now();
    assert!(another(&repo, &commit).status().expect("runs").success());
    let whole = began.elapsed();
    fs::remove_dir_all(&store).expect("removed");
    let mut killed = 0;
    for round in 0..24u32 {
        for rev in [&commit, &moved] {
            let mut child = another(&repo, rev).spawn().expect("started");
            // From before it opened anything to after it is done.
            std::thread::sleep(whole * (round * 7 % 24) / 20);
            child.kill().expect("killed");
            killed += usize::from(!child.wait().expect("reaped").success());
            for (tree, (_, truth)) in trees.iter().zip(&truths) {
                let layer = store.join(tree).join("layer");
                if layer.exists() {
                    assert_same(&picture(&layer), truth, "what a killed builder left");
                }
            }
        }
        // Some rounds go on from what the one before left.
        if round % 3 == 2 {
            let snapshots = repo.snapshots();
            for (rev, truth) in &truths {
                let layers = snapshots.layers(rev).expect("layers after a kill");
                if layers.lowers.len() == 1 {
                    assert_same(&picture(&layers.lowers[0]), truth, "after a kill");
                } else if rustix::process::geteuid().is_root() {
                    assert_shows(&repo, &snapshots, &layers, rev);
                }
            }
            fs::remove_dir_all(&store).expect("removed");
        }
    }
    assert!(killed > 12, "{killed}");
    repo.snapshots().layers(&commit).expect("layers");
    let leftovers: Vec<_> = fs::read_dir(&store)
        .expect("read")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .filter(|name| name.starts_with("new-") || name.starts_with("old-"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn what_somebody_uses_is_not_collected_and_what_nobody_uses_is_except_the_latest() {
    let repo = Repo::new();
    repo.put("a", "1");
    let mut commits = vec![repo.commit("first")];
    for number in 0..4 {
        repo.put("a", format!("another {number}"));
        commits.push(repo.commit("next"));
    }
    // Nothing is small enough for a delta.
    let tuning = SnapshotTuning {
        delta_paths: 0,
        delta_percent: 0,
        delta_always: 0,
        keep_snapshots: 1,
        keep_deltas: 1,
    };
    let snapshots = repo.snapshots().with_tuning(tuning);
    let held = snapshots.layers(&commits[0]).expect("layers");
    let others: Vec<_> =
        commits[1..4].iter().map(|commit| snapshots.layers(commit).expect("layers")).collect();
    let paths: Vec<_> = others.iter().map(|layers| layers.lowers[0].clone()).collect();
    assert_eq!(snapshots.collect().expect("collected"), 0, "all are held");
    drop(others);
    // A process of its own sees the locks too.
    let mut child = another(&repo, &commits[4]).spawn().expect("started");
    assert!(child.wait().expect("it ends").success());
    snapshots.collect().expect("collected");
    assert!(held.lowers[0].join("a").exists());
    assert!(paths.iter().filter(|path| path.exists()).count() <= 1);
    let held_path = held.lowers[0].clone();
    drop(held);
    snapshots.layers(&commits[4]).expect("layers");
    snapshots.collect().expect("collected");
    assert!(!held_path.exists());
}

#[test]
fn a_delta_in_use_outlives_its_successors() {
    let repo = Repo::new();
    repo.put("a", "1");
    repo.commit("first");
    let snapshots =
        repo.snapshots().with_tuning(SnapshotTuning { keep_deltas: 1, ..SnapshotTuning::default() });
    snapshots.layers("HEAD").expect("layers");
    repo.put("a", "2");
    repo.commit("second");
    let held = snapshots.layers("HEAD").expect("layers");
    let mut last = Vec::new();
    for number in 3..8 {
        repo.put("a", number.to_string());
        repo.commit("next");
        let layers = snapshots.layers("HEAD").expect("layers");
        assert_eq!((layers.made, layers.lowers.len()), (SnapshotCost::Delta, 2));
        last.push(layers.lowers[0].clone());
    }
    assert_eq!(fs::read_to_string(held.lowers[0].join("a")).expect("read"), "2");
    assert_eq!(last.iter().filter(|path| path.exists()).count(), 1);
}

#[test]
fn what_the_delta_before_has_is_not_written_again_unless_it_was_spoilt() {
    let repo = Repo::new();
    repo.put("first", "0");
    repo.commit("first");
    let snapshots = repo.snapshots();
    snapshots.layers("HEAD").expect("layers");
    repo.put("folder/same", "1");
    repo.put("folder/spoilt", "2");
    repo.put("changed", "3");
    std::os::unix::fs::symlink("same", repo.root.join("folder/link")).expect("linked");
    repo.commit("second");
    let before = snapshots.layers("HEAD").expect("layers").lowers[0].clone();
    // Nobody should, but somebody might.
    fs::write(before.join("folder/spoilt"), "of another size").expect("written");
    repo.put("changed", "4");
    repo.put("new", "5");
    let commit = repo.commit("third");
    let layers = snapshots.layers("HEAD").expect("layers");
    let after = &layers.lowers[0];
    let inode = |layer: &Path, path: &str| {
        let stat = layer.join(path).symlink_metadata().expect("there");
        std::os::unix::fs::MetadataExt::ino(&stat)
    };
    for path in ["folder/same", "folder/link"] {
        assert_eq!(inode(&before, path), inode(after, path), "{path}");
    }
    for path in ["folder/spoilt", "changed"] {
        assert_ne!(inode(&before, path), inode(after, path), "{path}");
    }
    assert_eq!(fs::read_to_string(after.join("folder/spoilt")).expect("read"), "2");
    if rustix::process::geteuid().is_root() {
        assert_shows(&repo, &snapshots, &layers, &commit);
    }
}

#[test]
fn a_delta_of_another_boot_and_a_layer_of_another_version_are_made_again() {
    let repo = Repo::new();
    repo.put("a", "1");
    let first = repo.commit("first");
    repo.put("a", "2");
    let second = repo.commit("second");
    let snapshots = repo.snapshots();
    let spoil = |layer: &Path, from: &str, to: &str| {
        let facts = layer.parent().expect("a parent").join("facts.json");
        let text = fs::read_to_string(&facts).expect("read");
        assert!(text.contains(from), "{text}");
        fs::write(facts, text.replace(from, to)).expect("written");
    };
    snapshots.layers(&first).expect("layers");
    let delta = snapshots.layers(&second).expect("layers");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("read");
    spoil(&delta.lowers[0], boot.trim(), "another");
    drop(delta);
    let delta = snapshots.layers(&second).expect("layers");
    assert_eq!(delta.made, SnapshotCost::Delta);
    let snapshot = delta.lowers[1].clone();
    drop(delta);
    // Once it was synced, a snapshot is good for any boot.
    snapshots.collect().expect("collected");
    spoil(&snapshot, "\"boot\":null", "\"boot\":null");
    assert_eq!(snapshots.layers(&first).expect("layers").made, SnapshotCost::Nothing);
    spoil(&snapshot, "\"version\":1", "\"version\":9");
    assert_eq!(snapshots.layers(&first).expect("layers").made, SnapshotCost::Snapshot);
}
