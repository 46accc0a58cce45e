//! YAML values: read fast where they are simple, and written so that parsing them gives the same value.
//!
//! Boards have thousands of small headers whose values are nearly all words, quoted words and lists of them.
//! `simple` understands just those, and gives up on anything else, which then goes to the full parser; a
//! property test holds the two together.

use serde::de::{DeserializeOwned, Error as _};
use serde_yaml::Value;

/// How deep brackets may be nested. People write less, and the parser gives up at 128.
const DEEPEST: usize = 100;

/// Parses YAML from an untrusted author. The parser's time grows with the square of how deep brackets are nested (64
/// KiB of `[` take eleven seconds), so the depth is checked first; brackets in a quoted text count, too.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, serde_yaml::Error> {
    let mut depth = 0_usize;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Err(serde_yaml::Error::custom(format!("brackets are nested deeper than {DEEPEST}")));
        }
    }
    serde_yaml::from_str(text)
}

/// Reads a value that needs no parser: a word, a quoted string without escapes, a flow list of them on one line, or a
/// block list of them. `None` means that the parser has to read it, never that it is wrong.
pub(crate) fn simple(value: &str) -> Option<Value> {
    let first = value.split('\n').next().unwrap_or_default();
    let head = without_comment(first.trim())?;
    if !head.is_empty() {
        let rest = value.get(first.len()..)?;
        if rest.lines().any(|line| !is_blank(line)) {
            return None;
        }
        return match head.strip_prefix('[') {
            Some(list) => flow(list.strip_suffix(']')?),
            None => word(head).map(Value::String),
        };
    }
    let mut items = Vec::new();
    let mut indent = None;
    for line in value.get(first.len()..)?.lines() {
        if is_blank(line) {
            continue;
        }
        let content = line.trim_start_matches(' ');
        if *indent.get_or_insert(line.len() - content.len()) != line.len() - content.len() {
            return None;
        }
        let item = without_comment(content.strip_prefix("- ")?.trim())?;
        items.push(Value::String(word(item)?));
    }
    if items.is_empty() { None } else { Some(Value::Sequence(items)) }
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// The text before a comment. `None` where a `#` could also be part of the value.
fn without_comment(text: &str) -> Option<&str> {
    if !text.contains('#') {
        return Some(text);
    }
    if text.starts_with('#') {
        return Some("");
    }
    if text.contains(['"', '\'', '[']) {
        return None;
    }
    Some(text.split(" #").next().unwrap_or(text).trim_end())
}

fn flow(list: &str) -> Option<Value> {
    let list = list.trim();
    if list.is_empty() {
        return Some(Value::Sequence(Vec::new()));
    }
    // A comma inside quotes would be cut in two; neither half is then a word.
    list.split(',')
        .map(|item| word(item.trim()).map(Value::String))
        .collect::<Option<_>>()
        .map(Value::Sequence)
}

fn word(text: &str) -> Option<String> {
    if let Some(quoted) = text.strip_prefix('"') {
        let inside = quoted.strip_suffix('"')?;
        return (!inside.contains(['"', '\\']) && is_plain_text(inside)).then(|| inside.to_owned());
    }
    if let Some(quoted) = text.strip_prefix('\'') {
        let inside = quoted.strip_suffix('\'')?;
        return (!inside.contains('\'') && is_plain_text(inside)).then(|| inside.to_owned());
    }
    is_plain_word(text).then(|| text.to_owned())
}

fn is_plain_text(text: &str) -> bool {
    text.chars().all(|character| character == ' ' || (!character.is_control() && !character.is_whitespace()))
        && !text.contains(['\u{feff}', '\u{fffe}', '\u{ffff}'])
}

/// Whether text means itself without quotes, in a list as well as after a key.
fn is_plain_word(text: &str) -> bool {
    let Some(first) = text.bytes().next() else { return false };
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"_./+-() ".contains(&byte);
    if !text.bytes().all(harmless) || text.ends_with(' ') {
        return is_time(text);
    }
    let spoken = first.is_ascii_alphabetic() && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    spoken || is_time(text)
}

/// Words that mean something else than themselves, to one reader of YAML or another.
const RESERVED: &[&str] = &["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"];

/// A date, or a date and a time: text to YAML, though it begins with a digit and holds colons.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let date = |at: usize| match at {
        4 | 7 => bytes[at] == b'-',
        _ => bytes[at].is_ascii_digit(),
    };
    bytes.len() >= 10
        && (0..10).all(date)
        && (bytes.len() == 10 || bytes[10] == b'T')
        && bytes[10..].iter().all(|byte| byte.is_ascii_digit() || b"T:+-.Z".contains(byte))
        && !text.ends_with(':')
}

/// A value as text, unless it is a list or a map.
pub(crate) fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Tagged(tagged) => text_of(&tagged.value),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) => None,
    }
}

/// A string as a value: without quotes where it parses as itself, quoted otherwise.
pub fn scalar(text: &str) -> String {
    if is_plain_word(text) { text.to_owned() } else { quoted(text) }
}

/// A string in double quotes, always on one line.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{85}' | '\u{fffe}' | '\u{ffff}' => {
                out.push_str(&format!("\\u{:04X}", character as u32));
            }
            character if character.is_control() => out.push_str(&format!("\\u{:04X}", character as u32)),
            character => out.push(character),
        }
    }
    out.push('"');
    out
}

