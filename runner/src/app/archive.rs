//! Finished tasks, archived.

use agency_protocols::board_verbs::ArchiveSummary;
use agency_protocols::names::TaskId;
use serde::Serialize;
use serde_json::Value;

use crate::app::board::{Caller, RepoContext};
use crate::app::error::CommandError;

/// What was archived.
#[derive(Debug, Serialize)]
pub(crate) struct ArchiveAnswer {
    version: u32,
    #[serde(flatten)]
    document: Value,
    #[serde(skip)]
    pub(crate) tasks: Vec<TaskId>,
    /// How many files or tasks were moved.
    #[serde(skip)]
    pub(crate) count: usize,
}

/// Archives finished tasks that were made more than `days` days ago.
pub(crate) fn archive(here: &RepoContext, who: &Caller, days: u32) -> Result<ArchiveAnswer, CommandError> {
    let board = here.board(who)?;
    let ArchiveSummary { document, tasks, count } =
        here.update_board(board.as_ref(), |tree| board.board_archive(tree, days, &here.now))?;
    Ok(ArchiveAnswer { version: 1, document, tasks, count })
}
