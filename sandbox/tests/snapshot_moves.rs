//! A base that moves is followed by one delta, and what an agent sees is always exactly the new tree.

mod snapshot_support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use agency_sandbox::path::RelPath;
use agency_sandbox::workspace::snapshot::{SnapshotCost, SnapshotTuning};
use snapshot_support::*;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

fn clear(path: &Path) {
    // A component above it may be a file.
    for above in path.ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
        if above.symlink_metadata().is_ok_and(|metadata| !metadata.is_dir()) {
            fs::remove_file(above).expect("removed");
        }
    }
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path).expect("removed"),
        Ok(_) => fs::remove_file(path).expect("removed"),
        Err(_) => {}
    }
}

/// Few names, so that files, links and folders take each other's places often.
fn change(repo: &Repo, dice: &mut Dice, number: usize) {
    for _ in 0..1 + dice.roll(6) {
        let depth = 1 + dice.roll(3);
        let parts: Vec<&str> = (0..depth).map(|_| ["a", "b", "c", "a.b", "a-"][dice.roll(5)]).collect();
        let path = repo.root.join("play").join(parts.join("/"));
        match dice.roll(8) {
            0 | 1 => clear(&path),
            2 => {
                clear(&path);
                fs::create_dir_all(path.parent().expect("a parent")).expect("made");
                symlink(["a", "/etc/passwd", "../b"][dice.roll(3)], &path).expect("linked");
            }
            kind => {
                clear(&path);
                fs::create_dir_all(path.parent().expect("a parent")).expect("made");
                // Often the same size: only the time tells it from the last one.
                fs::write(&path, format!("{:04}", number * 7 % 10_000)).expect("written");
                let mode = if kind == 3 { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
            }
        }
    }
}

#[test]
fn after_two_hundred_moves_each_tree_was_exactly_what_a_real_overlay_showed() {
    if skipped_without_root() {
        return;
    }
    let repo = Repo::in_memory();
    for number in 0..40 {
        repo.put(format!("stays/{}/{number}", number % 5), "stays");
    }
    repo.commit("first");
    let tuning =
        SnapshotTuning { delta_paths: 14, delta_percent: 100, delta_always: 0, ..SnapshotTuning::default() };
    let snapshots = repo.snapshots().with_tuning(tuning);
    let mut dice = Dice(7);
    let mut made = [0; 3];
    for number in 0..200 {
        change(&repo, &mut dice, number);
        let commit = repo.commit("moved");
        let layers = snapshots.layers(&commit).expect("layers");
        assert!(layers.lowers.len() <= 2);
        made[layers.made as usize] += 1;
        assert_shows(&repo, &snapshots, &layers, &commit);
    }
    // Both ways were taken often, and nothing piled up.
    assert!(
        made[SnapshotCost::Delta as usize] > 100 && made[SnapshotCost::Snapshot as usize] > 1,
        "{made:?}"
    );
    let kept = fs::read_dir(repo.state().path().join("snapshots")).expect("read").count();
    assert!(kept <= 2 + tuning.keep_snapshots, "{kept}");
}

#[test]
fn a_build_tool_sees_that_a_file_of_a_moved_base_is_younger() {
    let repo = Repo::new();
    repo.put("a", "1");
    repo.put("b", "1");
    repo.commit("one");
    let snapshots = repo.snapshots();
    let first = snapshots.layers("HEAD").expect("layers");
    repo.put("a", "2");
    repo.commit("two");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let second = snapshots.layers("HEAD").expect("layers");
    let time = |path: &Path| path.metadata().expect("looked").modified().expect("a time");
    assert!(time(&second.lowers[0].join("a")) > time(&first.lowers[0].join("a")));
}

#[test]
fn a_delta_is_found_again_and_goes_to_the_same_tree_of_another_commit() {
    let repo = Repo::new();
    repo.put("a", "1");
    repo.commit("one");
    let snapshots = repo.snapshots();
    snapshots.layers("HEAD").expect("layers");
    repo.put("a", "2");
    let second = repo.commit("two");
    assert_eq!(snapshots.layers(&second).expect("layers").made, SnapshotCost::Delta);
    let again = repo.commit("two again");
    let layers = snapshots.layers(&again).expect("layers");
    assert_eq!((layers.made, &layers.commit), (SnapshotCost::Nothing, &again));
}

#[test]
fn one_path_too_many_makes_a_new_snapshot() {
    let repo = Repo::new();
    repo.put("a", "1");
    repo.commit("one");
    let tuning =
        SnapshotTuning { delta_paths: 3, delta_percent: 100, delta_always: 3, ..SnapshotTuning::default() };
    let snapshots = repo.snapshots().with_tuning(tuning);
    snapshots.layers("HEAD").expect("layers");
    for (paths, made) in [(3, SnapshotCost::Delta), (4, SnapshotCost::Snapshot)] {
        for number in 0..paths {
            repo.put(format!("d{number}/e/f"), "1");
        }
        repo.commit("more");
        assert_eq!(snapshots.layers("HEAD").expect("layers").made, made);
    }
}

#[test]
fn a_rule_about_scratch_that_the_moved_base_removed_is_gone() {
    let repo = Repo::new();
    repo.put(".gitignore", "out/\n");
    repo.put("a", "1");
    repo.commit("one");
    let snapshots = repo.snapshots();
    let layers = snapshots.layers("HEAD").expect("layers");
    let out = RelPath::parse(b"out").expect("a path");
    assert!(snapshots.ignored(&layers).directories().contains(&out));
    fs::remove_file(repo.root.join(".gitignore")).expect("removed");
    repo.commit("two");
    let layers = snapshots.layers("HEAD").expect("layers");
    assert_eq!(layers.made, SnapshotCost::Delta);
    assert!(snapshots.ignored(&layers).directories().is_empty());
}

#[test]
fn an_ordinary_user_gets_the_same_from_an_overlay_of_their_own() {
    let repo = Repo::new();
    repo.put("a", "1");
    repo.put("d/x", "x");
    repo.put("e", "a file");
    repo.commit("one");
    let snapshots = repo.snapshots();
    snapshots.layers("HEAD").expect("layers");
    fs::remove_dir_all(repo.root.join("d")).expect("removed");
    repo.put("d", "now a file");
    fs::remove_file(repo.root.join("e")).expect("removed");
    repo.put("e/inside", "now a folder");
    fs::remove_file(repo.root.join("a")).expect("removed");
    let commit = repo.commit("two");
    let layers = snapshots.layers("HEAD").expect("layers");
    assert_eq!(layers.made, SnapshotCost::Delta);
    let script = r#"
        cd "$1" && mkdir upper work merged truth || exit 9
        mount -t overlay overlay -o lowerdir="$2:$3",upperdir=upper,workdir=work,userxattr merged || exit 77
        cp -a merged/. truth/
    "#;
    let scratch = tempfile::tempdir().expect("a folder");
    let status = std::process::Command::new("unshare")
        .args(["-rm", "sh", "-c", script, "sh"])
        .arg(scratch.path())
        .args(&layers.lowers)
        .status();
    match status.ok().and_then(|status| status.code()) {
        Some(0) => {
            assert_same(&picture(&scratch.path().join("truth")), &repo.truth(&commit), "a user's overlay");
        }
        code => skip(&format!("no overlay in a user namespace here ({code:?})")),
    }
}
