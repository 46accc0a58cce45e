//! `agency ps`: what is being worked on.

use agency_supervisor::attempt::Attempt;
use agency_supervisor::store::AttemptStore;
use agency_supervisor::store::sqlite::{open_store, store_path};
use clap::Args;
use serde::Serialize;

use crate::app::error::CommandError;
use crate::app::state_folder;
use crate::cli::message;
use crate::cli::output::{print, print_json};

/// Show what is being worked on
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency ps --json")]
pub(crate) struct PsArgs {
    /// Also what is over: the last attempt at each task
    #[arg(long)]
    all: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct PsAnswer<'a> {
    version: u32,
    attempts: &'a [Attempt],
}

pub(crate) fn run(command: &PsArgs) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let state = state_folder::of_folder(&here.folder)?;
    let attempts = match store_path(state.path()).exists() {
        false => Vec::new(),
        true => crate::app::runtime::new()?
            .block_on(async {
                let store = open_store(state.path()).await?;
                if command.all { store.latest().await } else { store.open().await }
            })
            .map_err(|error| super::store::store_error(&error))?,
    };
    if command.json {
        print_json(&PsAnswer { version: 1, attempts: &attempts })?;
        return Ok(0);
    }
    if attempts.is_empty() {
        message::notice("nothing is being worked on");
        return Ok(0);
    }
    let now = jiff::Timestamp::now().as_second();
    let mut text = String::new();
    for attempt in &attempts {
        let (id, agent, phase) = (&attempt.task.id, &attempt.agent, attempt.phase.name());
        let age = (now - attempt.claimed_at).max(0);
        let title = crate::app::error::without_control_chars(&attempt.title);
        text.push_str(&format!(
            "{id:<10} {:>2}  {agent:<14} {phase:<8} {age:>6} s  {title}\n",
            attempt.epoch
        ));
    }
    print(&text)?;
    Ok(0)
}
