//! The YAML header of a Markdown file, edited one field at a time.
//!
//! People write these headers: with comments, tabs, odd quotes, CRLF, a byte order mark. So a header is never
//! parsed and printed again. It is cut into its top-level entries, each read alone, which also tells on which
//! line a mistake is and leaves the other fields readable; and an edit replaces the bytes of one value. What
//! an edit did is checked before it is believed.

use std::ops::Range;

use serde_yaml::{Mapping, Value};

use super::yaml;

/// A Markdown file with a header.
#[derive(Debug, Clone)]
pub struct Frontmatter<'t> {
    text: &'t str,
    entries: Vec<HeaderEntry<'t>>,
    /// Where the closing line begins.
    close: usize,
    /// Where the body begins, after the closing line.
    body: usize,
    newline: &'static str,
}

/// One top-level entry: from its key to where the next one begins.
#[derive(Debug, Clone)]
struct HeaderEntry<'t> {
    key: &'t str,
    line: usize,
    start: usize,
    /// Just after the colon.
    value: usize,
    end: usize,
}

/// Why a header can't be read, or not be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct FrontmatterError {
    pub line: usize,
    pub reason: String,
}

fn malformed(line: usize, reason: impl Into<String>) -> FrontmatterError {
    FrontmatterError { line, reason: reason.into() }
}

impl<'t> Frontmatter<'t> {
    pub fn parse(text: &'t str) -> Result<Self, FrontmatterError> {
        let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let mut lines = HeaderLines { text, at: start, number: 0 };
        let opening = lines.next().filter(|line| line.content.trim_end() == "---");
        let Some(opening) = opening else {
            return Err(malformed(1, "it does not start with a header: its first line must be `---`"));
        };
        let newline = if text[opening.range].ends_with("\r\n") { "\r\n" } else { "\n" };
        let mut entries: Vec<HeaderEntry<'t>> = Vec::new();
        for line in lines.by_ref() {
            if line.content.trim_end() == "---" {
                let (close, body) = (line.range.start, line.range.end);
                return Ok(Self { text, entries, close, body, newline });
            }
            match key(line.content) {
                Some((key, value)) => entries.push(HeaderEntry {
                    key,
                    line: line.number,
                    start: line.range.start,
                    value: line.range.start + value,
                    end: line.range.end,
                }),
                None => match entries.last_mut() {
                    Some(entry) => entry.end = line.range.end,
                    None if line.content.trim().is_empty() || line.content.starts_with('#') => {}
                    None => return Err(malformed(line.number, "expected `key: value`")),
                },
            }
        }
        Err(malformed(lines.number, "its header is never closed: a line `---` is missing"))
    }