/// A list on one line.
pub fn flow_list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// Whether text is a list just as [`flow_list`] writes one of plain names: it can be grown without being read.
pub(super) fn is_plain_list(text: &str) -> bool {
    let Some(inside) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else { return false };
    if inside.is_empty() {
        return true;
    }
    let bytes = inside.as_bytes();
    let mut at = 0;
    loop {
        // One name in quotes, and what comes after it: nothing, or a comma, a space and another.
        if bytes.get(at) != Some(&b'"') {
            return false;
        }
        let is_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'-' || **byte == b'_';
        at += 1 + bytes[at + 1..].iter().take_while(is_name).count();
        match &bytes[at..] {
            [b'"'] => return true,
            [b'"', b',', b' ', ..] => at += 3,
            _ => return false,
        }
    }
}

/// A plain list with one more name at its end.
pub fn appended_list(list: &str, name: &str) -> Option<String> {
    let list = list.trim();
    let open = list.strip_suffix(']').filter(|_| is_plain_list(list))?;
    Some(format!("{open}{}{}]", if open == "[" { "" } else { ", " }, quoted(name)))
}

/// A list below its key, one item a line.
pub fn block_list<S: AsRef<str>>(indent: usize, items: &[S]) -> String {
    if items.is_empty() {
        return " []\n".to_owned();
    }
    let mut out = String::from("\n");
    for item in items {
        out.push_str(&" ".repeat(indent));
        out.push_str("- ");
        out.push_str(&quoted(item.as_ref()));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Reading a text of the size of an agent's report, in any shape, holds nothing up.
    #[test]
    fn no_report_costs_a_second() {
        const REPORT: usize = 256 << 10;
        let filled = |piece: &str| piece.repeat(REPORT / piece.len());
        let laughs: String = (1..=9)
            .map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")))
            .collect();
        let keys: String = (0..).map(|n| format!("k{n}: 1\n")).take(REPORT / 9).collect();
        let shapes = [
            filled("- "),
            filled("? "),
            filled("a: &a "),
            filled("a: *a\n"),
            filled("- - - - - - - - - - x\n"),
            filled("\"\\u0041\" "),
            filled("!!str "),
            filled("a:\n "),
            format!("a0: &a0 x\n{laughs}"),
            format!("a: |\n{}", filled("  x\n")),
            (0..720).map(|n| format!("{}a:\n", " ".repeat(n))).collect(),
            keys,
        ];
        // Of the processor's time: what else runs on the machine does not count.
        let used = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
        };
        for shape in shapes {
            let began = used();
            let _ = read::<Value>(&shape);
            let took = used() - began;
            assert!(took < Duration::from_secs(1), "{took:?}: {shape:.30}");
        }
    }

    #[test]
    fn nesting_costs_nothing() {
        let began = std::time::Instant::now();
        for text in ["a: ".to_owned() + &"[".repeat(1 << 20), "{a: ".repeat(1 << 18)] {
            let refused = read::<Value>(&text).expect_err("refused").to_string();
            assert!(refused.contains("nested deeper than 100"), "{refused}");
        }
        assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
        let deep = format!("{}x{}", "[".repeat(100), "]".repeat(100));
        assert!(read::<Value>(&deep).is_ok() && read::<Value>(&deep.repeat(2)).is_err());
    }

    fn parsed(value: &str) -> Option<Value> {
        let whole: Value = serde_yaml::from_str(&format!("key: {value}")).ok()?;
        whole.get("key").cloned()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whatever_is_read_fast_is_read_the_same_by_the_parser(
            value in r##"( ?([a-zA-Z0-9_./+:#'",\[\]-]| ){0,12}(\n( {0,2}- [a-zA-Z0-9_./'"#: -]{0,8})?){0,3})"##
        ) {
            if let Some(fast) = simple(&value) {
                prop_assert_eq!(Some(fast), parsed(&value), "{:?}", value);
            }
        }

        #[test]
        fn a_list_that_is_grown_without_being_read_is_the_same_list(
            names in prop::collection::vec("[A-Za-z0-9_-]{0,6}", 0..4), odd in r##"\[[a-z", \]]{0,14}\]"##
        ) {
            let list = flow_list(&names);
            prop_assert!(is_plain_list(&list));
            let grown = appended_list(&list, "T1").expect("grown");
            prop_assert_eq!(grown, flow_list(&[names, vec!["T1".to_owned()]].concat()));
            if let Some(grown) = appended_list(&odd, "T1") {
                let Some(Value::Sequence(mut before)) = parsed(&odd) else { panic!("{odd} is no list") };
                before.push("T1".into());
                prop_assert_eq!(parsed(&grown), Some(Value::Sequence(before)));
            }
        }

        #[test]
        fn any_string_reads_back_as_itself(text in any::<String>()) {
            prop_assert_eq!(parsed(&scalar(&text)), Some(Value::String(text.clone())));
            prop_assert_eq!(parsed(&quoted(&text)), Some(Value::String(text.clone())));
            let list = flow_list(&[&text, "x"]);
            prop_assert_eq!(parsed(&list), Some(Value::Sequence(vec![text.clone().into(), "x".into()])));
            let list = block_list(2, &[&text, "x"]);
            prop_assert_eq!(parsed(&list), Some(Value::Sequence(vec![text.into(), "x".into()])));
        }
    }

    #[test]
    fn what_tasks_are_made_of_is_read_fast() {
        for value in [
            "T0007",
            "\"Fix VAT rounding in invoice totals\"",
            "2026-01-31T16:10:00+01:00",
            "[\"bug\", \"accounting\"]",
            "[]",
            "\n  - \"src/**\"\n  - tests\n",
            "\n- a\n- b",
            "NEW   # not yet",
        ] {
            assert!(simple(value).is_some(), "{value:?}");
            assert_eq!(simple(value), parsed(value), "{value:?}");
        }
        for value in ["", "~", "12", "true", "#123", "{}", "|\n  text", "a: b", "\"a\\n\"", "[a, [b]]"] {
            assert_eq!(simple(value), None, "{value:?}");
        }
    }
}
