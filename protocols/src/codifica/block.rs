//! The text of one task, cut into its fields. Each field is read alone: a field that is no YAML is reported with its
//! line, and the others are read all the same.

use serde_yaml::{Mapping, Value};

use super::state_file::{StateLine, lines};
use crate::text::yaml;

/// A task's own bytes.
#[derive(Debug, Clone)]
pub struct TaskBlock<'t> {
    pub(super) text: &'t str,
    pub(super) entries: Vec<BlockField<'t>>,
    /// The indentation of its keys.
    pub(super) indent: usize,
    /// The whole task, where it is written on one line: `- {id: …}`.
    whole: Option<Mapping>,
}

/// One field: from its key to the end of the last line of its value.
#[derive(Debug, Clone)]
pub(super) struct BlockField<'t> {
    pub(super) key: &'t str,
    pub(super) line: usize,
    pub(super) start: usize,
    /// Just after the colon.
    pub(super) value: usize,
    pub(super) end: usize,
}

/// Why a task, or a field of it, can't be read or edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BlockError {
    pub line: usize,
    pub reason: String,
}

pub(super) fn malformed(line: usize, reason: impl Into<String>) -> BlockError {
    BlockError { line, reason: reason.into() }
}

/// The value of a field, and whether it had to be repaired to be read.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockValue {
    pub value: Value,
    pub mended: bool,
}

impl<'t> TaskBlock<'t> {
    /// `line` is where the block begins in its file.
    pub fn parse(text: &'t str, line: usize) -> Result<Self, BlockError> {
        let mut all = lines(text, 0..text.len(), line).peekable();
        let Some(first) = all.peek().copied() else { return Err(malformed(line, "it is empty")) };
        let dash = first.indent();
        let body = first.content.get(dash + 1..).unwrap_or_default();
        let inline = body.trim_start();
        if inline.starts_with('{') {
            return Self::on_one_line(text, line);
        }
        let indent = match inline.is_empty() || inline.starts_with('#') {
            // The keys begin on the next line that is not blank and no comment.
            true => {
                all.next();
                while all.next_if(StateLine::is_silent).is_some() {}
                match all.peek() {
                    Some(next) if next.indent() > dash => next.indent(),
                    _ => return Err(malformed(line, "it is empty")),
                }
            }
            false => dash + 1 + (body.len() - inline.len()),
        };
        let mut entries: Vec<BlockField<'t>> = Vec::new();
        for one in all {
            let at_dash = one.start == 0;
            let depth = if at_dash { indent } else { one.indent() };
            let said = one.content.get(depth.min(one.content.len())..).unwrap_or_default();
            let begins = depth == indent && !said.starts_with('#') && !said.starts_with("- ") && said != "-";
            match (begins, key(said)) {
                _ if one.is_blank() => {}
                (true, Some((key, colon))) => entries.push(BlockField {
                    key,
                    line: one.number,
                    start: one.start + depth,
                    value: one.start + depth + colon,
                    end: one.next,
                }),
                (true, None) => {
                    return Err(malformed(one.number, format!("`{}` is no field", shortened(said))));
                }
                // A comment as deep as the keys may belong to the next field.
                (false, _) if depth <= indent && one.is_silent() => {}
                (false, _) if depth < indent => {
                    return Err(malformed(
                        one.number,
                        format!("`{}` is not indented as its task is", shortened(said)),
                    ));
                }
                (false, _) => match entries.last_mut() {
                    Some(entry) => entry.end = one.next,
                    None => return Err(malformed(one.number, "it begins with no field")),
                },
            }
        }
        Ok(Self { text, entries, indent, whole: None })
    }

    fn on_one_line(text: &'t str, line: usize) -> Result<Self, BlockError> {
        let parsed: Result<Vec<Mapping>, _> = yaml::read(text);
        let whole = parsed.map_err(|error| malformed(line, explain(&error)))?.pop().unwrap_or_default();
        Ok(Self { text, entries: Vec::new(), indent: 0, whole: Some(whole) })
    }

    pub fn is_on_one_line(&self) -> bool {
        self.whole.is_some()
    }

    pub fn line(&self, key: &str) -> Option<usize> {
        self.entry(key).map(|entry| entry.line)
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let whole = self.whole.iter().flat_map(|whole| whole.keys().filter_map(Value::as_str));
        self.entries.iter().map(|entry| entry.key).chain(whole)
    }

    /// The value of a field; `None` where there is none. A field that exists twice is an error.
    pub fn value(&self, key: &str) -> Result<Option<BlockValue>, BlockError> {
        if let Some(whole) = &self.whole {
            return Ok(whole.get(key).map(|value| BlockValue { value: value.clone(), mended: false }));
        }
        let Some(entry) = self.entry(key) else { return Ok(None) };
        if let Some(again) = self.entries.iter().filter(|other| other.key == key).nth(1) {
            return Err(malformed(again.line, format!("`{key}` is there twice")));
        }
        let written = &self.text[entry.value..entry.end];
        if let Some(value) = yaml::simple(written) {
            return Ok(Some(BlockValue { value, mended: false }));
        }
        // The key is as deep as in the file, and so are the lines below it.
        let alone = |text: &str| format!("{}{text}", " ".repeat(self.indent));
        let whole = alone(&self.text[entry.start..entry.end]);
        match yaml::read::<Mapping>(&whole) {
            Ok(parsed) => Ok(parsed.get(key).map(|value| BlockValue { value: value.clone(), mended: false })),
            Err(error) => {
                let mended: Option<Mapping> = mended(&whole).and_then(|text| yaml::read(&text).ok());
                if let Some(value) = mended.as_ref().and_then(|mended| mended.get(key)) {
                    return Ok(Some(BlockValue { value: value.clone(), mended: true }));
                }
                let last = whole.lines().count().saturating_sub(1);
                let line = error.location().map_or(0, |at| at.line().saturating_sub(1)).min(last);
                Err(malformed(entry.line + line, format!("`{key}` is not valid YAML: {}", explain(&error))))
            }
        }
    }

