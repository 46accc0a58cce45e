//! Agents outlive their supervisor, and are begun once.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue, Supervisor};

use nix::sys::signal::Signal;

use crate::gate;

/// Who said that it starts, as they said it.
struct Counter {
    port: u16,
    starts: Arc<Mutex<Vec<String>>>,
}

impl Counter {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let starts = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&starts);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                let _ = BufReader::new(stream).read_line(&mut line);
                list.lock().expect("a list").push(line.trim().to_owned());
            }
        });
        Self { port, starts }
    }

    fn starts(&self) -> Vec<String> {
        let mut starts = self.starts.lock().expect("a list").clone();
        starts.sort();
        starts
    }
}

#[test]
fn agents_at_work_are_adopted_and_not_begun_again() {
    let counter = Counter::new();
    let port = counter.port;
    let mut queue = Queue::new();
    let script = format!(
        "python3 -c 'import socket, os; s = socket.create_connection((\"127.0.0.1\", {port})); \
         s.sendall(os.environ[\"AGENCY_TASK_ID\"].encode() + b\"\\n\")' && sleep 20 && \
         mkdir -p src && echo x > src/$AGENCY_TASK_ID"
    );
    queue.agent("shell", &script, &format!("network = [\"127.0.0.1:{port}\"]"));
    let tasks = queue.tasks(8);
    let first = queue.start(&["--parallel", "8"]);
    assert!(wait_until(LONG, || counter.starts().len() == 8), "{:?}", counter.starts());
    first.kill();
    // Again and again, while they work.
    for _ in 0..6 {
        let next = queue.start(&["--parallel", "8"]);
        let adopted = || queue.open_attempts().iter().all(|one| one["held"]["term"].as_u64() > Some(1));
        assert!(wait_until(LONG, adopted));
        std::thread::sleep(Duration::from_millis(700));
        next.kill();
    }
    let said = queue.run(&["--parallel", "8"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("taken over"), "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    assert_eq!(counter.starts(), tasks, "one start for each attempt");
}

/// One of an agent that may be there once is at work, and the run that it is at work for has taken over another
/// attempt of that agent, which was only claimed.
fn taken_over_meanwhile() -> (Queue, [String; 2], Supervisor) {
    let mut queue = gate::queue(HONEST);
    queue.agent("shell", &gate::behind(HONEST), "parallel = 1");
    let [first, second] = [(); 2].map(|()| queue.task("shell", &[]));
    let run = queue.start(&["--parallel", "2"]);
    gate::begun(&queue, &first, 1);
    queue.supervise_here(&[&format!("script={HONEST}"), "kill=claim:after"]).gone();
    run.says(&format!("{second} taken over"));
    (queue, [first, second], run)
}

#[test]
fn what_was_only_claimed_waits_for_its_place_where_it_is_taken_over() {
    let (queue, tasks, run) = taken_over_meanwhile();
    let ordered = || queue.records(&tasks[1], 1).join("agent/order.json").exists();
    assert!(!wait_until(Duration::from_secs(2), ordered), "two at a time");
    gate::open(&queue);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(gate::starts(&queue, &tasks[1], 1), 1, "it was this attempt that waited");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

#[test]
fn what_waits_for_its_place_can_be_canceled() {
    let (queue, [first, second], run) = taken_over_meanwhile();
    queue.ground.ok(&["cancel", &second]);
    assert!(wait_until(LONG, || queue.ground.status(&second) == "CANCELED"), "it still waits");
    gate::open(&queue);
    run.end();
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [first]);
    queue.assert_nothing_left();
}

/// Also by a run that is told to stop: it is there to be taken on again.
#[test]
fn what_waits_for_its_place_keeps_no_run_from_its_end() {
    let (queue, tasks, run) = taken_over_meanwhile();
    run.signal(Signal::SIGINT);
    run.says("draining: ");
    run.signal(Signal::SIGINT);
    run.end();
    assert!(!queue.records(&tasks[1], 1).join("agent/order.json").exists());
    gate::open(&queue);
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

/// An agent that can't be talked to is still at work, and has its place.
#[test]
fn an_agent_counts_while_its_attempt_is_in_trouble() {
    let mut queue = gate::queue(HONEST);
    queue.agent("shell", &gate::behind(HONEST), "parallel = 1");
    let tasks = queue.tasks(2);
    let run = queue.start(&["--parallel", "2"]);
    gate::begun(&queue, &tasks[0], 1);
    let at = |name: &str| queue.records(&tasks[0], 1).join("agent").join(name);
    fs::rename(at("control"), at("aside")).expect("renamed");
    symlink("control", at("control")).expect("linked");
    queue.ground.ok(&["cancel", &tasks[0]]);
    let said = run.end();
    said.assert_names(&["can't talk to", "control"]);
    assert!(!queue.records(&tasks[1], 1).exists(), "two at a time: {said:?}");
    fs::rename(at("aside"), at("control")).expect("renamed");
    gate::open(&queue);
    queue.run(&[]);
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [tasks[1].clone()]);
    queue.assert_nothing_left();
}
