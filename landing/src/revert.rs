//! Takes landed work back: a commit on top of the branch that reverts it, as a person's `git revert` would make.
//!
//! The history stays, and so does the record of the landing. A trailer names the commit that was taken back, so that a
//! second undo finds the first one, whatever was killed in between.

use super::commit::{self, Signature};
use super::error::{Error, git};
use super::land::{self, LandOutcome, PublishCheck};
use super::landed_record::LandedRecord;
use super::merge::{self, MergeOutcome};
use super::names::{Oid, TaskName};
use super::objects::ObjectKind;
use super::repository::LandingRepository;
use agency_sandbox::path::RelPath;

/// Names the commit that was taken back.
const TRAILER: &str = "Agency-Undo";

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

/// Makes the commit that takes a landing back from the branch as it is at `tip`.
pub fn revert(
    repository: &LandingRepository,
    landed: &LandedRecord,
    tip: &Oid,
    message: &RevertMessage<'_>,
) -> Result<RevertOutcome, Error> {
    if let Some(by) = undone_by(repository, &landed.commit, tip)? {
        return Ok(RevertOutcome::Undone { by });
    }
    if !merge::is_ancestor(repository, &landed.commit, tip)? {
        return Ok(RevertOutcome::NotThere);
    }
    let parents = repository.ask(|objects| objects.parents(&landed.commit))?;
    let Some(parent) = parents.first() else { return Ok(RevertOutcome::NotThere) };
    let tree = match merge::merge_revert(repository, (&landed.commit, parent), tip)? {
        MergeOutcome::Clean { tree } => tree,
        MergeOutcome::Conflict { paths } => return Ok(RevertOutcome::Conflict { paths }),
        MergeOutcome::Contained => return Ok(RevertOutcome::Nothing),
    };
    let text = commit::text(&tree, Some(tip), message.who, message.who, &message.text(&landed.commit));
    Ok(RevertOutcome::Made { commit: repository.write_object(ObjectKind::Commit, text.as_bytes())? })
}

/// Moves the branch to a revert, and the checkout with it. `publish` is asked first, where the branch is shared.
pub fn land_revert(
    repository: &LandingRepository,
    landed: &LandedRecord,
    (tip, revert): (&Oid, &Oid),
    message: &RevertMessage<'_>,
    publish: Option<PublishCheck<'_>>,
) -> Result<LandOutcome, Error> {
    let reason = format!("agency: {} is undone", message.task);
    land::move_branch(repository, &landed.branch, (tip, revert), (message.who, &reason), publish)
}

/// The commit on the branch that takes another one back.
fn undone_by(repository: &LandingRepository, commit: &Oid, tip: &Oid) -> Result<Option<Oid>, Error> {
    let (grep, range) = (format!("--grep=^{TRAILER}: {commit}$"), format!("{commit}..{tip}"));
    let found = repository.objects.run(["rev-list", "--max-count=1", &grep, &range]);
    let found = found.map_err(git("look for an undo"))?;
    let found = String::from_utf8_lossy(&found);
    let found = found.trim();
    if found.is_empty() { Ok(None) } else { Oid::parse(found).map(Some) }
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
