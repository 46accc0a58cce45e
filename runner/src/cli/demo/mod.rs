//! `agency demo`: the whole thing, working on a sample, explained in plain words ([`mod@text`]).

mod text;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;

use crate::app::demo::outcomes::DemoOutcome;
use crate::app::demo::{DemoRepo, DemoRequest, PARALLEL};
use crate::app::error::CommandError;
use crate::cli::exit::{OUT_OF_SCOPE, UNDONE};
use crate::cli::output::{print, print_json};
use crate::cli::prompt::TerminalFrontEnd;
use crate::cli::run::attend;
use crate::cli::telemetry;

/// See it work on a sample repository with four agents
///
/// One agent does its task, one leaves its scope, one fails first and then repairs its work, one hangs. The demo installs
/// nothing and uses no network. The repository stays for you to look at.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  agency demo\n\nExit codes: 0 if everything came as it should, 10 if not, 3 if this host can't hold a sandbox."
)]
pub(crate) struct DemoArgs {
    /// Folder of the sample repository [default: a new temporary folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Run agents and checks in containers of this image, which needs a shell
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &DemoArgs) -> Result<u8, CommandError> {
    let request = DemoRequest { folder: command.folder.clone(), image: command.image.clone() };
    let sample = DemoRepo::make(&request, Arc::new(TerminalFrontEnd))?;
    let told = |words: &str| if command.json { Ok(()) } else { print(words) };
    let isolation = command.image.as_ref().map_or("", |_| " --isolation container");
    told(&text::opening(sample.folder(), &format!("run --parallel {PARALLEL}{isolation}")))?;
    let trace = telemetry::trace_config(|name| std::env::var_os(name))?;
    let code = attend(sample.prepare()?, trace, false)?;
    // It has said why; nothing has happened that could be told.
    if !matches!(code, 0 | UNDONE | OUT_OF_SCOPE) {
        return Ok(code);
    }
    let outcomes = sample.outcomes()?;
    let as_it_should = outcomes.iter().all(DemoOutcome::is_as_it_should);
    if command.json {
        print_json(&json!({
            "version": 1, "folder": sample.folder(), "as_it_should": as_it_should, "tasks": outcomes,
        }))?;
    }
    told(&text::whole(&outcomes, sample.folder()))?;
    Ok(if as_it_should { 0 } else { UNDONE })
}
