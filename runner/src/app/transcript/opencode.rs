//! Events of `opencode run --format json`.

use serde_json::Value;

use super::{says, text, tool_use, used};

pub(super) fn sentence(event: &Value) -> Option<String> {
    let part = &event["part"];
    match event["type"].as_str()? {
        "text" => says(text(part, "/text")?),
        "reasoning" => Some(format!("thinks: {}", text(part, "/text")?)),
        "tool_use" => {
            let used = tool_use(text(part, "/tool")?, &part["state"]["input"]);
            Some(match part["state"]["status"] == "error" {
                true => format!("failed: {used}: {}", text(part, "/state/error").unwrap_or_default()),
                false => used,
            })
        }
        "step_finish" => {
            let count = |name: &str| part["tokens"][name].as_u64().unwrap_or_default();
            (part["reason"] == "stop").then(|| format!("ended: {}", used(count("input"), count("output"))))
        }
        "error" => {
            let message = text(event, "/error/data/message").or_else(|| text(event, "/error/message"));
            Some(format!("error: {}", message.or_else(|| text(event, "/error/name"))?))
        }
        _ => None,
    }
}
