//! A scripted model on loopback: real agent programs run against it, and nothing leaves this machine.
//!
//! It speaks Anthropic's Messages and OpenAI's Responses and Chat Completions on one port, streamed or whole, and does
//! what its [`Script`] says. How far a conversation has come is read from the conversation, so neither retries nor
//! questions beside it disturb the order.

mod chat;
mod http;
mod messages;
mod responses;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value as Json, json};

use http::{Answer, Body, Connection, Event, Request};

/// What every answer is said to have taken in.
pub const INPUT_TOKENS: u64 = 1000;

/// What every answer is said to have put out.
pub const OUTPUT_TOKENS: u64 = 100;

/// What agents call their shell; an agent has one of them.
const SHELLS: &[&str] = &[
    "Bash",
    "bash",
    "shell",
    "local_shell",
    "exec_command",
    "shell_command",
    "run_shell_command",
    "execute_command",
];

/// What the model does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Script {
    /// Asks for these shell commands, one after the other, then answers with the text. Who offers no shell gets the
    /// text at once.
    Commands { commands: Vec<String>, last: String },
    /// Answers with the text at once.
    Text(String),
    /// The key is not good: 401.
    Unauthorized,
    /// Too many requests: 429, with `retry-after` in seconds if given.
    RateLimited { retry_after: Option<u64> },
    /// 429 as the limit of a subscription is told to codex; in seconds since 1970.
    UsageLimit { resets_at: u64 },
    /// 500.
    ServerError,
    /// 200 with a page of HTML.
    Nonsense,
    /// Takes the request and never answers.
    Silent,
}

impl Script {
    /// These commands, then `Done.`
    pub fn commands(commands: &[&str]) -> Self {
        let commands = commands.iter().map(|&command| command.to_owned()).collect();
        Self::Commands { commands, last: "Done.".to_owned() }
    }
}

/// One POST that came.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Without the query.
    pub path: String,
    /// A bearer token, or `x-api-key`.
    pub key: Option<String>,
    /// Null where it was not JSON.
    pub body: Json,
}

impl Asked {
    /// All that the model was told: by the system, the user and the tools. Its own words are left out.
    pub fn text(&self) -> String {
        let mut words = Vec::new();
        for part in ["system", "instructions", "messages", "input"] {
            gather(&self.body[part], &mut words);
        }
        words.join("\n")
    }
}

fn gather<'a>(part: &'a Json, words: &mut Vec<&'a str>) {
    match part {
        Json::String(text) => words.push(text),
        Json::Array(parts) => parts.iter().for_each(|part| gather(part, words)),
        Json::Object(fields) if part["role"] != "assistant" => {
            for name in ["text", "content", "output"] {
                fields.get(name).into_iter().for_each(|part| gather(part, words));
            }
        }
        _ => {}
    }
}

/// A model that answers until it is dropped; then its connections are closed too.
#[derive(Debug)]
pub struct Model {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    script: Mutex<Script>,
    asked: Mutex<Vec<Asked>>,
    /// Answers so far.
    answered: AtomicU64,
    open: Mutex<BTreeMap<u64, TcpStream>>,
    stop: AtomicBool,
}

