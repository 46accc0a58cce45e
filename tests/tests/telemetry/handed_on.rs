//! What agents and checks are told, and what they are not.

use std::collections::BTreeMap;
use std::fs;

use agency_tests::queue::Queue;

use agency_tests::collector::{Collector, Manner};

const ABOVE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Shows all it was given.
const SHOWS: &str = "mkdir -p src && echo x > src/x && env";

/// The variables of an agent, and those of the first check of its work.
fn environments(queue: &Queue, id: &str) -> [BTreeMap<String, String>; 2] {
    let records = queue.records(id, 1);
    [records.join("agent/output.log"), records.join("verify-1/logs/01-env.log")].map(|path| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.lines().filter_map(|line| line.split_once('=')).map(|(a, b)| (a.into(), b.into())).collect()
    })
}

fn run(variables: &[(&str, &str)], more: &str) -> (Queue, [BTreeMap<String, String>; 2]) {
    let mut queue = Queue::new();
    queue.agent("shell", SHOWS, more);
    queue.ground.profile("shows", &["env"]);
    queue.ground.commit_all();
    let id = queue.ground.task("A task", &["--assignee", "shell", "--dod-profile", "shows"]);
    let said = queue.start_with(variables, &[]).end();
    assert_eq!(said.code, 0, "{said:?}");
    let found = environments(&queue, &id);
    (queue, found)
}

#[test]
fn nothing_that_is_for_the_exporter_reaches_a_sandbox() {
    let collector = Collector::new(Manner::Takes);
    let endpoint = collector.endpoint();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hunter2"),
        ("OTEL_SERVICE_NAME", "night"),
        ("TRACEPARENT", ABOVE),
        ("TRACESTATE", "vendor=hunter2"),
    ];
    let (queue, found) = run(&variables, "");
    for environment in found {
        let told: Vec<&String> = environment
            .keys()
            .filter(|name| name.starts_with("OTEL_") || name.starts_with("TRACE"))
            .collect();
        assert_eq!(told, ["TRACEPARENT"]);
        assert!(environment["TRACEPARENT"].starts_with(&ABOVE[..36]), "the same trace");
        assert_ne!(environment["TRACEPARENT"], ABOVE, "a span of ours");
        assert!(!environment.values().any(|value| value.contains("hunter2")));
    }
    assert_eq!(collector.resource()["service.name"], "night");
    let order = fs::read_to_string(queue.records("T0001", 1).join("agent/order.json")).expect("an order");
    assert!(!order.contains("hunter2"));
}

#[test]
fn an_agent_that_is_given_one_of_them_by_name_gets_it() {
    let variables = [("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hunter2"), ("TRACEPARENT", ABOVE)];
    let (_, [agent, check]) = run(&variables, "env = [\"OTEL_EXPORTER_OTLP_HEADERS\"]");
    assert_eq!(agent["OTEL_EXPORTER_OTLP_HEADERS"], "[redacted: OTEL_EXPORTER_OTLP_HEADERS]");
    assert!(!check.contains_key("OTEL_EXPORTER_OTLP_HEADERS"));
}

#[test]
fn without_an_exporter_what_we_were_told_is_handed_on_if_it_is_a_place_in_a_trace() {
    let (_, found) = run(&[("TRACEPARENT", ABOVE)], "");
    for environment in found {
        assert_eq!(environment["TRACEPARENT"], ABOVE);
    }
    for odd in ["", "hunter2", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"] {
        let (_, found) = run(&[("TRACEPARENT", odd)], "");
        for environment in found {
            assert!(!environment.contains_key("TRACEPARENT"), "{odd}: {environment:?}");
        }
    }
}
