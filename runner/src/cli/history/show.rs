//! `agency show`: one task on one page.

use agency_protocols::names::TaskId;
use clap::Args;
use serde_json::Value;

use super::{on_one_line, usage};
use crate::app::board::{Caller, task_id};
use crate::app::error::{CommandError, without_control_chars};
use crate::app::history::task_page::{ShowAnswer, TimelineEntry, show};
use crate::app::history::{AttemptFacts, AuditFacts, CheckFacts};
use crate::app::units::local_time;
use crate::cli::caller::repository_with_task;
use crate::cli::output::{print, print_json};

/// As many files and refusals of an attempt are listed.
const LISTED: usize = 10;

/// Show one task: its attempts, checks, audits, sandbox and cost
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  agency show T0007\n  agency show T0007 --json")]
pub(crate) struct ShowArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id)]
    id: TaskId,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &ShowArgs, who: &Caller) -> Result<u8, CommandError> {
    let (here, id) = repository_with_task(who, &command.id)?;
    let answer = show(&here, who, &id)?;
    if command.json {
        print_json(&answer)?;
    } else {
        print(&without_control_chars(&text(&answer)))?;
    }
    Ok(0)
}

fn text(answer: &ShowAnswer) -> String {
    let task = &answer.task;
    let mut text = format!("{}  {}\n", task.id, on_one_line(&task.title));
    text.push_str(&format!("  {}, for {}, priority {}\n", task.state, task.owner, task.priority));
    text.push_str(&format!("  {}\n", answer.place));
    if answer.attempts.is_empty() {
        text.push_str("\nno attempt was made yet; `agency run` makes one\n");
        return text;
    }
    for attempt in &answer.attempts {
        text.push_str(&of_attempt(attempt));
        let entries = answer.timeline.iter().filter(|entry| entry.attempt == attempt.attempt);
        text.push_str(&timeline(entries));
    }
    text.push_str(&format!("\nused: {}\n", usage(&answer.used)));
    text
}

fn of_attempt(attempt: &AttemptFacts) -> String {
    let AttemptFacts { attempt: number, agent, .. } = attempt;
    let mut text = format!("\nattempt {number} by {agent}, {}\n", local_time(attempt.began));
    let mut line = |line: &str| text.push_str(&format!("  {line}\n"));
    line(&on_one_line(&attempt.sentence));
    listed("changed", &attempt.files, &mut line);
    listed("refused", &attempt.violations, &mut line);
    for check in &attempt.checks {
        line(&of_check(check));
    }
    for audit in &attempt.audits {
        of_audit(audit).iter().for_each(|said| line(said));
    }
    if let Some(held) = attestation(&attempt.attestation) {
        line(&held);
    }
    line(&usage(&attempt.used));
    text
}

fn listed(name: &str, paths: &[String], line: &mut impl FnMut(&str)) {
    for path in paths.iter().take(LISTED) {
        line(&format!("{name}: {}", on_one_line(path)));
    }
    if paths.len() > LISTED {
        line(&format!("{name}: {} more", paths.len() - LISTED));
    }
}

fn of_check(check: &CheckFacts) -> String {
    let seconds = check.duration_ms as f64 / 1000.0;
    let how = match check.exit_code {
        Some(0) => format!("passed ({seconds:.1} s)"),
        Some(code) => format!("exit code {code} ({seconds:.1} s)"),
        None => "not run".to_owned(),
    };
    let log = check.log.as_deref().filter(|_| check.exit_code != Some(0));
    let log = log.map_or_else(String::new, |log| format!(", log: {log}"));
    format!("check `{}`: {how}{log}", on_one_line(&check.command))
}

fn of_audit(AuditFacts { auditor, verdict }: &AuditFacts) -> Vec<String> {
    let Some(verdict) = verdict else { return vec![format!("audit by {auditor}: no verdict")] };
    let mut lines = vec![format!("audit by {auditor}: {}", verdict.ruling)];
    lines.extend(verdict.findings.iter().map(|finding| format!("  {}", on_one_line(&finding.to_string()))));
    lines
}

/// What the sandbox held, in words: what was asked for and not enforced is named.
fn attestation(document: &Value) -> Option<String> {
    let level = document["level"].as_str()?;
    let controls = document["controls"].as_array()?;
    let asked: Vec<&Value> = controls.iter().filter(|one| one["requested"] == true).collect();
    let not_held = asked.iter().filter(|one| one["enforced"] != "enforced");
    let named: Vec<String> = not_held
        .map(|one| {
            let word = |key: &str| one[key].as_str().unwrap_or("?").to_owned();
            format!("{} is {}", word("control"), word("enforced"))
        })
        .collect();
    Some(match named.is_empty() {
        true => format!("sandbox `{level}`: all {} controls enforced", asked.len()),
        false => {
            let held = asked.len() - named.len();
            format!("sandbox `{level}`: {held} of {} controls enforced; {}", asked.len(), named.join(", "))
        }
    })
}

fn timeline<'a>(entries: impl Iterator<Item = &'a TimelineEntry>) -> String {
    let entry = |entry: &TimelineEntry| {
        let time = local_time(entry.at);
        let time = time.split_once(' ').map_or(time.as_str(), |(_, time)| time);
        let note = entry.note.as_deref().map_or_else(String::new, |note| format!(": {}", on_one_line(note)));
        format!("    {time}  {}{note}\n", entry.what)
    };
    entries.map(entry).collect()
}
