//! The queue of a repository, asked and told from outside of a run: what is being worked on, what becomes of a task, and
//! whether anything new is started.
//!
//! What people want is written into the store, where every run of the repository finds it, whichever it is.

pub(crate) mod adoption;
pub(crate) mod decisions;
pub(crate) mod logs;
pub(crate) mod rebuild;

use agency_protocols::board::BoardOutcome;
use agency_protocols::names::TaskId;
use agency_supervisor::attempt::{Attempt, AttemptEnd, Phase, TaskKey};
use agency_supervisor::store::AttemptStore;
pub(crate) use agency_supervisor::store::QueueMode;

use crate::app::attempt_store::{with_existing_store, with_store};
use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::error::{CommandError, ErrorKind};

/// Which attempts are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttemptFilter {
    /// Those that are open.
    Open,
    /// The last one at each task, also where it is over.
    Latest,
}

/// What is being worked on, or was.
pub(crate) fn attempts(here: &RepoContext, filter: AttemptFilter) -> Result<Vec<Attempt>, CommandError> {
    let found = with_existing_store(here, async |store| match filter {
        AttemptFilter::Open => store.open().await,
        AttemptFilter::Latest => store.latest().await,
    })?;
    Ok(found.unwrap_or_default())
}

/// Stops work on a task, and takes it off the board: now, if a run is at work, else by the next one.
pub(crate) fn cancel(here: &RepoContext, who: &Caller, task: &TaskId) -> Result<(), CommandError> {
    let board = here.board(who)?;
    let key = TaskKey { protocol: board.protocol().to_owned(), id: task.to_string() };
    if with_store(here, async |store| store.ask_to_cancel(&key).await)? {
        return Ok(());
    }
    let how = board.removal();
    Err(CommandError::new_message(ErrorKind::NoSuch, format!("{task} is not being worked on"))
        .with_hint(format!("`agency task move {task} {how}` takes it off the board")))
}

/// Opens a task again that was given up on, or that was put off: the next run takes it. Returns why it does not, if the
/// task waits for something else.
pub(crate) fn retry(here: &RepoContext, who: &Caller, task: &TaskId) -> Result<Option<String>, CommandError> {
    let key = key(here, who, task)?;
    let board = here.board(who)?;
    let attempts = with_store(here, async |store| store.attempts(&key).await)?;
    // One that was put off is as it was, and only has to wait no longer.
    let is_put_off =
        attempts.last().is_some_and(|last| matches!(last.phase, Phase::Over(AttemptEnd::Parked(_))));
    if !is_put_off {
        here.update_board(board.as_ref(), |tree| {
            let outcome = BoardOutcome::Reopened { reason: "to be tried again".to_owned() };
            Ok(((), board.settle(tree, task, &outcome, &here.now)?))
        })?;
    }
    with_store(here, async |store| store.forgive(&key).await)?;
    let agenda = board.agenda(here.tree()).map_err(board_error)?;
    let held = agenda.waiting.into_iter().chain(agenda.elsewhere).find(|one| one.task == *task);
    Ok(held.map(|one| one.why))
}

/// Tells every run of the repository to go on, to start nothing new, or to come to its end.
pub(crate) fn set_mode(here: &RepoContext, mode: QueueMode) -> Result<(), CommandError> {
    with_store(here, async |store| store.set_mode(mode).await)
}

/// A task as the store names it.
fn key(here: &RepoContext, who: &Caller, task: &TaskId) -> Result<TaskKey, CommandError> {
    let protocol = here.board(who)?.protocol().to_owned();
    Ok(TaskKey { protocol, id: task.to_string() })
}
