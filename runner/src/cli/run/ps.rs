//! `agency ps`: what is being worked on.

use agency_supervisor::attempt::Attempt;
use clap::Args;
use serde::Serialize;

use crate::app::error::CommandError;
use crate::app::queue::{self, AttemptFilter};
use crate::cli::message;
use crate::cli::output::{print, print_json};

/// Show attempts at work
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency ps --json")]
pub(crate) struct PsArgs {
    /// Also ended attempts: the last one of each task
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct PsAnswer<'a> {
    version: u32,
    attempts: &'a [Attempt],
}

pub(crate) fn run(command: &PsArgs) -> Result<u8, CommandError> {
    let filter = if command.all { AttemptFilter::Latest } else { AttemptFilter::Open };
    let attempts = queue::attempts(&crate::cli::caller::repository()?, filter)?;
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
