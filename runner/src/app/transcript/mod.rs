//! An agent's output as people read it: what it says, reads, edits and runs, a line for each.
//!
//! Programs for agents write events as JSON, each in a format of its own. A format turns one line into one line, or into
//! nothing where a person would learn nothing. The agent wrote these lines, and may be hostile: what is shown is one line
//! of bounded length without control characters, and it begins with a word of ours or with a bar. So no line looks like
//! one of agency's own, and nothing steers a terminal.

mod claude;
mod codex;
mod cursor;
mod gemini;
mod guard;
mod opencode;
mod splitter;
#[cfg(test)]
mod tests;

use std::path::Path;

use agency_supervisor::job::JobFolder;
use agency_supervisor::job::order::JobKind;
use serde_json::Value;

use crate::app::plain_line;
pub(crate) use guard::LineGuard;
pub(crate) use splitter::{LineSplitter, OutputLine};

/// The most characters of a line that is shown.
const LONGEST: usize = 400;

/// How the lines of an agent's output are to be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// Lines that people read as they are.
    #[default]
    Text,
    /// Events of `claude --output-format stream-json`.
    Claude,
    /// Events of `codex exec --json`.
    Codex,
    /// Events of `cursor-agent --output-format stream-json`.
    Cursor,
    /// The document of `gemini --output-format json`.
    Gemini,
    /// Events of `opencode run --format json`.
    Opencode,
}

impl OutputFormat {
    pub(crate) const ALL: [Self; 6] =
        [Self::Text, Self::Claude, Self::Codex, Self::Cursor, Self::Gemini, Self::Opencode];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The format of what a job writes, as its order has it. A job whose order says nothing that is known here, an older
    /// one for example, writes text.
    pub(crate) fn of_job(folder: &Path) -> Self {
        let Ok(order) = JobFolder::new(folder.to_owned()).read_order() else { return Self::Text };
        match order.what {
            JobKind::Agent(agent) | JobKind::Audit(agent) => {
                agent.program.reading.format.as_deref().and_then(Self::parse).unwrap_or_default()
            }
            JobKind::Proof(_) => Self::Text,
        }
    }

    /// One line as people read it; `None` where it says nothing to them.
    pub(crate) fn shown(self, line: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim();
        let event = || serde_json::from_str::<Value>(text).ok().filter(Value::is_object);
        let words = match self {
            Self::Text => None,
            Self::Gemini => match gemini::sentence(text) {
                gemini::GeminiLine::Words(words) => Some(words),
                gemini::GeminiLine::Nothing => return None,
                gemini::GeminiLine::NoPart => None,
            },
            Self::Claude | Self::Codex | Self::Cursor | Self::Opencode => match event() {
                Some(event) => {
                    let words = match self {
                        Self::Claude => claude::sentence(&event),
                        Self::Codex => codex::sentence(&event),
                        Self::Cursor => cursor::sentence(&event),
                        _ => opencode::sentence(&event),
                    };
                    return words.map(|words| plain_line::line(&words, LONGEST));
                }
                None => None,
            },
        };
        match words {
            Some(words) => Some(plain_line::line(&words, LONGEST)),
            None => {
                let plain = plain_line::line(&without_colours(text), LONGEST);
                let bar = if self == Self::Text { "" } else { "| " };
                (!plain.is_empty()).then(|| format!("{bar}{plain}"))
            }
        }
    }
}

/// Sequences that begin with an escape and `[`, and end with a letter, are colours mostly. They go as a whole.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit() || ";:?".contains(c));
        plain.extend(rest.chars().skip(1));
    }
    plain
}

/// A text in an event.
fn text<'a>(event: &'a Value, path: &str) -> Option<&'a str> {
    event.pointer(path).and_then(Value::as_str).filter(|text| !text.trim().is_empty())
}

/// Words of the model, without the empty ones.
fn says(words: &str) -> Option<String> {
    (!words.trim().is_empty()).then(|| format!("says: {words}"))
}

/// What a tool is used for, by the names that agents give such tools and their arguments.
fn tool_use(tool: &str, input: &Value) -> String {
    let argument = |names: &[&str]| names.iter().find_map(|name| input.get(name)?.as_str());
    let path = argument(&["file_path", "filePath", "notebook_path", "path", "absolute_path"]);
    let name: String =
        tool.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let about = |verb: &str, what: Option<&str>| what.map(|what| format!("{verb} {what}"));
    let known = match name.as_str() {
        "bash" | "shell" | "exec" | "execcommand" | "runshellcommand" | "runterminalcmd" => {
            about("runs:", argument(&["command", "cmd"]))
        }
        "read" | "readfile" | "view" => about("reads", path),
        "edit" | "multiedit" | "notebookedit" | "patch" | "applypatch" | "replace" => about("edits", path),
        "write" | "writefile" => about("writes", path),
        "delete" => about("deletes", path),
        "grep" | "search" => about("searches for", argument(&["pattern", "query"])),
        "glob" | "ls" | "list" => about("lists", argument(&["pattern", "globPattern"]).or(path)),
        "webfetch" | "fetch" => about("fetches", argument(&["url"])),
        "websearch" => about("searches the web for", argument(&["query"])),
        "task" | "agent" => about("starts another agent:", argument(&["description"])),
        "todowrite" | "todo" => plan(&input["todos"], |item| item["status"] == "completed"),
        _ => None,
    };
    known.unwrap_or_else(|| format!("uses the tool {tool}"))
}

/// A list of what is to be done: how far it is, and what comes next.
fn plan(items: &Value, is_done: impl Fn(&Value) -> bool) -> Option<String> {
    let items = items.as_array()?;
    let done = items.iter().filter(|item| is_done(item)).count();
    let next = items.iter().find(|item| !is_done(item));
    let next = next.and_then(|item| ["text", "content"].iter().find_map(|key| item.get(key)?.as_str()));
    let next = next.map(|next| format!(", next: {next}")).unwrap_or_default();
    Some(format!("plans: {done} of {} done{next}", items.len()))
}

/// What a model is called, and the tokens of an answer.
fn used(input: u64, output: u64) -> String {
    format!("{} tokens", input.saturating_add(output))
}
