//! Reads files that a person names on the command line.

#![allow(clippy::disallowed_methods, reason = "opens what a person names on the command line")]

use std::path::PathBuf;

use crate::app::error::CommandError;

/// Reads a file that is named on the command line.
pub(crate) fn read_argument_file(path: &PathBuf) -> Result<String, CommandError> {
    std::fs::read_to_string(path)
        .map_err(|error| CommandError::usage(format!("can't read {}: {error}", path.display())))
}
