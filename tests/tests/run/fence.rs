//! An owner that was stopped past the end of its lease, and wakes up when somebody else has gone on: it changes
//! neither the store, nor a reference, nor the board.

use std::fs;
use std::process::Command;

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue, Supervisor};
use nix::sys::signal::Signal;
use serde_json::Value as Json;

use crate::audit;

/// Everything that an owner could change: rows, references, files of the board, the branch's files.
#[derive(Debug, PartialEq, Eq)]
struct Picture {
    store: String,
    references: String,
    files: Vec<(String, String)>,
}

impl Picture {
    fn of(queue: &Queue) -> Self {
        let names = queue.ground.files("");
        let files = names.into_iter().map(|name| (name.clone(), queue.ground.read(&name))).collect();
        Self { store: rows(queue), references: queue.ground.git(&["for-each-ref"]), files }
    }
}

/// What a script in Python, which brings a SQLite of its own, does to the store.
fn in_store(queue: &Queue, script: &str) -> String {
    let script = format!("import sqlite3, sys\nstore = sqlite3.connect(sys.argv[1])\n{script}");
    let output = Command::new("python3")
        .args(["-c", &script])
        .arg(queue.state().join("store.sqlite"))
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Attempts, leases and events; who came and went may change.
fn rows(queue: &Queue) -> String {
    in_store(
        queue,
        "for table in ['attempts', 'leases', 'events', 'failures']:\n    \
         print(table, *store.execute(f'SELECT * FROM {table} ORDER BY 1, 2, 3'), sep='\\n')",
    )
}

/// An owner that has stopped itself at a moment, and whose lease is over.
fn asleep(queue: &Queue, script: &str, moment: &str) -> Supervisor {
    let stop = format!("stop={moment}");
    let auditor = format!("auditor={}", audit::PASS);
    let mut owner = queue.supervise_here(&[&format!("script={script}"), &auditor, "lease=3", &stop]);
    owner.stopped();
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        u64::try_from(time.tv_sec * 1000 + time.tv_nsec / 1_000_000).expect("a time")
    };
    let is_over = |attempt: &Json| attempt["held"]["until"].as_u64().is_none_or(|until| until < now());
    assert!(wait_until(LONG, || queue.open_attempts().iter().all(is_over)));
    owner
}

/// It is woken up, and comes to its end.
fn woken(mut owner: Supervisor) {
    owner.signal(Signal::SIGCONT);
    owner.gone();
}

/// Stopped at a moment; somebody else does the work; it wakes up and changes nothing.
fn stopped_at(moment: &str) {
    let mut queue = Queue::new();
    queue.auditor(audit::PASS);
    let tasks = queue.tasks(1);
    let owner = asleep(&queue, HONEST, moment);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{moment}: {said:?}");
    let before = Picture::of(&queue);
    woken(owner);
    assert_eq!(Picture::of(&queue), before, "{moment}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

macro_rules! stopped {
    ($($step:ident)*) => {
        $(#[test]
        fn $step() {
            let (side, step) = stringify!($step).split_once("_").expect("a side");
            stopped_at(&format!("{step}:{side}"));
        })*
    };
}

mod stopped {
    use super::stopped_at;

    stopped!(before_announce before_send before_permit before_begin before_keep before_report before_collect);
    stopped!(before_ask before_heed);
    stopped!(before_merge before_prove before_attest before_land before_settle before_release after_begin);
}

/// Between its claim and its word to the board, the board says that it is done.
#[test]
fn who_claimed_what_is_done_by_now_has_left_nothing_undone() {
    let queue = Queue::with_agent(HONEST);
    let id = queue.tasks(1).remove(0);
    let mut late = queue.supervise_here(&[&format!("script={HONEST}"), "stop=announce:before"]);
    late.stopped();
    queue.ground.set_status(&id, "DONE");
    late.signal(Signal::SIGCONT);
    let said = late.end();
    assert_eq!((said.code, said.out.as_str()), (0, ""), "of nothing it says how it went: {said:?}");
    let attempts = in_store(&queue, "print(*store.execute('SELECT count(*) FROM attempts').fetchone())");
    assert_eq!(attempts.trim(), "1", "it had claimed it");
    assert!(queue.landed().is_empty());
}

/// The newer attempt ended without landing, and the branch never moved: nothing but the lease says that the older
/// one may not.
fn beside_a_newer_attempt_that_was_blocked(fenced: bool) -> (Queue, Picture, Picture) {
    let mut queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    let owner = asleep(&queue, HONEST, "land:before");
    // Whoever comes next finds that the task was given up, and opens it again; its agent then says that it can't.
    let blocked = "printf '%s\\n' --- task_id:\\ T0001 agent:\\ shell status:\\ BLOCKED \
         started_at:\\ 2026-01-31T16:12:00+01:00 finished_at:\\ 2026-01-31T16:12:00+01:00 changes:\\ {} \
         commands_run:\\ [] verification:\\ {} risks:\\ [] --- '' '## Summary' 'I am stuck.' > $AGENCY_REPORT_FILE";
    queue.agent("shell", blocked, "");
    queue.ground.ok(&["cancel", &id]);
    assert_eq!(queue.run(&[]).code, 10, "the first attempt is canceled");
    queue.ground.set_status(&id, "ASSIGNED");
    queue.ground.ok(&["lint", "--fix"]);
    let said = queue.run(&[]);
    assert_eq!((said.code, queue.ground.status(&id).as_str()), (10, "BLOCKED"), "{said:?}");
    assert!(queue.landed().is_empty());
    if !fenced {
        remove_the_fence(&queue, &id);
    }
    let before = Picture::of(&queue);
    woken(owner);
    let after = Picture::of(&queue);
    (queue, before, after)
}

/// Makes the sleeping owner's lease count again, in the store and in git.
fn remove_the_fence(queue: &Queue, id: &str) {
    in_store(
        queue,
        "store.execute(\"UPDATE attempts SET phase = 'proved' WHERE epoch = 1\")\n\
         store.execute(\"INSERT INTO leases SELECT protocol, task, 1, 1, 0 FROM attempts WHERE epoch = 1\")\n\
         store.commit()",
    );
    let lease = format!("agency lease 1\ntask kodingx:{id}\nepoch 1\nterm 1\n");
    let path = queue.path().join(".git/lease");
    fs::write(&path, lease).expect("written");
    let object = queue.ground.git(&["hash-object", "-w", path.to_str().expect("a path")]);
    queue.ground.git(&["update-ref", &format!("refs/agency/lease/kodingx/{id}"), object.trim()]);
}

#[test]
fn nothing_lands_although_the_newer_attempt_was_blocked_and_the_branch_never_moved() {
    let (queue, before, after) = beside_a_newer_attempt_that_was_blocked(true);
    assert_eq!(after, before);
    assert!(queue.landed().is_empty());
    queue.assert_nothing_left();
}

/// What the test above would see if nothing held the owner back.
#[test]
fn without_the_fence_it_would_land() {
    let (queue, before, after) = beside_a_newer_attempt_that_was_blocked(false);
    assert_ne!(after.store, before.store);
    assert_ne!(after.references, before.references);
    assert_ne!(after.files, before.files);
    assert_eq!(queue.landed().len(), 1);
}
