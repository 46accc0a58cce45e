//! §2 and §3: what everything rests on, and who may do what.

use std::fs;

use crate::ground::Ground;

#[test]
fn s02_1_a_board_is_its_files_and_nothing_else() {
    let ground = Ground::new();
    let first = ground.task("One", &["--priority", "P1"]);
    ground.task("Two", &["--depends-on", &first]);
    ground.ok(&["task", "move", &first, "ASSIGNED"]);
    let elsewhere = Ground::without_board(&[]);
    for file in ground.files(".kodingx").into_iter().chain(["AGENTS.md", "Makefile"].map(str::to_owned)) {
        elsewhere.write(&file, ground.read(&file));
    }
    for question in [&["status", "--json"][..], &["task", "list", "--json"], &["task", "show", &first]] {
        assert_eq!(elsewhere.ok(question).out, ground.ok(question).out, "{question:?}");
    }
    elsewhere.assert_compliant();
}

#[test]
fn s02_2_views_that_disagree_with_the_tasks_are_found_and_mended() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    ground.edit(".kodingx/STATE.md", "## Notes\n", "## Notes\nA person's note.\n");
    ground.edit(".kodingx/STATE.md", &format!("active_tasks: [\"{id}\"]"), "active_tasks: []");
    ground.edit(".kodingx/TASK_BOARD.md", &id, "T0099");
    ground.assert_found(".kodingx/STATE.md", "8.1", "active_tasks");
    ground.assert_found(".kodingx/TASK_BOARD.md", "4", "not what the tasks say");
    ground.ok(&["lint", "--fix"]);
    ground.assert_compliant();
    assert!(ground.read(".kodingx/STATE.md").ends_with("## Notes\nA person's note.\n"));
    assert!(ground.read(".kodingx/TASK_BOARD.md").contains(&id));
}

/// What we keep beside the repository makes us safe, and nothing depends on it.
#[test]
fn s02_3_each_act_stands_alone() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let forget = || fs::remove_dir_all(ground.state()).expect("forgotten");
    forget();
    ground.ok(&["task", "move", &id, "ASSIGNED"]);
    forget();
    ground.ok(&["task", "move", &id, "IN_PROGRESS", "--as", "agent:codex"]);
    forget();
    ground.ok(&["task", "move", &id, "READY_FOR_REVIEW", "--as", "agent:codex"]);
    ground.report(&id, "READY_FOR_REVIEW");
    ground.artifact(&id, "pass");
    forget();
    ground.ok(&["task", "move", &id, "DONE"]);
    forget();
    ground.assert_compliant();
}

/// Nobody but files says who takes part: no list of agents, no program of ours.
#[test]
fn s02_4_any_agent_takes_part_by_files_alone() {
    let ground = Ground::new();
    ground.write(
        ".kodingx/inbox/homegrown/2026-01-31/T0001-1610-by-hand.md",
        "---\nid: T0001\ntitle: By hand\npriority: P1\nstatus: READY_FOR_REVIEW\nassignee: homegrown\n\
         created_at: 2026-01-31T16:10:00+01:00\ndod_profile: auto\nscope:\n  must_touch: [src]\n---\nText.\n",
    );
    ground.report("T0001", "READY_FOR_REVIEW");
    ground.ok(&["lint", "--fix"]);
    ground.assert_compliant();
    let listed = ground.ok(&["status", "--json"]).json();
    assert_eq!((&listed["tasks"][0]["assignee"], &listed["reports"]), (&"homegrown".into(), &1.into()));
    assert_eq!(ground.ok(&["report", "T0001", "--json"]).json()["report"]["agent"], "homegrown");
    assert_eq!(ground.task("Next", &[]), "T0002");
}

#[test]
fn s02_5_a_done_task_without_evidence_is_found() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    ground.set_status(&id, "DONE");
    ground.agency(&["lint", "--fix"]);
    ground.assert_found(&ground.file(&id), "2", "without a report");
    ground.assert_found(&ground.file(&id), "9.2", "never verified");
    ground.report(&id, "READY_FOR_REVIEW");
    ground.artifact(&id, "fail");
    ground.assert_found(&ground.file(&id), "9.2", "came to `fail`");
    ground.artifact(&id, "pass");
    ground.assert_compliant();
}

#[test]
fn s03_1_only_the_orchestrator_marks_done() {
    let ground = Ground::new();
    let id = ground.reported("One", &[]);
    ground.artifact(&id, "pass");
    let said = ground.refused(2, &["task", "move", &id, "DONE", "--as", "agent:codex"]);
    said.assert_names(&["for the orchestrator", "agent:codex", "§9.2"]);
    ground.ok(&["task", "move", &id, "DONE", "--as", "orchestrator"]);
    assert_eq!(ground.status(&id), "DONE");
}

