//! A board, converted to another version of its protocol.

use agency_protocols::board_verbs::Migration;
use serde::Serialize;

use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::error::CommandError;

/// The versions before and after.
#[derive(Debug, Serialize)]
pub(crate) struct MigrateAnswer {
    version: u32,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) changed: bool,
}

pub(crate) fn migrate(here: &RepoContext, who: &Caller, to: &str) -> Result<MigrateAnswer, CommandError> {
    let board = here.board(who)?;
    // A version that is not known is refused before anything is fetched.
    board.board_migrate(here.tree(), to).map_err(board_error)?;
    let Migration { from, to, is_changed } =
        here.update_board(board.as_ref(), |tree| board.board_migrate(tree, to))?;
    Ok(MigrateAnswer { version: 1, from, to, changed: is_changed })
}
