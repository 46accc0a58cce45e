//! §4 to §6: ids, the task model, selection, dependencies, types.

use crate::site::{Site, ready, task, work};

#[test]
fn s04_1_ids_are_unique_across_all_state_files() {
    let site = Site::new(&(ready("A-1") + &ready("A-2") + &ready("A-1")));
    site.ground.assert_found("work.md", "4.1", "the id A-1 is there more than once: work.md:7, work.md:21");
    let said = site.moves("A-1", "in_progress", "agent:shell", None);
    assert_eq!(said.code, 2);
    said.assert_names(&["2 tasks have the id A-1", "work.md:7"]);
    assert_eq!(site.moves("A-2", "in_progress", "agent:shell", None).code, 0, "its neighbour is not hidden");
}

#[test]
fn s04_1_new_tasks_get_ids_that_nobody_has() {
    let site = Site::new(&(ready("FEAT-041") + &task("FEAT-007", "build", "done", "human")));
    for (kind, id) in
        [("build", "FEAT-042"), ("test", "TEST-001"), ("investigate", "INV-001"), ("build", "FEAT-043")]
    {
        let made = site.ground.ok(&["task", "new", "--title", "x", "--type", kind, "--acceptance", "y"]).out;
        assert_eq!(made.trim(), id);
    }
}

#[test]
fn s05_a_task_is_written_as_the_model_has_it_and_reads_back() {
    let site = Site::new(&ready("FEAT-001"));
    site.ground.ok(&[
        "task",
        "new",
        "--title",
        "A: title",
        "--type",
        "build",
        "--description",
        "Two\nlines: yes",
        "--priority",
        "high",
        "--depends-on",
        "FEAT-001",
        "--label",
        "a,b",
        "--acceptance",
        "`x` works",
        "--checklist",
        "look",
        "--assignee",
        "shell",
        "--context-file",
        "src/a.txt",
        "--constraint",
        "no network",
    ]);
    let task = site.task("FEAT-002");
    for (key, value) in [
        ("type", "build"),
        ("state", "todo"),
        ("owner", "agent:shell"),
        ("title", "A: title"),
        ("description", "Two\nlines: yes"),
        ("priority", "high"),
    ] {
        assert_eq!(task[key].as_str(), Some(value), "{key}");
    }
    assert_eq!(task["depends_on"][0].as_str(), Some("FEAT-001"));
    assert_eq!(task["acceptance"][0].as_str(), Some("`x` works"));
    assert_eq!(task["context"]["constraints"][0].as_str(), Some("no network"));
    assert_eq!(task["labels"].as_sequence().map(Vec::len), Some(2));
    site.ground.assert_compliant();
    assert_eq!(site.log()[0], "FEAT-002: A: title", "it is a commit of its own");
}

#[test]
fn s05_a_field_that_holds_something_else_is_found_with_its_line() {
    for (from, to, section, words) in [
        ("state: todo", "state: doing", "5", "`state` is `doing`"),
        ("type: build", "type: unheard", "5", "`type` is `unheard`"),
        ("owner: agent:shell", "owner: agent", "5", "`owner` is `agent`"),
        ("title: Task A-1", "title: a: b", "5", "`title` is not valid YAML"),
        ("id: A-1", "id: ../x", "4.1", "is no task id"),
    ] {
        let site = Site::new(&(ready("A-1").replace(from, to) + &ready("B-1")));
        site.ground.assert_found("work.md", section, words);
        let said = site.ground.unchanged(10, &["status"]);
        said.assert_names(&["work.md:", words]);
        assert!(said.out.contains("B-1"), "its neighbour is not hidden: {said:?}");
    }
}

/// What real files hold, none of which keeps a task from being worked on.
#[test]
fn s05_what_is_seen_in_the_wild_is_read() {
    let odd = "  acceptance:\n    - `x` works\n  execution_notes:\n    - plain words\n    - by: agent\n      note: hm\n  artifacts:\n    - a.txt\n  human_review: null\n";
    let site = Site::new(&(task("A-1", "build", "todo", "agent:shell") + odd));
    assert_eq!(site.moves("A-1", "in_progress", "agent:shell", None).code, 0);
    let (criteria, rest) = odd.split_at(odd.find("  execution_notes").expect("notes"));
    let now = site.ground.read("work.md");
    assert!(now.contains(criteria) && now.contains(rest), "and stays as it is: {now}");
    let report = site.ground.ok(&["report", "A-1", "--json"]).json();
    assert_eq!(report["execution_notes"][0]["note"], "plain words");
    assert_eq!(report["artifacts"][0]["path"], "a.txt");
}

