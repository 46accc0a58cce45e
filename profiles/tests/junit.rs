//! JUnit XML that a parser accepts, with the right numbers in it.

mod support;

use std::process::Command;

use support::Prover;

const COUNT: &str = r#"
import sys, json, xml.etree.ElementTree as tree
suites = tree.parse(sys.argv[1]).getroot()
suite = suites.find("testsuite")
cases = suite.findall("testcase")
def text(kind):
    return [(case.get("name"), case.find(kind).get("message"), case.find(kind).text or "") for case in cases if case.find(kind) is not None]
print(json.dumps({
    "suites": suites.attrib, "suite": suite.attrib, "cases": [case.get("name") for case in cases],
    "failures": text("failure"), "skipped": text("skipped"), "errors": text("error"),
    "properties": {one.get("name"): one.get("value") for one in suite.iter("property")},
    "notes": suite.findtext("system-out"),
}))
"#;

fn parsed(prover: &Prover, arguments: &[&str]) -> (support::Said, serde_json::Value) {
    let file = prover.outside("junit.xml");
    let junit = format!("junit={}", file.display());
    let said = prover.prove(&[arguments, &[&junit]].concat());
    let output = Command::new("python3").args(["-c", COUNT]).arg(&file).output().expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (said, serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn a_proof_is_a_suite_with_a_test_for_each_command() {
    let prover = Prover::of(
        "commands:\n  - 'true'\n  - \"printf 'a<b>&\\\"c\\\"]]>\\\\033[31m\\\\0\\\\377 end\\\\n'; exit 3\"\n  - {run: sleep 60, timeout: 1s}\n",
    );
    let (said, xml) = parsed(&prover, &[]);
    for suite in [&xml["suites"], &xml["suite"]] {
        assert_eq!(
            (&suite["tests"], &suite["failures"], &suite["errors"], &suite["skipped"]),
            (&"3".into(), &"2".into(), &"0".into(), &"0".into())
        );
    }
    assert_eq!(
        (&xml["suite"]["name"], &xml["suite"]["timestamp"]),
        (&"mine".into(), &"1970-01-01T00:00:00Z".into())
    );
    assert_eq!(xml["cases"][1], said.command(1)["cmd"]);
    assert_eq!(xml["failures"][0][1], "exit code 3");
    assert_eq!(xml["failures"][0][2], "a<b>&\"c\"]]>\u{fffd}[31m\u{fffd}\u{fffd} end\n");
    assert_eq!(xml["failures"][1][1], "stopped after its deadline");
    assert_eq!(xml["properties"]["tree"], said.proof()["tree"]);
    assert_eq!(xml["properties"]["profile_hash"], said.proof()["hash"]);
}

#[test]
fn what_was_not_run_is_skipped_and_a_long_log_is_shown_from_its_end() {
    let prover = Prover::of("tiemout: 1s\ncommands: ['seq 1 20000; exit 1', 'true', 'true']");
    let (_, xml) = parsed(&prover, &["fail_fast"]);
    assert_eq!(
        (&xml["suite"]["tests"], &xml["suite"]["failures"], &xml["suite"]["skipped"]),
        (&"3".into(), &"1".into(), &"2".into())
    );
    let log = xml["failures"][0][2].as_str().expect("text");
    assert!(log.starts_with("[… the beginning is in ") && log.ends_with("19999\n20000\n"), "{}", &log[..200]);
    assert!(log.len() < 20 << 10);
    assert!(xml["notes"].as_str().is_some_and(|notes| notes.contains("did you mean `timeout`?")));
}
