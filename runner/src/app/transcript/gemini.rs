//! The document of `gemini --output-format json`: one for a whole session, on many lines, with notes before it.

use serde_json::Value;

/// What one line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GeminiLine {
    Words(String),
    /// A part of the document that people need not see.
    Nothing,
    /// No part of the document.
    NoPart,
}

pub(super) fn sentence(line: &str) -> GeminiLine {
    let Some((key, value)) = field(line) else {
        let is_part = line.is_empty() || line.starts_with(['{', '}', '[', ']', '"']);
        return if is_part { GeminiLine::Nothing } else { GeminiLine::NoPart };
    };
    match (key.as_str(), value.as_str()) {
        ("response", Some(text)) if !text.trim().is_empty() => GeminiLine::Words(format!("says: {text}")),
        ("message", Some(text)) => GeminiLine::Words(format!("error: {text}")),
        _ => GeminiLine::Nothing,
    }
}

/// The key and the value of a line that is a whole field.
fn field(line: &str) -> Option<(String, Value)> {
    let object = format!("{{{}}}", line.trim_end_matches(','));
    let object: serde_json::Map<String, Value> = serde_json::from_str(&object).ok()?;
    object.into_iter().next()
}
