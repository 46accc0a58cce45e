//! Agents that fail: what is tried again, what they are told, and when it is over.

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What is said on the task's file, and nothing of the work on the branch.
#[track_caller]
fn assert_blocked(queue: &Queue, id: &str, reason: &str, attempts: u64) {
    assert_eq!(queue.ground.status(id), "BLOCKED");
    let task = queue.ground.read(&queue.ground.file(id));
    assert!(task.contains(reason), "no {reason:?}: {task}");
    assert!(queue.landed().is_empty(), "{:?}", queue.landed());
    assert!(queue.records(id, attempts).exists(), "it was not tried {attempts} times");
    assert!(!queue.records(id, attempts + 1).exists(), "it was tried more than {attempts} times");
    queue.ground.assert_compliant();
    queue.assert_nothing_left();
}

/// The agent of this test works only once it is told how both attempts before it ended.
#[test]
fn an_agent_that_fails_is_tried_again_and_told_why_every_time() {
    let script = "\
        if [ \"$(grep -c 'exit code 3; its last words: no compiler' \"$AGENCY_PROMPT_FILE\")\" = 2 ]; then\n  \
        mkdir -p src; echo told > src/$AGENCY_TASK_ID\nelse\n  echo no compiler; exit 3\nfi";
    let queue = Queue::with_agent(script);
    let tasks = queue.tasks(1);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["tried again"]);
    queue.assert_landed(&tasks);
    let attempt = queue.ground.git(&["log", "-1", "--format=%(trailers:key=Agency-Attempt,valueonly)"]);
    assert_eq!(attempt.trim(), "3");
    queue.assert_nothing_left();
}

#[test]
fn a_task_is_given_up_on_after_its_attempts() {
    let mut queue = Queue::with_agent("echo no compiler; exit 3");
    queue.settings("attempts = 2");
    let id = queue.tasks(1).remove(0);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&id, "exit code 3", "no compiler", "0 of 1 tasks done"]);
    assert_blocked(&queue, &id, "exit code 3; its last words: no compiler (2 attempts)", 2);
}

/// The count is of a task, not of a run.
#[test]
fn attempts_of_an_earlier_run_count() {
    let mut queue = Queue::with_agent("exit 3");
    queue.settings("attempts = 1");
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 10);
    queue.ground.edit("agency.toml", "attempts = 1", "attempts = 2");
    queue.ground.ok(&["trust", "--yes"]);
    queue.ground.set_status(&id, "ASSIGNED");
    assert_eq!(queue.run(&[]).code, 10);
    assert_blocked(&queue, &id, "(2 attempts)", 2);
}

