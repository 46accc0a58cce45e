//! §19 and §23: when a project complies.

use crate::ground::{Ground, TOOLS};

#[test]
fn s19_a_new_board_complies_whatever_the_tool_and_the_repository() {
    for (tool, _) in TOOLS {
        for files in [&[][..], &[("package.json", "{}")], &[("README.md", "x"), ("CLAUDE.md", "# Ours\n")]] {
            for command in ["init", "install"] {
                let ground = Ground::without_board(files);
                ground.ok(&[command, "--orchestrator", tool, "--builders", "codex"]);
                ground.assert_compliant();
            }
        }
    }
}

/// Every criterion, by something that breaks it and the section that says so.
#[test]
fn s19_each_criterion_is_missed_when_it_is_not_met() {
    let ground = Ground::new();
    let id = ground.reported("One", &[]);
    let artifact = ground.artifact(&id, "pass");
    ground.ok(&["task", "move", &id, "DONE"]);
    ground.assert_compliant();
    let (task, report) = (ground.file(&id), ground.report(&id, "READY_FOR_REVIEW"));
    let broken = |file: &str, from: &str, to: &str, section: &str| {
        let whole = ground.read(file);
        ground.edit(file, from, to);
        let findings = ground.lint();
        assert!(findings.iter().any(|one| one["section"] == section), "{file}: {from}: {findings:#?}");
        ground.write(file, whole);
        ground.assert_compliant();
    };
    broken(&task, "priority: P2\n", "", "6.2");
    broken(&report, "agent: codex\n", "", "7.2");
    broken(".kodingx/STATE.md", "blocked_tasks: []\n", "", "8.1");
    broken(&artifact, "\"pass\"", "\"fail\"", "9.2");
    broken(&artifact, "\"task_id\"", "\"tusk_id\"", "11.1");
    broken("AGENTS.md", "## Security\n", "## Something\n", "13");
    for (file, section) in [
        (&*task, "11.1"),
        (&report, "2"),
        (".kodingx/STATE.md", "4"),
        (&artifact, "9.2"),
        ("AGENTS.md", "13"),
    ] {
        let whole = ground.read(file);
        ground.remove(file);
        let findings = ground.lint();
        assert!(findings.iter().any(|one| one["section"] == section), "without {file}: {findings:#?}");
        ground.write(file, whole);
    }
    ground.assert_compliant();
}

/// The updated criteria: risks a task may name, overrides, and links that are honoured.
#[test]
fn s23_each_updated_criterion_is_missed_when_it_is_not_met() {
    let ground = Ground::new();
    ground.write(
        ".kodingx/RISKS.md",
        "# Risks\n\n### R-001: It breaks\n**Priority:** P2\n**Status:** OPEN\n**Linked Tasks:**\n",
    );
    let id = ground.reported("One", &["--risk", "R-001"]);
    let followup = ground.task("Two", &[]);
    let artifact = ground.artifact(&id, "fail");
    let decisions = "# Decisions\n\n### ADR-001: Override T0001 DoD\n";
    ground.write(".kodingx/DECISIONS.md", decisions);
    let object = format!(
        "\"fail\",\"override\":{{\"approved\":true,\"approver\":\"ada\",\"reason\":\"it is late\",\
         \"decision_ref\":\"ADR-001\",\"followup_task\":\"{followup}\"}}"
    );
    ground.edit(&artifact, "\"fail\"", &object);
    ground.ok(&["task", "move", &id, "DONE"]);
    ground.assert_compliant();
    let broken = |file: &str, from: &str, to: &str, section: &str| {
        let whole = ground.read(file);
        ground.edit(file, from, to);
        let findings = ground.lint();
        assert!(findings.iter().any(|one| one["section"] == section), "{file}: {from}: {findings:#?}");
        ground.write(file, whole);
        ground.assert_compliant();
    };
    broken(&artifact, "\"approver\":\"ada\"", "\"approver\":\"\"", "20.3");
    broken(&artifact, "\"reason\":\"it is late\"", "\"reason\":\" \"", "20.3");
    broken(&artifact, "ADR-001", "ADR-002", "20.4");
    broken(&artifact, &followup, "T0099", "20.2");
    broken(&artifact, "\"approved\":true", "\"approved\":false", "9.2");
    broken(".kodingx/DECISIONS.md", "ADR-001", "ADR-009", "20.4");
    broken(".kodingx/RISKS.md", "T0001", "", "21.3");
    broken(".kodingx/RISKS.md", "R-001", "R-002", "21.2");
    broken(".kodingx/RISKS.md", "**Priority:** P2\n", "", "21.3");
    broken(&ground.file(&id), "R-001", "risky", "21.2");
}

/// From nothing to an archive, through every kind of act: a board that complies all the way.
#[test]
fn s23_a_board_complies_through_a_whole_life() {
    let ground = Ground::without_board(&[("src/it", "")]);
    ground.ok(&["init", "--orchestrator", "cursor", "--builders", "codex,claude-code"]);
    ground.profile("mine", &["test -f src/it"]);
    let one = ground.task("One", &["--dod-profile", "mine"]);
    let two = ground.task("Two", &["--dod-profile", "mine", "--depends-on", &one]);
    for id in [&one, &two] {
        ground.ok(&["assign", id, "--assignee", "claude-code"]);
        ground.ok(&["task", "move", id, "IN_PROGRESS", "--as", "agent:claude-code"]);
        ground.assert_compliant();
        ground.report(id, "READY_FOR_REVIEW");
        ground.ok(&["task", "move", id, "READY_FOR_REVIEW", "--as", "agent:claude-code"]);
        ground.assert_compliant();
    }
    ground.ok(&["verify", "--task", &one]);
    ground.ok(&["task", "move", &one, "DONE"]);
    ground.assert_compliant();
    ground.remove("src/it");
    let verify = ["verify", "--task", &two, "--override", "--reason", "it is late", "--followup", "Mend it"];
    ground.ok(&[&verify[..], &["--as", "human:Ada"]].concat());
    ground.assert_compliant();
    ground.ok(&["task", "move", &two, "DONE"]);
    ground.assert_compliant();
    ground.ok(&["task", "move", "T0003", "CANCELED", "--reason", "it was mended"]);
    ground.assert_compliant();
    ground.ok(&["migrate", "--to", "agency/1.1"]);
    ground.assert_compliant();
}
