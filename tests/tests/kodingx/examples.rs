//! Every command shows how it is used, and what it shows works.

use std::collections::BTreeSet;

use crate::ground::{Ground, Said};

/// What can be run on a board that has T0007, T0008 and nothing else; the rest is only parsed, because it
/// would build, fetch packages or wait for somebody.
const RUN: &[&str] = &[
    "init",
    "install",
    "upgrade",
    "task",
    "assign",
    "status",
    "report",
    "verify",
    "trust",
    "archive",
    "migrate",
    "lint",
    "doctor",
    "config",
    "completions",
];

/// The commands a help lists: those below one heading, or all groups.
fn listed(help: &str) -> Vec<String> {
    let entries = match help.split_once("\nCommands:\n") {
        Some((_, rest)) => rest.split("\n\n").next().unwrap_or_default().lines(),
        None => help.split("\nOptions:\n").next().unwrap_or_default().lines(),
    };
    // A name is indented by two; what runs on is indented further.
    let name =
        |line: &str| line.strip_prefix("  ")?.split(' ').next().filter(|n| !n.is_empty()).map(str::to_owned);
    entries.filter_map(name).collect()
}

/// Command lines of a help, without the word for the program.
fn examples(help: &str) -> Vec<String> {
    let Some((_, shown)) = help.split_once("\nExample") else { return Vec::new() };
    shown.lines().filter_map(|line| Some(line.trim().strip_prefix("agency ")?.to_owned())).collect()
}

fn help(ground: &Ground, command: &[&str]) -> String {
    let mut asked = ground.command(&[command, &["--help"]].concat());
    let said: Said = asked.env("COLUMNS", "1000").output().expect("agency starts").into();
    assert_eq!(said.code, 0, "{command:?}: {said:?}");
    said.out
}

/// Every command there is, those that only hold others included.
fn commands(ground: &Ground) -> Vec<Vec<String>> {
    let mut commands: Vec<Vec<String>> = Vec::new();
    for command in listed(&help(ground, &[])) {
        let text = help(ground, &[&command]);
        if text.contains("\nCommands:\n") {
            commands.extend(listed(&text).into_iter().map(|inner| vec![command.clone(), inner]));
        }
        commands.push(vec![command]);
    }
    assert!(commands.len() > 15, "{commands:?}");
    commands
}

/// A board as the examples have it: T0007 with a report, T0008, and a Makefile that checks.
fn board() -> Ground {
    let ground = Ground::without_board(&[("Makefile", "test:\n\ttrue\n")]);
    ground.ok(&["init", "--builders", "codex,aider"]);
    let task = |id: &str, name: &str| {
        ground.write(
            &format!(".kodingx/inbox/codex/2026-01-31/{name}.md"),
            format!(
                "---\nid: {id}\ntitle: x\npriority: P1\nstatus: NEW\nassignee: codex\n\
                 created_at: 2026-01-31T16:10:00+01:00\ndod_profile: auto\nscope: {{must_touch: [src]}}\n---\n"
            ),
        );
    };
    task("T0007", "T0007-1610-vat");
    task("T0008", "T0008-1610-fix-vat");
    ground.report("T0007", "READY_FOR_REVIEW");
    ground.ok(&["lint", "--fix"]);
    ground.commit_all();
    ground
}

/// A board of the protocol whose tasks have notes.
fn codifica_board() -> Ground {
    let ground = Ground::without_board(&[]);
    ground.ok(&["init", "--protocol", "codifica"]);
    ground.commit_all();
    ground.ok(&["task", "new", "--title", "x", "--acceptance", "y"]);
    ground
}

#[test]
fn every_command_shows_an_example_and_every_example_works() {
    let ground = Ground::without_board(&[]);
    let commands = commands(&ground);
    let mut tried = BTreeSet::new();
    for command in &commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let lines = examples(&help(&ground, &words));
        assert!(!lines.is_empty(), "`agency {} --help` shows no example", words.join(" "));
        for line in lines {
            assert!(line.starts_with(&words.join(" ")), "{words:?} shows {line:?}");
            if !tried.insert(line.clone()) {
                continue;
            }
            // What goes on until somebody ends it is tried elsewhere.
            let ends = !line.contains("--watch");
            if RUN.contains(&words[0]) && ends {
                // What makes a board is for where there is none.
                let place = match words[..] {
                    ["init" | "install", ..] => Ground::without_board(&[]),
                    ["task", "note"] => codifica_board(),
                    _ => board(),
                };
                let said = place.typed(&line);
                assert_eq!(said.code, 0, "agency {line}: {said:?}");
            } else {
                let (flags, program) = line.split_once(" -- ").unwrap_or((&line, ""));
                let said = ground.typed(&format!("{flags} --help"));
                assert_eq!(said.code, 0, "agency {flags} -- {program}: {said:?}");
            }
        }
    }
}

/// What is parsed by asking for help at its end would fail there, if it were wrong.
#[test]
fn a_wrong_flag_before_help_is_still_wrong() {
    let ground = Ground::without_board(&[]);
    for line in ["sandbox --writ x --help", "sandbox --isolation none --help", "status --nope --help"] {
        assert_eq!(ground.typed(line).code, 2, "{line}");
    }
}

#[test]
fn every_command_can_speak_to_programs() {
    let ground = Ground::without_board(&[]);
    for command in commands(&ground) {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let text = help(&ground, &words);
        // What these print is made for programs.
        let speaks = text.contains("--json") || ["completions", "man"].contains(&words[0]);
        assert!(text.contains("\nCommands:\n") || speaks, "{words:?} has no --json");
    }
}
