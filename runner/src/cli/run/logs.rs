//! `agency logs`: what was written while a task was worked on.

use std::collections::HashSet;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use agency_protocols::names::TaskId;
use agency_sandbox::output::sanitize::TerminalSanitizer;
use clap::Args;
use serde_json::json;

use crate::app::board::{Caller, task_id};
use crate::app::error::CommandError;
use crate::app::queue::logs::{self, JobLog, LogRequest, LogSource};
use crate::app::transcript::{LineGuard, LineSplitter, OutputFormat, OutputLine};
use crate::cli::caller::repository_with_task;
use crate::cli::message;
use crate::cli::output::print_json;

/// Show the output of a task's agent
///
/// Events that an agent writes as JSON are shown as people read them: what it says, reads, edits and runs. Lines that begin
/// with `|` are as the agent wrote them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency logs -f T0007\n  agency logs T0007 --checks\n  agency logs T0007 --raw > output.log"
)]
pub(crate) struct LogsArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    task: TaskId,
    /// Follow until the attempt ends
    #[arg(short, long)]
    follow: bool,
    /// Another attempt than the last one
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,
    /// Show the output of the attempt's auditors
    #[arg(long, conflicts_with = "checks")]
    auditor: bool,
    /// Show the output of the attempt's checks
    #[arg(long)]
    checks: bool,
    /// Print the bytes as they were written; a terminal gets no control characters
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print one JSON object for each line
    #[arg(long)]
    json: bool,
}

impl LogsArgs {
    const fn source(&self) -> LogSource {
        match (self.auditor, self.checks) {
            (true, _) => LogSource::Auditors,
            (_, true) => LogSource::Checks,
            _ => LogSource::Agent,
        }
    }
}

/// How often a file that grows is read again.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(command: &LogsArgs, who: &Caller) -> Result<u8, CommandError> {
    let (here, task) = repository_with_task(who, &command.task)?;
    let source = command.source();
    let request = LogRequest { task: task.clone(), attempt: command.attempt, source };
    let found = logs::open(&here, who, &request)?;
    let mut known = HashSet::new();
    let mut open: Option<LogFollower<'_>> = None;
    loop {
        let may_grow = found.may_grow()?;
        for log in found.files() {
            if !known.insert(log.job.clone()) {
                continue;
            }
            // What comes next was begun when this one had ended.
            if let Some(last) = open.take() {
                last.end()?;
            }
            if source != LogSource::Agent && !command.json {
                message::notice(&format!("output of {}", log.job));
            }
            open = Some(LogFollower::new((command, &task), found.attempt, log));
            open.iter_mut().try_for_each(LogFollower::pass_on)?;
        }
        open.iter_mut().try_for_each(LogFollower::pass_on)?;
        if !command.follow || !may_grow {
            return match open {
                Some(last) => last.end().map(|()| 0),
                None => Err(found.nothing_there(&task)),
            };
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A log that may still grow.
struct LogFollower<'a> {
    log: JobLog,
    shown: LogView<'a>,
}

/// How a log is shown.
enum LogView<'a> {
    /// As it was written.
    Bytes,
    /// The same, with nothing in it that moves a cursor, and where it is text, with no line that looks like one of ours.
    Harmless(TerminalSanitizer, Option<LineGuard>),
    /// As people read it, line by line.
    Transcript { format: OutputFormat, lines: LineSplitter },
    /// For programs, line by line.
    Json { task: &'a TaskId, attempt: u64, job: String, format: OutputFormat, lines: LineSplitter },
}

impl<'a> LogFollower<'a> {
    fn new((command, task): (&'a LogsArgs, &'a TaskId), attempt: u64, log: JobLog) -> Self {
        let (format, lines) = (log.format, LineSplitter::default());
        let shown = match () {
            () if command.json => LogView::Json { task, attempt, job: log.job.clone(), format, lines },
            () if command.raw && !std::io::stdout().is_terminal() => LogView::Bytes,
            () if command.raw => LogView::Harmless(TerminalSanitizer::default(), None),
            () if format == OutputFormat::Text => {
                LogView::Harmless(TerminalSanitizer::default(), Some(LineGuard::default()))
            }
            () => LogView::Transcript { format, lines },
        };
        Self { log, shown }
    }

    /// Shows what came since the last time.
    fn pass_on(&mut self) -> Result<(), CommandError> {
        loop {
            let bytes = self.log.read_chunk()?;
            if bytes.is_empty() {
                return Ok(());
            }
            self.shown.push(&bytes)?;
        }
    }

    fn end(mut self) -> Result<(), CommandError> {
        self.pass_on()?;
        self.shown.finish()
    }
}

impl LogView<'_> {
    fn push(&mut self, bytes: &[u8]) -> Result<(), CommandError> {
        self.show(|lines, line| lines.push(bytes, line), |shown, emit| shown.push(bytes, emit), bytes, false)
    }

    fn finish(&mut self) -> Result<(), CommandError> {
        self.show(LineSplitter::finish, TerminalSanitizer::finish, b"", true)
    }

    fn show(
        &mut self,
        split: impl FnOnce(&mut LineSplitter, &mut dyn FnMut(OutputLine<'_>)),
        sanitize: impl FnOnce(&mut TerminalSanitizer, &mut dyn FnMut(&[u8])),
        bytes: &[u8],
        is_last: bool,
    ) -> Result<(), CommandError> {
        match self {
            Self::Bytes => say(bytes),
            Self::Harmless(shown, guard) => {
                let mut harmless = Vec::new();
                sanitize(shown, &mut |bytes| harmless.extend_from_slice(bytes));
                let Some(guard) = guard else { return say(&harmless) };
                let mut marked = Vec::new();
                guard.push(&harmless, &mut marked);
                if is_last {
                    guard.finish(&mut marked);
                }
                say(&marked)
            }
            Self::Transcript { format, lines } => {
                let mut text = String::new();
                split(lines, &mut |line| text.extend(transcript_line(*format, line).map(|line| line + "\n")));
                say(text.as_bytes())
            }
            Self::Json { task, attempt, job, format, lines } => {
                let mut done = Ok(());
                split(lines, &mut |line| {
                    if done.is_ok() {
                        done = print_json(&json!({
                            "version": 1, "task": task, "attempt": attempt, "job": job,
                            "line": harmless_line(line.bytes), "shown": transcript_line(*format, line),
                        }));
                    }
                });
                done
            }
        }
    }
}

/// A line as people read it. One that is too long to be read is said to be so.
fn transcript_line(format: OutputFormat, line: OutputLine<'_>) -> Option<String> {
    match line.dropped {
        0 => format.shown(line.bytes),
        more => Some(format!("| a line of {} bytes", line.bytes.len() as u64 + more)),
    }
}

/// A line with nothing in it that moves a cursor.
fn harmless_line(line: &[u8]) -> String {
    let (mut shown, mut harmless) = (TerminalSanitizer::default(), Vec::new());
    shown.push(line.strip_suffix(b"\r").unwrap_or(line), &mut |bytes| harmless.extend_from_slice(bytes));
    shown.finish(&mut |bytes| harmless.extend_from_slice(bytes));
    String::from_utf8_lossy(&harmless).into_owned()
}

/// Somebody who stopped reading is no failure of ours.
fn say(bytes: &[u8]) -> Result<(), CommandError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(CommandError::internal(&error)),
        _ => Ok(()),
    }
}
