//! The latest report on a task.

use agency_protocols::board_verbs::ReportPage;
use agency_protocols::names::TaskId;

use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::tasks::board_with_task;

pub(crate) fn latest(here: &RepoContext, who: &Caller, id: &TaskId) -> Result<ReportPage, CommandError> {
    board_with_task(here, who, id)?.latest_report(here.tree(), id).map_err(board_error)
}

/// The error for a task without a report.
pub(crate) fn missing(page: &ReportPage) -> CommandError {
    CommandError::new_message(ErrorKind::NoSuch, page.missing.as_str())
}