impl Model {
    /// On a free port of 127.0.0.1.
    pub fn start(script: Script) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            script: Mutex::new(script),
            asked: Mutex::default(),
            answered: AtomicU64::new(0),
            open: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("model".to_owned())
            .spawn(move || shared.listen(&listener))
            .expect("a thread");
        Self { address, state, thread: Some(thread) }
    }

    /// What it does from the next request on.
    pub fn becomes(&self, script: Script) {
        *held(&self.state.script) = script;
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Every POST so far.
    pub fn asked(&self) -> Vec<Asked> {
        held(&self.state.asked).clone()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::SeqCst);
        // The listener looks at the flag when somebody comes.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    fn listen(&self, listener: &TcpListener) {
        std::thread::scope(|threads| {
            for (number, stream) in (0..).zip(listener.incoming()) {
                if self.stop.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let Ok(handle) = stream.try_clone() else { continue };
                held(&self.open).insert(number, handle);
                threads.spawn(move || {
                    self.serve(stream);
                    held(&self.open).remove(&number);
                });
            }
            for stream in held(&self.open).values() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
    }

    /// Until the connection ends, or what comes is not HTTP.
    fn serve(&self, stream: TcpStream) {
        let _ = stream.set_nodelay(true);
        let mut connection = Connection::new(stream);
        while let Ok(Some(request)) = connection.request() {
            let Some(answer) = self.answer(&request) else {
                let _ = connection.ignore();
                return;
            };
            if connection.answer(&request, &answer).is_err() || request.last {
                return;
            }
        }
    }

    /// `None` for silence.
    fn answer(&self, request: &Request) -> Option<Answer> {
        if request.method != "POST" {
            let answer = if request.path.ends_with("/models") {
                json!({ "object": "list", "data": [{ "id": "scripted", "object": "model", "owned_by": "tests" }] })
            } else {
                json!({})
            };
            return Some(Answer::json(200, answer));
        }
        let body: Json = serde_json::from_slice(&request.body).unwrap_or_default();
        let script = held(&self.script).clone();
        held(&self.asked).push(Asked { path: request.path.clone(), key: key(request), body: body.clone() });
        let wire = wire(&request.path);
        let refuse = |status, refusal| {
            let body = wire.map_or_else(|| openai_refusal(refusal), |wire| wire.refusal(refusal));
            Answer::json(status, body)
        };
        Some(match script {
            Script::Silent => return None,
            Script::Unauthorized => refuse(401, Refusal::Key),
            Script::ServerError => refuse(500, Refusal::Fault),
            Script::RateLimited { retry_after } => {
                let mut answer = refuse(429, Refusal::Rate);
                answer.headers.extend(retry_after.map(|seconds| ("retry-after", seconds.to_string())));
                answer
            }
            Script::UsageLimit { resets_at } => Answer::json(429, usage_limit(resets_at)),
            Script::Nonsense => Answer {
                status: 200,
                headers: Vec::new(),
                body: Body::Html("<html><body>Hello</body></html>\n"),
            },
            _ if body.is_null() => Answer::json(400, json!({ "error": { "message": "this is not JSON" } })),
            Script::Text(text) => self.say(request, &body, &[], text),
            Script::Commands { commands, last } => self.say(request, &body, &commands, last),
        })
    }

    /// The next of the commands in this conversation, or the text after them.
    fn say(&self, request: &Request, body: &Json, commands: &[String], last: String) -> Answer {
        let Some(wire) = wire(&request.path) else {
            let counted = request.path.ends_with("/count_tokens");
            return Answer::json(
                200,
                if counted { json!({ "input_tokens": INPUT_TOKENS }) } else { json!({}) },
            );
        };
        let tools = wire.tools(body);
        let shell = SHELLS.iter().find_map(|name| tools.iter().find(|tool| tool.name == *name));
        let turn = match (shell, commands.get(wire.results(body))) {
            (Some(tool), Some(command)) => Turn::Command { tool: tool.clone(), command: command.clone() },
            _ => Turn::Text(last),
        };
        let whole = wire.whole(body, self.answered.fetch_add(1, Ordering::SeqCst), &turn);
        if body["stream"] == true {
            Answer { status: 200, headers: Vec::new(), body: Body::Events(wire.events(body, &whole)) }
        } else {
            Answer::json(200, whole)
        }
    }
}

/// What the model says once.
#[derive(Debug)]
enum Turn {
    Text(String),
    Command { tool: Tool, command: String },
}

/// A tool that an agent offers.
#[derive(Debug, Clone)]
struct Tool {
    name: String,
    /// Its parameters, by name.
    properties: Json,
}

impl Tool {
    fn new(name: &Json, schema: &Json) -> Option<Self> {
        Some(Self { name: name.as_str()?.to_owned(), properties: schema["properties"].clone() })
    }

    /// What makes a shell run this command.
    fn arguments(&self, command: &str) -> Json {
        let has = |name: &str| self.properties.get(name).is_some();
        if self.name == "exec_command" || has("cmd") {
            return json!({ "cmd": command });
        }
        if self.properties["command"]["type"] == "array" {
            return json!({ "command": ["bash", "-lc", command] });
        }
        let mut arguments = json!({ "command": command });
        if has("description") {
            arguments["description"] = json!("The next command");
        }
        arguments
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    Key,
    Rate,
    Fault,
}

/// A way of asking a model over HTTP.
trait Wire: Debug + Sync {
    /// What the agent offers in a request.
    fn tools(&self, body: &Json) -> Vec<Tool>;

    /// How many results of tools a request has in it.
    fn results(&self, body: &Json) -> usize;

    /// The answer in one piece; the number makes its names unique.
    fn whole(&self, body: &Json, number: u64, turn: &Turn) -> Json;

    /// The same as a stream.
    fn events(&self, body: &Json, whole: &Json) -> Vec<Event>;

    fn refusal(&self, refusal: Refusal) -> Json;
}

fn wire(path: &str) -> Option<&'static dyn Wire> {
    let wires: [(&str, &'static dyn Wire); 3] = [
        ("/messages", &messages::Messages),
        ("/responses", &responses::Responses),
        ("/chat/completions", &chat::Chat),
    ];
    wires.into_iter().find(|(end, _)| path.ends_with(end)).map(|(_, wire)| wire)
}

fn openai_refusal(refusal: Refusal) -> Json {
    let (kind, code, message) = match refusal {
        Refusal::Key => ("invalid_request_error", Some("invalid_api_key"), "Incorrect API key provided."),
        Refusal::Rate => ("requests", Some("rate_limit_exceeded"), "Rate limit reached for requests."),
        Refusal::Fault => ("server_error", None, "The server had an error while processing your request."),
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}

fn usage_limit(resets_at: u64) -> Json {
    json!({
        "error": {
            "type": "usage_limit_reached",
            "message": "The usage limit has been reached",
            "plan_type": "plus",
            "resets_at": resets_at,
            "resets_in_seconds": resets_at.saturating_sub(now()),
        },
    })
}

fn key(request: &Request) -> Option<String> {
    let bearer = request.headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
    bearer.or(request.headers.get("x-api-key").map(String::as_str)).map(str::to_owned)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970").as_secs()
}

/// An array, or nothing.
fn list(value: &Json) -> &[Json] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
