//! What a run came to, in a word.

use agency_supervisor::attempt::{AttemptEnd, FailureKind};
use agency_supervisor::dispatch::{RunSummary, TaskResult};

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOutcome {
    /// All that was asked for is done.
    Done,
    /// Something is not done.
    Undone,
    /// Something is not done, and a change was out of scope.
    OutOfScope,
    Interrupted,
}

impl RunOutcome {
    pub(crate) fn of(summary: &RunSummary) -> Self {
        let is_out_of_scope = |result: &TaskResult| matches!(result, TaskResult::Ended(AttemptEnd::Failed { failure, .. }) if failure.kind == FailureKind::Scope);
        let is_done = |result: &TaskResult| {
            matches!(result, TaskResult::Ended(AttemptEnd::Done { .. } | AttemptEnd::Kept { .. }))
        };
        let is_all_done =
            summary.tasks.values().all(is_done) && summary.waiting.is_empty() && summary.troubles.is_empty();
        match summary {
            summary if summary.interrupted => Self::Interrupted,
            summary if summary.tasks.values().any(is_out_of_scope) => Self::OutOfScope,
            _ if is_all_done => Self::Done,
            _ => Self::Undone,
        }
    }
}
