//! Whatever people of any language write: it is read, and nothing of it stops an import.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::app::import::adf::markdown;
use crate::app::import::{comments, sanitize};

/// What means something to a parser, or is often forgotten.
const MARKS: &[&str] = &[
    "`",
    "``",
    "```",
    "~~~",
    "<!--",
    "-->",
    "<!-->",
    "<",
    "\n",
    "\r\n",
    " ",
    "    ",
    "✅",
    "登录",
    "é",
    "e\u{301}",
    "👩\u{200d}💻",
    "\u{0}",
    "\u{1b}",
    "\u{202e}",
    "\u{feff}",
    "---",
    "#",
    "|",
    "- ",
    "> ",
];

/// A mark, or text of any language.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(MARKS).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..24).prop_map(|pieces| pieces.concat())
}

/// A node of a document, of any type and with any children.
fn node() -> impl Strategy<Value = Value> {
    const TYPES: &[&str] = &[
        "bulletList",
        "codeBlock",
        "expand",
        "heading",
        "inlineCard",
        "listItem",
        "mention",
        "orderedList",
        "panel",
        "paragraph",
        "table",
        "tableCell",
        "tableRow",
        "taskItem",
        "taskList",
        "text",
        "✅",
    ];
    let leaf = text().prop_map(|text| json!({ "type": "text", "text": text, "marks": [{ "type": "code" }] }));
    leaf.prop_recursive(4, 24, 4, |inner| {
        let attributes = (text(), any::<u64>());
        (prop::sample::select(TYPES), prop::collection::vec(inner, 0..4), attributes).prop_map(
            |(kind, content, (text, number))| {
                let attributes = json!({ "title": text, "text": text, "language": text, "level": number, "order": number });
                json!({ "type": kind, "content": content, "attrs": attributes })
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_page_of_any_language_is_read(text in text()) {
        let shown = comments::without(&text);
        prop_assert!(shown.len() <= text.len());
        let body = sanitize::body(&shown, "https://example.org/1");
        prop_assert!(body.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'));
        prop_assert!(!sanitize::title(&text).is_empty());
        prop_assert!(sanitize::line(&text, 10).chars().count() <= 10);
    }

    #[test]
    fn a_line_without_marks_stays_as_it_is(text in "[^<`~\\r\\n]{0,40}") {
        prop_assert_eq!(comments::without(&text), text);
    }

    #[test]
    fn a_document_of_any_language_is_read(node in node()) {
        markdown(&json!({ "type": "doc", "content": [node] }));
    }
}
