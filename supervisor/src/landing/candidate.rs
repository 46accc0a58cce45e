//! What an attempt made, as a commit at `refs/agency/<task>/<epoch>`.
//!
//! Contents go to git as bytes on its input, from files opened by descriptor in what the agent left. Git sees
//! neither that tree nor a name of it that it could obey: blobs are raw, no filter, attribute or line ending
//! changes a byte. Then the commit is compared with the harvest: it changes exactly the paths that were
//! judged, or it is not used.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;

use agency_sandbox::git::{OwnGit, quote};
use agency_sandbox::harvest::{Change, Entry, Harvest};
use agency_sandbox::path::RelPath;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::commit::Statement;
use super::difference::{self, Kind};
use super::error::Error;
use super::lease::Lease;
use super::names::Oid;
use super::objects::Objects;
use super::refs::{self, Line, Reason};
use super::repository::Repository;

/// What the agent left, and what it started from.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a> {
    /// Without violations.
    pub harvest: &'a Harvest,
    /// The layer that was harvested.
    pub upper: BorrowedFd<'a>,
    /// The commit the agent started from.
    pub base: &'a Oid,
}

/// Makes the commit; nothing refers to it yet. `None` when the agent changed nothing.
pub fn write(
    repository: &Repository,
    work: &Work<'_>,
    statement: &Statement<'_>,
) -> Result<Option<Oid>, Error> {
    let Harvest { changes, violations, .. } = work.harvest;
    if let Some(first) = violations.first() {
        return Err(Error::Violations { count: violations.len(), first: first.to_string() });
    }
    if changes.is_empty() {
        return Ok(None);
    }
    let commit = import(repository, work, statement)?;
    check(repository, work, &commit)?;
    Ok(Some(commit))
}

/// Keeps a candidate, if the attempt still holds its lease.
pub fn keep(
    repository: &Repository,
    lease: &Lease,
    commit: &Oid,
    who: &super::commit::Signature,
) -> Result<bool, Error> {
    let name = lease.task.candidate(lease.epoch);
    let found = refs::read(repository, std::slice::from_ref(&name))?.remove(&name);
    let lines = [
        Line::Verify { name: lease.task.lease(), at: lease.object.clone() },
        Line::Update { name, from: found.map(|found| found.at), to: commit.clone() },
    ];
    let reason = Reason { who, text: format!("agency: {} made a candidate", lease.task) };
    match refs::transact(repository, &lines, &reason) {
        Ok(()) => Ok(true),
        Err(error) => match super::lease::holds(repository, lease)? {
            // Another process of the same attempt was faster.
            true if read(repository, lease)?.as_ref() == Some(commit) => Ok(true),
            true => Err(error),
            false => Ok(false),
        },
    }
}

fn import(repository: &Repository, work: &Work<'_>, statement: &Statement<'_>) -> Result<Oid, Error> {
    let command = repository.objects.command(["fast-import", "--quiet", "--force", "--done"]);
    let output = OwnGit::run_with(command, "fast-import", |input| {
        // A reference of our own repository, which git insists on. Nobody reads it.
        writeln!(input, "commit refs/made/{}\nmark :1", std::process::id())?;
        writeln!(input, "author {}\ncommitter {}", statement.author, statement.committer)?;
        let message = statement.message();
        writeln!(input, "data {}\n{message}\nfrom {}", message.len(), work.base)?;
        // What goes makes room for what comes: a file for a folder of that name.
        for change in work.harvest.changes.iter().filter(|change| change.after.is_none()) {
            writeln!(input, "D {}", quote(change.path.as_bytes()))?;
        }
        for change in &work.harvest.changes {
            if let Some(entry) = &change.after {
                put(input, work.upper, change, entry)?;
            }
        }
        input.write_all(b"get-mark :1\ndone\n").map_err(Error::Pipe)
    });
    Oid::of_line(&output?)
}

