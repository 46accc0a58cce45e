//! Writes answers to standard output.

use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::app::error::CommandError;

/// Prints a JSON document. Each has a `version` of its format.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), CommandError> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let written = serde_json::to_writer(&mut out, document)
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush());
    check_written(written)
}

/// Prints text for people.
pub(crate) fn print(text: &str) -> Result<(), CommandError> {
    print_bytes(text.as_bytes())
}

/// Prints what need not be text.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    check_written(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Prints a long text: at a terminal through the user's pager, where there is one.
pub(crate) fn print_page(text: &str) -> Result<(), CommandError> {
    if crate::pager::show(text) { Ok(()) } else { print(text) }
}

/// A closed pipe is not an error.
fn check_written(written: std::io::Result<()>) -> Result<(), CommandError> {
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(CommandError::internal(&error)),
        _ => Ok(()),
    }
}

/// Text of a repository: unchanged for programs, without control characters at a terminal.
pub(crate) fn for_terminal(text: &str) -> String {
    if std::io::stdout().is_terminal() {
        crate::app::error::without_control_chars(text)
    } else {
        text.to_owned()
    }
}
