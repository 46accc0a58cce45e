//! §11: what every agent is told.

use crate::site::{Site, ready};

#[test]
fn s11_every_prompt_has_the_contract_and_what_was_done_already() {
    let site = Site::new(&ready("A-1"));
    // The prompt is what the agent is started with.
    let text = "[run]\nattempts = 1\n[agents.shell]\ncommand = [\"sh\", \"-c\", \"cp \\\"$0\\\" src/prompt\", \"{prompt_file}\"]\n";
    site.ground.write("agency.toml", text);
    site.ground.ok(&["trust", "--yes"]);
    site.ground.commit_all();
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 0, "{said:?}");
    let prompt = site.ground.read("src/prompt");
    for part in [
        "You are operating in a repository that uses the Codifica protocol.",
        "Do not edit human_review sections.",
        "Do not move tasks to blocked or rejected — only humans may do this.",
        "Include a summary (≤120 chars) on your closing execution note.",
        "If intent is unclear, ask a human.",
        "It has pulled, claimed A-1 for you and pushed the claim",
        "don't edit `work.md` or `codifica.json`",
        "The specification to read is `codifica-spec.md`",
        "- id: A-1",
        "it works",
    ] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
}

#[test]
fn s11_an_agent_that_is_blocked_recommends_it_and_blocks_nothing() {
    let site = Site::new(&ready("A-1"));
    site.agent("printf -- '---\\nstatus: blocked\\nsummary: no key\\n---\\n\\nThere is no key to sign with.\\n' > \"$AGENCY_REPORT_FILE\"");
    let said = site.ground.agency(&["run"]);
    assert_eq!(said.code, 10, "{said:?}");
    let task = site.task("A-1");
    assert_eq!(task["state"].as_str(), Some("in_progress"), "only a person blocks (§7.2)");
    let note = task["execution_notes"][0]["note"].as_str().expect("a note").to_owned();
    assert!(note.starts_with("Recommend blocking: There is no key to sign with."), "{note}");
    // It is not started again until somebody has looked.
    let again = site.ground.agency(&["run"]);
    assert_eq!(again.code, 10);
    assert_eq!(site.task("A-1")["execution_notes"].as_sequence().map(Vec::len), Some(1));
    assert_eq!(site.moves("A-1", "blocked", "human", Some("no key")).code, 0);
    assert_eq!(site.moves("A-1", "todo", "human", Some("here it is")).code, 0);
    site.agent("echo x > src/x");
    assert_eq!(site.ground.agency(&["run"]).code, 0);
    assert_eq!(site.state("A-1"), "done");
}

#[test]
fn s12_2_a_closing_note_always_has_a_summary() {
    let site = Site::new(&ready("A-1"));
    let long = "x".repeat(300);
    site.agent(&format!(
        "echo x > src/x; printf -- '---\\nsummary: {long}\\n---\\n' > \"$AGENCY_REPORT_FILE\""
    ));
    assert_eq!(site.ground.agency(&["run"]).code, 0);
    for note in site.task("A-1")["execution_notes"].as_sequence().expect("notes") {
        let summary = note["summary"].as_str().expect("a summary");
        assert!(!summary.is_empty() && summary.chars().count() <= 120, "{summary}");
    }
    site.ground.assert_compliant();
}
