//! Several supervisors of one repository share its queue.

use agency_tests::queue::Queue;

#[test]
fn two_runs_share_the_queue_and_never_run_a_task_twice() {
    let queue = Queue::new();
    let tasks = queue.tasks(24);
    let both = [queue.start(&["--parallel", "3"]), queue.start(&["--parallel", "3"])];
    let said: Vec<_> = both.into_iter().map(agency_tests::queue::Supervisor::end).collect();
    assert!(said.iter().all(|said| said.code == 0), "{said:?}");
    // What one of them left when the other was at it.
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    for id in &tasks {
        assert!(!queue.records(id, 2).exists(), "{id} was begun twice: {said:?}");
        let starts = said.iter().filter(|said| said.err.contains(&format!("{id} started"))).count();
        assert_eq!(starts, 1, "{id}: {said:?}");
    }
    assert!(said.iter().all(|said| said.err.contains(" started")), "one had nothing to do: {said:?}");
}
