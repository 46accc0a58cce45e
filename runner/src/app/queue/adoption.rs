//! A repository that was moved, copied or restored gets its queue back.

use agency_sandbox::host::HostUser;
pub(crate) use agency_supervisor::store_identity::AdoptionSource;
use agency_supervisor::store_identity::{self, IdentityError};

use crate::app::approval::{ConfirmationRequest, confirm};
use crate::app::attempt_store::open_repository;
use crate::app::board::RepoContext;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;

/// Takes over the queue that a repository names. A person is asked, unless `is_confirmed`.
pub(crate) fn adopt(here: &RepoContext, is_confirmed: bool) -> Result<AdoptionSource, CommandError> {
    state_folder::check_writable(&here.folder)?;
    let (state, repository) = open_repository(here, &HostUser::observe())?;
    let Some(real) = &here.folder.repository else {
        return Err(CommandError::usage(format!("{} is not a git repository", here.folder.root.display())));
    };
    if !is_confirmed {
        confirm(
            here,
            &ConfirmationRequest {
                act: "adopting a repository",
                without_asking: "agency adopt --yes",
                question: "believe what this repository says about its queue?",
                refused: "nothing was adopted",
            },
        )?;
    }
    store_identity::adopt(&repository, &state_folder::home()?, &state, &real.common).map_err(|error| {
        let kind = match &error {
            IdentityError::InUse { .. } => ErrorKind::Usage,
            IdentityError::Landing(error) if error.is_about_references() => ErrorKind::Usage,
            _ => ErrorKind::Internal,
        };
        CommandError::new(kind, &error)
    })
}
