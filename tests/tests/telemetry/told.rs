//! What a collector gets.

use std::fs;

use agency_tests::processes::wait_until;
use agency_tests::queue::{LONG, Queue};

use crate::tree::{Tree, about, named, traceparent, wrong};
use agency_tests::collector::{Collector, Manner};

/// Does what it should only after it was told that it had not.
const LEARNS: &str = "mkdir -p src && echo x > src/$AGENCY_TASK_ID && echo \"told $TRACEPARENT\"
    if grep -q 'checks failed' \"$AGENCY_PROMPT_FILE\"; then touch src/right; fi";

const STEPS: [&str; 14] = [
    "announce", "order", "send", "permit", "begin", "keep", "report", "collect", "merge", "prove", "attest",
    "land", "settle", "release",
];

/// The last word of a line that begins like this.
#[track_caller]
fn last_word(path: &std::path::Path, begins: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let line = text.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{text}"));
    line.rsplit(' ').next().expect("a word").to_owned()
}

#[test]
fn a_run_is_one_tree_with_every_attempt_step_agent_and_command() {
    let collector = Collector::new(Manner::Takes);
    let queue = Queue::with_agent(LEARNS);
    queue.ground.profile("careful", &["echo \"proof $TRACEPARENT\"", "test -e src/right"]);
    queue.ground.commit_all();
    let good = queue.task("shell", &["--priority", "P0"]);
    let slow = queue.ground.task("Uncommon words", &["--assignee", "shell", "--dod-profile", "careful"]);
    let run = queue.start_with(
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2"),
            ("OTEL_RESOURCE_ATTRIBUTES", "team=night"),
        ],
        &[],
    );
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.err.contains("telemetry"), "{said:?}");
    queue.assert_landed(&[good.clone(), slow.clone()]);

    let tree = Tree::of(collector.spans());
    let run = tree.root();
    assert_eq!((run.name.as_str(), &run.parent_span_id[..], wrong(run)), ("run", &[][..], None));
    let told = about(run);
    assert_eq!(told["agency.branch"], "main");
    assert_eq!(told["agency.parallel"], "1");
    assert_eq!(told["agency.isolation"], "process");
    assert_eq!(told["agency.exit_code"], "0");
    assert_eq!(told["agency.repository"], queue.path().file_name().expect("a name").to_string_lossy());
    assert!(told.contains_key("agency.version"));
    assert_eq!(tree.steps(run), ["claim"; 3]);

    let attempts = tree.below(run, "attempt");
    let summary: Vec<(String, String, String, Option<String>)> = attempts
        .iter()
        .map(|span| {
            let mut told = about(span);
            assert_eq!(told["agency.agent"], "shell");
            let mut take = |key: &str| told.remove(key).expect("an attribute");
            (take("agency.task"), take("agency.attempt"), take("agency.outcome"), wrong(span))
        })
        .collect();
    let expected = |id: &str, attempt: &str, outcome: &str, wrong: Option<&str>| {
        (format!("kodingx:{id}"), attempt.to_owned(), outcome.to_owned(), wrong.map(str::to_owned))
    };
    assert_eq!(
        summary,
        [
            expected(&good, "1", "done", None),
            expected(&slow, "1", "failed", Some("verify")),
            expected(&slow, "2", "done", None),
        ]
    );

    let mut spans = 1 + 3 + attempts.len();
    for (attempt, (id, number, commands)) in
        attempts.iter().zip([(&good, 1, 1), (&slow, 1, 2), (&slow, 2, 2)])
    {
        let holds = wrong(attempt).is_none();
        let steps: Vec<&str> = STEPS.into_iter().filter(|step| holds || *step != "land").collect();
        assert_eq!(tree.steps(attempt), steps);

        let agent = tree.only(attempt, "agent");
        let told = about(agent);
        assert_eq!((&*told["agency.program"], &*told["agency.exit_code"]), ("sh", "0"));
        assert_eq!(told["agency.changed"], "1", "whoever mends goes on from what it had");
        assert_eq!(told["agency.violations"], "0");
        assert_eq!(wrong(agent), None);
        let records = queue.records(id, number);
        assert_eq!(last_word(&records.join("agent/output.log"), "told "), traceparent(agent));

        let verify = tree.only(attempt, "verify");
        assert_eq!(about(verify)["agency.profile"], if commands == 1 { "quick" } else { "careful" });
        assert_eq!(wrong(verify), (!holds).then(|| "does not hold".to_owned()));
        let tried = tree.below(verify, "command");
        let codes: Vec<String> = tried.iter().map(|span| about(span)["agency.exit_code"].clone()).collect();
        match commands {
            1 => assert_eq!(codes, ["0"]),
            _ => {
                assert_eq!(codes, if holds { ["0", "0"] } else { ["0", "1"] });
                assert_eq!(about(tried[1])["agency.command"], "test -e src/right");
                assert_eq!(wrong(tried[1]).is_none(), holds);
                let log = records.join("verify-1/logs/01-echo-proof-traceparent.log");
                assert_eq!(last_word(&log, "proof "), traceparent(verify));
            }
        }
        spans += steps.len() + 2 + tried.len();
    }
    assert_eq!(tree.len(), spans, "nothing else is told");

    let resource = collector.resource();
    assert_eq!((&*resource["service.name"], &*resource["team"]), ("agency", "night"));
    for request in collector.requests() {
        assert_eq!(request.path, "/v1/traces");
        assert_eq!(request.headers["content-type"], "application/x-protobuf");
        assert_eq!(request.headers["authorization"], "Bearer hunter2");
        // The header, a title, what the agent runs and what it reads: none of it is anybody else's.
        let body = String::from_utf8_lossy(&request.body);
        for word in ["hunter2", "Uncommon", "AGENCY_PROMPT_FILE", "mkdir"] {
            assert!(!body.contains(word), "{word} is told");
        }
    }
}

