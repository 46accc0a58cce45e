//! `docs/events.md` describes what `agency run --json` prints: all of it, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use agency_tests::ground::Said;
use agency_tests::queue::{HONEST, Queue, Supervisor};
use nix::sys::signal::Signal;
use serde_json::Value as Json;

use crate::gate;

type Fields = BTreeSet<String>;

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    fs::read_to_string(root.join(path)).expect("text")
}

/// What is described: each event with its fields, beside those that all have. Its example has exactly these.
fn described() -> BTreeMap<String, Fields> {
    let page = text("docs/events.md");
    let mut found = BTreeMap::new();
    for section in page.split("\n## `").skip(1) {
        let section = section.split("\n## ").next().unwrap_or_default();
        let (name, rest) = section.split_once('`').expect("a name");
        let rows = rest.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let fields: Fields = rows.map(|(field, _)| field.to_owned()).collect();
        let example = rest.split("```json\n").nth(1).and_then(|rest| rest.split("\n```").next());
        let example: Json = serde_json::from_str(example.expect("an example")).expect("JSON");
        assert_eq!((&example["version"], &example["event"]), (&1.into(), &name.into()));
        assert_eq!(own_fields(&example), fields, "the example of `{name}`");
        found.insert(name.to_owned(), fields);
    }
    found
}

fn own_fields(event: &Json) -> Fields {
    let all = event.as_object().expect("an object").keys();
    all.filter(|field| !["version", "event"].contains(&field.as_str())).cloned().collect()
}

/// `FooBar` as it is in JSON.
fn snake(name: &str) -> String {
    let parts = name.char_indices().map(|(at, c)| match c.is_uppercase() && at > 0 {
        true => format!("_{}", c.to_lowercase()),
        false => c.to_lowercase().to_string(),
    });
    parts.collect()
}

/// What there is, by the source: each notice with its fields; `None` where those are another type's.
fn known() -> BTreeMap<String, Option<Fields>> {
    let source = text("supervisor/src/run_event.rs");
    let body = source.split("pub enum RunEvent {\n").nth(1).and_then(|rest| rest.split("\n}").next());
    let mut found = BTreeMap::from([("summary".to_owned(), None)]);
    let mut last = String::new();
    for line in body.expect("the notices").lines() {
        let (depth, line) = (line.len() - line.trim_start().len(), line.trim());
        let name: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        match depth {
            4 if name.starts_with(char::is_uppercase) => {
                last = snake(&name);
                found.insert(last.clone(), (!line.contains('(')).then(Fields::new));
            }
            8 if !name.is_empty() => {
                found.get_mut(&last).and_then(Option::as_mut).expect("a notice").insert(name);
            }
            _ => {}
        }
    }
    found
}

#[test]
fn every_event_there_is_is_described_and_no_other() {
    let (described, known) = (described(), known());
    assert_eq!(described.keys().collect::<Vec<_>>(), known.keys().collect::<Vec<_>>());
    for (name, fields) in known {
        if let Some(fields) = fields {
            assert_eq!(described[&name], fields, "{name}");
        }
    }
}

/// The names of phases, endings and kinds of failures are in there, too.
#[test]
fn every_phase_and_every_end_is_described() {
    let (page, source) = (text("docs/events.md"), text("supervisor/src/attempt.rs"));
    let names = |of: &str| -> Vec<String> {
        let body = source.split(&format!("impl {of} {{")).nth(1).and_then(|rest| rest.split("\n}").next());
        let quoted = body.expect("its names").split('"').skip(1).step_by(2);
        quoted.map(str::to_owned).collect()
    };
    // That it is over, the event of that name says.
    let phases = names("Phase").into_iter().filter(|name| name != "over");
    let missing: Vec<String> = phases
        .chain(names("AttemptEnd"))
        .filter(|name| !page.contains(&format!("\n| `{name}` | ")))
        .collect();
    assert!(missing.is_empty(), "docs/events.md says nothing of {missing:?}");
    let kinds = source.split("pub enum FailureKind {").nth(1).and_then(|rest| rest.split("\n}").next());
    for kind in kinds.expect("the kinds").lines().filter_map(|line| line.trim().strip_suffix(',')) {
        assert!(page.contains(&format!("`{}`", snake(kind))), "docs/events.md says nothing of {kind}");
    }
}

/// Everything a run said is as described; which events those were.
#[track_caller]
fn assert_described(said: &Said) -> BTreeSet<String> {
    let described = described();
    let events = said.out.lines().map(|line| serde_json::from_str::<Json>(line).expect("one object a line"));
    let mut seen = BTreeSet::new();
    for event in events {
        assert_eq!(event["version"], 1, "{event}");
        let name = event["event"].as_str().expect("a name").to_owned();
        assert_eq!(described.get(&name), Some(&own_fields(&event)), "{event}");
        seen.insert(name);
    }
    let last = said.out.lines().last().unwrap_or_default();
    assert!(last.contains("\"event\":\"summary\""), "{last}");
    seen
}

fn run(queue: &Queue) -> Supervisor {
    queue.start(&["--json", "--parallel", "2"])
}

#[test]
fn what_is_printed_is_as_it_is_described() {
    let mut seen = BTreeSet::new();
    // One lands, one fails twice, one waits for a person, one for another.
    let script =
        "case $AGENCY_TASK_ID in T0002) exit 3;; T0003) echo four >> src/a.txt;; *) echo by > src/new;; esac";
    let mut queue = Queue::with_agent(script);
    queue.settings("attempts = 2");
    let tasks = queue.tasks(3);
    queue.task("shell", &["--depends-on", &tasks[1]]);
    queue.ground.write("src/a.txt", "mine\n");
    let said = run(&queue).end();
    assert_eq!(said.code, 10, "{said:?}");
    seen.extend(assert_described(&said));
    let standing = said.out.lines().rfind(|line| line.contains("\"standing\"")).expect("how it stands");
    let standing: Json = serde_json::from_str(standing).expect("JSON");
    assert_eq!([&standing["done"], &standing["failed"], &standing["held_back"]], [1, 1, 1], "{standing}");
    assert_eq!(standing["waits_for_you"][0]["task"], tasks[2].as_str(), "{standing}");
    // One is killed; the next takes its agent over, is paused, goes on, and is interrupted twice.
    let queue = gate::queue(HONEST);
    let id = queue.tasks(1).remove(0);
    let supervisor = run(&queue);
    gate::begun(&queue, &id, 1);
    supervisor.kill();
    let supervisor = run(&queue);
    supervisor.writes("\"adopted\"");
    queue.ground.ok(&["pause"]);
    supervisor.writes("\"paused\"");
    queue.ground.ok(&["resume"]);
    supervisor.writes("\"resumed\"");
    supervisor.signal(Signal::SIGINT);
    supervisor.writes("\"draining\"");
    supervisor.signal(Signal::SIGINT);
    let said = supervisor.end();
    assert_eq!(said.code, 130, "{said:?}");
    seen.extend(assert_described(&said));
    let all: BTreeSet<String> = described()
        .into_keys()
        .filter(|name| !["trouble", "checking_base"].contains(&name.as_str()))
        .collect();
    assert_eq!(seen, all);
}