#[test]
fn s03_1_every_act_of_the_orchestrator_updates_state() {
    let ground = Ground::new();
    let lists = || {
        let state = ground.header(".kodingx/STATE.md");
        ["active_tasks", "blocked_tasks", "done_tasks_recent"].map(|list| {
            let items = state[list].as_sequence().expect("a list");
            items.iter().map(|id| id.as_str().expect("an id").to_owned()).collect::<Vec<_>>().join(" ")
        })
    };
    let (one, two) = (ground.task("One", &[]), ground.task("Two", &[]));
    assert_eq!(lists(), ["T0001 T0002", "", ""]);
    ground.ok(&["assign", &one, "--assignee", "codex"]);
    ground.ok(&["task", "move", &one, "IN_PROGRESS"]);
    ground.ok(&["task", "move", &one, "BLOCKED", "--reason", "no key", "--as", "agent:codex"]);
    assert_eq!(lists(), ["T0002", "T0001", ""]);
    ground.ok(&["task", "move", &two, "CANCELED"]);
    assert_eq!(lists(), ["", "T0001", ""]);
    let three = ground.reported("Three", &[]);
    ground.artifact(&three, "pass");
    ground.ok(&["task", "move", &three, "DONE"]);
    assert_eq!(lists(), ["", "T0001", "T0003"]);
    ground.assert_compliant();
}

#[test]
fn s03_2_the_builders_contract_keeps_it_in_scope() {
    let ground = Ground::new();
    for agent in ["codex", "claude-code"] {
        let text = ground.read(&format!(".kodingx/agents/{agent}.md"));
        for rule in ["Change only what matches `must_touch` or `may_touch`", "Never widen the scope yourself"]
        {
            assert!(text.contains(rule), "{agent} is not told {rule:?}");
        }
    }
}

/// What the contract shows is a report that the protocol accepts.
#[test]
fn s03_2_the_report_that_the_contract_shows_conforms() {
    let ground = Ground::new();
    let text = ground.read(".kodingx/agents/codex.md");
    let shown = text.split_once("```markdown\n").and_then(|(_, rest)| rest.split_once("\n```"));
    let shown = shown.expect("an example").0;
    let id = ground.task("One", &[]);
    let path = ground.report(&id, "READY_FOR_REVIEW");
    ground.write(&path, shown.replace("T0007", &id));
    ground.assert_compliant();
    assert_eq!(ground.ok(&["report", &id, "--json"]).json()["report"]["status"], "READY_FOR_REVIEW");
}

#[test]
fn s03_2_a_builder_sets_ready_for_review_and_never_done() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    ground.ok(&["task", "move", &id, "ASSIGNED"]);
    let builder = |state: &str| ["task", "move", "T0001", state, "--as", "agent:codex"].map(str::to_owned);
    for (state, allowed) in
        [("DONE", false), ("IN_PROGRESS", true), ("DONE", false), ("READY_FOR_REVIEW", true), ("DONE", false)]
    {
        let arguments = builder(state);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        if allowed {
            ground.ok(&arguments);
        } else {
            ground.refused(2, &arguments);
        }
    }
    assert_eq!(ground.status(&id), "READY_FOR_REVIEW");
    let path = ground.report(&id, "DONE");
    ground.assert_found(&path, "7.2", "no builder may say");
    for agent in ["codex", "claude-code"] {
        assert!(ground.read(&format!(".kodingx/agents/{agent}.md")).contains("never `DONE`"), "{agent}");
    }
}

#[test]
fn s03_3_a_person_is_held_to_the_same_contracts() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    let human = |state: &str| ground.agency(&["task", "move", &id, state, "--as", "human:Ada"]);
    // The builder's moves and the orchestrator's, in the order of the protocol and in no other.
    assert_eq!(human("READY_FOR_REVIEW").code, 2);
    assert_eq!(human("DONE").code, 2);
    for state in ["ASSIGNED", "IN_PROGRESS", "READY_FOR_REVIEW"] {
        assert_eq!(human(state).code, 0, "{state}");
    }
    human("DONE").assert_names(&["there is no report"]);
    ground.report(&id, "READY_FOR_REVIEW");
    human("DONE").assert_names(&["never verified"]);
    ground.artifact(&id, "fail");
    human("DONE").assert_names(&["came to `fail`"]);
    ground.artifact(&id, "pass");
    assert_eq!(human("DONE").code, 0);
    ground.assert_compliant();
}

#[test]
fn s03_5_a_report_that_somebody_dropped_into_the_outbox_is_seen() {
    let ground = Ground::new();
    let id = ground.task("One", &[]);
    assert_eq!(ground.refused(4, &["report", &id]).out, "");
    assert_eq!(ground.ok(&["status", "--json"]).json()["reports"], 0);
    let path = ground.report(&id, "BLOCKED");
    assert_eq!(ground.ok(&["status", "--json"]).json()["reports"], 1);
    let report = ground.ok(&["report", &id, "--json"]).json();
    assert_eq!((&report["file"], &report["report"]["status"]), (&path.into(), &"BLOCKED".into()));
}
