//! What agents wrote is read by their shims: a supervisor sees values, and no text.

use std::fs;

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};
use serde_json::{Value, json};

use crate::gate;

const REPORT: &str = "---\ntask_id: T0001\nagent: shell\nstatus: READY_FOR_REVIEW\nstarted_at: 2026-01-31T16:45:00Z\n\
    finished_at: 2026-01-31T16:45:00Z\nchanges: {files_modified: []}\ncommands_run: []\n\
    verification: {dod_passed: true}\nrisks: []\n---\nThe words\nof the agent.\n";

/// An attempt whose agent has ended while nobody was there, and its outcome, changed before anybody looks at it.
fn ended_alone(change: impl FnOnce(&mut Value)) -> (Queue, String) {
    let queue = gate::queue(&format!("{HONEST}; cat > $AGENCY_REPORT_FILE <<'END'\n{REPORT}END\n"));
    let id = queue.tasks(1).remove(0);
    let supervisor = queue.start(&[]);
    gate::begun(&queue, &id, 1);
    supervisor.kill();
    gate::open(&queue);
    let file = queue.records(&id, 1).join("agent/outcome.json");
    assert!(wait_until(LONG, || file.exists()), "no outcome");
    let mut outcome: Value = serde_json::from_slice(&fs::read(&file).expect("read")).expect("JSON");
    let done = &mut outcome["done"];
    assert_eq!(done["claim"]["claim"], "report", "{done}");
    assert_eq!(done["claim"]["words"], "The words\nof the agent.", "{done}");
    assert_eq!(done.get("report"), None, "the text itself is not kept");
    change(done);
    fs::write(&file, serde_json::to_vec(&outcome).expect("JSON")).expect("written");
    (queue, id)
}

#[test]
fn what_a_shim_has_read_is_used_and_no_text() {
    let (queue, id) = ended_alone(|done| {
        done["claim"]["blocked"] = json!("the claim says so");
        done["report"] = json!(REPORT);
    });
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["blocked: the claim says so"]);
    assert_eq!(queue.ground.status(&id), "BLOCKED");
}

/// A shim of an earlier version wrote down the text.
#[test]
fn what_an_older_shim_left_as_text_is_read_as_the_shim_would_have() {
    let (queue, id) = ended_alone(|done| {
        done.as_object_mut().expect("an object").remove("claim");
        done["report"] = json!(REPORT.replace("READY_FOR_REVIEW", "BLOCKED"));
    });
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["blocked: The words of the agent."]);
    assert_eq!(queue.ground.status(&id), "BLOCKED");
}

#[test]
fn a_claim_that_could_not_be_read_is_said_so_and_its_words_are_kept() {
    let (queue, id) = ended_alone(|done| {
        done["claim"] =
            json!({"claim": "report", "words": "Some words.", "unread": "reading it took longer than 10s"});
    });
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    let report = queue.ground.ok(&["report", &id]).out;
    assert!(report.contains("could not be understood (reading it took longer than 10s)"), "{report}");
    assert!(report.contains("Some words."), "{report}");
}