fn put(input: &mut dyn Write, upper: BorrowedFd<'_>, change: &Change, entry: &Entry) -> Result<(), Error> {
    let path = quote(change.path.as_bytes());
    match entry {
        Entry::Symlink { target } => {
            write!(input, "M {} inline {path}\ndata {}\n", Kind::Link.mode(), target.len())?;
            input.write_all(target)?;
        }
        Entry::File { executable, size } => {
            let kind = if *executable { Kind::Program } else { Kind::File };
            let unreadable = |source| Error::Upper { path: change.path.clone(), source };
            let mut file = open(upper, &change.path).map_err(unreadable)?;
            write!(input, "M {} inline {path}\ndata {size}\n", kind.mode())?;
            let copied = copy(&mut Read::by_ref(&mut file).take(*size), input, unreadable)?;
            let more = file.read(&mut [0]).map_err(unreadable)?;
            if copied != *size || more > 0 {
                return Err(Error::Changed { path: change.path.clone() });
            }
        }
    }
    Ok(input.write_all(b"\n")?)
}

/// Tells an error of the file from one of git's input.
fn copy(
    from: &mut dyn Read,
    to: &mut dyn Write,
    unreadable: impl Fn(io::Error) -> Error,
) -> Result<u64, Error> {
    let mut buffer = vec![0; 128 * 1024];
    let mut total = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(total),
            Ok(length) => {
                to.write_all(&buffer[..length])?;
                total += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
}

/// A file of the layer, reached through no link.
fn open(upper: BorrowedFd<'_>, path: &RelPath) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(upper, path.as_path(), flags, Mode::empty(), resolve)?;
    Ok(File::from(file))
}

/// The commit changes what was harvested, and nothing else. A file put into a submodule would drop it.
fn check(repository: &Repository, work: &Work<'_>, commit: &Oid) -> Result<(), Error> {
    let made = difference::between(repository, work.base, commit)?;
    let is_submodule = |one: &&difference::Changed| {
        [&one.old, &one.new].into_iter().flatten().any(|entry| entry.kind == Kind::Submodule)
    };
    if let Some(one) = made.iter().find(is_submodule) {
        return Err(Error::Submodule { path: one.path.clone() });
    }
    let harvested = |one: &difference::Changed, change: &Change| {
        one.path == change.path
            && one.old.is_some() == change.before.is_some()
            && one.new.as_ref().map(|entry| entry.kind) == change.after.as_ref().map(kind)
    };
    let mut changes: Vec<&Change> = work.harvest.changes.iter().collect();
    changes.sort_by(|one, other| one.path.cmp(&other.path));
    let pairs = made.iter().zip(&changes);
    let differs = pairs.clone().find(|(one, change)| !harvested(one, change)).map(|(one, _)| &one.path);
    let longer = || made.get(changes.len()).map(|one| &one.path);
    let shorter = || changes.get(made.len()).map(|change| &change.path);
    match differs.or_else(longer).or_else(shorter) {
        Some(path) => Err(Error::Differs { path: path.clone() }),
        None => Ok(()),
    }
}

fn kind(entry: &Entry) -> Kind {
    match entry {
        Entry::Symlink { .. } => Kind::Link,
        Entry::File { executable: true, .. } => Kind::Program,
        Entry::File { executable: false, .. } => Kind::File,
    }
}

/// The commit an attempt kept.
pub fn read(repository: &Repository, lease: &Lease) -> Result<Option<Oid>, Error> {
    let name = lease.task.candidate(lease.epoch);
    Ok(refs::read(repository, std::slice::from_ref(&name))?.remove(&name).map(|found| found.at))
}

/// The commit a commit was made on; an error unless that is one.
pub fn base_of(repository: &Repository, commit: &Oid) -> Result<Oid, Error> {
    match &Objects::open(repository)?.parents(commit)?[..] {
        [base] => Ok(base.clone()),
        _ => Err(Error::Missing { kind: "commit on one other".to_owned(), object: commit.to_string() }),
    }
}
