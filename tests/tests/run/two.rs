//! Several supervisors of one repository share its queue.

use std::fs;

use agency_tests::processes::wait_until;
use agency_tests::queue::{LONG, Queue};
use nix::sys::signal::Signal;

use crate::gate;

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

/// The lease in git and the agent's shim obey the greater term of two, and the run that takes over is the older one.
#[test]
fn an_older_run_takes_over_what_a_newer_one_left_and_lands_it() {
    let queue = gate::queue("mkdir -p src && echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID");
    let tasks = queue.tasks(2);
    let older = queue.start(&["--parallel", "1"]);
    gate::begun(&queue, &tasks[0], 1);
    let newer = queue.start(&["--parallel", "1"]);
    gate::begun(&queue, &tasks[1], 1);
    newer.kill();
    older.says(&format!("{} taken over, attempt 1", tasks[1]));
    gate::open(&queue);
    let said = older.end();
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    assert!(!queue.records(&tasks[1], 2).exists(), "its agent was begun again: {said:?}");
}

/// While it sleeps past its lease, another run takes its attempt over, and leaves it where it waits for a person.
#[test]
fn a_run_that_slept_takes_back_what_another_one_left_and_lands_it() {
    let mut queue = Queue::new();
    queue.settings("lease = \"2s\"");
    queue.ground.commit_all();
    let tasks = queue.tasks(1);
    let in_the_way = format!("src/{}", tasks[0]);
    queue.ground.write(&in_the_way, "a person's");
    let sleeper = queue.start(&["--parallel", "2", "--watch"]);
    sleeper.says(&format!("{} waits: ", tasks[0]));
    sleeper.signal(Signal::SIGSTOP);
    let is_taken_over = || queue.run(&[]).err.contains("taken over, attempt 1");
    assert!(wait_until(LONG, is_taken_over), "nobody takes it over");
    sleeper.signal(Signal::SIGCONT);
    sleeper.says(&format!("{} taken over, attempt 1", tasks[0]));
    let waits = || sleeper.said_so_far().matches(&format!("{} waits: ", tasks[0])).count();
    assert!(wait_until(LONG, || waits() == 2), "it is not driven: {}", sleeper.said_so_far());
    fs::remove_file(queue.path().join(in_the_way)).expect("removed");
    assert!(wait_until(LONG, || !queue.landed().is_empty()), "{}", sleeper.said_so_far());
    queue.ground.ok(&["drain"]);
    let said = sleeper.end();
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}
