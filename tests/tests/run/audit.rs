//! Auditors: what becomes of work that another agent judges.

use std::time::Duration;

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};

/// An auditor that lets everything pass.
pub(crate) const PASS: &str = "printf -- '---\\ntask_id: %s\\nverdict: PASS\\nfindings: []\\n---\\n' $AGENCY_TASK_ID > $AGENCY_REPORT_FILE";

/// An auditor's verdict, with one finding.
pub(crate) fn says(verdict: &str, finding: &str) -> String {
    format!(
        "printf -- '---\\ntask_id: %s\\nverdict: {verdict}\\nfindings:\\n  - {{file: src/%s, line: 1, message: \"{finding}\"}}\\n---\\n' \
         $AGENCY_TASK_ID $AGENCY_TASK_ID > $AGENCY_REPORT_FILE"
    )
}

/// A builder that adds a line each time, after what its last attempt left.
const STEADY: &str = "mkdir -p src && echo \"by $AGENCY_TASK_ID\" >> src/$AGENCY_TASK_ID";

fn queue(builder: &str, auditor: &str) -> (Queue, String) {
    let mut queue = Queue::with_agent(builder);
    queue.auditor(auditor);
    let id = queue.tasks(1).remove(0);
    (queue, id)
}

fn attempt_that_landed(queue: &Queue) -> String {
    let trailer = "--format=%(trailers:key=Agency-Attempt,valueonly)";
    queue.ground.git(&["log", "-1", trailer]).trim().to_owned()
}

fn artifact(queue: &Queue, id: &str) -> serde_json::Value {
    let found = queue.ground.git(&["ls-files", "--others", "--cached", ".kodingx/verify"]);
    let name = |line: &&str| line.contains(id) && line.ends_with(".verify.json");
    let path = found.lines().find(name).unwrap_or_else(|| panic!("no artifact of {id}: {found}"));
    serde_json::from_str(&queue.ground.read(path)).expect("JSON")
}

#[test]
fn work_that_passes_the_first_time_lands_and_its_proof_says_who_judged() {
    let (queue, id) = queue(HONEST, PASS);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert_eq!(attempt_that_landed(&queue), "1");
    let notes = artifact(&queue, &id)["notes"].to_string();
    assert!(notes.contains("audited by judge: PASS"), "{notes}");
    queue.assert_nothing_left();
}

/// The builder goes on from what it had, and hears what was found: from its prompt and from the task's history.
#[test]
fn work_that_fails_twice_goes_back_with_the_findings_and_lands_when_it_passes() {
    let judge = format!(
        "if [ $(wc -l < src/$AGENCY_TASK_ID) -lt 3 ]; then\n{}\nelse\n{PASS}\nfi",
        says("FAIL", "one line more, please")
    );
    let builder = format!("{STEADY}\ngrep -c 'one line more, please' $AGENCY_PROMPT_FILE || true");
    let (queue, id) = queue(&builder, &judge);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert_eq!(attempt_that_landed(&queue), "3");
    assert_eq!(queue.ground.read(&format!("src/{id}")), format!("by {id}\n").repeat(3));
    for (attempt, told) in [(1, "0"), (2, "2"), (3, "4")] {
        let words = std::fs::read_to_string(queue.records(&id, attempt).join("agent/output.log"));
        assert_eq!(words.expect("a log").trim(), told, "attempt {attempt}");
    }
    let task = queue.ground.read(&queue.ground.file(&id));
    let returned = format!("judge found: src/{id}:1: one line more, please");
    assert_eq!(task.matches(&returned).count(), 2, "{task}");
    assert_eq!(queue.ground.git(&["log", "--oneline", "main"]).matches("A task").count(), 1);
    queue.assert_nothing_left();
}

#[test]
fn work_that_fails_past_the_bound_is_blocked_with_the_story() {
    let (queue, id) = queue(STEADY, &says("FAIL", "wrong from the ground up"));
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.ground.status(&id), "BLOCKED");
    let task = queue.ground.read(&queue.ground.file(&id));
    for part in ["wrong from the ground up (3 attempts)", "attempt 1: judge found", "attempt 2: judge found"]
    {
        assert!(task.contains(part), "no {part:?}: {task}");
    }
    assert!(queue.landed().is_empty() && !queue.records(&id, 4).exists());
    queue.ground.assert_compliant();
    queue.assert_nothing_left();
}

