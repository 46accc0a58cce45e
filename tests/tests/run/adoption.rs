//! Agents outlive their supervisor, and are begun once.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agency_tests::processes::wait_until;
use agency_tests::queue::{LONG, Queue};

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
