//! `agency adopt`: a repository that was moved or copied gets its queue back.

use clap::Args;
use serde::Serialize;

use crate::app::error::CommandError;
use crate::app::queue::adoption::{self, AdoptionSource};
use crate::cli::message;
use crate::cli::output::print_json;

/// Take over the queue of a repository that was moved, copied or restored
///
/// A repository names the store that its leases and landings belong to. After a move, the store is found and moved along.
/// A copy, or a repository whose store is gone, gets a new store that believes the references below refs/agency: the
/// person who made them decides what has landed. Adopt only a repository whose origin you know.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency adopt --yes")]
pub(crate) struct AdoptArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct AdoptAnswer {
    version: u32,
    adopted: AdoptionSource,
}

pub(crate) fn run(command: &AdoptArgs) -> Result<u8, CommandError> {
    let adopted = adoption::adopt(&crate::cli::caller::repository()?, command.yes)?;
    if command.json {
        print_json(&AdoptAnswer { version: 1, adopted })?;
    } else {
        message::notice(match adopted {
            AdoptionSource::Nothing => "this repository has its store already",
            AdoptionSource::Store => "the store was found and moved along; `agency run` goes on where it was",
            AdoptionSource::References => {
                "a new store believes the leases and landings that this repository has in git"
            }
        });
    }
    Ok(0)
}
