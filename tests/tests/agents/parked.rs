//! An agent that can't work now waits, its tasks with it, and no attempt is counted.

use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};
use serde_json::Value as Json;

/// A file that agents see as soon as it is there.
struct Gate(tempfile::TempDir);

impl Gate {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn open(&self) {
        fs::write(self.0.path().join("open"), "").expect("written");
    }

    /// A script that does one thing once it is open, and another one before.
    fn script(&self, then: &str, otherwise: &str) -> String {
        format!("if test -e {}/open; then {then}; else {otherwise}; fi", self.0.path().display())
    }

    fn setting(&self) -> String {
        format!("read = [\"{}\"]\n", self.0.path().display())
    }
}

/// An agent that says something and does nothing, until its gate is open.
fn queue(says: &str) -> (Queue, Gate) {
    let (mut queue, gate) = (Queue::new(), Gate::new());
    queue.agent("shell", &gate.script(HONEST, says), &gate.setting());
    (queue, gate)
}

const QUOTA: &str =
    "[agents.shell.signals.quota]\npattern = 'quota is used up until (?<until>\\d+)'\nmeans = \"quota\"\n";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

#[test]
fn a_quota_is_waited_for_and_no_attempt_is_counted() {
    let (mut queue, gate) = queue("echo the quota is used up until $(($(date +%s) + 4)); exit 1");
    queue.settings("attempts = 1");
    queue.tables(QUOTA);
    let tasks = queue.tasks(2);
    let run = queue.start(&["--json"]);
    run.writes("\"ending\":\"parked\"");
    gate.open();
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    // The second task did not run into it: its agent was known to wait. And nobody began before it was time.
    let events: Vec<Json> = said.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let parked: Vec<&Json> = events.iter().filter(|event| event["ending"]["ending"] == "parked").collect();
    let [parked] = parked[..] else { panic!("{parked:?}") };
    assert_eq!(parked["ending"]["want"], "quota");
    let until = parked["ending"]["until"].as_i64().expect("a time");
    let claimed = events.iter().filter(|event| event["attempt"]["phase"]["phase"] == "claimed");
    let later =
        claimed.filter_map(|event| event["attempt"]["claimed_at"].as_i64()).skip(1).collect::<Vec<_>>();
    assert!(later.len() == 2 && later.iter().all(|at| *at >= until), "{later:?} {until}");
}

#[test]
fn another_run_waits_as_well_until_somebody_says_otherwise() {
    let says = format!("echo the quota is used up until {}; exit 1", now() + 3600);
    let (mut queue, gate) = queue(&says);
    queue.tables(QUOTA);
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    run.says("put off until");
    run.kill();
    let run = queue.start(&[]);
    assert!(!wait_until(Duration::from_secs(3), || queue.records(&id, 2).exists()), "it was tried");
    let would = queue.ground.ok(&["run", "--dry-run"]);
    assert!(would.out.contains("can't work for another 59m"), "{would:?}");
    gate.open();
    queue.ground.ok(&["retry", &id]);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
}

#[test]
fn an_agent_that_a_person_has_to_help_is_not_started_again_and_others_go_on() {
    let (mut queue, gate) = queue("echo Please log in.; exit 1");
    queue.tables("[agents.shell.signals.login]\npattern = '(?<says>Please log in)'\nmeans = \"unfit\"\n");
    queue.agent("other", HONEST, "");
    let tasks = queue.tasks(2);
    let other = queue.task("other", &[]);
    let said = queue.run(&["--parallel", "1"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["put off: Please log in", "shell can't be used: Please log in"]);
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [other]);
    assert!(queue.records(&tasks[0], 1).exists() && !queue.records(&tasks[1], 1).exists());
    // Nothing is held against anybody.
    gate.open();
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn a_question_that_nobody_answers_is_heard_within_a_minute() {
    let started = Instant::now();
    let (queue, _gate) = queue("printf 'Paste your API key here: '; sleep 1000");
    queue.tasks(1);
    let said = queue.run(&[]);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["it waits for an answer to `Paste your API key here:`, and no person is there"]);
    queue.assert_nothing_left();
}