#[test]
fn an_audit_is_told_of_between_the_work_and_its_proof() {
    let collector = Collector::new(Manner::Takes);
    let mut queue = Queue::new();
    queue.auditor(
        "echo \"told $TRACEPARENT\"; echo '{\"tokens\": 70, \"cost\": 0.5}' > $AGENCY_USAGE_FILE\n\
         printf -- '---\\ntask_id: %s\\nverdict: PASS\\n---\\n' $AGENCY_TASK_ID > $AGENCY_REPORT_FILE",
    );
    let id = queue.tasks(1).remove(0);
    let said = queue.start_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint())], &[]).end();
    assert_eq!(said.code, 0, "{said:?}");
    let tree = Tree::of(collector.spans());
    let attempt = tree.only(tree.root(), "attempt");
    let steps = tree.steps(attempt).join(" ");
    assert!(steps.contains("collect ask heed merge"), "{steps}");
    let audit = tree.only(attempt, "audit");
    let told = about(audit);
    assert_eq!((&*told["agency.tokens"], &*told["agency.cost"]), ("70", "0.5"));
    let output = queue.records(&id, 1).join("audit-1/output.log");
    assert_eq!(last_word(&output, "told "), traceparent(audit));
    let agent = tree.only(attempt, "agent");
    assert!(agent.end_time_unix_nano <= audit.start_time_unix_nano);
}

#[test]
fn an_agent_out_of_scope_is_seen_by_number_and_not_by_name() {
    let collector = Collector::new(Manner::Takes);
    let queue = Queue::with_agent("touch src/a src/private");
    queue.task("shell", &["--must-not-touch", "src/private"]);
    let said = queue.start_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint())], &[]).end();
    assert_eq!(said.code, 20, "{said:?}");
    let tree = Tree::of(collector.spans());
    assert_eq!(wrong(tree.root()).as_deref(), Some("exit code 20"));
    let attempt = tree.only(tree.root(), "attempt");
    assert_eq!(wrong(attempt).as_deref(), Some("scope"));
    let agent = tree.only(attempt, "agent");
    assert_eq!(about(agent)["agency.violations"], "1");
    assert_eq!(wrong(agent).as_deref(), Some("out of scope"));
    for request in collector.requests() {
        assert!(!String::from_utf8_lossy(&request.body).contains("private"));
    }
}

#[test]
fn a_run_within_a_trace_is_part_of_it() {
    const ABOVE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let collector = Collector::new(Manner::Takes);
    let queue = Queue::new();
    queue.tasks(1);
    let endpoint = collector.endpoint();
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("TRACEPARENT", ABOVE)];
    let said = queue.start_with(&variables, &[]).end();
    assert_eq!(said.code, 0, "{said:?}");
    let tree = Tree::of(collector.spans());
    let run = tree.root();
    assert_eq!(named(&run.trace_id, &run.parent_span_id), ABOVE);
}

/// Whoever watches sees the same, whether somebody collects or not.
#[test]
fn what_the_log_shows_does_not_depend_on_a_collector() {
    let collector = Collector::new(Manner::Takes);
    let endpoint = collector.endpoint();
    let [alone, collected] = [None, Some(("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint))].map(|collected| {
        let queue = Queue::new();
        queue.tasks(1);
        let variables: Vec<(&str, &str)> =
            [("AGENCY_LOG", "agency_supervisor=debug")].into_iter().chain(collected).collect();
        let said = queue.start_with(&variables, &[]).end();
        assert_eq!(said.code, 0, "{said:?}");
        let lines = said.err.lines().filter_map(|line| Some(line.split_once(" DEBUG ")?.1.to_owned()));
        // How often it waits is a matter of time.
        lines.filter(|line| !line.ends_with("next=Await")).collect::<Vec<String>>()
    });
    assert_eq!(alone, collected);
    let begins = "attempt{task=kodingx:T0001 attempt=1 agent=shell}: agency_supervisor::driver: looked";
    assert!(alone.len() > 5 && alone.iter().all(|line| line.starts_with(begins)), "{alone:#?}");
}

/// The supervisor that sent it is killed, and another collects what it did.
#[test]
fn an_agent_that_was_adopted_is_told_of_where_it_is_collected() {
    let (before, after) = (Collector::new(Manner::Takes), Collector::new(Manner::Takes));
    let queue = Queue::with_agent("echo \"told $TRACEPARENT\"; sleep 3; mkdir -p src && echo x > src/x");
    let id = queue.tasks(1).remove(0);
    let first = queue.start_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &before.endpoint())], &[]);
    let output = queue.records(&id, 1).join("agent/output.log");
    let begun = || fs::read_to_string(&output).is_ok_and(|text| text.contains("told "));
    assert!(wait_until(LONG, begun), "{}", first.said_so_far());
    first.kill();
    let said = queue.start_with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &after.endpoint())], &[]).end();
    assert_eq!(said.code, 0, "{said:?}");
    let spans = after.spans();
    let agent = spans.iter().find(|span| span.name == "agent").expect("an agent").clone();
    let run = spans.iter().find(|span| span.name == "run").expect("a run");
    assert!(agent.start_time_unix_nano < run.start_time_unix_nano, "it began before us");
    assert_eq!(agent.trace_id, run.trace_id);
    let told = last_word(&output, "told ");
    let link = agent.links.first().expect("a link to what it was told");
    assert_eq!(named(&link.trace_id, &link.span_id), told);
}
