//! A verb that could not do its work: what kind of failure it is, what it says, and what would help.

use agency_sandbox::error_chain;

/// What kind of failure it is. A front end makes of it what its users expect: an exit code, a status, a JSON-RPC error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// This program or the machine is at fault.
    Internal,
    /// The request, the configuration or the repository's state is at fault, or trust is missing.
    Usage,
    /// The isolation that was asked for is not available on this host.
    Unavailable,
    /// No such task, report or board.
    NoSuch,
    /// It ended, and something is not done.
    Undone,
    Interrupted,
    /// `agency sandbox` itself failed, which must not look like the command's own exit code.
    SandboxFailed,
}

/// A verb that could not do its work.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl CommandError {
    pub(crate) fn new(kind: ErrorKind, error: &(dyn std::error::Error + 'static)) -> Self {
        Self { kind, message: error_chain::on_one_line(error), hint: None }
    }

    pub(crate) fn new_message(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(ErrorKind::Internal, error)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new_message(ErrorKind::Usage, message)
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