/// Also of one whose state folder is gone: what git knows is counted on from.
#[test]
fn attempts_go_on_from_what_git_knows_when_the_state_is_gone() {
    let mut queue = Queue::with_agent("exit 3");
    queue.settings("attempts = 1");
    let tasks = queue.tasks(1);
    assert_eq!(queue.run(&[]).code, 10);
    std::fs::remove_dir_all(queue.state()).expect("removed");
    queue.agent("shell", HONEST, "");
    queue.ground.set_status(&tasks[0], "ASSIGNED");
    let refused = queue.run(&[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    refused.assert_names(&["names another store", "agency adopt"]);
    queue.ground.ok(&["adopt", "--yes"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    let attempt = queue.ground.git(&["log", "-1", "--format=%(trailers:key=Agency-Attempt,valueonly)"]);
    assert_eq!(attempt.trim(), "2");
}

/// Checks that take the machine's memory, say, and are killed for it, are not begun for ever.
#[test]
fn checks_that_are_killed_every_time_are_a_failure() {
    let mut queue = Queue::new();
    queue.settings("attempts = 1\ncheck_base = \"never\"");
    queue.ground.profile("slow", &["sleep 600"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "slow"]);
    let run = queue.start(&[]);
    for number in 1..=3 {
        let proof = queue.records(&id, 1).join(format!("verify-{number}"));
        assert!(wait_until(LONG, || proof.join("started").exists()), "proof {number} does not start");
        let folder = proof.display().to_string();
        let shim = queue.marker().alive().into_iter().find(|one| one.command.contains(&folder));
        let pid = i32::try_from(shim.expect("a shim").pid).expect("a process");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");
    }
    let said = run.end();
    assert_eq!(said.code, 10, "{said:?}");
    assert_blocked(&queue, &id, "its checks were killed 3 times in a row", 1);
}

/// One that fails does not keep the others waiting.
#[test]
fn others_go_on_beside_a_task_that_fails() {
    let script = "if [ $AGENCY_TASK_ID = T0001 ]; then exit 3; fi; echo by > src/$AGENCY_TASK_ID";
    let queue = Queue::with_agent(script);
    let tasks = queue.tasks(3);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), tasks[1..]);
    assert_eq!(queue.ground.status(&tasks[0]), "BLOCKED");
}

/// Work is proved on top of what is about to land; where that does not hold, nobody else is blamed for it.
#[test]
fn whoever_stands_on_work_that_fails_has_not_failed() {
    let mut queue = crate::gate::queue(HONEST);
    queue.agent("bad", "mkdir -p src && echo by > src/bad", "");
    queue.settings("attempts = 1");
    queue.ground.profile("soon", &["test ! -e src/bad"]);
    queue.ground.profile("late", &["sleep 8; test ! -e src/bad"]);
    queue.ground.commit_all();
    let bad = queue.ground.task("Bad", &["--assignee", "bad", "--dod-profile", "late"]);
    let good = queue.ground.task("Good", &["--assignee", "shell", "--dod-profile", "soon"]);
    let run = queue.start(&["--parallel", "2"]);
    queue.until_phase(&bad, "merged");
    crate::gate::open(&queue);
    let said = run.end();
    assert_eq!(said.code, 10, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&good));
    assert_eq!(queue.ground.status(&bad), "BLOCKED");
    assert!(queue.records(&good, 1).join("verify-2").exists(), "it never stood on what failed: {said:?}");
    queue.assert_nothing_left();
}

/// The branch moves while an agent mends its work: it goes on from what it had, on the branch as it is then.
#[test]
fn whoever_mends_goes_on_from_their_own_work_on_the_branch_as_it_is() {
    let script = "\
        if [ -e src/$AGENCY_TASK_ID ]; then cat src/moved > src/mended; else mkdir -p src; echo by > src/$AGENCY_TASK_ID; fi";
    let mut queue = Queue::with_agent(script);
    queue.settings("attempts = 1");
    queue.ground.profile("strict", &["test -e src/mended"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "strict"]);
    assert_eq!(queue.run(&[]).code, 10);
    queue.ground.write("src/moved", "by a person\n");
    queue.ground.git(&["add", "src/moved"]);
    queue.ground.git(&["commit", "--quiet", "--message", "By a person"]);
    queue.ground.ok(&["retry", &id]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert_eq!(queue.ground.read("src/mended"), "by a person\n");
    assert_eq!(queue.ground.read(&format!("src/{id}")), "by\n");
    queue.assert_nothing_left();
}

/// Earlier work that somebody has cleared away in git is begun anew.
#[test]
fn whoever_has_nothing_left_of_their_work_begins_anew() {
    let script = "\
        if grep -q 'begin anew' $AGENCY_PROMPT_FILE; then touch src/mended; fi\n\
        mkdir -p src; echo by > src/$AGENCY_TASK_ID";
    let mut queue = Queue::with_agent(script);
    queue.settings("attempts = 1");
    queue.ground.profile("strict", &["test -e src/mended"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "strict"]);
    assert_eq!(queue.run(&[]).code, 10);
    queue.ground.git(&["update-ref", "-d", &format!("refs/agency/kodingx/{id}/1")]);
    queue.ground.git(&["gc", "--quiet", "--prune=now"]);
    queue.ground.ok(&["retry", &id]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&[id]);
}

/// Whoever mends by taking everything back has done nothing, however green the checks are then.
#[test]
fn whoever_takes_their_work_back_has_done_nothing() {
    let script = "\
        if grep -q 'checks failed' $AGENCY_PROMPT_FILE; then git checkout --quiet HEAD~1 -- src/a.txt\n\
        else echo broken > src/a.txt; fi";
    let mut queue = Queue::with_agent(script);
    queue.settings("attempts = 2");
    queue.ground.profile("strict", &["grep -q two src/a.txt"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "strict"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_blocked(
        &queue,
        &id,
        "it took back what it had done, and made no change to required files (src/**)",
        2,
    );
}

/// What three others broke before it lands is not its own.
#[test]
fn whoever_stands_on_several_that_fail_has_not_failed() {
    let mut queue = crate::gate::queue(HONEST);
    for number in 1..=4 {
        queue.agent(&format!("bad{number}"), &format!("mkdir -p src && echo by > src/bad{number}"), "");
    }
    queue.settings("attempts = 1");
    queue.ground.profile("soon", &["! ls src/bad*"]);
    for number in 1..=4 {
        // One after the other: each breaks those behind it once more.
        queue.ground.profile(
            &format!("late{number}"),
            &[&format!("sleep {}; test ! -e src/bad{number}", 5 + number)],
        );
    }
    queue.ground.commit_all();
    for number in 1..=4 {
        let (agent, profile) = (format!("bad{number}"), format!("late{number}"));
        queue.ground.task(
            "Bad",
            &["--assignee", &agent, "--dod-profile", &profile, "--must-touch", &format!("src/bad{number}")],
        );
    }
    let good = queue.ground.task("Good", &["--assignee", "shell", "--dod-profile", "soon"]);
    let run = queue.start(&["--parallel", "8"]);
    for number in 1..=4 {
        queue.until_phase(&format!("T000{number}"), "merged");
    }
    crate::gate::open(&queue);
    let said = run.end();
    assert_eq!(said.code, 10, "{said:?}");
    assert!(!said.err.contains("its checks were killed"), "{said:?}");
    queue.assert_landed(&[good]);
}

/// Work that does not merge any more is shown, and begun anew.
#[test]
fn whoever_was_in_conflict_sees_what_they_did() {
    let script = "\
        echo begun\nuntil grep -q open .kodingx/gate; do sleep 0.02; done\n\
        if [ -e .git/AGENCY_BEFORE.patch ]; then grep -c '+by an agent' .git/AGENCY_BEFORE.patch; fi\n\
        sed -i 's/.*two.*/by an agent/' src/a.txt";
    let queue = crate::gate::queue_of(script);
    let id = queue.tasks(1).remove(0);
    let run = queue.start(&[]);
    crate::gate::begun(&queue, &id, 1);
    queue.ground.write("src/a.txt", "one\nby a person, two\nthree\n");
    queue.ground.git(&["add", "src/a.txt"]);
    queue.ground.git(&["commit", "--quiet", "--message", "By a person"]);
    crate::gate::open(&queue);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    said.assert_names(&["merge conflict in src/a.txt"]);
    assert_eq!(queue.ground.read("src/a.txt"), "one\nby an agent\nthree\n");
    assert!(crate::gate::output(&queue, &id, 2).ends_with("1\n"), "{}", crate::gate::output(&queue, &id, 2));
    queue.assert_landed(&[id]);
}

/// Earlier work that the scope does not allow any more is not gone on with.
#[test]
fn a_scope_that_became_smaller_holds_for_earlier_work_too() {
    let script = "\
        if [ -e src/a/$AGENCY_TASK_ID ]; then exit 9; fi\n\
        mkdir -p src/b; echo by > src/b/$AGENCY_TASK_ID\n\
        if ! grep -q 'checks failed' $AGENCY_PROMPT_FILE; then mkdir -p src/a; echo by > src/a/$AGENCY_TASK_ID; fi";
    let mut queue = Queue::with_agent(script);
    queue.settings("attempts = 1");
    queue.ground.profile("strict", &["test ! -e src/a"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "strict"]);
    assert_eq!(queue.run(&[]).code, 10);
    queue.ground.edit(&queue.ground.file(&id), "src/**", "src/b/**");
    queue.ground.ok(&["retry", &id]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert!(queue.ground.exists(&format!("src/b/{id}")) && !queue.ground.exists("src/a"));
}

/// The work is verified as it would land; the agent hears which check failed.
#[test]
fn work_that_is_not_done_goes_back_to_its_agent_with_the_check_that_failed() {
    let script = "echo by > src/$AGENCY_TASK_ID\n\
        if grep -q '`test -e src/missing` ended with exit code 1' \"$AGENCY_PROMPT_FILE\"; then\n  \
        echo there > src/missing\nfi";
    let queue = Queue::with_agent(script);
    queue.ground.profile("strict", &["test -e src/missing"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "strict"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    assert_eq!(queue.ground.read("src/missing"), "there\n");
    let attempt = queue.ground.git(&["log", "-1", "--format=%(trailers:key=Agency-Attempt,valueonly)"]);
    assert_eq!(attempt.trim(), "2");
}

#[test]
fn work_that_is_never_done_is_blocked_and_does_not_land() {
    let mut queue = Queue::new();
    queue.settings("attempts = 2");
    queue.ground.profile("never", &["true", "false"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "never"]);
    let before = queue.ground.git(&["rev-parse", "main"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["checks failed: `false` ended with exit code 1"]);
    assert_blocked(&queue, &id, "`false` ended with exit code 1 (2 attempts)", 2);
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
}

#[test]
fn an_agent_that_changes_nothing_of_what_it_must_has_failed() {
    let mut queue = Queue::with_agent("mkdir -p docs && echo a lot > docs/$AGENCY_TASK_ID");
    queue.settings("attempts = 1");
    let id = queue.task("shell", &["--may-touch", "docs/**"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["it made no change to required files (src/**)"]);
    assert_blocked(&queue, &id, "it made no change to required files (src/**)", 1);
    assert!(!queue.ground.exists("docs"));
}

/// Nobody is asked to do again what the same scope would refuse again.
#[test]
fn a_change_out_of_scope_lands_nothing_and_is_not_tried_again() {
    let queue = Queue::with_agent("echo by > src/$AGENCY_TASK_ID; echo more >> src/a.txt");
    let id = queue.task("shell", &["--must-not-touch", "src/a.txt"]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 20, "{said:?}");
    said.assert_names(&["src/a.txt"]);
    assert_blocked(&queue, &id, "src/a.txt", 1);
    assert!(!queue.ground.exists(&format!("src/{id}")));
}

/// What is missing stays missing, for whoever comes next, too: a person should look.
#[test]
fn a_program_that_is_missing_stops_the_tasks_of_its_agent_alone() {
    let mut queue = Queue::new();
    // It is there, and what it is run by is not.
    let program = queue.ground.write_program("program", "#!/no/such/interpreter\n");
    queue.agent("absent", HONEST, "");
    queue.ground.edit("agency.toml", "command = [\"sh\"", &format!("command = [\"{}\"", program.display()));
    queue.ground.ok(&["trust", "--yes"]);
    let absent = queue.task("absent", &["--priority", "P0"]);
    let next = queue.task("absent", &[]);
    let other = queue.task("shell", &[]);
    let said = queue.run(&["--parallel", "1"]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[
        &absent,
        "its program could not be started: No such file or directory",
        &format!("{next} waits: `absent` can't be started: its program could not be started"),
    ]);
    assert_eq!(queue.ground.status(&absent), "BLOCKED");
    assert!(!queue.records(&next, 1).exists());
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), [other]);
}
