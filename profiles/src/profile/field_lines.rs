//! Finds the line of a field in a profile's file.
//!
//! The YAML parser gives values without their positions, and a profile is a shallow file: keys at the left edge, a list
//! of commands, keys of a command. These are found in the text itself. Where that is not possible (a file in one line,
//! for example) there is no line, or that of the enclosing field.

/// One step of the path to a field: `commands`, then the second of them, then `timeout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldSegment<'a> {
    Key(&'a str),
    Item(usize),
}

/// The name of a field for people: `commands[1].timeout`.
pub(super) fn field_name(path: &[FieldSegment<'_>]) -> String {
    path.iter().fold(String::new(), |shown, step| match step {
        FieldSegment::Key(key) if shown.is_empty() => (*key).to_owned(),
        FieldSegment::Key(key) => format!("{shown}.{key}"),
        FieldSegment::Item(index) => format!("{shown}[{index}]"),
    })
}

/// The line of a field, counted from 1.
pub(super) fn line_of(text: &str, path: &[FieldSegment<'_>]) -> Option<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let Some((FieldSegment::Key(top), rest)) = path.split_first() else { return None };
    let start = lines.iter().position(|line| indent(line) == 0 && is_key(line, top))?;
    // The key's value ends at the next key at the left edge.
    let belongs = |line: &&str| indent(line) > 0 || line.is_empty() || line.starts_with(['-', '#']);
    let end = start + 1 + lines[start + 1..].iter().take_while(|line| belongs(line)).count();
    let Some((FieldSegment::Item(index), rest)) = rest.split_first() else { return Some(start + 1) };

    let items = items(&lines, start + 1, end);
    let Some(&item) = items.get(*index) else { return Some(start + 1) };
    let until = items.get(index + 1).copied().unwrap_or(end);
    let key = rest.iter().find_map(|step| match step {
        FieldSegment::Key(key) => Some(key),
        FieldSegment::Item(_) => None,
    });
    let line = key.and_then(|key| {
        let within = |line: &&str| is_key(line.trim_start().trim_start_matches("- "), key);
        lines[item..until].iter().position(within).map(|offset| item + offset)
    });
    Some(line.unwrap_or(item) + 1)
}

/// Where the items of a list begin. The items of one list have one indentation; text that is folded into an item is
/// indented deeper.
fn items(lines: &[&str], start: usize, end: usize) -> Vec<usize> {
    let is_item = |line: &str| line.trim_start() == "-" || line.trim_start().starts_with("- ");
    let Some(first) = (start..end).find(|&line| is_item(lines[line])) else { return Vec::new() };
    let column = indent(lines[first]);
    (first..end).filter(|&line| indent(lines[line]) == column && is_item(lines[line])).collect()
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_key(line: &str, key: &str) -> bool {
    let line = line.trim_start();
    let bare = |quote: &str| line.strip_prefix(quote)?.strip_prefix(key)?.strip_prefix(quote);
    ["", "\"", "'"].iter().filter_map(|quote| bare(quote)).any(|rest| rest.trim_start().starts_with(':'))
}

#[cfg(test)]
mod tests {
    use super::FieldSegment::{Item, Key};
    use super::*;

    const TEXT: &str = "\
# name: not here
name: x
commands:
# a comment
- |
  - not an item
  timeout: not a key of it
- run: b
  timeout: 5m
- \"c\"
\"env\": [A]
";

    #[test]
    fn fields_are_found_where_they_are() {
        let at = |path: &[FieldSegment<'_>]| line_of(TEXT, path);
        assert_eq!(at(&[Key("name")]), Some(2));
        assert_eq!(at(&[Key("commands")]), Some(3));
        assert_eq!(at(&[Key("commands"), Item(0)]), Some(5));
        assert_eq!(at(&[Key("commands"), Item(1)]), Some(8));
        assert_eq!(at(&[Key("commands"), Item(1), Key("timeout")]), Some(9));
        assert_eq!(at(&[Key("commands"), Item(1), Key("when"), Key("file")]), Some(8));
        assert_eq!(at(&[Key("commands"), Item(2)]), Some(10));
        assert_eq!(at(&[Key("env")]), Some(11));
        assert_eq!(at(&[Key("memory")]), None);
    }

    #[test]
    fn a_list_in_one_line_is_where_its_key_is() {
        assert_eq!(line_of("name: x\ncommands: [a, b]\n", &[Key("commands"), Item(1)]), Some(2));
        assert_eq!(line_of("{name: x, commands: [a]}", &[Key("commands")]), None);
        assert_eq!(
            field_name(&[Key("commands"), Item(1), Key("when"), Key("file")]),
            "commands[1].when.file"
        );
    }
}
