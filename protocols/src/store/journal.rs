//! What was decided and is not done yet.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::tree::Tree;
use super::{Change, StoreError};

const NAME: &str = "board-journal.json";
const VERSION: u32 = 1;

/// A commit that did not come to its end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    version: u32,
    /// The work tree it belongs to: several may share one state folder.
    pub(super) root: String,
    pub(super) changes: Vec<Change>,
}

pub(super) fn write(state: &Path, root: &Path, changes: &[Change]) -> Result<(), StoreError> {
    let journal =
        Journal { version: VERSION, root: root.to_string_lossy().into_owned(), changes: changes.to_vec() };
    let text = serde_json::to_vec(&journal)
        .map_err(|error| StoreError::Journal { path: state.join(NAME), source: error.into() })?;
    Ok(Tree::open(state)?.replace(NAME, &text)?)
}

pub(super) fn left(state: &Path) -> Result<Option<Journal>, StoreError> {
    let Some(bytes) = Tree::open(state)?.read(NAME)? else { return Ok(None) };
    let odd = |reason: String| StoreError::OddJournal { path: state.join(NAME), reason };
    let journal: Journal = serde_json::from_slice(&bytes).map_err(|error| odd(error.to_string()))?;
    if journal.version != VERSION {
        return Err(odd(format!("it is of version {}, and this is {VERSION}", journal.version)));
    }
    Ok(Some(journal))
}

pub(super) fn remove(state: &Path) -> Result<(), StoreError> {
    Ok(Tree::open(state)?.remove(NAME)?)
}
