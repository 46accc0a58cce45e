//! §21: risks that tasks are linked to.

use serde_json::Value;

use crate::ground::Ground;

/// A board whose register holds one risk, and a reported task that is linked to it and would pass.
fn linked() -> (Ground, String) {
    let ground = Ground::new();
    ground.profile("mine", &["true"]);
    set(&ground, "P0 (Critical)", "OPEN");
    let id = ground.reported("One", &["--dod-profile", "mine", "--risk", "R-001"]);
    (ground, id)
}

fn set(ground: &Ground, priority: &str, status: &str) {
    let linked = if ground.exists(".kodingx/inbox/codex") { "T0001" } else { "" };
    ground.write(
        ".kodingx/RISKS.md",
        format!(
            "# Risks\n\n### R-001: It breaks\n**Priority:** {priority}\n**Status:** {status}\n\
             **Linked Tasks:** {linked}\n"
        ),
    );
}

fn artifact(ground: &Ground) -> Value {
    let state = ground.header(".kodingx/STATE.md");
    ground.json(state["last_verify"]["artifact_path"].as_str().expect("a path"))
}

#[test]
fn s21_2_a_task_may_name_risks_and_they_are_linked_both_ways() {
    let (ground, id) = linked();
    assert_eq!(ground.header(&ground.file(&id))["risks"][0].as_str(), Some("R-001"));
    assert!(ground.read(".kodingx/RISKS.md").contains("**Linked Tasks:** T0001\n"));
    ground.assert_compliant();
    let said = ground.refused(2, &["task", "new", "--title", "x", "--risk", "R-009"]);
    said.assert_names(&["there is no risk R-009", ".kodingx/RISKS.md", "§21.3"]);
    ground.edit(&ground.file(&id), "R-001", "R-009");
    ground.assert_found(&ground.file(&id), "21.2", "there is no R-009");
}

#[test]
fn s21_3_an_entry_without_id_priority_or_status_is_found() {
    let (ground, id) = linked();
    for (from, to, words) in [
        ("**Priority:** P0 (Critical)\n", "", "no `**Priority:**`"),
        ("**Priority:** P0 (Critical)", "**Priority:** dire", "must be P0, P1, P2 or P3"),
        ("**Status:** OPEN\n", "", "no `**Status:**`"),
        ("**Status:** OPEN", "**Status:** OPEN | MITIGATED | CLOSED", "is a choice"),
        ("**Status:** OPEN", "**Status:** open", "must be OPEN, MITIGATED or CLOSED"),
    ] {
        let whole = ground.read(".kodingx/RISKS.md");
        ground.edit(".kodingx/RISKS.md", from, to);
        ground.assert_found(".kodingx/RISKS.md", "21.3", words);
        ground.write(".kodingx/RISKS.md", whole);
    }
    let twice = ground.read(".kodingx/RISKS.md").repeat(2);
    ground.write(".kodingx/RISKS.md", twice);
    ground.assert_found(".kodingx/RISKS.md", "21.3", "there twice");
    // One without an id is no entry, and whatever names it names nothing.
    set(&ground, "P2", "OPEN");
    ground.edit(".kodingx/RISKS.md", "### R-001: It breaks", "### It breaks");
    ground.assert_found(&ground.file(&id), "21.2", "there is no R-001");
}

#[test]
fn s21_4_an_open_critical_risk_fails_the_verification() {
    let (ground, id) = linked();
    let said = ground.agency(&["verify", "--task", &id]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["R-001 is P0 OPEN", "T0001: fail"]);
    let artifact = artifact(&ground);
    assert_eq!((&artifact["result"], &artifact["commands"][0]["exit_code"]), (&"fail".into(), &0.into()));
    ground.refused(2, &["task", "move", &id, "DONE"]).assert_names(&["R-001 is P0 OPEN"]);
    // No person can decide otherwise; what they can do is settle the risk.
    let verify = ["verify", "--task", &id, "--override", "--reason", "accepted", "--followup", "Watch it"];
    let said = ground.unchanged(2, &[&verify[..], &["--as", "human:Ada"]].concat());
    said.assert_names(&["with or without an override", "R-001 is P0 OPEN"]);
    // An override that was given before the risk became one does not help either.
    set(&ground, "P1", "OPEN");
    ground.ok(&[&verify[..], &["--as", "human:Ada"]].concat());
    set(&ground, "P0", "OPEN");
    ground.refused(2, &["task", "move", &id, "DONE"]).assert_names(&["R-001 is P0 OPEN"]);
    set(&ground, "P0", "MITIGATED");
    ground.ok(&["task", "move", &id, "DONE"]);
}

