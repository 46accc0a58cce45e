//! §9: the states of a task, and who moves it from one to another.

use crate::ground::Ground;

const STATES: [&str; 7] =
    ["NEW", "ASSIGNED", "IN_PROGRESS", "BLOCKED", "READY_FOR_REVIEW", "DONE", "CANCELED"];

#[test]
fn s09_1_the_seven_states_are_known_and_no_other() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    for state in STATES {
        ground.set_status(&id, state);
        assert_eq!(
            ground.ok(&["task", "list", "--status", state, "--json"]).json()["tasks"][0]["id"],
            "T0001"
        );
    }
    for state in ["OPEN", "done", "READY", ""] {
        ground.set_status(&id, state);
        let said = ground.unchanged(10, &["status"]);
        said.assert_names(&[&ground.file(&id), ":5: `status`"]);
    }
    ground.refused(2, &["task", "move", &id, "FINISHED"]).assert_names(&["there is no state `FINISHED`"]);
}

/// §9.2 with our one extension, BLOCKED → ASSIGNED: who may make a move, of o(rchestrator) and b(uilder). A
/// person may be either (§3.3).
const MOVES: [(&str, &str, &str); 13] = [
    ("NEW", "ASSIGNED", "o"),
    ("ASSIGNED", "IN_PROGRESS", "ob"),
    ("IN_PROGRESS", "READY_FOR_REVIEW", "b"),
    ("IN_PROGRESS", "BLOCKED", "b"),
    ("READY_FOR_REVIEW", "DONE", "o"),
    ("READY_FOR_REVIEW", "IN_PROGRESS", "ob"),
    ("BLOCKED", "ASSIGNED", "o"),
    ("NEW", "CANCELED", "o"),
    ("ASSIGNED", "CANCELED", "o"),
    ("IN_PROGRESS", "CANCELED", "o"),
    ("BLOCKED", "CANCELED", "o"),
    ("READY_FOR_REVIEW", "CANCELED", "o"),
    ("DONE", "CANCELED", "o"),
];

#[test]
fn s09_2_every_move_is_for_whom_the_table_says() {
    let ground = Ground::new();
    let id = ground.reported("One", &[]);
    ground.artifact(&id, "pass");
    let file = ground.file(&id);
    let text = ground.read(&file);
    for from in STATES {
        for to in STATES {
            let who = MOVES.iter().find(|(f, t, _)| (*f, *t) == (from, to)).map_or("", |(_, _, who)| who);
            for (actor, may) in [
                ("orchestrator", who.contains('o')),
                ("agent:codex", who.contains('b')),
                ("agent:claude-code", false),
                ("human:Ada", !who.is_empty()),
            ] {
                ground.write(&file, &text);
                ground.set_status(&id, from);
                let said = ground.agency(&["task", "move", &id, to, "--reason", "because", "--as", actor]);
                assert_eq!(said.code, if may { 0 } else { 2 }, "{from} → {to} by {actor}: {said:?}");
                assert_eq!(ground.status(&id), if may { to } else { from });
                if !may {
                    said.assert_names(&["§9.2"]);
                }
            }
        }
    }
}

#[test]
fn s09_2_a_block_needs_a_reason_and_keeps_it() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    ground.set_status(&id, "IN_PROGRESS");
    let block = ["task", "move", &id, "BLOCKED", "--as", "agent:codex"];
    ground.refused(2, &block).assert_names(&["needs a reason"]);
    ground.refused(2, &[&block[..], &["--reason", " "]].concat()).assert_names(&["needs a reason"]);
    ground.ok(&[&block[..], &["--reason", "the key is\nmissing"]].concat());
    let text = ground.read(&ground.file(&id));
    assert!(text.contains("IN_PROGRESS → BLOCKED by agent:codex: the key is missing"), "{text}");
    // Ours: a way out of BLOCKED, with a reason, too.
    ground.refused(2, &["task", "move", &id, "ASSIGNED"]).assert_names(&["needs a reason"]);
    ground.ok(&["task", "move", &id, "ASSIGNED", "--reason", "the key is there"]);
    let text = ground.read(&ground.file(&id));
    assert!(text.contains("BLOCKED → ASSIGNED by orchestrator: the key is there"), "{text}");
    ground.assert_compliant();
}

#[test]
fn s09_2_changes_can_be_requested_after_review() {
    let ground = Ground::new();
    for actor in ["orchestrator", "agent:codex"] {
        let id = ground.reported("One", &[]);
        ground.ok(&["task", "move", &id, "IN_PROGRESS", "--as", actor]);
        assert_eq!(ground.status(&id), "IN_PROGRESS");
    }
}

#[test]
fn s09_2_done_needs_a_report_and_a_passed_verification() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    ground.set_status(&id, "READY_FOR_REVIEW");
    let done = ["task", "move", &id, "DONE"];
    ground.refused(2, &done).assert_names(&["there is no report", "§18"]);
    let artifact = ground.artifact(&id, "pass");
    ground.refused(2, &done).assert_names(&["there is no report"]);
    ground.report(&id, "READY_FOR_REVIEW");
    for result in ["fail", "warn"] {
        ground.artifact(&id, result);
        ground.refused(2, &done).assert_names(&[&format!("came to `{result}`"), &artifact, "§9.2"]);
    }
    ground.write(&artifact, "{\"result\": \"pass\"}");
    ground.refused(2, &done).assert_names(&[&artifact, "no verify artifact"]);
    ground.remove(&artifact);
    ground.refused(2, &done).assert_names(&["never verified", "agency verify --task T0001"]);
    ground.artifact(&id, "pass");
    ground.ok(&done);
    ground.assert_compliant();
}

/// A verification is of its task, and the last one counts.
#[test]
fn s09_2_neither_another_tasks_nor_an_older_pass_counts() {
    let ground = Ground::new();
    let (id, other) = (ground.reported("One", &[]), ground.reported("Two", &[]));
    ground.artifact(&other, "pass");
    ground.refused(2, &["task", "move", &id, "DONE"]).assert_names(&["never verified"]);
    let passed = ground.artifact(&id, "pass");
    let later = passed.replace("2026-01-31", "2026-02-01");
    ground.write(&later, ground.read(&passed).replace("\"pass\"", "\"fail\""));
    ground.refused(2, &["task", "move", &id, "DONE"]).assert_names(&[&later]);
    // An artifact that says itself that it is of another task is none of this one.
    ground.remove(&later);
    ground.write(&passed, ground.read(&passed).replace(&id, &other));
    ground.refused(2, &["task", "move", &id, "DONE"]).assert_names(&[&passed]);
}
