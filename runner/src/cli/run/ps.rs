//! `agency ps`: what is being worked on.

use agency_supervisor::attempt::{Attempt, Phase};
use clap::Args;
use serde::Serialize;

use crate::app::error::{CommandError, without_control_chars};
use crate::app::queue::{self, AttemptFilter};
use crate::app::wording::outcome_text;
use crate::cli::message;
use crate::cli::output::{print, print_json};
use crate::cli::terminal::colour::Colour;
use crate::cli::terminal::table::{TableStyle, state_colour};

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
    attempts: Vec<PsAttempt<'a>>,
}

/// An attempt, and what follows from what is recorded of it.
#[derive(Debug, Serialize)]
struct PsAttempt<'a> {
    #[serde(flatten)]
    attempt: &'a Attempt,
    /// How long it has taken so far, or took: to the second.
    elapsed_ms: i64,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
}

impl<'a> PsAttempt<'a> {
    fn of(attempt: &'a Attempt, now: i64) -> Self {
        let until = if attempt.phase.is_over() { attempt.recorded_at } else { now };
        let seconds = until.saturating_sub(attempt.claimed_at).max(0);
        Self { attempt, elapsed_ms: seconds.saturating_mul(1000), outcome: outcome_text(&attempt.phase) }
    }

    fn row(&self, style: TableStyle) -> String {
        let Attempt { task, epoch, agent, phase, title, .. } = self.attempt;
        let (id, phase, seconds) = (&task.id, phase.name(), self.elapsed_ms / 1000);
        let what = match &self.outcome {
            Some(outcome) => format!("{title}: {outcome}"),
            None => title.clone(),
        };
        let what = without_control_chars(&what);
        let ending = match &self.attempt.phase {
            Phase::Over(ending) => ending.name(),
            _ => phase,
        };
        style.line([
            (format!("{id:<10} "), Some(Colour::Bold)),
            (format!("{epoch:>2}  {agent:<14} "), None),
            (format!("{phase:<8} "), state_colour(ending)),
            (format!("{seconds:>6} s  {what}"), None),
        ]) + "\n"
    }
}

pub(crate) fn run(command: &PsArgs) -> Result<u8, CommandError> {
    let filter = if command.all { AttemptFilter::Latest } else { AttemptFilter::Open };
    let attempts = queue::attempts(&crate::cli::caller::repository()?, filter)?;
    let now = jiff::Timestamp::now().as_second();
    let attempts: Vec<PsAttempt<'_>> = attempts.iter().map(|attempt| PsAttempt::of(attempt, now)).collect();
    if command.json {
        print_json(&PsAnswer { version: 1, attempts })?;
        return Ok(0);
    }
    if attempts.is_empty() {
        message::notice("nothing is being worked on");
        return Ok(0);
    }
    let style = TableStyle::output();
    print(&attempts.iter().map(|attempt| attempt.row(style)).collect::<String>())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(phase: &str) -> Attempt {
        let text = format!(
            r#"{{"task":{{"protocol":"kodingx","id":"T0001"}},"epoch":2,"title":"Fix\u001b it","agent":"codex","phase":{phase},"held":null,"cancel":false,"claimed_at":100,"recorded_at":112}}"#
        );
        serde_json::from_str(&text).expect("an attempt")
    }

    /// An attempt that is over took as long as it took, however long ago that was.
    #[test]
    fn an_ended_attempt_says_how_long_it_took_and_how_it_ended() {
        for (phase, seconds, what) in [
            (r#"{"phase":"started"}"#, 900, "Fix\u{fffd} it"),
            (
                r#"{"phase":"over","ending":"done","commit":"467e23212be259e548ff958fd5f6d70ba919d108"}"#,
                12,
                "Fix\u{fffd} it: landed as 467e23212be2",
            ),
            (
                r#"{"phase":"over","ending":"failed","failure":{"kind":"exit","reason":"exit code 3\nx"}}"#,
                12,
                "Fix\u{fffd} it: failed: exit code 3 x",
            ),
            (r#"{"phase":"over","ending":"lost","reason":"killed"}"#, 12, "Fix\u{fffd} it: lost: killed"),
            (r#"{"phase":"over","ending":"canceled"}"#, 12, "Fix\u{fffd} it: canceled"),
        ] {
            let attempt = attempt(phase);
            let row = PsAttempt::of(&attempt, 1000).row(TableStyle::PLAIN);
            assert!(row.ends_with(&format!(" {seconds} s  {what}\n")), "{row}");
        }
    }
}