#[test]
fn s21_4_an_open_high_risk_warns_and_needs_an_override() {
    let (ground, id) = linked();
    set(&ground, "P1 (High)", "OPEN");
    let said = ground.agency(&["verify", "--task", &id]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["R-001 is P1 OPEN", "T0001: warn"]);
    ground.refused(2, &["task", "move", &id, "DONE"]).assert_names(&["came to `warn`"]);
    let verify = ["verify", "--task", &id, "--override", "--reason", "accepted", "--followup", "Watch it"];
    ground.ok(&[&verify[..], &["--as", "human:Ada"]].concat());
    assert_eq!(artifact(&ground)["result"], "warn");
    ground.ok(&["task", "move", &id, "DONE"]);
    ground.assert_compliant();
}

#[test]
fn s21_4_lesser_and_settled_risks_let_it_pass() {
    let (ground, id) = linked();
    for (priority, status) in [
        ("P2", "OPEN"),
        ("P3 (Low)", "OPEN"),
        ("P0 (Critical)", "MITIGATED"),
        ("P1", "MITIGATED"),
        ("P0", "CLOSED"),
        ("P1", "CLOSED"),
        ("P2", "CLOSED"),
    ] {
        set(&ground, priority, status);
        let said = ground.agency(&["verify", "--task", &id]);
        assert_eq!(said.code, 0, "{priority} {status}: {said:?}");
        let artifact = artifact(&ground);
        assert_eq!(artifact["result"], "pass", "{priority} {status}");
        assert_eq!(artifact["risk_check"]["linked_risks"], serde_json::json!(["R-001"]));
        assert_eq!(artifact["risk_check"]["blocking_risks"], serde_json::json!([]));
    }
    ground.ok(&["task", "move", &id, "DONE"]);
    ground.assert_compliant();
}

/// Nobody passes by a misspelling, or by taking the entry away.
#[test]
fn s21_4_a_risk_that_cannot_be_read_counts_as_the_worst() {
    let (ground, id) = linked();
    for (register, result) in [
        ("# Risks\n", "fail"),
        ("### R-001: x\n**Status:** OPEN\n", "fail"),
        ("### R-001: x\n**Priority:** low\n**Status:** OPEN\n", "fail"),
        ("### R-001: x\n**Priority:** P1\n", "warn"),
        ("### R-001: x\n**Priority:** P1\n**Status:** closed\n", "warn"),
    ] {
        ground.write(".kodingx/RISKS.md", register);
        assert_eq!(ground.agency(&["verify", "--task", &id]).code, 10, "{register}");
        assert_eq!(artifact(&ground)["result"], result, "{register}");
    }
    ground.remove(".kodingx/RISKS.md");
    assert_eq!(ground.agency(&["verify", "--task", &id]).code, 10);
}

#[test]
fn s21_5_the_artifact_names_linked_and_blocking_risks() {
    let (ground, id) = linked();
    let register = ground.read(".kodingx/RISKS.md")
        + "\n### R-004: Old\n**Priority:** P2\n**Status:** MITIGATED\n**Linked Tasks:** T0001\n";
    ground.write(".kodingx/RISKS.md", register);
    ground.edit(&ground.file(&id), "- \"R-001\"\n", "- \"R-001\"\n  - R-004   # a person's\n");
    ground.assert_compliant();
    assert_eq!(ground.agency(&["verify", "--task", &id]).code, 10);
    assert_eq!(
        artifact(&ground)["risk_check"],
        serde_json::json!({
            "linked_risks": ["R-001", "R-004"],
            "blocking_risks": ["R-001"],
            "blocking_reason": "R-001 is P0 OPEN — resolve before DONE",
        })
    );
}

#[test]
fn s21_6_check_risks_prints_each_of_them_and_without_it_they_are_checked_too() {
    let (ground, id) = linked();
    let register = ground.read(".kodingx/RISKS.md")
        + "\n### R-004: Old\n**Priority:** P2\n**Status:** MITIGATED\n**Linked Tasks:** T0001\n";
    ground.write(".kodingx/RISKS.md", register);
    ground.edit(&ground.file(&id), "- \"R-001\"\n", "- \"R-001\"\n  - R-004\n");
    let said = ground.agency(&["verify", "--task", &id, "--check-risks"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["R-001 (P0 OPEN)", "in the way of DONE", "R-004 (P2 MITIGATED): ok", "fail"]);
    let said = ground.agency(&["verify", "--task", &id]);
    assert_eq!(said.code, 10, "{said:?}");
    assert!(!said.err.contains("R-004"), "{said:?}");
}
