//! What starts first, and how much runs at once.

use agency_tests::processes::wait_until;
use agency_tests::queue::{HONEST, LONG, Queue};

use crate::gate;

/// The tasks on the branch, the first to land first.
fn landed_in_order(queue: &Queue) -> Vec<String> {
    let format = "--format=%(trailers:key=Agency-Task,valueonly)";
    let log = queue.ground.git(&["log", "--reverse", "main", format]);
    log.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_most_urgent_task_is_first() {
    let queue = Queue::new();
    let [third, first, second, last] =
        ["P2", "P0", "P1", "P3"].map(|priority| queue.task("shell", &["--priority", priority]));
    let said = queue.run(&["--parallel", "1"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(landed_in_order(&queue), [first, second, third, last]);
}

/// Each finds on its branch what it depends on.
#[test]
fn a_task_starts_when_what_it_depends_on_has_landed() {
    let script = "for other in $(grep -oE '\\bT[0-9]{4}\\b' \"$AGENCY_TASK_FILE\" | sort -u); do\n  \
        echo about $other; [ $other = $AGENCY_TASK_ID ] || test -e src/$other || exit 9\ndone\n\
        echo by > src/$AGENCY_TASK_ID";
    let queue = Queue::with_agent(script);
    let first = queue.task("shell", &["--priority", "P3"]);
    let second = queue.task("shell", &["--priority", "P2", "--depends-on", &first]);
    let third = queue.task("shell", &["--priority", "P0", "--depends-on", &second]);
    let said = queue.run(&["--parallel", "4"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(gate::output(&queue, &third, 1), format!("about {second}\nabout {third}\n"));
    assert_eq!(landed_in_order(&queue), [first, second, third]);
}

#[test]
fn a_task_that_depends_on_a_blocked_one_waits_and_says_so() {
    let mut queue = Queue::with_agent("exit 3");
    queue.settings("attempts = 1");
    let first = queue.task("shell", &[]);
    let second = queue.task("shell", &["--depends-on", &first]);
    let said = queue.run(&[]);
    assert_eq!(said.code, 10, "{said:?}");
    said.assert_names(&[&format!("{second} waits: it depends on {first}, which is BLOCKED")]);
    assert!(!queue.records(&second, 1).exists());
}

/// When an agent was at work, by its own clock: within its real time, never beyond.
fn times(queue: &Queue, id: &str) -> (u128, u128) {
    let output = gate::output(queue, id, 1);
    let at = |word: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(word));
        line.and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| panic!("no {word:?}: {output}"))
    };
    (at("from"), at("until"))
}

/// The most that were at work at the same moment.
fn most_at_once(times: &[(u128, u128)]) -> usize {
    let at = |moment: u128| times.iter().filter(|(from, until)| (*from..=*until).contains(&moment)).count();
    times.iter().map(|(from, _)| at(*from)).max().unwrap_or(0)
}

fn timed(script: &str) -> String {
    let work = gate::behind(script);
    format!("echo from $(date +%s%N)\n{work}\necho until $(date +%s%N)")
}

#[test]
fn no_more_run_at_once_than_may() {
    let queue = gate::queue_of(&timed(HONEST));
    let tasks = queue.tasks(5);
    let supervisor = queue.start(&["--parallel", "2"]);
    gate::begun(&queue, &tasks[0], 1);
    gate::begun(&queue, &tasks[1], 1);
    // Whatever it would start beside them, it has claimed before an agent is at work.
    assert_eq!(queue.open_attempts().len(), 2);
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 0, "{said:?}");
    let times: Vec<_> = tasks.iter().map(|id| times(&queue, id)).collect();
    assert_eq!(most_at_once(&times), 2);
    queue.assert_landed(&tasks);
}

#[test]
fn one_runs_at_a_time_if_nobody_says_how_many() {
    let queue = gate::queue_of(&timed(HONEST));
    let tasks = queue.tasks(3);
    gate::open(&queue);
    assert_eq!(queue.run(&[]).code, 0);
    let times: Vec<_> = tasks.iter().map(|id| times(&queue, id)).collect();
    assert_eq!(most_at_once(&times), 1);
}

#[test]
fn an_agent_has_a_number_of_its_own() {
    let mut queue = gate::queue_of(&timed(HONEST));
    queue.agent("shell", &timed(HONEST), "parallel = 1");
    queue.agent("other", &timed(HONEST), "");
    let held = queue.tasks(3);
    let free: Vec<String> = (0..2).map(|_| queue.task("other", &[])).collect();
    let supervisor = queue.start(&["--parallel", "4"]);
    let all_begun = || {
        let begun = [&held[0], &free[0], &free[1]].map(|id| gate::starts(&queue, id, 1));
        begun == [1; 3]
    };
    assert!(wait_until(LONG, all_begun), "{:?}", queue.open_attempts());
    assert_eq!(queue.open_attempts().len(), 3, "one of four places stays empty");
    gate::open(&queue);
    let said = supervisor.end();
    assert_eq!(said.code, 0, "{said:?}");
    let of_held: Vec<_> = held.iter().map(|id| times(&queue, id)).collect();
    assert_eq!(most_at_once(&of_held), 1);
    let all: Vec<_> = held.iter().chain(&free).map(|id| times(&queue, id)).collect();
    assert!(most_at_once(&all) >= 3);
}

/// `run.parallel` counts where the flag says nothing.
#[test]
fn how_many_run_at_once_can_be_configured() {
    let mut queue = gate::queue_of(&timed(HONEST));
    queue.settings("parallel = 3");
    let tasks = queue.tasks(3);
    let supervisor = queue.start(&[]);
    tasks.iter().for_each(|id| gate::begun(&queue, id, 1));
    gate::open(&queue);
    assert_eq!(supervisor.end().code, 0);
    queue.assert_landed(&tasks);
}
