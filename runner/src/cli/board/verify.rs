//! `agency verify`: is it done?

#![allow(clippy::disallowed_methods, reason = "opens a log of ours")]

use std::path::{Path, PathBuf};

use agency_profiles::junit;
use agency_profiles::proof::Proof;
use agency_profiles::prove::ProofEvent;
use agency_protocols::board_verbs::RiskNote;
use agency_protocols::names::TaskId;
use agency_sandbox::policy::IsolationLevel;
use clap::Args;

use crate::app::board::{Caller, task_id};
use crate::app::error::CommandError;
use crate::app::verify::{VerifyAnswer, VerifyRequest, WantedOverride, verify};
use crate::cli::argument_file::write_argument_file;
use crate::cli::caller::{ConfigArgs, IsolationArg, repository_with_task};
use crate::cli::exit::UNDONE;
use crate::cli::message;
use crate::cli::output::print_json;

/// Run a task's Definition of Done and record the result
///
/// Each command runs in a fresh sandbox on the current state of the folder. Commands can write anything there; their
/// changes are discarded. The network is off unless a trusted profile asks for it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency verify T0007\n  agency verify T0007 --override --reason 'Hotfix INC-1234' --followup T0008 --as human"
)]
pub(crate) struct VerifyArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id, required_unless_present = "task", conflicts_with = "task")]
    id: Option<TaskId>,
    /// The same, as a flag
    #[arg(long, value_name = "ID", value_parser = task_id)]
    task: Option<TaskId>,
    /// Print the risks that the task is linked to. They are checked in any case
    #[arg(long)]
    check_risks: bool,
    /// Override: a person decides that the task may be DONE although its verification failed
    #[arg(long = "override", requires_all = ["reason", "followup"], help_heading = "Override")]
    overrides: bool,
    /// The reason
    #[arg(long, value_name = "TEXT", requires = "overrides", help_heading = "Override")]
    reason: Option<String>,
    /// The follow-up task; a title creates one
    #[arg(long, value_name = "ID|TITLE", requires = "overrides", help_heading = "Override")]
    followup: Option<String>,
    /// The person who decides [default: --as human:NAME, or git's user.email]
    #[arg(long, value_name = "NAME", requires = "overrides", help_heading = "Override")]
    approver: Option<String>,
    /// Stop at the first command that fails
    #[arg(long)]
    fail_fast: bool,
    /// Isolation level of the commands [default: process]
    #[arg(long, value_enum)]
    isolation: Option<IsolationArg>,
    /// Also write a JUnit report
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    operator: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &VerifyArgs, who: &Caller) -> Result<u8, CommandError> {
    let wanted_override = match (command.overrides, &command.reason, &command.followup) {
        (true, Some(reason), Some(followup)) => Some(WantedOverride {
            reason: reason.clone(),
            followup: followup.clone(),
            approver: command.approver.clone(),
        }),
        _ => None,
    };
    let typed = command.id.as_ref().or(command.task.as_ref());
    let typed = typed.ok_or_else(|| CommandError::usage("say which task: `agency verify ID`"))?;
    let (here, task) = repository_with_task(who, typed)?;
    let request = VerifyRequest {
        task,
        checks_risks: command.check_risks,
        wanted_override,
        fail_fast: command.fail_fast,
        isolation: command.isolation.map(IsolationLevel::from),
        options: command.operator.options(),
    };
    let write_junit = |proof: &Proof| match &command.junit {
        Some(file) => write_argument_file(file, &junit::render(proof)),
        None => Ok(()),
    };
    let answer = verify(&here, who, &request, &mut progress, write_junit)?;
    answer.risks.iter().for_each(print_risk);
    print_answer(command, &answer)?;
    Ok(if answer.kept.is_enough { 0 } else { UNDONE })
}

fn print_answer(command: &VerifyArgs, answer: &VerifyAnswer) -> Result<(), CommandError> {
    if command.json {
        return print_json(answer);
    }
    let kept = &answer.kept;
    message::notices(kept.blocking_reason.clone());
    message::notice(&format!("{}: {}, see {}", kept.id, kept.result, kept.artifact));
    message::notices(kept.override_note.clone());
    Ok(())
}

fn print_risk(RiskNote { id, known, blocks }: &RiskNote) {
    message::notice(&match blocks {
        true => format!("⚠ risk {id} ({known}) is linked: it is in the way of DONE"),
        false => format!("✓ risk {id} ({known}): ok"),
    });
}

fn progress(event: ProofEvent<'_>) {
    match event {
        ProofEvent::Started { index, total, cmd, .. } => {
            message::notice(&format!("[{}/{total}] {cmd}", index + 1));
        }
        ProofEvent::Ended { index, total, command } => {
            let seconds = command.duration_ms as f64 / 1000.0;
            let mark = if command.passed() { "ok" } else { "FAILED" };
            message::notice(&format!("[{}/{total}] {mark}: {} ({seconds:.1} s)", index + 1, command.ended));
            if let (false, Some(log)) = (command.passed(), &command.log) {
                tail(log);
            }
        }
    }
}

/// How much of a failed command's output is shown.
const LINES: usize = 20;

fn tail(log: &Path) {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(16 << 10)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        message::notice(&format!("  | {line}"));
    }
    message::notice(&format!("  all of it: {}", log.display()));
}
