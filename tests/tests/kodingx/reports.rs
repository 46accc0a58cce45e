//! §7: the report file.

use crate::ground::{Ground, REPORT};

#[test]
fn s07_1_a_report_is_found_in_the_outbox_of_its_agent() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let path = ground.report(&id, "READY_FOR_REVIEW");
    assert_eq!(path, ground.file(&id).replace("/inbox/", "/outbox/").replace(".md", "-report.md"));
    assert_eq!(ground.ok(&["report", &id]).out, REPORT.replace("T0007", &id));
    ground.assert_compliant();
    // Of several, the newest: by its day, then by the time it was finished.
    let stem = path.rsplit('/').next().expect("a name").to_owned();
    let older = REPORT.replace("T0007", &id).replace("It works now", "An older one");
    ground.write(&format!(".kodingx/outbox/codex/2026-01-30/{stem}"), older);
    let document = ground.ok(&["report", &id, "--json"]).json();
    assert_eq!(document["file"], path.as_str());
    assert_eq!(document["earlier"][0], format!(".kodingx/outbox/codex/2026-01-30/{stem}"));
    ground.assert_compliant();
}

#[test]
fn s07_1_a_report_that_lies_elsewhere_is_found() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let path = ground.report(&id, "READY_FOR_REVIEW");
    let text = ground.read(&path);
    ground.remove(&path);
    for (wrong, words) in [
        (path.replace("/codex/", "/gemini/"), "in the outbox of `gemini`"),
        (format!(".kodingx/outbox/codex/{id}-1610-one-report.md"), "folder of its day"),
        (format!(".kodingx/outbox/codex/yesterday/{id}-1610-one-report.md"), "is no date"),
        (format!(".kodingx/outbox/codex/2026-01-31/{id}-report.md"), "is not T{ID}-{HHMM}-{slug}"),
        (".kodingx/outbox/codex/2026-01-31/T0009-1610-one-report.md".to_owned(), "its `task_id` is T0001"),
    ] {
        ground.write(&wrong, &text);
        let findings = ground.lint();
        let found = findings.iter().any(|one| {
            one["file"] == *wrong && one["message"].as_str().is_some_and(|message| message.contains(words))
        });
        assert!(found, "{wrong}: {findings:#?}");
        ground.remove(&wrong);
    }
}

#[test]
fn s07_2_a_report_without_a_required_field_is_found() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let path = ground.report(&id, "READY_FOR_REVIEW");
    let whole = ground
        .read(&path)
        .replace("changes:\n  files_modified:\n    - \"src/totals.ts\"\n", "changes: {files_modified: []}\n")
        .replace("commands_run:\n  - \"make test\"\n", "commands_run: []\n")
        .replace("verification:\n  dod_passed: true\n", "verification: {dod_passed: true}\n");
    ground.write(&path, &whole);
    ground.assert_compliant();
    for field in [
        "task_id",
        "agent",
        "status",
        "started_at",
        "finished_at",
        "changes",
        "commands_run",
        "verification",
        "risks",
    ] {
        let line = whole.lines().find(|line| line.starts_with(&format!("{field}: "))).expect("a line");
        ground.write(&path, whole.replacen(&format!("{line}\n"), "", 1));
        let findings = ground.lint();
        let found = findings
            .iter()
            .any(|one| one["file"] == *path && one["section"] == "7.2" && one["field"] == field);
        assert!(found, "{field}: {findings:#?}");
    }
    for (from, to, words) in [
        ("{files_modified: []}", "{}", "changes.files_modified"),
        ("{dod_passed: true}", "{}", "verification.dod_passed"),
        ("{dod_passed: true}", "{dod_passed: maybe}", "must be true or false"),
        ("risks: []", "risks: {a: b}", "a list of strings"),
    ] {
        ground.write(&path, whole.replacen(from, to, 1));
        ground.assert_found(&path, "7.2", words);
    }
}

#[test]
fn s07_2_a_report_is_ready_for_review_or_blocked() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    for (status, fine) in [
        ("READY_FOR_REVIEW", true),
        ("BLOCKED", true),
        ("DONE", false),
        ("IN_PROGRESS", false),
        ("ready_for_review", false),
    ] {
        let path = ground.report(&id, status);
        if fine {
            ground.assert_compliant();
        } else {
            ground.assert_found(&path, "7.2", "READY_FOR_REVIEW or BLOCKED");
        }
    }
}

#[test]
fn s07_2_a_builders_claim_opens_nothing() {
    let ground = Ground::new();
    let id = ground.reported("One", &[]);
    let claim = ground.ok(&["report", &id, "--json"]).json();
    assert_eq!(claim["report"]["dod_passed"], true);
    ground.refused(2, &["task", "move", &id, "DONE"]).assert_names(&["never verified", "§9.2"]);
    ground.artifact(&id, "fail");
    ground.refused(2, &["task", "move", &id, "DONE"]).assert_names(&["came to `fail`"]);
}

/// One view of a report that can't be read: who looks at the board, at the report or at the gate is told the same.
#[test]
fn a_report_that_can_not_be_read_is_told_by_everybody_who_needs_it() {
    let ground = Ground::new();
    let id = ground.reported("One", &[]);
    ground.artifact(&id, "pass");
    let other = ground.task("Two", &[]);
    ground.report(&other, "READY_FOR_REVIEW");
    assert_eq!(ground.ok(&["status", "--json"]).json()["reports"], 2);
    for (from, to, words) in [
        ("status: READY_FOR_REVIEW", "status: DONE", "`status` is `DONE`, which no builder may say"),
        ("agent: codex", "agent: ../x", "`agent`: `../x` is no agent name"),
        ("status: READY_FOR_REVIEW", "status: READY_FOR_REVIEW\nstatus: BLOCKED", "`status` is there twice"),
    ] {
        let path = ground.report(&id, "READY_FOR_REVIEW");
        ground.edit(&path, from, to);
        let status = ground.unchanged(10, &["status", "--json"]).json();
        assert_eq!(status["reports"], 1, "{status}");
        let finding = status["findings"][0].clone();
        assert_eq!(finding["file"], path.as_str(), "{status}");
        assert!(finding["message"].as_str().is_some_and(|message| message.contains(words)), "{finding}");
        let said = ground.unchanged(4, &["report", &id]);
        said.assert_names(&[&format!("the report on {id} can't be read"), &path, words]);
        let said = ground.refused(2, &["task", "move", &id, "DONE"]);
        said.assert_names(&["its report can't be read", &path, words]);
    }
}

#[test]
fn s03_5_a_task_whose_report_says_blocked_is_not_done() {
    let ground = Ground::new();
    let id = ground.reported("One", &[]);
    ground.artifact(&id, "pass");
    ground.report(&id, "BLOCKED");
    let said = ground.refused(2, &["task", "move", &id, "DONE"]);
    said.assert_names(&["its last report says BLOCKED (§3.5)", "IN_PROGRESS"]);
    ground.report(&id, "READY_FOR_REVIEW");
    ground.ok(&["task", "move", &id, "DONE"]);
}
