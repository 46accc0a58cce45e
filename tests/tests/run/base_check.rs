//! The checks of a profile run once on the branch as it is, before an agent is paid for work that can't be verified.

use std::fs;

use agency_tests::queue::{HONEST, Queue, Supervisor};
use nix::sys::signal::Signal;

/// A task whose profile runs these commands.
fn task(queue: &Queue, profile: &str, commands: &[&str]) -> String {
    if !commands.is_empty() {
        queue.ground.profile(profile, commands);
        queue.ground.commit_all();
    }
    queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", profile])
}

/// No agent was started for it, and the board says that nobody began.
#[track_caller]
fn assert_untouched(queue: &Queue, id: &str) {
    assert!(!queue.records(id, 1).exists(), "{id} has an attempt");
    assert!(["NEW", "ASSIGNED"].contains(&queue.ground.status(id).as_str()), "{}", queue.ground.status(id));
}

#[test]
fn a_profile_that_cannot_be_resolved_stops_its_own_tasks_and_no_agent_is_paid() {
    let queue = Queue::new();
    let honest = queue.task("shell", &[]);
    let (mistyped, unknown) = (queue.task("shell", &[]), queue.task("shell", &[]));
    for (id, profile) in [(&mistyped, "quikc"), (&unknown, "auto")] {
        let file = queue.ground.file(id);
        queue.ground.edit(&file, "dod_profile: quick", &format!("dod_profile: {profile}"));
    }
    let untrusted = task(&queue, "own", &["true"]);
    queue.ground.edit(".kodingx/dod/profiles/own.yml", "[\"true\"]", "[\"true\", \"true\"]");
    let inapplicable = task(&queue, "node_strict", &[]);
    let said = queue.run(&["--parallel", "2"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[
        "there is no profile `quikc`; did you mean `quick`?",
        "no environment was recognised",
        ".kodingx/dod/profiles/own.yml is the repository's own profile, and is not trusted as it is",
        "the profile `node_strict` has no command for this repository",
    ]);
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [honest]);
    for id in [&mistyped, &unknown, &untrusted, &inapplicable] {
        assert!(!queue.records(id, 1).exists(), "{id}: {said:?}");
        assert_untouched(&queue, id);
    }
    // What a person mends is tried again.
    queue.ground.ok(&["trust", "--yes"]);
    assert_eq!(queue.run(&["--task", &untrusted]).code, 0);
}

#[test]
fn a_missing_program_or_a_failing_setup_stops_tasks_with_the_lines_to_add() {
    let mut queue = Queue::new();
    queue.ground.write("package.json", "{\"scripts\":{\"test\":\"no-such-runner\"}}");
    queue.ground.write("package-lock.json", "{}");
    queue.ground.write(".gitignore", "node_modules/\n");
    let id = task(&queue, "program", &["echo looking; no-such-runner"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[
        "tasks of the profile `program` don't start",
        "ended with exit code 127 (a program is missing)",
        "its last output: looking",
        "no-such-runner",
        "logs/01-echo-looking-no-such-runner.log",
        "add to agency.toml, below [workspace]: setup = { command = \"npm ci\", cache_key = \
         [\"package-lock.json\", \"package.json\"], network = [\"registry.npmjs.org:443\"] }",
        &format!("{id} waits: the checks of `program` can't pass here"),
    ]);
    assert_untouched(&queue, &id);
    queue.tables(
        "[workspace.setup]\ncommand = \"echo no such package >&2; exit 7\"\ncache_key = [\"package-lock.json\"]\n",
    );
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["the setup", "ended with exit code 7", "no such package"]);
    assert_untouched(&queue, &id);
    queue.assert_nothing_left();
}

