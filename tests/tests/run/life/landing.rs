//! Where work goes, and what is kept of how it came to be.

use std::fs;

use agency_tests::queue::Queue;
use serde_json::Value as Json;

use crate::gate;

fn trailer(queue: &Queue, at: &str, key: &str) -> String {
    let format = format!("--format=%(trailers:key={key},valueonly)");
    queue.ground.git(&["log", "-1", &format, at]).trim().to_owned()
}

/// The artifact of a task.
fn artifact(queue: &Queue, id: &str) -> Json {
    let files = queue.ground.files(".kodingx/verify");
    let of_task: Vec<&String> =
        files.iter().filter(|file| file.contains(id) && file.ends_with(".verify.json")).collect();
    assert_eq!(of_task.len(), 1, "{files:?}");
    queue.ground.json(of_task[0])
}

/// Whether a text is somewhere in a document, as a value.
fn holds(document: &Json, text: &str) -> bool {
    match document {
        Json::String(value) => value == text,
        Json::Array(values) => values.iter().any(|value| holds(value, text)),
        Json::Object(fields) => fields.values().any(|value| holds(value, text)),
        _ => false,
    }
}

#[test]
fn a_commit_names_its_task_its_attempt_and_its_proof() {
    let queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 0);
    assert_eq!(trailer(&queue, "main", "Agency-Task"), id);
    assert_eq!(trailer(&queue, "main", "Agency-Attempt"), "1");
    let verify = trailer(&queue, "main", "Agency-Verify");
    assert!(!verify.is_empty());
    let artifact = artifact(&queue, &id);
    assert_eq!(artifact["result"], "pass", "{artifact}");
    assert!(holds(&artifact, &verify), "{verify} is not in {artifact}");
    // It was proved exactly as it landed.
    let tree = queue.ground.git(&["rev-parse", "main^{tree}"]).trim().to_owned();
    assert!(holds(&artifact, &tree), "{tree} is not in {artifact}");
    let who = queue.ground.git(&["log", "-1", "--format=%an|%s|%ce", "main"]);
    assert_eq!(who.trim(), "shell|A task|ada@example.org");
}

#[test]
fn records_of_an_attempt_are_kept() {
    let queue = Queue::with_agent("echo at work; echo in trouble >&2; echo by > src/work");
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 0);
    let agent = queue.records(&id, 1).join("agent");
    let text =
        |name: &str| fs::read_to_string(agent.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(text("output.log"), "at work\nin trouble\n");
    let patch = text("work.patch");
    assert!(patch.contains("+by") && patch.contains("src/work"), "{patch}");
    let outcome: Json = serde_json::from_str(&text("outcome.json")).expect("a document");
    assert_eq!(outcome["version"], 1);
    let (started, ended) = (outcome["started_at"].as_i64(), outcome["ended_at"].as_i64());
    assert!(started.is_some() && started <= ended, "{outcome}");
    assert!(outcome["done"]["elapsed_ms"].as_u64().is_some(), "{outcome}");
    assert_eq!(outcome["done"]["changed"], serde_json::json!(["src/work"]));
    let attestation = &outcome["done"]["attestation"];
    assert!(attestation.as_object().is_some_and(|fields| !fields.is_empty()), "{attestation}");
    let order: Json = serde_json::from_str(&text("order.json")).expect("a document");
    assert_eq!((&order["version"], &order["task"]["id"]), (&Json::from(1), &Json::from(id.as_str())));
    // The proof has its own.
    let proof = queue.records(&id, 1).join("verify-1").join("outcome.json");
    let proof: Json = serde_json::from_slice(&fs::read(proof).expect("read")).expect("a document");
    assert_eq!(proof["done"]["evidence"]["passed"], true, "{proof}");
    // They are the state's, not the work tree's.
    assert_eq!(queue.ground.git(&["status", "--porcelain", "--untracked-files=all", "src"]), "");
}

#[test]
fn work_can_land_on_a_branch_of_its_own() {
    let queue = Queue::new();
    let tasks = queue.tasks(2);
    let before = queue.ground.git(&["rev-parse", "main"]);
    let said = queue.run(&["--land", "branch", "--parallel", "2"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
    for id in &tasks {
        let branch = format!("agency/{id}");
        assert_eq!(queue.ground.git(&["rev-parse", &format!("{branch}^")]), before);
        assert_eq!(queue.ground.git(&["show", &format!("{branch}:src/{id}")]), format!("by {id}\n"));
        assert_eq!(&trailer(&queue, &branch, "Agency-Task"), id);
        assert!(!queue.ground.exists(&format!("src/{id}")), "the work tree is on main");
        assert_eq!(queue.ground.status(id), "DONE");
    }
    queue.assert_nothing_left();
}

#[test]
fn work_that_is_not_to_land_is_verified_and_kept() {
    let queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    let before = queue.ground.git(&["rev-parse", "main"]);
    let said = queue.run(&["--land", "none"]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["verified and kept"]);
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
    assert_eq!(queue.ground.git(&["branch", "--format=%(refname:short)"]).trim(), "main");
    let kept =
        queue.ground.git(&["for-each-ref", "--format=%(refname)", &format!("refs/agency/kodingx/{id}")]);
    let kept: Vec<&str> = kept.lines().collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(queue.ground.git(&["show", &format!("{}:src/{id}", kept[0])]), format!("by {id}\n"));
    assert_eq!(artifact(&queue, &id)["result"], "pass");
    // A person decides from here.
    assert_eq!(queue.ground.status(&id), "READY_FOR_REVIEW");
    queue.assert_nothing_left();
}

/// The work tree of whoever runs it follows the branch, with nothing left to commit.
#[test]
fn the_work_tree_follows_the_branch() {
    let queue = Queue::with_agent("echo four >> src/a.txt; chmod +x src/a.txt; rm -f src/b; echo by > src/c");
    queue.ground.write("src/b", "gone soon\n");
    queue.ground.commit_all();
    assert_eq!((queue.tasks(1).len(), queue.run(&[]).code), (1, 0));
    assert_eq!(queue.ground.git(&["status", "--porcelain", "src"]), "");
    assert_eq!(queue.ground.read("src/a.txt"), "one\ntwo\nthree\nfour\n");
    assert!(!queue.ground.exists("src/b") && queue.ground.exists("src/c"));
    assert!(queue.ground.git(&["ls-files", "--stage", "src/a.txt"]).starts_with("100755"));
}

/// Agents that come to the very same have all done what they should, and it is on the branch once.
#[test]
fn the_same_work_of_several_lands_once_and_all_of_them_are_done() {
    let queue = gate::queue("mkdir -p src && echo same > src/same");
    let tasks = queue.tasks(4);
    let run = queue.start(&["--parallel", "4"]);
    tasks.iter().for_each(|id| gate::begun(&queue, id, 1));
    gate::open(&queue);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    for id in &tasks {
        assert_eq!(queue.ground.status(id), "DONE", "{id}: {said:?}");
    }
    let commits = queue.ground.git(&["log", "--format=%H", "main", "--", "src/same"]);
    assert_eq!(commits.lines().count(), 1, "{commits}");
    queue.assert_nothing_left();
}