/// What fails in the same way with the same work is not paid for again.
#[test]
fn work_that_stays_the_same_is_given_up_before_the_bound() {
    let (mut queue, id) = queue(HONEST, &says("FAIL", "no"));
    queue.settings("attempts = 9");
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["there is no progress: the same work failed 2 times in the same way"]);
    assert!(queue.records(&id, 2).exists() && !queue.records(&id, 3).exists());
    assert_eq!(queue.ground.status(&id), "BLOCKED");
    queue.assert_nothing_left();
}

fn left_to_a_person() -> (Queue, String) {
    let (queue, id) = queue(STEADY, &says("NEEDS_REVIEW", "is this meant?"));
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&id, "judge leaves it to you", "is this meant?", "agency decide"]);
    assert_eq!(queue.ground.status(&id), "READY_FOR_REVIEW");
    let listed = queue.ground.ok(&["decide", "--json"]).json();
    assert_eq!(listed["waiting"][0]["task"], id, "{listed}");
    (queue, id)
}

#[test]
fn what_needs_review_waits_for_a_person_who_lets_it_pass() {
    let (queue, id) = left_to_a_person();
    // Nothing happens until they say so.
    assert_eq!(queue.run(&[]).code, 10);
    assert!(queue.landed().is_empty());
    queue.decide(&id, "1", "pass", "It is meant so");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert_eq!(attempt_that_landed(&queue), "1", "no agent was started again");
    let notes = artifact(&queue, &id)["notes"].to_string();
    assert!(notes.contains("ann let it pass: It is meant so"), "{notes}");
    queue.assert_nothing_left();
}

#[test]
fn a_person_sends_it_back_and_the_builder_hears_why() {
    let (mut queue, id) = left_to_a_person();
    queue.decide(&id, "1", "fail", "Two lines");
    queue.agent("shell", &format!("{STEADY}\ngrep 'ann says: Two lines' $AGENCY_PROMPT_FILE"), "");
    queue.agent("judge", PASS, "");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(attempt_that_landed(&queue), "2");
    assert_eq!(queue.ground.read(&format!("src/{id}")), format!("by {id}\n").repeat(2));
}

/// A person who answers while the run goes on is heard by it.
#[test]
fn an_answer_is_heard_while_others_work() {
    let (mut queue, id) = queue(STEADY, &says("NEEDS_REVIEW", "is this meant?"));
    queue.agent("slow", &crate::gate::behind(HONEST), "");
    queue.ground.write(".kodingx/gate", "shut");
    let slow = queue.task("slow", &[]);
    queue.agent(
        "judge",
        &format!(
            "if grep -q slow $AGENCY_PROMPT_FILE; then\n{PASS}\nelse\n{}\nfi",
            says("NEEDS_REVIEW", "?")
        ),
        "",
    );
    let run = queue.start(&["--parallel", "2"]);
    run.says("leaves it to you");
    queue.decide(&id, "1", "pass", "Yes");
    run.says(&format!("{id} done"));
    crate::gate::open(&queue);
    assert_eq!(run.end().code, 0);
    queue.assert_landed(&[id, slow]);
}

#[test]
fn a_decision_is_for_people_and_for_what_waits() {
    let (queue, id) = left_to_a_person();
    let alone =
        queue.ground.refused(2, &["decide", &id, "--attempt", "1", "--answer", "pass", "--reason", "x"]);
    alone.assert_names(&["--as human"]);
    let agent = queue.ground.refused(
        2,
        &["--as", "agent:judge", "decide", &id, "--attempt", "1", "--answer", "pass", "--reason", "x"],
    );
    agent.assert_names(&["needs a human, not an agent"]);
    queue.ground.refused(
        2,
        &["--as", "human:ann", "decide", &id, "--attempt", "1", "--answer", "pass", "--reason", " "],
    );
    queue.ground.refused(2, &["--as", "human:ann", "decide", &id, "--attempt", "1", "--answer", "pass"]);
    let other = queue.ground.refused(
        4,
        &["--as", "human:ann", "decide", "T0999", "--attempt", "1", "--answer", "pass", "--reason", "x"],
    );
    other.assert_names(&["attempt 1 at T0999 is not left to you"]);
    queue.ground.ok(&["cancel", &id]);
    assert_eq!(queue.run(&[]).code, 10);
    assert_eq!(queue.ground.status(&id), "CANCELED");
    queue.assert_nothing_left();
}

