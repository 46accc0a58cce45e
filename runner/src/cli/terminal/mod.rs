//! The terminal: whether it can be drawn on, how large it is, and what is drawn.

pub(crate) mod colour;
pub(crate) mod columns;
pub(crate) mod pane;
pub(crate) mod table;

use std::io::IsTerminal;

/// Whether standard error is a terminal that can be redrawn, and nothing else writes to it.
pub(crate) fn is_drawable() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    std::io::stderr().is_terminal()
        && set("TERM").is_some_and(|term| term != "dumb")
        && set("CI").is_none()
        && set("AGENCY_LOG").is_none()
}

/// The columns of the terminal on standard output, if it is one.
fn output_width() -> Option<usize> {
    let output = std::io::stdout();
    let size = output.is_terminal().then(|| rustix::termios::tcgetwinsize(output).ok());
    size.map(|size| size.map_or(0, |size| usize::from(size.ws_col)))
        .map(|width| if width > 0 { width } else { 80 })
}

/// Columns and rows of the terminal on standard error.
pub(crate) fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}