    /// The text after the header.
    pub fn body(&self) -> &'t str {
        &self.text[self.body..]
    }

    pub fn keys(&self) -> impl Iterator<Item = &'t str> + '_ {
        self.entries.iter().map(|entry| entry.key)
    }

    /// The line a key is on.
    pub fn line(&self, key: &str) -> Option<usize> {
        self.entry(key).map(|entry| entry.line)
    }

    /// The line the header ends on: where a missing field would be written.
    pub fn last_line(&self) -> usize {
        1 + self.text[..self.close].matches('\n').count()
    }

    /// The value of a field; `None` where there is no such field. A field that exists twice is an error.
    pub fn value(&self, key: &str) -> Result<Option<Value>, FrontmatterError> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        if let Some(again) = self.entries.iter().filter(|other| other.key == key).nth(1) {
            return Err(malformed(again.line, format!("`{key}` is there twice")));
        }
        if let Some(value) = yaml::simple(&self.text[entry.value..entry.end]) {
            return Ok(Some(value));
        }
        let alone = &self.text[entry.start..entry.end];
        let parsed: Mapping = yaml::read(alone).map_err(|error| {
            // The parser may notice only where the text ends, on a line that is no longer the entry's.
            let last = alone.lines().count().saturating_sub(1);
            let line = error.location().map_or(0, |location| location.line().saturating_sub(1)).min(last);
            malformed(entry.line + line, format!("`{key}` is not valid YAML: {}", explain(&error)))
        })?;
        Ok(parsed.get(key).cloned())
    }

    /// The text of a field's value.
    pub fn raw(&self, key: &str) -> Option<&'t str> {
        self.entry(key).map(|entry| self.text[entry.value..entry.end].trim())
    }

    /// The whole file with a field set to a value that is written on one line. A field that is not there is
    /// added at the end of the header.
    pub fn set(&self, key: &str, written: &str) -> Result<String, FrontmatterError> {
        self.set_all(&[(key, written.to_owned())])
    }

    /// The same, for several fields.
    pub fn set_all(&self, fields: &[(&str, String)]) -> Result<String, FrontmatterError> {
        let mut edited = String::with_capacity(self.text.len() + 256);
        let mut done = 0;
        for entry in &self.entries {
            if let Some((_, written)) = fields.iter().find(|(key, _)| *key == entry.key) {
                edited.push_str(&self.text[done..entry.value]);
                self.splice(entry, written, &mut edited);
                done = entry.end;
            }
        }
        edited.push_str(&self.text[done..self.close]);
        for (key, written) in fields.iter().filter(|(key, _)| self.entry(key).is_none()) {
            edited.push_str(&format!("{key}: {written}{}", self.newline));
        }
        edited.push_str(&self.text[self.close..]);
        self.check(fields, &edited)?;
        Ok(edited)
    }

    /// The text after the colon of an entry, with `written` in place of its value; the rest of the line stays.
    fn splice(&self, entry: &HeaderEntry<'_>, written: &str, out: &mut String) {
        let value = &self.text[entry.value..entry.end];
        let first = value.split(['\r', '\n']).next().unwrap_or_default();
        let spaces = first.len() - first.trim_start().len();
        let inline = &first[spaces..];
        if inline.is_empty() || inline.starts_with('#') {
            // The value, if any, stands on the lines below; a comment beside the key stays.
            let (comment, below) = value.split_at(first.len());
            out.extend([" ", written, comment, &below[trailing(below)..]]);
        } else {
            let end = spaces + inline_end(&value[spaces..]);
            out.extend([&value[..spaces], written, &value[end..]]);
        }
    }

    /// Checks an edit with the parser: the fields that were set mean what they should, every byte of the others is
    /// unchanged, and the others alone parse as before.
    fn check(&self, fields: &[(&str, String)], edited: &str) -> Result<(), FrontmatterError> {
        let after = Frontmatter::parse(edited)?;
        for (key, written) in fields {
            let plain = self.raw(key).is_some_and(yaml::is_plain_list);
            if !plain {
                self.value(key)?;
            }
            // The same text alone on its line means the same; anything else is compared by what it means.
            if after.raw(key) == Some(written.as_str()) {
                continue;
            }
            let wanted = yaml::simple(written).or_else(|| yaml::read(written).ok());
            if after.value(key)? != wanted.filter(|value| !value.is_null()) {
                return Err(self.refused(key));
            }
        }
        let (rest, rest_after) = (self.without(fields), after.without(fields));
        let parsed: Option<Mapping> = yaml::read(&rest)
            .map_err(|error| malformed(2, format!("the header is not valid YAML: {}", explain(&error))))?;
        let known = |key: &Value| key.as_str().is_some_and(|key| self.entry(key).is_some());
        if rest != rest_after || !parsed.unwrap_or_default().keys().all(known) {
            return Err(self.refused(fields.first().map_or("", |(key, _)| key)));
        }
        Ok(())
    }

    fn refused(&self, key: &str) -> FrontmatterError {
        let line = self.line(key).unwrap_or_else(|| self.last_line());
        malformed(line, format!("`{key}` can't be set without touching other fields; please edit it by hand"))
    }

    /// The header without some entries.
    fn without(&self, fields: &[(&str, String)]) -> String {
        let kept = |entry: &&HeaderEntry<'_>| fields.iter().all(|(key, _)| *key != entry.key);
        self.entries.iter().filter(kept).map(|entry| &self.text[entry.start..entry.end]).collect()
    }

    fn entry(&self, key: &str) -> Option<&HeaderEntry<'t>> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

