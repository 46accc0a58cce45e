//! Anthropic's Messages.

use serde_json::{Value as Json, json};

use super::http::Event;
use super::{INPUT_TOKENS, OUTPUT_TOKENS, Refusal, Tool, Turn, Wire, list};

#[derive(Debug)]
pub(super) struct Messages;

impl Wire for Messages {
    fn tools(&self, body: &Json) -> Vec<Tool> {
        let tool = |tool: &Json| Tool::new(&tool["name"], &tool["input_schema"]);
        list(&body["tools"]).iter().filter_map(tool).collect()
    }

    fn results(&self, body: &Json) -> usize {
        let blocks = list(&body["messages"]).iter().flat_map(|message| list(&message["content"]));
        blocks.filter(|block| block["type"] == "tool_result").count()
    }

    fn whole(&self, body: &Json, number: u64, turn: &Turn) -> Json {
        let (block, stop) = match turn {
            Turn::Text(text) => (json!({ "type": "text", "text": text }), "end_turn"),
            Turn::Command { tool, command } => {
                let input = tool.arguments(command);
                let id = format!("toolu_{number}");
                (json!({ "type": "tool_use", "id": id, "name": tool.name, "input": input }), "tool_use")
            }
        };
        json!({
            "id": format!("msg_{number}"),
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [block],
            "stop_reason": stop,
            "stop_sequence": null,
            "usage": usage(OUTPUT_TOKENS),
        })
    }

    fn events(&self, _: &Json, whole: &Json) -> Vec<Event> {
        let mut begun = whole.clone();
        begun["content"] = json!([]);
        begun["stop_reason"] = Json::Null;
        begun["usage"] = usage(0);
        let block = &whole["content"][0];
        let mut empty = block.clone();
        let delta = if let Some(text) = block["text"].as_str() {
            empty["text"] = json!("");
            json!({ "type": "text_delta", "text": text })
        } else {
            empty["input"] = json!({});
            json!({ "type": "input_json_delta", "partial_json": block["input"].to_string() })
        };
        let end = json!({ "stop_reason": whole["stop_reason"], "stop_sequence": null });
        [
            json!({ "type": "message_start", "message": begun }),
            json!({ "type": "content_block_start", "index": 0, "content_block": empty }),
            json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": end, "usage": { "output_tokens": OUTPUT_TOKENS } }),
            json!({ "type": "message_stop" }),
        ]
        .iter()
        .map(Event::typed)
        .collect()
    }

    fn refusal(&self, refusal: Refusal) -> Json {
        let (kind, message) = match refusal {
            Refusal::Key => ("authentication_error", "invalid x-api-key"),
            Refusal::Rate => ("rate_limit_error", "This request would exceed your account's rate limit."),
            Refusal::Fault => ("api_error", "Internal server error"),
        };
        json!({ "type": "error", "error": { "type": kind, "message": message } })
    }
}

fn usage(output: u64) -> Json {
    json!({
        "input_tokens": INPUT_TOKENS,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output,
    })
}
