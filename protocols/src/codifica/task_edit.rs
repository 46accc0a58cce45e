//! Edits of one task: fields set, removed, and lists grown, in the task's own bytes and nowhere else.
//!
//! A task is never parsed and printed again. An edit replaces the bytes of one value, or adds lines; comments, order,
//! quotes and line endings of all other text stay. The parser then checks the result: the fields that were edited mean
//! what they should, and every other field has its old bytes.

use serde_yaml::{Mapping, Value};

use super::block::{BlockError, TaskBlock, malformed};
use super::state_file::lines;
use crate::text::frontmatter::inline_end;
use crate::text::yaml;

/// A value to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum YamlNode {
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<(String, YamlNode)>),
}

impl YamlNode {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn map<const N: usize>(fields: [(&str, YamlNode); N]) -> Self {
        Self::Map(fields.into_iter().map(|(key, node)| (key.to_owned(), node)).collect())
    }

    pub fn texts<S: AsRef<str>>(texts: &[S]) -> Self {
        Self::List(texts.iter().map(|text| Self::text(text.as_ref())).collect())
    }

    /// Adds a field, if there is a value for it.
    pub fn with(mut self, key: &str, node: Option<YamlNode>) -> Self {
        if let (Self::Map(fields), Some(node)) = (&mut self, node) {
            fields.push((key.to_owned(), node));
        }
        self
    }

    fn value(&self) -> Value {
        match self {
            Self::Text(text) => Value::String(text.clone()),
            Self::List(items) => Value::Sequence(items.iter().map(Self::value).collect()),
            Self::Map(fields) => {
                let pair = |(key, node): &(String, YamlNode)| (Value::String(key.clone()), node.value());
                Value::Mapping(fields.iter().map(pair).collect())
            }
        }
    }

    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Sequence(items) => items.iter().map(Self::of).collect::<Option<_>>().map(Self::List),
            Value::Mapping(fields) => fields
                .iter()
                .map(|(key, value)| Some((key.as_str()?.to_owned(), Self::of(value)?)))
                .collect::<Option<_>>()
                .map(Self::Map),
            Value::String(text) => Some(Self::text(text)),
            // A number or a yes would become a text.
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Tagged(_) => None,
        }
    }
}

/// The text after a colon or a dash: ` word`, or lines below, each with its end. `indent` is that of the lines below.
fn written(node: &YamlNode, indent: usize) -> String {
    let margin = " ".repeat(indent);
    match node {
        YamlNode::Text(text) => match is_literal(text) {
            true => {
                let lines: String = text.split('\n').map(|line| literal_line(&margin, line)).collect();
                format!(" |-\n{lines}")
            }
            false => format!(" {}\n", word(text)),
        },
        YamlNode::List(items) if items.is_empty() => " []\n".to_owned(),
        YamlNode::Map(fields) if fields.is_empty() => " {}\n".to_owned(),
        YamlNode::List(items) => {
            let items: String = items.iter().map(|item| self::item(item, indent)).collect();
            format!("\n{items}")
        }
        YamlNode::Map(fields) => {
            let fields: String = fields.iter().map(|(key, node)| field(key, node, indent)).collect();
            format!("\n{fields}")
        }
    }
}

fn literal_line(margin: &str, line: &str) -> String {
    if line.is_empty() { "\n".to_owned() } else { format!("{margin}{line}\n") }
}

/// `key: value`, as deep as `indent`.
fn field(key: &str, node: &YamlNode, indent: usize) -> String {
    format!("{}{key}:{}", " ".repeat(indent), written(node, indent + 2))
}

/// `- value`, as deep as `indent`.
fn item(node: &YamlNode, indent: usize) -> String {
    let margin = " ".repeat(indent);
    match node {
        YamlNode::Map(fields) if !fields.is_empty() => {
            let below: String = fields.iter().map(|(key, node)| field(key, node, indent + 2)).collect();
            format!("{margin}- {}", &below[indent + 2..])
        }
        node => format!("{margin}-{}", written(node, indent + 2)),
    }
}

