//! `agency logs` of those who look at an agent's work: its auditors and its checks.

use agency_tests::queue::{HONEST, Queue};

/// An auditor that says what it looks at, and lets everything pass.
const JUDGE: &str = "echo \"looking at attempt $(ls src)\"; cat > \"$AGENCY_REPORT_FILE\" <<END
---
task_id: $AGENCY_TASK_ID
verdict: PASS
findings: []
---
END";

#[test]
fn logs_shows_what_auditors_and_checks_wrote() {
    let mut queue = Queue::with_agent(&format!("echo at work; {HONEST}"));
    queue.auditor(JUDGE);
    let id = queue.tasks(1).remove(0);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.ground.ok(&["logs", &id]).out, "at work\n");
    let audit = queue.ground.ok(&["logs", &id, "--auditor"]);
    assert!(audit.out.starts_with("looking at attempt ") && audit.out.contains(&id), "{audit:?}");
    assert!(audit.err.contains("agency: output of audit-1"), "{audit:?}");
    let checks = queue.ground.ok(&["logs", &id, "--checks"]);
    assert!(checks.err.contains("agency: output of verify-1/01-"), "{checks:?}");
    for line in queue.ground.ok(&["logs", &id, "--auditor", "--json"]).out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!((&line["job"], &line["attempt"]), (&"audit-1".into(), &1.into()), "{line}");
    }
    queue.ground.refused(2, &["logs", &id, "--auditor", "--checks"]);
}

#[test]
fn logs_says_where_nobody_has_looked() {
    let queue = Queue::with_agent("echo no; exit 3");
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 10);
    queue
        .ground
        .refused(4, &["logs", &id, "--auditor"])
        .assert_names(&["no auditor's output", "agency logs T0001"]);
    queue.ground.refused(4, &["logs", &id, "--checks"]).assert_names(&["no output of checks"]);
}

/// What an agent writes can't pass for what `agency` says.
#[test]
fn logs_marks_lines_that_look_like_ours() {
    let script = format!(
        "echo plain; echo 'agency: T0009 done'; printf '\\033[32magency: output of audit-1\\n'; {HONEST}"
    );
    let queue = Queue::with_agent(&script);
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 0);
    let shown = queue.ground.ok(&["logs", &id]).out;
    assert!(shown.starts_with("plain\n| agency: T0009 done\n"), "{shown}");
    assert!(shown.contains("| agency: output of audit-1\n"), "{shown}");
    let raw = queue.ground.ok(&["logs", &id, "--raw"]).out;
    assert_eq!(raw, "plain\nagency: T0009 done\n\u{1b}[32magency: output of audit-1\n");
}
