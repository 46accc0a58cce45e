//! `agency run --dry-run`: what would start now, what later, what not, and why. Nothing is started, nothing changed.

use agency_tests::queue::{HONEST, Queue};
use serde_json::{Value as Json, json};

use crate::gate;

/// The document, and that it is for people as well.
#[track_caller]
fn foretold(queue: &Queue, code: i32, arguments: &[&str]) -> Json {
    let arguments = [&["run", "--dry-run"], arguments].concat();
    let people = queue.ground.unchanged(code, &arguments).out;
    let document = queue.ground.unchanged(code, &[&arguments[..], &["--json"]].concat()).json();
    assert_eq!(document["version"], 1);
    for part in ["would_take_over", "would_start", "later", "waiting"] {
        for one in document[part].as_array().expect("a list") {
            for said in ["task", "why"].iter().filter_map(|field| one[field].as_str()) {
                assert!(people.contains(said), "nothing is said of {said:?}: {people}");
            }
        }
    }
    document
}

/// Each task of a part, with what is said of it.
fn part<'a>(document: &'a Json, part: &str, field: &str) -> Vec<(&'a str, &'a str)> {
    let list = document[part].as_array().expect("a list").iter();
    list.map(|one| (one["task"].as_str().expect("an id"), one[field].as_str().unwrap_or_default())).collect()
}

#[test]
fn of_what_would_start_everything_is_told() {
    let mut queue = Queue::new();
    queue.agent("held", HONEST, "isolation = \"landlock\"");
    let [first, second] = [
        queue.task("shell", &["--must-not-touch", "src/secret/**"]),
        queue.task("held", &["--priority", "P1", "--may-touch", "docs/**"]),
    ];
    let document = foretold(&queue, 0, &["--parallel", "4", "--land", "none"]);
    assert_eq!(part(&document, "would_start", "agent"), [(second.as_str(), "held"), (&first, "shell")]);
    let start = &document["would_start"];
    assert_eq!([&start[0]["isolation"], &start[1]["isolation"]], ["landlock", "process"]);
    assert_eq!(start[0]["scope"]["touch"], json!(["src/**", "docs/**"]));
    assert_eq!(start[1]["scope"]["keep"], json!(["src/secret/**"]));
    assert_eq!([&start[0]["profile"], &start[0]["lands"]], ["quick", "nowhere: it is verified and kept"]);
    let people = queue.ground.ok(&["run", "--dry-run", "--task", &first]).out;
    let line = "isolation process, scope src/** but not src/secret/**, profile quick, lands on main";
    assert!(people.contains(line), "{people}");
}

#[test]
fn what_has_to_wait_for_room_is_told_for_which() {
    let mut queue = Queue::new();
    queue.agent("single", HONEST, "parallel = 1");
    queue.agent("large", HONEST, "memory = \"100TiB\"");
    let [one, two] = [(); 2].map(|()| queue.task("single", &["--priority", "P0"]));
    let large = queue.task("large", &["--priority", "P1"]);
    let [three, four] = [(); 2].map(|()| queue.task("shell", &[]));
    let document = foretold(&queue, 0, &["--parallel", "2"]);
    assert_eq!(part(&document, "would_start", "agent"), [(one.as_str(), "single"), (&three, "shell")]);
    let most = "2 agents work at a time (--parallel)";
    assert_eq!(part(&document, "later", "why"), [(two.as_str(), most), (&large, most), (&four, most)]);
    let document = foretold(&queue, 0, &["--parallel", "9"]);
    assert_eq!(
        part(&document, "later", "why"),
        [
            (two.as_str(), "1 of `single` at a time (agents.single.parallel)"),
            (&large, "`large` may need 104857600 MiB of memory, and less is free"),
        ]
    );
}

