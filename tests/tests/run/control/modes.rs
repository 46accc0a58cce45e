//! `pause`, `resume`, `drain`: said once, heard by every supervisor of the repository.

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG};

use crate::gate;

/// A task is over, and its lease given back: whatever comes next would be seen now.
fn is_over(queue: &agency_tests::queue::Queue, id: &str) -> bool {
    queue.ground.status(id) == "DONE" && !queue.open_attempts().iter().any(|one| one["task"]["id"] == id)
}

#[test]
fn a_pause_lets_what_runs_come_to_its_end_and_starts_nothing_until_it_is_over() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(2);
    let mut supervisor = queue.start(&["--parallel", "1"]);
    gate::begun(&queue, &tasks[0], 1);
    queue.ground.ok(&["pause"]).assert_names(&["paused", "agency resume"]);
    supervisor.says("paused");
    gate::open(&queue);
    assert!(wait_until(LONG, || is_over(&queue, &tasks[0])), "{:?}", queue.open_attempts());
    // A run that begins meanwhile is held, too. Its word comes after its first look at the board.
    let mut second = queue.start(&[]);
    second.says("paused");
    assert!(supervisor.is_alive() && second.is_alive(), "it waits for its resume");
    assert_eq!(queue.open_attempts().len(), 0);
    assert!(!queue.records(&tasks[1], 1).exists());
    queue.ground.ok(&["resume"]);
    let (first, second) = (supervisor.end(), second.end());
    first.assert_names(&["going on"]);
    assert_eq!((first.code, second.code), (0, 0), "{first:?} {second:?}");
    queue.assert_landed(&tasks);
    assert_eq!(gate::starts(&queue, &tasks[1], 1), 1);
    queue.assert_nothing_left();
}

/// Whoever waits in a pause can still go.
#[test]
fn a_paused_run_ends_with_a_drain_and_has_started_nothing() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(2);
    queue.ground.ok(&["pause"]);
    let supervisor = queue.start(&[]);
    supervisor.says("paused");
    queue.ground.ok(&["drain"]);
    let said = supervisor.end();
    assert_eq!(said.code, 10, "not all is done: {said:?}");
    for id in &tasks {
        said.assert_names(&[&format!("{id} waits")]);
        assert!(!queue.records(id, 1).exists());
        assert_eq!(queue.ground.status(id), "NEW");
    }
}

#[test]
fn a_drain_lets_what_runs_land_and_ends_the_run() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(3);
    let supervisor = queue.start(&["--parallel", "2"]);
    gate::begun(&queue, &tasks[0], 1);
    gate::begun(&queue, &tasks[1], 1);
    queue.ground.ok(&["drain"]).assert_names(&["draining"]);
    supervisor.says("draining: ");
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 10, "not all is done: {said:?}");
    said.assert_names(&[&format!("{} waits: the run ended before it started", tasks[2])]);
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), tasks[..2]);
    assert!(!queue.records(&tasks[2], 1).exists());
    queue.assert_nothing_left();
    // It was meant for those who ran then.
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&tasks);
}

#[test]
fn modes_are_told_to_programs() {
    let queue = gate::queue(HONEST);
    for (command, mode) in [("pause", "paused"), ("resume", "running"), ("drain", "draining")] {
        let document = queue.ground.ok(&[command, "--json"]).json();
        assert_eq!((&document["version"], &document["mode"]), (&1.into(), &mode.into()));
    }
}
