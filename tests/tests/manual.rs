//! What people look things up in: completions, manual pages, and where a setting comes from.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use agency_tests::ground::Ground;
use serde_json::{Value as Json, json};

/// What a real bash offers for the last of these words.
fn completed(ground: &Ground, words: &[&str]) -> Vec<String> {
    let script = ground.ok(&["completions", "bash"]).out;
    let [.., previous, current] = words else { panic!("at least two words") };
    let ask = format!(
        "{script}\nCOMP_WORDS=({}); COMP_CWORD={}; _agency agency '{current}' '{previous}'; echo \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words.len() - 1
    );
    let output = Command::new("bash").args(["--norc", "-c", &ask]).output().expect("bash runs");
    String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_shell_completes_commands_flags_and_values() {
    let ground = Ground::without_board(&[]);
    assert_eq!(completed(&ground, &["agency", "sand"]), ["sandbox"]);
    assert_eq!(completed(&ground, &["agency", "run", "--paral"]), ["--parallel"]);
    assert_eq!(completed(&ground, &["agency", "run", "--land", "b"]), ["branch"]);
    assert!(completed(&ground, &["agency", "shi"]).is_empty(), "what is hidden stays so");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(ground.ok(&["completions", shell]).out.contains("sandbox"), "{shell}");
    }
    ground.refused(2, &["completions", "cobol"]).assert_names(&["cobol", "bash"]);
}

#[test]
fn every_command_has_its_page() {
    let ground = Ground::without_board(&[]);
    let page = ground.ok(&["man", "task", "new"]).out;
    assert!(page.contains("agency\\-task\\-new") && page.contains("\\-\\-must\\-touch"), "{page}");
    ground.refused(2, &["man", "tusk"]).assert_names(&["there is no command `tusk`", "agency --help"]);
    let folder = ground.path().join("pages");
    fs::create_dir(&folder).expect("made");
    ground.ok(&["man", "--into", "pages"]);
    let entries = fs::read_dir(&folder).expect("read").flatten();
    let pages: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    for page in ["agency.1", "agency-run.1", "agency-task-new.1", "agency-config-explain.1"] {
        assert!(pages.iter().any(|found| found == page), "no {page}: {pages:?}");
    }
    assert!(!pages.iter().any(|page| page.contains("shim") || page.contains("help")), "{pages:?}");
    ground.refused(2, &["man", "--into", "nowhere"]).assert_names(&["can't write", "nowhere/agency.1"]);
}

/// What is told of each setting.
fn explained(ground: &Ground) -> BTreeMap<String, Json> {
    let document = ground.ok(&["config", "explain", "--json"]).json();
    assert_eq!(document["version"], 1);
    let settings = document["settings"].as_array().expect("settings").clone();
    settings.into_iter().map(|one| (one["key"].as_str().expect("a key").to_owned(), one)).collect()
}

#[test]
fn of_every_setting_it_is_told_what_it_is_and_who_says_so() {
    let ground = Ground::without_board(&[]);
    let usual = explained(&ground);
    assert_eq!(
        (&usual["run.land"]["value"], &usual["run.land"]["from"]),
        (&json!("merge"), &json!("default"))
    );
    assert_eq!(usual["agents.*.command"]["value"], Json::Null);
    ground
        .write("agency.toml", "[run]\nparallel = 4\nland = \"branch\"\n[agents.\"a.b\"]\ntimeout = \"1m\"\n");
    let user = ground.user().join("agency/agency.toml");
    fs::create_dir_all(user.parent().expect("a folder")).expect("made");
    fs::write(&user, "[run]\nattempts = 7\nparallel = 2\n").expect("written");
    let untrusted = explained(&ground);
    let says = |of: &BTreeMap<String, Json>, key: &str| {
        let one = &of[key];
        (one["value"].clone(), one["from"].as_str().unwrap_or("nobody").to_owned(), one["withheld"] == true)
    };
    let user = user.display().to_string();
    assert_eq!(says(&untrusted, "run.parallel"), (json!(4), "agency.toml".into(), false));
    assert_eq!(says(&untrusted, "run.land"), (json!("merge"), "default".into(), true));
    assert_eq!(says(&untrusted, "run.attempts"), (json!(7), user, false));
    assert_eq!(says(&untrusted, "agents.a.b.timeout"), (json!("1m"), "agency.toml".into(), false));
    ground.ok(&["trust", "--yes"]);
    assert_eq!(says(&explained(&ground), "run.land"), (json!("branch"), "agency.toml".into(), false));
    let table = ground.ok(&["config", "explain"]).out;
    let row = table.lines().find(|line| line.starts_with("run.attempts")).expect("a row");
    assert!(row.contains('7') && row.contains("maximum attempts"), "{row}");
}
