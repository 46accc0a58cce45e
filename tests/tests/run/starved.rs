//! A machine that lacks something: no task answers for it, and the run goes on when it is there again.

use std::path::Path;

use agency_tests::queue::{HONEST, Queue};
use agency_tests::repository::{Actor, actors};

/// Tasks whose supervisor can have only so much of something for a while.
fn starved(actor: Actor, resource: &str, least: u64, says: &str) {
    let queue = Queue::of(actor, &format!("sleep 0.2; {HONEST}"));
    let tasks = queue.tasks(12);
    let run = queue.start(&["--parallel", "4"]);
    queue.until_phase(&tasks[0], "started");
    let prlimit = |arguments: &[&str]| {
        let mut command = queue.ground.program(Path::new("prlimit"));
        let output =
            command.args(["--pid", &run.pid().to_string()]).args(arguments).output().expect("prlimit");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    // The hard limit stays, so that the soft one can be given back.
    let usual = prlimit(&["--raw", "--noheadings", "--output", "SOFT", &format!("--{resource}")]);
    prlimit(&[&format!("--{resource}={least}:")]);
    run.says(says);
    prlimit(&[&format!("--{resource}={usual}:")]);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.err.contains("blocked"), "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

#[test]
fn without_file_descriptors_nothing_is_blocked() {
    starved(actors()[0], "nofile", 16, "nothing new is started until there is");
}

/// Root's processes are not counted.
#[test]
fn without_processes_nothing_is_blocked() {
    let Some(user) = actors().into_iter().find(|actor| *actor == Actor::User) else { return };
    starved(user, "nproc", 1, "nothing new is started until there is");
}

/// What a program writes that runs on an agent's tree says nothing about the machine.
#[test]
fn words_of_a_program_are_no_fault_of_the_machine() {
    let mut queue = Queue::with_agent(HONEST);
    queue.ground.write(".gitignore", "deps/\n");
    queue.ground.write("lock.txt", "one\n");
    queue.agent("other", &format!("echo heavy > lock.txt; {HONEST}"), "");
    let setup = "mkdir -p deps; grep -q one lock.txt || { echo 'JavaScript heap out of memory'; exit 134; }";
    let setup = serde_json::json!(setup);
    queue.tables(&format!("[workspace.setup]\ncommand = {setup}\ncache_key = [\"lock.txt\"]\n"));
    queue.ground.commit_all();
    let id = queue.task("other", &["--may-touch", "lock.txt"]);
    let said = queue.run(&["--parallel", "1"]);
    assert_eq!(said.code, 10, "{said:?}");
    assert!(!said.err.contains("nothing new is started until there is"), "{said:?}");
    said.assert_names(&[&format!("{id} failed: checks could not run")]);
}

/// Time goes by whatever the machine lacks.
#[test]
fn a_run_whose_time_is_over_ends_although_the_machine_lacks_something() {
    let mut queue = Queue::of(actors()[0], &format!("sleep 0.2; {HONEST}"));
    queue.tables("[budget.run]\ntime = \"6s\"\n");
    queue.ground.commit_all();
    let tasks = queue.tasks(12);
    let run = queue.start(&["--parallel", "2"]);
    queue.until_phase(&tasks[0], "started");
    let mut prlimit = queue.ground.program(Path::new("prlimit"));
    let output = prlimit.args(["--pid", &run.pid().to_string(), "--nofile=16:"]).output().expect("prlimit");
    assert!(output.status.success(), "{output:?}");
    let said = run.end();
    // Where the store can't be read, not even a summary can be told.
    assert!([1, 10].contains(&said.code), "{said:?}");
    said.assert_names(&["nothing new is started until there is", "the budget of this run is used up"]);
    assert!(!said.err.contains("blocked"), "{said:?}");
    queue.assert_nothing_at_work();
}
