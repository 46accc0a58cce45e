//! Ctrl-C once, Ctrl-C twice, and the end of a service.

use agency_tests::queue::{HONEST, Queue};
use nix::sys::signal::Signal;

use crate::gate;

/// The agent's own processes, not those of whoever looks after it.
fn agents(queue: &Queue) -> usize {
    queue.marker().alive().iter().filter(|one| one.command.contains("until grep")).count()
}

#[test]
fn an_interrupt_lets_what_runs_land_and_starts_nothing_new() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(2);
    let supervisor = queue.start(&["--parallel", "1"]);
    gate::begun(&queue, &tasks[0], 1);
    supervisor.signal(Signal::SIGINT);
    supervisor.says("draining: started tasks will finish; Ctrl-C now stops them");
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 130, "{said:?}");
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), tasks[..1]);
    assert_eq!(queue.ground.status(&tasks[0]), "DONE");
    assert_eq!(queue.ground.status(&tasks[1]), "NEW");
    assert!(!queue.records(&tasks[1], 1).exists());
    queue.assert_nothing_left();
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&tasks);
}

/// With one attempt to a task, a failure that counted would block it.
#[test]
fn a_second_interrupt_stops_agents_and_counts_as_nobody_s_failure() {
    let mut queue = gate::queue(HONEST);
    queue.settings("attempts = 1");
    let tasks = queue.tasks(2);
    let supervisor = queue.start(&["--parallel", "2"]);
    tasks.iter().for_each(|id| gate::begun(&queue, id, 1));
    assert!(agents(&queue) >= 2);
    supervisor.signal(Signal::SIGINT);
    supervisor.says("draining: ");
    assert!(agents(&queue) >= 2, "the first one stops nobody");
    supervisor.signal(Signal::SIGINT);
    let said = supervisor.end();
    assert_eq!(said.code, 130, "{said:?}");
    said.assert_names(&["stopping what runs", "is still open; `agency run` takes it up again"]);
    assert_eq!(queue.marker().gone_within(agency_tests::queue::LONG), Ok(()));
    assert!(queue.landed().is_empty());
    gate::open(&queue);
    let said = queue.run(&["--parallel", "2"]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    for id in &tasks {
        assert!(queue.records(id, 2).exists() && !queue.records(id, 3).exists());
    }
    queue.assert_nothing_left();
}

/// The agent is the same process throughout, and never started twice.
#[test]
fn a_supervisor_that_is_told_to_go_leaves_its_agent_to_the_next() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let queue = gate::queue(HONEST);
        let tasks = queue.tasks(1);
        let supervisor = queue.start(&[]);
        gate::begun(&queue, &tasks[0], 1);
        let before = shell(&queue);
        supervisor.signal(signal);
        let said = supervisor.end();
        assert_eq!(said.code, 130, "{said:?}");
        said.assert_names(&[&format!("{}: is still open", tasks[0])]);
        assert_eq!(shell(&queue), before, "the agent goes on");
        assert_eq!(queue.open_attempts().len(), 1);
        let next = queue.start(&[]);
        next.says(&format!("{} taken over, attempt 1", tasks[0]));
        assert_eq!(shell(&queue), before, "the agent still goes on");
        gate::open(&queue);
        let said = next.end();
        assert_eq!(said.code, 0, "{said:?}");
        queue.assert_landed(&tasks);
        assert_eq!(gate::starts(&queue, &tasks[0], 1), 1);
        assert!(!queue.records(&tasks[0], 2).exists());
        queue.assert_nothing_left();
    }
}

/// The agent's shell, by its process id. What it forks looks like it for a moment, and comes later.
fn shell(queue: &Queue) -> u32 {
    let alive = queue.marker().alive();
    let mut pids: Vec<u32> =
        alive.iter().filter(|one| one.command.starts_with("sh -c # marker")).map(|one| one.pid).collect();
    pids.sort_unstable();
    *pids.first().unwrap_or_else(|| panic!("{alive:?}"))
}

/// An agent that ended while nobody was there is not lost.
#[test]
fn what_an_agent_did_while_nobody_was_there_lands_with_the_next_run() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(1);
    let supervisor = queue.start(&[]);
    gate::begun(&queue, &tasks[0], 1);
    supervisor.signal(Signal::SIGTERM);
    assert_eq!(supervisor.end().code, 130);
    gate::open(&queue);
    assert_eq!(queue.marker().gone_within(agency_tests::queue::LONG), Ok(()));
    assert!(queue.landed().is_empty(), "nobody is there to land it");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    assert_eq!(gate::starts(&queue, &tasks[0], 1), 1);
    queue.assert_nothing_left();
}

#[test]
fn an_interrupt_while_nothing_runs_ends_at_once() {
    let queue = gate::queue(HONEST);
    let id = queue.tasks(1).remove(0);
    queue.ground.ok(&["pause"]);
    let supervisor = queue.start(&[]);
    supervisor.says("paused");
    supervisor.signal(Signal::SIGINT);
    let said = supervisor.end();
    assert_eq!(said.code, 130, "{said:?}");
    assert!(queue.open_attempts().is_empty() && !queue.records(&id, 1).exists());
}
