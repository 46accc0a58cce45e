//! Which crate may depend on which, and what only one of them may do.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::{CRATES, root, sources};

/// Who may depend on whom. Runner knows everybody; the tests know nobody but what people run.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "agency",
        &["agency-supervisor", "agency-protocols", "agency-profiles", "agency-landing", "agency-sandbox"],
    ),
    ("agency-supervisor", &["agency-protocols", "agency-profiles", "agency-landing", "agency-sandbox"]),
    ("agency-landing", &["agency-sandbox"]),
    ("agency-profiles", &["agency-sandbox"]),
    ("agency-protocols", &[]),
    ("agency-sandbox", &[]),
    ("agency-tests", &["agency-sandbox"]),
];

#[test]
fn crates_know_only_whom_they_may() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    assert_eq!(names, ARROWS.iter().map(|(name, _)| *name).collect());
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let (_, allowed) = ARROWS.iter().find(|(known, _)| *known == name).expect("a known crate");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let dependency = dependency["name"].as_str().expect("a name");
            let ours = dependency.starts_with("agency");
            assert!(!ours || allowed.contains(&dependency), "{name} must not know {dependency}");
        }
    }
}

#[test]
fn only_the_runner_knows_where_spans_go() {
    for entry in ["supervisor", "landing", "profiles", "protocols", "sandbox"] {
        let manifest = fs::read_to_string(root().join(entry).join("Cargo.toml")).expect("a manifest");
        for known in manifest.lines().filter(|line| line.starts_with("opentelemetry")) {
            assert!(
                entry == "supervisor" && known.starts_with("opentelemetry.workspace"),
                "{entry} must not know {known}"
            );
        }
    }
}

#[test]
fn unsafe_code_lives_in_one_file_of_the_sandbox() {
    for folder in CRATES {
        for (path, text) in sources(&format!("{folder}/src")) {
            let allowed = path.ends_with("sandbox/src/sys.rs");
            let has = text.contains("unsafe {")
                || text.contains("unsafe fn")
                || text.contains("allow(unsafe_code)");
            assert!(allowed || !has, "unsafe code in {}", path.display());
            if allowed {
                let blocks = text.matches("unsafe {").count();
                assert_eq!(text.matches("// SAFETY: ").count(), blocks, "every block says why it is sound");
            }
        }
    }
}

#[test]
fn nothing_but_the_runner_prints() {
    for folder in ["supervisor/src", "landing/src", "profiles/src", "protocols/src", "sandbox/src"] {
        for (path, text) in sources(folder) {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for printing in ["println!", "eprintln!", "print!(", "io::stdout()", "io::stderr()"] {
                assert!(!code.contains(printing), "{printing} in {}", path.display());
            }
        }
    }
}

/// What only a front end may name: how a command is typed, the terminal, signals, the exit code.
const OF_FRONT_ENDS: &[&str] = &[
    "clap",
    "println",
    "print!",
    "dbg!",
    "is_terminal",
    "termios",
    "env::args",
    "args_os",
    "tokio::signal",
    "ExitCode",
    "process::exit",
    "crate::cli",
    "current_dir()",
];

/// What a verb may only say of other processes, behind a dot: `command.current_dir(…)`, `output.stdout`.
const OF_OTHER_PROCESSES: &[&str] = &["current_dir", "stdin", "stdout", "stderr"];

#[test]
fn what_verbs_are_made_of_knows_no_front_end() {
    for (path, text) in sources("runner/src/app") {
        if path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let code = code_of(&text);
        for word in OF_FRONT_ENDS {
            assert!(!code.contains(word), "{word} in {}", path.display());
        }
        for word in OF_OTHER_PROCESSES {
            let is_ours = |(at, _): &(usize, &str)| !code[..*at].ends_with('.');
            assert!(!code.match_indices(word).any(|found| is_ours(&found)), "{word} in {}", path.display());
        }
    }
}

/// A file without its tests and its comments.
fn code_of(text: &str) -> String {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default().lines();
    code.filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// Folders of the command line that act through `app` alone.
const ONLY_FRONT_ENDS: &[&str] =
    &["runner/src/cli/run", "runner/src/cli/agents", "runner/src/cli/demo", "runner/src/cli/board"];

/// What the folders may name of other crates: values that are shown, and how text is made harmless to look at.
const SHOWN: &[&str] = &[
    "agency_profiles::junit",
    "agency_profiles::proof::Proof",
    "agency_profiles::prove::ProofEvent",
    "agency_protocols::board::ScopeAuthor",
    "agency_protocols::board_verbs",
    "agency_protocols::finding",
    "agency_protocols::kodingx::adapters::Orchestrator",
    "agency_protocols::kodingx::manifest::LicenseMode",
    "agency_protocols::kodingx::scaffold",
    "agency_protocols::kodingx::templates::RoleMode",
    "agency_protocols::names",
    "agency_sandbox::output",
    "agency_sandbox::policy",
    "agency_supervisor::attempt",
    "agency_supervisor::dispatch",
    "agency_supervisor::run_event",
];

#[test]
fn front_ends_only_parse_and_print() {
    for (path, text) in ONLY_FRONT_ENDS.iter().flat_map(|folder| sources(folder)) {
        let code = code_of(&text);
        for (at, _) in code.match_indices("agency_") {
            let named = &code[at..];
            let end = named.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')));
            let named = &named[..end.unwrap_or(named.len())];
            let is_shown = SHOWN.iter().any(|module| {
                named.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            });
            assert!(is_shown || !named.contains("::"), "{named} in {}", path.display());
        }
        for acting in
            ["process::Command", "Command::new", "fs::write", "fs::remove", "fs::create", "fs::rename"]
        {
            assert!(!code.contains(acting), "{acting} in {}", path.display());
        }
    }
}

#[test]
fn only_front_ends_know_how_a_command_is_typed() {
    let front_ends = root().join("runner/src/cli");
    let main = root().join("runner/src/main.rs");
    for (path, text) in sources("runner/src") {
        let allowed = path.starts_with(&front_ends) || path == main;
        assert!(allowed || !text.contains("clap"), "clap in {}", path.display());
    }
}
