//! `agency agents test`: one tiny task, done for real in a repository that is thrown away.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::root;
use crate::app::agent_trial::{TrialAnswer, TrialRequest, try_agent};
use crate::app::error::CommandError;
use crate::app::units;
use crate::cli::caller::ConfigArgs;
use crate::cli::exit::UNDONE;
use crate::cli::message;
use crate::cli::output::print_json;
use crate::cli::run::signals::interrupts;

/// Let an agent do a tiny task in a temporary repository
///
/// The agent is started as for any task: in a sandbox, with only its credentials and its hosts. The task takes a model
/// a few seconds.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency agents test claude-code")]
pub(super) struct TestAgentArgs {
    /// The agent
    name: String,
    /// Time limit
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = units::duration)]
    timeout: Duration,
    #[command(flatten)]
    operator: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(test: &TestAgentArgs) -> Result<u8, CommandError> {
    let configuration = test.operator.load(&root()?)?;
    let request = TrialRequest { agent: test.name.clone(), timeout: test.timeout };
    let TrialAnswer { why_not, output, usage } = try_agent(&configuration, &request, interrupts)?;
    let name = &test.name;
    match &why_not {
        why if test.json => print_json(
            &json!({ "version": 1, "agent": name, "works": why.is_none(), "why": why, "usage": usage, "output": output }),
        )?,
        Some(why) => {
            message::notice(&format!("`{name}` does not work here: {why}"));
            if let Some(output) = &output {
                message::notice(&format!("its output is in {}", output.display()));
            }
        }
        None => {
            let used = usage.map(|usage| format!(" It used {} tokens.", usage.tokens)).unwrap_or_default();
            message::notice(&format!("`{name}` works: the task was done, verified and landed.{used}"));
        }
    }
    Ok(if why_not.is_none() { 0 } else { UNDONE })
}
