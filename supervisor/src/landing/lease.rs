//! Who may land a task, in git itself.
//!
//! `refs/agency/lease/<protocol>/<id>` names a record of task, epoch and term. Each claim moves it, from the value the
//! claimer saw to its own. A transaction that lands verifies it, and git holds it locked meanwhile. So an owner
//! that was stopped for an hour and woken up lands nothing, although the branch it wants to move is where it
//! was: the branch's own value is no fence.
//!
//! A claim that is given back stays as a record of who had it last, so that an owner that wakes up when all is
//! over does not find the place free. When its task has landed, and long after, it goes ([`super::settled`]): then
//! the record of the landing, which stays for good, says the same. So where there is no lease, a claim asks that
//! record, and moves the lease only if it is still what it asked.

use super::error::Error;
use super::landed::{self, Landed};
use super::names::{Oid, Task};
use super::objects::{ObjectKind, Objects};
use super::record::{self, Fields};
use super::refs::{self, Line};
use super::repository::Repository;

/// A claim on a task. Nobody but its owner has one that [`holds`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub task: Task,
    /// Counts the attempts.
    pub epoch: u64,
    /// Counts the owners of one attempt.
    pub term: u64,
    /// The record of exactly this.
    pub object: Oid,
}

/// What a task's reference says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Last {
    pub lease: Lease,
    /// It was given back.
    pub released: bool,
}

impl Last {
    /// Whether this attempt and owner may not claim any more: somebody newer did, or they gave it back.
    pub fn bars(&self, epoch: u64, term: u64) -> bool {
        let (last, own) = ((self.lease.epoch, self.lease.term), (epoch, term));
        last > own || (last == own && self.released)
    }
}

/// What came of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    Held(Lease),
    /// The reference is not where the claimer saw it.
    Lost {
        found: Option<Oid>,
    },
}

/// Claims a task: moves its reference from `expected`, `None` if there should be none. Claiming what one has
/// is no claim, so a crash in between does no harm.
pub fn take(
    repository: &Repository,
    task: &Task,
    (epoch, term): (u64, u64),
    expected: Option<&Oid>,
) -> Result<Taken, Error> {
    let object = repository.write_object(ObjectKind::Blob, text(HELD, task, epoch, term).as_bytes())?;
    let lease = Lease { task: task.clone(), epoch, term, object: object.clone() };
    let mut lines = vec![Line::Update { name: task.lease(), from: expected.cloned(), to: object }];
    if expected.is_none() {
        let landed = landed::read(repository, task)?;
        if bars(landed.as_ref(), epoch, term) && !holds(repository, &lease)? {
            return Ok(Taken::Lost { found: None });
        }
        // A lease may have come and gone since somebody saw none; not without this.
        lines.push(Line::Verify { name: task.landed(), at: landed.map(|landed| landed.object) });
    }
    match refs::transact(repository, &lines) {
        Ok(()) => Ok(Taken::Held(lease)),
        Err(error) => match (refs::at(repository, &task.lease())?, error) {
            (Some(found), _) if found == lease.object => Ok(Taken::Held(lease)),
            (found, Error::Refs { .. }) if found.as_ref() != expected => Ok(Taken::Lost { found }),
            (None, Error::Refs { .. }) if bars(landed::read(repository, task)?.as_ref(), epoch, term) => {
                Ok(Taken::Lost { found: None })
            }
            (_, error) => Err(error),
        },
    }
}

/// Whether this attempt and owner may not claim any more where there is no lease: they have landed, or somebody newer
/// has. A newer owner of the attempt that landed may: what is left to it is to hear that it did.
fn bars(landed: Option<&Landed>, epoch: u64, term: u64) -> bool {
    landed.is_some_and(|landed| (landed.epoch, landed.term) >= (epoch, term))
}

/// Whether this is still the claim that counts.
pub fn holds(repository: &Repository, lease: &Lease) -> Result<bool, Error> {
    Ok(refs::at(repository, &lease.task.lease())?.as_ref() == Some(&lease.object))
}

/// The last claim there was.
pub fn read(repository: &Repository, task: &Task) -> Result<Option<Last>, Error> {
    match refs::at(repository, &task.lease())? {
        Some(object) => repository.restoring(|objects| parse(objects, task, object.clone())).map(Some),
        None => Ok(None),
    }
}

pub(super) fn parse(objects: &mut Objects, task: &Task, object: Oid) -> Result<Last, Error> {
    let text = record::read(objects, &object)?;
    let unknown = || Error::Record { what: "a lease", object: object.to_string() };
    let (fields, released) = match Fields::parse(HELD, &text) {
        Some(fields) => (fields, false),
        None => (Fields::parse(RELEASED, &text).ok_or_else(unknown)?, true),
    };
    let numbers = fields.number("epoch").zip(fields.number("term"));
    let (epoch, term) = numbers.ok_or_else(unknown)?;
    Ok(Last { lease: Lease { task: task.clone(), epoch, term, object }, released })
}

/// Gives a claim back; `false` when it was not held any more.
pub fn release(repository: &Repository, lease: &Lease) -> Result<bool, Error> {
    let Lease { task, epoch, term, object } = lease;
    let record = text(RELEASED, task, *epoch, *term);
    let over = repository.write_object(ObjectKind::Blob, record.as_bytes())?;
    let line = Line::Update { name: task.lease(), from: Some(object.clone()), to: over };
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

fn text(kind: &str, task: &Task, epoch: u64, term: u64) -> String {
    record::text(kind, &[("task", task), ("epoch", &epoch), ("term", &term)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_as_it_always_was() {
        let task = Task::new("kodingx", "T0001").expect("a task");
        assert_eq!(text(HELD, &task, 3, 7), "agency lease 1\ntask kodingx:T0001\nepoch 3\nterm 7\n");
        assert_eq!(text(RELEASED, &task, 3, 7), "agency released 1\ntask kodingx:T0001\nepoch 3\nterm 7\n");
    }

    #[test]
    fn an_id_with_a_line_break_makes_no_field() {
        let task = Task::new("kodingx", "a\nepoch 9").expect("a task");
        let text = text(HELD, &task, 3, 7);
        let fields = Fields::parse("lease", &text).expect("parses");
        assert_eq!((fields.number("epoch"), fields.text("task")), (Some(3), Some("kodingx:a\\nepoch 9")));
        assert!(Fields::parse("lease", &text.replace("lease 1", "lease 2")).is_none());
        assert!(Fields::parse("landed", &text).is_none());
    }
}
