//! Events of `codex exec --json`.

use serde_json::Value;

use super::{plan, says, text, used};

pub(super) fn sentence(event: &Value) -> Option<String> {
    match event["type"].as_str()? {
        "item.started" | "item.updated" => item(&event["item"], false),
        "item.completed" => item(&event["item"], true),
        "turn.completed" => {
            let count = |name: &str| event["usage"][name].as_u64().unwrap_or_default();
            Some(format!("ended: {}", used(count("input_tokens"), count("output_tokens"))))
        }
        "turn.failed" => Some(format!("ended with an error: {}", text(event, "/error/message")?)),
        "error" => Some(format!("error: {}", text(event, "/message")?)),
        _ => None,
    }
}

fn item(item: &Value, is_over: bool) -> Option<String> {
    match (item["type"].as_str()?, is_over) {
        ("command_execution", false) => Some(format!("runs: {}", bare(text(item, "/command")?))),
        // That it ended well is seen by what comes next.
        ("command_execution", true) => match item["exit_code"].as_i64() {
            Some(0) => None,
            Some(code) => Some(format!("failed with exit code {code}: {}", last_line(item))),
            None => (item["status"] == "failed").then(|| format!("failed: {}", last_line(item))),
        },
        ("agent_message", true) => says(text(item, "/text")?),
        ("reasoning", true) => Some(format!("thinks: {}", text(item, "/text")?)),
        ("file_change", true) => changes(item),
        ("mcp_tool_call", false) => Some(format!(
            "uses the tool {} of {}",
            text(item, "/tool").unwrap_or("?"),
            text(item, "/server").unwrap_or("?")
        )),
        ("mcp_tool_call", true) => Some(format!("failed: {}", text(item, "/error/message")?)),
        ("web_search", true) => Some(format!("searches the web for {}", text(item, "/query")?)),
        ("todo_list", _) => plan(&item["items"], |item| item["completed"] == true),
        ("error", true) => Some(format!("error: {}", text(item, "/message")?)),
        _ => None,
    }
}

/// Files and what happened to each.
fn changes(item: &Value) -> Option<String> {
    let verb = |change: &Value| match change["kind"].as_str() {
        Some("add") => "writes",
        Some("delete") => "deletes",
        _ => "edits",
    };
    let all = item["changes"].as_array()?.iter();
    let all: Vec<String> =
        all.filter_map(|change| Some(format!("{} {}", verb(change), text(change, "/path")?))).collect();
    let failed = if item["status"] == "failed" { "failed: " } else { "" };
    (!all.is_empty()).then(|| format!("{failed}{}", all.join(", ")))
}

/// The last line a command wrote, or the command.
fn last_line(item: &Value) -> &str {
    let output = text(item, "/aggregated_output").and_then(|output| output.trim().lines().next_back());
    output.or_else(|| text(item, "/command").map(bare)).unwrap_or_default()
}

/// A command without the shell that every command has before it.
fn bare(command: &str) -> &str {
    let after_shell = || {
        let (shell, rest) = command.split_once(' ')?;
        let (option, inner) = rest.split_once(' ')?;
        (shell.ends_with("sh") && matches!(option, "-c" | "-lc")).then_some(inner)
    };
    let Some(inner) = after_shell() else { return command };
    let quoted =
        |mark: char| inner.strip_prefix(mark)?.strip_suffix(mark).filter(|text| !text.contains(mark));
    quoted('\'').or_else(|| quoted('"')).unwrap_or(inner)
}
