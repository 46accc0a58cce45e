//! A reference that keeps what an attempt stands on.
//!
//! An agent works on a commit of the branch, and its work waits, merged, as a commit that no branch has. A person who
//! amends or rebases the branch and runs `git gc --prune=now` would take both away. So the commit has a name for as long
//! as the attempt is open: first the commit the agent began with, then each merge in its turn. The name stays when the
//! attempt ends, is moved by the next one, and goes with the task's other references ([`super::settled`]).

use super::error::Error;
use super::lease::Lease;
use super::names::Oid;
use super::refs::{self, Line};
use super::repository::Repository;

/// Names a commit that exists; `false` if the lease does not count any more.
pub fn pin(repository: &Repository, lease: &Lease, commit: &Oid) -> Result<bool, Error> {
    let (name, held) = (lease.task.pin(), lease.task.lease());
    let from = refs::at(repository, &name)?;
    if from.as_ref() == Some(commit) {
        return Ok(true);
    }
    let lines = [
        Line::Verify { name: held.clone(), at: Some(lease.object.clone()) },
        Line::Update { name, from, to: commit.clone() },
    ];
    match refs::transact(repository, &lines) {
        Ok(()) => Ok(true),
        Err(error) => match refs::at(repository, &held)?.as_ref() == Some(&lease.object) {
            true => Err(error),
            false => Ok(false),
        },
    }
}
