//! References of ours that nobody needs any more: which there are, and how they go.
//!
//! Which of them go is decided elsewhere (`retention`). Here they are read, and removed in transactions that
//! verify what was decided over: a task that somebody has taken up again meanwhile keeps all of its own.
//!
//! To remove a reference, git locks the file of packed ones, for people's git as well as for ours. When we are killed
//! it gives that lock back by itself; when git is, the lock stays, and says nothing about whose it is. So a note of
//! ours lies beside it for as long as we remove something. With that note, a lock that is older than any git would
//! hold it is ours to clear away.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::error::{Error, files, git};
use super::landed::{self, Landed};
use super::lease::{self, Last};
use super::names::{Oid, RefName, Says, Task};
use super::objects::Objects;
use super::refs::{self, Line};
use super::repository::Repository;
use crate::durable;

/// What the references of a task name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub task: Task,
    /// By attempt.
    pub candidates: BTreeMap<u64, Oid>,
    pub lease: Option<Oid>,
    pub landed: Option<Oid>,
}

/// Every task that has a reference below `refs/agency`.
pub fn named(repository: &Repository) -> Result<Vec<Named>, Error> {
    let _acting = repository.act()?;
    let arguments = ["for-each-ref", "--format=%(objectname) %(refname)", "refs/agency/"];
    let listed = repository.refs.run(arguments).map_err(git("list references"))?;
    let mut tasks: BTreeMap<Task, Named> = BTreeMap::new();
    for line in String::from_utf8_lossy(&listed).lines() {
        let Some((object, name)) = line.split_once(' ') else { continue };
        let Some((task, says)) = RefName::parse(name).ok().and_then(|name| Says::read(&name)) else {
            continue;
        };
        let object = Oid::parse(object)?;
        let (candidates, lease, landed) = Default::default();
        let named = tasks.entry(task.clone()).or_insert_with(|| Named { task, candidates, lease, landed });
        match says {
            Says::Lease => named.lease = Some(object),
            Says::Landed => named.landed = Some(object),
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
    let _acting = repository.act()?;
    let known = repository.ask(|objects| {
        let mut candidates = Vec::new();
        for (epoch, commit) in &named.candidates {
            candidates.push(Made { epoch: *epoch, commit: commit.clone(), at: date(objects, commit)? });
        }
        let lease =
            named.lease.clone().map(|object| lease::parse(objects, &named.task, object)).transpose()?;
        let landed = named.landed.clone().map(|object| landed::parse(objects, object)).transpose()?;
        let landed_at = landed.as_ref().map(|landed| date(objects, &landed.commit)).transpose()?.flatten();
        Ok(Known { task: named.task.clone(), candidates, lease, landed, landed_at })
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

/// Removes references: for each task what it loses, with what has to be so meanwhile. What is not so any more stays.
pub fn remove(repository: &Repository, tasks: &[Vec<Line>]) -> Result<(), Error> {
    let _acting = repository.act()?;
    for some in tasks.chunks(TOGETHER) {
        let _turn = repository.landing.take()?;
        if !removed(repository, &some.concat())? {
            // One of them is somebody's again; the others need not wait for it.
            for lines in some {
                removed(repository, lines)?;
            }
        }
    }
    Ok(())
}

/// Clears away what a git that was killed left. It is nobody else's turn to remove something.
pub fn recover(repository: &Repository) -> Result<(), Error> {
    let _acting = repository.act()?;
    let _turn = repository.landing.take()?;
    clear(repository)
}

/// `false` if the references are not as they were seen, or somebody else has them locked.
fn removed(repository: &Repository, lines: &[Line]) -> Result<bool, Error> {
    clear(repository)?;
    let note = repository.place.join(NOTE);
    durable::mark(&note).map_err(files("write", &note))?;
    let moved = refs::transact(repository, lines);
    clear(repository)?;
    match moved {
        Ok(()) => Ok(true),
        Err(Error::Refs { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// There while we remove something.
const NOTE: &str = "removing";
/// No git holds the lock of packed references for so long, however many there are.
const LONG: Duration = Duration::from_secs(60);

/// Forgets the note, and with it a lock that was left. While there is one that may be somebody's, the note stays.
fn clear(repository: &Repository) -> Result<(), Error> {
    let (note, packed) = (repository.place.join(NOTE), repository.real.common.join("packed-refs"));
    if !note.exists() {
        return Ok(());
    }
    let lock = packed.with_extension("lock");
    match fs::symlink_metadata(&lock).and_then(|stat| stat.modified()) {
        Ok(changed) if changed.elapsed().is_ok_and(|age| age > LONG) => {
            // While the lock is there, nobody else writes this one.
            gone(&packed.with_extension("new"))?;
            gone(&lock)?;
        }
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(files("look at", &lock)(error)),
    }
    gone(&note)
}

fn gone(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files("remove", path)(error)),
        _ => Ok(()),
    }
}
