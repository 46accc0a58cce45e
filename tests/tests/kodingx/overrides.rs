//! §20: a person decides otherwise, and it is written down everywhere at once.

use agency_tests::tree::Tree;
use serde_json::Value;

use crate::ground::{Ground, Said};

/// A board with one task whose verification fails.
fn failing() -> (Ground, String) {
    let ground = Ground::new();
    ground.profile("mine", &["false"]);
    let id = ground.reported("One", &["--dod-profile", "mine"]);
    (ground, id)
}

fn overridden(ground: &Ground, id: &str, followup: &str, more: &[&str]) -> Said {
    let arguments =
        ["verify", "--task", id, "--override", "--reason", "Hotfix INC-1234", "--followup", followup];
    ground.agency(&[&arguments[..], more].concat())
}

fn artifact(ground: &Ground) -> Value {
    let state = ground.header(".kodingx/STATE.md");
    ground.json(state["last_verify"]["artifact_path"].as_str().expect("a path"))
}

/// Files of the board but for what a run leaves outside of it.
fn board(ground: &Ground) -> Tree {
    Tree::of(&ground.path().join(".kodingx")).expect("the tree can be read")
}

#[test]
fn s20_2_a_person_may_mark_done_despite_a_failed_verification() {
    let (ground, id) = failing();
    assert_eq!(ground.agency(&["verify", "--task", &id]).code, 10);
    ground.refused(2, &["task", "move", &id, "DONE"]).assert_names(&["came to `fail`", "--override"]);
    let said = overridden(&ground, &id, "Mend the test", &["--as", "human:Ada"]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["T0001: fail", "overridden by Ada: ADR-001, follow-up T0002"]);
    ground.ok(&["task", "move", &id, "DONE"]);
    ground.assert_compliant();
}

#[test]
fn s20_2_the_justification_is_mandatory_and_recorded() {
    let (ground, id) = failing();
    for missing in [
        &["--override", "--followup", "x"][..],
        &["--override", "--reason", "x"],
        &["--override"],
        &["--reason", "x", "--followup", "x"],
    ] {
        ground.refused(2, &[&["verify", "--task", &id, "--as", "human"], missing].concat());
    }
    for (reason, followup) in [(" ", "Mend it"), ("because", " ")] {
        let before = board(&ground);
        let arguments = ["verify", "--task", &id, "--override", "--reason", reason, "--followup", followup];
        let said = ground.agency(&[&arguments[..], &["--as", "human:Ada"]].concat());
        assert_eq!(said.code, 2, "{said:?}");
        said.assert_names(&["an override needs", "§20.2"]);
        let changes = before.diff(&board(&ground));
        assert!(changes.is_empty(), "{changes:?}");
    }
    overridden(&ground, &id, "Mend it", &["--as", "human:Ada"]);
    assert!(ground.read(".kodingx/DECISIONS.md").contains("Hotfix INC-1234"));
}

