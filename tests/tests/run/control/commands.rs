//! `ps`, `logs`, `cancel`, `retry`.

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};

use crate::gate;

#[test]
fn ps_shows_what_is_being_worked_on_and_all_shows_what_is_over() {
    let queue = gate::queue(HONEST);
    let said = queue.ground.ok(&["ps"]);
    said.assert_names(&["nothing is being worked on"]);
    let id = queue.tasks(1).remove(0);
    let supervisor = queue.start(&[]);
    gate::begun(&queue, &id, 1);
    let shown = queue.ground.ok(&["ps"]).out;
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert_eq!(words[..4], [id.as_str(), "1", "shell", "started"], "{shown}");
    assert!(shown.contains("A task"), "{shown}");
    let document = queue.ground.ok(&["ps", "--json"]).json();
    assert_eq!(document["version"], 1);
    let attempt = &document["attempts"][0];
    assert_eq!((&attempt["task"]["id"], &attempt["epoch"]), (&id.as_str().into(), &1.into()), "{document}");
    gate::open(&queue);
    assert_eq!(supervisor.end().code, 0);
    assert!(queue.open_attempts().is_empty());
    let all = queue.ground.ok(&["ps", "--all", "--json"]).json();
    assert_eq!(all["attempts"][0]["phase"]["ending"], "done", "{all}");
    assert!(queue.ground.ok(&["ps", "--all"]).out.contains("over"));
    let landed = queue.ground.git(&["rev-parse", "--short=12", "main"]);
    let outcome = format!("landed as {}", landed.trim());
    assert_eq!(all["attempts"][0]["outcome"], outcome.as_str(), "{all}");
    let took = all["attempts"][0]["recorded_at"].as_i64().zip(all["attempts"][0]["claimed_at"].as_i64());
    assert_eq!(
        all["attempts"][0]["elapsed_ms"],
        took.map_or(-1, |(until, from)| (until - from) * 1000),
        "{all}"
    );
    assert!(queue.ground.ok(&["ps", "--all"]).out.contains(&outcome));
}

#[test]
fn logs_shows_what_an_agent_wrote_in_any_of_its_attempts() {
    let script = "if grep -q 'exit code 3' \"$AGENCY_PROMPT_FILE\"; then echo second; echo by > src/x; \
        else echo first; exit 3; fi";
    let queue = Queue::with_agent(script);
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 0);
    assert_eq!(queue.ground.ok(&["logs", &id]).out, "second\n");
    assert_eq!(queue.ground.ok(&["logs", "--attempt", "1", &id]).out, "first\n");
    let said = queue.ground.refused(4, &["logs", "--attempt", "9", &id]);
    said.assert_names(&[&id]);
}

#[test]
fn logs_of_a_task_nobody_has_tried_is_refused() {
    let queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    queue.ground.refused(4, &["logs", &id]).assert_names(&["no attempt", &id]);
    queue.ground.refused(4, &["logs", "-f", "T0099"]).assert_names(&["T0099"]);
}

/// An agent's output is a stranger's: nothing in it reaches a terminal that could do something there.
#[test]
fn logs_moves_no_cursor() {
    let queue = Queue::with_agent("printf 'a\\033[2Jb\\033]0;title\\007c\\n'; echo by > src/x");
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 0);
    let shown = queue.ground.ok(&["logs", &id]).out;
    assert!(!shown.contains('\x1b') && !shown.contains('\x07') && shown.contains('a'), "{shown:?}");
}

#[test]
fn logs_follows_an_agent_to_its_end() {
    let queue = gate::queue(&format!("echo later; {HONEST}"));
    let id = queue.tasks(1).remove(0);
    let supervisor = queue.start(&[]);
    gate::begun(&queue, &id, 1);
    let mut command = queue.ground.command(&["logs", "-f", &id]);
    let shown = queue.path().join("followed");
    command.stdout(std::fs::File::create(&shown).expect("a file"));
    let mut follower = command.spawn().expect("it starts");
    let so_far = || std::fs::read_to_string(&shown).unwrap_or_default();
    assert!(wait_until(LONG, || so_far() == "begun\n"), "{:?}", so_far());
    assert!(follower.try_wait().expect("asked").is_none(), "it has ended, and the agent has not");
    gate::open(&queue);
    assert_eq!(supervisor.end().code, 0);
    assert!(wait_until(LONG, || follower.try_wait().expect("asked").is_some()), "it goes on and on");
    assert_eq!(follower.wait().expect("ended").code(), Some(0));
    assert_eq!(so_far(), "begun\nlater\n");
}

