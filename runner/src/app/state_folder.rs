//! Where state lies, and what is said when it can't.

use std::path::PathBuf;

use agency_sandbox::account;
use agency_sandbox::host::HostUser;
use agency_sandbox::workspace::folder::{FolderError, WorkspaceFolder};
use agency_sandbox::workspace::state::{HOMELESS, StateError, StateFolder, StateHome};

use crate::app::error::{CommandError, ErrorKind};

/// The state folder of the user who runs this.
pub(crate) fn home() -> Result<StateHome, CommandError> {
    StateHome::find().map_err(|error| state_error(&error))
}

/// The state folder of a repository, or of a folder that is in none.
pub(crate) fn of_folder(folder: &WorkspaceFolder) -> Result<StateFolder, CommandError> {
    folder.state(&home()?).map_err(|error| folder_error(&error))
}

/// Where private copies of workspaces are kept while a command works on them. Root's agents have no rights on the host,
/// and can't enter a home.
pub(crate) fn copies_folder(host: &HostUser) -> Result<PathBuf, CommandError> {
    match host.is_root() {
        true => Ok(HOMELESS.into()),
        false => Ok(home()?.path().to_owned()),
    }
}

/// Only a work tree's owner keeps its state, and with it the locks under which its board is written.
pub(crate) fn check_writable(folder: &WorkspaceFolder) -> Result<(), CommandError> {
    use std::os::unix::fs::MetadataExt;
    if !folder.custody.by_safe_directory {
        return Ok(());
    }
    let owner = folder.root.metadata().map_err(|error| CommandError::new(ErrorKind::Usage, &error))?.uid();
    let (root, owner) = (folder.root.display(), account::name_of(owner));
    Err(CommandError::usage(format!("{root} belongs to {owner}; other users can only read its board"))
        .with_hint(format!("run it as {owner}, or as root, who becomes {owner}")))
}

/// A sentence about state inside the work tree, which older versions kept there. Such state is not read: the person who
/// packed the repository may have put it there.
pub(crate) fn legacy_state_notice(folder: &WorkspaceFolder) -> Option<String> {
    let path = folder.legacy_state()?;
    let path = path.display();
    Some(format!(
        "{path} was left by an older version or by another person; it is not used. Drain with the old version first, then remove it"
    ))
}

/// Why a folder can't be worked on.
pub(crate) fn folder_error(error: &FolderError) -> CommandError {
    with_remedy(CommandError::new(ErrorKind::Usage, error), error.remedy())
}

pub(crate) fn state_error(error: &StateError) -> CommandError {
    with_remedy(CommandError::new(ErrorKind::Usage, error), error.remedy())
}

fn with_remedy(failure: CommandError, remedy: Option<String>) -> CommandError {
    match remedy {
        Some(remedy) => failure.with_hint(remedy),
        None => failure,
    }
}
