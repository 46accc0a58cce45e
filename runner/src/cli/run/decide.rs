//! `agency decide`: what an auditor left to a person.

use agency_protocols::names::TaskId;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::app::board::{Caller, task_id};
use crate::app::error::{CommandError, without_control_chars};
use crate::app::queue::decisions::{DecisionRequest, OpenDecision, decide, open_decisions};
use crate::cli::message;
use crate::cli::output::{print, print_json};

/// Decide about work that an auditor left to a person; without a task, list open decisions
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency decide\n  agency decide T0007 --attempt 1 --answer pass --reason \"The rounding is meant so\""
)]
pub(crate) struct DecideArgs {
    /// The task
    #[arg(value_name = "ID", value_parser = task_id, requires = "answer")]
    task: Option<TaskId>,
    /// The attempt, as the list shows it
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,
    /// `pass` sends the work to its checks, `fail` back to its builder
    #[arg(long, value_enum, requires_all = ["task", "attempt", "reason"])]
    answer: Option<DecisionArg>,
    /// The reason; a builder that gets its work back is told
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The person who decides [default: --as human:NAME, or git's user.email]
    #[arg(long, value_name = "NAME")]
    approver: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DecisionArg {
    Pass,
    Fail,
}

pub(crate) fn run(command: &DecideArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let (Some(task), Some(attempt), Some(word), Some(reason)) =
        (&command.task, command.attempt, command.answer, &command.reason)
    else {
        return list(&open_decisions(&here)?, command.json);
    };
    let task = here.full_id(who, task)?;
    let request = DecisionRequest {
        task: task.clone(),
        attempt,
        pass: word == DecisionArg::Pass,
        reason: reason.clone(),
        approver: command.approver.clone(),
    };
    let answer = decide(&here, who, &request)?;
    match command.json {
        true => print_json(&json!({ "version": 1, "task": task, "attempt": attempt, "answer": answer }))?,
        false => message::notice(&format!("{task}: an `agency run` goes on from here")),
    }
    Ok(0)
}

fn list(waiting: &[OpenDecision], as_json: bool) -> Result<u8, CommandError> {
    if as_json {
        let waiting: Vec<_> = waiting
            .iter()
            .map(|OpenDecision { attempt, why }| {
                json!({ "task": attempt.task.id, "attempt": attempt.epoch, "why": why })
            })
            .collect();
        print_json(&json!({ "version": 1, "waiting": waiting }))?;
        return Ok(0);
    }
    if waiting.is_empty() {
        message::notice("nothing is left to you");
    }
    let line = |OpenDecision { attempt, why }: &OpenDecision| {
        let (title, why) = (without_control_chars(&attempt.title), without_control_chars(why));
        format!("{} --attempt {}  {title}: {why}\n", attempt.task.id, attempt.epoch)
    };
    print(&waiting.iter().map(line).collect::<String>())?;
    Ok(0)
}
