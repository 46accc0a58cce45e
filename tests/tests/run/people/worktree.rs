//! A repository with more than one work tree.

use std::path::Path;

use agency_tests::ground::Said;
use agency_tests::queue::Queue;
use tempfile::TempDir;

/// A second work tree of the same repository, on a branch of its own, beside the first.
fn second(queue: &Queue) -> TempDir {
    let beside = queue.path().parent().expect("a parent");
    let folder = tempfile::Builder::new().prefix("agency-second-").tempdir_in(beside).expect("a folder");
    let path = folder.path().join("tree");
    queue.ground.git(&["worktree", "add", "--quiet", "-b", "second", &path.display().to_string()]);
    folder
}

fn there(queue: &Queue, root: &Path, arguments: &[&str]) -> Said {
    queue.ground.command(arguments).current_dir(root).output().expect("it starts").into()
}

fn ok(queue: &Queue, root: &Path, arguments: &[&str]) -> String {
    let said = there(queue, root, arguments);
    assert_eq!(said.code, 0, "{arguments:?}: {said:?}");
    said.out.trim().to_owned()
}

const NEW: [&str; 10] = [
    "task",
    "new",
    "--title",
    "There",
    "--assignee",
    "shell",
    "--dod-profile",
    "quick",
    "--must-touch",
    "src/**",
];

#[test]
fn a_run_in_a_second_work_tree_lands_on_its_branch_and_leaves_the_first() {
    let queue = Queue::new();
    let folder = second(&queue);
    let root = folder.path().join("tree");
    let before = queue.ground.git(&["rev-parse", "main"]);
    let tree = queue.ground.fingerprint();
    ok(&queue, &root, &["trust", "--yes"]);
    let id = ok(&queue, &root, &NEW);
    let said = there(&queue, &root, &["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
    assert_eq!(queue.ground.git(&["rev-parse", "second^"]), before);
    let file = format!("src/{id}");
    assert_eq!(queue.ground.git(&["show", &format!("second:{file}")]), format!("by {id}\n"));
    assert!(root.join(&file).exists(), "its work tree follows");
    queue.ground.assert_unchanged(&tree);
    queue.assert_nothing_left();
}

/// The branch is checked out there: its files follow there, and a person's edit there is in the way.
#[test]
fn an_edit_in_the_work_tree_that_has_the_branch_is_waited_for() {
    let queue = Queue::with_agent("echo four >> src/a.txt");
    let folder = second(&queue);
    let root = folder.path().join("tree");
    ok(&queue, &root, &["trust", "--yes"]);
    let id = ok(&queue, &root, &NEW);
    std::fs::write(root.join("src/a.txt"), "mine\n").expect("written");
    // The first work tree has the same file, of another branch; it is nobody's obstacle.
    queue.ground.write("src/a.txt", "also mine\n");
    let said = there(&queue, &root, &["run"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&format!("{id} waits: src/a.txt has been edited in {}", root.display())]);
    assert_eq!(std::fs::read_to_string(root.join("src/a.txt")).expect("read"), "mine\n");
    std::fs::write(root.join("src/a.txt"), "one\ntwo\nthree\n").expect("written");
    let said = there(&queue, &root, &["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.ground.git(&["show", "second:src/a.txt"]), "one\ntwo\nthree\nfour\n");
    assert_eq!(queue.ground.read("src/a.txt"), "also mine\n");
}
