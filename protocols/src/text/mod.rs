//! Edits of texts that people and programs both write. An edit changes no other byte.

pub(crate) mod bounds;
pub mod frontmatter;
pub mod merge;
pub mod region;
pub mod slug;
pub mod yaml;

/// A text on one line, with one space for each run of white space.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