#[test]
fn an_auditor_that_has_no_quota_is_asked_again_and_the_work_is_kept() {
    let mut queue = Queue::new();
    let gate = Gate::new();
    let verdict = "printf -- '---\\ntask_id: %s\\nagent: judge\\nverdict: PASS\\nfindings: []\\n---\\n' $AGENCY_TASK_ID > $AGENCY_REPORT_FILE";
    let says = "echo the quota is used up until $(($(date +%s) + 4)); exit 1";
    queue.agent("judge", &gate.script(verdict, says), &gate.setting());
    queue.tables(&format!("[roles]\nauditor = \"judge\"\n{}", QUOTA.replace("shell", "judge")));
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    run.says("its auditor can't work");
    gate.open();
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert!(!queue.records(&id, 2).exists(), "it was built once");
}

#[test]
fn a_task_that_needs_more_than_a_quota_is_given_up_in_the_end() {
    let says = "echo the quota is used up until 1; exit 1";
    let (mut queue, _gate) = queue(says);
    queue.settings("attempts = 1");
    queue.tables(QUOTA);
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    assert!(wait_until(LONG, || queue.ground.status(&id) == "BLOCKED"), "{}", run.said_so_far());
    let said = run.end();
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["it was put off 10 times"]);
    assert!(queue.records(&id, 10).exists() && !queue.records(&id, 11).exists());
}

#[test]
fn an_auditor_that_a_person_has_to_help_leaves_the_work_to_them() {
    let mut queue = Queue::new();
    queue.auditor("echo Please log in; exit 1");
    queue.tables("[agents.judge.signals.login]\npattern = '(?<says>Please log in)'\nmeans = \"unfit\"\n");
    let id = queue.tasks(1).remove(0);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["not audited: judge can't work: Please log in"]);
    assert!(!queue.records(&id, 1).join("audit-2").exists(), "it was asked once");
    queue.decide(&id, "1", "pass", "I looked");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
}

#[test]
fn whoever_drains_does_not_wait_for_anybody_who_was_put_off() {
    let hours = "echo the quota is used up until $(($(date +%s) + 7200)); exit 1";
    let (mut queue, _gate) = queue(hours);
    queue.tables(QUOTA);
    queue.agent("other", HONEST, "");
    queue.auditor(hours);
    queue.tables(&QUOTA.replace("shell", "judge"));
    queue.tasks(1);
    queue.task("other", &[]);
    let run = queue.start(&["--parallel", "2"]);
    run.says("put off until");
    run.says("its auditor can't work");
    queue.ground.ok(&["drain"]);
    let said = run.end();
    assert_eq!(said.code, 10, "{said:?}");
    queue.assert_nothing_at_work();
}

#[test]
fn a_run_has_its_time_although_its_agents_wait() {
    let (mut queue, _gate) = queue("echo the quota is used up until $(($(date +%s) + 7200)); exit 1");
    queue.tables(&format!("{QUOTA}[budget.run]\ntime = \"3s\"\n"));
    queue.tasks(1);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["put off until", "the budget of this run is used up"]);
}

/// What had to be stopped is not excused by what it said before.
#[test]
fn a_deadline_is_not_explained_away() {
    let (mut queue, _gate) = queue("echo the quota is used up until $(($(date +%s) + 7200)); sleep 1000");
    queue.tables(QUOTA);
    queue.settings("attempts = 1");
    queue.ground.edit("agency.toml", "[agents.shell]", "[agents.shell]\ntimeout = \"2s\"\ngrace = \"1s\"");
    queue.ground.ok(&["trust", "--yes"]);
    let id = queue.tasks(1).remove(0);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["it ran for longer than 2 s"]);
    assert_eq!(queue.ground.status(&id), "BLOCKED");
}

#[test]
fn honest_output_that_reads_a_little_like_a_question_stops_nobody() {
    let (queue, gate) = queue("false");
    gate.open();
    let mut queue = queue;
    let script = format!("printf 'tests/test_login.py::test_token[a] '; sleep 22; echo PASSED; {HONEST}");
    queue.agent("shell", &script, "");
    let tasks = queue.tasks(1);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
}
