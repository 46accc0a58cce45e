//! Leases in git: which attempt and owner may land a task.
//!
//! `refs/agency/lease/<protocol>/<id>` names a record of task, epoch and term. A claim moves it from the value that the
//! claimer saw to the claimer's own record. A transaction that lands verifies the reference, and git holds it locked
//! meanwhile. So an owner that was stopped for an hour and woken up lands nothing, although the branch has not moved:
//! the branch's own value is no fence.
//!
//! A released claim stays as a record of its owner, so that the same owner can't claim again when it wakes up late.
//! Long after the task has landed, the lease is removed ([`super::settled_refs`]): then the record of the landing,
//! which stays for good, says the same. So where there is no lease, a claim reads that record, and moves the lease only
//! if the record is still the one that it read.

use super::error::Error;
use super::landed_record::{self, LandedRecord};
use super::names::{Oid, TaskName};
use super::objects::{ObjectKind, ObjectReader};
use super::record::{self, RecordFields};
use super::refs::{self, RefCommand};
use super::repository::LandingRepository;
use super::spare_objects;

/// A claim on a task. Only its owner has one that [`holds`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitLease {
    pub task: TaskName,
    /// Counts the attempts.
    pub epoch: u64,
    /// Counts the owners of one attempt.
    pub term: u64,
    /// The record of exactly this.
    pub object: Oid,
}

/// The last claim on a task, as its reference records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastLease {
    pub lease: GitLease,
    /// Whether the owner gave it back.
    pub released: bool,
}

impl LastLease {
    /// Whether this attempt and owner may not claim any more: a newer one did, or they gave the claim back.
    pub fn bars(&self, epoch: u64, term: u64) -> bool {
        let (last, own) = ((self.lease.epoch, self.lease.term), (epoch, term));
        last > own || (last == own && self.released)
    }
}

/// The outcome of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseResult {
    Held(GitLease),
    /// The reference is not where the claimer saw it.
    Lost {
        found: Option<Oid>,
    },
}

/// Claims a task: moves its reference from `expected`; `None` if it should not exist. Claiming again what one holds
/// changes nothing, so a crash in between does no harm.
pub fn take(
    repository: &LandingRepository,
    task: &TaskName,
    (epoch, term): (u64, u64),
    expected: Option<&Oid>,
) -> Result<LeaseResult, Error> {
    let object = repository.write_object(ObjectKind::Blob, text(HELD, task, epoch, term).as_bytes())?;
    let lease = GitLease { task: task.clone(), epoch, term, object: object.clone() };
    let mut lines = vec![RefCommand::Update { name: task.lease(), from: expected.cloned(), to: object }];
    if expected.is_none() {
        let landed = landed_record::read(repository, task)?;
        if bars(landed.as_ref(), epoch, term) && !holds(repository, &lease)? {
            return Ok(LeaseResult::Lost { found: None });
        }
        // A lease may have been made and removed since the claimer saw none; then there is a landing record.
        lines.push(RefCommand::Verify { name: task.landed(), at: landed.map(|landed| landed.object) });
    }
    match refs::transact(repository, &lines) {
        Ok(()) => Ok(LeaseResult::Held(lease)),
        Err(error) => match (refs::at(repository, &task.lease())?, error) {
            (Some(found), _) if found == lease.object => Ok(LeaseResult::Held(lease)),
            (found, Error::Refs { .. }) if found.as_ref() != expected => Ok(LeaseResult::Lost { found }),
            (None, Error::Refs { .. })
                if bars(landed_record::read(repository, task)?.as_ref(), epoch, term) =>
            {
                Ok(LeaseResult::Lost { found: None })
            }
            (_, error) => Err(error),
        },
    }
}

/// Whether this attempt and owner may not claim any more where there is no lease: they have landed, or a newer one has.
/// A newer owner of the attempt that landed may claim: it only learns that the attempt landed.
fn bars(landed: Option<&LandedRecord>, epoch: u64, term: u64) -> bool {
    landed.is_some_and(|landed| (landed.epoch, landed.term) >= (epoch, term))
}

/// Whether this is still the claim that counts.
pub fn holds(repository: &LandingRepository, lease: &GitLease) -> Result<bool, Error> {
    Ok(refs::at(repository, &lease.task.lease())?.as_ref() == Some(&lease.object))
}

/// Reads the last claim on a task.
pub fn read(repository: &LandingRepository, task: &TaskName) -> Result<Option<LastLease>, Error> {
    match refs::at(repository, &task.lease())? {
        Some(object) => {
            spare_objects::restoring(repository, |objects| parse(objects, task, object.clone())).map(Some)
        }
        None => Ok(None),
    }
}

pub(super) fn parse(objects: &mut ObjectReader, task: &TaskName, object: Oid) -> Result<LastLease, Error> {
    let text = record::read(objects, &object)?;
    let unknown = || Error::Record { what: "a lease", object: object.to_string() };
    let (fields, released) = match RecordFields::parse(HELD, &text) {
        Some(fields) => (fields, false),
        None => (RecordFields::parse(RELEASED, &text).ok_or_else(unknown)?, true),
    };
    let numbers = fields.number("epoch").zip(fields.number("term"));
    let (epoch, term) = numbers.ok_or_else(unknown)?;
    Ok(LastLease { lease: GitLease { task: task.clone(), epoch, term, object }, released })
}

/// Gives a claim back; `false` when it was not held any more.
pub fn release(repository: &LandingRepository, lease: &GitLease) -> Result<bool, Error> {
    let GitLease { task, epoch, term, object } = lease;
    let record = text(RELEASED, task, *epoch, *term);
    let over = repository.write_object(ObjectKind::Blob, record.as_bytes())?;
    let line = RefCommand::Update { name: task.lease(), from: Some(object.clone()), to: over };
    match refs::transact(repository, &[line]) {
        Ok(()) => Ok(true),
        Err(error) => match holds(repository, lease)? {
            true => Err(error),
            false => Ok(false),
        },
    }
}

/// The two kinds of records.
const HELD: &str = "lease";
const RELEASED: &str = "released";

fn text(kind: &str, task: &TaskName, epoch: u64, term: u64) -> String {
    record::text(kind, &[("task", task), ("epoch", &epoch), ("term", &term)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_as_it_always_was() {
        let task = TaskName::new("kodingx", "T0001").expect("a task");
        assert_eq!(text(HELD, &task, 3, 7), "agency lease 1\ntask kodingx:T0001\nepoch 3\nterm 7\n");
        assert_eq!(text(RELEASED, &task, 3, 7), "agency released 1\ntask kodingx:T0001\nepoch 3\nterm 7\n");
    }

    #[test]
    fn an_id_with_a_line_break_makes_no_field() {
        let task = TaskName::new("kodingx", "a\nepoch 9").expect("a task");
        let text = text(HELD, &task, 3, 7);
        let fields = RecordFields::parse("lease", &text).expect("parses");
        assert_eq!((fields.number("epoch"), fields.text("task")), (Some(3), Some("kodingx:a\\nepoch 9")));
        assert!(RecordFields::parse("lease", &text.replace("lease 1", "lease 2")).is_none());
        assert!(RecordFields::parse("landed", &text).is_none());
    }
}