/// The parser's message without its position, which the caller gives as a line of the file.
fn explain(error: &serde_yaml::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or(&text).to_owned()
}

/// The length of the first value of a text, which begins at its first byte: up to a comment, or to the end of the lines
/// it spans.
pub(crate) fn inline_end(value: &str) -> usize {
    let bytes = value.as_bytes();
    match bytes.first() {
        Some(quote @ (b'"' | b'\'')) => {
            let mut at = 1;
            while at < bytes.len() {
                match bytes[at] {
                    b'\\' if *quote == b'"' => at += 1,
                    byte if byte == *quote && *quote == b'\'' && bytes.get(at + 1) == Some(&b'\'') => at += 1,
                    byte if byte == *quote => return at + 1,
                    _ => {}
                }
                at += 1;
            }
            bytes.len()
        }
        Some(b'[' | b'{') => flow_end(bytes),
        Some(b'|' | b'>') => trailing(value),
        _ => {
            let line = value.split(['\r', '\n']).next().unwrap_or_default();
            let rest = &value[line.len()..];
            // A plain value may run on over lines that are indented; a comment ends it.
            if trailing(rest) > 0 {
                return line.len() + trailing(rest);
            }
            let end = line.find(" #").or_else(|| line.find("\t#")).unwrap_or(line.len());
            line[..end].trim_end().len()
        }
    }
}

fn flow_end(bytes: &[u8]) -> usize {
    let (mut depth, mut quote, mut at) = (0_usize, None, 0);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(b'"'), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, b'[' | b'{') => depth += 1,
            (None, b']' | b'}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            (None, _) => {}
        }
        at += 1;
    }
    bytes.len()
}

/// How much of the lines below a key belongs to its value: up to the end of the last line that is neither
/// blank nor a comment at the margin. The line break after it stays.
fn trailing(below: &str) -> usize {
    let (mut end, mut at) = (0, 0);
    for line in below.split_inclusive('\n') {
        let content = line.trim_end_matches(['\r', '\n']);
        if !content.trim().is_empty() && !content.starts_with('#') {
            end = at + content.len();
        }
        at += line.len();
    }
    end
}

/// The key of a line that begins an entry, and where its value starts.
fn key(line: &str) -> Option<(&str, usize)> {
    let first = *line.as_bytes().first()?;
    if let quote @ (b'"' | b'\'') = first {
        let end = 1 + line[1..].find(quote as char)?;
        let rest = &line[end + 1..];
        let colon = rest.find(':').filter(|colon| rest[..*colon].trim().is_empty())?;
        return ends_key(&rest[colon + 1..]).then_some((&line[1..end], end + 1 + colon + 1));
    }
    if !(first.is_ascii_alphanumeric() || first == b'_' || first >= 0x80) {
        return None;
    }
    let colon = line.match_indices(':').find(|(at, _)| ends_key(&line[at + 1..]))?.0;
    Some((line[..colon].trim_end(), colon + 1))
}

fn ends_key(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([' ', '\t', '\r'])
}

struct HeaderLines<'t> {
    text: &'t str,
    at: usize,
    number: usize,
}

struct HeaderLine<'t> {
    number: usize,
    /// Its bytes, line break included.
    range: Range<usize>,
    content: &'t str,
}

impl<'t> Iterator for HeaderLines<'t> {
    type Item = HeaderLine<'t>;