#[test]
fn checks_that_fail_on_the_base_are_a_warning_and_the_task_that_fixes_them_lands() {
    let queue = Queue::with_agent("echo fixed > src/a.txt");
    let id = task(&queue, "red", &["echo is it fixed; grep fixed src/a.txt"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&[
        "the checks of `red` fail on the branch as it is",
        "ended with exit code 1; its last output: is it fixed",
        "log: ",
    ]);
    queue.assert_landed(&[id]);
}

#[test]
fn a_check_of_the_repositorys_own_may_be_what_a_task_is_to_write() {
    let queue = Queue::with_agent("printf '#!/bin/sh\n' > src/check.sh; chmod +x src/check.sh");
    let id = task(&queue, "own", &["./src/check.sh"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["the checks of `own` fail on the branch as it is"]);
    queue.assert_landed(&[id]);
}

#[test]
fn checks_run_once_for_a_tree_and_again_when_it_changes() {
    let queue = Queue::new();
    let first = queue.tasks(2);
    let said = queue.run(&["--parallel", "2"]);
    assert_eq!(said.code, 0, "{said:?}");
    let tried = || fs::read_dir(queue.state().join("base-checks")).expect("a folder").count();
    assert_eq!(tried(), 1, "{said:?}");
    queue.assert_landed(&first);
    // Nothing was committed beside what landed, and that was another tree.
    queue.task("shell", &[]);
    let said = queue.run(&["--land", "none"]);
    assert_eq!((said.code, tried()), (0, 2), "{said:?}");
    let again = queue.task("shell", &[]);
    let said = queue.run(&["--land", "none", "--task", &again]);
    assert_eq!((said.code, tried()), (0, 2), "{said:?}");
}

#[test]
fn a_person_who_does_not_want_it_says_so() {
    let mut queue = Queue::new();
    queue.settings("check_base = \"never\"");
    let id = task(&queue, "program", &["no-such-runner || :"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!queue.state().join("base-checks").exists(), "{said:?}");
    queue.assert_landed(&[id]);
    queue.ground.edit("agency.toml", "\"never\"", "\"perhaps\"");
    queue.ground.ok(&["trust", "--yes"]);
    queue.ground.refused(2, &["run"]).assert_names(&["run.check_base must be auto or never"]);
}

/// It is the last thing that a run may be killed in, and the next one does it again.
#[test]
fn a_run_that_is_killed_or_stopped_while_the_base_is_checked_leaves_nothing_at_work() {
    let queue = Queue::with_agent(HONEST);
    queue.ground.write("wait", "");
    let id = task(&queue, "slow", &["while [ -e wait ]; do read -t 0.05 none < /dev/zero || :; done"]);
    let begun = |run: &Supervisor| {
        run.says("running the checks of `slow` on the branch before the first agent starts");
    };
    let run = queue.start(&[]);
    begun(&run);
    run.signal(Signal::SIGINT);
    let said = run.end();
    assert_eq!(said.code, 130, "{said:?}");
    queue.ground.write("README.md", "Another tree\n");
    queue.ground.commit_all();
    let run = queue.start(&[]);
    begun(&run);
    run.kill();
    assert_untouched(&queue, &id);
    queue.ground.remove("wait");
    queue.ground.commit_all();
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
    assert!(fs::read_dir(queue.state().join("base-checks")).expect("a folder").count() >= 1);
}

/// It is that task's own trouble: the others are not as long.
#[test]
fn a_task_that_is_too_long_for_its_agents_arguments_stops_no_other() {
    let queue = Queue::new();
    let (long, short) = (queue.task("shell", &[]), queue.task("shell", &[]));
    let text = queue.ground.read("agency.toml");
    let command = text.lines().find(|line| line.starts_with("command = ")).expect("a command");
    let longer = format!("{},\"{{prompt}}\"]", command.trim_end_matches(']'));
    queue.ground.edit("agency.toml", command, &longer);
    queue.ground.ok(&["trust", "--yes"]);
    let file = queue.ground.file(&long);
    let text = queue.ground.read(&file) + &"word ".repeat(60_000);
    queue.ground.write(&file, text);
    let said = queue.run(&["--parallel", "1"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["is too long for an argument of a program", "{prompt_file}"]);
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [short]);
}

/// What one run found must not be removed by another before it is read: an agent would be paid for nothing.
#[test]
fn runs_that_check_the_base_at_the_same_time_all_believe_what_is_found() {
    let queue = Queue::new();
    let id = task(&queue, "program", &["read -t 0.2 none < /dev/zero; no-such-runner"]);
    for _ in 0..3 {
        let runs = [queue.start(&[]), queue.start(&[]), queue.start(&[])];
        for said in runs.map(Supervisor::end) {
            assert_eq!(said.code, 10, "{said:?}");
            said.assert_names(&["tasks of the profile `program` don't start"]);
        }
    }
    assert_untouched(&queue, &id);
    queue.assert_nothing_left();
}
