//! The terminal on standard error: whether it can be drawn on, how large it is, and what is drawn.

pub(crate) mod colour;
pub(crate) mod columns;
pub(crate) mod pane;

use std::io::IsTerminal;

/// Whether standard error is a terminal that can be redrawn, and nothing else writes to it.
pub(crate) fn is_drawable() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    std::io::stderr().is_terminal()
        && set("TERM").is_some_and(|term| term != "dumb")
        && set("CI").is_none()
        && set("AGENCY_LOG").is_none()
}

/// Columns and rows of the terminal.
pub(crate) fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}
