//! Where state lies, and what is said when it can't.

use std::path::PathBuf;

use agency_sandbox::account;
use agency_sandbox::host::Host;
use agency_sandbox::workspace::folder::{Folder, FolderError};
use agency_sandbox::workspace::state::{HOMELESS, State, StateError, StateHome};

use crate::message::{self, Failure, USAGE};

/// The state folder of the user who runs this.
pub(crate) fn home() -> Result<StateHome, Failure> {
    StateHome::find().map_err(|error| unusable(&error))
}

/// The state folder of a repository, or of a folder that is in none.
pub(crate) fn of(folder: &Folder) -> Result<State, Failure> {
    folder.state(&home()?).map_err(|error| refused(&error))
}

/// Where private copies of workspaces are kept while a command works on them. Root's agents are nobody, and get to no
/// home.
pub(crate) fn copies(host: &Host) -> Result<PathBuf, Failure> {
    match host.is_root() {
        true => Ok(HOMELESS.into()),
        false => Ok(home()?.path().to_owned()),
    }
}

/// Only a work tree's owner keeps its state, and with it the locks under which its board is written.
pub(crate) fn check_writable(folder: &Folder) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    if !folder.custody.by_safe_directory {
        return Ok(());
    }
    let owner = folder.root.metadata().map_err(|error| Failure::new(USAGE, &error))?.uid();
    let (root, owner) = (folder.root.display(), account::name_of(owner));
    Err(Failure::usage(format!("{root} belongs to {owner}; other users can only read its board"))
        .with_hint(format!("run it as {owner}, or as root, who becomes {owner}")))
}

/// State once lay in the repository, where anybody who packed it could put something. It is told, and never read.
pub(crate) fn mention_legacy(folder: &Folder) {
    if let Some(path) = folder.legacy_state() {
        let path = path.display();
        message::notice(&format!(
            "{path} was left by an older version or by somebody else; it is not used. Drain with the old version first, then remove it"
        ));
    }
}

/// Why a folder can't be worked on.
pub(crate) fn refused(error: &FolderError) -> Failure {
    with_remedy(Failure::new(USAGE, error), error.remedy())
}

pub(crate) fn unusable(error: &StateError) -> Failure {
    with_remedy(Failure::new(USAGE, error), error.remedy())
}

fn with_remedy(failure: Failure, remedy: Option<String>) -> Failure {
    match remedy {
        Some(remedy) => failure.with_hint(remedy),
        None => failure,
    }
}
