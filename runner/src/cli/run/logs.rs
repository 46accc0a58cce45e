//! `agency logs`: what an agent wrote.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use agency_protocols::names::TaskId;
use agency_sandbox::output::sanitize::TerminalSanitizer;
use agency_supervisor::attempt::{Attempt, TaskKey};
use agency_supervisor::records;
use agency_supervisor::store::AttemptStore;
use agency_supervisor::store::sqlite::{open_store, store_path};
use clap::Args;
use serde_json::json;

use crate::app::board::{Caller, task_id};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;
use crate::cli::output::print_json;

/// Show what an agent wrote while it worked on a task
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency logs -f T0007")]
pub(crate) struct LogsArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    task: TaskId,
    /// Go on until the agent ends
    #[arg(short, long)]
    follow: bool,
    /// An earlier attempt than the last
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,
    /// One JSON object for each line, on standard output
    #[arg(long)]
    json: bool,
}

/// How often a file that grows is read again.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(command: &LogsArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let state = state_folder::of_folder(&here.folder)?;
    let key = super::control::key(&here, who, &command.task)?;
    let nothing = || {
        CommandError::new_message(
            ErrorKind::NoSuch,
            format!("there is no attempt at {} to show", command.task),
        )
        .with_hint("`agency ps --all` shows what there is")
    };
    if !store_path(state.path()).exists() {
        return Err(nothing());
    }
    let attempts = |key: TaskKey| -> Result<Vec<Attempt>, CommandError> {
        let found = crate::app::runtime::new()?
            .block_on(async { open_store(state.path()).await?.attempts(&key).await });
        found.map_err(|error| super::store::store_error(&error))
    };
    let wanted = |attempt: &Attempt| command.attempt.is_none_or(|number| number == attempt.epoch.0);
    let find = || Ok(attempts(key.clone())?.into_iter().rfind(wanted));
    let attempt = find()?.ok_or_else(nothing)?;
    let path = records::folder_of(state.path(), &attempt).join("agent").join("output.log");
    let told = command.json.then(|| JsonLogLines {
        attempt: attempt.epoch.0,
        task: command.task.clone(),
        rest: Vec::new(),
    });
    let mut log = LogFollower { path, read: 0, shown: TerminalSanitizer::default(), told };
    loop {
        let open = find()?.is_some_and(|attempt: Attempt| attempt.held.is_some());
        log.pass_on()?;
        if !command.follow || !open {
            log.end()?;
            return Ok(0);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A log that may still grow, shown so that nothing in it moves a cursor.
struct LogFollower {
    path: PathBuf,
    read: u64,
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

impl LogFollower {
    /// Shows what came since the last time.
    fn pass_on(&mut self) -> Result<(), CommandError> {
        use std::io::{Seek, SeekFrom};
        let Ok(mut file) = File::open(&self.path) else { return Ok(()) };
        let failed = |error: std::io::Error| CommandError::internal(&error);
        file.seek(SeekFrom::Start(self.read)).map_err(failed)?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = file.read(&mut buffer).map_err(failed)?;
            if length == 0 {
                return Ok(());
            }
            self.read += length as u64;
            let mut harmless = Vec::new();
            self.shown.push(&buffer[..length], &mut |bytes| harmless.extend_from_slice(bytes));
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
