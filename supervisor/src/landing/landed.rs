//! That a task landed: `refs/agency/landed/<protocol>/<id>`, written in the transaction that lands it.
//!
//! Whoever comes after a crash asks this reference, and not the branch: a branch may have been moved on,
//! rewritten or reverted by people since.

use serde::Serialize;

use super::error::Error;
use super::lease::Lease;
use super::names::{Oid, RefName, Task};
use super::objects::{ObjectKind, Objects};
use super::record::{self, Fields};
use super::refs;
use super::repository::Repository;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Landed {
    pub epoch: u64,
    pub term: u64,
    pub branch: RefName,
    /// The commit that has the work.
    pub commit: Oid,
    /// The record itself.
    pub object: Oid,
}

/// The landing of a task that was recorded last.
pub fn read(repository: &Repository, task: &Task) -> Result<Option<Landed>, Error> {
    match refs::at(repository, &task.landed())? {
        Some(object) => repository.restoring(|objects| parse(objects, object.clone())).map(Some),
        None => Ok(None),
    }
}

pub(super) fn parse(objects: &mut Objects, object: Oid) -> Result<Landed, Error> {
    let text = record::read(objects, &object)?;
    let unknown = || Error::Record { what: "a landing", object: object.to_string() };
    let fields = Fields::parse("landed", &text).ok_or_else(unknown)?;
    let numbers = fields.number("epoch").zip(fields.number("term"));
    let names = fields.text("branch").zip(fields.text("commit"));
    let ((epoch, term), (branch, commit)) = numbers.zip(names).ok_or_else(unknown)?;
    Ok(Landed { epoch, term, branch: RefName::parse(branch)?, commit: Oid::parse(commit)?, object })
}

/// Writes the record, which says nothing until a reference names it.
pub(super) fn write(
    repository: &Repository,
    lease: &Lease,
    branch: &RefName,
    commit: &Oid,
) -> Result<Oid, Error> {
    repository.write_object(ObjectKind::Blob, text(lease, branch, commit).as_bytes())
}

fn text(lease: &Lease, branch: &RefName, commit: &Oid) -> String {
    record::text(
        "landed",
        &[
            ("task", &lease.task),
            ("epoch", &lease.epoch),
            ("term", &lease.term),
            ("branch", &branch.as_str()),
            ("commit", commit),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_as_it_always_was() {
        let oid = Oid::parse(&"a1".repeat(20)).expect("a name");
        let task = Task::new("kodingx", "T0001").expect("a task");
        let lease = Lease { task, epoch: 3, term: 7, object: oid.clone() };
        let branch = RefName::branch("main").expect("a name");
        assert_eq!(
            text(&lease, &branch, &oid),
            format!(
                "agency landed 1\ntask kodingx:T0001\nepoch 3\nterm 7\nbranch refs/heads/main\ncommit {}\n",
                "a1".repeat(20)
            )
        );
    }
}
