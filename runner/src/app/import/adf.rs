//! Jira's documents (Atlassian Document Format), as Markdown.
//!
//! A document is a tree of nodes that name their type. What Markdown has no word for is given as its text, and a
//! type that is not known here as the text in it: nothing that can be read on the page is lost, and
//! pictures are named. Text is not escaped; it is for agents and people to read, not to be rendered.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

/// How deep the tree can be, the parser of JSON has bounded already.
pub(super) fn markdown(document: &Value) -> String {
    blocks(document)
}

/// What stands on lines of its own. Everything else stands within a line.
const BLOCKS: &[&str] = &[
    "blockCard",
    "blockquote",
    "bodiedExtension",
    "bulletList",
    "caption",
    "codeBlock",
    "decisionList",
    "doc",
    "embedCard",
    "expand",
    "heading",
    "layoutColumn",
    "layoutSection",
    "listItem",
    "mediaGroup",
    "mediaSingle",
    "nestedExpand",
    "orderedList",
    "panel",
    "paragraph",
    "rule",
    "table",
    "taskList",
];

/// A type that is not known is of lines if something right below it is. No deeper: a look at every level from
/// every level above would never end.
fn is_block(node: &Value) -> bool {
    let known = |node: &Value| BLOCKS.contains(&kind(node));
    known(node) || children(node).any(known)
}

/// The children of a node, those of lines with an empty line between them.
fn blocks(node: &Value) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut line = String::new();
    for child in children(node) {
        if is_block(child) {
            all.push(std::mem::take(&mut line));
            all.push(block(child));
        } else {
            line.push_str(&span(child));
        }
    }
    all.push(line);
    let all: Vec<&str> =
        all.iter().map(|text| text.trim_matches('\n')).filter(|text| !text.trim().is_empty()).collect();
    all.join("\n\n")
}

fn block(node: &Value) -> String {
    match kind(node) {
        "paragraph" | "caption" => spans(node).trim().to_owned(),
        "heading" => {
            let level = attribute(node, "level").as_u64().unwrap_or(1).clamp(1, 6) as usize;
            let text = spans(node).replace('\n', " ");
            if text.trim().is_empty() {
                String::new()
            } else {
                format!("{} {}", "#".repeat(level), text.trim())
            }
        }
        "bulletList" | "decisionList" => list(node, |_| "- ".to_owned()),
        "orderedList" => {
            let first = attribute(node, "order").as_u64().unwrap_or(1);
            list(node, |index| format!("{}. ", first.saturating_add(index as u64)))
        }
        "taskList" => tasks(node),
        "codeBlock" => code(node),
        "blockquote" | "panel" => prefixed(&blocks(node), "> ", "> "),
        "expand" | "nestedExpand" => match words(node, "title") {
            title if title.is_empty() => blocks(node),
            title => format!("**{title}**\n\n{}", blocks(node)),
        },
        "rule" => "---".to_owned(),
        "table" => table(node),
        "mediaSingle" | "mediaGroup" => children(node).map(either).collect::<Vec<_>>().join("\n"),
        "blockCard" | "embedCard" => words(node, "url"),
        _ => blocks(node),
    }
}

fn either(node: &Value) -> String {
    if is_block(node) { block(node) } else { span(node) }
}

fn list(node: &Value, mark: impl Fn(usize) -> String) -> String {
    let items: Vec<String> = children(node)
        .enumerate()
        .map(|(index, item)| {
            let mark = mark(index);
            prefixed(&tight(item), &mark, &" ".repeat(mark.len()))
        })
        .collect();
    items.join("\n")
}

/// An item of a list without the empty line before a list within it.
fn tight(item: &Value) -> String {
    if !is_block(item) {
        return spans(item).trim().to_owned();
    }
    let mut text = String::new();
    for child in children(item) {
        if !text.is_empty() {
            text.push_str(if kind(child).ends_with("List") { "\n" } else { "\n\n" });
        }
        text.push_str(&either(child));
    }
    text
}

/// Boxes to tick. A list within one is its sibling in the document.
fn tasks(node: &Value) -> String {
    let lines: Vec<String> = children(node)
        .map(|item| match kind(item) {
            "taskList" => prefixed(&tasks(item), "  ", "  "),
            _ => {
                let done = attribute(item, "state").as_str() == Some("DONE");
                prefixed(&tight(item), if done { "- [x] " } else { "- [ ] " }, "  ")
            }
        })
        .collect();
    lines.join("\n")
}

