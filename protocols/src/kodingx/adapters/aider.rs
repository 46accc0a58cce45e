//! Aider's configuration: adds our file to the list `read`, and changes nothing else.
//!
//! Three facts shape this. Of two equal keys in one file the last wins, so a second `read:` would silently
//! drop a person's list. Of several configuration files the nearest one's `read` wins whole, so our list
//! replaces the one in a person's home. Paths are looked up from where aider was started.
//! (<https://aider.chat/docs/config/aider_conf.html>; `parse_known_args` in
//! <https://github.com/bw2/ConfigArgParse>)
//!
//! So we only ever append, and only if reading the result shows the same options and one more file. Where that
//! does not work, a person adds one word.

use crate::text::yaml;
use serde_yaml::{Mapping, Value};

/// Where aider looks for its options. It does not know `.yaml`.
pub const CONFIGURATION: &str = ".aider.conf.yml";
/// The rules aider is told to read.
pub const RULES: &str = "AGENCY.md";

/// The change that the configuration needs.
#[derive(Debug)]
pub enum ReadListEdit {
    /// The file is named already.
    Already,
    /// The whole new text. It starts with the old one, byte for byte.
    Appended(String),
    /// A person has to do it.
    ByHand(ManualEdit),
}

/// Why we leave the configuration to a person, and what to write there.
#[derive(Debug, thiserror::Error)]
pub enum ManualEdit {
    #[error("`read` in {CONFIGURATION} names one file: make it `read: [{named}, {file}]`")]
    OneFile { named: String, file: String },
    #[error("`read` in {CONFIGURATION} cannot be added to without touching other lines: add `{file}` to it")]
    NotAtTheEnd { file: String },
    #[error("`read` in {CONFIGURATION} is neither a file nor a list: make it `read: [{file}]`")]
    NotAList { file: String },
    #[error("nothing can be appended to {CONFIGURATION} as it is written: add `read: [{file}]` to it")]
    NotAppendable { file: String },
    #[error("{CONFIGURATION} cannot be read as YAML: mend it and add `read: [{file}]` to it")]
    NotYaml {
        file: String,
        #[source]
        cause: serde_yaml::Error,
    },
    #[error("{CONFIGURATION} does not hold `option: value` lines: add `read: [{file}]` to one that does")]
    NoOptions { file: String },
}

/// Names `file` in the list `read`. `existing` is the configuration as it is, empty if there is none; `header`
/// is the line that says where a new list comes from.
pub fn add_to_read(existing: &str, file: &str, header: &str) -> ReadListEdit {
    let mut options = match parsed(existing) {
        Ok(Value::Mapping(options)) => options,
        Ok(Value::Null) => Mapping::new(),
        Ok(_) => return ReadListEdit::ByHand(ManualEdit::NoOptions { file: file.to_owned() }),
        Err(cause) => return ReadListEdit::ByHand(ManualEdit::NotYaml { file: file.to_owned(), cause }),
    };
    let ours = Value::from(file);
    let (lines, otherwise) = match options.get("read").cloned() {
        None => {
            options.insert("read".into(), Value::Sequence(vec![ours]));
            let gap = if existing.trim().is_empty() { "" } else { "\n" };
            let lines = format!("{gap}# {header}\nread:\n  - {file}\n");
            (lines, ManualEdit::NotAppendable { file: file.to_owned() })
        }
        Some(Value::Sequence(list)) if list.iter().any(|named| is(named, file)) => {
            return ReadListEdit::Already;
        }
        Some(Value::String(named)) if is(&Value::from(named.as_str()), file) => return ReadListEdit::Already,
        Some(Value::Sequence(mut list)) => {
            list.push(ours);
            options.insert("read".into(), Value::Sequence(list));
            (item_like_the_last(existing, file), ManualEdit::NotAtTheEnd { file: file.to_owned() })
        }
        Some(Value::String(named)) => {
            return ReadListEdit::ByHand(ManualEdit::OneFile { named, file: file.to_owned() });
        }
        Some(_) => return ReadListEdit::ByHand(ManualEdit::NotAList { file: file.to_owned() }),
    };
    let text = appended(existing, &lines);
    match parsed(&text) {
        Ok(Value::Mapping(found)) if found == options => ReadListEdit::Appended(text),
        _ => ReadListEdit::ByHand(otherwise),
    }
}

