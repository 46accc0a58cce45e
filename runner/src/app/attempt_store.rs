//! The store of attempts of a repository: how it is opened, that it belongs to the repository, and what is said of a
//! repository or a store that no run can use.

use std::path::Path;

use agency_landing::repository::LandingRepository;
use agency_sandbox::host::HostUser;
use agency_sandbox::workspace::state::StateFolder;
use agency_supervisor::dispatch::RunError;
use agency_supervisor::startup::{self, StartupError};
use agency_supervisor::store::AttemptStoreError;
use agency_supervisor::store::sqlite::{SqliteStore, open_store, store_path};
use agency_supervisor::store_identity::{self, IdentityError, SetAsideRefs};

use crate::app::board::RepoContext;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;

/// What helps against a store that is damaged.
const REMEDY: &str =
    "`agency store rebuild` makes a new one from git and the records, and keeps the damaged one";

/// Asks the store something, or changes something in it. A repository that has none gets one.
pub(crate) fn with_store<T>(
    here: &RepoContext,
    verb: impl AsyncFnOnce(&SqliteStore) -> Result<T, AttemptStoreError>,
) -> Result<T, CommandError> {
    in_folder(&state_folder::of_folder(&here.folder)?, verb)
}

/// The same, for whoever only looks: where there is no store, none is made.
pub(crate) fn with_existing_store<T>(
    here: &RepoContext,
    verb: impl AsyncFnOnce(&SqliteStore) -> Result<T, AttemptStoreError>,
) -> Result<Option<T>, CommandError> {
    let state = state_folder::of_folder(&here.folder)?;
    match store_path(state.path()).exists() {
        true => in_folder(&state, verb).map(Some),
        false => Ok(None),
    }
}

fn in_folder<T>(
    state: &StateFolder,
    verb: impl AsyncFnOnce(&SqliteStore) -> Result<T, AttemptStoreError>,
) -> Result<T, CommandError> {
    let done = crate::app::runtime::new()?.block_on(async {
        let store = open_store(state.path()).await?;
        verb(&store).await
    });
    done.map_err(|error| store_error(&error))
}

/// The state folder of a repository, and the repository as work lands in it.
pub(crate) fn open_repository(
    here: &RepoContext,
    host: &HostUser,
) -> Result<(StateFolder, LandingRepository), CommandError> {
    let state = state_folder::of_folder(&here.folder)?;
    let repository = startup::open_repository(&here.folder, state.path(), &host.home);
    Ok((state, repository.map_err(startup_error)?))
}

/// What the repository says about leases and landings is believed only of the store in our state folder.
pub(crate) fn confirm_store(
    here: &RepoContext,
    repository: &LandingRepository,
    state: &Path,
) -> Result<(), CommandError> {
    let Some(real) = &here.folder.repository else { return Ok(()) };
    let confirmed = store_identity::confirm(repository, state, &real.common);
    if let Some(SetAsideRefs { count, to }) = confirmed.map_err(StartupError::from).map_err(startup_error)? {
        here.notice(&format!(
            "{count} references below refs/agency belong to no store of yours; they are not used, and lie below {to} now"
        ));
    }
    Ok(())
}

/// What is said of a store that can't be used.
pub(crate) fn store_error(error: &AttemptStoreError) -> CommandError {
    match error {
        AttemptStoreError::Damaged { .. } => CommandError::new(ErrorKind::Usage, error).with_hint(REMEDY),
        error => CommandError::internal(error),
    }
}

/// What is said of a repository in which no run can begin.
pub(crate) fn startup_error(error: StartupError) -> CommandError {
    let kind = if error.is_about_the_repository() { ErrorKind::Usage } else { ErrorKind::Internal };
    let failure = CommandError::new(kind, &error);
    match error {
        StartupError::NoRepository { .. } => failure.with_hint("`git init`, and make a first commit"),
        StartupError::Detached => failure.with_hint("switch to a branch first: `git switch NAME`"),
        StartupError::Unborn { .. } => failure.with_hint("make a first commit"),
        StartupError::Busy { .. } => failure.with_hint("end it or abort it first"),
        StartupError::Identity(IdentityError::Landing(_)) => failure.with_hint(
            "`git for-each-ref refs/agency` shows what is there; `git update-ref -d NAME` removes what is odd",
        ),
        StartupError::Identity(IdentityError::OtherStore { .. }) => {
            failure.with_hint("if you know where it comes from, `agency adopt` takes its queue over")
        }
        StartupError::StateGone { .. } => {
            failure.with_hint("`agency adopt` gives the repository a new one; git remembers what landed")
        }
        StartupError::Store(AttemptStoreError::Damaged { .. })
        | StartupError::Run(RunError::Store(AttemptStoreError::Damaged { .. })) => failure.with_hint(REMEDY),
        _ => failure,
    }
}
