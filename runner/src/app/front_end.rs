//! What a verb says and asks while it works, for every front end.

use crate::app::error::CommandError;

/// The side of a front end that verbs see: a terminal, an MCP client, a page.
pub(crate) trait FrontEnd: Send + Sync {
    /// Shows what a person should know although all went well.
    fn notice(&self, message: &str);

    /// Asks a person a yes-or-no question; `None` if there is no person to ask.
    fn ask(&self, question: &str) -> Result<Option<bool>, CommandError>;
}
