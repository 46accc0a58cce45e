//! Who may land a task, in git itself.
//!
//! `refs/agency/lease/<task>` names a record of task, epoch and term. Each claim moves it, from the value the
//! claimer saw to its own. A transaction that lands verifies it, and git holds it locked meanwhile. So an owner
//! that was stopped for an hour and woken up lands nothing, although the branch it wants to move is where it
//! was: the branch's own value is no fence.

use super::commit::Signature;
use super::error::Error;
use super::names::{Oid, Task};
use super::objects::Objects;
use super::record::{self, Fields};
use super::refs::{self, Line, Reason};
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
    who: &Signature,
) -> Result<Taken, Error> {
    let object = record::write(repository, &text(task, epoch, term))?;
    let lease = Lease { task: task.clone(), epoch, term, object: object.clone() };
    let name = task.lease();
    let line = Line::Update { name, from: expected.cloned(), to: object };
    let reason = Reason { who, text: format!("agency: {task} is claimed") };
    match refs::transact(repository, &[line], &reason) {
        Ok(()) => Ok(Taken::Held(lease)),
        Err(error) => match (at(repository, task)?, error) {
            (Some(found), _) if found == lease.object => Ok(Taken::Held(lease)),
            (found, Error::Refs { .. }) if found.as_ref() != expected => Ok(Taken::Lost { found }),
            (_, error) => Err(error),
        },
    }
}

/// Whether this is still the claim that counts.
pub fn holds(repository: &Repository, lease: &Lease) -> Result<bool, Error> {
    Ok(at(repository, &lease.task)?.as_ref() == Some(&lease.object))
}

/// The claim that counts now.
pub fn read(repository: &Repository, task: &Task) -> Result<Option<Lease>, Error> {
    let Some(object) = at(repository, task)? else { return Ok(None) };
    let text = record::read(&mut Objects::open(repository)?, &object)?;
    let unknown = || Error::Record { what: "a lease", object: object.to_string() };
    let fields = Fields::parse("lease", &text).ok_or_else(unknown)?;
    let numbers = fields.number("epoch").zip(fields.number("term"));
    let (epoch, term) = numbers.ok_or_else(unknown)?;
    Ok(Some(Lease { task: task.clone(), epoch, term, object }))
}

/// Gives a claim back; `false` when it was not held any more.
pub fn release(repository: &Repository, lease: &Lease, who: &Signature) -> Result<bool, Error> {
    let line = Line::Delete { name: lease.task.lease(), from: lease.object.clone() };
    let reason = Reason { who, text: format!("agency: {} is given back", lease.task) };
    match refs::transact(repository, &[line], &reason) {
        Ok(()) => Ok(true),
        Err(error) => match holds(repository, lease)? {
            true => Err(error),
            false => Ok(false),
        },
    }
}

fn at(repository: &Repository, task: &Task) -> Result<Option<Oid>, Error> {
    let name = task.lease();
    Ok(refs::read(repository, std::slice::from_ref(&name))?.remove(&name).map(|found| found.at))
}

fn text(task: &Task, epoch: u64, term: u64) -> String {
    record::text("lease", &[("task", task), ("epoch", &epoch), ("term", &term)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_as_it_always_was() {
        let task = Task::new("T0001").expect("a task");
        assert_eq!(text(&task, 3, 7), "agency lease 1\ntask T0001\nepoch 3\nterm 7\n");
    }

    #[test]
    fn an_id_with_a_line_break_makes_no_field() {
        let task = Task::new("a\nepoch 9").expect("a task");
        let text = text(&task, 3, 7);
        let fields = Fields::parse("lease", &text).expect("parses");
        assert_eq!((fields.number("epoch"), fields.text("task")), (Some(3), Some("a\\nepoch 9")));
        assert!(Fields::parse("lease", &text.replace("lease 1", "lease 2")).is_none());
        assert!(Fields::parse("landed", &text).is_none());
    }
}
