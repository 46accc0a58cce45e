//! What a verb says and asks while it works, for every front end.

use agency_supervisor::board_sync::MessageSink;

use crate::app::error::CommandError;

/// The side of a front end that verbs see: a terminal, an MCP client, a page.
pub(crate) trait FrontEnd: Send + Sync {
    /// Shows what a person should know although all went well.
    fn notice(&self, message: &str);

    /// Asks a person a yes-or-no question; `None` if there is no person to ask.
    fn ask(&self, question: &str) -> Result<Option<bool>, CommandError>;
}

/// Somebody who listens, and is never asked.
pub(crate) struct NoticesOnly(pub(crate) MessageSink);

impl FrontEnd for NoticesOnly {
    fn notice(&self, message: &str) {
        (self.0)(message);
    }

    fn ask(&self, _: &str) -> Result<Option<bool>, CommandError> {
        Ok(None)
    }
}
