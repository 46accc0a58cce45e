//! Tasks that were begun and go nowhere: each is shown with its reason and a command, and the command helps.

use crate::site::{Site, ready};

/// The commands between backquotes in what is said about a task.
fn commands(text: &str, id: &str) -> Vec<Vec<String>> {
    let line = text.lines().find(|line| line.contains(id)).unwrap_or_else(|| panic!("{id}: {text}"));
    let quoted = line.split('`').skip(1).step_by(2).filter_map(|one| one.strip_prefix("agency "));
    let words = |command: &str| {
        // A reason stands between quotes.
        let (plain, reason) = command.split_once('\'').unwrap_or((command, ""));
        let plain = plain.split_whitespace().map(str::to_owned);
        plain.chain((!reason.is_empty()).then(|| reason.trim_end_matches('\'').to_owned())).collect()
    };
    quoted.map(words).collect()
}

/// What both views say about a task.
fn shown(site: &Site, id: &str) -> Vec<Vec<String>> {
    let status = site.ground.ok(&["status"]).out;
    let said: String = status
        .lines()
        .filter(|line| line.starts_with("waits:") || line.starts_with("stale:"))
        .map(|line| format!("{line}\n"))
        .collect();
    let in_status = commands(&said, &format!("{id}: "));
    let dry = site.ground.agency(&["run", "--dry-run"]);
    let in_dry_run = commands(&dry.out, &format!("  {id}  "));
    assert!(!in_status.is_empty(), "{status}");
    assert!(!in_dry_run.is_empty(), "{dry:?}");
    let document = site.ground.ok(&["status", "--json"]).json();
    assert!(
        document["waiting"].as_array().expect("a list").iter().any(|one| one["task"] == *id),
        "{document}"
    );
    in_status
}

fn run_all(site: &Site, command: &[String]) {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    site.ground.ok(&words);
}

#[test]
fn a_claim_that_another_clone_holds_is_shown_and_can_be_taken_back() {
    let site = Site::new(&ready("A-1"));
    site.agent("echo x > src/x");
    assert_eq!(site.moves("A-1", "in_progress", "agent:shell", None).code, 0);
    let shown_commands = shown(&site, "A-1");
    let said = site.ground.agency(&["retry", "A-1"]);
    assert_eq!(said.code, 2, "the next run would not take it: {said:?}");
    said.assert_names(&["belongs to agent:shell, and not to this clone", "task move A-1 blocked --as human"]);
    run_all(&site, &shown_commands[0]);
    assert_eq!(site.state("A-1"), "blocked");
    run_all(&site, &shown(&site, "A-1")[0]);
    assert_eq!(site.ground.agency(&["run"]).code, 0);
    assert_eq!(site.state("A-1"), "done");
}

#[test]
fn a_stale_claim_is_shown_with_the_command_that_reclaims_it_for_anybody() {
    let old = ready("A-1").replace("todo", "in_progress") + "  claimed_at: 2026-01-01T00:00:00Z\n";
    let site = Site::new(&old);
    site.agent("echo x > src/x");
    let said = site.ground.agency(&["retry", "A-1"]);
    assert_eq!(said.code, 2, "{said:?}");
    said.assert_names(&["task move A-1 todo --as human"]);
    run_all(&site, &shown(&site, "A-1")[0]);
    let task = site.task("A-1");
    assert_eq!((task["state"].as_str(), task["owner"].as_str()), (Some("todo"), Some("unassigned")));
    assert!(task["claimed_at"].is_null(), "whose claim it was is in the transitions: {task:?}");
    assert_eq!(site.ground.agency(&["run"]).code, 0);
    assert_eq!(site.state("A-1"), "done");
}

#[test]
fn work_that_was_reported_and_did_not_land_is_shown_and_tried_again() {
    let site = Site::new(&ready("A-1"));
    site.agent("echo x > src/x");
    let said = site.ground.agency(&["run", "--land", "none"]);
    assert_eq!(site.state("A-1"), "to_be_tested", "{said:?}");
    let commands = shown(&site, "A-1");
    assert!(commands.iter().any(|command| command.join(" ") == "retry A-1"), "{commands:?}");
    let said = site.ground.ok(&["retry", "A-1"]);
    said.assert_names(&["the next `agency run` takes it"]);
    assert_eq!(site.ground.agency(&["run"]).code, 0);
    assert_eq!(site.state("A-1"), "done");
}

#[test]
fn a_recommendation_to_block_is_shown_and_can_be_followed_or_overruled() {
    for follow in [false, true] {
        let site = Site::new(&ready("A-1"));
        site.agent("exit 3");
        assert_eq!(site.ground.agency(&["run"]).code, 10);
        let commands = shown(&site, "A-1");
        assert_eq!(commands.len(), 2, "{commands:?}");
        site.agent("echo x > src/x");
        if follow {
            run_all(&site, &commands[1]);
            assert_eq!(site.state("A-1"), "blocked");
            run_all(&site, &shown(&site, "A-1")[0]);
        } else {
            run_all(&site, &commands[0]);
        }
        assert_eq!(site.ground.agency(&["run"]).code, 0);
        assert_eq!(site.state("A-1"), "done");
    }
}

#[test]
fn a_task_without_an_owner_or_of_a_person_is_shown_with_what_helps() {
    let tasks = ready("A-1").replace("todo", "in_progress").replace("agent:shell", "unassigned")
        + &ready("B-1").replace("todo", "to_be_tested").replace("agent:shell", "unassigned")
        + &ready("C-1").replace("todo", "to_be_tested").replace("agent:shell", "human")
        + &ready("D-1").replace("todo", "to_be_tested");
    let site = Site::new(&tasks);
    site.agent("true");
    for (id, state) in [("A-1", "todo"), ("B-1", "blocked"), ("C-1", "done"), ("D-1", "blocked")] {
        run_all(&site, &shown(&site, id)[0]);
        assert_eq!(site.state(id), state, "{id}");
    }
}

/// `retry` opens it, and says what else it waits for.
#[test]
fn a_retry_says_what_a_task_still_waits_for() {
    let site = Site::new(&(ready("A-1") + &ready("B-1") + "  depends_on: [A-1]\n"));
    site.agent("true");
    let said = site.ground.ok(&["retry", "B-1"]);
    said.assert_names(&["no run takes it yet", "it depends on A-1, which is todo"]);
}
