//! What people tell supervisors that run: cancel this, try that again, wait, go on, come to an end.
//!
//! It is written into the store, where every supervisor of the repository finds it, whichever it is.

use agency_protocols::names::TaskId;
use clap::Args;
use serde_json::json;

use crate::app::board::{Caller, task_id};
use crate::app::error::CommandError;
use crate::app::queue::{self, QueueMode};
use crate::cli::caller::{repository, repository_with_task};
use crate::cli::message;
use crate::cli::output::print_json;

/// Stop work on a task and cancel it
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency cancel T0007")]
pub(crate) struct CancelArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    task: TaskId,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Try a blocked task again
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency retry T0007")]
pub(crate) struct RetryArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    task: TaskId,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Start nothing new until `agency resume`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency pause")]
pub(crate) struct PauseArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Continue after `agency pause`
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency resume")]
pub(crate) struct ResumeArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Let every `agency run` finish its running tasks and end
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency drain")]
pub(crate) struct DrainArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn cancel(command: &CancelArgs, who: &Caller) -> Result<u8, CommandError> {
    let (here, task) = repository_with_task(who, &command.task)?;
    queue::cancel(&here, who, &task)?;
    tell(
        command.json,
        &task,
        "canceled",
        "its agent will be stopped: now, if an `agency run` is at work, else by the next one",
    )
}

pub(crate) fn retry(command: &RetryArgs, who: &Caller) -> Result<u8, CommandError> {
    let (here, task) = repository_with_task(who, &command.task)?;
    let text = match queue::retry(&here, who, &task)? {
        None => "the next `agency run` takes it".to_owned(),
        Some(why) => format!("reopened, and no run takes it yet: {why}"),
    };
    tell(command.json, &task, "reopened", &text)
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
    queue::set_mode(&repository()?, mode)?;
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