    pub(super) fn entry(&self, key: &str) -> Option<&BlockField<'t>> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

/// The id of a task, without parsing it; `None` where that needs a parser.
pub fn quick_id(text: &str) -> Option<&str> {
    let first = text.lines().next()?.trim_start().strip_prefix('-')?.trim_start();
    let value = first.strip_prefix("id:")?.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (!value.is_empty() && value.bytes().all(plain) && value.starts_with(|c: char| c.is_ascii_alphabetic()))
        .then_some(value)
}

/// The key a line begins with, and where its value starts.
fn key(said: &str) -> Option<(&str, usize)> {
    if let Some(quote) = said.chars().next().filter(|quote| "\"'".contains(*quote)) {
        let end = 1 + said[1..].find(quote)?;
        return said[end + 1..].starts_with(':').then_some((&said[1..end], end + 2));
    }
    let colon = said.find(':')?;
    let ends = said[colon + 1..].chars().next().is_none_or(char::is_whitespace);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (ends && colon > 0 && said[..colon].bytes().all(plain)).then_some((&said[..colon], colon + 1))
}

/// YAML forbids a value that begins with a backtick, and people write them all the time. Such values are put into
/// quotes; `None` if there are none.
fn mended(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut changed = false;
    for line in text.split_inclusive('\n') {
        let content = line.trim_end_matches(['\r', '\n']);
        let said = content.trim_start_matches(' ');
        let marker = match said.strip_prefix("- ") {
            Some(_) => 2,
            None => said.find(": ").map_or(0, |at| at + 2),
        };
        let (before, value) = content.split_at(content.len() - said.len() + marker);
        let value = value.trim();
        if marker > 0 && value.starts_with(['`', '@', '%']) {
            changed = true;
            out.extend([before, &yaml::quoted(value), &line[content.len()..]]);
        } else {
            out.push_str(line);
        }
    }
    changed.then_some(out)
}

/// The parser's message without its position, which the caller gives as a line of the file.
fn explain(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, key: &str) -> Option<Value> {
        TaskBlock::parse(text, 1).expect("a block").value(key).expect("YAML").map(|read| read.value)
    }

    #[test]
    fn fields_are_read_as_a_parser_reads_them() {
        let text = "- id: A-1 # mine\n  title: \"a: b\"\n  description: |\n    ```yaml\n    state: no\n    ```\n\n    more\n  # above\n  depends_on: [B, C]\n  labels:\n  - x\n  - y\n  context:\n    files:\n      - a\n";
        let whole: Vec<Mapping> = serde_yaml::from_str(text).expect("YAML");
        for (key, value) in &whole[0] {
            assert_eq!(read(text, key.as_str().expect("a key")).as_ref(), Some(value));
        }
        assert_eq!(TaskBlock::parse(text, 10).expect("a block").line("depends_on"), Some(19));
    }

    #[test]
    fn a_task_may_begin_below_its_dash_or_stand_on_one_line() {
        assert_eq!(read("-\n  id: A\n  state: todo\n", "state"), Some("todo".into()));
        assert_eq!(read("  -   id: A\n      state: todo\n", "state"), Some("todo".into()));
        assert_eq!(read("- {id: A, state: todo}\n", "state"), Some("todo".into()));
    }

    #[test]
    fn a_backtick_that_yaml_forbids_is_read_as_it_is_meant() {
        let text = "- id: A\n  acceptance:\n    - `x` works\n    - plain\n";
        let read =
            TaskBlock::parse(text, 1).expect("a block").value("acceptance").expect("read").expect("there");
        assert!(read.mended);
        assert_eq!(read.value, serde_yaml::from_str::<Value>("['`x` works', plain]").expect("YAML"));
    }

    #[test]
    fn what_is_broken_is_told_with_its_line() {
        for (text, line, words) in [
            ("- id: A\n  title: a: b\n", 2, "`title` is not valid YAML"),
            ("- id: A\nfell out\n", 2, "not indented"),
            ("- id: A\n  just words\n", 2, "is no field"),
            ("- id: A\n  id: B\n", 2, "there twice"),
        ] {
            let block = TaskBlock::parse(text, 1);
            let broken = block.and_then(|block| block.value("id").and(block.value("title")).map(drop));
            let broken = broken.expect_err(text);
            assert!(broken.line == line && broken.reason.contains(words), "{text:?}: {broken:?}");
        }
    }

    #[test]
    fn ids_are_told_at_a_glance() {
        assert_eq!(quick_id("- id: FEAT-101\n  x: y\n"), Some("FEAT-101"));
        for text in ["- id: 'A'\n", "- id: 12\n", "- type: x\n  id: A\n", "- id: A # c\n", "- {id: A}\n"] {
            assert_eq!(quick_id(text), None, "{text}");
        }
    }
}
