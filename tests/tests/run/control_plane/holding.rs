//! Holding up, or outrunning, those who run it: locks, a scope that is widened, a rename, a stale owner.

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};
use nix::sys::signal::Signal;

use super::{TRY, WAIT, assert_failed, let_go, log, queue, until_said};

/// An agent sees the real board, and a lock on a file that can only be read is a lock.
#[test]
fn locks_that_an_agent_holds_hold_nobody_up() {
    let mut queue = Queue::new();
    let script = format!(
        "for file in $(find .kodingx .git \"$(dirname \"$AGENCY_REPORT_FILE\")\"); do\n\
         (exec 9<$file && flock -n 9 && echo held && exec sleep 600) >> .git/held 2>/dev/null &\n\
         done\n\
         touch .git/index.lock .git/HEAD.lock .git/packed-refs.lock\n\
         test ! -e {} || echo reachable\n\
         until [ $(wc -l < .git/held) -gt 20 ]; do sleep 0.02; done; {HONEST}\n",
        queue.ground.state_home().display()
    );
    queue.agent("holder", &format!("{script}\n{WAIT}"), "processes = 1000");
    queue.ground.commit_all();
    let (holder, other) = (queue.task("holder", &[]), queue.task("holder", &[]));
    let tasks = queue.tasks(3);
    let named: Vec<&str> = tasks
        .iter()
        .chain([&holder])
        .flat_map(|id| ["--task", id.as_str()])
        .chain(["--parallel", "4"])
        .collect();
    let run = queue.start(&named);
    until_said(&queue, &holder, "waiting");
    // All the others are worked on, reported, verified, landed and settled while it holds on.
    let done = || tasks.iter().all(|id| queue.ground.status(id) == "DONE");
    assert!(wait_until(LONG, done), "somebody waits: {:?}", queue.open_attempts());
    queue.until_phase(&holder, "started");
    let_go(&queue, &other);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!log(&queue, &holder).contains("reachable"), "{}", log(&queue, &holder));
    queue.assert_landed(&[tasks, vec![holder]].concat());
    queue.assert_nothing_left();
}

/// The work waits for the person whose git was killed, says for what, and is not done again.
#[test]
fn an_index_lock_that_somebody_left_is_named_and_waited_for() {
    let queue = Queue::new();
    let tasks = queue.tasks(1);
    queue.ground.write(".git/index.lock", "");
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&["T0001 waits", "index.lock"]);
    assert_eq!(queue.landed().len(), 0);
    assert!(queue.ground.exists(".git/index.lock"), "it is not ours to remove");
    queue.ground.remove(".git/index.lock");
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
    assert!(!queue.records(&tasks[0], 2).exists(), "it was done again");
}

/// Whoever changes it: the agent sees the new text, and is held to the old one.
#[test]
fn a_scope_that_is_widened_after_the_start_is_not_wider() {
    let script = format!(
        "{TRY}try sh -c 'echo \"may_touch: [README.md]\" >> \"$AGENCY_TASK_FILE\"'\n{WAIT}\
         grep -q 'README' \"$AGENCY_TASK_FILE\" && echo wide >> README.md && {HONEST}"
    );
    let queue = queue(&script);
    let (id, other) = (queue.task("shell", &["--may-touch", "NOTES.md"]), queue.task("shell", &[]));
    let run = queue.start(&["--task", &id]);
    until_said(&queue, &id, "waiting");
    let file = queue.ground.file(&id);
    queue.ground.edit(&file, "NOTES.md", "README.md");
    let_go(&queue, &other);
    let said = run.end();
    assert_failed(&queue, &said, &id, 20, &["change refused", "README.md"]);
    assert!(log(&queue, &id).contains("refused: sh -c"), "{}", log(&queue, &id));
    assert_eq!(queue.ground.read("README.md"), "Hello\n");
}

#[test]
fn a_persons_rename_does_not_carry_the_work_out_of_its_scope() {
    let script = format!("echo four >> src/a.txt\n{WAIT}");
    let queue = queue(&script);
    let (id, other) = (queue.task("shell", &[]), queue.task("shell", &[]));
    let run = queue.start(&["--task", &id]);
    until_said(&queue, &id, "waiting");
    queue.ground.write("docs/keep", "");
    queue.ground.git(&["mv", "src/a.txt", "docs/a.txt"]);
    queue.ground.git(&["-c", "user.name=Ada", "commit", "--quiet", "--message=Renamed"]);
    let moved = queue.ground.git(&["rev-parse", "main"]);
    let_go(&queue, &other);
    let said = run.end();
    assert_failed(&queue, &said, &id, 20, &["docs/a.txt would change on the branch"]);
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), moved);
    assert_eq!(queue.ground.read("docs/a.txt"), "one\ntwo\nthree\n");
}

/// The next owner kept the work and landed nothing, so the branch is where the stale one expects it.
#[test]
fn a_stale_owner_lands_nothing_although_the_branch_never_moved() {
    let queue = Queue::new();
    let tasks = queue.tasks(1);
    let before = queue.ground.git(&["rev-parse", "main"]);
    let mut stale = queue.supervise_here(&[&format!("script={HONEST}"), "lease=1", "stop=land:before"]);
    stale.stopped();
    // Nobody takes it over before its lease has run out.
    let kept = || queue.run(&["--land", "none"]).err.contains("verified and kept");
    assert!(wait_until(LONG, kept), "{:?}", queue.open_attempts());
    stale.signal(Signal::SIGCONT);
    stale.gone();
    assert_eq!(queue.ground.git(&["rev-parse", "main"]), before);
    assert_eq!(queue.landed().get(&tasks[0]), None);
    queue.assert_nothing_left();
}