/// Asked once more, and told what was wrong with the answer; then a person is asked.
#[test]
fn prose_is_no_verdict() {
    let (queue, id) = queue(
        HONEST,
        "echo 'Looks good to me, PASS!' > $AGENCY_REPORT_FILE; grep -c 'could not be used' $AGENCY_PROMPT_FILE",
    );
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&id, "judge gave no verdict, 2 times", "does not start with a header"]);
    assert!(queue.landed().is_empty());
    for (audit, asked_before) in [("audit-1", "0"), ("audit-2", "1")] {
        let log = queue.records(&id, 1).join(audit).join("output.log");
        assert_eq!(std::fs::read_to_string(log).expect("a log").trim(), asked_before, "{audit}");
    }
    assert!(!queue.records(&id, 1).join("audit-3").exists());
    queue.decide(&id, "1", "pass", "I looked");
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&[id]);
}

/// An auditor that fails, hangs or is silent lets nothing pass.
#[test]
fn an_auditor_that_comes_to_no_end_lets_nothing_pass() {
    for (script, more, why) in [
        (format!("{PASS}; exit 1"), "", "exit code 1"),
        ("true".to_owned(), "", "it wrote none"),
        (format!("{PASS}; sleep 600"), "timeout = \"1s\"", "it ran for too long"),
    ] {
        let (mut queue, id) = queue(HONEST, PASS);
        queue.agent("judge", &script, more);
        let said = queue.run(&[]);
        assert_eq!(said.code, 10, "{said:?}");
        said.assert_names(&[&id, "gave no verdict", why]);
        assert!(queue.landed().is_empty());
    }
}

/// What was merged when nobody judged is judged before it lands, once somebody does.
#[test]
fn an_auditor_that_comes_late_is_asked_about_what_is_under_way() {
    let mut queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    let script = format!("script={HONEST}");
    queue.supervise_here(&[&script, "kill=land:before"]).gone();
    queue.auditor(&says("FAIL", "too late"));
    queue.settings("attempts = 1");
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["judge found", "too late"]);
    assert!(queue.landed().is_empty());
    assert_eq!(queue.ground.status(&id), "BLOCKED");
    queue.assert_nothing_left();
}

/// Also where a run is not about that builder at all, and only takes its work over.
#[test]
fn nobody_judges_their_own_work_whoever_takes_it_over() {
    let mut queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    let script = format!("script={HONEST}");
    queue.supervise_here(&[&script, "kill=merge:before"]).gone();
    queue.agent("other", HONEST, "");
    queue.tables("[roles]\nauditor = \"shell\"\n");
    let said = queue.run(&["--agent", "other"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&id, "shell built it, and no agent audits its own work"]);
    assert!(queue.landed().is_empty() && !queue.records(&id, 1).join("audit-1").exists());
}

/// An answer is to the attempt that somebody has looked at, and to no other.
#[test]
fn an_answer_counts_for_the_attempt_it_is_about() {
    let (queue, id) = left_to_a_person();
    queue.decide(&id, "1", "fail", "No");
    assert_eq!(queue.run(&[]).code, 10);
    assert!(queue.records(&id, 2).exists());
    let late = ["--as", "human:ann", "decide", &id, "--attempt", "1", "--answer", "pass", "--reason", "Fine"];
    queue.ground.refused(4, &late).assert_names(&["attempt 1", "is not left to you"]);
    assert_eq!(queue.run(&[]).code, 10);
    assert!(queue.landed().is_empty());
}

/// A person who takes a task off the board has the last word, whatever somebody answered.
#[test]
fn what_was_canceled_while_it_waited_does_not_land() {
    let (queue, id) = left_to_a_person();
    queue.ground.ok(&["task", "move", &id, "CANCELED"]);
    queue.decide(&id, "1", "pass", "Yes");
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert!(queue.landed().is_empty(), "{said:?}");
    assert_eq!(queue.ground.status(&id), "CANCELED");
    queue.assert_nothing_left();
}

/// An auditor that is gone from the configuration holds up its own work only.
#[test]
fn an_auditor_that_is_gone_leaves_its_work_to_a_person() {
    let mut queue = Queue::new();
    queue.auditor(PASS);
    let id = queue.tasks(1).remove(0);
    let (script, judge) = (format!("script={HONEST}"), format!("auditor={PASS}"));
    queue.supervise_here(&[&script, &judge, "kill=ask:before"]).gone();
    queue.ground.edit("agency.toml", "[agents.judge]", "[agents.other]");
    queue.ground.edit("agency.toml", "[roles]\nauditor = \"judge\"", "");
    queue.ground.ok(&["trust", "--yes"]);
    std::fs::remove_dir_all(queue.records(&id, 1).join("audit-1")).expect("removed");
    let fine = queue.task("shell", &[]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&id, "no agent `judge` is configured any more"]);
    assert_eq!(queue.ground.status(&fine), "DONE");
}