#[test]
fn cancel_stops_an_agent_and_takes_its_task_off_the_board() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(2);
    let supervisor = queue.start(&["--parallel", "2"]);
    tasks.iter().for_each(|id| gate::begun(&queue, id, 1));
    queue.ground.ok(&["cancel", &tasks[0]]);
    supervisor.says(&format!("{} canceled", tasks[0]));
    assert_eq!(queue.ground.status(&tasks[0]), "CANCELED");
    let file = queue.ground.read(&queue.ground.file(&tasks[0]));
    assert!(file.contains("canceled by `agency cancel`"), "{file}");
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.landed().into_keys().collect::<Vec<_>>(), tasks[1..]);
    assert!(!queue.ground.exists(&format!("src/{}", tasks[0])));
    queue.ground.assert_compliant();
    queue.assert_nothing_left();
}

#[test]
fn cancel_of_a_task_nobody_works_on_is_refused_with_what_to_do_instead() {
    let queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    let said = queue.ground.refused(4, &["cancel", &id]);
    said.assert_names(&[&format!("{id} is not being worked on"), &format!("agency task move {id} CANCELED")]);
    assert_eq!(queue.ground.status(&id), "NEW");
}

/// A task that waits for a person's edit can be given up on, too: nothing of it lands later.
#[test]
fn cancel_ends_a_task_that_waits_for_a_person() {
    let queue = Queue::with_agent("echo four >> src/a.txt");
    let id = queue.tasks(1).remove(0);
    queue.ground.write("src/a.txt", "mine\n");
    assert_eq!(queue.run(&[]).code, 10);
    queue.ground.ok(&["cancel", &id]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    assert_eq!(queue.ground.status(&id), "CANCELED");
    queue.ground.git(&["checkout", "--quiet", "src/a.txt"]);
    assert_eq!(queue.run(&[]).code, 0);
    assert!(queue.landed().is_empty());
    queue.assert_nothing_left();
}

/// What counted against the task is forgiven: it has all its attempts again.
/// What has landed can't be taken back by not having noticed it.
#[test]
fn cancel_of_a_task_whose_work_landed_a_moment_ago_comes_too_late() {
    let queue = Queue::new();
    let tasks = queue.tasks(1);
    let mut first = queue.supervise_here(&[&format!("script={HONEST}"), "kill=land:after"]);
    first.gone();
    assert_eq!(queue.landed().len(), 1, "it landed, and nobody has recorded it");
    queue.ground.ok(&["cancel", &tasks[0]]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(&tasks);
    queue.assert_nothing_left();
}

#[test]
fn retry_opens_a_task_again_with_all_its_attempts() {
    let mut queue = Queue::with_agent("exit 3");
    queue.settings("attempts = 2");
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 10);
    assert_eq!(queue.ground.status(&id), "BLOCKED");
    queue.ground.ok(&["retry", &id]).assert_names(&[&id, "agency run"]);
    assert_eq!(queue.ground.status(&id), "ASSIGNED");
    // One more failure, then success: that would be one too many, if the first two still counted.
    queue.agent("shell", "[ $(grep -c '^it ended with exit code 3' \"$AGENCY_PROMPT_FILE\") -lt 3 ] && exit 3; echo by > src/x", "");
    let said = queue.run(&[]);
    assert_eq!(said.code, 0, "{said:?}");
    queue.assert_landed(std::slice::from_ref(&id));
    let attempt = queue.ground.git(&["log", "-1", "--format=%(trailers:key=Agency-Attempt,valueonly)"]);
    assert_eq!(attempt.trim(), "4", "attempts are never counted from the start again");
}

#[test]
fn retry_of_a_task_that_is_done_is_refused() {
    let queue = Queue::new();
    let id = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 0);
    let before = queue.ground.fingerprint();
    let said = queue.ground.agency(&["retry", &id]);
    assert_ne!(said.code, 0, "{said:?}");
    said.assert_names(&[&id, "DONE"]);
    queue.ground.assert_unchanged(&before);
}
