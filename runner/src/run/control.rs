//! What people tell supervisors that run: cancel this, try that again, wait, go on, come to an end.
//!
//! It is written into the store, where every supervisor of the repository finds it, whichever it is.

use agency_protocols::board::Outcome;
use agency_protocols::names::TaskId;
use agency_supervisor::attempt::{Ending, Phase, TaskKey};
use agency_supervisor::charge;
use agency_supervisor::store::sqlite::SqliteStore;
use agency_supervisor::store::{Mode, Store, StoreError};
use clap::Args;
use serde_json::json;

use crate::board::{Here, Who, print_json, task_id};
use crate::message::{self, Failure, NO_SUCH};
use crate::state;

/// Stop work on a task, and take it off the board
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency cancel T0007")]
pub(crate) struct Cancel {
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
pub(crate) struct Retry {
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
pub(crate) struct Pause {
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Go on after `agency pause`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency resume")]
pub(crate) struct Resume {
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

/// Let every `agency run` come to its end: nothing new is started
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency drain")]
pub(crate) struct Drain {
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn cancel(command: &Cancel, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let key = key(&here, who, &command.task)?;
    let asked = with_store(&here, async |store| store.ask_to_cancel(&key).await)?;
    if !asked {
        let how = match key.protocol.as_str() {
            "codifica" => "rejected --as human --reason …",
            _ => "CANCELED",
        };
        return Err(Failure::new_message(NO_SUCH, format!("{} is not being worked on", command.task))
            .with_hint(format!("`agency task move {} {how}` takes it off the board", command.task)));
    }
    tell(
        command.json,
        &command.task,
        "canceled",
        "its agent will be stopped: now, if an `agency run` is at work, else by the next one",
    )
}

pub(crate) fn retry(command: &Retry, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let key = key(&here, who, &command.task)?;
    let board = here.board(who)?;
    let attempts = with_store(&here, async |store| store.attempts(&key).await)?;
    // One that was put off is as it was, and only has to wait no longer.
    let is_put_off = attempts.last().is_some_and(|last| matches!(last.phase, Phase::Over(Ending::Parked(_))));
    if !is_put_off {
        here.act_on(board.as_board(), |tree| {
            let outcome = Outcome::Reopened { reason: "to be tried again".to_owned() };
            Ok(((), board.as_board().settle(tree, &command.task, &outcome, &here.now)?))
        })?;
    }
    with_store(&here, async |store| store.forgive(&key).await)?;
    tell(command.json, &command.task, "reopened", "the next `agency run` takes it")
}

pub(crate) fn pause(command: &Pause) -> Result<u8, Failure> {
    set(Mode::Paused, command.json, "paused: nothing new is started until `agency resume`")
}

pub(crate) fn resume(command: &Resume) -> Result<u8, Failure> {
    set(Mode::Running, command.json, "going on")
}

pub(crate) fn drain(command: &Drain) -> Result<u8, Failure> {
    set(Mode::Draining, command.json, "draining: every `agency run` ends with what it is at")
}

fn set(mode: Mode, as_json: bool, text: &str) -> Result<u8, Failure> {
    let here = Here::find()?;
    with_store(&here, async |store| store.set_mode(mode).await)?;
    match as_json {
        true => print_json(&json!({ "version": 1, "mode": mode }))?,
        false => message::notice(text),
    }
    Ok(0)
}

fn tell(as_json: bool, task: &TaskId, what: &str, text: &str) -> Result<u8, Failure> {
    match as_json {
        true => print_json(&json!({ "version": 1, "task": task, "what": what }))?,
        false => message::notice(&format!("{task}: {text}")),
    }
    Ok(0)
}

/// A task as the store names it.
pub(super) fn key(here: &Here, who: &Who, task: &TaskId) -> Result<TaskKey, Failure> {
    let protocol = here.board(who)?.as_board().protocol().to_owned();
    Ok(TaskKey { protocol, id: task.to_string() })
}

pub(super) fn with_store<T>(
    here: &Here,
    verb: impl AsyncFnOnce(&SqliteStore) -> Result<T, StoreError>,
) -> Result<T, Failure> {
    let state = state::of(&here.folder)?;
    let done = super::runtime()?.block_on(async {
        let store = charge::open_store(state.path()).await?;
        verb(&store).await
    });
    done.map_err(|error| super::store::unusable(&error))
}
