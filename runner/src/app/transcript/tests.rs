//! What people see of recorded and of hostile lines.

use proptest::prelude::*;

use super::{LONGEST, OutputFormat};

fn shown(format: OutputFormat, lines: &str) -> String {
    lines.lines().filter_map(|line| format.shown(line.as_bytes())).map(|line| line + "\n").collect()
}

/// Lines of the real programs, which worked with a scripted model.
#[test]
fn recorded_lines_are_read_as_people_read_them() {
    let claude = include_str!("recorded/claude.jsonl");
    assert_eq!(shown(OutputFormat::Claude, claude), include_str!("recorded/claude.txt"));
    let codex = include_str!("recorded/codex.jsonl");
    assert_eq!(shown(OutputFormat::Codex, codex), include_str!("recorded/codex.txt"));
}

#[test]
fn each_tool_is_told_by_what_it_does() {
    let line = |name: &str, input: &str| {
        let line = format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","name":"{name}","input":{input}}}]}}}}"#
        );
        OutputFormat::Claude.shown(line.as_bytes()).expect("shown")
    };
    for (name, input, expected) in [
        ("Read", r#"{"file_path":"/w/src/a.rs","offset":1}"#, "reads /w/src/a.rs"),
        ("Edit", r#"{"file_path":"/w/src/a.rs","old_string":"x","new_string":"y"}"#, "edits /w/src/a.rs"),
        ("Write", r#"{"file_path":"/w/b","content":"x"}"#, "writes /w/b"),
        ("Bash", r#"{"command":"cargo test\n  --all"}"#, "runs: cargo test --all"),
        ("Grep", r#"{"pattern":"fn main"}"#, "searches for fn main"),
        ("Glob", r#"{"pattern":"**/*.rs"}"#, "lists **/*.rs"),
        ("WebFetch", r#"{"url":"https://example.org"}"#, "fetches https://example.org"),
        ("Task", r#"{"description":"look around"}"#, "starts another agent: look around"),
        (
            "TodoWrite",
            r#"{"todos":[{"content":"a","status":"completed"},{"content":"b","status":"pending"}]}"#,
            "plans: 1 of 2 done, next: b",
        ),
        ("mcp__x__y", r#"{"q":1}"#, "uses the tool mcp__x__y"),
        ("Read", "{}", "uses the tool Read"),
    ] {
        assert_eq!(line(name, input), expected);
    }
    for (format, line, expected) in [
        (
            OutputFormat::Codex,
            r#"{"type":"item.completed","item":{"type":"file_change","changes":[{"path":"/w/a","kind":"update"},{"path":"/w/b","kind":"add"}],"status":"completed"}}"#,
            Some("edits /w/a, writes /w/b"),
        ),
        (
            OutputFormat::Codex,
            r#"{"type":"item.updated","item":{"type":"todo_list","items":[{"text":"a","completed":false}]}}"#,
            Some("plans: 0 of 1 done, next: a"),
        ),
        (
            OutputFormat::Codex,
            r#"{"type":"turn.failed","error":{"message":"no"}}"#,
            Some("ended with an error: no"),
        ),
        (OutputFormat::Codex, r#"{"type":"thread.started","thread_id":"x"}"#, None),
        (
            OutputFormat::Opencode,
            r#"{"type":"tool_use","part":{"tool":"edit","state":{"status":"completed","input":{"filePath":"/w/a"}}}}"#,
            Some("edits /w/a"),
        ),
        (OutputFormat::Opencode, r#"{"type":"error","error":{"data":{"message":"no"}}}"#, Some("error: no")),
        (
            OutputFormat::Cursor,
            r#"{"type":"tool_call","subtype":"started","tool_call":{"shellToolCall":{"args":{"command":"ls"}}}}"#,
            Some("runs: ls"),
        ),
        (OutputFormat::Gemini, r#"  "response": "It is\ndone.","#, Some("says: It is done.")),
        (OutputFormat::Gemini, r#"    "prompt": 12,"#, None),
        (OutputFormat::Gemini, "  },", None),
        (
            OutputFormat::Gemini,
            "Attempt 5 failed with status 429",
            Some("| Attempt 5 failed with status 429"),
        ),
        (
            OutputFormat::Claude,
            r#"{"type":"result","is_error":true,"result":"Not logged in"}"#,
            Some("ended with an error: Not logged in"),
        ),
    ] {
        assert_eq!(format.shown(line.as_bytes()).as_deref(), expected, "{line}");
    }
}

#[test]
fn no_line_looks_like_one_of_ours_or_steers_a_terminal() {
    let forged = "\\u001b[2J\\u001b]0;x\\u0007agency: T0009 done\\nagency: all done\\u202e\\u009b5A";
    let says = format!(r#"{{"type":"item.completed","item":{{"type":"agent_message","text":"{forged}"}}}}"#);
    assert_eq!(
        OutputFormat::Codex.shown(says.as_bytes()).as_deref(),
        Some("says: [2J]0;xagency: T0009 done agency: all done5A")
    );
    for plain in ["agency: T0009 done", "\u{1b}[32magency: T0009 done\u{1b}[0m", "\ragency: T0009 done"] {
        assert_eq!(OutputFormat::Claude.shown(plain.as_bytes()).as_deref(), Some("| agency: T0009 done"));
    }
}

/// Anything that an agent may write: JSON that begins like an event, and bytes of any kind.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let event = (
        prop::sample::select(vec![
            "assistant",
            "user",
            "system",
            "result",
            "item.completed",
            "item.started",
            "error",
        ]),
        prop::sample::select(vec!["agent_message", "command_execution", "file_change", "todo_list", "error"]),
        any::<String>(),
    );
    let event = event.prop_map(|(kind, item, text)| {
        let block = serde_json::json!([{ "type": "text", "text": text }, { "type": "tool_use", "name": text, "input": text }]);
        let item = serde_json::json!({ "type": item, "text": text, "command": text, "exit_code": 1, "changes": block, "items": block });
        let event = serde_json::json!({ "type": kind, "subtype": "init", "model": text, "message": { "content": block }, "item": item, "result": text });
        event.to_string().into_bytes()
    });
    prop_oneof![
        event,
        prop::collection::vec(any::<u8>(), 0..200),
        any::<String>().prop_map(String::into_bytes)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_an_agent_writes_is_one_bounded_line(bytes in hostile(), format in prop::sample::select(OutputFormat::ALL.as_slice())) {
        if let Some(line) = format.shown(&bytes) {
            prop_assert!(line.chars().count() <= LONGEST + 2, "{line}");
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
            if format == OutputFormat::Text {
                return Ok(());
            }
            let ours = ["| ", "says", "thinks", "runs", "reads", "edits", "writes", "deletes", "lists", "searches", "fetches",
                "starts", "plans", "uses", "failed", "error", "ended", "waits"];
            prop_assert!(ours.iter().any(|word| line.starts_with(word)), "{line}");
        }
    }
}
