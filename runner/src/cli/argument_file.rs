//! Reads and writes files that a person names on the command line.

#![allow(clippy::disallowed_methods, reason = "opens what a person names on the command line")]

use std::path::Path;

use crate::app::error::CommandError;

/// Reads a file that is named on the command line.
pub(crate) fn read_argument_file(path: &Path) -> Result<String, CommandError> {
    std::fs::read_to_string(path)
        .map_err(|error| CommandError::usage(format!("can't read {}: {error}", path.display())))
}

/// Writes a file that is named on the command line.
pub(crate) fn write_argument_file(path: &Path, text: &str) -> Result<(), CommandError> {
    std::fs::write(path, text)
        .map_err(|error| CommandError::usage(format!("can't write {}: {error}", path.display())))
}