#[test]
fn s20_2_the_follow_up_is_made_or_linked() {
    let (ground, id) = failing();
    let said = overridden(&ground, &id, "Mend the flaky test", &["--as", "human:Ada"]);
    assert_eq!(said.code, 0, "{said:?}");
    let made = ground.header(&ground.file("T0002"));
    assert_eq!(made["title"].as_str(), Some("Mend the flaky test"));
    assert_eq!(made["status"].as_str(), Some("NEW"));
    assert_eq!(made["scope"]["must_touch"][0].as_str(), Some("src/**"));
    assert_eq!(artifact(&ground)["override"]["followup_task"], "T0002");
    assert_eq!(ground.header(".kodingx/STATE.md")["active_tasks"][1].as_str(), Some("T0002"));

    let other = ground.reported("Other", &["--dod-profile", "mine"]);
    let mends = ground.task("Mends it", &["--label", "mine"]);
    let text = ground.read(&ground.file(&mends));
    let said = overridden(&ground, &other, &mends, &["--as", "human:Ada"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(artifact(&ground)["override"]["followup_task"], mends.as_str());
    let linked = ground.read(&ground.file(&mends));
    assert_eq!(linked, text.replacen("\n---\n", "\nrisks: [\"R-002\"]\n---\n", 1));
    ground.assert_compliant();

    for (followup, words) in [("T0099", "there is no task T0099"), (&*other, "its own follow-up")] {
        let before = board(&ground);
        let said = overridden(&ground, &other, followup, &["--as", "human:Ada"]);
        assert_eq!(said.code, 2, "{said:?}");
        said.assert_names(&[words]);
        let changes = before.diff(&board(&ground));
        assert!(changes.is_empty(), "{changes:?}");
    }
}

#[test]
fn s20_3_the_artifact_carries_the_whole_override() {
    let (ground, id) = failing();
    let said = overridden(&ground, &id, "Mend it", &["--as", "human", "--approver", "john.doe@company.com"]);
    assert_eq!(said.code, 0, "{said:?}");
    let artifact = artifact(&ground);
    assert_eq!(artifact["result"], "fail");
    assert_eq!(artifact["commands"][0]["exit_code"], 1);
    assert_eq!(
        artifact["override"],
        serde_json::json!({
            "approved": true,
            "approver": "john.doe@company.com",
            "reason": "Hotfix INC-1234",
            "decision_ref": "ADR-001",
            "followup_task": "T0002",
        })
    );
}

/// §20.2 writes `true`, §20.3 an object: both open the gate, anything else does not.
#[test]
fn s20_3_an_override_that_is_only_a_flag_is_read() {
    for (written, opens) in
        [("true", true), ("false", false), ("{\"approved\": false}", false), ("{\"approved\": true}", true)]
    {
        let ground = Ground::new();
        let id = ground.reported("One", &[]);
        let path = ground.artifact(&id, "fail");
        ground.edit(&path, "\"fail\"", &format!("\"fail\", \"override\": {written}"));
        let said = ground.agency(&["task", "move", &id, "DONE"]);
        assert_eq!(said.code, if opens { 0 } else { 2 }, "{written}: {said:?}");
    }
}

#[test]
fn s20_4_the_decision_is_recorded_as_the_next_one() {
    let (ground, id) = failing();
    let before = "# Decisions\r\n\r\n### ADR-015: An older one\r\n\r\nOurs.";
    ground.write(".kodingx/DECISIONS.md", before);
    let said = overridden(&ground, &id, "Mend it", &["--as", "human:Ada"]);
    assert_eq!(said.code, 0, "{said:?}");
    let text = ground.read(".kodingx/DECISIONS.md");
    assert!(text.starts_with(before), "{text}");
    let today = artifact(&ground)["timestamp"].as_str().expect("a time")[..10].to_owned();
    let date = format!("**Date:** {today}");
    for part in [
        "### ADR-016: Override T0001 DoD",
        &*date,
        "**Status:** Accepted",
        "**Override Type:** DoD Bypass",
        "**Context:**",
        "Hotfix INC-1234",
        "**Decision:**",
        "**Consequences:**",
        "T0002",
        "RISKS.md (R-001)",
        "**Approver:** Ada",
    ] {
        assert!(text[before.len()..].contains(part), "no {part:?}: {text}");
    }
    assert_eq!(artifact(&ground)["override"]["decision_ref"], "ADR-016");
}

/// The debt is in the register, under the next id, linked with the follow-up both ways.
#[test]
fn s20_4_the_debt_is_added_to_the_register() {
    let (ground, id) = failing();
    let before = "# Risks\n\n### R-011: An older one\n**Priority:** P3\n**Status:** CLOSED\n";
    ground.write(".kodingx/RISKS.md", before);
    overridden(&ground, &id, "Mend it", &["--as", "human:Ada"]);
    let text = ground.read(".kodingx/RISKS.md");
    assert!(text.starts_with(before), "{text}");
    for part in ["### R-012: ", "**Status:** OPEN", "**Linked Tasks:** T0002", "Hotfix INC-1234"] {
        assert!(text[before.len()..].contains(part), "no {part:?}: {text}");
    }
    assert_eq!(ground.header(&ground.file("T0002"))["risks"][0].as_str(), Some("R-012"));
    ground.assert_compliant();
}

/// One of the records can't be written: none is.
#[test]
fn an_override_is_recorded_as_a_whole_or_not_at_all() {
    for file in ["DECISIONS.md", "RISKS.md", "STATE.md", "TASK_BOARD.md"] {
        let (ground, id) = failing();
        let path = ground.path().join(".kodingx").join(file);
        let aside = ground.user().join(file);
        std::fs::rename(&path, &aside).expect("moved");
        std::os::unix::fs::symlink(&aside, &path).expect("a link");
        let (before, text) = (board(&ground), std::fs::read(&aside).expect("text"));
        let said = overridden(&ground, &id, "Mend it", &["--as", "human:Ada"]);
        assert_eq!(said.code, 2, "{file}: {said:?}");
        said.assert_names(&[file, "is a link"]);
        let changes = before.diff(&board(&ground));
        assert!(changes.is_empty(), "{file}: {changes:?}");
        assert_eq!(std::fs::read(&aside).expect("text"), text, "{file}");
    }
}

#[test]
fn s20_5_an_override_is_the_act_of_a_person() {
    let (ground, id) = failing();
    for actor in [&[][..], &["--as", "orchestrator"], &["--as", "agent:codex"]] {
        let before = board(&ground);
        let said = overridden(&ground, &id, "Mend it", actor);
        assert_eq!(said.code, 2, "{said:?}");
        said.assert_names(&["needs a human"]);
        let changes = before.diff(&board(&ground));
        assert!(changes.is_empty(), "{changes:?}");
    }
    assert!(!ground.state().join("verify").exists(), "it was asked only after something ran");
    // Who it is comes from git where nobody says it.
    let said = overridden(&ground, &id, "Mend it", &["--as", "human"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(artifact(&ground)["override"]["approver"], "ada@example.org");
    ground.git(&["config", "--unset", "user.email"]);
    let nobody = overridden(&ground, &id, "Mend it", &["--as", "human"]);
    assert_eq!(nobody.code, 2, "{nobody:?}");
    nobody.assert_names(&["no approver is named", "--approver"]);
}

/// What passed needs no decision of anybody, and none is recorded.
#[test]
fn an_override_of_what_passed_records_nothing() {
    let ground = Ground::new();
    ground.profile("mine", &["true"]);
    let id = ground.reported("One", &["--dod-profile", "mine"]);
    let (decisions, risks) = (ground.read(".kodingx/DECISIONS.md"), ground.read(".kodingx/RISKS.md"));
    let said = overridden(&ground, &id, "Mend it", &["--as", "human:Ada"]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["nothing to override"]);
    assert_eq!((ground.read(".kodingx/DECISIONS.md"), ground.read(".kodingx/RISKS.md")), (decisions, risks));
    assert!(artifact(&ground).get("override").is_none());
    assert!(ground.files(".kodingx/inbox").iter().all(|file| !file.contains("T0002")));
}
