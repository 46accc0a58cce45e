//! `agency demo`: the whole thing, working on a sample, explained in plain words.
//!
//! A repository is made with a board of four tasks ([`sample_repo`]), each for an agent with a character of its own; then the
//! same commands are run that people type, and what became of it is told from what is seen afterwards ([`outcomes`]).

mod outcomes;
mod sample_repo;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::app::error::CommandError;
use crate::app::isolation;
use crate::app::scratch_repo::ScratchRepo;
use crate::cli::exit::{OUT_OF_SCOPE, UNDONE};
use crate::cli::output::{print, print_json};
use outcomes::DemoOutcome;
use sample_repo::TASKS;

/// See it work: a sample repository, four agents, and what becomes of what they do
///
/// One agent does its task, one strays out of its scope, one is wrong at first and mends it, one hangs. Nothing is
/// installed and nothing is reached over the network; the repository stays where it is made, to look around in.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  agency demo\n\nExit codes: 0 if everything came as it should, 10 if not, 3 if this host can't hold a sandbox."
)]
pub(crate) struct DemoArgs {
    /// Where the sample repository is made [default: a new folder for temporary files]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Let the agents work in containers of this image, and the checks too. It needs a shell
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &DemoArgs) -> Result<u8, CommandError> {
    let place = ScratchRepo::new("agency-demo", command.folder.as_deref())?;
    let told = |text: &str| if command.json { Ok(()) } else { print(text) };
    if let Some(image) = &command.image {
        isolation::check_image("--image", image)?;
    }
    sample_repo::make(&place, command.image.as_deref())?;
    let run = match command.image {
        Some(_) => &["run", "--parallel", "4", "--isolation", "container"][..],
        None => &["run", "--parallel", "4"],
    };
    told(&outcomes::opening(&place.folder, run))?;
    let code = place.run_attached(run)?;
    // It has said why; nothing has happened that could be told.
    if !matches!(code, 0 | UNDONE | OUT_OF_SCOPE) {
        return Ok(code);
    }
    let stories =
        TASKS.iter().map(|task| DemoOutcome::of(&place, task)).collect::<Result<Vec<DemoOutcome>, _>>()?;
    let as_it_should = stories.iter().all(DemoOutcome::is_as_it_should);
    if command.json {
        print_json(&json!({
            "version": 1, "folder": place.folder, "as_it_should": as_it_should, "tasks": stories,
        }))?;
    }
    told(&outcomes::whole(&stories, &place.folder))?;
    Ok(if as_it_should { 0 } else { UNDONE })
}
