//! `agency adopt`: a repository that was moved or copied gets its queue back.

use agency_sandbox::host::HostUser;
use agency_supervisor::startup;
use agency_supervisor::store_identity::{self, AdoptionSource, IdentityError};
use clap::Args;
use serde::Serialize;

use crate::app::approval::{ConfirmationRequest, confirm};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;
use crate::cli::message;
use crate::cli::output::print_json;

/// Take over the queue of a repository that was moved, copied or restored
///
/// A repository names the store that its leases and landings belong to. After a move the store is found and moved along.
/// A copy, or a repository whose store is gone, gets a store of its own, which believes what the references below
/// refs/agency say: whoever made them decides what has landed. Adopt only a repository whose origin you know.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency adopt --yes")]
pub(crate) struct AdoptArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct AdoptAnswer {
    version: u32,
    adopted: AdoptionSource,
}

pub(crate) fn run(command: &AdoptArgs) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    state_folder::check_writable(&here.folder)?;
    let state = state_folder::of_folder(&here.folder)?;
    let repository = startup::open_repository(&here.folder, state.path(), &HostUser::observe().home)
        .map_err(super::startup_error)?;
    let Some(real) = &here.folder.repository else {
        return Err(CommandError::usage(format!("{} is not a git repository", here.folder.root.display())));
    };
    if !command.yes {
        confirm(
            &here,
            &ConfirmationRequest {
                act: "adopting a repository",
                without_asking: "agency adopt --yes",
                question: "believe what this repository says about its queue?",
                refused: "nothing was adopted",
            },
        )?;
    }
    let adopted = store_identity::adopt(&repository, &state_folder::home()?, &state, &real.common).map_err(
        |error| {
            let code = match &error {
                IdentityError::InUse { .. } => ErrorKind::Usage,
                IdentityError::Landing(error) if error.is_about_references() => ErrorKind::Usage,
                _ => ErrorKind::Internal,
            };
            CommandError::new(code, &error)
        },
    )?;
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