fn code(node: &Value) -> String {
    let text: String = children(node).filter_map(|child| child["text"].as_str()).collect();
    let language: String = attribute(node, "language")
        .as_str()
        .unwrap_or_default()
        .chars()
        .take(30)
        .filter(|c| c.is_ascii_alphanumeric() || "+#-_.".contains(*c))
        .collect();
    // Longer than any in the text, so that nothing in it ends it.
    let fence = "`".repeat(longest_run(&text, '`').max(2) + 1);
    let text = text.trim_end_matches('\n');
    format!("{fence}{language}\n{text}\n{fence}")
}

fn table(node: &Value) -> String {
    let rows: Vec<Vec<String>> = children(node)
        .map(|row| children(row).map(|cell| blocks(cell).replace('\n', " ").replace('|', "\\|")).collect())
        .collect();
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        lines.push(format!("| {} |", row.join(" | ")));
        if index == 0 {
            lines.push(format!("|{}", " --- |".repeat(width)));
        }
    }
    lines.join("\n")
}

fn spans(node: &Value) -> String {
    children(node).map(span).collect()
}

/// A node within a line.
fn span(node: &Value) -> String {
    match kind(node) {
        "text" => marked(node),
        "hardBreak" => "\n".to_owned(),
        "mention" => match words(node, "text") {
            text if text.is_empty() => "@somebody".to_owned(),
            text => format!("@{}", text.trim_start_matches('@')),
        },
        "emoji" => match words(node, "text") {
            text if text.is_empty() => words(node, "shortName"),
            text => text,
        },
        "inlineCard" => words(node, "url"),
        "status" => format!("[{}]", words(node, "text")),
        "date" => date(node),
        "media" | "mediaInline" => match words(node, "alt") {
            alt if alt.is_empty() => "(attachment)".to_owned(),
            alt => format!("(attachment: {alt})"),
        },
        _ if is_block(node) => block(node),
        _ => format!("{}{}", node["text"].as_str().unwrap_or_default(), spans(node)),
    }
}

fn marked(node: &Value) -> String {
    let raw = node["text"].as_str().unwrap_or_default();
    let marks: Vec<&Value> = node["marks"].as_array().into_iter().flatten().collect();
    let has = |name: &str| marks.iter().any(|mark| kind(mark) == name);
    // Marks that enclose a space mark nothing in Markdown.
    let inner = raw.trim_matches(' ');
    if inner.is_empty() {
        return raw.to_owned();
    }
    let mut text = inner.to_owned();
    if has("code") {
        let ticks = "`".repeat(longest_run(inner, '`') + 1);
        text = if ticks.len() > 1 { format!("{ticks} {text} {ticks}") } else { format!("`{text}`") };
    } else {
        for (name, mark) in [("strike", "~~"), ("em", "*"), ("strong", "**")] {
            if has(name) {
                text = format!("{mark}{text}{mark}");
            }
        }
    }
    let link =
        marks.iter().find(|mark| kind(mark) == "link").and_then(|mark| attribute(mark, "href").as_str());
    if let Some(href) = link.filter(|href| is_link(href)) {
        text = if href == inner { href.to_owned() } else { format!("[{text}](<{href}>)") };
    }
    let before = raw.len() - raw.trim_start_matches(' ').len();
    let after = raw.len() - raw.trim_end_matches(' ').len();
    format!("{}{text}{}", " ".repeat(before), " ".repeat(after))
}

/// Whether a link leads to a page or to a person's mail, and stays within its brackets.
fn is_link(href: &str) -> bool {
    let known = ["https://", "http://", "mailto:"].iter().any(|scheme| href.starts_with(scheme));
    known
        && href.len() <= 2000
        && !href.contains(|c: char| c.is_control() || c.is_whitespace() || matches!(c, '<' | '>'))
}

fn date(node: &Value) -> String {
    let stamp = attribute(node, "timestamp");
    let milliseconds = stamp.as_i64().or_else(|| stamp.as_str().and_then(|text| text.parse().ok()));
    let time = milliseconds.and_then(|milliseconds| Timestamp::from_millisecond(milliseconds).ok());
    time.map(|time| time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d").to_string()).unwrap_or_default()
}

fn kind(node: &Value) -> &str {
    node["type"].as_str().unwrap_or_default()
}

fn children(node: &Value) -> impl Iterator<Item = &Value> {
    node["content"].as_array().into_iter().flatten()
}

fn attribute<'a>(node: &'a Value, name: &str) -> &'a Value {
    &node["attrs"][name]
}

fn words(node: &Value, name: &str) -> String {
    attribute(node, name).as_str().unwrap_or_default().to_owned()
}

/// Empty lines get no trailing spaces.
fn prefixed(text: &str, first: &str, other: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .enumerate()
        .map(|(index, line)| {
            format!("{}{line}", if index == 0 { first } else { other }).trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

fn longest_run(text: &str, wanted: char) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == wanted { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}
