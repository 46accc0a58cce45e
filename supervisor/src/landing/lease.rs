//! Who may land a task, in git itself.
//!
//! `refs/agency/lease/<protocol>/<id>` names a record of task, epoch and term. Each claim moves it, from the value the
//! claimer saw to its own. A transaction that lands verifies it, and git holds it locked meanwhile. So an owner
//! that was stopped for an hour and woken up lands nothing, although the branch it wants to move is where it
//! was: the branch's own value is no fence.
//!
//! A claim that is given back stays as a record of who had it last, so that an owner that wakes up when all is
//! over does not find the place free. It also spares git the removal of a reference, which holds a lock on all
//! packed ones that a killed git would leave behind.

use super::error::Error;
use super::names::{Oid, Task};
use super::objects::ObjectKind;
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
    let line = Line::Update { name: task.lease(), from: expected.cloned(), to: object };
    match refs::transact(repository, &[line]) {
        Ok(()) => Ok(Taken::Held(lease)),
        Err(error) => match (refs::at(repository, &task.lease())?, error) {
            (Some(found), _) if found == lease.object => Ok(Taken::Held(lease)),
            (found, Error::Refs { .. }) if found.as_ref() != expected => Ok(Taken::Lost { found }),
            (_, error) => Err(error),
        },
    }
}

/// Whether this is still the claim that counts.
pub fn holds(repository: &Repository, lease: &Lease) -> Result<bool, Error> {
    Ok(refs::at(repository, &lease.task.lease())?.as_ref() == Some(&lease.object))
}

/// The last claim there was.
pub fn read(repository: &Repository, task: &Task) -> Result<Option<Last>, Error> {
    let Some(object) = refs::at(repository, &task.lease())? else { return Ok(None) };
    let text = repository.ask(|objects| record::read(objects, &object))?;
    let unknown = || Error::Record { what: "a lease", object: object.to_string() };
    let (fields, released) = match Fields::parse(HELD, &text) {
        Some(fields) => (fields, false),
        None => (Fields::parse(RELEASED, &text).ok_or_else(unknown)?, true),
    };
    let numbers = fields.number("epoch").zip(fields.number("term"));
    let (epoch, term) = numbers.ok_or_else(unknown)?;
    Ok(Some(Last { lease: Lease { task: task.clone(), epoch, term, object }, released }))
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
