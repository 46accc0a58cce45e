//! OpenAI's Responses.

use serde_json::{Value as Json, json};

use super::http::Event;
use super::{INPUT_TOKENS, OUTPUT_TOKENS, Refusal, Tool, Turn, Wire, list, openai_refusal};

/// The shell tool that has no name and no schema, only a type.
const LOCAL_SHELL: &str = "local_shell";

#[derive(Debug)]
pub(super) struct Responses;

impl Wire for Responses {
    fn tools(&self, body: &Json) -> Vec<Tool> {
        let tool = |tool: &Json| {
            let name = if tool["type"] == LOCAL_SHELL { &tool["type"] } else { &tool["name"] };
            Tool::new(name, &tool["parameters"])
        };
        list(&body["tools"]).iter().filter_map(tool).collect()
    }

    fn results(&self, body: &Json) -> usize {
        let result = |item: &&Json| item["type"].as_str().is_some_and(|kind| kind.ends_with("_call_output"));
        list(&body["input"]).iter().filter(result).count()
    }

    fn whole(&self, body: &Json, number: u64, turn: &Turn) -> Json {
        let (id, call) = (format!("item_{number}"), format!("call_{number}"));
        let item = match turn {
            Turn::Text(text) => json!({
                "type": "message",
                "id": id,
                "role": "assistant",
                "status": "completed",
                "content": [{ "type": "output_text", "text": text, "annotations": [] }],
            }),
            Turn::Command { tool, command } if tool.name == LOCAL_SHELL => json!({
                "type": "local_shell_call",
                "id": id,
                "call_id": call,
                "status": "completed",
                "action": { "type": "exec", "command": ["bash", "-lc", command], "env": {} },
            }),
            Turn::Command { tool, command } => json!({
                "type": "function_call",
                "id": id,
                "call_id": call,
                "name": tool.name,
                "arguments": tool.arguments(command).to_string(),
                "status": "completed",
            }),
        };
        json!({
            "id": format!("resp_{number}"),
            "object": "response",
            "created_at": super::now(),
            "model": body["model"],
            "status": "completed",
            "output": [item],
            "usage": {
                "input_tokens": INPUT_TOKENS,
                "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": OUTPUT_TOKENS,
                "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
            },
        })
    }

    fn events(&self, _: &Json, whole: &Json) -> Vec<Event> {
        let mut begun = whole.clone();
        begun["status"] = json!("in_progress");
        begun["output"] = json!([]);
        begun["usage"] = Json::Null;
        let item = &whole["output"][0];
        let mut events = vec![
            json!({ "type": "response.created", "response": begun }),
            json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
        ];
        if let Some(text) = item["content"][0]["text"].as_str() {
            events.push(json!({
                "type": "response.output_text.delta",
                "item_id": item["id"],
                "output_index": 0,
                "content_index": 0,
                "delta": text,
            }));
        }
        events.push(json!({ "type": "response.output_item.done", "output_index": 0, "item": item }));
        events.push(json!({ "type": "response.completed", "response": whole }));
        events.iter().map(Event::typed).collect()
    }

    fn refusal(&self, refusal: Refusal) -> Json {
        openai_refusal(refusal)
    }
}
