//! The morning after a run: what landed, what failed and what needs a person; one task on one page; what it changed;
//! and taking it back.

use std::time::Duration;

use agency_tests::ground::Said;
use agency_tests::processes::wait_until;
use agency_tests::queue::{LONG, Queue};
use serde_json::Value as Json;

/// A queue after a run in which one task landed, one failed, one left its scope, and one waits for another.
fn after_a_night() -> (Queue, Vec<String>) {
    let script = "case $AGENCY_TASK_ID in T0002) echo no such luck >&2; exit 3;; T0003) echo x > src/deep/b.txt;; \
                  *) echo four >> src/a.txt;; esac";
    let mut queue = Queue::with_agent(script);
    queue.settings("attempts = 1");
    queue.ground.write("src/deep/b.txt", "b\n");
    queue.ground.commit_all();
    let mut tasks = queue.tasks(2);
    let narrow = ["--must-touch", "src/deep/a.txt", "--assignee", "shell", "--dod-profile", "quick"];
    let narrow = queue.ground.ok(&[&["task", "new", "--title", "A task"], &narrow[..]].concat());
    tasks.push(narrow.out.trim().to_owned());
    tasks.push(queue.task("shell", &["--depends-on", &tasks[1]]));
    let said = queue.run(&[]);
    assert_eq!(said.code, 20, "{said:?}");
    (queue, tasks)
}

fn ids(list: &Json) -> Vec<&str> {
    list.as_array().expect("a list").iter().filter_map(|one| one["task"].as_str()).collect()
}

#[test]
fn a_summary_says_what_landed_what_failed_and_what_needs_a_person_with_the_command_that_helps() {
    let (queue, tasks) = after_a_night();
    let answer = queue.ground.ok(&["summary", "--json"]).json();
    assert_eq!(answer["version"], 1);
    assert_eq!(ids(&answer["landed"]), [&tasks[0]]);
    assert_eq!(ids(&answer["failed"]), [&tasks[1], &tasks[2]]);
    assert_eq!(ids(&answer["needs_you"]), [&tasks[1], &tasks[2]]);
    assert_eq!(ids(&answer["waiting"]), [&tasks[3]]);
    assert_eq!(answer["totals"]["attempts"], 3);
    assert_eq!(answer["agents"]["shell"]["attempts"], 3);
    assert_eq!(answer["landed"][0]["last"]["files"], serde_json::json!(["src/a.txt"]));
    let text = queue.ground.ok(&["summary", "--since", "8h"]).out;
    for words in [
        "landed (1)".to_owned(),
        "1 file, 1 of 1 checks".to_owned(),
        "it ended with exit code 3".to_owned(),
        "change refused: src/deep/b.txt".to_owned(),
        format!("agency retry {}", tasks[1]),
        "3 attempts: ".to_owned(),
    ] {
        assert!(text.contains(&words), "{words:?} in {text}");
    }
    // The command that it names works, and then there is nothing to do about it any more.
    queue.ground.ok(&["retry", &tasks[1]]);
    let after = queue.ground.ok(&["summary", "--json"]).json();
    assert_eq!(ids(&after["needs_you"]), [&tasks[2]]);
    // What is long ago is left out.
    let recent = || queue.ground.ok(&["summary", "--since", "1s", "--json"]).json();
    assert!(wait_until(LONG, || recent()["totals"]["attempts"] == 0), "{}", recent());
    assert_eq!(ids(&recent()["landed"]), Vec::<&str>::new());
}