/// Without the byte order mark, which our parser takes for a column and aider's does not.
fn parsed(text: &str) -> Result<Value, serde_yaml::Error> {
    yaml::read(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn is(named: &Value, file: &str) -> bool {
    named.as_str().is_some_and(|named| named.strip_prefix("./").unwrap_or(named) == file)
}

/// One more item, indented as the last one of the file.
fn item_like_the_last(existing: &str, file: &str) -> String {
    let mut lines = existing.lines().rev().filter(|line| {
        let line = line.trim_start();
        !line.is_empty() && !line.starts_with('#')
    });
    let last = lines.next().unwrap_or_default();
    let indentation = &last[..last.len() - last.trim_start().len()];
    format!("{indentation}- {file}\n")
}

/// `existing`, ended if it was not, and `lines` with its line endings.
fn appended(existing: &str, lines: &str) -> String {
    let ending = if existing.contains("\r\n") { "\r\n" } else { "\n" };
    let gap = if existing.is_empty() || existing.ends_with('\n') { "" } else { ending };
    format!("{existing}{gap}{}", lines.replace('\n', ending))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(existing: &str) -> ReadListEdit {
        add_to_read(existing, RULES, "Ours")
    }

    fn new_text(existing: &str) -> String {
        match named(existing) {
            ReadListEdit::Appended(text) => {
                assert!(text.starts_with(existing), "{existing:?} became {text:?}");
                text
            }
            other => panic!("{existing:?}: {other:?}"),
        }
    }

    fn reason(existing: &str) -> String {
        match named(existing) {
            ReadListEdit::ByHand(reason) => reason.to_string(),
            other => panic!("{existing:?}: {other:?}"),
        }
    }

    fn read(text: &str) -> Vec<String> {
        let options = parsed(text).expect("options");
        serde_yaml::from_value(options["read"].clone()).expect("a list")
    }

    #[test]
    fn a_missing_configuration_becomes_one_list() {
        assert_eq!(new_text(""), "# Ours\nread:\n  - AGENCY.md\n");
    }

    #[test]
    fn other_options_stay_and_the_list_comes_after_them() {
        for existing in [
            "model: x\n",
            "model: x",
            "# only a comment\n",
            "\u{feff}model: x\n",
            "\n",
            "lint-cmd:\n  - a: b\n",
            "a: |\n  text\n",
        ] {
            assert_eq!(read(&new_text(existing)), ["AGENCY.md"], "{existing:?}");
        }
    }

    #[test]
    fn a_list_at_the_end_gets_one_more_item() {
        for existing in [
            "read:\n  - a.md\n",
            "model: x\nread:\n- a.md",
            "read:\n    - a.md\n\n# more later\n",
            "read:\n- a.md\n\n",
        ] {
            assert_eq!(read(&new_text(existing)), ["a.md", "AGENCY.md"], "{existing:?}");
        }
    }

    #[test]
    fn windows_line_endings_are_kept() {
        for existing in ["model: x\r\n", "model: x\r\nread:\r\n  - a.md\r\n", "model: x\r\ndark: true"] {
            let text = new_text(existing);
            assert_eq!(text.matches('\n').count(), text.matches("\r\n").count(), "{text:?}");
        }
    }

    #[test]
    fn a_second_time_changes_nothing() {
        for existing in ["", "model: x", "read:\r\n  - a.md\r\n"] {
            assert!(matches!(named(&new_text(existing)), ReadListEdit::Already), "{existing:?}");
        }
        for existing in ["read: AGENCY.md\n", "read: [a.md, ./AGENCY.md]\nmodel: x\n"] {
            assert!(matches!(named(existing), ReadListEdit::Already), "{existing:?}");
        }
    }

    #[test]
    fn what_cannot_be_appended_to_is_left_to_a_person_with_the_word_to_add() {
        assert!(reason("read: CONVENTIONS.md\n").contains("`read: [CONVENTIONS.md, AGENCY.md]`"));
        for existing in ["read: [a.md]\n", "read:\n  - a.md\nmodel: x\n", "read:\n  - a.md\nlint:\n  - b\n"] {
            assert!(reason(existing).contains("add `AGENCY.md`"), "{existing:?}");
        }
        for existing in
            ["read:\n", "read: 5\n", "{model: x}\n", "  model: x\n", "model: x\n...\n", "a: |\n  text"]
        {
            assert!(reason(existing).contains("`read: [AGENCY.md]`"), "{existing:?}");
        }
    }

    proptest! {
        /// In a file of any shape, what a person has written and set stays as it is.
        #[test]
        fn only_read_changes_and_only_at_the_end(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "read:", "read: [a]", "read: x", "model: y", "- a", "  - a", "    - b", "lint:", "  k: v",
                    "t: |", "t: >-", "  text", "# note", "", "...", "---", "{a: b}", "  read: z", "\"read\":",
                ]),
                0..8,
            ),
            ending in prop::sample::select(vec!["\n", "\r\n"]),
            ended in any::<bool>(),
        ) {
            let mut existing = lines.join(ending);
            if ended {
                existing.push_str(ending);
            }
            if let ReadListEdit::Appended(text) = named(&existing) {
                prop_assert!(text.starts_with(&existing));
                let without_read = |text: &str| {
                    let Ok(Value::Mapping(mut options)) = parsed(text) else { return Mapping::new() };
                    options.remove("read");
                    options
                };
                prop_assert_eq!(without_read(&text), without_read(&existing));
                prop_assert!(read(&text).ends_with(&[RULES.to_owned()]));
                prop_assert!(matches!(named(&text), ReadListEdit::Already));
            }
        }
    }

    #[test]
    fn what_is_no_configuration_is_said_to_be_none() {
        assert!(reason("- a\n").contains("does not hold"));
        assert!(reason("a: b: c\n").contains("cannot be read as YAML"));
        assert!(reason("read: a.md\nread: b.md\n").contains("cannot be read as YAML"));
    }
}
