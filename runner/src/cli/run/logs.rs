//! `agency logs`: what an agent wrote.

use std::io::Write;
use std::time::Duration;

use agency_protocols::names::TaskId;
use agency_sandbox::output::sanitize::TerminalSanitizer;
use clap::Args;
use serde_json::json;

use crate::app::board::{Caller, task_id};
use crate::app::error::CommandError;
use crate::app::queue::logs::{self, AttemptLog, LogRequest};
use crate::cli::output::print_json;

/// Show an agent's output
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency logs -f T0007")]
pub(crate) struct LogsArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    task: TaskId,
    /// Follow until the agent ends
    #[arg(short, long)]
    follow: bool,
    /// Another attempt than the last one
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,
    /// Print one JSON object for each line
    #[arg(long)]
    json: bool,
}

/// How often a file that grows is read again.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(command: &LogsArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let log = logs::open(&here, who, &LogRequest { task: command.task.clone(), attempt: command.attempt })?;
    let told = command.json.then(|| JsonLogLines {
        attempt: log.attempt,
        task: command.task.clone(),
        rest: Vec::new(),
    });
    let mut follower = LogFollower { log, shown: TerminalSanitizer::default(), told };
    loop {
        let may_grow = follower.log.may_grow()?;
        follower.pass_on()?;
        if !command.follow || !may_grow {
            follower.end()?;
            return Ok(0);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A log that may still grow, shown so that nothing in it moves a cursor.
struct LogFollower<'a> {
    log: AttemptLog<'a>,
    shown: TerminalSanitizer,
    /// For programs, line by line.
    told: Option<JsonLogLines>,
}

struct JsonLogLines {
    task: TaskId,
    attempt: u64,
    /// A line that has no end yet.
    rest: Vec<u8>,
}

impl JsonLogLines {
    fn say(&mut self, bytes: &[u8], last: bool) -> Result<(), CommandError> {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.line(&line[..end])?;
        }
        if last && !self.rest.is_empty() {
            let line = std::mem::take(&mut self.rest);
            self.line(&line)?;
        }
        Ok(())
    }

    fn line(&self, line: &[u8]) -> Result<(), CommandError> {
        let line = String::from_utf8_lossy(line);
        print_json(&json!({ "version": 1, "task": self.task, "attempt": self.attempt, "line": line }))
    }
}

impl LogFollower<'_> {
    /// Shows what came since the last time.
    fn pass_on(&mut self) -> Result<(), CommandError> {
        loop {
            let bytes = self.log.read_chunk()?;
            if bytes.is_empty() {
                return Ok(());
            }
            let mut harmless = Vec::new();
            self.shown.push(&bytes, &mut |bytes| harmless.extend_from_slice(bytes));
            self.say(&harmless, false)?;
        }
    }

    fn say(&mut self, bytes: &[u8], last: bool) -> Result<(), CommandError> {
        match &mut self.told {
            Some(told) => told.say(bytes, last),
            None => say(bytes),
        }
    }

    fn end(&mut self) -> Result<(), CommandError> {
        let mut harmless = Vec::new();
        self.shown.finish(&mut |bytes| harmless.extend_from_slice(bytes));
        self.say(&harmless, true)
    }
}

/// Somebody who stopped reading is no failure of ours.
fn say(bytes: &[u8]) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(CommandError::internal(&error)),
        _ => Ok(()),
    }
}
