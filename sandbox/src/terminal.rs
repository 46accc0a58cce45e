//! The person's terminal while the agent has one of its own: every key goes through, none is interpreted here.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

/// Puts a terminal into raw mode, and back when dropped.
#[derive(Debug)]
pub(crate) struct RawTerminal<'a> {
    terminal: BorrowedFd<'a>,
    before: Termios,
}

impl<'a> RawTerminal<'a> {
    /// Nothing where the agent has no terminal, or we have none.
    pub(crate) fn enter(terminal: BorrowedFd<'a>, agents: Option<&OwnedFd>) -> Option<Self> {
        let agents = agents?;
        if !isatty(terminal) {
            return None;
        }
        if let Ok(size) = tcgetwinsize(terminal) {
            let _ = tcsetwinsize(agents, size);
        }
        let before = tcgetattr(terminal).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(terminal, OptionalActions::Now, &raw).ok()?;
        Some(Self { terminal, before })
    }
}

impl Drop for RawTerminal<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}
