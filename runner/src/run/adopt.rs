//! `agency adopt`: a repository that was moved or copied gets its queue back.

use agency_sandbox::host::Host;
use agency_supervisor::charge;
use agency_supervisor::identity::{self, Adopted, IdentityError};
use clap::Args;
use serde::Serialize;

use crate::board::{Here, ask_person, print_json};
use crate::message::{self, Failure, INTERNAL, USAGE};
use crate::state;

/// Take over the queue of a repository that was moved, copied or restored
///
/// A repository names the store that its leases and landings belong to. After a move the store is found and moved along.
/// A copy, or a repository whose store is gone, gets a store of its own, which believes what the references below
/// refs/agency say: whoever made them decides what has landed. Adopt only a repository whose origin you know.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency adopt --yes")]
pub(crate) struct Adopt {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Document {
    version: u32,
    adopted: Adopted,
}

pub(crate) fn run(command: &Adopt) -> Result<u8, Failure> {
    let here = Here::find()?;
    state::check_writable(&here.folder)?;
    let state = state::of(&here.folder)?;
    let repository =
        charge::open_repository(&here.folder, state.path(), &Host::observe().home).map_err(super::refused)?;
    let Some(real) = &here.folder.repository else {
        return Err(Failure::usage(format!("{} is not a git repository", here.folder.root.display())));
    };
    if !command.yes {
        ask_person(
            "adopting a repository",
            "agency adopt --yes",
            "believe what this repository says about its queue?",
            "nothing was adopted",
        )?;
    }
    let adopted = identity::adopt(&repository, &state::home()?, &state, &real.common).map_err(|error| {
        let code = match &error {
            IdentityError::InUse { .. } => USAGE,
            IdentityError::Landing(error) if error.is_about_references() => USAGE,
            _ => INTERNAL,
        };
        Failure::new(code, &error)
    })?;
    if command.json {
        print_json(&Document { version: 1, adopted })?;
    } else {
        message::notice(match adopted {
            Adopted::Nothing => "this repository has its store already",
            Adopted::Store => "the store was found and moved along; `agency run` goes on where it was",
            Adopted::References => {
                "a new store believes the leases and landings that this repository has in git"
            }
        });
    }
    Ok(0)
}
