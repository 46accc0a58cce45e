//! Reads the fields of a header. A field that can't be read is reported with its line.

use serde_yaml::Value;

use crate::finding::Finding;
use crate::text::frontmatter::Frontmatter;
pub(super) use crate::text::yaml::text_of as scalar;

/// A header, its file, and the findings so far.
#[derive(Debug)]
pub(super) struct HeaderReader<'a, 't> {
    pub(super) file: &'a str,
    /// The section of the specification that defines its fields.
    pub(super) section: &'static str,
    pub(super) matter: &'a Frontmatter<'t>,
    pub(super) findings: Vec<Finding>,
}

impl<'a, 't> HeaderReader<'a, 't> {
    pub(super) fn new(file: &'a str, section: &'static str, matter: &'a Frontmatter<'t>) -> Self {
        Self { file, section, matter, findings: Vec::new() }
    }

    pub(super) fn wrong(&mut self, field: &str, message: impl Into<String>) {
        let line = self.matter.line(field).unwrap_or_else(|| self.matter.last_line());
        self.findings.push(Finding::error(self.file, Some(line), self.section, message).of_field(field));
    }

    pub(super) fn odd(&mut self, field: &str, message: impl Into<String>) {
        let line = self.matter.line(field).unwrap_or_else(|| self.matter.last_line());
        self.findings.push(Finding::warning(self.file, Some(line), self.section, message).of_field(field));
    }

    /// A field; nothing where it is missing, null, or no YAML.
    pub(super) fn value(&mut self, field: &str) -> Option<Value> {
        match self.matter.value(field) {
            Ok(value) => value.filter(|value| !value.is_null()),
            Err(error) => {
                self.findings.push(
                    Finding::error(self.file, Some(error.line), self.section, error.reason).of_field(field),
                );
                None
            }
        }
    }

    /// A field that is one word or sentence.
    pub(super) fn text(&mut self, field: &str) -> Option<String> {
        let value = self.value(field)?;
        let text = scalar(&value);
        if text.is_none() {
            self.wrong(field, format!("`{field}` must be text"));
        }
        text
    }

    /// The same, and its absence is a mistake.
    pub(super) fn required(&mut self, field: &str) -> Option<String> {
        let before = self.findings.len();
        let text = self.text(field);
        if text.is_none() && self.findings.len() == before {
            let what = if self.matter.line(field).is_some() { "is empty" } else { "is missing" };
            self.wrong(field, format!("`{field}` {what}"));
        }
        text
    }

    /// A field that is a list of words or sentences; nothing where it is missing.
    pub(super) fn list(&mut self, field: &str) -> Vec<String> {
        let Some(value) = self.value(field) else { return Vec::new() };
        self.strings(field, field, &value)
    }

    /// A list, wherever it was found. One word alone is a list of one.
    pub(super) fn strings(&mut self, field: &str, name: &str, value: &Value) -> Vec<String> {
        match value {
            Value::Null => Vec::new(),
            Value::Sequence(items) => {
                let read: Option<Vec<String>> = items.iter().map(scalar).collect();
                if read.is_none() {
                    self.wrong(field, format!("`{name}` must be a list of strings"));
                }
                read.unwrap_or_default()
            }
            one => match scalar(one) {
                Some(one) => vec![one],
                None => {
                    self.wrong(field, format!("`{name}` must be a list of strings"));
                    Vec::new()
                }
            },
        }
    }
}
