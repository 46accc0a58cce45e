//! What a run can be asked for, and what it answers programs.

use std::collections::BTreeSet;

use agency_tests::queue::{HONEST, Queue};
use serde_json::Value as Json;

use crate::gate;

#[test]
fn a_run_can_be_about_some_tasks_only() {
    let queue = Queue::new();
    let tasks = queue.tasks(4);
    let said = queue.run(&["--task", &tasks[1], "--task", &tasks[3]]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [tasks[1].clone(), tasks[3].clone()]);
    assert_eq!(queue.ground.status(&tasks[0]), "NEW");
}

#[test]
fn a_task_that_does_not_exist_is_refused() {
    let queue = Queue::new();
    queue.tasks(1);
    let said = queue.ground.refused(4, &["run", "--task", "T0099"]);
    said.assert_names(&["T0099"]);
    assert!(queue.landed().is_empty());
}

#[test]
fn a_run_can_be_about_one_agent_only() {
    let mut queue = Queue::new();
    queue.agent("other", HONEST, "");
    let (mine, others) = (queue.task("shell", &[]), queue.task("other", &[]));
    let said = queue.run(&["--agent", "other"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [others]);
    assert_eq!(queue.ground.status(&mine), "NEW");
}

/// Without it, a task that comes while others run is taken, too.
#[test]
fn a_run_of_what_is_ready_now_leaves_what_comes_later() {
    let queue = gate::queue(HONEST);
    let first = queue.task("shell", &[]);
    let dependent = queue.task("shell", &["--depends-on", &first]);
    let supervisor = queue.start(&["--once"]);
    gate::begun(&queue, &first, 1);
    let late = queue.task("shell", &[]);
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 0, "all it was asked for is done: {said:?}");
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), std::slice::from_ref(&first), "{said:?}");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[first, dependent, late]);
}

#[test]
fn a_task_that_comes_while_others_run_is_taken_too() {
    let queue = gate::queue(HONEST);
    let first = queue.task("shell", &[]);
    let supervisor = queue.start(&[]);
    gate::begun(&queue, &first, 1);
    let late = queue.task("shell", &[]);
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[first, late]);
}

#[test]
fn a_dry_run_says_what_would_start_and_starts_nothing() {
    let queue = Queue::new();
    let first = queue.task("shell", &["--priority", "P2"]);
    let urgent = queue.task("shell", &["--priority", "P0"]);
    let waits = queue.task("shell", &["--depends-on", &first]);
    let refs = queue.ground.git(&["for-each-ref"]);
    let said = queue.ground.unchanged(0, &["run", "--dry-run"]);
    let expected = [
        "would start now:",
        &format!("  {urgent}  shell  A task"),
        "      isolation process, scope src/**, profile quick, lands on main",
        "later:",
        &format!("  {first}  shell  one agent works at a time (--parallel)"),
        "not:",
        &format!("  {waits}  it depends on {first}, which is NEW"),
    ];
    assert_eq!(said.out.lines().collect::<Vec<_>>(), expected);
    let document = queue.ground.unchanged(0, &["run", "--dry-run", "--json"]).json();
    assert_eq!(document["version"], 1);
    assert_eq!(document["would_start"][0]["task"], urgent.as_str());
    assert_eq!(document["later"][0]["task"], first.as_str());
    assert_eq!(document["waiting"][0]["task"], waits.as_str());
    let said = queue.ground.unchanged(0, &["run", "--dry-run", "--task", &first, "--land", "branch"]);
    assert!(
        said.out.contains(&format!("lands on agency/{first}")) && said.out.lines().count() == 3,
        "{said:?}"
    );
    assert_eq!(queue.ground.git(&["for-each-ref"]), refs);
    assert!(!queue.records(&first, 1).exists());
    assert!(queue.open_attempts().is_empty());
}

#[test]
fn events_are_one_object_on_a_line_each_with_the_version_of_its_format() {
    let mut queue = Queue::with_agent("[ $AGENCY_TASK_ID = T0002 ] && exit 3; echo by > src/$AGENCY_TASK_ID");
    queue.settings("attempts = 2");
    let tasks = queue.tasks(2);
    let said = queue.run(&["--json"]);
    assert_eq!(said.code, 10, "{said:?}");
    let events: Vec<Json> = said
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    assert!(events.iter().all(|event| event["version"] == 1 && event["event"].is_string()), "{said:?}");
    let kinds: BTreeSet<&str> = events.iter().filter_map(|event| event["event"].as_str()).collect();
    let expected = ["base_checked", "phase", "standing", "over", "again", "summary"];
    assert_eq!(kinds, BTreeSet::from(expected), "{said:?}");
    let phases: Vec<&str> = events
        .iter()
        .filter(|event| event["event"] == "phase" && event["attempt"]["task"]["id"] == tasks[0].as_str())
        .filter_map(|event| event["attempt"]["phase"]["phase"].as_str())
        .collect();
    assert_eq!(phases, ["claimed", "started", "ended", "merged", "proved", "landed"]);
    let summary = events.last().expect("a summary");
    assert_eq!(summary["event"], "summary");
    let commit = queue.ground.git(&["rev-parse", "main"]).trim().to_owned();
    assert_eq!(summary["tasks"][&tasks[0]], serde_json::json!({ "ending": "done", "commit": commit }));
    assert_eq!(summary["tasks"][&tasks[1]]["ending"], "failed");
    assert_eq!(summary["interrupted"], false);
}
