//! Why a file is no profile: which file, which line, which field.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A file, and a line of it where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub file: PathBuf,
    /// The first is 1.
    pub line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = agency_sandbox::path::escape(self.file.as_os_str().as_encoded_bytes());
        match self.line {
            Some(line) => write!(f, "{file}:{line}"),
            None => f.write_str(&file),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("the profile {at} can't be read")]
    Read { at: Place, source: io::Error },
    #[error("the profile {at} {reason}")]
    NotAFile { at: Place, reason: &'static str },
    #[error("{at}: this is not YAML")]
    Syntax { at: Place, source: serde_yaml::Error },
    #[error("{at}: {reason}")]
    Shape { at: Place, reason: String },
    #[error("{at}: `{field}` {reason}")]
    Field { at: Place, field: String, reason: String },
}

impl ProfileError {
    pub fn place(&self) -> &Place {
        match self {
            Self::Read { at, .. }
            | Self::NotAFile { at, .. }
            | Self::Syntax { at, .. }
            | Self::Shape { at, .. }
            | Self::Field { at, .. } => at,
        }
    }

    /// The field that is wrong, if it is one: `timeout`, `commands[1].when.file`.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Field { field, .. } => Some(field),
            _ => None,
        }
    }
}
