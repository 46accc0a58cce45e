//! References: reading them as they are now, and moving several at once or none.
//!
//! A [`RefTransaction`] is prepared first: git locks every reference it names and checks that each has the expected value.
//! No other process can move one of them until the transaction is committed or dropped. Git holds the locks, in a
//! process of its own, and removes them when it reads the end of its input: also when this process is killed.
//!
//! All processes of ours take turns (`refs.lock`). Git gets the lock as its error output, so the lock is held for as long as
//! that git lives, even when the process that started it is dead. So the process that holds `refs.lock` knows that a git
//! that was killed left any lock file below `refs/agency`, and removes the file. The lock of a branch may be a person's
//! (`stale_locks`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;

pub use super::ref_mover::{RefCommand, ReflogReason};

use super::error::Error;
use super::file_access::read_text;
use super::names::{Oid, RefName};
use super::process_lock::ProcessLockGuard;
use super::ref_mover::RefMover;
use super::repository::LandingRepository;
use super::spare_objects;

/// The value of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefValue {
    pub at: Oid,
    /// The reference that it points to, where it is symbolic.
    pub alias_of: Option<RefName>,
}

/// Reads the references that exist of these.
///
/// Reads them as git does: first their own files, then the file of packed references, which git writes before it
/// removes the others. The values may be old a moment later; a transaction finds out.
pub fn read(repository: &LandingRepository, names: &[RefName]) -> Result<BTreeMap<RefName, RefValue>, Error> {
    let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
    for name in names {
        let (end, alias_of) = follow(repository, name)?;
        match read_text(&repository.real.common.join(end.as_str()))? {
            Some(text) => {
                let at = Oid::parse(text.trim_end())?;
                found.insert(name.clone(), RefValue { at, alias_of });
            }
            None => missing.push((name, end, alias_of)),
        }
    }
    if !missing.is_empty() {
        let packed = read_text(&repository.real.common.join("packed-refs"))?.unwrap_or_default();
        for (name, end, alias_of) in missing {
            if let Some(at) = find_packed(&packed, &end)? {
                found.insert(name.clone(), RefValue { at, alias_of });
            }
        }
    }
    Ok(found)
}

/// The commit, or other object, that a reference names.
pub fn at(repository: &LandingRepository, name: &RefName) -> Result<Option<Oid>, Error> {
    Ok(read(repository, std::slice::from_ref(name))?.remove(name).map(|found| found.at))
}

/// The tree of a commit.
pub fn tree_of(repository: &LandingRepository, commit: &Oid) -> Result<Oid, Error> {
    repository.ask(|objects| objects.tree_of(commit))
}

/// `<object> <name>` on a line.
fn find_packed(packed: &str, name: &RefName) -> Result<Option<Oid>, Error> {
    let line = packed.lines().find_map(|line| line.strip_suffix(name.as_str())?.strip_suffix(' '));
    line.map(Oid::parse).transpose()
}

/// How many symbolic references are followed; more is a cycle.
const LINKS: usize = 5;

/// Follows symbolic references. Returns the last one, and the same as `Some` if it is another than the given one.
fn follow(repository: &LandingRepository, name: &RefName) -> Result<(RefName, Option<RefName>), Error> {
    let mut end = name.clone();
    for _ in 0..LINKS {
        // A symbolic reference is always a file of its own, or, in old repositories, a link; it is never packed.
        let path = repository.real.common.join(end.as_str());
        let text = match fs::read_link(&path) {
            Ok(target) if target.as_os_str().as_bytes().starts_with(b"refs/") => {
                format!("ref: {}", target.to_string_lossy())
            }
            _ => read_text(&path)?.unwrap_or_default(),
        };
        match text.strip_prefix("ref:") {
            Some(other) => end = RefName::parse(other.trim())?,
            None => return Ok((end.clone(), (end != *name).then_some(end))),
        }
    }
    Err(Error::Name { what: "a branch", name: name.as_str().to_owned() })
}

/// The reference to which a symbolic reference leads in the end.
pub fn resolve(repository: &LandingRepository, name: &RefName) -> Result<RefName, Error> {
    Ok(follow(repository, name)?.0)
}

/// A prepared transaction: git has locked every reference and checked its value.
#[derive(Debug)]
pub struct RefTransaction<'a> {
    repository: &'a LandingRepository,
    mover: RefMover,
    /// Released after git has ended.
    _turn: ProcessLockGuard<'a>,
}

impl<'a> RefTransaction<'a> {
    pub fn prepare(
        repository: &'a LandingRepository,
        lines: &[RefCommand],
        reason: &ReflogReason<'_>,
    ) -> Result<Self, Error> {
        restoring(repository, lines, || Self::prepare_once(repository, lines, reason))
    }

    fn prepare_once(
        repository: &'a LandingRepository,
        lines: &[RefCommand],
        reason: &ReflogReason<'_>,
    ) -> Result<Self, Error> {
        let mover = RefMover::start(repository.ref_files(), Some(reason))?;
        let turn = mover.turn(repository.ref_files())?;
        let mut transaction = Self { repository, mover, _turn: turn };
        transaction.mover.prepare(repository.ref_files(), lines)?;
        Ok(transaction)
    }

    /// Moves all references. After an error, the caller has to read which of them moved.
    pub fn commit(mut self) -> Result<(), Error> {
        self.mover.commit(self.repository.ref_files())
    }
}

impl Drop for RefTransaction<'_> {
    fn drop(&mut self) {
        self.mover.close(self.repository.ref_files());
    }
}

/// Moves references of our own, for which git keeps no log. If a garbage collection removes objects that they name
/// meanwhile, the objects are written again from their spare copies.
pub(super) fn transact(repository: &LandingRepository, lines: &[RefCommand]) -> Result<(), Error> {
    let collector = spare_objects::running_gc(repository);
    restoring(repository, lines, || transact_once(repository, lines))?;
    spare_objects::recheck_after_gc(repository, collector, &named_by(lines));
    Ok(())
}

/// Tries again what git refused, if objects were missing that could be written again.
fn restoring<T>(
    repository: &LandingRepository,
    lines: &[RefCommand],
    attempt: impl Fn() -> Result<T, Error>,
) -> Result<T, Error> {
    match attempt() {
        Err(Error::Refs { .. }) if spare_objects::restore_missing(repository, named_by(lines))? => attempt(),
        done => done,
    }
}

/// The objects that the commands make references name.
pub(super) fn named_by(lines: &[RefCommand]) -> Vec<&Oid> {
    let updates = lines.iter().filter_map(|line| match line {
        RefCommand::Update { to, .. } => Some(to),
        RefCommand::Verify { .. } | RefCommand::Delete { .. } => None,
    });
    updates.collect()
}

fn transact_once(repository: &LandingRepository, lines: &[RefCommand]) -> Result<(), Error> {
    let start = || RefMover::start(repository.ref_files(), None);
    repository.movers.with(start, |mover| {
        let _turn = mover.turn(repository.ref_files())?;
        mover.prepare(repository.ref_files(), lines)?;
        mover.commit(repository.ref_files())
    })
}
