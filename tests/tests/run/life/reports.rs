//! An agent's report is a claim: it is kept, corrected by what was seen.

use agency_tests::ground::header;
use agency_tests::queue::{HONEST, Queue};
use serde_yaml::Value as Yaml;

/// A script that writes a report with this status and these words, after some work.
fn reporting(work: &str, status: &str, words: &str) -> String {
    format!(
        "{work}\ncat > \"$AGENCY_REPORT_FILE\" <<'END'\n---\ntask_id: T9999\nagent: mallory\nstatus: {status}\n\
         started_at: 2001-01-01T00:00:00Z\nfinished_at: 2001-01-01T00:00:01Z\nchanges:\n  files_modified:\n    \
         - src/never\ncommands_run:\n  - make all\nverification:\n  dod_passed: true\nrisks: []\n---\n\n\
         ## Summary\n{words}\nEND\n"
    )
}

/// The one report in the outbox of an agent, with its header.
fn report(queue: &Queue, id: &str) -> (Yaml, String) {
    let files = queue.ground.files(".kodingx/outbox");
    let reports: Vec<&String> = files.iter().filter(|file| file.ends_with("-report.md")).collect();
    assert_eq!(reports.len(), 1, "{files:?}");
    assert!(reports[0].starts_with(".kodingx/outbox/shell/") && reports[0].contains(id), "{reports:?}");
    let text = queue.ground.read(reports[0]);
    (header(&text).expect("a header"), text)
}

fn texts(value: &Yaml) -> Vec<&str> {
    value.as_sequence().expect("a list").iter().filter_map(Yaml::as_str).collect()
}

#[test]
fn a_report_is_kept_corrected_by_what_was_seen() {
    let queue = Queue::with_agent(&reporting(HONEST, "READY_FOR_REVIEW", "It was all quite easy."));
    let tasks = queue.tasks(1);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    let (header, text) = report(&queue, &tasks[0]);
    assert_eq!(header["task_id"], tasks[0].as_str());
    assert_eq!(header["agent"], "shell");
    assert_eq!(texts(&header["changes"]["files_modified"]), [format!("src/{}", tasks[0])]);
    assert!(header["started_at"].as_str().is_some_and(|at| !at.starts_with("2001")), "{text}");
    // What can't be seen is the agent's word, and stays.
    assert_eq!(texts(&header["commands_run"]), ["make all"]);
    for words in ["quite easy", "about T9999", "by mallory", "did not change: src/never", "exit code 0"] {
        assert!(text.contains(words), "no {words:?}: {text}");
    }
}

#[test]
fn a_report_that_nobody_wrote_is_made_from_what_was_seen() {
    let queue = Queue::new();
    let tasks = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    let (header, text) = report(&queue, &tasks[0]);
    assert_eq!(header["task_id"], tasks[0].as_str());
    assert_eq!(header["status"], "READY_FOR_REVIEW");
    assert_eq!(texts(&header["changes"]["files_modified"]), [format!("src/{}", tasks[0])]);
    assert_eq!(header["verification"]["dod_passed"], true, "it was verified before it landed");
    assert!(text.contains("wrote no report"), "{text}");
    queue.ground.assert_compliant();
}

/// A link would have whoever reads it read something of the host's.
#[test]
fn a_report_that_is_a_link_is_no_report() {
    let queue = Queue::with_agent(&format!("{HONEST}; ln -s /etc/passwd \"$AGENCY_REPORT_FILE\""));
    let tasks = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 0);
    let (_, text) = report(&queue, &tasks[0]);
    assert!(text.contains("wrote no report") && !text.contains("root:"), "{text}");
}

#[test]
fn an_agent_that_says_it_is_blocked_is_believed_and_nothing_of_it_lands() {
    let script = reporting(HONEST, "BLOCKED", "The scope does not\nhold the parser.\n\nMore on that.");
    let queue = Queue::with_agent(&script);
    let id = queue.tasks(1).remove(0);
    let before = queue.ground.git(&["rev-parse", "main"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&id, "blocked: The scope does not hold the parser."]);
    assert_eq!(queue.ground.status(&id), "BLOCKED");
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
    assert!(!queue.ground.exists(&format!("src/{id}")));
    let task = queue.ground.read(&queue.ground.file(&id));
    assert!(task.contains("The scope does not hold the parser."), "{task}");
    assert_eq!(report(&queue, &id).0["status"], "BLOCKED");
    // It is a person's turn: another run does not try again by itself.
    assert!(!queue.records(&id, 2).exists());
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert!(!queue.records(&id, 2).exists());
    queue.ground.assert_compliant();
    queue.assert_nothing_left();
}

/// Whoever reads a report after its work landed is told so, by the file and by `agency report`.
#[test]
fn a_report_tells_what_became_of_its_work() {
    let queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 0);
    let (header, text) = report(&queue, &id);
    let document = queue.ground.ok(&["report", &id, "--json"]).json();
    let outcome = &document["outcome"];
    assert_eq!((outcome["state"].as_str(), outcome["branch"].as_str()), (Some("DONE"), Some("main")));
    assert_eq!(outcome["files"], serde_json::json!([format!("src/{id}")]));
    assert_eq!(outcome["verification"]["result"], "pass");
    let commit = outcome["commit"].as_str().expect("a commit");
    assert_eq!(header["landed"].as_str(), Some(commit), "{text}");
    assert_eq!(document["report"]["landed"], commit);
    assert_eq!(queue.ground.git(&["rev-parse", "main"]).trim(), commit);
    let said = queue.ground.ok(&["report", &id]);
    assert_eq!(said.out, text);
    said.assert_names(&[
        &format!("{id} is DONE: landed on main as {}", &commit[..12]),
        "verified pass",
        "src/",
    ]);
    queue.ground.assert_compliant();
}