    fn next(&mut self) -> Option<HeaderLine<'t>> {
        let rest = &self.text[self.at..];
        if rest.is_empty() {
            return None;
        }
        let length = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let range = self.at..self.at + length;
        self.at = range.end;
        self.number += 1;
        let content = rest[..length].trim_end_matches(['\r', '\n']);
        Some(HeaderLine { number: self.number, range, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, key: &str, written: &str) -> String {
        Frontmatter::parse(text).expect("a header").set(key, written).expect("edited")
    }

    #[test]
    fn an_edit_replaces_the_value_and_nothing_else() {
        for (before, after) in [
            ("---\nstatus: NEW\n---\n", "---\nstatus: DONE\n---\n"),
            ("---\nstatus:   NEW   # why\nid: 1\n---\nx", "---\nstatus:   DONE   # why\nid: 1\n---\nx"),
            ("---\r\nstatus: \"NEW\"\r\nid: 1\r\n---\r\n", "---\r\nstatus: DONE\r\nid: 1\r\n---\r\n"),
            ("\u{feff}---\n'status':\tNEW\n---\n", "\u{feff}---\n'status':\tDONE\n---\n"),
            ("---\nstatus: 'it''s' # c\n---\n", "---\nstatus: DONE # c\n---\n"),
            (
                "---\nstatus:\n  - a # lost with its value\n\n# kept\nid: 1\n---\n",
                "---\nstatus: DONE\n\n# kept\nid: 1\n---\n",
            ),
            ("---\nstatus: # c\n- a\n- b\nid: 1\n---\n", "---\nstatus: DONE # c\nid: 1\n---\n"),
            ("---\nstatus: [a,\n  \"]\", b] # c\nid: 1\n---\n", "---\nstatus: DONE # c\nid: 1\n---\n"),
            ("---\nstatus: |\n  text\n  # text too\nid: 1\n---\n", "---\nstatus: DONE\nid: 1\n---\n"),
            ("---\nstatus: long\n  words\nid: 1\n---\n", "---\nstatus: DONE\nid: 1\n---\n"),
            ("---\nstatus:\nid: 1\n---\n", "---\nstatus: DONE\nid: 1\n---\n"),
            ("---\nid: 1\n---\nbody", "---\nid: 1\nstatus: DONE\n---\nbody"),
            ("---\r\nid: 1\r\n---\r\n", "---\r\nid: 1\r\nstatus: DONE\r\n---\r\n"),
        ] {
            assert_eq!(edited(before, "status", "DONE"), after, "{before:?}");
        }
    }

    #[test]
    fn a_mistake_is_told_with_its_line_and_hides_no_other_field() {
        let text = "---\nid: T1\ntitle: \"open\nstatus: NEW\nlabels: [a\n---\n";
        let header = Frontmatter::parse(text).expect("a header");
        assert_eq!(header.value("status").expect("readable"), Some("NEW".into()));
        assert_eq!(header.value("labels").expect_err("open bracket").line, 5);
        let title = header.value("title").expect_err("open quote");
        assert!(title.line >= 3 && title.reason.starts_with("`title` is not valid YAML"), "{title:?}");
        let edit = header.set("status", "DONE").expect_err("the header as a whole is no YAML");
        assert!(edit.reason.contains("not valid YAML"), "{edit:?}");
    }

    #[test]
    fn a_header_that_is_none_is_told_with_its_line() {
        assert_eq!(Frontmatter::parse("# Title\n").expect_err("none").line, 1);
        assert_eq!(Frontmatter::parse("---\nid: 1\n").expect_err("open").line, 2);
        assert_eq!(Frontmatter::parse("---\n- a\n---\n").expect_err("a list").line, 2);
        let twice = "---\nid: 1\nid: 2\n---\n";
        let twice = Frontmatter::parse(twice).expect("a header").value("id").expect_err("twice");
        assert_eq!((twice.line, twice.reason.as_str()), (3, "`id` is there twice"));
    }
}
