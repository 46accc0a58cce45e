//! A path inside a workspace, as raw bytes.
//!
//! Names on Linux are bytes: an agent may create one that is not UTF-8, holds a newline or a control
//! character. Scope decisions are made on exactly those bytes, never on a lossy rendering of them; only what
//! is shown to a person is escaped.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path relative to the root of a workspace: components joined by single slashes, none of them empty, `.`
/// or `..`, no NUL. The root itself is the empty path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RelPath(Vec<u8>);

/// Why a sequence of bytes is not a [`RelPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("it is absolute; paths are relative to the workspace")]
    Absolute,
    #[error("it contains `..`, which leaves the workspace")]
    Escapes,
    #[error("it contains an empty or `.` component")]
    NotNormal,
    #[error("it contains a NUL byte")]
    Nul,
}

impl RelPath {
    /// The workspace itself.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        if bytes.is_empty() {
            return Ok(Self::root());
        }
        if bytes[0] == b'/' {
            return Err(PathError::Absolute);
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        for component in bytes.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => return Err(PathError::NotNormal),
                b".." => return Err(PathError::Escapes),
                _ => {}
            }
        }
        Ok(Self(bytes.to_vec()))
    }

    /// This path with one more component, as a directory listing gives it: never empty, `.`, `..`, and
    /// without a slash. The kernel guarantees all of that.
    pub fn join(&self, name: &[u8]) -> Self {
        debug_assert!(!name.is_empty() && !name.contains(&b'/'));
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        if !self.0.is_empty() {
            bytes.extend_from_slice(&self.0);
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self(bytes)
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.0.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|component| !component.is_empty())
    }

    /// The directory that holds this path; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let end = self.0.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        Some(Self(self.0[..end].to_vec()))
    }

    /// Every directory above this path, nearest first, the root last.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(self.parent(), Self::parent)
    }

    /// Whether this path is `directory` or lies below it.
    pub fn is_within(&self, directory: &Self) -> bool {
        directory.is_root()
            || self.0 == directory.0
            || (self.0.len() > directory.0.len()
                && self.0.starts_with(&directory.0)
                && self.0[directory.0.len()] == b'/')
    }
}

/// Shown to people: anything that is not printable UTF-8 is escaped, so that a name can neither forge a line
/// of a report nor drive a terminal.
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        f.write_str(&escape(&self.0))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

impl serde::Serialize for RelPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Bytes as one line of printable text. A backslash is doubled, so the rendering is unambiguous.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                c if c.is_control() || is_invisible(c) => out.extend(c.escape_unicode()),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// Characters that reorder or vanish when shown: bidirectional controls, zero-width joiners, the byte-order
/// mark. A file name with one of them can look like another file's.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a relative path")
    }

    #[test]
    fn what_is_not_a_plain_relative_path_is_refused_with_its_reason() {
        assert_eq!(RelPath::parse(b"/etc"), Err(PathError::Absolute));
        assert_eq!(RelPath::parse(b"a/../b"), Err(PathError::Escapes));
        assert_eq!(RelPath::parse(b".."), Err(PathError::Escapes));
        assert_eq!(RelPath::parse(b"a//b"), Err(PathError::NotNormal));
        assert_eq!(RelPath::parse(b"a/./b"), Err(PathError::NotNormal));
        assert_eq!(RelPath::parse(b"a/"), Err(PathError::NotNormal));
        assert_eq!(RelPath::parse(b"a\0b"), Err(PathError::Nul));
    }

    #[test]
    fn within_means_the_directory_or_below_and_not_a_longer_name() {
        assert!(path("src/a").is_within(&path("src")));
        assert!(path("src").is_within(&path("src")));
        assert!(!path("src2/a").is_within(&path("src")));
        assert!(path("anything").is_within(&RelPath::root()));
    }

    #[test]
    fn ancestors_end_at_the_root() {
        let above: Vec<_> = path("a/b/c").ancestors().collect();
        assert_eq!(above, vec![path("a/b"), path("a"), RelPath::root()]);
    }

    #[test]
    fn a_hostile_name_is_shown_on_one_line_without_control_characters() {
        let shown = RelPath::parse(b"a\n\x1b[2J\xff\\\xe2\x80\xae").expect("parses").to_string();
        assert_eq!(shown, "a\\n\\u{1b}[2J\\xff\\\\\\u{202e}");
    }
}
