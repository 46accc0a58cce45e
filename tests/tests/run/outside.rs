//! Builders that nobody starts: people and programs elsewhere, who leave a report in the outbox (§3.5).

use agency_tests::queue::{HONEST, Queue};

use crate::audit;

/// A queue whose tasks are Ann's, who works by herself.
fn queue() -> Queue {
    let mut queue = Queue::with_agent(HONEST);
    queue.agent("ann", "false", "external = true");
    queue
}

/// Her report on a task, as she would write it.
fn report(queue: &Queue, id: &str, status: &str, body: &str) {
    let stem = queue.ground.file(id);
    let stem = stem.rsplit('/').next().and_then(|name| name.strip_suffix(".md")).expect("a task").to_owned();
    let header = "started_at: 2026-01-31T16:12:00Z\nfinished_at: 2026-01-31T16:45:00Z\nchanges: {files_modified: [src/hers]}\ncommands_run: []\nverification: {dod_passed: true}\nrisks: []";
    queue.ground.write(
        &format!(".kodingx/outbox/ann/2026-01-31/{stem}-report.md"),
        format!("---\ntask_id: {id}\nagent: ann\nstatus: {status}\n{header}\n---\n\n## Summary\n{body}\n"),
    );
}

#[test]
fn her_task_waits_for_her_report_and_is_never_started() {
    let queue = queue();
    let id = queue.task("ann", &[]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&id, "ann works outside; its report is waited for"]);
    assert!(!queue.records(&id, 1).exists());
}

#[test]
fn a_report_that_somebody_leaves_is_taken_up_while_the_run_watches() {
    let mut queue = queue();
    queue.auditor(audit::PASS);
    let (hers, ours) = (queue.task("ann", &[]), queue.task("shell", &[]));
    let mut run = queue.start(&["--watch"]);
    run.says(&format!("{ours} done"));
    queue.ground.write("src/hers", "done by hand\n");
    queue.ground.git(&["add", "src/hers"]);
    queue.ground.git(&["commit", "--quiet", "--message", "By hand"]);
    report(&queue, &hers, "READY_FOR_REVIEW", "Did it.\n\n## Follow-ups\n- Mend the other half");
    run.says(&format!("{hers} done"));
    assert!(run.is_alive(), "it goes on watching");
    run.signal(nix::sys::signal::Signal::SIGINT);
    let said = run.end();
    assert_eq!(said.code, 130, "{said:?}");
    assert_eq!(queue.ground.status(&hers), "DONE");
    // What she asks for is a task that waits until somebody gives it a scope.
    let tasks = queue.ground.ok(&["task", "list", "--json"]).json();
    let asked =
        tasks["tasks"].as_array().expect("tasks").iter().find(|task| task["title"] == "Mend the other half");
    assert_eq!(asked.expect("a follow-up")["status"], "NEW", "{tasks}");
    let said = queue.run(&[]);
    said.assert_names(&["its scope is empty"]);
    queue.ground.assert_compliant();
    queue.assert_nothing_left();
}

#[test]
fn work_from_outside_that_is_not_done_goes_back_once_for_each_report() {
    let queue = queue();
    queue.ground.profile("strict", &["test -e src/hers"]);
    queue.ground.commit_all();
    let id = queue
        .ground
        .task("Hers", &["--assignee", "ann", "--dod-profile", "strict", "--must-touch", "src/**"]);
    report(&queue, &id, "READY_FOR_REVIEW", "Did it.");
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.ground.status(&id), "IN_PROGRESS");
    let task = queue.ground.read(&queue.ground.file(&id));
    assert!(task.contains("`test -e src/hers` ended with exit code 1"), "{task}");
    // The same report is not looked at again.
    let said = queue.run(&[]);
    said.assert_names(&["its report is waited for"]);
    assert!(!queue.records(&id, 2).exists());
    queue.ground.write("src/hers", "there\n");
    queue.ground.commit_all();
    report(&queue, &id, "READY_FOR_REVIEW", "Now.");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.ground.status(&id), "DONE");
    queue.ground.assert_compliant();
    queue.assert_nothing_left();
}

#[test]
fn a_report_that_says_blocked_is_believed() {
    let queue = queue();
    let id = queue.task("ann", &[]);
    report(&queue, &id, "BLOCKED", "I have no access.");
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.ground.status(&id), "BLOCKED");
    let task = queue.ground.read(&queue.ground.file(&id));
    assert!(task.contains("I have no access."), "{task}");
    queue.ground.ok(&["retry", &id]);
    let said = queue.run(&[]);
    said.assert_names(&["its report is waited for"]);
    assert_eq!(queue.ground.status(&id), "ASSIGNED");
}

/// What lies about is no report: only the task's own builder hands work in, and not before its turn.
#[test]
fn a_report_that_lies_about_closes_nothing() {
    let queue = queue();
    let first = queue.task("ann", &[]);
    let second = queue.task("ann", &["--depends-on", &first]);
    let (inside, stray) = (queue.task("shell", &[]), queue.task("ann", &[]));
    report(&queue, &second, "READY_FOR_REVIEW", "Before its turn.");
    let zed =
        "---\nid: {}\nstatus: READY_FOR_REVIEW\ncompleted_at: 2026-01-31T16:45:00Z\nfiles_changed: []\n---\n";
    for id in [&inside, &stray] {
        queue.ground.write(&format!(".kodingx/outbox/zed/2020-01-01/{id}-report.md"), zed.replace("{}", id));
    }
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.ground.status(&first), "NEW");
    assert_eq!(queue.ground.status(&second), "NEW", "{said:?}");
    assert_eq!(queue.ground.status(&stray), "NEW", "{said:?}");
    assert!(
        queue.records(&inside, 1).join("agent/outcome.json").exists(),
        "its own builder does it: {said:?}"
    );
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [inside]);
}

/// One who hands in again has made another try, whatever is seen of it.
#[test]
fn who_hands_in_again_is_looked_at_again() {
    let mut queue = queue();
    queue.settings("attempts = 5");
    queue.ground.profile("strict", &["test -e src/hers"]);
    queue.ground.commit_all();
    let id = queue.ground.task("Hers", &["--assignee", "ann", "--dod-profile", "strict"]);
    for attempt in 1..=3 {
        report(&queue, &id, "READY_FOR_REVIEW", &format!("Try {attempt}."));
        assert_eq!(queue.run(&[]).code, 10);
        assert!(queue.records(&id, attempt).exists());
        assert_eq!(queue.ground.status(&id), "IN_PROGRESS", "attempt {attempt}");
    }
}

/// What was verified and kept is not on the branch, and its task is not done.
#[test]
fn kept_work_is_not_taken_for_landed_work() {
    let queue = queue();
    let id = queue.task("shell", &[]);
    assert_eq!(queue.run(&["--land", "none"]).code, 0);
    assert_eq!(queue.ground.status(&id), "READY_FOR_REVIEW");
    std::fs::remove_dir_all(queue.state()).expect("removed");
    queue.ground.ok(&["adopt", "--yes"]);
    let said = queue.run(&[]);
    assert_eq!(queue.ground.status(&id), "READY_FOR_REVIEW", "{said:?}");
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["its work is reported and did not land"]);
    assert!(queue.landed().is_empty());
}
