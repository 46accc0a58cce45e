//! What people tell supervisors that run: cancel this, try that again, wait, go on, come to an end.
//!
//! It is written into the store, where every supervisor of the repository finds it, whichever it is.

use agency_protocols::board::BoardOutcome;
use agency_protocols::names::TaskId;
use agency_supervisor::attempt::{AttemptEnd, Phase, TaskKey};
use agency_supervisor::store::sqlite::SqliteStore;
use agency_supervisor::store::sqlite::open_store;
use agency_supervisor::store::{AttemptStore, AttemptStoreError, QueueMode};
use clap::Args;
use serde_json::json;

use crate::app::board::{Caller, RepoContext, task_id};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;
use crate::cli::message;
use crate::cli::output::print_json;

/// Stop work on a task, and take it off the board
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency cancel T0007")]
pub(crate) struct CancelArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    task: TaskId,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Try a task again that was given up on
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency retry T0007")]
pub(crate) struct RetryArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    task: TaskId,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Start nothing new until `agency resume`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency pause")]
pub(crate) struct PauseArgs {
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Go on after `agency pause`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency resume")]
pub(crate) struct ResumeArgs {
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Let every `agency run` come to its end: nothing new is started
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency drain")]
pub(crate) struct DrainArgs {
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn cancel(command: &CancelArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let key = key(&here, who, &command.task)?;
    let asked = with_store(&here, async |store| store.ask_to_cancel(&key).await)?;
    if !asked {
        let how = match key.protocol.as_str() {
            "codifica" => "rejected --as human --reason …",
            _ => "CANCELED",
        };
        return Err(CommandError::new_message(
            ErrorKind::NoSuch,
            format!("{} is not being worked on", command.task),
        )
        .with_hint(format!("`agency task move {} {how}` takes it off the board", command.task)));
    }
    tell(
        command.json,
        &command.task,
        "canceled",
        "its agent will be stopped: now, if an `agency run` is at work, else by the next one",
    )
}

pub(crate) fn retry(command: &RetryArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let key = key(&here, who, &command.task)?;
    let board = here.board(who)?;
    let attempts = with_store(&here, async |store| store.attempts(&key).await)?;
    // One that was put off is as it was, and only has to wait no longer.
    let is_put_off =
        attempts.last().is_some_and(|last| matches!(last.phase, Phase::Over(AttemptEnd::Parked(_))));
    if !is_put_off {
        here.update_board(board.as_ref(), |tree| {
            let outcome = BoardOutcome::Reopened { reason: "to be tried again".to_owned() };
            Ok(((), board.as_ref().settle(tree, &command.task, &outcome, &here.now)?))
        })?;
    }
    with_store(&here, async |store| store.forgive(&key).await)?;
    tell(command.json, &command.task, "reopened", "the next `agency run` takes it")
}

pub(crate) fn pause(command: &PauseArgs) -> Result<u8, CommandError> {
    set(QueueMode::Paused, command.json, "paused: nothing new is started until `agency resume`")
}

pub(crate) fn resume(command: &ResumeArgs) -> Result<u8, CommandError> {
    set(QueueMode::Running, command.json, "going on")
}

pub(crate) fn drain(command: &DrainArgs) -> Result<u8, CommandError> {
    set(QueueMode::Draining, command.json, "draining: every `agency run` ends with what it is at")
}

fn set(mode: QueueMode, as_json: bool, text: &str) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    with_store(&here, async |store| store.set_mode(mode).await)?;
    match as_json {
        true => print_json(&json!({ "version": 1, "mode": mode }))?,
        false => message::notice(text),
    }
    Ok(0)
}

fn tell(as_json: bool, task: &TaskId, what: &str, text: &str) -> Result<u8, CommandError> {
    match as_json {
        true => print_json(&json!({ "version": 1, "task": task, "what": what }))?,
        false => message::notice(&format!("{task}: {text}")),
    }
    Ok(0)
}

/// A task as the store names it.
pub(super) fn key(here: &RepoContext, who: &Caller, task: &TaskId) -> Result<TaskKey, CommandError> {
    let protocol = here.board(who)?.protocol().to_owned();
    Ok(TaskKey { protocol, id: task.to_string() })
}

pub(super) fn with_store<T>(
    here: &RepoContext,
    verb: impl AsyncFnOnce(&SqliteStore) -> Result<T, AttemptStoreError>,
) -> Result<T, CommandError> {
    let state = state_folder::of_folder(&here.folder)?;
    let done = crate::app::runtime::new()?.block_on(async {
        let store = open_store(state.path()).await?;
        verb(&store).await
    });
    done.map_err(|error| super::store::store_error(&error))
}
