//! A collector that is not there, and variables that can't be meant: no run ends otherwise, or takes longer.

use std::fs;
use std::time::{Duration, Instant};

use agency_tests::ground::Said;
use agency_tests::queue::Queue;

use agency_tests::collector::{Collector, Manner, nobody};

/// How long the end of a run may wait.
const FAREWELL: Duration = Duration::from_secs(2);

/// One more task, run; what was said, and how long it took.
fn one(queue: &Queue, endpoint: Option<&str>) -> (Said, Duration) {
    queue.tasks(1);
    let variables: Vec<(&str, &str)> =
        endpoint.into_iter().map(|endpoint| ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)).collect();
    let begun = Instant::now();
    let said = queue.start_with(&variables, &[]).end();
    (said, begun.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_run_ends_the_same_and_takes_no_longer_whatever_the_collector_does() {
    let queue = Queue::new();
    let (silent, refusing) = (Collector::new(Manner::Silent), Collector::new(Manner::Refuses(500)));
    let ways = [
        (None, None),
        (Some(nobody()), Some("refused")),
        (Some(refusing.endpoint()), Some("status 500")),
        (Some(silent.endpoint()), Some("does not answer")),
    ];
    let mut times = [const { Vec::new() }; 4];
    // In turns, so that whatever else this machine does is the same for all of them.
    for _ in 0..3 {
        for ((endpoint, why), times) in ways.iter().zip(&mut times) {
            let (said, time) = one(&queue, endpoint.as_deref());
            assert_eq!(said.code, 0, "{said:?}");
            let notices: Vec<&str> = said.err.lines().filter(|line| line.contains("telemetry")).collect();
            match (endpoint, why) {
                (Some(endpoint), Some(why)) => {
                    let expected = format!("agency: telemetry could not be sent to {endpoint}: ");
                    assert_eq!(notices.len(), 1, "{said:?}");
                    assert!(notices[0].starts_with(&expected) && notices[0].contains(why), "{notices:?}");
                    assert_eq!(said.err.lines().last(), Some(notices[0]), "at the end");
                }
                _ => assert!(notices.is_empty(), "{said:?}"),
            }
            times.push(time);
        }
    }
    assert!(!silent.requests().is_empty() && !refusing.requests().is_empty(), "they were asked");
    let [usual, refused, failing, unanswered] = times.map(median);
    let as_usual = usual.mul_f64(1.3) + Duration::from_millis(300);
    assert!(refused <= as_usual, "refused: {refused:?} beside {usual:?}");
    assert!(failing <= as_usual, "status 500: {failing:?} beside {usual:?}");
    assert!(unanswered <= as_usual + FAREWELL, "silent: {unanswered:?} beside {usual:?}");
    queue.assert_nothing_left();
}

/// The names of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect()
}

#[test]
fn there_is_a_thread_for_it_only_where_somebody_asks() {
    let collector = Collector::new(Manner::Takes);
    let endpoint = collector.endpoint();
    let collected = ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint);
    for (variables, expected) in [
        (&[][..], 0),
        (&[collected], 1),
        (&[collected, ("OTEL_SDK_DISABLED", "true")], 0),
        (&[collected, ("OTEL_TRACES_EXPORTER", "none")], 0),
    ] {
        let queue = Queue::with_agent("mkdir -p src && echo x > src/x && sleep 1");
        let id = queue.tasks(1).remove(0);
        let run = queue.start_with(variables, &[]);
        queue.until_phase(&id, "started");
        let count = threads(run.pid()).iter().filter(|name| name.starts_with("OpenTelemetry")).count();
        assert_eq!(count, expected, "{variables:?}");
        let said = run.end();
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(collector.requests().is_empty(), expected == 0, "{variables:?}");
        collector.forget();
    }
}

/// Refused with one sentence, before anything was begun.
#[track_caller]
fn refused(variables: &[(&str, &str)], words: &[&str]) {
    let queue = Queue::new();
    queue.tasks(1);
    let (before, refs) = (queue.ground.fingerprint(), queue.ground.git(&["for-each-ref"]));
    let said = queue.start_with(variables, &[]).end();
    assert_eq!(said.code, 2, "{said:?}");
    said.assert_names(words);
    let lines: Vec<&str> = said.err.lines().filter(|line| !line.starts_with("  hint: ")).collect();
    assert_eq!(lines.len(), 1, "not one sentence: {said:?}");
    assert!(!said.err.contains("hunter2") && said.out.is_empty(), "{said:?}");
    queue.ground.assert_unchanged(&before);
    assert_eq!(queue.ground.git(&["for-each-ref"]), refs);
    assert!(!queue.state().join("runs").exists(), "something was begun");
}

#[test]
fn what_can_not_be_meant_is_said_before_anything_starts() {
    let endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT";
    refused(&[(endpoint, "hunter2")], &[endpoint, "is not a URL"]);
    refused(&[(endpoint, "http://me:hunter2@127.0.0.1:4318")], &[endpoint, "password"]);
    let collector = Collector::new(Manner::Takes);
    let url = collector.endpoint();
    let protocol = "OTEL_EXPORTER_OTLP_PROTOCOL";
    refused(&[(endpoint, &url), (protocol, "grpc")], &[protocol, "http/protobuf"]);
    refused(&[(endpoint, &url), ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")], &["OTEL_EXPORTER_OTLP_TIMEOUT"]);
    refused(&[(endpoint, &url), ("OTEL_TRACES_EXPORTER", "console")], &["OTEL_TRACES_EXPORTER"]);
    assert!(collector.requests().is_empty());
}
