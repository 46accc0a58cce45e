//! The work, brought onto the branch as it is now: a three-way merge that writes a tree and touches no file.
//!
//! The middle is what the agent started from, whatever happened to the branch: only what the agent changed is
//! carried over, also when a person rewrote the branch meanwhile. Git finds the same middle by itself as long
//! as the start is part of the branch's history. Where it is not, it is shown three commits without any
//! history that have these trees (`--merge-base` is younger than the oldest git we take).
//!
//! No attribute is read and no driver of the repository runs: files are merged as text, or conflict. Renames
//! are followed, because `merge-tree` can't be told otherwise; [`super::scope`] judges what comes out.

use agency_sandbox::git::GitError;
use agency_sandbox::path::{RelPath, escape};

use super::commit::Signature;
use super::error::{Error, git};
use super::names::Oid;
use super::objects::Objects;
use super::repository::Repository;

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// The branch with the work in it.
    Clean { tree: Oid },
    /// Both changed these.
    Conflict { paths: Vec<RelPath> },
    /// The branch has all of it already: nothing is to land.
    Contained,
}

/// Merges a candidate, a commit on `base`, onto `target`.
pub fn onto(repository: &Repository, base: &Oid, candidate: &Oid, target: &Oid) -> Result<Merged, Error> {
    let mut objects = Objects::open(repository)?;
    let tree = match base == target {
        true => objects.tree_of(candidate)?,
        false => {
            let sides = match common(repository, candidate, target)? {
                Some(common) if common == *candidate => return Ok(Merged::Contained),
                Some(common) if common == *base => (target.clone(), candidate.clone()),
                _ => without_history(repository, &mut objects, [base, candidate, target])?,
            };
            match merge_tree(repository, &sides.0, &sides.1)? {
                Merged::Clean { tree } => tree,
                other => return Ok(other),
            }
        }
    };
    match tree == objects.tree_of(target)? {
        true => Ok(Merged::Contained),
        false => Ok(Merged::Clean { tree }),
    }
}

/// The last commit that two have in common. The candidate has one parent, so there is one at most that counts.
fn common(repository: &Repository, one: &Oid, other: &Oid) -> Result<Option<Oid>, Error> {
    match repository.objects.run(["merge-base", one.as_str(), other.as_str()]) {
        Ok(output) => Oid::of_line(&output).map(Some),
        Err(GitError::Failed { status, .. }) if status.code() == Some(1) => Ok(None),
        Err(error) => Err(git("look at the branch's history")(error)),
    }
}

fn merge_tree(repository: &Repository, ours: &Oid, theirs: &Oid) -> Result<Merged, Error> {
    const DOING: &str = "merge the work with the branch";
    let mut command =
        repository.objects.command(["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"]);
    command.args([ours.as_str(), theirs.as_str()]);
    let start = |source| GitError::Start { program: repository.program.clone(), source };
    let output = command.output().map_err(|error| git(DOING)(start(error)))?;
    let mut parts = output.stdout.split(|byte| *byte == 0).filter(|part| !part.is_empty());
    let tree = parts.next().map(Oid::of_line);
    match (output.status.code(), tree) {
        (Some(0), Some(tree)) => Ok(Merged::Clean { tree: tree? }),
        (Some(1), Some(_)) => {
            let mut paths = parts.map(RelPath::parse).collect::<Result<Vec<_>, _>>();
            if let Ok(paths) = &mut paths {
                paths.sort();
                paths.dedup();
            }
            Ok(Merged::Conflict { paths: paths.map_err(|_| Error::Answer { doing: DOING })? })
        }
        _ => Err(git(DOING)(GitError::Failed {
            command: "merge-tree".to_owned(),
            status: output.status,
            message: escape(output.stderr.trim_ascii()),
        })),
    }
}

/// Whether a commit is in the history of another, or is that one.
pub(super) fn is_ancestor(repository: &Repository, one: &Oid, other: &Oid) -> Result<bool, Error> {
    if one == other {
        return Ok(true);
    }
    match repository.objects.run(["merge-base", "--is-ancestor", one.as_str(), other.as_str()]) {
        Ok(_) => Ok(true),
        Err(GitError::Failed { status, .. }) if status.code() == Some(1) => Ok(false),
        Err(error) => Err(git("look at the branch's history")(error)),
    }
}

/// The two sides as children of the middle.
fn without_history(
    repository: &Repository,
    objects: &mut Objects,
    commits: [&Oid; 3],
) -> Result<(Oid, Oid), Error> {
    let made = |tree: &Oid, parent: Option<&Oid>| -> Result<Oid, Error> {
        let mut arguments = vec!["commit-tree", tree.as_str(), "-m", "three-way"];
        arguments.extend(parent.iter().flat_map(|parent| ["-p", parent.as_str()]));
        let mut command = repository.objects.command(arguments);
        // Always the same, so that trying again leaves nothing new behind.
        let nobody = Signature::new("", "", 0, 0);
        nobody.sign(&mut command);
        let output = command.output().map_err(Error::Pipe)?;
        Oid::of_line(&output.stdout)
    };
    let [base, candidate, target] = commits;
    let middle = made(&objects.tree_of(base)?, None)?;
    let mut side = |commit: &Oid| made(&objects.tree_of(commit)?, Some(&middle));
    Ok((side(target)?, side(candidate)?))
}
