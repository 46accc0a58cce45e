use std::io;
use std::time::Duration;

use super::*;

/// What each wire format calls things.
struct Format {
    path: &'static str,
    /// A tool that takes `command` as a string.
    tool: Json,
    /// The conversation after so many results.
    conversation: fn(usize) -> Json,
    /// The text of an answer in one piece.
    text: &'static str,
    /// The command of an answer in one piece.
    command: fn(&Json) -> Option<String>,
}

fn formats() -> [Format; 3] {
    let schema = json!({ "type": "object", "properties": { "command": { "type": "string" } } });
    [
        Format {
            path: "/v1/messages",
            tool: json!({ "name": "Bash", "input_schema": schema }),
            conversation: |results| {
                let result = json!({ "type": "tool_result", "tool_use_id": "t", "content": "came out" });
                let one = [
                    json!({ "role": "assistant", "content": [{ "type": "text", "text": "own words" }] }),
                    json!({ "role": "user", "content": [result] }),
                ];
                let mut messages = vec![json!({ "role": "user", "content": "please" })];
                messages.extend(std::iter::repeat_n(one, results).flatten());
                json!({ "system": [{ "type": "text", "text": "rules" }], "messages": messages })
            },
            text: "/content/0/text",
            command: |whole| whole.pointer("/content/0/input/command")?.as_str().map(str::to_owned),
        },
        Format {
            path: "/v1/responses",
            tool: json!({ "type": "function", "name": "shell", "parameters": schema }),
            conversation: |results| {
                let one = [
                    json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "own words" }] }),
                    json!({ "type": "function_call_output", "call_id": "c", "output": "came out" }),
                ];
                let user = json!([{ "type": "input_text", "text": "please" }]);
                let mut input = vec![json!({ "type": "message", "role": "user", "content": user })];
                input.extend(std::iter::repeat_n(one, results).flatten());
                json!({ "instructions": "rules", "input": input })
            },
            text: "/output/0/content/0/text",
            command: |whole| called(whole.pointer("/output/0/arguments")?),
        },
        Format {
            path: "/v1/chat/completions",
            tool: json!({ "type": "function", "function": { "name": "bash", "parameters": schema } }),
            conversation: |results| {
                let one = [
                    json!({ "role": "assistant", "content": "own words" }),
                    json!({ "role": "tool", "tool_call_id": "c", "content": "came out" }),
                ];
                let mut messages = vec![
                    json!({ "role": "system", "content": "rules" }),
                    json!({ "role": "user", "content": "please" }),
                ];
                messages.extend(std::iter::repeat_n(one, results).flatten());
                json!({ "messages": messages })
            },
            text: "/choices/0/message/content",
            command: |whole| called(whole.pointer("/choices/0/message/tool_calls/0/function/arguments")?),
        },
    ]
}

impl Format {
    fn request(&self, results: usize, stream: bool) -> Json {
        let mut body = (self.conversation)(results);
        body["model"] = json!("scripted");
        body["stream"] = json!(stream);
        body["tools"] = json!([{ "name": "Read" }, self.tool]);
        body
    }
}

/// The command in arguments that are JSON in a string.
fn called(arguments: &Json) -> Option<String> {
    let arguments: Json = serde_json::from_str(arguments.as_str()?).ok()?;
    Some(arguments["command"].as_str()?.to_owned())
}

fn script() -> Script {
    Script::commands(&["first", "second"])
}

fn connect(model: &Model) -> Connection {
    let stream = TcpStream::connect(("127.0.0.1", model.port())).expect("connected");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    Connection::new(stream)
}

fn post(connection: &mut Connection, path: &str, body: &Json) {
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: here\r\ncontent-length: {}\r\n\r\n", body.len());
    connection.send(format!("{head}{body}").as_bytes()).expect("sent");
}

fn ask(connection: &mut Connection, path: &str, body: &Json) -> (u16, Json) {
    post(connection, path, body);
    let (status, _, body) = connection.response().expect("an answer");
    (status, serde_json::from_slice(&body).expect("JSON"))
}

