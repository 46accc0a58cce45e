//! Events of `cursor-agent --output-format stream-json`.

use serde_json::Value;

use super::{says, text, tool_use};

pub(super) fn sentence(event: &Value) -> Option<String> {
    match event["type"].as_str()? {
        "system" if event["subtype"] == "init" => {
            Some(format!("starts with the model {}", text(event, "/model")?))
        }
        "assistant" => {
            let blocks = event.pointer("/message/content")?.as_array()?;
            says(&blocks.iter().filter_map(|block| text(block, "/text")).collect::<String>())
        }
        "tool_call" if event["subtype"] == "started" => {
            let (name, call) = event["tool_call"].as_object()?.iter().next()?;
            Some(tool_use(name.strip_suffix("ToolCall").unwrap_or(name), &call["args"]))
        }
        "result" if event["is_error"] == true => Some(format!(
            "ended with an error: {}",
            text(event, "/result").unwrap_or("it does not say which")
        )),
        "result" => Some("ended".to_owned()),
        _ => None,
    }
}
