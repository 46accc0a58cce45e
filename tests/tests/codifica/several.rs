//! A repository that speaks two protocols.

use crate::site::{Site, ready};

#[test]
fn whoever_looks_sees_both_and_whoever_writes_says_which() {
    let site = Site::new(&ready("A-1"));
    site.ground.ok(&["init", "--protocol", "kodingx", "--orchestrator", "other", "--builders", "shell"]);
    site.ground.ok(&["task", "new", "--protocol", "kodingx", "--title", "Other", "--must-touch", "src/**"]);
    let listed = site.ground.ok(&["task", "list"]).out;
    assert!(listed.contains("kodingx:T0001") && listed.contains("codifica:A-1"), "{listed}");
    let listed = site.ground.ok(&["task", "list", "--json"]).json();
    assert_eq!(
        (listed["tasks"][0]["id"].as_str(), listed["tasks"][1]["id"].as_str()),
        (Some("kodingx:T0001"), Some("codifica:A-1"))
    );
    let status = site.ground.ok(&["status"]).out;
    assert!(status.contains("kodingx:T0001") && status.contains("codifica:A-1"), "{status}");
    assert_eq!(site.ground.ok(&["status", "--json"]).json()["boards"].as_array().map(Vec::len), Some(2));
    assert!(site.ground.ok(&["task", "show", "codifica:A-1"]).out.contains("- id: A-1"));
    for verb in [
        &["task", "new", "--title", "x"][..],
        &["run"],
        &["task", "move", "A-1", "blocked", "--as", "human", "--reason", "x"],
    ] {
        site.ground
            .refused(2, verb)
            .assert_names(&["speaks several protocols: kodingx, codifica", "--protocol NAME"]);
    }
    site.ground.ok(&[
        "task",
        "move",
        "A-1",
        "blocked",
        "--as",
        "human",
        "--reason",
        "x",
        "--protocol",
        "codifica",
    ]);
    // What helps is a command that works beside another board.
    let status = site.ground.ok(&["status"]).out;
    let line = status.lines().find(|line| line.starts_with("waits: codifica:A-1")).expect("a line");
    let command = line.split('`').nth(1).and_then(|text| text.strip_prefix("agency ")).expect("a command");
    site.ground.ok(&command.split(' ').collect::<Vec<_>>());
    assert!(site.ground.ok(&["task", "show", "codifica:A-1"]).out.contains("state: todo"));
    // A broken marker stops its own protocol only.
    site.ground.write("codifica.json", "{");
    let said = site.ground.agency(&["task", "list"]);
    assert!(said.out.contains("kodingx:T0001"), "{said:?}");
    said.assert_names(&["codifica: codifica.json:1"]);
}
