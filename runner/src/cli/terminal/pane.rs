//! The terminal as it is drawn on: everything of one drawing is written at once.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

/// The redrawn area at the bottom of the terminal.
#[derive(Debug)]
pub(crate) struct TerminalPane(ProgressBar);

impl TerminalPane {
    pub(crate) fn open() -> Self {
        let bar = ProgressBar::with_draw_target(
            None,
            ProgressDrawTarget::term_like(Box::new(StderrTerminal::default())),
        );
        // It is nothing but a message.
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Replaces the drawn lines, if they differ.
    pub(crate) fn draw(&self, lines: &str) {
        if self.0.message() != lines {
            self.0.set_message(lines.to_owned());
        }
    }

    /// Writes a permanent line above the drawn area.
    pub(crate) fn above(&self, write: impl FnOnce()) {
        self.0.suspend(write);
    }

    /// Clears the drawn area.
    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// Standard error as a terminal.
#[derive(Debug, Default)]
struct StderrTerminal {
    drawing: Mutex<Vec<u8>>,
}

impl StderrTerminal {
    fn drawing(&self) -> MutexGuard<'_, Vec<u8>> {
        self.drawing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn steer(&self, times: usize, direction: char) -> io::Result<()> {
        match times {
            0 => Ok(()),
            times => write!(self.drawing(), "\x1b[{times}{direction}"),
        }
    }
}

impl TermLike for StderrTerminal {
    fn width(&self) -> u16 {
        u16::try_from(super::size().0).unwrap_or(u16::MAX)
    }

    fn height(&self) -> u16 {
        u16::try_from(super::size().1).unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, times: usize) -> io::Result<()> {
        self.steer(times, 'A')
    }

    fn move_cursor_down(&self, times: usize) -> io::Result<()> {
        self.steer(times, 'B')
    }

    fn move_cursor_right(&self, times: usize) -> io::Result<()> {
        self.steer(times, 'C')
    }

    fn move_cursor_left(&self, times: usize) -> io::Result<()> {
        self.steer(times, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        writeln!(self.drawing(), "{text}")
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.drawing().write_all(text.as_bytes())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.drawing().write_all(b"\r\x1b[2K")
    }

    /// The cursor rests where an echoed `^C` wraps no line.
    fn flush(&self) -> io::Result<()> {
        let mut drawing = self.drawing();
        drawing.push(b'\r');
        let mut terminal = io::stderr().lock();
        terminal.write_all(&drawing)?;
        drawing.clear();
        terminal.flush()
    }
}
