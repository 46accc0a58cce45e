//! The shape of the project, held: which crate may know which, where unsafe code and printing may be, and
//! that what CI runs is what the README says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// Who may depend on whom. Runner knows everybody; the tests know nobody but what people run.
const ARROWS: &[(&str, &[&str])] = &[
    ("agency", &["agency-supervisor", "agency-protocols", "agency-profiles", "agency-sandbox"]),
    ("agency-supervisor", &["agency-protocols", "agency-profiles", "agency-sandbox"]),
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
    for entry in ["supervisor", "profiles", "protocols", "sandbox"] {
        let manifest = fs::read_to_string(root().join(entry).join("Cargo.toml")).expect("a manifest");
        for known in manifest.lines().filter(|line| line.starts_with("opentelemetry")) {
            assert!(
                entry == "supervisor" && known.starts_with("opentelemetry.workspace"),
                "{entry} must not know {known}"
            );
        }
    }
}

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![root().join(folder)];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}

#[test]
fn unsafe_code_lives_in_one_file_of_the_sandbox() {
    for folder in ["runner/src", "supervisor/src", "profiles/src", "protocols/src", "sandbox/src"] {
        for (path, text) in sources(folder) {
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
    for folder in ["supervisor/src", "profiles/src", "protocols/src", "sandbox/src"] {
        for (path, text) in sources(folder) {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for printing in ["println!", "eprintln!", "print!(", "io::stdout()", "io::stderr()"] {
                assert!(!code.contains(printing), "{printing} in {}", path.display());
            }
        }
    }
}

#[test]
fn ci_runs_exactly_the_readmes_test_command() {
    let readme = fs::read_to_string(root().join("README.md")).expect("a README");
    let ci = fs::read_to_string(root().join(".ci/run")).expect("a CI script");
    let command = ci.lines().rfind(|line| !line.trim().is_empty()).expect("a command");
    assert_eq!(command, "scripts/test");
    assert!(readme.lines().any(|line| line.trim() == command), "the README does not say `{command}`");
}

#[test]
fn every_decision_is_listed() {
    let index = fs::read_to_string(root().join("docs/decisions/README.md")).expect("an index");
    for entry in fs::read_dir(root().join("docs/decisions")).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(name == "README.md" || index.contains(&name), "{name} is not in the index");
    }
}

/// A claim is only as good as the test that tries it: every name in the threat model is one.
#[test]
fn every_claim_of_the_threat_model_has_its_test() {
    let text = fs::read_to_string(root().join("docs/threat-model.md")).expect("text");
    let tests = sources("tests/tests");
    let mut found = 0;
    for name in text.split('`').skip(1).step_by(2) {
        let Some((module, test)) = name.split_once("::") else { continue };
        let file = format!("{module}.rs");
        let there = tests.iter().any(|(path, text)| {
            path.file_name().is_some_and(|name| name == file.as_str())
                && text.contains(&format!("fn {test}("))
        });
        assert!(there, "docs/threat-model.md names {name}, and there is no such test");
        found += 1;
    }
    assert!(found > 40, "only {found} tests are named");
    for line in text.lines().filter(|line| line.starts_with("| ") && line.contains(" yes")) {
        assert!(line.contains("::"), "a claim without a test: {line}");
    }
}

/// Every requirement of a protocol has its test, and every test of a section its requirement.
#[test]
fn every_requirement_of_the_protocols_has_its_test() {
    for (protocol, least) in [("kodingx", 120), ("codifica", 50)] {
        hold_conformance(protocol, least);
    }
}

fn hold_conformance(protocol: &str, least: usize) {
    let name = format!("docs/conformance/{protocol}.md");
    let page = fs::read_to_string(root().join(&name)).expect("text");
    let names = |folder: &str| -> BTreeSet<String> {
        let texts = sources(folder);
        let tests = texts.iter().flat_map(|(_, text)| text.split("#[test]").skip(1));
        let named = tests.filter_map(|test| test.split_once("fn ")?.1.split_once("()"));
        named.map(|(name, _)| name.to_owned()).collect()
    };
    let suite = names(&format!("tests/tests/{protocol}"));
    let folders = ["protocols/src", "protocols/tests", "profiles", "supervisor/tests", "tests/tests/run"];
    let tests: BTreeSet<String> = folders.into_iter().flat_map(names).chain(suite.clone()).collect();
    let mut listed = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| § | ")) {
        if row.starts_with("| ---") {
            continue;
        }
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let named: Vec<&str> = cells.last().unwrap_or(&"").split('`').skip(1).step_by(2).collect();
        assert!(cells.len() == 4 && !named.is_empty(), "{name}: a requirement without a test: {row}");
        for test in named {
            assert!(tests.contains(test), "{name} names {test}, and there is no such test");
            listed.insert(test);
        }
    }
    assert!(listed.len() > least, "{name}: only {} tests are named", listed.len());
    let is_of_a_section = |name: &str| {
        let mut parts = name.split('_');
        parts
            .next()
            .and_then(|first| first.strip_prefix('s'))
            .is_some_and(|number| number.parse::<u8>().is_ok())
    };
    for test in suite.iter().filter(|test| is_of_a_section(test)) {
        assert!(listed.contains(test.as_str()), "{test} is a test of no requirement in {name}");
    }
}