/// The order in which a run would start tasks, one at a time.
fn order(site: &Site) -> (Vec<String>, Vec<String>) {
    let said = site.ground.agency(&["run", "--dry-run", "--json", "--parallel", "20"]).json();
    let names = |key: &str| -> Vec<String> {
        let all = said[key].as_array().expect("a list").iter();
        all.map(|one| one["task"].as_str().expect("a task").to_owned()).collect()
    };
    (names("would_start"), names("waiting"))
}

#[test]
fn s05_1_tasks_are_selected_by_owner_dependencies_priority_and_leaves_first() {
    let prioritised =
        |id: &str, priority: &str, more: &str| ready(id) + &format!("  priority: {priority}\n{more}");
    let site = Site::new(
        &[
            task("DONE-1", "test", "done", "human"),
            prioritised("LOW-1", "low", ""),
            prioritised("AFTER-1", "high", "  depends_on: [DONE-1]\n"),
            prioritised("LEAF-1", "high", ""),
            prioritised("LATER-1", "critical", "  depends_on: [LOW-1]\n"),
            prioritised("FREE-1", "critical", "").replace("agent:shell", "unassigned"),
            prioritised("MINE-1", "critical", "").replace("agent:shell", "human"),
            ready("PLAIN-1"),
        ]
        .concat(),
    );
    site.agent("true");
    let (starts, waits) = order(&site);
    assert_eq!(starts, ["FREE-1", "LEAF-1", "AFTER-1", "PLAIN-1", "LOW-1"]);
    assert_eq!(waits, ["LATER-1", "MINE-1"]);
}

