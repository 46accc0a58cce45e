//! Who may land a task, in git itself.
//!
//! `refs/agency/lease/<protocol>/<id>` names a record of task, epoch and term. Each claim moves it, from the value the
//! claimer saw to its own. A transaction that lands verifies it, and git holds it locked meanwhile. So an owner
//! that was stopped for an hour and woken up lands nothing, although the branch it wants to move is where it
//! was: the branch's own value is no fence.

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
    let object = repository.write_object(ObjectKind::Blob, text(task, epoch, term).as_bytes())?;
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

/// The claim that counts now.
pub fn read(repository: &Repository, task: &Task) -> Result<Option<Lease>, Error> {
    let Some(object) = refs::at(repository, &task.lease())? else { return Ok(None) };
    let text = repository.ask(|objects| record::read(objects, &object))?;
    let unknown = || Error::Record { what: "a lease", object: object.to_string() };
    let fields = Fields::parse("lease", &text).ok_or_else(unknown)?;
    let numbers = fields.number("epoch").zip(fields.number("term"));
    let (epoch, term) = numbers.ok_or_else(unknown)?;
    Ok(Some(Lease { task: task.clone(), epoch, term, object }))
}

/// Gives a claim back; `false` when it was not held any more.
pub fn release(repository: &Repository, lease: &Lease) -> Result<bool, Error> {
    let line = Line::Delete { name: lease.task.lease(), from: lease.object.clone() };
    match refs::transact(repository, &[line]) {
        Ok(()) => Ok(true),
        Err(error) => match holds(repository, lease)? {
            true => Err(error),
            false => Ok(false),
        },
    }
}

fn text(task: &Task, epoch: u64, term: u64) -> String {
    record::text("lease", &[("task", task), ("epoch", &epoch), ("term", &term)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_as_it_always_was() {
        let task = Task::new("kodingx", "T0001").expect("a task");
        assert_eq!(text(&task, 3, 7), "agency lease 1\ntask kodingx:T0001\nepoch 3\nterm 7\n");
    }

    #[test]
    fn an_id_with_a_line_break_makes_no_field() {
        let task = Task::new("kodingx", "a\nepoch 9").expect("a task");
        let text = text(&task, 3, 7);
        let fields = Fields::parse("lease", &text).expect("parses");
        assert_eq!((fields.number("epoch"), fields.text("task")), (Some(3), Some("kodingx:a\\nepoch 9")));
        assert!(Fields::parse("lease", &text.replace("lease 1", "lease 2")).is_none());
        assert!(Fields::parse("landed", &text).is_none());
    }
}
