//! OpenAI's Chat Completions.

use serde_json::{Value as Json, json};

use super::http::Event;
use super::{INPUT_TOKENS, OUTPUT_TOKENS, Refusal, Tool, Turn, Wire, list, openai_refusal};

#[derive(Debug)]
pub(super) struct Chat;

impl Wire for Chat {
    fn tools(&self, body: &Json) -> Vec<Tool> {
        let tool = |tool: &Json| Tool::new(&tool["function"]["name"], &tool["function"]["parameters"]);
        list(&body["tools"]).iter().filter_map(tool).collect()
    }

    fn results(&self, body: &Json) -> usize {
        list(&body["messages"]).iter().filter(|message| message["role"] == "tool").count()
    }

    fn whole(&self, body: &Json, number: u64, turn: &Turn) -> Json {
        let (message, finish) = match turn {
            Turn::Text(text) => (json!({ "role": "assistant", "content": text }), "stop"),
            Turn::Command { tool, command } => {
                let function = json!({ "name": tool.name, "arguments": tool.arguments(command).to_string() });
                let call = json!({
                    "index": 0,
                    "id": format!("call_{number}"),
                    "type": "function",
                    "function": function,
                });
                (json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
            }
        };
        json!({
            "id": format!("chatcmpl-{number}"),
            "object": "chat.completion",
            "created": super::now(),
            "model": body["model"],
            "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
            "usage": {
                "prompt_tokens": INPUT_TOKENS,
                "completion_tokens": OUTPUT_TOKENS,
                "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
            },
        })
    }

    fn events(&self, body: &Json, whole: &Json) -> Vec<Event> {
        let chunk = |choices: Json, usage: &Json| {
            let mut chunk = whole.clone();
            chunk["object"] = json!("chat.completion.chunk");
            chunk["choices"] = choices;
            chunk["usage"] = usage.clone();
            Event::unnamed(chunk)
        };
        let choice = &whole["choices"][0];
        let delta = json!([{ "index": 0, "delta": choice["message"], "finish_reason": null }]);
        let end = json!([{ "index": 0, "delta": {}, "finish_reason": choice["finish_reason"] }]);
        let mut events = vec![chunk(delta, &Json::Null), chunk(end, &Json::Null)];
        // Who does not ask for the usage of a stream does not get it.
        if body["stream_options"]["include_usage"] == true {
            events.push(chunk(json!([]), &whole["usage"]));
        }
        events.push(Event::unnamed("[DONE]"));
        events
    }

    fn refusal(&self, refusal: Refusal) -> Json {
        openai_refusal(refusal)
    }
}
