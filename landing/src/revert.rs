//! Takes landed work back: a commit on top of the branch that reverts it, as a person's `git revert` would make.
//!
//! The history stays, and so does the record of the landing. A trailer names the commit that was taken back, so that a
//! second undo finds the first one, whatever was killed in between.

use super::commit::{self, Signature};
use super::error::Error;
use super::land::{self, LandOutcome, PublishCheck};
use super::landed_record::LandedRecord;
use super::merge::{self, MergeOutcome};
use super::names::{Oid, RefName, TaskName};
use super::objects::ObjectKind;
use super::refs;
use super::repository::LandingRepository;
use super::undo_commit::{TRAILER, undone_by};
use agency_sandbox::path::RelPath;

/// What a revert comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevertOutcome {
    /// A commit that no reference names yet.
    Made { commit: Oid },
    /// It is on the branch already.
    Undone { by: Oid },
    /// Later work changed the same lines.
    Conflict { paths: Vec<RelPath> },
    /// The branch has nothing of it any more.
    Nothing,
    /// The branch does not have the commit.
    NotThere,
}

/// What the commit of a revert says.
#[derive(Debug, Clone)]
pub struct RevertMessage<'a> {
    pub task: &'a TaskName,
    pub title: &'a str,
    pub reason: &'a str,
    pub who: &'a Signature,
}

/// Makes the commit that takes a landed commit back from a branch as it is at `tip`.
pub fn revert(
    repository: &LandingRepository,
    landed: &Oid,
    tip: &Oid,
    message: &RevertMessage<'_>,
) -> Result<RevertOutcome, Error> {
    if let Some(by) = undone_by(repository, landed, tip)? {
        return Ok(RevertOutcome::Undone { by });
    }
    if !merge::is_ancestor(repository, landed, tip)? {
        return Ok(RevertOutcome::NotThere);
    }
    let parents = repository.ask(|objects| objects.parents(landed))?;
    let Some(parent) = parents.first() else { return Ok(RevertOutcome::NotThere) };
    let tree = match merge::merge_revert(repository, (landed, parent), tip)? {
        MergeOutcome::Clean { tree } => tree,
        MergeOutcome::Conflict { paths } => return Ok(RevertOutcome::Conflict { paths }),
        MergeOutcome::Contained => return Ok(RevertOutcome::Nothing),
    };
    let text = commit::text(&tree, Some(tip), message.who, message.who, &message.text(landed));
    Ok(RevertOutcome::Made { commit: repository.write_object(ObjectKind::Commit, text.as_bytes())? })
}

/// Moves a branch to a revert, and the checkout with it. `publish` is asked first, where the branch is shared.
pub fn land_revert(
    repository: &LandingRepository,
    branch: &RefName,
    (tip, revert): (&Oid, &Oid),
    message: &RevertMessage<'_>,
    publish: Option<PublishCheck<'_>>,
) -> Result<LandOutcome, Error> {
    let reason = format!("agency: {} is undone", message.task);
    land::move_branch(repository, branch, (tip, revert), (message.who, &reason), publish)
}

/// The branch from which landed work is to be taken back: the one that runs work on, if the work is there by now, else the
/// one on which it landed.
pub fn branch_with_work(
    repository: &LandingRepository,
    landed: &LandedRecord,
    working: &RefName,
) -> Result<RefName, Error> {
    let has_work = match refs::at(repository, working)? {
        Some(tip) => *working == landed.branch || merge::is_ancestor(repository, &landed.commit, &tip)?,
        None => false,
    };
    Ok(if has_work { working.clone() } else { landed.branch.clone() })
}

/// Brings the branch of a task's own along to the revert of its merge, so that the next work on the task starts on it
/// without the old work. Git would never bring the same work to the other branch again. Where a person has gone on with
/// it, or edits files on it, it stays.
pub fn bring_along(
    repository: &LandingRepository,
    task: &TaskName,
    revert: &Oid,
    who: &Signature,
) -> Result<(), Error> {
    let own = task.branch();
    match refs::at(repository, &own)? {
        Some(tip) if tip != *revert && merge::is_ancestor(repository, &tip, revert)? => {
            land::fast_forward(repository, &own, (&tip, revert), who).map(drop)
        }
        _ => Ok(()),
    }
}

impl RevertMessage<'_> {
    fn text(&self, commit: &Oid) -> String {
        let (title, reason) = (commit::one_line(self.title), commit::one_line(self.reason));
        format!(
            "Revert \"{title}\"\n\n{}\n\n{TRAILER}: {commit}\nAgency-Undo-Task: {}\n",
            commit::quoted(&reason),
            commit::one_line(self.task.id())
        )
    }
}
