//! `agency summary`: the morning view.

use clap::Args;

use super::{on_one_line, usage};
use crate::app::board::Caller;
use crate::app::error::{CommandError, without_control_chars};
use crate::app::history::summary::{SummaryAnswer, TaskFacts, summary};
use crate::app::units;
use crate::app::wording::short_commit;
use crate::cli::caller::repository;
use crate::cli::message::warn_findings;
use crate::cli::output::{print, print_json};

/// Show what landed, what failed and what needs you
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  agency summary\n  agency summary --since 8h --json")]
pub(crate) struct SummaryArgs {
    /// How far back
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = units::duration)]
    since: std::time::Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &SummaryArgs, who: &Caller) -> Result<u8, CommandError> {
    let now = jiff::Timestamp::now().as_second();
    let since = now - i64::try_from(command.since.as_secs()).unwrap_or(i64::MAX);
    let answer = summary(&repository()?, who, since.max(0))?;
    if command.json {
        print_json(&answer)?;
        return Ok(0);
    }
    warn_findings(&answer.findings);
    print(&without_control_chars(&text(&answer)))?;
    Ok(0)
}

/// The page, as people read it.
fn text(answer: &SummaryAnswer) -> String {
    let mut text = format!("since {}\n", units::local_time(answer.since));
    let mut section = |name: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text.push_str(&format!("\n{name} ({})\n", lines.len()));
            lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
    };
    section("landed", answer.landed.iter().map(landed).collect());
    section(
        "failed",
        answer.failed.iter().map(|one| titled(one, &on_one_line(&one.last.sentence))).collect(),
    );
    let needs = answer.needs_you.iter().map(|one| {
        let command = one.command.as_ref().map_or_else(String::new, |command| format!("\n      {command}"));
        format!("{}  {}{command}", one.task, on_one_line(&one.why))
    });
    section("needs you", needs.collect());
    section("running", answer.running.iter().map(|one| titled(one, &one.last.sentence)).collect());
    section(
        "waiting",
        answer.waiting.iter().map(|held| format!("{}  {}", held.task, on_one_line(&held.why))).collect(),
    );
    if !answer.ready.is_empty() {
        let count = answer.ready.len();
        text.push_str(&format!("\nready ({count}): `agency run` starts what can start\n"));
    }
    if answer.totals.attempts == 0 {
        text.push_str("\nno attempt was made\n");
        return text;
    }
    text.push_str(&format!("\n{} attempts: {}\n", answer.totals.attempts, usage(&answer.totals.used)));
    if answer.agents.len() > 1 {
        for (agent, used) in &answer.agents {
            text.push_str(&format!("  {agent}: {} attempts, {}\n", used.attempts, usage(&used.used)));
        }
    }
    text
}

fn titled(one: &TaskFacts, what: &str) -> String {
    format!("{}  {} ({})\n      {what}", one.task, on_one_line(&one.title), one.last.agent)
}

fn landed(one: &TaskFacts) -> String {
    let files = match one.last.files.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let commit = one.last.commit.as_deref().map(short_commit).map(str::to_owned);
    let facts = [commit, Some(files), one.checks()].into_iter().flatten().collect::<Vec<_>>().join(", ");
    format!("{}  {} ({}): {facts}", one.task, on_one_line(&one.title), one.last.agent)
}
