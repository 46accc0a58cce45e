//! What becomes of a task, from its file to the branch.

mod asked;
mod failures;
mod landing;
mod order;
mod prompt;
mod reports;

use agency_tests::queue::Queue;

#[test]
fn a_task_is_worked_on_verified_and_landed() {
    let queue = Queue::new();
    let tasks = queue.tasks(3);
    let said = queue.run(&["--parallel", "2"]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    for id in &tasks {
        assert_eq!(queue.ground.read(&format!("src/{id}")), format!("by {id}\n"));
    }
    let last = queue.ground.git(&["log", "-1", "--format=%an|%(trailers:key=Agency-Attempt,valueonly)"]);
    assert!(last.starts_with("shell|1"), "{last}");
}

/// A run with nothing to do says so, and has not failed.
#[test]
fn a_board_without_tasks_is_worked_off_at_once() {
    let queue = Queue::new();
    let before = queue.ground.git(&["rev-parse", "main"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["nothing to do"]);
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
}

/// What is done is not done again.
#[test]
fn a_second_run_leaves_what_is_done() {
    let queue = Queue::new();
    let tasks = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    assert!(!queue.records(&tasks[0], 2).exists());
}
