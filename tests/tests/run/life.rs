//! What becomes of a task, from its file to the branch.

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
