//! References of ours that nobody needs any more: which there are, and how they go.
//!
//! Which of them go is decided elsewhere (`retention`). Here they are read, and removed in transactions that
//! verify what was decided over: a task that somebody has taken up again meanwhile keeps all of its own.
//!
//! To remove a reference, git locks the file of packed ones, for people's git as well as for ours. When we are killed
//! it gives that lock back by itself. When git is, the lock stays, and says nothing about whose it is: one of a git that
//! only sleeps looks the same, and branches would be lost if it woke up without it. So no lock is ever cleared away
//! here. Nothing goes while there is one, and a person is told of one that stays.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use super::error::{Error, files, git};
use super::landed::{self, Landed};
use super::lease::{self, Last};
use super::names::{Oid, RefName, Says, Task};
use super::objects::Objects;
use super::refs::{self, Line};
use super::repository::Repository;

/// What the references of a task name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub task: Task,
    /// By attempt.
    pub candidates: BTreeMap<u64, Oid>,
    pub lease: Option<Oid>,
    pub landed: Option<Oid>,
    pub pin: Option<Oid>,
}

/// Every task that has a reference below `refs/agency`.
pub fn named(repository: &Repository) -> Result<Vec<Named>, Error> {
    refs::check_ours(repository)?;
    let arguments = ["for-each-ref", "--format=%(objectname) %(refname)", "refs/agency/"];
    let listed = repository.refs.run(arguments).map_err(git("list references"))?;
    let mut tasks: BTreeMap<Task, Named> = BTreeMap::new();
    for line in String::from_utf8_lossy(&listed).lines() {
        let Some((object, name)) = line.split_once(' ') else { continue };
        let Some((task, says)) = RefName::parse(name).ok().and_then(|name| Says::read(&name)) else {
            continue;
        };
        let object = Oid::parse(object)?;
        let (candidates, lease, landed, pin) = Default::default();
        let named =
            tasks.entry(task.clone()).or_insert_with(|| Named { task, candidates, lease, landed, pin });
        match says {
            Says::Lease => named.lease = Some(object),
            Says::Landed => named.landed = Some(object),
            Says::Pin => named.pin = Some(object),
            Says::Candidate(epoch) => drop(named.candidates.insert(epoch, object)),
        }
    }
    Ok(tasks.into_values().collect())
}

/// What is known of a task from git alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub task: Task,
    pub candidates: Vec<Made>,
    pub lease: Option<Last>,
    pub landed: Option<Landed>,
    pub pin: Option<Oid>,
    /// When the commit that landed was made; `None` if it is not there any more.
    pub landed_at: Option<i64>,
}

/// What an attempt made, and when: seconds since 1970, `None` where that can't be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub epoch: u64,
    pub commit: Oid,
    pub at: Option<i64>,
}

/// Reads what they say; `None` where that can't be understood, or is gone by now.
pub fn look(repository: &Repository, named: &Named) -> Result<Option<Known>, Error> {
    let known = repository.ask(|objects| {
        let mut candidates = Vec::new();
        for (epoch, commit) in &named.candidates {
            candidates.push(Made { epoch: *epoch, commit: commit.clone(), at: date(objects, commit)? });
        }
        let lease =
            named.lease.clone().map(|object| lease::parse(objects, &named.task, object)).transpose()?;
        let landed = named.landed.clone().map(|object| landed::parse(objects, object)).transpose()?;
        let landed_at = landed.as_ref().map(|landed| date(objects, &landed.commit)).transpose()?.flatten();
        Ok(Known { task: named.task.clone(), candidates, lease, landed, pin: named.pin.clone(), landed_at })
    });
    match known {
        Err(Error::Record { .. } | Error::Missing { .. }) => Ok(None),
        known => known.map(Some),
    }
}

/// When a commit was made.
fn date(objects: &mut Objects, commit: &Oid) -> Result<Option<i64>, Error> {
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

/// So many tasks lose references in one transaction: each writes the file of packed ones anew.
const TOGETHER: usize = 64;

/// A lock of the packed references, whoever has it or left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    pub path: PathBuf,
    /// Since when, as its file says.
    pub since: SystemTime,
}

/// Removes references: for each task what it loses, with what has to be so meanwhile. What is not so any more stays. If
/// there is a lock, the rest waits for it to go.
pub fn remove(repository: &Repository, tasks: &[Vec<Line>]) -> Result<Option<Lock>, Error> {
    for some in tasks.chunks(TOGETHER) {
        let _turn = repository.landing.take()?;
        match removed(repository, &some.concat())? {
            Removal::Done => {}
            Removal::Locked(lock) => return Ok(Some(lock)),
            // One of them is somebody's again; the others need not wait for it.
            Removal::Changed => {
                for lines in some {
                    if let Removal::Locked(lock) = removed(repository, lines)? {
                        return Ok(Some(lock));
                    }
                }
            }
        }
    }
    Ok(None)
}

/// What came of one transaction.
enum Removal {
    Done,
    /// Something is not as it was seen.
    Changed,
    Locked(Lock),
}

fn removed(repository: &Repository, lines: &[Line]) -> Result<Removal, Error> {
    if let Some(lock) = lock(repository)? {
        return Ok(Removal::Locked(lock));
    }
    match (refs::transact(repository, lines), lock(repository)?) {
        (Ok(()), _) => Ok(Removal::Done),
        (Err(Error::Refs { .. }), Some(lock)) => Ok(Removal::Locked(lock)),
        (Err(Error::Refs { .. }), None) => Ok(Removal::Changed),
        (Err(error), _) => Err(error),
    }
}

/// Git makes two files, one after the other, and stumbles over either.
fn lock(repository: &Repository) -> Result<Option<Lock>, Error> {
    for name in ["packed-refs.lock", "packed-refs.new"] {
        let path = repository.real.common.join(name);
        match fs::symlink_metadata(&path).and_then(|stat| stat.modified()) {
            Ok(since) => return Ok(Some(Lock { path, since })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(files("look at", &path)(error)),
        }
    }
    Ok(None)
}