/// However long a patch is, what differs is named.
#[test]
fn an_auditor_is_told_of_every_path_however_long_the_patch_is() {
    let builder =
        "mkdir -p src && head -c 9000000 /dev/urandom | base64 > src/a_fixture && echo x > src/z_last";
    let judge = format!(
        "grep -q '`src/z_last`' $AGENCY_PROMPT_FILE && git diff --name-only $(sed -n 's/.*`git diff \\([0-9a-f]*\\)`.*/\\1/p' $AGENCY_PROMPT_FILE) | grep -q src/z_last || exit 9\n{PASS}"
    );
    let (queue, id) = queue(builder, &judge);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
}

/// It sees the work, and can change nothing of it, nor of the board.
#[test]
fn an_auditor_sees_the_work_and_can_not_change_it() {
    let judge = format!(
        "grep -q by src/$AGENCY_TASK_ID && grep -q \"+by $AGENCY_TASK_ID\" .git/AGENCY_WORK.patch || exit 9\n\
         echo mine > src/$AGENCY_TASK_ID && exit 8\necho mine > .kodingx/STATE.md && exit 7\n{PASS}"
    );
    let (queue, id) = queue(HONEST, &judge);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert_eq!(queue.ground.read(&format!("src/{id}")), format!("by {id}\n"));
}

#[test]
fn an_auditor_that_is_no_agent_or_builds_itself_is_refused_before_anything_starts() {
    let (mut queue, id) = queue(HONEST, PASS);
    for (table, why) in [
        ("auditor = \"nobody\"", "roles.auditor is `nobody`, and no such agent is configured"),
        ("auditor = \"shell\"", "roles.auditor is `shell`, which also builds"),
        ("audtor = \"judge\"", "there is no key `roles.audtor`"),
    ] {
        queue.ground.edit("agency.toml", "auditor = \"judge\"", table);
        let said = queue.run(&["--trust"]);
        assert_eq!(said.code, 2, "{said:?}");
        said.assert_names(&[why]);
        assert_eq!(said.err.lines().filter(|line| line.starts_with("agency: ")).count(), 1, "{said:?}");
        assert!(!queue.records(&id, 1).exists());
        queue.ground.edit("agency.toml", table, "auditor = \"judge\"");
    }
    queue.settings("");
    assert_eq!(queue.run(&[]).code, 0);
}

/// As many of an agent as it may be are at work, also when it judges; and everything is judged in the end.
#[test]
fn an_agent_that_may_be_there_once_judges_one_after_the_other() {
    let mut queue = crate::gate::queue_of(HONEST);
    queue.auditor(&crate::gate::behind(PASS));
    queue.agent("judge", &crate::gate::behind(PASS), "parallel = 1");
    let tasks = queue.tasks(3);
    let run = queue.start(&["--parallel", "3"]);
    tasks.iter().for_each(|id| queue.until_phase(id, "auditing"));
    let ordered = || {
        let ordered = |id: &&String| queue.records(id, 1).join("audit-1/order.json").exists();
        tasks.iter().filter(ordered).count()
    };
    assert!(wait_until(LONG, || ordered() > 0), "nobody judges");
    // They all could be judged, and one of them is.
    assert!(!wait_until(Duration::from_secs(2), || ordered() > 1), "two at a time");
    crate::gate::open(&queue);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

/// Who waits for an auditor can be told not to.
#[test]
fn a_task_that_waits_to_be_judged_can_be_canceled() {
    let mut queue = crate::gate::queue_of(HONEST);
    queue.auditor(&crate::gate::behind(PASS));
    queue.agent("judge", &crate::gate::behind(PASS), "parallel = 1");
    let tasks = queue.tasks(2);
    let run = queue.start(&["--parallel", "2"]);
    tasks.iter().for_each(|id| queue.until_phase(id, "auditing"));
    let is_judged = |id: &&String| queue.records(id, 1).join("audit-1/order.json").exists();
    assert!(wait_until(LONG, || tasks.iter().any(|id| is_judged(&id))), "nobody judges");
    let (judged, waits): (Vec<&String>, Vec<&String>) = tasks.iter().partition(is_judged);
    queue.ground.ok(&["cancel", waits[0]]);
    assert!(wait_until(LONG, || queue.ground.status(waits[0]) == "CANCELED"), "it still waits");
    crate::gate::open(&queue);
    run.end();
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [judged[0].clone()]);
    queue.assert_nothing_left();
}
