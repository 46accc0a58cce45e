//! §9 and §10: evidence as files, and where an entry came from.

use crate::site::{Site, ready};

#[test]
fn s09_evidence_goes_to_the_folder_of_its_task_and_pictures_stay_as_they_are() {
    let site = Site::with_rules(r#"{"file_scope": {"include": ["src/**"]}}"#, &ready("A-1"));
    site.ground.write("assets/A-1/old.png", "as it was");
    site.agent("mkdir -p assets/A-1 && echo new > assets/A-1/new.png && echo x > src/x");
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(site.ground.read("assets/A-1/new.png"), "new\n");
    let other = Site::with_rules(r#"{"file_scope": {"include": ["src/**"]}}"#, &ready("A-1"));
    other.ground.write("assets/A-1/old.png", "as it was");
    other.agent("echo forged > assets/A-1/old.png; echo x > src/x");
    let said = other.ground.agency(&["run"]);
    assert_eq!(said.code, 20, "{said:?}");
    assert_eq!(other.ground.read("assets/A-1/old.png"), "as it was");
    assert!(!other.ground.exists("src/x"), "nothing of it lands");
}

#[test]
fn s09_a_proof_is_kept_as_evidence_with_a_note() {
    let site = Site::new(&ready("A-1"));
    let said = site.ground.ok(&["verify", "--task", "A-1", "--json"]).json();
    let artifact = said["artifact"].as_str().expect("a path").to_owned();
    assert!(artifact.starts_with("assets/A-1/verify-"), "{artifact}");
    let document = site.ground.json(&artifact);
    assert_eq!((document["task_id"].as_str(), document["result"].as_str()), (Some("A-1"), Some("pass")));
    let task = site.task("A-1");
    assert_eq!(task["artifacts"][0]["type"].as_str(), Some("verification"));
    assert!(task["execution_notes"][0]["note"].as_str().expect("a note").contains(&artifact));
    assert_eq!(task["state"].as_str(), Some("todo"), "it moves nothing");
    assert_eq!(site.log()[0], "A-1: verified, pass");
    site.ground.write("Makefile", "check:\n\tfalse\n");
    let said = site.ground.agency(&["verify", "--task", "A-1"]);
    assert_eq!(said.code, 10, "{said:?}");
    for flag in [&["--override", "--reason", "x", "--followup", "y"][..], &["--check-risks"]] {
        let words = [&["verify", "--task", "A-1"], flag].concat();
        site.ground.refused(2, &words).assert_names(&["the protocol `codifica` has no `verify"]);
    }
}

#[test]
fn s10_entries_say_which_session_and_which_commit_they_came_from() {
    let site = Site::new(&ready("A-1"));
    site.agent("echo x > src/x");
    assert_eq!(site.ground.agency(&["run"]).code, 0);
    let task = site.task("A-1");
    let sessions: Vec<&str> = ["execution_notes", "state_transitions"]
        .iter()
        .flat_map(|list| task[*list].as_sequence().expect("a list"))
        .map(|entry| entry["provenance"]["session_id"].as_str().expect("a session"))
        .collect();
    assert_eq!(sessions.len(), 6);
    assert!(sessions.iter().all(|one| *one == sessions[0] && one.ends_with("/A-1.1")), "{sessions:?}");
    let landed = site.ground.git(&["log", "--format=%H", "--grep=Agency-Task: A-1"]).trim().to_owned();
    let last = task["state_transitions"].as_sequence().and_then(|all| all.last()).expect("a move");
    assert_eq!(last["provenance"]["commit_sha"].as_str(), Some(landed.as_str()));
}
