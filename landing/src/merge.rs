//! Three-way merge of the work onto the branch as it is now. It writes a tree and touches no file.
//!
//! The merge base is the commit that the agent started from, even if the branch has changed: so only the agent's
//! changes are carried over, even when a person rewrote the branch meanwhile. Git finds the same base by itself as long
//! as that commit is in the branch's history. Where it is not, git gets three commits without history that have these
//! trees (`--merge-base` is younger than the oldest git we support).
//!
//! No attribute is read and no driver of the repository runs: files are merged as text, or conflict. Renames
//! are followed, because `merge-tree` can't be told otherwise; [`super::scope`] judges what comes out.

use agency_sandbox::git::GitError;
use agency_sandbox::path::{RelPath, escape};

use super::commit::{self, Signature};
use super::error::{Error, git};
use super::names::Oid;
use super::objects::{ObjectKind, ObjectReader};
use super::repository::LandingRepository;

/// The outcome of a merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeOutcome {
    /// The branch with the work in it.
    Clean { tree: Oid },
    /// Both sides changed these paths.
    Conflict { paths: Vec<RelPath> },
    /// The branch has the work already, so there is nothing to land.
    Contained,
}

/// Merges a candidate, a commit on `base`, onto `target`.
pub fn merge_candidate(
    repository: &LandingRepository,
    base: &Oid,
    candidate: &Oid,
    target: &Oid,
) -> Result<MergeOutcome, Error> {
    if base == target {
        let trees = repository.ask(|objects| Ok((objects.tree_of(candidate)?, objects.tree_of(target)?)))?;
        return Ok(contained_or_clean(trees));
    }
    let sides = match middle(repository, base, candidate, target)? {
        Some(middle) if middle == *candidate => return Ok(MergeOutcome::Contained),
        Some(middle) if middle == *base => (target.clone(), candidate.clone()),
        _ => without_history(repository, [base, candidate, target])?,
    };
    merge_sides(repository, &sides, target)
}

/// Merges the way back from a landed commit to its parent onto `target`, which has both in its history.
pub(super) fn merge_revert(
    repository: &LandingRepository,
    (landed, parent): (&Oid, &Oid),
    target: &Oid,
) -> Result<MergeOutcome, Error> {
    let sides = without_history(repository, [landed, parent, target])?;
    merge_sides(repository, &sides, target)
}

fn merge_sides(
    repository: &LandingRepository,
    (ours, theirs): &(Oid, Oid),
    target: &Oid,
) -> Result<MergeOutcome, Error> {
    match merge_tree(repository, ours, theirs)? {
        MergeOutcome::Clean { tree } => {
            let now = repository.ask(|objects| objects.tree_of(target))?;
            Ok(contained_or_clean((tree, now)))
        }
        other => Ok(other),
    }
}

fn contained_or_clean((tree, now): (Oid, Oid)) -> MergeOutcome {
    match tree == now {
        true => MergeOutcome::Contained,
        false => MergeOutcome::Clean { tree },
    }
}

/// The last common commit of candidate and branch. The candidate has one parent, so there is at most one.
fn middle(
    repository: &LandingRepository,
    base: &Oid,
    candidate: &Oid,
    target: &Oid,
) -> Result<Option<Oid>, Error> {
    // A shallow clone's commits name parents that git must not look for.
    let shallow = repository.real.common.join("shallow").exists();
    if !shallow && repository.ask(|objects| goes_on(objects, base, candidate, target))? {
        return Ok(Some(base.clone()));
    }
    match repository.objects.run(["merge-base", candidate.as_str(), target.as_str()]) {
        Ok(output) => Oid::of_line(&output).map(Some),
        Err(GitError::Failed { status, .. }) if status.code() == Some(1) => Ok(None),
        Err(error) => Err(git("look at the branch's history")(error)),
    }
}

/// How many commits we read ourselves. For more, git is faster.
const COMMITS: usize = 64;

/// Whether the branch has only commits on top of `base`, in a line and without the candidate. This is the usual case.
fn goes_on(objects: &mut ObjectReader, base: &Oid, candidate: &Oid, target: &Oid) -> Result<bool, Error> {
    let mut at = target.clone();
    for _ in 0..COMMITS {
        match &objects.parents(&at)?[..] {
            _ if at == *candidate => return Ok(false),
            [parent] if parent == base => return Ok(true),
            [parent] => at = parent.clone(),
            _ => return Ok(false),
        }
    }
    Ok(false)
}

fn merge_tree(repository: &LandingRepository, ours: &Oid, theirs: &Oid) -> Result<MergeOutcome, Error> {
    const DOING: &str = "merge the work with the branch";
    let mut command =
        repository.objects.command(["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"]);
    command.args([ours.as_str(), theirs.as_str()]);
    let start = |source| git(DOING)(GitError::Start { program: repository.program.clone(), source });
    let output = command.spawn().and_then(|child| child.wait_with_output()).map_err(start)?;
    let mut parts = output.stdout.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    let tree = parts.next().map(Oid::of_line);
    match (output.status.code(), tree) {
        (Some(0), Some(tree)) => Ok(MergeOutcome::Clean { tree: tree? }),
        (Some(1), Some(_)) => {
            let mut paths = parts.map(RelPath::parse).collect::<Result<Vec<_>, _>>();
            if let Ok(paths) = &mut paths {
                paths.sort();
                paths.dedup();
            }
            Ok(MergeOutcome::Conflict { paths: paths.map_err(|_| Error::Answer { doing: DOING })? })
        }
        _ => Err(git(DOING)(GitError::Failed {
            command: "merge-tree".to_owned(),
            status: output.status,
            message: escape(output.stderr.trim_ascii()),
        })),
    }
}

/// Whether a commit is in the history of another, or is the same.
pub fn is_ancestor(repository: &LandingRepository, one: &Oid, other: &Oid) -> Result<bool, Error> {
    if one == other {
        return Ok(true);
    }
    match repository.objects.run(["merge-base", "--is-ancestor", one.as_str(), other.as_str()]) {
        Ok(_) => Ok(true),
        Err(GitError::Failed { status, .. }) if status.code() == Some(1) => Ok(false),
        Err(error) => Err(git("look at the branch's history")(error)),
    }
}

/// The last commit that two have in common.
pub fn merge_base(repository: &LandingRepository, one: &Oid, other: &Oid) -> Result<Option<Oid>, Error> {
    match repository.objects.run(["merge-base", one.as_str(), other.as_str()]) {
        Ok(output) => Oid::of_line(&output).map(Some),
        Err(GitError::Failed { status, .. }) if status.code() == Some(1) => Ok(None),
        Err(error) => Err(git("look at the branch's history")(error)),
    }
}

/// Writes both sides as commits on the merge base, without other history.
fn without_history(repository: &LandingRepository, commits: [&Oid; 3]) -> Result<(Oid, Oid), Error> {
    // Always the same signature, so that a second try writes no new objects.
    let nobody = Signature::new("", "", 0, 0);
    let made = |commit: &Oid, parent: Option<&Oid>| {
        let tree = repository.ask(|objects| objects.tree_of(commit))?;
        let text = commit::text(&tree, parent, &nobody, &nobody, "three-way\n");
        repository.write_object(ObjectKind::Commit, text.as_bytes())
    };
    let [base, candidate, target] = commits;
    let middle = made(base, None)?;
    Ok((made(target, Some(&middle))?, made(candidate, Some(&middle))?))
}
