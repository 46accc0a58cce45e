//! Agents that wait for a word from the test.
//!
//! An agent sees nothing of the world but its workspace, and the board's folder: a file there that says `open` is
//! a gate that opens. It is there before any agent is, and written in place. What an agent says to the test, it
//! writes to its output.

use std::fs;

use agency_tests::processes::wait_until;
use agency_tests::queue::{LONG, Queue};

const GATE: &str = ".kodingx/gate";

/// A script that says that it has begun, waits at the gate, and goes on.
pub(crate) fn behind(then: &str) -> String {
    format!("echo begun\nuntil grep -q open {GATE}; do sleep 0.02; done\n{then}")
}

/// With a gate, and one agent that waits at it.
pub(crate) fn queue(then: &str) -> Queue {
    queue_of(&behind(then))
}

/// With a gate, and one agent whose script looks after it.
pub(crate) fn queue_of(script: &str) -> Queue {
    let queue = Queue::with_agent(script);
    queue.ground.write(GATE, "shut");
    queue
}

pub(crate) fn open(queue: &Queue) {
    queue.ground.write(GATE, "open");
}

/// What an agent has written in an attempt, so far.
pub(crate) fn output(queue: &Queue, id: &str, attempt: u64) -> String {
    fs::read_to_string(queue.records(id, attempt).join("agent/output.log")).unwrap_or_default()
}

/// Waits until the agent of an attempt is at work.
#[track_caller]
pub(crate) fn begun(queue: &Queue, id: &str, attempt: u64) {
    let begun = || output(queue, id, attempt).contains("begun");
    assert!(wait_until(LONG, begun), "{id} is not begun: {:?}", queue.open_attempts());
}

/// How often an agent was started for an attempt.
pub(crate) fn starts(queue: &Queue, id: &str, attempt: u64) -> usize {
    output(queue, id, attempt).matches("begun").count()
}
