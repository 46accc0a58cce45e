//! What people see of the output of real programs: sentences, and not the events they write as JSON.

use agency_tests::programs::Program;

use crate::shop::{Shop, script};

/// What `agency logs` shows of a task.
fn shown(shop: &Shop, arguments: &[&str]) -> Vec<String> {
    let said = shop.queue.ground.ok(&[&["logs"], arguments].concat());
    said.out.lines().map(str::to_owned).collect()
}

fn logs_are_sentences(program: Program) {
    let commands = ["echo hello > src/hello.txt", "sh -c 'echo not found; exit 3'"];
    let Some(shop) = Shop::open("logs_are_sentences", program, script(program, &commands)) else { return };
    let id = shop.task(&[]);
    let said = shop.run();
    assert_eq!(said.code, 0, "{said:?}");
    let lines = shown(&shop, &[&id]);
    assert!(!lines.iter().any(|line| line.contains('{')), "{lines:#?}");
    let position = |start: &str| {
        lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {lines:#?}"))
    };
    let runs = position("runs: echo hello > src/hello.txt");
    let fails = position("failed");
    let says = position("says: Done.");
    assert!(runs < fails && fails < says && says < position("ended: "), "{lines:#?}");
    // The bytes are there, too.
    let raw = shown(&shop, &[&id, "--raw"]).join("\n");
    let log = std::fs::read_to_string(shop.queue.records(&id, 1).join("agent/output.log")).expect("a log");
    assert_eq!(raw, log.trim_end());
    // Programs get both.
    let json = shown(&shop, &[&id, "--json"]);
    let json: Vec<serde_json::Value> =
        json.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(json.len(), log.lines().count());
    let says = json.iter().find(|line| line["shown"] == "says: Done.").expect("it is there");
    assert!(says["line"].as_str().is_some_and(|line| line.starts_with('{')), "{says}");
    assert_eq!(says["job"], "agent");
}

#[test]
fn logs_of_claude_are_sentences() {
    logs_are_sentences(Program::Claude);
}

#[test]
fn logs_of_codex_are_sentences() {
    logs_are_sentences(Program::Codex);
}
