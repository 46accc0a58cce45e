//! What a task's landed commit is, and which files it changed.

use super::error::Error;
use super::landed_record::{self, LandedRecord};
use super::names::TaskName;
use super::repository::LandingRepository;
use super::tree_diff;

/// The landed commit of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LandedWork {
    pub landed: LandedRecord,
    /// The changed files, sorted; none if the commit is gone.
    pub files: Vec<String>,
}

/// Reads the last landing of a task.
pub fn read(repository: &LandingRepository, task: &TaskName) -> Result<Option<LandedWork>, Error> {
    let Some(landed) = landed_record::read(repository, task)? else { return Ok(None) };
    let parents = repository.ask(|objects| objects.parents(&landed.commit));
    let changed = match parents.as_deref() {
        Ok([first, ..]) => tree_diff::between(repository, first, &landed.commit).unwrap_or_default(),
        // A person may have removed the commit; the record says all the same that it landed.
        Ok([]) | Err(_) => Vec::new(),
    };
    let files = changed.iter().map(|one| one.path.to_string()).collect();
    Ok(Some(LandedWork { landed, files }))
}
