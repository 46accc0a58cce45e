//! Events of `claude --output-format stream-json`.

use serde_json::Value;

use super::{says, text, tool_use, used};

pub(super) fn sentence(event: &Value) -> Option<String> {
    match event["type"].as_str()? {
        "system" => system(event),
        "assistant" => joined(event, |block| match block["type"].as_str()? {
            "text" => says(text(block, "/text")?),
            "thinking" => Some(format!("thinks: {}", text(block, "/thinking")?)),
            "tool_use" | "server_tool_use" => Some(tool_use(text(block, "/name")?, &block["input"])),
            _ => None,
        }),
        // What a tool gave back is for the model; that it failed is for people, too.
        "user" => joined(event, |block| {
            let failed = block["type"] == "tool_result" && block["is_error"] == true;
            failed.then(|| format!("failed: {}", content(&block["content"])))
        }),
        "result" => Some(result(event)),
        _ => None,
    }
}

fn system(event: &Value) -> Option<String> {
    match event["subtype"].as_str()? {
        "init" => Some(format!("starts with the model {}", text(event, "/model")?)),
        "api_retry" => {
            let status = event["error_status"].as_u64().map(|status| format!(", status {status}"));
            let attempt = event["attempt"].as_u64().unwrap_or_default();
            Some(format!("waits for its model, attempt {attempt}{}", status.unwrap_or_default()))
        }
        _ => None,
    }
}

/// The blocks of a message on one line.
fn joined(event: &Value, of: impl Fn(&Value) -> Option<String>) -> Option<String> {
    let blocks = event.pointer("/message/content")?.as_array()?;
    let all: Vec<String> = blocks.iter().filter_map(of).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// A text, or the texts of a list of blocks.
fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().filter_map(|block| text(block, "/text")).collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

fn result(event: &Value) -> String {
    if event["is_error"] == true {
        return format!("ended with an error: {}", text(event, "/result").unwrap_or("it does not say which"));
    }
    let count = |name: &str| event["usage"][name].as_u64().unwrap_or_default();
    let input = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    let input = input.iter().fold(0, |sum: u64, name| sum.saturating_add(count(name)));
    let cost = event["total_cost_usd"].as_f64().map(|cost| format!(", ${cost:.2}")).unwrap_or_default();
    format!("ended: {}{cost}", used(input, count("output_tokens")))
}