/// The events of a stream: their names, and their data.
fn stream(connection: &mut Connection, path: &str, body: &Json) -> Vec<(Option<String>, String)> {
    post(connection, path, body);
    let (status, headers, body) = connection.response().expect("an answer");
    assert_eq!((status, headers["content-type"].as_str()), (200, "text/event-stream"));
    let text = String::from_utf8(body).expect("text");
    let event = |event: &str| {
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        (field("event: "), field("data: ").expect("data"))
    };
    text.split_terminator("\n\n").map(event).collect()
}

fn parsed(events: &[(Option<String>, String)]) -> Vec<Json> {
    events.iter().filter_map(|(_, data)| serde_json::from_str(data).ok()).collect()
}

#[test]
fn commands_come_in_their_order_in_every_format_on_one_connection() {
    let model = Model::start(script());
    let mut connection = connect(&model);
    for format in formats() {
        // A retry gets the same again.
        for (results, command) in [(0, "first"), (0, "first"), (1, "second"), (0, "first")] {
            let (status, whole) = ask(&mut connection, format.path, &format.request(results, false));
            assert_eq!(status, 200);
            assert_eq!((format.command)(&whole).as_deref(), Some(command), "{whole}");
        }
        for results in [2, 3] {
            let (_, whole) = ask(&mut connection, format.path, &format.request(results, false));
            assert_eq!(whole.pointer(format.text), Some(&json!("Done.")), "{whole}");
        }
    }
    assert_eq!(model.asked().len(), 18);
}