/// A whole task, as deep as its list.
pub fn task(fields: &YamlNode, indent: usize) -> String {
    item(fields, indent)
}

/// Text of several lines that a block can hold as it is.
fn is_literal(text: &str) -> bool {
    let odd = |character: char| {
        (character.is_control() && character != '\n')
            || matches!(character, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{85}' | '\u{fffe}' | '\u{ffff}')
    };
    text.contains('\n')
        && !text.starts_with([' ', '\n', '#'])
        && !text.ends_with([' ', '\n'])
        && !text.contains(odd)
        && !text.split('\n').any(|line| !line.is_empty() && line.trim().is_empty())
}

/// A text on one line. Values that the protocol writes without quotes (`agent:name`) get none.
fn word(text: &str) -> String {
    let name = text.strip_prefix("agent:").or_else(|| text.strip_prefix("human:")).unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match !name.is_empty() && name.bytes().all(plain) {
        true => text.to_owned(),
        false => yaml::scalar(text),
    }
}

/// Whether a text is comments and nothing else, which may stay where the value before them changes.
fn is_comments(text: &str) -> bool {
    text.lines().map(str::trim_start).all(|line| line.is_empty() || line.starts_with('#'))
}

/// The fields that grow; fields with the state of a task belong above them.
const LISTS: [&str; 4] = ["execution_notes", "artifacts", "human_review", "state_transitions"];

/// A task that is being edited.
#[derive(Debug)]
pub struct TaskEditor {
    before: String,
    text: String,
    line: usize,
    newline: &'static str,
    /// The expected values of the edited fields; `None` for removed fields.
    wanted: Vec<(String, Option<Value>)>,
}

impl TaskEditor {
    pub fn new(text: &str, line: usize) -> Result<Self, BlockError> {
        let block = TaskBlock::parse(text, line)?;
        if block.is_on_one_line() {
            let reason =
                "it is written on one line, and can't be edited there: give each field a line of its own";
            return Err(malformed(line, reason));
        }
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut draft =
            Self { before: text.to_owned(), text: text.to_owned(), line, newline, wanted: Vec::new() };
        if !draft.text.ends_with('\n') {
            draft.text.push_str(newline);
        }
        Ok(draft)
    }

    /// Sets a field, or adds it.
    pub fn set(&mut self, key: &str, node: &YamlNode) -> Result<(), BlockError> {
        let block = TaskBlock::parse(&self.text, self.line)?;
        let text = match block.entry(key) {
            Some(entry) => {
                let value = &self.text[entry.value..entry.end];
                let first = value.split(['\r', '\n']).next().unwrap_or_default();
                let spaces = first.len() - first.trim_start().len();
                let new = self.ended(&written(node, block.indent + 2));
                let tail = match &first[spaces..] {
                    // The lines below the key are removed; a comment beside the key stays.
                    inline if inline.is_empty() || inline.starts_with('#') => first,
                    _ => value[spaces + inline_end(&value[spaces..])..].trim_end_matches(['\r', '\n']),
                };
                // On one line, and with a comment behind it: that stays.
                let (gap, new) = match new.trim_end_matches(['\r', '\n']) {
                    one if !one.contains('\n') => {
                        (&value[..spaces.max(usize::from(spaces > 0))], one.trim_start().to_owned())
                    }
                    _ => ("", new.trim_end_matches(['\r', '\n']).to_owned()),
                };
                let gap = if gap.is_empty() && !new.starts_with(['\r', '\n', ' ']) { " " } else { gap };
                let tail = if is_comments(tail) { tail } else { "" };
                // Beside the first line of several: a comment after a value that goes on below would be part of it.
                let (head, below) = new.split_at(new.find(['\r', '\n']).unwrap_or(new.len()));
                let parts = [&self.text[..entry.value], gap, head, tail, below, self.newline];
                [&parts.concat(), &self.text[entry.end..]].concat()
            }
            None => {
                let at = self.place_for(&block, key);
                [&self.text[..at], &self.ended(&field(key, node, block.indent)), &self.text[at..]].concat()
            }
        };
        self.text = text;
        self.want(key, Some(node.value()));
        Ok(())
    }

    /// Removes a field, if it exists.
    pub fn remove(&mut self, key: &str) -> Result<(), BlockError> {
        let block = TaskBlock::parse(&self.text, self.line)?;
        let Some(entry) = block.entry(key) else { return Ok(()) };
        let start = entry.start - block.indent;
        if start == 0 {
            return Err(malformed(entry.line, format!("`{key}` is where the task begins, and can't go")));
        }
        self.text = [&self.text[..start], &self.text[entry.end..]].concat();
        self.want(key, None);
        Ok(())
    }

    /// Adds an item at the end of a list, or begins the list.
    pub fn push(&mut self, key: &str, node: &YamlNode) -> Result<(), BlockError> {
        let block = TaskBlock::parse(&self.text, self.line)?;
        let read = block.value(key)?;
        let mut items = match read.as_ref().map(|read| &read.value) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Sequence(items)) => items.clone(),
            Some(_) => {
                let line = block.line(key).unwrap_or(self.line);
                return Err(malformed(line, format!("`{key}` is no list: make it one by hand")));
            }
        };
        let dashes = block.entry(key).map(|entry| {
            let value = &self.text[entry.value..entry.end];
            let first = lines(value, 0..value.len(), 0).skip(1).find(|line| !line.is_silent());
            (entry.end, first.filter(|line| line.is_item()).map(|line| line.indent()))
        });
        let (text, wanted) = match dashes {
            Some((end, Some(indent))) if !items.is_empty() => {
                let more = self.ended(&item(node, indent));
                (Some([&self.text[..end], &more, &self.text[end..]].concat()), node.value())
            }
            _ => (None, node.value()),
        };
        items.push(wanted);
        match text {
            Some(text) => {
                self.text = text;
                self.want(key, Some(Value::Sequence(items)));
                Ok(())
            }
            // It was empty, or on one line: it gets a line for each item.
            None => match items.iter().map(YamlNode::of).collect::<Option<Vec<_>>>() {
                Some(items) => self.set(key, &YamlNode::List(items)),
                None => {
                    let line = block.line(key).unwrap_or(self.line);
                    Err(malformed(line, format!("`{key}` is on one line: give each item a line of its own")))
                }
            },
        }
    }

    /// The task's new bytes, if they mean what they should.
    pub fn finish(self) -> Result<String, BlockError> {
        let (old, new) =
            (TaskBlock::parse(&self.before, self.line)?, TaskBlock::parse(&self.text, self.line)?);
        let refused = |key: &str| {
            let line = old.line(key).unwrap_or(self.line);
            malformed(
                line,
                format!("`{key}` can't be edited without touching other fields; please do it by hand"),
            )
        };
        for (key, wanted) in &self.wanted {
            if new.value(key)?.map(|read| read.value) != *wanted {
                return Err(refused(key));
            }
        }
        let edited = |key: &str| self.wanted.iter().any(|(known, _)| known == key);
        let bytes = |block: &TaskBlock<'_>| -> Vec<String> {
            let others = block.entries.iter().filter(|entry| !edited(entry.key));
            others.map(|entry| block.text[entry.start..entry.end].trim_end().to_owned()).collect()
        };
        if bytes(&old) != bytes(&new) {
            return Err(refused(self.wanted.first().map_or("", |(key, _)| key)));
        }
        // If the whole task was YAML before, it still is, and the rest means the same.
        let whole = |text: &str| yaml::read::<Vec<Mapping>>(text).ok().and_then(|mut all| all.pop());
        if let Some(mut before) = whole(&self.before) {
            for (key, wanted) in &self.wanted {
                match wanted {
                    Some(value) => drop(before.insert(Value::String(key.clone()), value.clone())),
                    None => drop(before.remove(key.as_str())),
                }
            }
            let same = whole(&self.text).is_some_and(|after| {
                after.len() == before.len() && after.iter().all(|(key, value)| before.get(key) == Some(value))
            });
            if !same {
                return Err(refused(self.wanted.first().map_or("", |(key, _)| key)));
            }
        }
        Ok(self.text)
    }

    /// The place for a new field: before the lists that grow, or at the end.
    fn place_for(&self, block: &TaskBlock<'_>, key: &str) -> usize {
        let list = block.entries.iter().position(|entry| LISTS.contains(&entry.key));
        match list {
            Some(at) if at > 0 && !LISTS.contains(&key) => block.entries[at - 1].end,
            _ => self.text.len(),
        }
    }

    fn want(&mut self, key: &str, value: Option<Value>) {
        self.wanted.retain(|(known, _)| known != key);
        self.wanted.push((key.to_owned(), value));
    }

    fn ended(&self, text: &str) -> String {
        if self.newline == "\n" { text.to_owned() } else { text.replace('\n', self.newline) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edited(text: &str, edit: impl FnOnce(&mut TaskEditor) -> Result<(), BlockError>) -> String {
        let mut draft = TaskEditor::new(text, 1).expect("a task");
        edit(&mut draft).expect("edited");
        draft.finish().unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }

    #[test]
    fn a_value_is_replaced_and_nothing_else() {
        for (before, after) in [
            ("- id: A\n  state: todo\n", "- id: A\n  state: done\n"),
            ("- id: A\n  state:   todo   # why\n  x: y\n", "- id: A\n  state:   done   # why\n  x: y\n"),
            ("- id: A\r\n  state: \"todo\"\r\n  x: y\r\n", "- id: A\r\n  state: done\r\n  x: y\r\n"),
            ("- id: A\n  state:\n  x: y\n", "- id: A\n  state: done\n  x: y\n"),
            ("- id: A\n  state: # c\n    todo\n  x: y\n", "- id: A\n  state: done # c\n  x: y\n"),
            (
                "- id: A\n  state: |\n    ```yaml\n    a: b\n    ```\n  x: y\n",
                "- id: A\n  state: done\n  x: y\n",
            ),
            ("- id: A\n  x: y", "- id: A\n  x: y\n  state: done\n"),
            ("  - id: A\n    x: y\n", "  - id: A\n    x: y\n    state: done\n"),
            (
                "- id: A\n  # c\n  state_transitions:\n    - from: a\n",
                "- id: A\n  state: done\n  # c\n  state_transitions:\n    - from: a\n",
            ),
        ] {
            assert_eq!(
                edited(before, |draft| draft.set("state", &YamlNode::text("done"))),
                after,
                "{before:?}"
            );
        }
    }

    #[test]
    fn a_list_grows_by_one_item() {
        let note = YamlNode::map([
            ("by", YamlNode::text("agent:x")),
            ("note", YamlNode::text("One.\n\n```sh\ntwo\n```")),
        ]);
        let item =
            "    - by: agent:x\n      note: |-\n        One.\n\n        ```sh\n        two\n        ```\n";
        for (before, after) in [
            ("- id: A\n", format!("- id: A\n  execution_notes:\n{item}")),
            (
                "- id: A\n  execution_notes: []\n  x: y\n",
                format!("- id: A\n  execution_notes:\n{item}  x: y\n"),
            ),
            ("- id: A\n  execution_notes:\n  x: y\n", format!("- id: A\n  execution_notes:\n{item}  x: y\n")),
            (
                "- id: A\n  execution_notes:\n    - plain words\n\n  # c\n  x: y\n",
                format!("- id: A\n  execution_notes:\n    - plain words\n{item}\n  # c\n  x: y\n"),
            ),
            (
                "- id: A\n  execution_notes:\n    - by: z\n      note: |\n        text\n  x: y\n",
                format!(
                    "- id: A\n  execution_notes:\n    - by: z\n      note: |\n        text\n{item}  x: y\n"
                ),
            ),
            (
                "- id: A\n  execution_notes: [words]\n",
                format!("- id: A\n  execution_notes:\n    - words\n{item}"),
            ),
            (
                "- id: A\n  execution_notes: []  # none yet\n  x: y\n",
                format!("- id: A\n  execution_notes:  # none yet\n{item}  x: y\n"),
            ),
            (
                "- id: A\n  execution_notes: [words] # said\n    # and more\n  x: y\n",
                format!("- id: A\n  execution_notes: # said\n    # and more\n    - words\n{item}  x: y\n"),
            ),
            (
                "- id: A\n  execution_notes: null # none\n",
                format!("- id: A\n  execution_notes: # none\n{item}"),
            ),
        ] {
            assert_eq!(edited(before, |draft| draft.push("execution_notes", &note)), after, "{before:?}");
        }
        // As deep as its other items are.
        let same = edited("- id: A\n  labels:\n  - a\n", |draft| draft.push("labels", &YamlNode::text("b")));
        assert_eq!(same, "- id: A\n  labels:\n  - a\n  - b\n");
    }

    #[test]
    fn what_can_not_be_edited_in_place_is_refused() {
        assert!(TaskEditor::new("- {id: A, state: todo}\n", 1).is_err());
        let mut draft = TaskEditor::new("- id: A\n  labels: word\n", 1).expect("a task");
        assert!(draft.push("labels", &YamlNode::text("b")).is_err());
        assert!(draft.remove("id").is_err());
    }

    #[test]
    fn a_field_goes_with_its_lines() {
        let text = "- id: A\n  # c\n  blocked_reason: |\n    a\n    b\n  x: y\n";
        assert_eq!(edited(text, |draft| draft.remove("blocked_reason")), "- id: A\n  # c\n  x: y\n");
    }

    /// Something people write as the value of a field: words, quotes, lists, blocks with fences in them.
    fn values() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z]{1,8}".prop_map(|word| format!(" {word}\n")),
            "[a-z ]{0,12}".prop_map(|words| format!(" \"{words}: #x\"  # a comment\n")),
            prop::collection::vec("[a-z`#:{} -]{0,12}", 1..4).prop_map(|lines| {
                let lines: String = lines.iter().map(|line| format!("    x{line}\n\n")).collect();
                format!(" |\n{lines}    ```yaml\n    - id: NOT\n      state: done\n    ```\n")
            }),
            prop::collection::vec("[a-z]{1,6}", 1..4).prop_map(|items| items
                .iter()
                .fold("\n".to_owned(), |text, item| format!("{text}    - {item}\n"))),
            prop::collection::vec("[a-z]{1,6}", 0..4).prop_map(|items| format!(" [{}]\n", items.join(", "))),
            Just(" null\n".to_owned()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]

        #[test]
        fn an_edit_keeps_every_byte_of_the_other_fields(
            fields in prop::collection::vec(("[a-z]{3,5}", values(), any::<bool>()), 0..5),
            state in values(), note in "[ -~\n\u{e4}]{0,60}", windows in any::<bool>(),
        ) {
            let mut text = "- id: A-1 # first\n".to_owned();
            let mut known = std::collections::HashSet::from(["id".to_owned()]);
            for (key, value, comment) in &fields {
                if known.insert(key.clone()) {
                    text.push_str(&format!("{}  {key}:{value}", if *comment { "  # about it\n" } else { "" }));
                }
            }
            text.push_str(&format!("  state:{state}"));
            if windows {
                text = text.replace('\n', "\r\n");
            }
            let mut draft = TaskEditor::new(&text, 1).expect("a task");
            draft.set("state", &YamlNode::text("in_progress")).expect("set");
            draft.set("claimed_at", &YamlNode::text("2026-01-31T16:10:00+00:00")).expect("added");
            draft.push("execution_notes", &YamlNode::map([("note", YamlNode::text(note.clone()))])).expect("grown");
            let after = draft.finish().expect("an edit");
            let read: Vec<Mapping> = serde_yaml::from_str(&after).expect("YAML");
            prop_assert_eq!(&read[0]["state"], &Value::from("in_progress"));
            let kept = read[0]["execution_notes"][0]["note"].as_str();
            prop_assert_eq!(kept, Some(note.as_str()));
            for line in text.lines().filter(|line| line.contains("# about it") || line.contains("# first")) {
                prop_assert!(after.contains(line));
            }
            prop_assert_eq!(after.contains("\r\n"), windows);
            prop_assert!(!windows || after.matches('\n').count() == after.matches("\r\n").count());
        }
    }
}
