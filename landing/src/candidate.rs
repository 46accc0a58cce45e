//! The candidate of an attempt: its work as a commit at `refs/agency/<protocol>/<id>/<epoch>`.
//!
//! Git gets the contents as bytes, from files that we open by descriptor in the layer that the agent left. Git sees
//! neither that tree nor a name in it that it could obey: blobs are raw, no filter, attribute or line ending changes a
//! byte. Then the commit is compared with the harvest: a commit that does not change exactly the judged paths is not
//! used.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;

use agency_sandbox::git::{IsolatedGit, quote};
use agency_sandbox::harvest::{Harvest, HarvestChange, HarvestEntry};
use agency_sandbox::path::RelPath;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::commit::{self, CommitMetadata};
use super::error::{Error, git};
use super::file_access::unique_name;
use super::lease::GitLease;
use super::names::Oid;
use super::objects::ObjectKind;
use super::refs::{self, RefCommand};
use super::repository::LandingRepository;
use super::spare_objects;
use super::tree;
use super::tree_diff::{self, GitTreeEntryKind};

/// The harvested work of an agent, and the commit that it started from.
#[derive(Debug, Clone, Copy)]
pub struct HarvestedWork<'a> {
    /// Without violations.
    pub harvest: &'a Harvest,
    /// The layer that was harvested.
    pub upper: BorrowedFd<'a>,
    /// The commit the agent started from.
    pub base: &'a Oid,
}

/// Makes the commit. No reference names it yet. `None` when the agent changed nothing.
pub fn write(
    repository: &LandingRepository,
    work: &HarvestedWork<'_>,
    statement: &CommitMetadata<'_>,
) -> Result<Option<Oid>, Error> {
    let Harvest { changes, violations, .. } = work.harvest;
    if let Some(first) = violations.first() {
        return Err(Error::Violations { count: violations.len(), first: first.to_string() });
    }
    if changes.is_empty() {
        return Ok(None);
    }
    let size = |change: &HarvestChange| match &change.after {
        Some(HarvestEntry::File { size, .. }) => *size,
        _ => 0,
    };
    let small = changes.len() <= MOST_FILES && changes.iter().map(size).sum::<u64>() <= MOST_BYTES;
    let commit = match small {
        true => make(repository, work, statement)?,
        false => {
            let packed = import(repository, work, statement)?;
            repository.sync_pack()?;
            packed
        }
    };
    check(repository, work, &commit)?;
    Ok(Some(commit))
}

/// Up to this many files, running gits write object by object. For more files, one git writes one pack: that starts two
/// gits, and needs one file.
const MOST_FILES: usize = 64;
const MOST_BYTES: u64 = 4 << 20;

/// Keeps a candidate, if the attempt still holds its lease.
pub fn keep(repository: &LandingRepository, lease: &GitLease, commit: &Oid) -> Result<bool, Error> {
    // The agent may have ended hours ago, and a person may have pruned since.
    spare_objects::ensure_complete(repository, commit)?;
    let lines = [
        RefCommand::Verify { name: lease.task.lease(), at: Some(lease.object.clone()) },
        RefCommand::Update {
            name: lease.task.candidate(lease.epoch),
            from: read(repository, lease)?,
            to: commit.clone(),
        },
    ];
    match refs::transact(repository, &lines) {
        Ok(()) => Ok(true),
        Err(error) => match super::lease::holds(repository, lease)? {
            // Another process of the same attempt was faster.
            true if read(repository, lease)?.as_ref() == Some(commit) => Ok(true),
            true => Err(error),
            false => Ok(false),
        },
    }
}

/// The changes of a candidate as a patch.
pub fn patch(repository: &LandingRepository, base: &Oid, commit: &Oid) -> Result<Vec<u8>, Error> {
    let arguments =
        ["diff-tree", "-p", "--binary", "--full-index", "-M", "--no-ext-diff", "--no-textconv", "--no-color"];
    let run = repository.objects.run(arguments.into_iter().chain([base.as_str(), commit.as_str()]));
    run.map_err(git("write a patch"))
}

fn make(
    repository: &LandingRepository,
    work: &HarvestedWork<'_>,
    statement: &CommitMetadata<'_>,
) -> Result<Oid, Error> {
    let mut puts = Vec::new();
    for change in &work.harvest.changes {
        let entry = match &change.after {
            Some(entry) => {
                let mut contents = Vec::new();
                read_into(&mut contents, work.upper, change, entry)?;
                let object = repository.write_object(ObjectKind::Blob, &contents)?;
                Some(tree_diff::GitTreeEntry { kind: kind(entry), object })
            }
            None => None,
        };
        puts.push((change.path.as_bytes(), entry));
    }
    let tree = repository.ask(|objects| {
        let base = objects.tree_of(work.base)?;
        tree::write(repository, objects, &base, puts)
    })?;
    commit::write(repository, &tree, work.base, statement)
}

