//! Bad input: one clear line, the right exit code, and nothing hidden.

use crate::site::{CONTRACT, Site, ready, task};

#[test]
fn a_state_file_that_is_gone_is_said() {
    let site = Site::new(&ready("A-1"));
    site.ground.remove("work.md");
    for verb in [&["status"][..], &["run"], &["lint"], &["task", "new", "--title", "x"]] {
        let said = site.ground.refused(2, verb);
        said.assert_names(&["`state` names work.md, and there is no such file", "§2"]);
        assert_eq!(said.err.lines().filter(|line| line.starts_with("agency: ")).count(), 1, "{said:?}");
    }
    // One of several hides none of the others.
    site.ground.write("codifica.json", CONTRACT.replace("\"work.md\"", "[\"work.md\", \"other.md\"]"));
    site.ground.write("other.md", crate::site::work(&ready("B-1")));
    let said = site.ground.unchanged(10, &["status"]);
    said.assert_names(&["`state` names work.md, and there is no such file"]);
    assert!(said.out.contains("B-1"));
}

#[test]
fn a_state_file_that_is_a_link_a_pipe_or_no_text_is_told_and_left_alone() {
    let site = Site::with(
        &CONTRACT.replace("\"work.md\"", "[\"work.md\", \"other.md\"]"),
        &crate::site::work(&ready("A-1")),
    );
    let path = site.ground.path().join("other.md");
    std::os::unix::fs::symlink("/etc/passwd", &path).expect("a link");
    let said = site.ground.unchanged(10, &["status"]);
    said.assert_names(&["other.md: it is a link"]);
    assert!(said.out.contains("A-1") && !said.out.contains("root:"));
    std::fs::remove_file(&path).expect("removed");
    site.ground.write("other.md", [0xff, 0xfe, b'\n']);
    site.ground.unchanged(10, &["status"]).assert_names(&["other.md:1: it is not UTF-8"]);
}

#[test]
fn a_broken_task_hides_no_neighbour_from_a_run() {
    let broken = "- id: BAD-1\n  type: build\n  state: todo\n   oops\n  title: x\nfell out\n";
    let site = Site::new(&(ready("A-1") + broken + &ready("B-1")));
    site.agent("echo x > src/$AGENCY_TASK_ID");
    let said = site.ground.agency(&["run"]);
    assert_eq!((site.state("A-1"), site.state("B-1")), ("done".into(), "done".into()), "{said:?}");
    assert!(site.ground.read("work.md").contains(broken), "it is left as it is");
    site.ground.unchanged(10, &["lint"]).assert_names(&["not compliant"]);
}

#[test]
fn what_is_not_there_is_4_and_what_makes_no_sense_is_2() {
    let site = Site::new(&(ready("A-1") + &task("B-1", "test", "odd", "human")));
    site.ground.refused(4, &["task", "show", "X-1"]).assert_names(&["there is no task X-1"]);
    site.ground.refused(4, &["report", "A-1"]).assert_names(&["there is no note on A-1"]);
    site.ground
        .refused(2, &["task", "move", "A-1", "finished", "--as", "human"])
        .assert_names(&["there is no state `finished`"]);
    site.ground
        .refused(2, &["task", "move", "B-1", "todo", "--as", "human"])
        .assert_names(&["work.md:16: `state` is `odd`"]);
    site.ground
        .refused(2, &["task", "move", "A-1", "blocked", "--reason", "x"])
        .assert_names(&["needs a human", "--as human"]);
    site.ground
        .refused(2, &["task", "new", "--title", "x", "--must-touch", "src/**"])
        .assert_names(&["no scope", "file_scope"]);
    for (verb, name) in [
        (&["upgrade", "--full"][..], "upgrade"),
        (&["task", "renumber", "x"], "task renumber"),
        (&["lint", "--fix"], "lint --fix"),
        (&["install", "--protocol", "codifica"], "install"),
    ] {
        site.ground.refused(2, verb).assert_names(&[&format!("the protocol `codifica` has no `{name}`")]);
    }
}

#[test]
fn without_a_repository_tasks_are_made_and_nothing_is_claimed() {
    let ground = agency_tests::ground::Ground::of_nothing();
    ground.ok(&["init", "--protocol", "codifica"]);
    ground.ok(&["task", "new", "--title", "x", "--acceptance", "y"]);
    let said = ground.refused(2, &["task", "move", "FEAT-001", "in_progress", "--as", "agent:shell"]);
    said.assert_names(&["a claim is a commit (§8.1)", "not a git repository"]);
}
