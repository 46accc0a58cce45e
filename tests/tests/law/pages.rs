//! What the documents say, compared with what is there.

use std::collections::BTreeSet;
use std::fs;

use crate::{root, sources};

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
    let folders = [
        "protocols/src",
        "protocols/tests",
        "profiles",
        "landing/tests",
        "supervisor/tests",
        "tests/tests/run",
    ];
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