#[test]
fn what_would_not_start_at_all_is_told_why() {
    let queue = Queue::with_agent("exit 3");
    queue.ground.edit("agency.toml", "[run]", "[run]\nattempts = 1");
    queue.ground.ok(&["trust", "--yes"]);
    let blocked = queue.tasks(1).remove(0);
    assert_eq!(queue.run(&[]).code, 10);
    let waits = queue.task("shell", &["--depends-on", &blocked]);
    let bare = queue.task("shell", &[]);
    queue.ground.edit(&queue.ground.file(&bare), "may_touch: []", "may_touch: {}");
    queue.ground.write(".kodingx/inbox/shell/2026-01-01/T0999-0000-odd.md", "no header\n");
    let reported = queue.task("shell", &[]);
    queue.ground.set_status(&reported, "READY_FOR_REVIEW");
    let document = foretold(&queue, 0, &[]);
    assert_eq!(document["would_start"], json!([]), "{document}");
    let why: Vec<_> = part(&document, "waiting", "why");
    let of = |id: &str| why.iter().find(|(task, _)| *task == id).map_or("", |(_, why)| why);
    assert!(of(&blocked).contains("it is blocked"), "{document}");
    assert!(of(&waits).contains(&format!("it depends on {blocked}, which is BLOCKED")), "{document}");
    assert!(of(&bare).contains("scope is missing or wrong"), "{document}");
    assert!(of(&reported).contains("there is no report on it"), "{document}");
    assert!(document["findings"].to_string().contains("T0999"), "{document}");
    queue.ground.unchanged(0, &["run", "--dry-run"]).assert_names(&["T0999-0000-odd.md"]);
}

#[test]
fn what_others_have_and_what_they_left_is_told_apart() {
    let queue = gate::queue(HONEST);
    let tasks = queue.tasks(2);
    let supervisor = queue.start(&[]);
    gate::begun(&queue, &tasks[0], 1);
    let document = foretold(&queue, 0, &[]);
    assert_eq!(part(&document, "waiting", "why"), [(tasks[0].as_str(), "another `agency run` has it")]);
    assert_eq!(part(&document, "would_start", "agent"), [(tasks[1].as_str(), "shell")]);
    supervisor.kill();
    let document = foretold(&queue, 0, &[]);
    assert_eq!(part(&document, "would_take_over", "agent"), [(tasks[0].as_str(), "shell")]);
    assert_eq!(part(&document, "later", "agent"), [(tasks[1].as_str(), "shell")], "one at a time");
    queue.ground.ok(&["pause"]);
    let document = foretold(&queue, 0, &["--parallel", "2"]);
    assert_eq!(part(&document, "later", "why"), [(tasks[1].as_str(), "paused; `agency resume` goes on")]);
    queue.ground.ok(&["resume"]);
    gate::open(&queue);
    assert_eq!(queue.run(&[]).code, 0);
    queue.assert_landed(&tasks);
}

/// A run would refuse to begin; what it would say is said, and what is held up by it.
#[test]
fn an_agent_that_can_not_be_started_is_told_and_whom_it_holds_up() {
    let queue = Queue::new();
    let [fine, odd] = [queue.task("shell", &[]), queue.task("ghost", &[])];
    let document = foretold(&queue, 2, &[]);
    assert_eq!(document["would_start"], json!([]), "{document}");
    assert!(document["refused"].as_str().is_some_and(|why| why.contains("no such agent")), "{document}");
    let later = part(&document, "later", "why");
    let of = |id: &str| later.iter().find(|(task, _)| *task == id).map_or("", |(_, why)| why);
    assert!(of(&odd).starts_with("`ghost` can't be started: "), "{document}");
    assert_eq!(of(&fine), "a run does not begin before `ghost` can be started");
    let document = foretold(&queue, 0, &["--agent", "shell"]);
    assert_eq!(part(&document, "would_start", "agent"), [(fine.as_str(), "shell")]);
    // What nobody trusts has no say.
    queue.ground.edit("agency.toml", "[run]", "# changed\n[run]");
    let document = foretold(&queue, 2, &["--agent", "shell"]);
    assert!(document["refused"].as_str().is_some_and(|why| why.contains("is not trusted")), "{document}");
}
