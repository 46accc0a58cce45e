//! Work that landed, and is not on its branch any more.
//!
//! A person may move a branch back: by a reset, or by giving up a rebase that had begun just before the work landed. Their
//! history is theirs, so it is not changed; the work is named, with the command that brings it back. Work that a person
//! rebased or squashed is still there: the copies of its commit say which task and attempt they are of.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::error::{Error, git};
use super::landed::{self, Landed};
use super::names::{Oid, RefName, Task};
use super::refs;
use super::repository::Repository;
use super::settled::{self, Named};

/// A task whose commit has left its branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strayed {
    pub task: Task,
    pub landed: Landed,
    /// What names the commit, if it can still be had.
    pub kept: Option<String>,
}

impl Strayed {
    /// What a person reads.
    pub fn sentence(&self) -> String {
        let Landed { branch, commit, .. } = &self.landed;
        let branch = branch.as_str().strip_prefix("refs/heads/").unwrap_or(branch.as_str());
        let short: String = commit.as_str().chars().take(12).collect();
        let lost = format!("landed on {branch} as {short}, which is not there any more");
        match &self.kept {
            Some(name) => format!("{lost}; `git cherry-pick {name}` brings it back"),
            None => format!("{lost}, and its commit is gone, too"),
        }
    }
}

const DOING: &str = "look for landed work on its branch";
/// So many commits are named to git at once.
const AT_ONCE: usize = 1000;

/// Every task whose landed commit is not on its branch. A branch that is gone says nothing about what was on it.
pub fn find(repository: &Repository) -> Result<Vec<Strayed>, Error> {
    let named = settled::named(repository)?;
    let mut branches: BTreeMap<RefName, Vec<(Named, Landed)>> = BTreeMap::new();
    for named in named {
        let Some(object) = named.landed.clone() else { continue };
        // A record that can't be read proves nothing; whoever needs it says so.
        let Ok(landed) = repository.ask(|objects| landed::parse(objects, object)) else { continue };
        branches.entry(landed.branch.clone()).or_default().push((named, landed));
    }
    let mut strayed = Vec::new();
    for (branch, all) in branches {
        let Some(tip) = refs::at(repository, &branch)? else { continue };
        for some in all.chunks(AT_ONCE) {
            strayed.extend(of_branch(repository, &tip, some)?);
        }
    }
    Ok(strayed)
}

fn of_branch(repository: &Repository, tip: &Oid, all: &[(Named, Landed)]) -> Result<Vec<Strayed>, Error> {
    let commits: BTreeSet<&str> = all.iter().map(|(_, landed)| landed.commit.as_str()).collect();
    let gone = missing(repository, &commits)?;
    // In a shallow clone, what is not there may be behind its edge.
    let shallow = repository.real.common.join("shallow").exists();
    let there: Vec<&str> = commits.iter().copied().filter(|commit| !gone.contains(*commit)).collect();
    let not_on_it: HashSet<String> = match there.is_empty() {
        true => HashSet::new(),
        false => {
            lines(repository, &[&["rev-list"], &there[..], &["--not", tip.as_str()]].concat())?.collect()
        }
    };
    let has_left = |landed: &Landed| {
        let commit = landed.commit.as_str();
        not_on_it.contains(commit) || (gone.contains(commit) && !shallow)
    };
    let left: Vec<&(Named, Landed)> = all.iter().filter(|(_, landed)| has_left(landed)).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let copies = copies(repository, tip, &left, &gone)?;
    let is_there =
        |(named, landed): &&&(Named, Landed)| copies.contains(&(named.task.id().to_owned(), landed.epoch));
    let strayed = left.iter().filter(|one| !is_there(one)).map(|(named, landed)| {
        let commit = &landed.commit;
        let kept = match () {
            () if gone.contains(commit.as_str()) => None,
            () if named.pin.as_ref() == Some(commit) => Some(named.task.pin().as_str().to_owned()),
            () => Some(commit.to_string()),
        };
        Strayed { task: named.task.clone(), landed: landed.clone(), kept }
    });
    Ok(strayed.collect())
}

/// The tasks and attempts that commits name which only the branch has.
fn copies(
    repository: &Repository,
    tip: &Oid,
    left: &[&(Named, Landed)],
    gone: &HashSet<String>,
) -> Result<HashSet<(String, u64)>, Error> {
    let known =
        left.iter().map(|(_, landed)| landed.commit.as_str()).filter(|commit| !gone.contains(*commit));
    let known: Vec<&str> = known.collect();
    // What all of them stand on has no copy of any. What only some stand on may: work lands on a copy of earlier work,
    // and leaves the branch in turn.
    let below: Vec<String> = match known.is_empty() {
        true => Vec::new(),
        false => match repository.objects.run([&["merge-base", "--octopus"], &known[..]].concat()) {
            Ok(output) => String::from_utf8_lossy(&output).lines().map(str::to_owned).collect(),
            // They have nothing in common.
            Err(_) => Vec::new(),
        },
    };
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    let (mut found, mut task) = (HashSet::new(), None);
    // Where several commits became one, its text has the lines of each.
    for line in lines(repository, &[&["log", "--format=%B", tip.as_str(), "--not"], &below[..]].concat())? {
        if let Some(id) = line.strip_prefix("Agency-Task: ") {
            task = Some(id.to_owned());
        } else if let Some(attempt) = line.strip_prefix("Agency-Attempt: ").and_then(|text| text.parse().ok())
        {
            found.extend(task.take().map(|task| (task, attempt)));
        }
    }
    Ok(found)
}

/// Those of some commits that the repository does not have.
fn missing(repository: &Repository, commits: &BTreeSet<&str>) -> Result<HashSet<String>, Error> {
    repository.ask(|objects| {
        let mut gone = HashSet::new();
        for commit in commits {
            match Oid::parse(commit).and_then(|oid| objects.parents(&oid)) {
                Err(Error::Missing { .. }) => drop(gone.insert((*commit).to_owned())),
                other => drop(other?),
            }
        }
        Ok(gone)
    })
}

fn lines(repository: &Repository, arguments: &[&str]) -> Result<impl Iterator<Item = String>, Error> {
    let output = repository.objects.run(arguments).map_err(git(DOING))?;
    let text = String::from_utf8_lossy(&output).into_owned();
    Ok(text.lines().map(str::to_owned).collect::<Vec<_>>().into_iter())
}
