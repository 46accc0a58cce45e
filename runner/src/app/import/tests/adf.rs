//! Jira's documents as Markdown.

use serde_json::{Value, json};

use crate::app::import::adf::markdown;

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn marked(text: &str, marks: Value) -> Value {
    json!({"type": "text", "text": text, "marks": marks})
}

fn paragraph(content: Vec<Value>) -> Value {
    json!({"type": "paragraph", "content": content})
}

fn item(content: Vec<Value>) -> Value {
    json!({"type": "listItem", "content": content})
}

fn document(content: Vec<Value>) -> String {
    markdown(&json!({"type": "doc", "version": 1, "content": content}))
}

#[test]
fn paragraphs_and_headings_stand_apart() {
    let shown = document(vec![
        json!({"type": "heading", "attrs": {"level": 2}, "content": [text("What")]}),
        paragraph(vec![text("One"), json!({"type": "hardBreak"}), text("two.")]),
        paragraph(vec![]),
        json!({"type": "rule"}),
        paragraph(vec![text("Three.")]),
    ]);
    assert_eq!(shown, "## What\n\nOne\ntwo.\n\n---\n\nThree.");
}

#[test]
fn lists_keep_their_depth_and_their_numbers() {
    let inner = json!({"type": "bulletList", "content": [item(vec![paragraph(vec![text("deep")])])]});
    let shown = document(vec![
        json!({"type": "orderedList", "attrs": {"order": 9}, "content": [
            item(vec![paragraph(vec![text("nine")]), inner]),
            item(vec![paragraph(vec![text("ten")]), paragraph(vec![text("more of ten")])]),
        ]}),
        json!({"type": "taskList", "content": [
            {"type": "taskItem", "attrs": {"state": "DONE"}, "content": [text("was done")]},
            {"type": "taskList", "content": [
                {"type": "taskItem", "attrs": {"state": "TODO"}, "content": [text("below")]},
            ]},
        ]}),
        json!({"type": "decisionList", "content": [{"type": "decisionItem", "content": [text("so be it")]}]}),
    ]);
    assert_eq!(
        shown,
        "9. nine\n   - deep\n10. ten\n\n    more of ten\n\n- [x] was done\n  - [ ] below\n\n- so be it"
    );
}

#[test]
fn code_cannot_end_its_own_block() {
    let shown = document(vec![
        json!({"type": "codeBlock", "attrs": {"language": "rust`\n"}, "content": [text("a\n```\nb\n")]}),
        json!({"type": "codeBlock"}),
        paragraph(vec![
            marked("x", json!([{"type": "code"}])),
            text(" "),
            marked("a`b", json!([{"type": "code"}])),
        ]),
    ]);
    assert_eq!(shown, "````rust\na\n```\nb\n````\n\n```\n\n```\n\n`x` `` a`b ``");
}

#[test]
fn marks_and_links_are_written_out() {
    let link = |href: &str| json!([{"type": "link", "attrs": {"href": href}}]);
    let shown = document(vec![paragraph(vec![
        marked("bold ", json!([{"type": "strong"}])),
        marked("both", json!([{"type": "em"}, {"type": "strong"}, {"type": "underline"}])),
        text(", "),
        marked("here", link("https://example.org/a(b)")),
        text(", "),
        marked("https://example.org", link("https://example.org")),
        text(", "),
        marked("not this", link("javascript:alert(1)")),
        text(", "),
        marked("nor this", link("https://x/> [a](b")),
    ])]);
    assert_eq!(
        shown,
        "**bold** ***both***, [here](<https://example.org/a(b)>), https://example.org, not this, nor this"
    );
}

#[test]
fn what_stands_in_a_line_is_named() {
    let shown = document(vec![paragraph(vec![
        json!({"type": "mention", "attrs": {"id": "1", "text": "@Ada"}}),
        text(" "),
        json!({"type": "mention", "attrs": {"id": "1"}}),
        text(" "),
        json!({"type": "emoji", "attrs": {"shortName": ":tada:"}}),
        text(" "),
        json!({"type": "inlineCard", "attrs": {"url": "https://example.org/1"}}),
        text(" "),
        json!({"type": "status", "attrs": {"text": "DONE"}}),
        text(" "),
        json!({"type": "date", "attrs": {"timestamp": "1793887500000"}}),
    ])]);
    assert_eq!(shown, "@Ada @somebody :tada: https://example.org/1 [DONE] 2026-11-05");
}

#[test]
fn boxes_tables_and_pictures_keep_their_words() {
    let cell = |kind: &str, words: &str| json!({"type": kind, "content": [paragraph(vec![text(words)])]});
    let shown = document(vec![
        json!({"type": "panel", "attrs": {"panelType": "info"}, "content": [
            paragraph(vec![text("Mind")]), paragraph(vec![text("this")]),
        ]}),
        json!({"type": "expand", "attrs": {"title": "More"}, "content": [paragraph(vec![text("inside")])]}),
        json!({"type": "table", "content": [
            {"type": "tableRow", "content": [cell("tableHeader", "a"), cell("tableHeader", "b")]},
            {"type": "tableRow", "content": [cell("tableCell", "1|2"), cell("tableCell", "3")]},
        ]}),
        json!({"type": "mediaSingle", "content": [{"type": "media", "attrs": {"id": "1", "alt": "a screen"}}]}),
    ]);
    assert_eq!(
        shown,
        "> Mind\n>\n> this\n\n**More**\n\ninside\n\n| a | b |\n| --- | --- |\n| 1\\|2 | 3 |\n\n(attachment: a screen)"
    );
}

#[test]
fn what_is_not_known_loses_no_words() {
    let shown = document(vec![
        json!({"type": "future", "content": [paragraph(vec![text("one")]), paragraph(vec![text("two")])]}),
        paragraph(vec![
            json!({"type": "glow", "content": [text("three")]}),
            json!({"type": "x", "text": " four"}),
        ]),
    ]);
    assert_eq!(shown, "one\n\ntwo\n\nthree four");
    for nothing in [json!(null), json!([]), json!({"type": 7, "content": "x"}), json!({})] {
        assert_eq!(markdown(&nothing), "");
    }
}

#[test]
fn a_deep_document_is_read_in_no_time() {
    let mut node = text("down here");
    for depth in 0..60 {
        let kind = ["future", "bulletList", "blockquote", "taskItem"][depth % 4];
        node = json!({"type": kind, "content": [node]});
    }
    assert!(markdown(&node).contains("down here"));
}
