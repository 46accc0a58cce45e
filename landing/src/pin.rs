//! Pins: a reference that keeps the commit on which an attempt works.
//!
//! An agent works on a commit of the branch, and its merged work waits as a commit that no branch has. A person who
//! amends or rebases the branch and runs `git gc --prune=now` would remove both. So a reference names the commit for as
//! long as the attempt is open: first the commit the agent began with, then each merge. The reference stays when the
//! attempt ends, the next attempt moves it, and it is removed with the task's other references
//! ([`super::settled_refs`]).

use super::error::Error;
use super::lease::GitLease;
use super::names::Oid;
use super::refs::{self, RefCommand};
use super::repository::LandingRepository;
use super::spare_objects;

/// Pins a commit that exists; `false` if the lease does not count any more.
pub fn pin(repository: &LandingRepository, lease: &GitLease, commit: &Oid) -> Result<bool, Error> {
    let (name, held) = (lease.task.pin(), lease.task.lease());
    let from = refs::at(repository, &name)?;
    if from.as_ref() == Some(commit) {
        return Ok(true);
    }
    let lines = [
        RefCommand::Verify { name: held.clone(), at: Some(lease.object.clone()) },
        RefCommand::Update { name, from, to: commit.clone() },
    ];
    match refs::transact(repository, &lines) {
        Ok(()) => Ok(true),
        Err(error) => match refs::at(repository, &held)?.as_ref() == Some(&lease.object) {
            true => Err(error),
            false => Ok(false),
        },
    }
}

/// Pins a commit that was made a moment ago, and then looks for everything that is new in it: before a reference named
/// it, a garbage collection may have removed some of it. [`Error::Missing`] then, and the commit has to be made again.
pub fn pin_new(repository: &LandingRepository, lease: &GitLease, commit: &Oid) -> Result<bool, Error> {
    let is_held = pin(repository, lease, commit)?;
    if is_held {
        spare_objects::ensure_complete(repository, commit)?;
    }
    Ok(is_held)
}

/// Whether a commit is there, with everything that is new in it.
pub fn is_whole(repository: &LandingRepository, commit: &Oid) -> Result<bool, Error> {
    match spare_objects::ensure_complete(repository, commit) {
        Ok(()) => Ok(true),
        Err(Error::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