#[test]
fn every_answer_is_told_apart_and_says_what_it_used() {
    let model = Model::start(script());
    let mut connection = connect(&model);
    let mut names = Vec::new();
    for format in formats() {
        for results in 0..3 {
            let (_, whole) = ask(&mut connection, format.path, &format.request(results, false));
            names.push(whole["id"].to_string());
            let usage = &whole["usage"];
            let figure = |names: [&str; 2]| names.iter().find_map(|name| usage[*name].as_u64());
            assert_eq!(figure(["input_tokens", "prompt_tokens"]), Some(INPUT_TOKENS));
            assert_eq!(figure(["output_tokens", "completion_tokens"]), Some(OUTPUT_TOKENS));
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 9);
}

#[test]
fn who_offers_no_shell_gets_the_text() {
    let model = Model::start(script());
    let mut connection = connect(&model);
    for format in formats() {
        let mut request = format.request(0, false);
        for tools in [json!([{ "name": "Read" }]), json!([]), Json::Null] {
            request["tools"] = tools;
            let (_, whole) = ask(&mut connection, format.path, &request);
            assert_eq!(whole.pointer(format.text), Some(&json!("Done.")), "{whole}");
        }
    }
}

#[test]
fn messages_are_streamed() {
    let model = Model::start(script());
    let mut connection = connect(&model);
    let [format, ..] = formats();
    let events = stream(&mut connection, format.path, &format.request(0, true));
    let names: Vec<&str> = events.iter().filter_map(|(name, _)| name.as_deref()).collect();
    let expected = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    let data = parsed(&events);
    assert_eq!(data[0]["message"]["usage"]["input_tokens"], INPUT_TOKENS);
    assert_eq!(data[1]["content_block"]["name"], "Bash");
    assert_eq!(data[2]["delta"]["partial_json"], r#"{"command":"first"}"#);
    assert_eq!(data[4]["delta"]["stop_reason"], "tool_use");
    assert_eq!(data[4]["usage"]["output_tokens"], OUTPUT_TOKENS);

    let data = parsed(&stream(&mut connection, format.path, &format.request(2, true)));
    assert_eq!(data[2]["delta"], json!({ "type": "text_delta", "text": "Done." }));
    assert_eq!(data[4]["delta"]["stop_reason"], "end_turn");
}

#[test]
fn responses_are_streamed() {
    let model = Model::start(script());
    let mut connection = connect(&model);
    let [_, format, _] = formats();
    let events = stream(&mut connection, format.path, &format.request(1, true));
    let data = parsed(&events);
    let kinds: Vec<Option<&str>> = data.iter().map(|data| data["type"].as_str()).collect();
    let names: Vec<Option<&str>> = events.iter().map(|(name, _)| name.as_deref()).collect();
    assert_eq!(kinds, names);
    assert_eq!(names.first(), Some(&Some("response.created")));
    assert_eq!(names.last(), Some(&Some("response.completed")));
    let whole = &data[data.len() - 1]["response"];
    assert_eq!((format.command)(whole).as_deref(), Some("second"));
    assert_eq!(data[data.len() - 2]["item"], whole["output"][0]);
    assert_eq!(whole["usage"]["total_tokens"], INPUT_TOKENS + OUTPUT_TOKENS);

    let data = parsed(&stream(&mut connection, format.path, &format.request(2, true)));
    assert_eq!(data[2]["delta"], "Done.");
}

#[test]
fn completions_are_streamed() {
    let model = Model::start(script());
    let mut connection = connect(&model);
    let [_, _, format] = formats();
    let mut request = format.request(0, true);
    let events = stream(&mut connection, format.path, &request);
    assert_eq!(events.last(), Some(&(None, "[DONE]".to_owned())));
    let data = parsed(&events);
    let call = &data[0]["choices"][0]["delta"]["tool_calls"][0]["function"];
    assert_eq!(called(&call["arguments"]).as_deref(), Some("first"));
    assert_eq!(data[1]["choices"][0]["finish_reason"], "tool_calls");
    assert!(data.iter().all(|chunk| chunk["usage"].is_null()), "{data:?}");

    request["stream_options"] = json!({ "include_usage": true });
    let data = parsed(&stream(&mut connection, format.path, &request));
    assert_eq!(data[2]["usage"]["prompt_tokens"], INPUT_TOKENS);

    let data = parsed(&stream(&mut connection, format.path, &format.request(2, true)));
    assert_eq!(data[0]["choices"][0]["delta"]["content"], "Done.");
    assert_eq!(data[1]["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_shell_gets_its_command_as_it_wants_it() {
    let arguments = |properties: Json| {
        let tool = Tool::new(&json!("shell"), &json!({ "properties": properties })).expect("a tool");
        tool.arguments("go")
    };
    assert_eq!(arguments(json!({ "cmd": { "type": "string" } })), json!({ "cmd": "go" }));
    assert_eq!(
        arguments(json!({ "command": { "type": "array" } })),
        json!({ "command": ["bash", "-lc", "go"] })
    );
    assert_eq!(arguments(json!({ "command": { "type": "string" } })), json!({ "command": "go" }));
    let described = arguments(json!({ "command": { "type": "string" }, "description": {} }));
    assert!(described["description"].is_string(), "{described}");

    let model = Model::start(script());
    let [_, format, _] = formats();
    let mut request = format.request(0, false);
    request["tools"] = json!([{ "type": "local_shell" }]);
    let (_, whole) = ask(&mut connect(&model), format.path, &request);
    assert_eq!(whole["output"][0]["action"]["command"], json!(["bash", "-lc", "first"]));
}

#[test]
fn what_was_asked_is_kept_with_its_key_and_its_text() {
    let model = Model::start(Script::Text("At once.".to_owned()));
    for (number, format) in formats().into_iter().enumerate() {
        let (body, header) =
            (format.request(1, false).to_string(), ["x-api-key: k", "Authorization: Bearer k"][number % 2]);
        let mut connection = connect(&model);
        let head = format!(
            "POST {}?beta=true HTTP/1.1\r\n{header}\r\nContent-Length: {}\r\n\r\n",
            format.path,
            body.len()
        );
        connection.send(format!("{head}{body}").as_bytes()).expect("sent");
        let (_, _, answer) = connection.response().expect("an answer");
        let whole: Json = serde_json::from_slice(&answer).expect("JSON");
        assert_eq!(whole.pointer(format.text), Some(&json!("At once.")));
        let asked = model.asked().pop().expect("asked");
        assert_eq!((asked.path.as_str(), asked.key.as_deref()), (format.path, Some("k")));
        assert_eq!(asked.body, format.request(1, false));
        assert_eq!(asked.text(), "rules\nplease\ncame out");
    }
}

#[test]
fn bodies_come_in_chunks_and_wait_to_be_asked_for() {
    let model = Model::start(script());
    let mut connection = connect(&model);
    let head = "POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n";
    connection.send(head.as_bytes()).expect("sent");
    assert_eq!(connection.response_head().expect("an answer").0, 100);
    connection.send(b"5\r\n{\"mod\r\n9\r\nel\": \"x\"}\r\n0\r\n\r\n").expect("sent");
    let (status, _, _) = connection.response().expect("an answer");
    assert_eq!(status, 200);
    assert_eq!(model.asked()[0].body, json!({ "model": "x" }));
    // The connection is still in step.
    assert_eq!(ask(&mut connection, "/v1/messages/count_tokens", &json!({})).1["input_tokens"], INPUT_TOKENS);
}

#[test]
fn other_questions_do_no_harm() {
    let model = Model::start(script());
    let mut connection = connect(&model);
    connection.send(b"HEAD / HTTP/1.1\r\n\r\n").expect("sent");
    assert_eq!(connection.response_head().expect("an answer").0, 200);
    connection.send(b"GET /v1/models HTTP/1.1\r\n\r\n").expect("sent");
    let (_, _, body) = connection.response().expect("an answer");
    let models: Json = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(models["data"][0]["id"], "scripted");
    assert_eq!(ask(&mut connection, "/api/events", &json!({})), (200, json!({})));
    assert_eq!(ask(&mut connection, "/v1/messages", &Json::Null).0, 400);
    connection.send(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").expect("sent");
    assert_eq!(connection.response().expect("an answer").0, 200);
    assert!(connection.response().is_err());
    assert_eq!(model.asked().len(), 2);
}

#[test]
fn refusals_have_their_status_and_say_why_in_each_format() {
    let model = Model::start(Script::Unauthorized);
    let mut connection = connect(&model);
    let [messages, responses, chat] = formats();
    for (script, status, kind, code) in [
        (Script::Unauthorized, 401, "authentication_error", json!("invalid_api_key")),
        (Script::RateLimited { retry_after: None }, 429, "rate_limit_error", json!("rate_limit_exceeded")),
        (Script::ServerError, 500, "api_error", Json::Null),
    ] {
        model.becomes(script);
        for stream in [false, true] {
            let answer = ask(&mut connection, messages.path, &messages.request(0, stream));
            assert_eq!((answer.0, &answer.1["error"]["type"]), (status, &json!(kind)));
            for format in [&responses, &chat] {
                let answer = ask(&mut connection, format.path, &format.request(0, stream));
                assert_eq!((answer.0, &answer.1["error"]["code"]), (status, &code));
            }
        }
    }
    // And then it works again.
    model.becomes(script());
    assert_eq!(ask(&mut connection, messages.path, &messages.request(0, false)).0, 200);
}

#[test]
fn a_limit_says_when_it_ends() {
    let model = Model::start(Script::RateLimited { retry_after: Some(7) });
    let mut connection = connect(&model);
    post(&mut connection, "/v1/responses", &json!({}));
    let (status, headers, _) = connection.response().expect("an answer");
    assert_eq!((status, headers["retry-after"].as_str()), (429, "7"));

    let resets_at = now() + 3600;
    model.becomes(Script::UsageLimit { resets_at });
    let (status, answer) = ask(&mut connection, "/v1/responses", &json!({}));
    assert_eq!((status, &answer["error"]["type"]), (429, &json!("usage_limit_reached")));
    assert_eq!(answer["error"]["resets_at"], resets_at);
    let left = answer["error"]["resets_in_seconds"].as_u64().expect("a number");
    assert!((3500..=3600).contains(&left), "{left}");
}

#[test]
fn nonsense_is_a_page() {
    let model = Model::start(Script::Nonsense);
    let mut connection = connect(&model);
    post(&mut connection, "/v1/chat/completions", &json!({}));
    let (status, headers, body) = connection.response().expect("an answer");
    assert_eq!((status, headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    assert!(body.starts_with(b"<html>"));
}

#[test]
fn silence_lasts_until_the_model_is_dropped() {
    let model = Model::start(Script::Silent);
    let (mut silent, mut idle) = (connect(&model), connect(&model));
    post(&mut silent, "/v1/messages", &json!({}));
    // Answered, so that it is known to be open; what was asked before is not answered by that.
    assert_eq!(get(&mut idle), 200);
    assert!(crate::processes::wait_until(Duration::from_secs(20), || model.asked().len() == 1));
    model.becomes(script());
    drop(model);
    for connection in [&mut silent, &mut idle] {
        let error = connection.response().expect_err("closed");
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
    }
}

fn get(connection: &mut Connection) -> u16 {
    connection.send(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    connection.response().expect("an answer").0
}
