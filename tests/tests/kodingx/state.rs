//! §8: STATE.md.

use crate::ground::{Ground, TOOLS};

#[test]
fn s08_state_is_there_from_the_start() {
    for arguments in [&["init"][..], &["install"], &["install", "--minimal"]] {
        let ground = Ground::without_board(&[]);
        ground.ok(arguments);
        assert!(ground.header(".kodingx/STATE.md").is_mapping(), "{arguments:?}");
    }
    let ground = Ground::new();
    ground.remove(".kodingx/STATE.md");
    ground.assert_found(".kodingx/STATE.md", "4", "missing");
    // Whatever is done next makes it again.
    ground.task("One", &[]);
    assert_eq!(ground.header(".kodingx/STATE.md")["active_tasks"][0].as_str(), Some("T0001"));
    ground.assert_compliant();
}

#[test]
fn s08_builders_and_tools_are_told_not_to_write_state() {
    let ground = Ground::new();
    assert!(ground.read(".kodingx/agents/codex.md").contains("In `.kodingx/` write nothing but your report"));
    for (tool, path) in TOOLS {
        let text = Ground::with_tool(tool).read(path);
        assert!(text.contains("- Edit `.kodingx/STATE.md` or `.kodingx/TASK_BOARD.md` by hand"), "{tool}");
    }
}

const FIELDS: [&str; 6] =
    ["protocol", "updated_at", "active_tasks", "blocked_tasks", "done_tasks_recent", "last_verify"];

#[test]
fn s08_1_state_has_every_required_field() {
    let ground = Ground::new();
    let fresh = ground.header(".kodingx/STATE.md");
    ground.task("One", &[]);
    for state in [fresh, ground.header(".kodingx/STATE.md")] {
        for field in FIELDS {
            assert!(state.get(field).is_some_and(|value| !value.is_null()), "{field}: {state:?}");
        }
        for field in ["task_id", "timestamp", "result", "artifact_path"] {
            assert!(state["last_verify"].get(field).is_some(), "last_verify.{field}: {state:?}");
        }
    }
    let created = ground.header(&ground.file("T0001"))["created_at"].as_str().expect("a time").to_owned();
    assert_eq!(ground.header(".kodingx/STATE.md")["updated_at"].as_str(), Some(created.as_str()));
}

#[test]
fn s08_1_a_state_without_a_required_field_is_found() {
    let ground = Ground::new();
    let whole = ground.read(".kodingx/STATE.md");
    for field in FIELDS {
        let line = whole.lines().find(|line| line.starts_with(&format!("{field}: "))).expect("a line");
        ground.write(".kodingx/STATE.md", whole.replacen(&format!("{line}\n"), "", 1));
        ground.assert_found(".kodingx/STATE.md", "8.1", &format!("`{field}` is missing"));
    }
    ground.write(".kodingx/STATE.md", "no header at all\n");
    ground.assert_found(".kodingx/STATE.md", "8.1", "does not start with a header");
}

/// A board that has finished more than the list shows still complies, in whatever order that happened.
#[test]
fn s08_1_the_last_finished_tasks_are_listed_and_no_more() {
    let ground = Ground::new();
    let ids: Vec<String> = (1..=24).map(|number| format!("T{number:04}")).collect();
    for (at, id) in ids.iter().enumerate() {
        ground.write(
            &format!(".kodingx/inbox/codex/2026-01-31/{id}-1610-x.md"),
            format!(
                "---\nid: {id}\ntitle: x\npriority: P{}\nstatus: READY_FOR_REVIEW\nassignee: codex\n\
                 created_at: 2026-01-31T16:10:00+01:00\ndod_profile: auto\nscope: {{}}\n---\n",
                at % 4
            ),
        );
        ground.report(id, "READY_FOR_REVIEW");
        ground.artifact(id, "pass");
    }
    ground.ok(&["lint", "--fix"]);
    // Seven is prime to 24: every task once, in an order that is nobody's.
    let order: Vec<&String> = (0..24).map(|step| &ids[step * 7 % 24]).collect();
    for id in &order {
        ground.ok(&["task", "move", id, "DONE"]);
    }
    let state = ground.header(".kodingx/STATE.md");
    let listed: Vec<&str> = state["done_tasks_recent"]
        .as_sequence()
        .expect("a list")
        .iter()
        .filter_map(|id| id.as_str())
        .collect();
    let newest: Vec<&str> = order.iter().rev().take(listed.len()).map(|id| id.as_str()).collect();
    assert_eq!(listed, newest);
    assert!((10..24).contains(&listed.len()), "{listed:?}");
    ground.assert_compliant();
    let before = ground.fingerprint();
    ground.ok(&["lint", "--fix"]);
    ground.assert_unchanged(&before);
}

#[test]
fn s08_1_state_names_the_last_verification() {
    let ground = Ground::new();
    ground.profile("passes", &["true"]);
    let id = ground.task("One", &["--dod-profile", "passes"]);
    let verified = ground.ok(&["verify", "--task", &id, "--json"]).json();
    let last = ground.header(".kodingx/STATE.md")["last_verify"].clone();
    assert_eq!(last["task_id"].as_str(), Some(id.as_str()));
    assert_eq!(last["result"].as_str(), Some("pass"));
    assert_eq!(last["artifact_path"].as_str(), verified["artifact"].as_str());
    let artifact = ground.json(last["artifact_path"].as_str().expect("a path"));
    assert_eq!(artifact["timestamp"].as_str(), last["timestamp"].as_str());
    assert_eq!(ground.ok(&["status", "--json"]).json()["last_verify"]["task_id"], id.as_str());
    ground.assert_compliant();
}
