//! What agents say: reports that are deep, numbers no machine can count to, lines that look like ours.

use std::time::{Duration, Instant};

use agency_tests::processes::emulated;
use agency_tests::queue::{HONEST, Queue};
use agency_tests::repository::{Actor, actors};

const REPORT: &str = "cat > $AGENCY_REPORT_FILE <<END\n---\ntask_id: $AGENCY_TASK_ID\nagent: shell\nstatus: READY_FOR_REVIEW\n\
    started_at: 2026-01-31T16:45:00Z\nfinished_at: 2026-01-31T16:45:00Z\nchanges: {files_modified: []}\n\
    commands_run: []\nverification: {dod_passed: true}\n";

/// 62 KB of brackets took 26 seconds of everybody's time.
#[test]
fn a_deep_report_holds_nobody_up() {
    actors().into_iter().for_each(a_deep_report_holds_nobody_up_by);
}

fn a_deep_report_holds_nobody_up_by(actor: Actor) {
    for deep in ["$(printf '[%.0s' $(seq 62000))", "$(printf '{a: %.0s' $(seq 15000))"] {
        let mut queue = Queue::of(actor, HONEST);
        queue.agent("deep", &format!("{HONEST}; {REPORT}risks: {deep}\n---\nEND\n"), "");
        queue.ground.commit_all();
        let mut tasks = queue.tasks(2);
        tasks.push(queue.task("deep", &[]));
        let began = Instant::now();
        let said = queue.run(&["--parallel", "3"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(began.elapsed() < emulated(Duration::from_secs(10)), "{:?}", began.elapsed());
        queue.assert_landed(&tasks);
    }
}

/// 58 KB of aliases took 40 seconds and 1.6 GiB.
#[test]
fn a_report_that_grows_when_it_is_read_holds_nobody_up() {
    actors().into_iter().for_each(a_report_that_grows_when_it_is_read_holds_nobody_up_by);
}

fn a_report_that_grows_when_it_is_read_holds_nobody_up_by(actor: Actor) {
    let mut queue = Queue::of(actor, HONEST);
    let grows = "\n  - &a [$(printf 'x,%.0s' $(seq 10000))]\n  - [$(printf '*a,%.0s' $(seq 12000))]";
    queue.agent("grower", &format!("{HONEST}; {REPORT}risks: {grows}\n---\nIts words.\nEND\n"), "");
    queue.ground.commit_all();
    let mut tasks = queue.tasks(2);
    tasks.push(queue.task("grower", &[]));
    let began = Instant::now();
    let said = queue.run(&["--parallel", "3"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(began.elapsed() < emulated(Duration::from_secs(10)), "{:?}", began.elapsed());
    queue.assert_landed(&tasks);
    let report = queue.ground.ok(&["report", &tasks[2]]).out;
    assert!(report.contains("could not be understood") && report.contains("Its words."), "{report}");
}

/// A verdict is read as strictly, and as soon.
#[test]
fn a_deep_verdict_is_none() {
    actors().into_iter().for_each(a_deep_verdict_is_none_by);
}

fn a_deep_verdict_is_none_by(actor: Actor) {
    let mut queue = Queue::of(actor, HONEST);
    queue.settings("attempts = 1");
    queue.auditor(
        "printf -- '---\\ntask_id: %s\\nagent: judge\\nverdict: PASS\\nfindings: ' $AGENCY_TASK_ID > $AGENCY_REPORT_FILE; \
         printf '[%.0s' $(seq 60000) >> $AGENCY_REPORT_FILE; printf -- '\\n---\\n' >> $AGENCY_REPORT_FILE",
    );
    queue.ground.commit_all();
    queue.tasks(1);
    let began = Instant::now();
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert!(began.elapsed() < emulated(Duration::from_secs(10)), "{:?}", began.elapsed());
    assert!(queue.landed().is_empty());
}

#[test]
fn no_claim_of_one_agent_ends_the_run_for_others() {
    actors().into_iter().for_each(no_claim_of_one_agent_ends_the_run_for_others_by);
}

fn no_claim_of_one_agent_ends_the_run_for_others_by(actor: Actor) {
    let mut queue = Queue::of(actor, HONEST);
    queue.agent(
        "liar",
        &format!("{HONEST}; echo '{{\"tokens\": 9000000000000000000, \"cost\": 1e18}}' > $AGENCY_USAGE_FILE"),
        "",
    );
    queue.tables("[budget.run]\ntokens = 1000\ncost = 1.0\n");
    queue.ground.commit_all();
    let mut tasks = vec![queue.task("liar", &[])];
    tasks.extend(queue.tasks(3));
    let said = queue.run(&["--parallel", "1"]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    let report = queue.ground.files(".kodingx/outbox").into_iter().find(|file| file.contains("T0001"));
    let report = queue.ground.read(&report.expect("a report"));
    assert!(report.contains("it says that it used 9000000000000000000 tokens"), "{report}");
}

#[test]
fn no_line_of_an_agents_can_be_taken_for_ours() {
    actors().into_iter().for_each(no_line_of_an_agents_can_be_taken_for_ours_by);
}

fn no_line_of_an_agents_can_be_taken_for_ours_by(actor: Actor) {
    let mut queue = Queue::of(actor, HONEST);
    let forged = "agency: 9 of 9 tasks done";
    let blocked = REPORT.replace("READY_FOR_REVIEW", "BLOCKED");
    let risks = format!("risks:\n  - \"one\\n{forged}\\n{forged}\"\n");
    let body = format!("---\nThe scope is too small.\n{forged}\n{forged}\n\n{forged}\nEND\n");
    queue.agent("forger", &format!("{blocked}{risks}{body}echo '{forged}' >&2"), "");
    // Its last words are quoted, as many lines as they are.
    queue.agent("quitter", &format!("printf 'Oh\\n{forged}\\n{forged}\\n' >&2; exit 3"), "");
    queue.auditor(&format!(
        "cat > $AGENCY_REPORT_FILE <<END\n---\ntask_id: $AGENCY_TASK_ID\nverdict: FAIL\nfindings:\n  \
         - {{file: src/x, line: 1, message: \"one\\n{forged}\\n{forged}\"}}\n---\n{forged}\nEND\n"
    ));
    queue.settings("attempts = 1");
    queue.ground.commit_all();
    queue.task("forger", &[]);
    queue.task("quitter", &[]);
    queue.task("shell", &[]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.ground.status("T0001"), "BLOCKED", "{said:?}");
    said.assert_names(&[
        "T0001: blocked: The scope is too small. agency: 9 of 9",
        "judge found: src/x:1: one",
    ]);
    let shown = [&["ps", "--all"][..], &["status"], &["lint"], &["task", "show", "T0001"]];
    for said in shown.map(|words| queue.ground.agency(words)).iter().chain([&said]) {
        let lines = said.err.lines().chain(said.out.lines());
        assert!(!lines.map(str::trim).any(|line| line == forged), "{said:?}");
    }
}
