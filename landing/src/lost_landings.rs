//! Finds work that landed and is not on its branch any more.
//!
//! A person may move a branch back: by a reset, or by aborting a rebase that began just before the work landed. We do
//! not change a person's history; we name the work, with the command that brings it back. Work that a person rebased or
//! squashed is still on the branch: the copies of its commit name their task and attempt.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use agency_sandbox::git::IsolatedGit;

use super::error::{Error, git};
use super::landed_record::{self, LandedRecord};
use super::names::{Oid, RefName, TaskName};
use super::refs;
use super::repository::LandingRepository;
use super::settled_refs::{self, TaskRefs};

/// A task whose landed commit is not on its branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostLanding {
    pub task: TaskName,
    pub landed: LandedRecord,
    /// The reference that names the commit, if the commit still exists.
    pub kept: Option<String>,
}

impl LostLanding {
    /// The message to a person.
    pub fn sentence(&self) -> String {
        let LandedRecord { branch, commit, .. } = &self.landed;
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
/// How many commits one git command gets.
const AT_ONCE: usize = 1000;

/// Finds every task whose landed commit is not on its branch. A branch that was deleted is skipped.
pub fn find(repository: &LandingRepository) -> Result<Vec<LostLanding>, Error> {
    let named = settled_refs::task_refs(repository)?;
    let mut branches: BTreeMap<RefName, Vec<(TaskRefs, LandedRecord)>> = BTreeMap::new();
    for named in named {
        let Some(object) = named.landed.clone() else { continue };
        // A record that can't be read proves nothing; the code that needs it reports the error.
        let Ok(landed) = repository.ask(|objects| landed_record::parse(objects, object)) else { continue };
        branches.entry(landed.branch.clone()).or_default().push((named, landed));
    }
    let mut strayed = Vec::new();
    for (branch, all) in branches {
        let Some(tip) = refs::at(repository, &branch)? else { continue };
        for some in all.chunks(AT_ONCE) {
            strayed.extend(match of_branch(repository, &tip, some) {
                Ok(found) => found,
                Err(_) => one_by_one(repository, &tip, some),
            });
        }
    }
    Ok(strayed)
}

/// Finds them one by one, so that an error for one does not hide the others.
fn one_by_one(
    repository: &LandingRepository,
    tip: &Oid,
    all: &[(TaskRefs, LandedRecord)],
) -> Vec<LostLanding> {
    let look = |one: &(TaskRefs, LandedRecord)| {
        of_branch(repository, tip, std::slice::from_ref(one)).unwrap_or_else(|_| {
            let (TaskRefs { task, .. }, landed) = one;
            vec![LostLanding { task: task.clone(), landed: landed.clone(), kept: None }]
        })
    };
    all.iter().flat_map(look).collect()
}

fn of_branch(
    repository: &LandingRepository,
    tip: &Oid,
    all: &[(TaskRefs, LandedRecord)],
) -> Result<Vec<LostLanding>, Error> {
    let commits: BTreeSet<&str> = all.iter().map(|(_, landed)| landed.commit.as_str()).collect();
    let gone = missing(repository, &commits)?;
    // In a shallow clone, a missing commit may be older than the oldest one that was fetched.
    let shallow = repository.real.common.join("shallow").exists();
    let there: Vec<&str> = commits.iter().copied().filter(|commit| !gone.contains(*commit)).collect();
    let not_on_it: HashSet<String> = match there.is_empty() {
        true => HashSet::new(),
        false => {
            let arguments = [&["rev-list"], &there[..], &["--not", tip.as_str()]].concat();
            lines(repository, &arguments)?.into_iter().collect()
        }
    };
    let has_left = |landed: &LandedRecord| {
        let commit = landed.commit.as_str();
        not_on_it.contains(commit) || (gone.contains(commit) && !shallow)
    };
    let left: Vec<&(TaskRefs, LandedRecord)> = all.iter().filter(|(_, landed)| has_left(landed)).collect();
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let copies = copies(repository, tip, &left, &gone)?;
    let is_there = |(named, landed): &&&(TaskRefs, LandedRecord)| {
        copies.contains(&(named.task.id().to_owned(), landed.epoch))
    };
    let strayed = left.iter().filter(|one| !is_there(one)).map(|(named, landed)| {
        let commit = &landed.commit;
        let name = match named.pin.as_ref() == Some(commit) {
            true => named.task.pin().as_str().to_owned(),
            false => commit.to_string(),
        };
        let kept = (!gone.contains(commit.as_str())).then_some(name);
        LostLanding { task: named.task.clone(), landed: landed.clone(), kept }
    });
    Ok(strayed.collect())
}

/// The tasks and attempts that commits name, of those commits that only the branch has.
fn copies(
    repository: &LandingRepository,
    tip: &Oid,
    left: &[&(TaskRefs, LandedRecord)],
    gone: &HashSet<String>,
) -> Result<HashSet<(String, u64)>, Error> {
    let known =
        left.iter().map(|(_, landed)| landed.commit.as_str()).filter(|commit| !gone.contains(*commit));
    let known: Vec<&str> = known.collect();
    // The common ancestors of all commits contain no copy of any. The ancestors of only some may: work can land on a
    // copy of earlier work and leave the branch later.
    let below: Vec<String> = match known.is_empty() {
        true => Vec::new(),
        // They may have nothing in common.
        false => lines(repository, &[&["merge-base", "--octopus"], &known[..]].concat()).unwrap_or_default(),
    };
    let below: Vec<&str> = below.iter().map(String::as_str).collect();
    let (mut found, mut task) = (HashSet::new(), None);
    // Where several commits were squashed into one, its message has the lines of each.
    for line in lines(repository, &[&["log", "--format=%B", tip.as_str(), "--not"], &below[..]].concat())? {
        // `git merge --squash` indents them.
        let line = line.trim_start();
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
fn missing(repository: &LandingRepository, commits: &BTreeSet<&str>) -> Result<HashSet<String>, Error> {
    let command = repository.objects.command(["cat-file", "--batch-check=%(objectname)"]);
    let output = IsolatedGit::run_with(command, "cat-file", |input| {
        let all = commits.iter().try_for_each(|commit| writeln!(input, "{commit}"));
        all.map_err(Error::Pipe)
    })?;
    let text = String::from_utf8_lossy(&output);
    Ok(text.lines().filter_map(|line| line.strip_suffix(" missing")).map(str::to_owned).collect())
}

fn lines(repository: &LandingRepository, arguments: &[&str]) -> Result<Vec<String>, Error> {
    let output = repository.objects.run(arguments).map_err(git(DOING))?;
    Ok(String::from_utf8_lossy(&output).lines().map(str::to_owned).collect())
}
