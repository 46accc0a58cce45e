//! The store of attempts when its disk, its file or its folder is not what it was.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::Command;

use agency_tests::processes::wait_until;
use agency_tests::queue::{LONG, Queue};

use crate::gate;

const HONEST: &str = "mkdir -p src; echo \"by $AGENCY_TASK_ID\" > src/$AGENCY_TASK_ID";

fn store(queue: &Queue) -> PathBuf {
    queue.state().join("store.sqlite")
}

/// Cuts the file of the store in half, as a disk or a copy that did not come to its end would.
fn cut(queue: &Queue) {
    let file = OpenOptions::new().write(true).open(store(queue)).expect("opened");
    let size = file.metadata().expect("asked").len();
    file.set_len(size / 2 / 4096 * 4096).expect("cut");
}

/// Damaged stores that were kept.
fn kept(queue: &Queue) -> Vec<String> {
    let names = fs::read_dir(queue.state()).expect("listed").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(".damaged-") && !name.ends_with("-journal")).collect()
}

/// A file that is mapped and shared kills whoever writes to it when its disk is full: the kernel has no other answer.
#[test]
fn a_run_maps_no_file_of_its_state_that_it_writes() {
    let queue = gate::queue(HONEST);
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    gate::begun(&queue, &id, 1);
    let maps = fs::read_to_string(format!("/proc/{}/maps", run.pid())).expect("it lives");
    let shared = |line: &&str| line.split_whitespace().nth(1).is_some_and(|mode| mode.ends_with('s'));
    let files: Vec<&str> = maps.lines().filter(shared).filter(|line| line.contains('/')).collect();
    assert!(files.is_empty(), "{files:#?}");
    assert!(!queue.state().join("store.sqlite-shm").exists());
    gate::open(&queue);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn a_store_with_a_write_ahead_log_is_brought_over_with_all_it_knows() {
    let queue = Queue::with_agent(HONEST);
    let first = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    let script = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('PRAGMA journal_mode = WAL').fetchone())";
    let output =
        Command::new("python3").args(["-c", script]).arg(store(&queue)).output().expect("python3 starts");
    assert!(String::from_utf8_lossy(&output.stdout).contains("wal"), "{output:?}");
    let mode = || fs::read(store(&queue)).expect("read")[18..20].to_vec();
    assert_eq!(mode(), [2, 2], "its header says so");
    let known = queue.ground.ok(&["ps", "--all", "--json"]).json();
    assert_eq!((known["attempts"][0]["task"]["id"].as_str(), mode()), (Some(first[0].as_str()), vec![1, 1]));
    let second = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&[first, second].concat());
}

#[test]
fn a_store_that_was_cut_short_is_refused_and_rebuilt_and_nothing_lands_twice() {
    let queue = Queue::with_agent(HONEST);
    let tasks = queue.tasks(3);
    assert_eq!(queue.run(&[]).code, 0);
    cut(&queue);
    let path = store(&queue).display().to_string();
    let said = queue.run(&[]);
    assert_eq!(said.code, 2, "{said:?}");
    said.assert_names(&[&format!("the store {path} is damaged"), "`agency store rebuild`"]);
    queue.ground.refused(2, &["store", "rebuild"]).assert_names(&["--yes"]);
    let said = queue.ground.ok(&["store", "rebuild", "--yes"]);
    said.assert_names(&["is kept as", "knows 3 tasks: 3 have landed, 0 were open"]);
    assert_eq!(kept(&queue).len(), 1);
    // What it knows is what the old one knew, and it works.
    let known = queue.ground.ok(&["ps", "--all", "--json"]).json();
    let known = known["attempts"].as_array().expect("attempts").clone();
    assert!(known.len() == 3 && known.iter().all(|one| one["epoch"] == 1), "{known:?}");
    let more = queue.tasks(1);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[tasks, more].concat());
    // A store that is whole is not thrown away.
    queue.ground.ok(&["store", "rebuild", "--yes"]).assert_names(&["nothing was rebuilt"]);
    assert_eq!(kept(&queue).len(), 1);
}

#[test]
fn an_attempt_that_was_open_is_lost_and_the_next_one_has_a_number_above_it() {
    let queue = Queue::with_agent(HONEST);
    let id = queue.tasks(1).remove(0);
    // Twice: the second time there is an epoch that only the first rebuilt store knew from its records.
    for attempt in 1..=2 {
        queue.supervise_here(&[&format!("script={HONEST}"), "kill=keep:before"]).gone();
        assert!(queue.records(&id, attempt).exists(), "attempt {attempt}");
        let at_work = || queue.ground.agency(&["store", "rebuild", "--yes"]).err.contains("is still at work");
        cut(&queue);
        assert!(wait_until(LONG, || !at_work()));
    }
    assert_eq!(kept(&queue).len(), 2);
    let known = queue.ground.ok(&["ps", "--all", "--json"]).json();
    assert_eq!(
        (&known["attempts"][0]["epoch"], &known["attempts"][0]["phase"]["phase"]),
        (&2.into(), &"over".into())
    );
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(queue.records(&id, 3).exists() && !queue.records(&id, 4).exists());
    queue.assert_landed(&[id]);
}

#[test]
fn work_that_landed_just_before_the_store_was_lost_is_told_to_the_board_and_lands_no_second_time() {
    let queue = Queue::with_agent(HONEST);
    let id = queue.tasks(1).remove(0);
    queue.supervise_here(&[&format!("script={HONEST}"), "kill=land:after"]).gone();
    assert_ne!(queue.ground.status(&id), "DONE");
    cut(&queue);
    queue.ground.ok(&["store", "rebuild", "--yes"]).assert_names(&["1 have landed", "0 were open"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.ground.status(&id), "DONE");
    queue.assert_landed(&[id]);
}

#[test]
fn a_store_is_not_rebuilt_under_a_run() {
    let queue = gate::queue(HONEST);
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    gate::begun(&queue, &id, 1);
    queue.ground.refused(2, &["store", "rebuild", "--yes"]).assert_names(&["a run is still at work"]);
    gate::open(&queue);
    assert_eq!(run.end().code, 0);
}

/// The sentence says what is gone, and not what could not be done without it.
#[test]
fn a_run_whose_state_folder_is_deleted_says_so_and_ends() {
    let queue = gate::queue(HONEST);
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    gate::begun(&queue, &id, 1);
    let state = queue.state();
    let aside = state.with_extension("aside");
    fs::rename(&state, &aside).expect("moved away");
    let said = run.end();
    assert_eq!(said.code, 1, "{said:?}");
    said.assert_names(&[&format!("the state folder {} is gone", state.display()), "`agency adopt`"]);
    fs::remove_dir_all(&aside).expect("deleted");
    gate::open(&queue);
}

/// A number in the name of a reference that nobody ever counted to is not gone on from.
#[test]
fn numbers_that_nobody_counted_to_are_not_gone_on_from() {
    let queue = Queue::new();
    let tasks = queue.tasks(2);
    assert_eq!(queue.run(&["--task", &tasks[0]]).code, 0);
    let head = queue.ground.git(&["rev-parse", "HEAD"]).trim().to_owned();
    for epoch in ["9223372036854775806", "9223372036854775807", "18446744073709551615"] {
        queue.ground.git(&["update-ref", &format!("refs/agency/kodingx/{}/{epoch}", tasks[1]), &head]);
    }
    let store = OpenOptions::new().write(true).open(queue.state().join("store.sqlite"));
    store.and_then(|store| store.set_len(8192)).expect("cut short");
    queue.ground.ok(&["store", "rebuild", "--yes"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    assert!(queue.records(&tasks[1], 1).exists());
}