/// Whatever else becomes of a task: each has its place, and the command that helps.
#[test]
fn every_other_end_has_its_place_in_a_summary_too() {
    let report = |status: &str| {
        format!(
            "printf -- '---\\ntask_id: %s\\nagent: shell\\nstatus: {status}\\nsummary: It is hard\\n---\\n\\nIt is hard.\\n' \
             $AGENCY_TASK_ID > $AGENCY_REPORT_FILE"
        )
    };
    let script = format!(
        "case $AGENCY_TASK_ID in T0001) {} ;; T0002) echo nobody is logged in; exit 1;; *) echo four >> src/a.txt;; esac",
        report("BLOCKED")
    );
    let mut queue = Queue::with_agent(&script);
    queue.settings("attempts = 1");
    queue.tables("[agents.shell.signals.login]\npattern = 'nobody is logged in'\nmeans = \"unfit\"\n");
    let blocked = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 10);
    let parked = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&["--task", &parked]).code, 10);
    queue.auditor(&crate::audit::says("NEEDS_REVIEW", "is this meant?"));
    let undecided = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&["--task", &undecided]).code, 10);
    let canceled = queue.tasks(1).remove(0);
    queue.ground.ok(&["task", "move", &canceled, "CANCELED"]);
    let answer = queue.ground.ok(&["summary", "--json"]).json();
    assert_eq!(ids(&answer["needs_you"]), [&blocked, &parked, &undecided]);
    let command = |at: usize| answer["needs_you"][at]["command"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (command(0), command(1)),
        (format!("agency retry {blocked}"), format!("agency retry {parked}"))
    );
    assert_eq!(command(2), format!("agency decide {undecided} --attempt 1 --answer pass|fail --reason TEXT"));
    assert!(answer["needs_you"][1]["why"].as_str().is_some_and(|why| why.contains("nobody is logged in")));
    for id in [&blocked, &parked, &undecided, &canceled] {
        assert_eq!(queue.ground.ok(&["show", id, "--json"]).json()["task"]["id"], id.as_str());
        assert!(!queue.ground.ok(&["show", id]).out.is_empty());
    }
    // What a person decides is not asked again.
    queue.decide(&undecided, "1", "pass", "It is meant so");
    let after = queue.ground.ok(&["summary", "--json"]).json();
    assert_eq!(ids(&after["needs_you"]), [&blocked, &parked]);
}

#[test]
fn a_summary_of_a_board_on_which_nothing_ran_is_short() {
    let queue = Queue::new();
    queue.tasks(1);
    let said = queue.ground.ok(&["summary"]);
    assert!(said.out.contains("no attempt was made"), "{said:?}");
}

#[test]
fn a_task_is_shown_on_one_page() {
    let mut queue = Queue::with_agent("echo four >> src/a.txt");
    queue.auditor(crate::audit::PASS);
    let id = queue.tasks(1).remove(0);
    let untouched = queue.task("judge", &[]);
    let said = queue.run(&["--task", &id]);
    assert_eq!(said.code, 0, "{said:?}");
    let answer = queue.ground.ok(&["show", &id, "--json"]).json();
    let attempt = &answer["attempts"][0];
    assert_eq!((&attempt["outcome"], &attempt["files"][0]), (&"done".into(), &"src/a.txt".into()));
    assert_eq!(attempt["checks"][0]["command"], "true");
    assert_eq!(attempt["audits"][0]["verdict"]["ruling"], "PASS");
    let phases: Vec<&str> = answer["timeline"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["what"].as_str())
        .collect();
    assert!(phases.starts_with(&["claimed", "started", "ended", "auditing"]), "{phases:?}");
    let page = queue.ground.ok(&["show", &id]).out;
    for words in [
        "done, ",
        "changed: src/a.txt",
        "check `true`: passed",
        "audit by judge: PASS",
        "sandbox `process`: ",
    ] {
        assert!(page.contains(words), "{words:?} in {page}");
    }
    assert!(queue.ground.ok(&["show", &untouched]).out.contains("no attempt was made yet"));
    queue.ground.refused(4, &["show", "T0099"]);
}

#[test]
fn a_diff_is_what_landed_or_the_work_of_an_attempt() {
    let (queue, tasks) = after_a_night();
    let landed = queue.ground.ok(&["diff", &tasks[0]]);
    assert!(landed.out.contains("+four") && landed.err.contains("landed as"), "{landed:?}");
    assert!(!landed.out.contains('\u{1b}'), "no colour in a pipe");
    let answer = queue.ground.ok(&["diff", &tasks[0], "--json"]).json();
    let head = queue.ground.git(&["rev-parse", "main"]).trim().to_owned();
    assert_eq!((answer["landed"].as_bool(), answer["commit"].as_str()), (Some(true), Some(head.as_str())));
    queue.ground.refused(4, &["diff", &tasks[3]]).assert_names(&["there is no work"]);
    queue.ground.refused(4, &["diff", &tasks[0], "--attempt", "9"]).assert_names(&["of attempt 9"]);
    // Work that was kept and did not land.
    let kept = queue.task("shell", &[]);
    let said = queue.run(&["--task", &kept, "--land", "none"]);
    assert_eq!(said.code, 0, "{said:?}");
    let diff = queue.ground.ok(&["diff", &kept]);
    assert!(diff.out.contains("+four") && diff.err.contains("is not on the branch"), "{diff:?}");
}

