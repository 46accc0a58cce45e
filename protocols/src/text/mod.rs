//! Text that people and programs write together: edits that touch what they must and nothing else.

pub mod frontmatter;
pub mod merge;
pub mod region;
pub mod slug;
pub mod yaml;

/// A text on one line, with one space where there was any.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