#[test]
fn s05_1_nobody_claims_more_than_they_may_hold() {
    let tasks = ready("A-1") + &ready("A-2") + &ready("A-3");
    let site = Site::with_rules(r#"{"max_concurrent_tasks_per_agent": 2}"#, &tasks);
    site.agent("true");
    assert_eq!(order(&site).0.len(), 2);
    for (id, code) in [("A-1", 0), ("A-2", 0), ("A-3", 2)] {
        let said = site.moves(id, "in_progress", "agent:shell", None);
        assert_eq!(said.code, code, "{said:?}");
        if code == 2 {
            said.assert_names(&["holds 2 tasks, and may hold 2", "§5.1"]);
        }
    }
}

#[test]
fn s05_2_a_dependency_must_exist_and_be_done_before_a_start() {
    let tasks =
        ready("A-1") + &ready("B-1") + "  depends_on: [A-1]\n" + &ready("C-1") + "  depends_on: [GONE-1]\n";
    let site = Site::new(&tasks);
    for (id, why) in [("B-1", "it depends on A-1, which is todo"), ("C-1", "GONE-1, which does not exist")] {
        for actor in ["agent:shell", "human"] {
            let said = site.moves(id, "in_progress", actor, None);
            assert_eq!(said.code, 2);
            said.assert_names(&[why, "§5.2"]);
        }
    }
    site.ground.assert_found("work.md", "5.2", "GONE-1, which does not exist");
    let said = site.ground.refused(2, &["task", "new", "--title", "x", "--depends-on", "GONE-1"]);
    said.assert_names(&["there is no such task", "§5.2"]);
}

#[test]
fn s05_2_a_circle_is_found_and_a_new_one_is_refused() {
    let tasks = ready("A-1") + "  depends_on: [B-1]\n" + &ready("B-1") + "  depends_on: [A-1]\n";
    let site = Site::new(&tasks);
    site.ground.assert_found("work.md", "5.2", "A-1 → B-1 → A-1");
    let waits = Site::new(&(ready("C-1") + "  depends_on: [FEAT-001]\n"));
    let said = waits.ground.refused(2, &["task", "new", "--title", "x", "--depends-on", "C-1"]);
    said.assert_names(&["tasks would wait for each other: C-1 → FEAT-001 → C-1", "§5.2"]);
}

#[test]
fn s05_2_a_regression_warns_whoever_depends_on_it_and_moves_nobody() {
    let tasks = task("A-1", "test", "done", "human")
        + &ready("B-1")
        + "  depends_on: [A-1]\n"
        + &ready("C-1")
        + "  depends_on: [A-1]\n";
    let site = Site::new(&tasks);
    assert_eq!(site.moves("B-1", "in_progress", "agent:shell", None).code, 0);
    assert_eq!(site.moves("A-1", "todo", "human", Some("it broke")).code, 0);
    let warned = site.task("B-1");
    let note = warned["execution_notes"][0]["note"].as_str().expect("a note").to_owned();
    assert!(note.contains("Warning: A-1") && note.contains("from done to todo"), "{note}");
    assert_eq!((site.state("B-1"), site.state("C-1")), ("in_progress".into(), "todo".into()));
    assert!(site.task("C-1")["execution_notes"].is_null(), "who has not started is kept from it anyway");
    assert_eq!(site.moves("C-1", "in_progress", "agent:shell", None).code, 2);
}

#[test]
fn s06_a_build_needs_criteria_a_followup_its_origin_and_a_review_a_person() {
    let tasks = task("B-1", "build", "todo", "agent:shell")
        + &task("F-1", "followup", "todo", "agent:shell")
        + &task("R-1", "review", "todo", "unassigned");
    let site = Site::new(&tasks);
    site.agent("true");
    let (starts, waits) = order(&site);
    assert!(starts.is_empty(), "{starts:?}");
    assert_eq!(waits, ["B-1", "F-1", "R-1"]);
    site.moves("R-1", "in_progress", "agent:shell", None).assert_names(&["human judgment only", "§6"]);
    site.ground.assert_found("work.md", "6", "a followup must say what it is derived from");
    let said = site.ground.refused(2, &["task", "new", "--title", "x", "--type", "followup"]);
    said.assert_names(&["derived from", "§6"]);
    site.ground.ok(&["task", "new", "--title", "x", "--type", "followup", "--derived-from", "B-1"]);
}

#[test]
fn s06_custom_types_are_known_and_follow_build() {
    let rules = r#"{"custom_types": ["deploy"]}"#;
    let site = Site::with_rules(rules, &task("D-1", "deploy", "in_progress", "agent:shell"));
    let said = site.moves("D-1", "done", "agent:shell", None);
    said.assert_names(&["a deploy task must not skip to_be_tested", "§7.2"]);
    assert_eq!(site.moves("D-1", "to_be_tested", "agent:shell", None).code, 0);
    assert_eq!(site.moves("D-1", "done", "agent:shell", None).code, 0);
    let made = site.ground.ok(&["task", "new", "--title", "x", "--type", "deploy"]).out;
    assert_eq!(made.trim(), "DEPLOY-001");
    site.ground
        .refused(2, &["task", "new", "--title", "x", "--type", "other"])
        .assert_names(&["no type `other`"]);
}

#[test]
fn s12_1_a_state_file_of_version_0_1_is_read_and_migrated_by_its_version_alone() {
    let contract = crate::site::CONTRACT.replace("0.2", "0.1");
    let old = "- id: A-1\n  type: build\n  state: done\n  owner: human\n  title: Old\n  acceptance: [x]\n";
    let site = Site::with(&contract, &work(&(old.to_owned() + &ready("B-1"))));
    site.ground.assert_compliant();
    let said = site.moves("B-1", "rejected", "human", Some("no"));
    said.assert_names(&["version 0.1 has no `rejected`", "agency migrate --to 0.2"]);
    site.ground.ok(&["migrate", "--to", "0.2"]);
    assert_eq!(site.ground.read("codifica.json"), crate::site::CONTRACT);
    assert_eq!(site.ground.read("work.md"), work(&(old.to_owned() + &ready("B-1"))));
    site.ground.refused(2, &["migrate", "--to", "0.1"]).assert_names(&["no way back"]);
    site.ground.refused(2, &["migrate", "--to", "9"]).assert_names(&["`9` is no version"]);
    assert_eq!(site.moves("B-1", "rejected", "human", Some("no")).code, 0);
}

#[test]
fn s12_3_old_tasks_need_none_of_the_new_fields() {
    let old = task("A-1", "build", "done", "human")
        + "  acceptance: [x]\n  execution_notes:\n    - note: done long ago\n";
    Site::new(&old).ground.assert_compliant();
}

#[test]
fn s05_an_owner_is_human_unassigned_or_an_agent() {
    let site = Site::new("");
    for (assignee, owner) in [
        ("human", "human"),
        ("unassigned", "unassigned"),
        ("agent:shell", "agent:shell"),
        ("shell", "agent:shell"),
    ] {
        let made = site.ground.ok(&["task", "new", "--title", "x", "--type", "test", "--assignee", assignee]);
        let id = made.out.trim().to_owned();
        assert_eq!(site.task(&id)["owner"].as_str(), Some(owner), "{assignee}");
        let listed = site.ground.ok(&["task", "list", "--assignee", assignee]).out;
        assert!(listed.contains(&id), "{assignee}: {listed}");
        // The same words give it to somebody else.
        site.ground.ok(&["assign", &id, "--assignee", "other"]);
        site.ground.ok(&["assign", &id, "--assignee", assignee]);
        assert_eq!(site.task(&id)["owner"].as_str(), Some(owner), "{assignee}");
    }
    site.ground
        .refused(2, &["task", "new", "--title", "x", "--assignee", "agent:../x"])
        .assert_names(&["no agent name"]);
    site.ground.assert_compliant();
}

#[test]
fn s06_a_review_is_never_an_agents() {
    let tasks = task("R-1", "review", "todo", "agent:shell") + &task("R-2", "review", "todo", "unassigned");
    let site = Site::new(&tasks);
    site.ground.assert_found("work.md", "6", "a review is human judgment only, and agent:shell owns it");
    for refused in [
        &["task", "new", "--title", "x", "--type", "review", "--assignee", "shell"][..],
        &["assign", "R-2", "--assignee", "shell"],
        &["task", "move", "R-1", "in_progress", "--as", "agent:shell"],
    ] {
        site.ground.refused(2, refused).assert_names(&["human judgment only", "§6"]);
    }
    // Whoever was named as its owner, a person does it.
    for to in ["in_progress", "to_be_tested", "done"] {
        assert_eq!(site.moves("R-1", to, "human", None).code, 0, "{to}");
        assert_eq!(site.task("R-1")["owner"].as_str(), Some("human"), "{to}");
    }
    site.ground.assert_compliant();
}

#[test]
fn s07_2_a_build_that_skipped_its_test_is_found() {
    let went = |from: &str| {
        format!("  state_transitions:\n    - from: {from}\n      to: done\n      by: agent:shell\n")
    };
    let done = |id: &str, kind: &str, from: &str| {
        task(id, kind, "done", "agent:shell") + "  acceptance: [x]\n" + &went(from)
    };
    let site = Site::new(&(done("B-1", "build", "todo") + &done("T-1", "test", "in_progress")));
    site.ground.assert_found(
        "work.md",
        "7.2",
        "B-1: it went from todo to done, and a build task must not skip",
    );
    assert!(!site.ground.lint().iter().any(|one| one["message"].as_str().is_some_and(|m| m.contains("T-1"))));
    let site = Site::new(&done("T-1", "test", "todo"));
    site.ground.assert_found("work.md", "7.1", "it went from todo to done, which is no transition");
}

#[test]
fn s05_an_agent_adds_notes_and_a_person_is_told_where_to_write() {
    let site = Site::new(&(ready("A-1") + "  execution_notes: []  # none yet\n" + &ready("B-1")));
    let noted = ["task", "note", "A-1", "The API is in src/api", "--summary", "API", "--as", "agent:shell"];
    let answer = site.ground.ok(&[&noted[..], &["--json"]].concat()).json();
    assert_eq!((answer["version"].as_i64(), answer["task"]["id"].as_str()), (Some(1), Some("A-1")));
    let note = site.task("A-1")["execution_notes"][0].clone();
    for (key, value) in [("by", "agent:shell"), ("note", "The API is in src/api"), ("summary", "API")] {
        assert_eq!(note[key].as_str(), Some(value), "{key}");
    }
    assert!(note["timestamp"].as_str().is_some());
    assert!(site.ground.read("work.md").contains("  execution_notes:  # none yet\n"));
    let patch = site.last_patch();
    assert!(!patch.contains("B-1") && site.log()[0] == "A-1: note by agent:shell", "{patch}");
    for actor in [&["--as", "human"][..], &[]] {
        let said = site.ground.refused(2, &[&["task", "note", "A-1", "x"][..], actor].concat());
        said.assert_names(&["execution notes are for agents (§5)", "--as agent:NAME", "human_review"]);
    }
    site.ground
        .refused(2, &["task", "note", "A-1", " ", "--as", "agent:shell"])
        .assert_names(&["needs a text"]);
    site.ground.assert_compliant();
}

#[test]
fn s12_2_a_task_that_an_agent_closes_by_hand_gets_its_closing_note() {
    let site = Site::new(&(ready("A-1") + &ready("B-1")));
    for (id, reason, summary) in [("A-1", Some("Made the API"), "Made the API"), ("B-1", None, "Task B-1")] {
        for to in ["in_progress", "to_be_tested"] {
            assert_eq!(site.moves(id, to, "agent:shell", None).code, 0);
        }
        assert_eq!(site.moves(id, "done", "agent:shell", reason).code, 0);
        let task = site.task(id);
        let notes = task["execution_notes"].as_sequence().expect("notes");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert_eq!(notes[0]["summary"].as_str(), Some(summary));
        assert_eq!(notes[0]["by"].as_str(), Some("agent:shell"));
    }
    site.ground.assert_compliant();
}
