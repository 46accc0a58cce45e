//! References of ours that are not needed any more: reads and removes them.
//!
//! The caller decides which of them are removed (`retention`). This module removes them in transactions that verify the
//! values on which the decision is based: a task that was taken up again meanwhile keeps all of its references.
//!
//! To remove a reference, git locks the file of packed references, for people's git as well as for ours. When our
//! process is killed, git releases that lock by itself. When git is killed, the lock stays, and does not show its
//! owner: the lock of a git that is only stopped looks the same, and branches would be lost if that git went on without
//! its lock. So no such lock is ever removed here. While there is one, no reference is removed, and a person is told of
//! a lock that stays.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use super::error::{Error, files, git};
use super::landed_record::{self, LandedRecord};
use super::lease::{self, LastLease};
use super::names::{Oid, RefName, TaskName, TaskRefKind};
use super::objects::ObjectReader;
use super::own_refs;
use super::refs::{self, RefCommand};
use super::repository::LandingRepository;

/// The references of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRefs {
    pub task: TaskName,
    /// By attempt.
    pub candidates: BTreeMap<u64, Oid>,
    pub lease: Option<Oid>,
    pub landed: Option<Oid>,
    pub pin: Option<Oid>,
}

/// Every task that has a reference below `refs/agency`.
pub fn task_refs(repository: &LandingRepository) -> Result<Vec<TaskRefs>, Error> {
    own_refs::check(&repository.real.common)?;
    let arguments = ["for-each-ref", "--format=%(objectname) %(refname)", "refs/agency/"];
    let listed = repository.refs.run(arguments).map_err(git("list references"))?;
    let mut tasks: BTreeMap<TaskName, TaskRefs> = BTreeMap::new();
    for line in String::from_utf8_lossy(&listed).lines() {
        let Some((object, name)) = line.split_once(' ') else { continue };
        let Some((task, says)) = RefName::parse(name).ok().and_then(|name| TaskRefKind::read(&name)) else {
            continue;
        };
        let object = Oid::parse(object)?;
        let (candidates, lease, landed, pin) = Default::default();
        let named =
            tasks.entry(task.clone()).or_insert_with(|| TaskRefs { task, candidates, lease, landed, pin });
        match says {
            TaskRefKind::Lease => named.lease = Some(object),
            TaskRefKind::Landed => named.landed = Some(object),
            TaskRefKind::Pin => named.pin = Some(object),
            TaskRefKind::Candidate(epoch) => drop(named.candidates.insert(epoch, object)),
        }
    }
    Ok(tasks.into_values().collect())
}

/// What git alone records about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRefFacts {
    pub task: TaskName,
    pub candidates: Vec<CandidateCommit>,
    pub lease: Option<LastLease>,
    pub landed: Option<LandedRecord>,
    pub pin: Option<Oid>,
    /// When the landed commit was made; `None` if it is missing.
    pub landed_at: Option<i64>,
}

/// The candidate of an attempt, and when it was made: seconds since 1970, `None` where that is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateCommit {
    pub epoch: u64,
    pub commit: Oid,
    pub at: Option<i64>,
}

/// Reads the facts from a task's references; `None` where they can't be understood, or are gone by now.
pub fn read_facts(repository: &LandingRepository, named: &TaskRefs) -> Result<Option<TaskRefFacts>, Error> {
    let known = repository.ask(|objects| {
        let mut candidates = Vec::new();
        for (epoch, commit) in &named.candidates {
            candidates.push(CandidateCommit {
                epoch: *epoch,
                commit: commit.clone(),
                at: date(objects, commit)?,
            });
        }
        let lease =
            named.lease.clone().map(|object| lease::parse(objects, &named.task, object)).transpose()?;
        let landed = named.landed.clone().map(|object| landed_record::parse(objects, object)).transpose()?;
        let landed_at = landed.as_ref().map(|landed| date(objects, &landed.commit)).transpose()?.flatten();
        Ok(TaskRefFacts {
            task: named.task.clone(),
            candidates,
            lease,
            landed,
            pin: named.pin.clone(),
            landed_at,
        })
    });
    match known {
        Err(Error::Record { .. } | Error::Missing { .. }) => Ok(None),
        known => known.map(Some),
    }
}

/// When a commit was made.
fn date(objects: &mut ObjectReader, commit: &Oid) -> Result<Option<i64>, Error> {
    let text = match objects.contents(commit, "commit") {
        Err(Error::Missing { .. }) => return Ok(None),
        text => text?,
    };
    let mut header = text.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let committer = header.find_map(|line| line.strip_prefix(b"committer ")).unwrap_or_default();
    // A name, an address, seconds, a time zone.
    let seconds = committer.rsplit(|byte| *byte == b' ').nth(1).unwrap_or_default();
    Ok(std::str::from_utf8(seconds).ok().and_then(|seconds| seconds.parse().ok()))
}

/// How many tasks lose references in one transaction: each transaction writes the file of packed references anew.
const TOGETHER: usize = 64;

/// A lock of the packed references, of any process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedRefsLock {
    pub path: PathBuf,
    /// Since when, as its file says.
    pub since: SystemTime,
}

/// Removes references: for each task the commands, with the values that must still hold. A task for which they do not
/// hold keeps its references. While there is a lock, the rest waits.
pub fn remove(
    repository: &LandingRepository,
    tasks: &[Vec<RefCommand>],
) -> Result<Option<PackedRefsLock>, Error> {
    for some in tasks.chunks(TOGETHER) {
        let _turn = repository.landing.acquire()?;
        match removed(repository, &some.concat())? {
            RefRemoval::Done => {}
            RefRemoval::Locked(lock) => return Ok(Some(lock)),
            // One task was taken up again; the others need not wait for it.
            RefRemoval::Changed => {
                for lines in some {
                    if let RefRemoval::Locked(lock) = removed(repository, lines)? {
                        return Ok(Some(lock));
                    }
                }
            }
        }
    }
    Ok(None)
}

/// The outcome of one transaction.
enum RefRemoval {
    Done,
    /// A reference has another value than expected.
    Changed,
    Locked(PackedRefsLock),
}

fn removed(repository: &LandingRepository, lines: &[RefCommand]) -> Result<RefRemoval, Error> {
    if let Some(lock) = lock(repository)? {
        return Ok(RefRemoval::Locked(lock));
    }
    match (refs::transact(repository, lines), lock(repository)?) {
        (Ok(()), _) => Ok(RefRemoval::Done),
        (Err(Error::Refs { .. }), Some(lock)) => Ok(RefRemoval::Locked(lock)),
        (Err(Error::Refs { .. }), None) => Ok(RefRemoval::Changed),
        (Err(error), _) => Err(error),
    }
}

/// The lock that exists, if any. Git makes two files, one after the other, and fails over either.
fn lock(repository: &LandingRepository) -> Result<Option<PackedRefsLock>, Error> {
    for name in ["packed-refs.lock", "packed-refs.new"] {
        let path = repository.real.common.join(name);
        match fs::symlink_metadata(&path).and_then(|stat| stat.modified()) {
            Ok(since) => return Ok(Some(PackedRefsLock { path, since })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(files("look at", &path)(error)),
        }
    }
    Ok(None)
}
