//! A model that refuses, is out of reach or talks nonsense: recognised within a minute, and said in one clear line.

use std::net::TcpListener;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agency_tests::model::Script;
use agency_tests::programs::Program;
use nix::sys::signal::Signal;
use serde_json::Value as Json;

use crate::shop::{KEY, Shop, for_each_program, script};

for_each_program! { a_key_that_is_refused nonsense_for_an_answer too_many_requests nobody_at_the_other_end }

const MINUTE: Duration = Duration::from_secs(60);

/// Waits until it is said what is wrong, which comes within a minute, and ends the run.
#[track_caller]
fn assert_said(shop: &Shop, want: &str, words: &[&str]) {
    let id = shop.task(&[]);
    let started = Instant::now();
    let run = shop.start(&[], &["--json"]);
    run.writes("\"ending\":\"parked\"");
    assert!(started.elapsed() < MINUTE, "it took {:?}", started.elapsed());
    run.signal(Signal::SIGINT);
    let said = run.end();
    assert!([10, 130].contains(&said.code), "{said:?}");
    let events = said.out.lines().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    let ending = events.map(|event| event["ending"].clone()).find(|ending| ending["ending"] == "parked");
    let ending = ending.expect("an end");
    assert_eq!(ending["want"], want, "{ending}");
    let reason = ending["reason"].as_str().expect("a reason");
    assert!(words.iter().any(|word| reason.contains(word)), "{reason}");
    // One clear line, without the key in it.
    assert!(!reason.contains('\n') && !reason.contains(KEY) && reason.chars().count() < 300, "{reason}");
    // It does not count: nothing is wrong with the task.
    assert_ne!(shop.queue.ground.status(&id), "BLOCKED");
    shop.queue.assert_nothing_left();
}

fn a_key_that_is_refused(program: Program) {
    let Some(shop) = Shop::open("a_key_that_is_refused", program, Script::Unauthorized) else { return };
    assert_said(&shop, "person", &["401 Unauthorized", "refuses its key", "Invalid API key"]);
}

fn nonsense_for_an_answer(program: Program) {
    let Some(shop) = Shop::open("nonsense_for_an_answer", program, Script::Nonsense) else { return };
    assert_said(&shop, "model", &["stream disconnected", "malformed response", "APIError", "Error"]);
}

fn too_many_requests(program: Program) {
    let script = Script::RateLimited { retry_after: None };
    let Some(shop) = Shop::open("too_many_requests", program, script) else { return };
    assert_said(&shop, "quota", &["429", "too many requests", "RateLimitError"]);
}

fn nobody_at_the_other_end(program: Program) {
    let Some(mut shop) = Shop::open("nobody_at_the_other_end", program, Script::Silent) else { return };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    shop.moves_to(port);
    assert_said(&shop, "model", &["Connection", "stream disconnected", "can't be reached", "Error"]);
}

/// What a task quotes is not what its agent says, although some programs print their prompt.
#[test]
fn an_error_that_a_task_quotes_is_none_of_its_agents() {
    let commands = ["echo hello > src/hello.txt"];
    let program = Program::MiniSweAgent;
    let Some(shop) = Shop::open("an_error_that_a_task_quotes", program, script(program, &commands)) else {
        return;
    };
    shop.queue.ground.write(
        "body.md",
        "We get this:\n\nAuthenticationError: invalid token\nRetrying x in 32 seconds as it raised RateLimitError: y\n",
    );
    let id = shop.task(&["--body", "body.md"]);
    let said = shop.run();
    assert_eq!(said.code, 0, "{said:?}");
    shop.queue.assert_landed(&[id]);
}

/// The limit of a subscription has a time of day, and codex says it.
#[test]
fn a_usage_limit_is_waited_for_or_tried_again_when_somebody_says_so() {
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs() + 3600;
    let script_ = Script::UsageLimit { resets_at: soon };
    let Some(shop) = Shop::open("a_usage_limit", Program::Codex, script_) else { return };
    let id = shop.task(&[]);
    let run = shop.start(&[], &["--json"]);
    run.writes("\"ending\":\"parked\"");
    shop.model.becomes(script(Program::Codex, &["echo hello > src/hello.txt"]));
    shop.queue.ground.ok(&["retry", &id]);
    let said = run.end();
    assert_eq!(said.code, 0, "{said:?}");
    shop.queue.assert_landed(&[id]);
    let parked = said.out.lines().find(|line| line.contains("\"ending\":\"parked\"")).expect("parked");
    let parked: serde_json::Value = serde_json::from_str(parked).expect("JSON");
    let until = parked["ending"]["until"].as_u64().expect("a time");
    // It has no seconds.
    assert!(until.abs_diff(soon) <= 60, "{until} {soon}");
    assert!(parked["ending"]["reason"].as_str().is_some_and(|why| why.contains("usage limit")), "{parked}");
}
