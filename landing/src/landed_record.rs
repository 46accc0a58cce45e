//! The record that a task landed: `refs/agency/landed/<protocol>/<id>`, written in the transaction that lands it.
//!
//! After a crash this reference decides whether a task landed, and not the branch: people may have moved, rewritten or
//! reverted the branch since.

pub use super::landed_format::LandedRecord;

pub(super) use super::landed_format::parse;

use super::error::Error;
use super::landed_format::text;
use super::names::{Oid, RefName, TaskName};
use super::objects::ObjectKind;
use super::refs;
use super::repository::LandingRepository;
use super::spare_objects;

/// Reads the last recorded landing of a task.
pub fn read(repository: &LandingRepository, task: &TaskName) -> Result<Option<LandedRecord>, Error> {
    match refs::at(repository, &task.landed())? {
        Some(object) => {
            spare_objects::restoring(repository, |objects| parse(objects, object.clone())).map(Some)
        }
        None => Ok(None),
    }
}

/// Writes the record of a landing by the owner of an attempt (its epoch and term). It counts for nothing until a reference
/// names it.
pub(super) fn write(
    repository: &LandingRepository,
    task: &TaskName,
    owner: (u64, u64),
    branch: &RefName,
    commit: &Oid,
) -> Result<Oid, Error> {
    repository.write_object(ObjectKind::Blob, text(task, owner, branch, commit).as_bytes())
}