/// Modules that open files by name, and whose those files are. Everything that a repository brings is opened by
/// `sandbox::untrusted`, by descriptor (`harvest::tree`, `profiles::sight`, `protocols::store::tree`), or by git.
const OPENS_BY_NAME: &[(&str, &str)] = &[
    ("profiles/src/junit.rs", "a log of ours"),
    ("profiles/src/prove/attempt.rs", "a log of ours"),
    ("protocols/src/moment.rs", "the machine's time zone"),
    ("protocols/src/store/lock.rs", "our own state"),
    ("protocols/src/store/log.rs", "our own state"),
    ("protocols/src/store/memory.rs", "our own state"),
    ("runner/src/board/mod.rs", "what a person names on the command line"),
    ("runner/src/board/spoken.rs", "our own state"),
    ("runner/src/board/verify.rs", "a log of ours"),
    ("runner/src/configuration/mod.rs", "the user's own configuration"),
    ("runner/src/configuration/trust.rs", "our own state"),
    ("runner/src/demo/story.rs", "our own sample repository"),
    ("runner/src/http/mod.rs", "the user's own certificates"),
    ("runner/src/run/logs.rs", "our own records"),
    ("runner/src/run/view/tail.rs", "our own records"),
    ("sandbox/src/account.rs", "the machine's accounts"),
    ("sandbox/src/attest/shared.rs", "/proc"),
    ("sandbox/src/bare/everyone.rs", "/proc"),
    ("sandbox/src/bare/replica.rs", "our own copy"),
    ("sandbox/src/boot.rs", "the kernel's"),
    ("sandbox/src/cgroup.rs", "the kernel's"),
    ("sandbox/src/changed/mod.rs", "the agent's, inside its sandbox"),
    ("sandbox/src/container/door.rs", "our own state"),
    ("sandbox/src/container/leftovers.rs", "our own state"),
    ("sandbox/src/doctor.rs", "the kernel's"),
    ("sandbox/src/egress/inside.rs", "/proc"),
    ("sandbox/src/toolchains.rs", "the user's own"),
    ("sandbox/src/watch.rs", "/proc"),
    ("sandbox/src/workspace/snapshot/delta.rs", "our own layers"),
    ("sandbox/src/workspace/snapshot/known.rs", "our own layers"),
    ("sandbox/src/workspace/snapshot/manifest.rs", "our own layers"),
    ("sandbox/src/workspace/snapshot/objects.rs", "our own helper repository"),
    ("sandbox/src/workspace/snapshot/store.rs", "our own layers"),
    ("sandbox/src/workspace/run.rs", "our own state"),
    ("sandbox/src/workspace/state.rs", "our own state"),
    ("supervisor/src/durable.rs", "our own state"),
    ("supervisor/src/errand/agent.rs", "our own records, and the outbox by descriptor"),
    ("supervisor/src/errand/ended.rs", "our own records"),
    ("supervisor/src/errand/given.rs", "the user's own credentials"),
    ("supervisor/src/errand/mod.rs", "our own records"),
    ("supervisor/src/errand/send.rs", "our own records"),
    ("supervisor/src/errand/setup.rs", "our own records"),
    ("supervisor/src/errand/words.rs", "our own records"),
    ("supervisor/src/identity.rs", "our own state"),
    ("supervisor/src/landing/board_journal.rs", "our own state"),
    ("supervisor/src/landing/index.rs", "our own helper repository, and a folder to sync"),
    ("supervisor/src/landing/journal.rs", "our own state"),
    ("supervisor/src/landing/repository.rs", "our own helper repositories"),
    ("supervisor/src/landing/spare.rs", "our own state"),
    ("supervisor/src/life/collect.rs", "our own records"),
    ("supervisor/src/owner.rs", "our own state"),
    ("supervisor/src/store/sqlite/place.rs", "our own state"),
];

/// What a repository brings is opened in one way. A module that opens files by name says whose they are, above.
#[test]
fn what_a_repository_brings_is_opened_in_one_way() {
    let opens = ["fs::read(", "fs::read_to_string(", "File::open(", "fs::copy("];
    let mut known: BTreeSet<&str> = OPENS_BY_NAME.iter().map(|(file, _)| *file).collect();
    for folder in ["runner/src", "supervisor/src", "profiles/src", "protocols/src", "sandbox/src"] {
        for (path, text) in sources(folder) {
            let file = path.strip_prefix(root()).expect("below").display().to_string();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default().replace("refs::read(", "");
            let lines: Vec<&str> =
                code.lines().filter(|line| opens.iter().any(|open| line.contains(open))).collect();
            let allows = text.contains("#![allow(clippy::disallowed_methods, reason = ");
            assert!(!allows || OPENS_BY_NAME.iter().any(|(name, _)| *name == file), "{file} is not listed");
            if lines.is_empty() || file.contains("/tests/") {
                continue;
            }
            assert!(
                OPENS_BY_NAME.iter().any(|(name, _)| *name == file),
                "{file} opens files by name: whose are they?"
            );
            known.remove(file.as_str());
            for line in lines {
                let of_git = ["common.join", "real.git", "repository.git", "\".git\""]
                    .iter()
                    .any(|word| line.contains(word));
                assert!(!of_git, "{file}: {line}");
            }
        }
    }
    assert!(known.is_empty(), "nothing is opened by name any more in {known:?}");
}
