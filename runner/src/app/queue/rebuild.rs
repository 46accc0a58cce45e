//! A damaged store is made anew, from git and the records of attempts.

use agency_sandbox::host::HostUser;
pub(crate) use agency_supervisor::rebuild::RebuildSummary;
use agency_supervisor::rebuild::{self, RebuildError};

use crate::app::approval::{ConfirmationRequest, confirm};
use crate::app::attempt_store::{confirm_store, open_repository, store_error};
use crate::app::board::RepoContext;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;

/// Makes the store anew; `None` where the store is whole. A person is asked, unless `is_confirmed`.
pub(crate) fn rebuild_store(
    here: &RepoContext,
    is_confirmed: bool,
) -> Result<Option<RebuildSummary>, CommandError> {
    state_folder::check_writable(&here.folder)?;
    let (state, repository) = open_repository(here, &HostUser::observe())?;
    // References of another store say nothing about this one.
    confirm_store(here, &repository, state.path())?;
    if !is_confirmed {
        confirm(
            here,
            &ConfirmationRequest {
                act: "rebuilding a store",
                without_asking: "agency store rebuild --yes",
                question: "make the store anew from git and the records?",
                refused: "nothing was rebuilt",
            },
        )?;
    }
    crate::app::runtime::new()?.block_on(rebuild::rebuild(&repository, state.path())).map_err(rebuild_error)
}

fn rebuild_error(error: RebuildError) -> CommandError {
    match error {
        RebuildError::InUse { .. } => {
            CommandError::new(ErrorKind::Usage, &error).with_hint("end it first: `agency drain`")
        }
        RebuildError::AtWork { .. } => CommandError::new(ErrorKind::Usage, &error)
            .with_hint("it ends by itself when its lease does; try again then"),
        RebuildError::Store(error) => store_error(&error),
        error => CommandError::internal(&error),
    }
}
