//! Boards of an older tool: another name for the manifest, shorter ids, names without a time, other fields.

use crate::ground::Ground;

const TASK: &str = "---
id: T001
title: Older work
priority: P1
status: IN_PROGRESS
assignee: codex
created_at: 2026-01-31
dod_profile: auto
scope:
  must_touch:
    - src/**
  may_touch: []
  must_not_touch:
    []
external_refs: {}
---

# Older work
";

const REPORT: &str = "---
id: T001
status: READY_FOR_REVIEW
completed_at: 2026-01-31T16:45:00Z
files_changed:
  - path: src/a.rs
    action: modified
  - path: src/b.rs
    action: created
---

Done.
";

const FILE: &str = ".kodingx/inbox/codex/2026-01-31/T001-older-work.md";

fn board() -> Ground {
    let ground = Ground::without_board(&[
        (
            ".kodingx/kodingx.json",
            "{\n  \"protocol\": \"agency/1.1\",\n  \"project\": \"older\",\n  \"builders\": [\"codex\"]\n}\n",
        ),
        (FILE, TASK),
        (".kodingx/outbox/codex/2026-01-31/T001-older-work-report.md", REPORT),
    ]);
    ground.write(
        ".kodingx/inbox/codex/2026-01-31/T002-no-scope.md",
        TASK.replace("T001", "T002")
            .replace("scope:\n  must_touch:\n    - src/**\n  may_touch: []\n  must_not_touch:\n    []\n", ""),
    );
    ground
}

#[test]
fn status_lists_the_tasks_of_an_older_board() {
    let ground = board();
    let said = ground.unchanged(10, &["status", "--json"]);
    let document = said.json();
    assert_eq!((&document["project"], &document["reports"]), (&"older".into(), &1.into()));
    let ids: Vec<&str> =
        document["tasks"].as_array().expect("tasks").iter().filter_map(|task| task["id"].as_str()).collect();
    assert_eq!(ids, ["T001", "T002"]);
    // Nothing is writable where nobody said what may be written.
    let findings = document["findings"].as_array().expect("findings");
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!((&findings[0]["field"], &findings[0]["section"]), (&"scope".into(), &"6.2".into()));
    assert!(findings[0]["message"].as_str().is_some_and(|message| message.contains("nothing is writable")));
}

#[test]
fn an_older_task_is_shown_whole() {
    let ground = board();
    let task = ground.unchanged(0, &["task", "show", "T001", "--json"]).json()["task"].clone();
    assert_eq!((&task["title"], &task["status"]), (&"Older work".into(), &"IN_PROGRESS".into()));
    assert_eq!(task["scope"]["must_touch"], serde_json::json!(["src/**"]));
    assert_eq!(task["scope"]["must_not_touch"], serde_json::json!([]));
    assert_eq!(task["external_refs"], serde_json::json!([]));
    assert_eq!(task["file"], FILE);
    assert_eq!(ground.unchanged(0, &["task", "show", "T001"]).out, TASK);
}

#[test]
fn an_older_report_is_read() {
    let ground = board();
    let report = ground.unchanged(0, &["report", "T001", "--json"]).json()["report"].clone();
    assert_eq!((&report["task_id"], &report["agent"]), (&"T001".into(), &"codex".into()));
    assert_eq!(report["status"], "READY_FOR_REVIEW");
    assert_eq!(report["finished_at"], "2026-01-31T16:45:00+00:00");
    assert_eq!(report["files_modified"], serde_json::json!(["src/a.rs", "src/b.rs"]));
}

/// Work goes on: ids after the highest, files where they are, the manifest under its own name.
#[test]
fn an_older_board_is_worked_on() {
    let ground = board();
    assert_eq!(ground.task("New work", &[]), "T0003");
    ground.ok(&["task", "move", "T001", "READY_FOR_REVIEW", "--as", "agent:codex"]);
    assert_eq!(ground.read(FILE), TASK.replace("IN_PROGRESS", "READY_FOR_REVIEW"));
    let artifact = ground.artifact("T001", "pass");
    // After the report, which was finished at 16:45 UTC.
    ground.edit(&artifact, "2026-01-31T16:58:00+01:00", "2026-01-31T17:58:00+01:00");
    ground.ok(&["task", "move", "T001", "DONE"]);
    assert!(!ground.exists(".kodingx/agency.json"));
    assert_eq!(ground.header(".kodingx/STATE.md")["protocol"].as_str(), Some("agency/1.1"));
    ground.ok(&["migrate", "--to", "agency/1.0"]);
    assert!(ground.read(".kodingx/kodingx.json").contains("\"agency/1.0\""));
}

#[test]
fn what_an_older_board_lacks_is_found_and_upgrade_adds_it() {
    let ground = board();
    ground.assert_found(".kodingx/kodingx.json", "5", "older tool's name");
    ground.assert_found(FILE, "6.1", "is not T{ID}-{HHMM}-{slug}");
    ground.assert_found(".kodingx/DECISIONS.md", "4", "missing");
    ground.ok(&["upgrade", "--full"]);
    assert_eq!(ground.read(FILE), TASK);
    let findings = ground.lint();
    assert!(findings.iter().all(|one| one["section"] != "4" && one["section"] != "13"), "{findings:#?}");
}
