//! The command line as verbs see it: notices go to standard error, questions to the terminal.

use std::io::{IsTerminal, Write};

use crate::app::error::CommandError;
use crate::app::front_end::FrontEnd;
use crate::cli::message;

/// The terminal that a command was typed at, if there is one.
pub(crate) struct TerminalFrontEnd;

impl FrontEnd for TerminalFrontEnd {
    fn notice(&self, message: &str) {
        message::notice(message);
    }

    fn ask(&self, question: &str) -> Result<Option<bool>, CommandError> {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Ok(None);
        }
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "agency: {question} [y/N] ");
        let _ = err.flush();
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).map_err(|error| CommandError::internal(&error))?;
        Ok(Some(matches!(answer.trim(), "y" | "Y" | "yes")))
    }
}