fn import(
    repository: &LandingRepository,
    work: &HarvestedWork<'_>,
    statement: &CommitMetadata<'_>,
) -> Result<Oid, Error> {
    let command = repository.objects.command(["fast-import", "--quiet", "--force", "--done"]);
    let output = IsolatedGit::run_with(command, "fast-import", |input| {
        // Git insists on a reference. This one is in our own repository, and is removed again at once.
        let name = format!("refs/made/{}", unique_name());
        writeln!(input, "commit {name}\nmark :1")?;
        writeln!(input, "author {}\ncommitter {}", statement.author, statement.committer)?;
        let message = statement.message();
        writeln!(input, "data {}\n{message}\nfrom {}", message.len(), work.base)?;
        // Removals come first, so that a file can become a folder of that name.
        for change in work.harvest.changes.iter().filter(|change| change.after.is_none()) {
            writeln!(input, "D {}", quote(change.path.as_bytes()))?;
        }
        for change in &work.harvest.changes {
            if let Some(entry) = &change.after {
                put(input, work.upper, change, entry)?;
            }
        }
        writeln!(input, "get-mark :1\nreset {name}\nfrom {}\ndone", repository.format.null_id())
            .map_err(Error::Pipe)
    });
    Oid::of_line(&output?)
}

fn put(
    input: &mut dyn Write,
    upper: BorrowedFd<'_>,
    change: &HarvestChange,
    entry: &HarvestEntry,
) -> Result<(), Error> {
    let size = match entry {
        HarvestEntry::Symlink { target } => target.len() as u64,
        HarvestEntry::File { size, .. } => *size,
    };
    let path = quote(change.path.as_bytes());
    write!(input, "M {} inline {path}\ndata {size}\n", kind(entry).mode())?;
    read_into(input, upper, change, entry)?;
    Ok(input.write_all(b"\n")?)
}

/// Reads the bytes of an entry. The entry must have the size that it had at the harvest.
fn read_into(
    out: &mut dyn Write,
    upper: BorrowedFd<'_>,
    change: &HarvestChange,
    entry: &HarvestEntry,
) -> Result<(), Error> {
    match entry {
        HarvestEntry::Symlink { target } => Ok(out.write_all(target)?),
        HarvestEntry::File { size, .. } => {
            let unreadable = |source| Error::Upper { path: change.path.clone(), source };
            let mut file = open(upper, &change.path).map_err(unreadable)?;
            let copied = copy(&mut Read::by_ref(&mut file).take(*size), out, unreadable)?;
            let more = file.read(&mut [0]).map_err(unreadable)?;
            match copied == *size && more == 0 {
                true => Ok(()),
                false => Err(Error::Changed { path: change.path.clone() }),
            }
        }
    }
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

/// Checks that the commit changes exactly the harvested paths. Git would drop a file that was put into a submodule.
fn check(repository: &LandingRepository, work: &HarvestedWork<'_>, commit: &Oid) -> Result<(), Error> {
    let made = tree_diff::between(repository, work.base, commit)?;
    let is_submodule = |one: &&tree_diff::ChangedPath| {
        [&one.old, &one.new].into_iter().flatten().any(|entry| entry.kind == GitTreeEntryKind::Submodule)
    };
    if let Some(one) = made.iter().find(is_submodule) {
        return Err(Error::Submodule { path: one.path.clone() });
    }
    let harvested = |one: &tree_diff::ChangedPath, change: &HarvestChange| {
        one.path == change.path
            && one.old.is_some() == change.before.is_some()
            && one.new.as_ref().map(|entry| entry.kind) == change.after.as_ref().map(kind)
    };
    let mut changes: Vec<&HarvestChange> = work.harvest.changes.iter().collect();
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

fn kind(entry: &HarvestEntry) -> GitTreeEntryKind {
    match entry {
        HarvestEntry::Symlink { .. } => GitTreeEntryKind::Link,
        HarvestEntry::File { executable: true, .. } => GitTreeEntryKind::Program,
        HarvestEntry::File { executable: false, .. } => GitTreeEntryKind::File,
    }
}

/// The commit that an attempt kept.
pub fn read(repository: &LandingRepository, lease: &GitLease) -> Result<Option<Oid>, Error> {
    refs::at(repository, &lease.task.candidate(lease.epoch))
}

/// The commit a commit was made on; an error unless that is one.
pub fn base_of(repository: &LandingRepository, commit: &Oid) -> Result<Oid, Error> {
    match &repository.ask(|objects| objects.parents(commit))?[..] {
        [base] => Ok(base.clone()),
        _ => Err(Error::Missing { kind: "commit on one other".to_owned(), object: commit.to_string() }),
    }
}
