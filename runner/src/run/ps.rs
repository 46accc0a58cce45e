//! `agency ps`: what is being worked on.

use agency_supervisor::attempt::Attempt;
use agency_supervisor::charge;
use agency_supervisor::store::Store;
use clap::Args;
use serde::Serialize;

use crate::board::{Here, print, print_json};
use crate::message::{self, Failure};
use crate::state;

/// Show what is being worked on
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency ps --json")]
pub(crate) struct Ps {
    /// Also what is over: the last attempt at each task
    #[arg(long)]
    all: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    attempts: &'a [Attempt],
}

pub(crate) fn run(command: &Ps) -> Result<u8, Failure> {
    let here = Here::find()?;
    let state = state::of(&here.folder)?;
    let attempts = match charge::store_path(state.path()).exists() {
        false => Vec::new(),
        true => super::runtime()?
            .block_on(async {
                let store = charge::open_store(state.path()).await?;
                if command.all { store.latest().await } else { store.open().await }
            })
            .map_err(|error| super::store::unusable(&error))?,
    };
    if command.json {
        print_json(&Document { version: 1, attempts: &attempts })?;
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
        let title = message::harmless(&attempt.title);
        text.push_str(&format!(
            "{id:<10} {:>2}  {agent:<14} {phase:<8} {age:>6} s  {title}\n",
            attempt.epoch
        ));
    }
    print(&text)?;
    Ok(0)
}
