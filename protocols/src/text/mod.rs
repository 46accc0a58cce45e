//! Text that people and programs write together: edits that touch what they must and nothing else.

pub mod frontmatter;
pub mod region;
pub mod slug;
pub mod yaml;
