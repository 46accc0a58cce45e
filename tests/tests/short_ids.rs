//! Ids as people type them: `1`, `t1` and `T1` are T0001 where no other task can be meant.

use agency_tests::ground::Ground;
use agency_tests::queue::Queue;

const CONTRACT: &str =
    "{\"protocol\": \"codifica\", \"version\": \"0.2\", \"spec\": \"spec.md\", \"state\": \"work.md\"}\n";

fn work(ids: &[&str]) -> String {
    let task = |id: &&str| {
        format!(
            "- id: {id}\n  type: build\n  state: todo\n  owner: agent:shell\n  title: Task {id}\n  acceptance:\n    - yes\n"
        )
    };
    format!("# Work\n\n```yaml\n{}```\n", ids.iter().map(task).collect::<String>())
}

fn codifica(ids: &[&str]) -> Ground {
    let ground = Ground::without_board(&[("Makefile", "check:\n\ttrue\n"), ("spec.md", "# Spec\n")]);
    ground.write("codifica.json", CONTRACT);
    ground.write("work.md", work(ids));
    ground.commit_all();
    ground
}

/// Each verb takes a short id, and says the whole one.
#[test]
fn every_verb_takes_a_short_id_and_answers_with_the_whole_one() {
    let queue = Queue::with_agent("mkdir -p src && echo by $AGENCY_TASK_ID | tee src/$AGENCY_TASK_ID");
    let ids = queue.tasks(3);
    assert_eq!(ids, ["T0001", "T0002", "T0003"]);
    let ground = &queue.ground;
    let shown = |words: &[&str]| ground.ok(words);
    assert!(shown(&["task", "show", "1"]).out.contains("T0001"));
    assert!(shown(&["run", "--dry-run", "--task", "1"]).out.contains("T0001"));
    assert_eq!(queue.run(&["--task", "t1", "--task", "2"]).code, 0);
    for id in ["T0001", "T0002"] {
        assert_eq!(ground.status(id), "DONE");
    }
    assert_eq!(ground.status("T0003"), "NEW");
    assert_eq!(shown(&["show", "T1", "--json"]).json()["task"]["id"], "T0001");
    assert_eq!(shown(&["diff", "01", "--json"]).json()["task"], "T0001");
    assert!(shown(&["report", "1"]).err.contains("T0001 is DONE"));
    assert_eq!(shown(&["logs", "1", "--json"]).json()["task"], "T0001");
    assert!(shown(&["undo", "t1", "--reason", "x", "--as", "human:ada"]).err.contains("T0001: "));
    assert_eq!(shown(&["assign", "3", "--assignee", "shell", "--json"]).json()["task"]["id"], "T0003");
    assert!(ground.agency(&["verify", "3"]).err.contains("T0003: pass"), "as an argument");
    assert!(ground.agency(&["verify", "--task", "t3"]).err.contains("T0003: pass"), "as a flag");
    ground.refused(4, &["cancel", "3"]).assert_names(&["T0003 is not being worked on"]);
    shown(&["task", "move", "3", "IN_PROGRESS"]);
    let moved = shown(&["task", "move", "t3", "BLOCKED", "--reason", "x", "--as", "agent:shell"]);
    assert!(moved.out.starts_with("T0003 BLOCKED"), "{moved:?}");
    assert!(shown(&["retry", "t3"]).err.contains("T0003: the next `agency run` takes it"));
    let decided = ["decide", "3", "--attempt", "1", "--answer", "pass", "--reason", "x", "--as", "human:ann"];
    ground.refused(4, &decided).assert_names(&["attempt 1 at T0003"]);
}

#[test]
fn an_id_that_fits_nothing_is_named_as_it_was_typed() {
    let ground = Ground::new();
    ground.task("One", &[]);
    ground.refused(4, &["task", "show", "7"]).assert_names(&["there is no task 7 here"]);
    ground.refused(4, &["task", "show", "X1"]).assert_names(&["there is no task X1 here"]);
    // There is nothing to look in.
    Ground::without_board(&[]).refused(4, &["show", "1"]).assert_names(&["there is no board"]);
}

#[test]
fn a_task_is_verified_by_its_id_or_by_the_flag_and_not_by_both() {
    let ground = Ground::new();
    ground.task("One", &[]);
    ground.refused(2, &["verify"]).assert_names(&["required arguments", "<ID>"]);
    ground.refused(2, &["verify", "1", "--task", "1"]).assert_names(&["cannot be used with"]);
}

#[test]
fn an_exact_id_wins_and_several_candidates_are_named() {
    let ground = codifica(&["FEAT-001", "FEAT-002", "TEST-001", "1"]);
    let id = |typed: &str| ground.ok(&["task", "show", typed, "--json"]).json()["task"]["id"].clone();
    assert_eq!(
        (id("feat-1"), id("Test1"), id("2")),
        ("FEAT-001".into(), "TEST-001".into(), "FEAT-002".into())
    );
    assert_eq!(id("1"), "1", "it is one of them");
    ground
        .refused(2, &["task", "show", "01"])
        .assert_names(&["`01` can be 1, FEAT-001 or TEST-001", "hint: type the whole id"]);
    let noted = ground.ok(&["task", "note", "feat-2", "The API is in src", "--as", "agent:shell"]);
    assert!(noted.out.starts_with("FEAT-002"), "{noted:?}");
}

#[test]
fn with_several_boards_the_one_that_has_the_task_is_meant() {
    let ground = codifica(&["FEAT-007"]);
    ground.ok(&["init", "--protocol", "kodingx", "--orchestrator", "other", "--builders", "shell"]);
    ground.ok(&["task", "new", "--protocol", "kodingx", "--title", "x", "--must-touch", "src/**"]);
    let id = |typed: &str| ground.ok(&["task", "show", typed, "--json"]).json()["task"]["id"].clone();
    assert_eq!(
        (id("7"), id("1"), id("codifica:feat-7")),
        ("FEAT-007".into(), "T0001".into(), "FEAT-007".into())
    );
}
