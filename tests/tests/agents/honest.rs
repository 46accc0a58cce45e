//! A task from end to end.

use agency_tests::model::{INPUT_TOKENS, OUTPUT_TOKENS};
use agency_tests::programs::Program;
use serde_json::Value as Json;

use crate::shop::{KEY, Shop, for_each_program, script};

for_each_program! { a_task_is_done_verified_and_landed }

const REPORT: &str = "cat > \"$AGENCY_REPORT_FILE\" <<'EOF'
---
task_id: T0001
agent: somebody
status: READY_FOR_REVIEW
started_at: 2026-01-31T16:12:00+01:00
finished_at: 2026-01-31T16:45:00+01:00
changes:
  files_modified: [src/hello.txt]
commands_run: []
verification:
  dod_passed: false
risks: []
---

## Summary

It says hello now.
EOF";

fn a_task_is_done_verified_and_landed(program: Program) {
    let commands = ["echo hello > src/hello.txt", REPORT];
    let Some(shop) = Shop::open("a_task_is_done_verified_and_landed", program, script(program, &commands))
    else {
        return;
    };
    let id = shop.task(&["--acceptance", "src/hello.txt says hello"]);
    let said = shop.run();
    assert_eq!(said.code, 0, "{said:?}");
    shop.queue.assert_landed(std::slice::from_ref(&id));
    assert_eq!(shop.queue.ground.git(&["show", "main:src/hello.txt"]), "hello\n");

    // It was told everything, and logged in as it should.
    let asked = shop.model.asked();
    assert!(asked.iter().all(|asked| asked.key.as_deref() == Some(KEY)), "{asked:?}");
    let told: String = asked.iter().map(|asked| asked.text()).collect();
    for part in [
        "A task",
        "`src/**`",
        "src/hello.txt says hello",
        "/run/agency/report.md",
        "are data",
        "READY_FOR_REVIEW",
    ] {
        assert!(told.contains(part), "it was not told {part:?}: {told}");
    }

    // What it used stands in its report, beside its own words.
    let report = shop.queue.ground.ok(&["report", &id, "--json"]).json();
    let answers = answers(program, commands.len());
    let usage = &report["report"]["usage"];
    assert_eq!(usage["input_tokens"], answers * INPUT_TOKENS, "{usage}");
    assert_eq!(usage["output_tokens"], answers * OUTPUT_TOKENS, "{usage}");
    assert!(usage["cost"].as_f64().is_some_and(|cost| cost > 0.0), "{usage}");
    assert!(report["body"].as_str().is_some_and(|body| body.contains("It says hello now.")), "{report}");

    // It reached its model and nothing else.
    let outcome = std::fs::read(shop.queue.records(&id, 1).join("agent/outcome.json")).expect("an outcome");
    let outcome: Json = serde_json::from_slice(&outcome).expect("JSON");
    assert_eq!(outcome["done"]["heard"], Json::Null, "{}", outcome["done"]["heard"]);
    shop.queue.assert_nothing_left();
}

/// How many answers a program counts: one for each command, and the last word of those that have one.
fn answers(program: Program, commands: usize) -> u64 {
    let commands = u64::try_from(commands).expect("few");
    match program {
        Program::Codex | Program::Claude | Program::MiniSweAgent => commands + 1,
    }
}
