//! The area at the bottom of the terminal that is drawn again and again.
//!
//! The cursor rests at the start of the area: what is erased is from there to the end of the screen, and no row is ever
//! counted backwards from what was drawn before. A terminal that is made narrower or wider breaks its lines anew, and
//! keeps the cursor with its line, so nothing above the area is erased and nothing of it stays. Each line ends by itself
//! and is never wrapped: while it is written, the terminal is told not to.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// To the start of the line, and nothing is left from there on. It is erased from the second column on: tmux takes what is
/// erased from the very first place for a screen that people want to keep, and puts it into its history.
const ERASE: &str = "\r\x1b[2K \x1b[J\r";
const NO_WRAPPING: &str = "\x1b[?7l";
const WRAPPING: &str = "\x1b[?7h";

/// The redrawn area at the bottom of the terminal.
#[derive(Debug, Default)]
pub(crate) struct TerminalPane(Mutex<DrawnArea>);

/// What was drawn last, and on how large a terminal.
#[derive(Debug, Default)]
struct DrawnArea {
    lines: String,
    size: (usize, usize),
}

impl TerminalPane {
    pub(crate) fn open() -> Self {
        Self::default()
    }

    fn area(&self) -> MutexGuard<'_, DrawnArea> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the drawn lines, if they differ. A terminal that has another size is drawn on anew.
    pub(crate) fn draw(&self, lines: &str) {
        let (mut area, size) = (self.area(), super::size());
        if area.lines != lines || area.size != size {
            write(&picture(lines));
            *area = DrawnArea { lines: lines.to_owned(), size };
        }
    }

    /// Writes a permanent line above the drawn area.
    pub(crate) fn above(&self, permanent: impl FnOnce()) {
        let area = self.area();
        if area.lines.is_empty() {
            return permanent();
        }
        write(ERASE);
        permanent();
        write(&picture(&area.lines));
    }

    /// Clears the drawn area.
    pub(crate) fn clear(&self) {
        let mut area = self.area();
        if !std::mem::take(&mut area.lines).is_empty() {
            write(ERASE);
        }
    }
}

/// What draws these lines where the cursor is, and leaves it there.
fn picture(lines: &str) -> String {
    let mut drawn = format!("{ERASE}{NO_WRAPPING}");
    drawn.push_str(&lines.split('\n').collect::<Vec<_>>().join("\r\n"));
    let below = lines.matches('\n').count();
    if below > 0 {
        drawn.push_str(&format!("\x1b[{below}A"));
    }
    drawn + "\r" + WRAPPING
}

/// All of it at once. A terminal that is gone is no failure of ours.
fn write(drawn: &str) {
    let mut terminal = io::stderr().lock();
    let _ = terminal.write_all(drawn.as_bytes()).and_then(|()| terminal.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_ends_where_it_began_and_wraps_nothing() {
        assert_eq!(picture("one"), format!("{ERASE}\x1b[?7lone\r\x1b[?7h"));
        assert_eq!(
            picture("one\ntwo\nthree"),
            format!("{ERASE}\x1b[?7lone\r\ntwo\r\nthree\x1b[2A\r\x1b[?7h")
        );
        assert_eq!(picture(""), format!("{ERASE}\x1b[?7l\r\x1b[?7h"));
    }
}