/// Whatever a file is written in, its patch is one that git takes.
#[test]
fn a_diff_in_a_pipe_has_the_bytes_of_the_files() {
    let queue = Queue::with_agent("printf 'caf\\351\\n' > src/latin");
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 0);
    let patch = queue.ground.command(&["diff", &id]).output().expect("ended").stdout;
    assert!(patch.windows(5).any(|bytes| bytes == b"+caf\xe9"), "{}", String::from_utf8_lossy(&patch));
}

/// A task that landed, with another one on top.
fn landed() -> (Queue, String) {
    let queue = Queue::with_agent("echo by > src/$AGENCY_TASK_ID");
    let tasks = queue.tasks(2);
    let said = queue.run(&["--parallel", "1"]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    (queue, tasks[0].clone())
}

fn undo(queue: &Queue, id: &str, more: &[&str]) -> Said {
    let words = ["undo", id, "--reason", "it was right before", "--as", "human:ann"];
    queue.ground.agency(&[&words[..], more].concat())
}

#[track_caller]
fn assert_undone(queue: &Queue, id: &str) {
    assert!(!queue.ground.exists(&format!("src/{id}")), "the file is still there");
    let log = queue.ground.git(&["log", "--format=%B", "main"]);
    assert_eq!(log.matches("Agency-Undo: ").count(), 1, "{log}");
    assert_eq!(queue.ground.status(id), "ASSIGNED");
    assert!(queue.ground.read(&queue.ground.file(id)).contains("it was right before"));
    assert_eq!(queue.ground.git(&["status", "--porcelain", "--", "src"]), "");
    queue.ground.assert_compliant();
}

#[test]
fn undone_work_is_reverted_and_its_task_is_open_again_and_lands_anew() {
    let (queue, id) = landed();
    let said = undo(&queue, &id, &["--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    let head = queue.ground.git(&["rev-parse", "main"]).trim().to_owned();
    assert_eq!(said.json()["commit"], head.as_str());
    assert_undone(&queue, &id);
    let answer = queue.ground.ok(&["summary", "--json"]).json();
    assert!(!ids(&answer["landed"]).contains(&id.as_str()), "{answer}");
    queue.ground.ok(&["report", &id]).assert_names(&["is ASSIGNED: it had landed on main"]);
    // A second undo finds the first one.
    assert_eq!(undo(&queue, &id, &[]).code, 0);
    assert_undone(&queue, &id);
    assert_eq!(queue.run(&[]).code, 0);
    assert!(queue.ground.exists(&format!("src/{id}")));
    assert_eq!(queue.ground.status(&id), "DONE");
    // What landed anew can be taken back anew.
    assert_eq!(undo(&queue, &id, &[]).code, 0);
    assert!(!queue.ground.exists(&format!("src/{id}")));
    queue.assert_nothing_left();
}

#[test]
fn an_undo_that_cannot_be_changes_nothing_and_says_why() {
    let (queue, id) = landed();
    let before = queue.ground.git(&["rev-parse", "main"]);
    let refused = |said: Said, code: i32, words: &[&str]| {
        assert_eq!(said.code, code, "{said:?}");
        said.assert_names(words);
        assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
        assert_eq!(queue.ground.status(&id), "DONE");
    };
    refused(queue.ground.agency(&["undo", &id, "--reason", "x"]), 2, &["needs a human", "--as human"]);
    refused(
        queue.ground.agency(&["undo", &id, "--reason", "x", "--as", "agent:shell"]),
        2,
        &["needs a human"],
    );
    refused(undo(&queue, "T0099", &[]), 4, &["T0099"]);
    let file = format!("src/{id}");
    queue.ground.write(&file, "mine\n");
    refused(undo(&queue, &id, &[]), 10, &[&file, "has been edited", "nothing has changed"]);
    assert_eq!(queue.ground.read(&file), "mine\n", "a person's edit stays");
    queue.ground.git(&["checkout", "--", &file]);
    // Checks that need the work.
    queue.ground.profile("quick", &[&format!("test -e {file}")]);
    refused(undo(&queue, &id, &[]), 10, &["without it, checks fail", "exit code 1"]);
    queue.ground.profile("quick", &["true"]);
    // Later work on the same lines.
    queue.ground.write(&file, "by another\n");
    queue.ground.git(&["commit", "--quiet", "--all", "--message", "Later"]);
    let said = undo(&queue, &id, &[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["later work changed the same lines", &file, "git revert"]);
    let fresh = queue.task("shell", &[]);
    assert_eq!(undo(&queue, &fresh, &[]).code, 4);
}

/// Killed at any moment, the next one finishes it, once.
#[test]
fn an_undo_that_is_killed_is_finished_by_the_next_one() {
    let (queue, id) = landed();
    let words = ["undo", &id, "--reason", "it was right before", "--as", "human:ann"];
    let mut killed = 0;
    for millis in (0..).map(|step: u64| step * 7) {
        let mut command = queue.ground.command(&words);
        command.stdin(std::process::Stdio::null());
        let mut child = command.spawn().expect("starts");
        let end = std::time::Instant::now() + Duration::from_millis(millis);
        let ended = loop {
            match child.try_wait().expect("asked") {
                Some(status) => break Some(status),
                None if std::time::Instant::now() >= end => break None,
                None => std::thread::yield_now(),
            }
        };
        let Some(status) = ended else {
            killed += 1;
            child.kill().expect("killed");
            child.wait().expect("ended");
            continue;
        };
        assert!(status.success(), "{status}");
        break;
    }
    assert!(killed > 5, "it was killed {killed} times");
    assert_undone(&queue, &id);
    queue.assert_nothing_at_work();
}

/// A person who reverts the undo has the work back, and may take it back once more.
#[test]
fn an_undo_that_a_person_reverted_is_no_undo_any_more() {
    let (queue, id) = landed();
    assert_eq!(undo(&queue, &id, &[]).code, 0);
    queue.ground.git(&["revert", "--no-edit", "HEAD"]);
    assert!(queue.ground.exists(&format!("src/{id}")));
    let said = undo(&queue, &id, &[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!queue.ground.exists(&format!("src/{id}")), "{said:?}");
    let head = queue.ground.git(&["rev-parse", "main"]);
    assert_eq!(undo(&queue, &id, &[]).code, 0);
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), head, "once is enough");
}

/// Work on a branch of its own is taken back where it is: on that branch, and after a merge where that brought it.
#[test]
fn work_on_a_branch_of_its_own_is_taken_back_where_it_is() {
    let queue = Queue::with_agent("echo by > src/$AGENCY_TASK_ID");
    let (merged, alone) = (queue.task("shell", &[]), queue.task("shell", &[]));
    assert_eq!(queue.run(&["--land", "branch", "--parallel", "1"]).code, 0);
    let merge = |id: &str| queue.ground.git(&["merge", "--quiet", "--no-edit", &format!("agency/{id}")]);
    merge(&merged);
    let main = queue.ground.git(&["rev-parse", "main"]);
    let said = undo(&queue, &alone, &[]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&[&format!("back on agency/{alone}")]);
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), main);
    let said = undo(&queue, &merged, &[]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["back on main"]);
    assert!(!queue.ground.exists(&format!("src/{merged}")));
    // The next work comes to main by a merge again, although it is the same.
    let said = queue.run(&["--land", "branch", "--parallel", "1"]);
    assert_eq!(said.code, 0, "{said:?}");
    for id in [&merged, &alone] {
        merge(id);
        assert!(queue.ground.exists(&format!("src/{id}")), "{id}");
    }
    // Also where the branch is gone.
    queue.ground.git(&["branch", "--quiet", "-D", &format!("agency/{merged}")]);
    let said = undo(&queue, &merged, &[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!queue.ground.exists(&format!("src/{merged}")));
}
