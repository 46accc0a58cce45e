//! `agency status`: the state of the boards, once or for as long as a person watches ([`watch`](super::watch)).

use agency_protocols::board_verbs::StatusFooter;
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::app::board::Caller;
use crate::app::error::{CommandError, without_control_chars};
use crate::app::status::{ActiveAttempt, ShownBoard, StatusAnswer, status};
use crate::cli::board::task_table::format_rows;
use crate::cli::caller::repository;
use crate::cli::exit::findings_exit_code;
use crate::cli::message::warn_findings;
use crate::cli::output::print;
use crate::cli::terminal::table::TableStyle;

/// Show tasks by state, reports and the last verification
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency status --json\n  agency status --watch\n\nExit codes: 0, 10 if something on the board can't be read, 130 when --watch is ended with Ctrl-C."
)]
pub(crate) struct StatusArgs {
    /// Keep showing the status on every change, with the attempts at work
    #[arg(short, long)]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &StatusArgs, who: &Caller) -> Result<u8, CommandError> {
    if command.watch {
        return super::watch::run(command.json, who);
    }
    let answer = status(&repository()?, who, None)?;
    print(&render(&answer, command.json, TableStyle::output()))?;
    if !command.json {
        warn_findings(&answer.findings);
    }
    Ok(findings_exit_code(&answer.findings))
}

/// The status as JSON or for people.
pub(super) fn render(answer: &StatusAnswer, as_json: bool, style: TableStyle) -> String {
    if as_json {
        return format!("{}\n", answer.document);
    }
    let mut text: String = answer.working.iter().map(working_line).collect();
    answer.boards.iter().for_each(|board| text.push_str(&board_text(board, style)));
    text
}

/// Since when, and not for how long: an age would be new each second.
fn working_line(ActiveAttempt { task, agent, attempt, doing, since }: &ActiveAttempt) -> String {
    let since = Timestamp::from_second(*since).unwrap_or_default().to_zoned(TimeZone::system());
    format!("{task}  {agent} is {doing}, attempt {attempt}, since {}\n", since.strftime("%H:%M:%S"))
}

fn board_text(ShownBoard { open, stale, stuck, footer }: &ShownBoard, style: TableStyle) -> String {
    let mut text = format_rows(open, style);
    stale.iter().for_each(|claim| text.push_str(&format!("stale: {claim}\n")));
    let waits = |task: &String| format!("waits: {}\n", without_control_chars(task));
    text.extend(stuck.iter().map(waits));
    let Some(StatusFooter { counts, reports, last_verified }) = footer else { return text };
    let counts: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    text.push_str(&if counts.is_empty() { "no tasks yet".to_owned() } else { counts.join(", ") });
    if let Some(reports) = reports {
        text.push_str(&format!("; {reports} reports"));
    }
    if let Some([task, result, time]) = last_verified {
        text.push_str(&format!("; last verified: {task} {result} ({time})"));
    }
    text.push('\n');
    text
}
