//! Errors in a profile's file, with file, line and field.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A file, and a line of it where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileLocation {
    pub file: PathBuf,
    /// The first is 1.
    pub line: Option<usize>,
}

impl fmt::Display for ProfileLocation {
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
    Read { at: ProfileLocation, source: io::Error },
    #[error("the profile {at} {reason}")]
    NotAFile { at: ProfileLocation, reason: &'static str },
    #[error("{at}: this is not YAML")]
    Syntax { at: ProfileLocation, source: serde_yaml::Error },
    #[error("{at}: {reason}")]
    Shape { at: ProfileLocation, reason: String },
    #[error("{at}: `{field}` {reason}")]
    Field { at: ProfileLocation, field: String, reason: String },
}

impl ProfileError {
    pub fn location(&self) -> &ProfileLocation {
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
