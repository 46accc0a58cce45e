//! A verb that could not do its work: what kind of failure it is, what it says, and what would help.

use agency_sandbox::error_chain;

/// A command that could not do its work.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) code: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// Exit codes that several commands share.
pub(crate) const INTERNAL: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const UNAVAILABLE: u8 = 3;
/// No such task, report or board.
pub(crate) const NO_SUCH: u8 = 4;
/// It ended, and something is not done.
pub(crate) const UNDONE: u8 = 10;
/// A scope violation was refused.
pub(crate) const OUT_OF_SCOPE: u8 = 20;
pub(crate) const INTERRUPTED: u8 = 130;
/// `agency sandbox` itself failed, which must not look like the command's own code.
pub(crate) const OWN_FAILURE: u8 = 125;

impl CommandError {
    pub(crate) fn new(code: u8, error: &(dyn std::error::Error + 'static)) -> Self {
        Self { code, message: error_chain::on_one_line(error), hint: None }
    }

    pub(crate) fn new_message(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new_message(USAGE, message)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A hint, where there is none yet.
    pub(crate) fn or_hint(mut self, hint: &str) -> Self {
        self.hint.get_or_insert_with(|| hint.to_owned());
        self
    }
}

/// Text that may quote a repository, so that it can be shown: nothing in it moves a cursor or hides a line.
pub(crate) fn without_control_chars(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}
