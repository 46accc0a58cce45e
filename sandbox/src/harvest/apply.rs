//! Putting the work into a live folder: all of it, or nothing.
//!
//! Here the overlay's lower layer is the folder a person is working in, so first every path is compared with
//! what the agent started from, and one that changed meanwhile refuses the whole. Then
//!
//! 1. new contents are written into a stage, a directory on the same file system, durably;
//! 2. a [journal](super::journal) lists the operations, durably;
//! 3. each operation is one rename between the stage and the folder. Whatever it displaces is kept in the
//!    stage, also something that appeared a moment ago, so nothing is ever overwritten;
//! 4. the displaced entries are compared once more with those that were checked;
//! 5. the journal says "applied", durably, and the stage is removed.
//!
//! Up to 5 everything can be undone, by the same code after an error and after a crash
//! ([`recover`](super::recover)).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::journal::{Action, Desk, Identity, Journal, Operation, Phase, failed};
use super::tree::{self, CHUNK, Kind};
use super::{Change, Entry};
use crate::path::RelPath;

pub use super::recover::{Recovery, recover, recover_observed};

/// A moment, on the clock that stamps a file system's changes. Only that clock can be compared with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Mark {
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl Mark {
    /// Now, by the change time of a file made in this directory for the purpose, without a name where the
    /// file system knows such.
    pub fn now(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let mode = Mode::from_raw_mode(0o600);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = match fs::openat(directory, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => file,
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let name = format!(".agency-mark-{}", std::process::id());
                let made = fs::openat(directory, &name, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
                fs::unlinkat(directory, &name, AtFlags::empty())?;
                made
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self::of(&fs::fstat(file)?))
    }

    fn of(stat: &Stat) -> Self {
        Self { seconds: stat.st_ctime as i64, nanoseconds: stat.st_ctime_nsec as i64 }
    }
}

/// What is to be applied, and where.
#[derive(Debug, Clone, Copy)]
pub struct Apply<'a> {
    /// Of a harvest without violations.
    pub changes: &'a [Change],
    pub upper: BorrowedFd<'a>,
    /// The folder that was the overlay's lower layer.
    pub live: BorrowedFd<'a>,
    /// Taken in the live folder before the overlay was mounted.
    pub started: Mark,
    /// A directory of ours, outside the live folder, where a crash can be recovered from.
    pub journal: BorrowedFd<'a>,
}

/// A path that keeps the whole from being applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Conflict {
    pub path: RelPath,
    pub reason: ConflictReason,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConflictReason {
    Changed,
    Gone,
    Appeared,
    /// A directory above it is a link or a file now.
    ParentReplaced,
    /// The directory it takes the place of holds something that is not part of the work.
    DirectoryInUse,
    Unreadable {
        error: String,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.path)?;
        match &self.reason {
            ConflictReason::Changed => f.write_str("changed in the folder since the agent started"),
            ConflictReason::Gone => f.write_str("was deleted from the folder since the agent started"),
            ConflictReason::Appeared => f.write_str("appeared in the folder since the agent started"),
            ConflictReason::ParentReplaced => {
                f.write_str("lies below something that is no directory any more")
            }
            ConflictReason::DirectoryInUse => {
                f.write_str("is a directory in the folder, with something in it that is not part of the work")
            }
            ConflictReason::Unreadable { error } => write!(f, "can't be looked at: {error}"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("nothing was applied: {}", list(.0))]
    Conflicts(Vec<Conflict>),
    #[error("an earlier apply did not end; recover from it first")]
    Pending,
    #[error("another apply or recovery is under way")]
    Busy,
    #[error("can't {what}")]
    Io { what: &'static str, source: io::Error },
    #[error("{path} can't be applied")]
    Path { path: RelPath, source: io::Error },
    #[error("the journal is damaged")]
    Journal(#[source] serde_json::Error),
    #[error("the journal has version {found}, which this program does not know")]
    Version { found: u32 },
    #[error("the stage `{stage}` is not in this folder")]
    NoStage { stage: String },
    /// Something else took the place of what was to be put back, so that is kept aside.
    #[error("undone, but what belongs at {} is kept in `{stage}`: something else is there now", paths(.kept))]
    Kept { stage: String, kept: Vec<RelPath> },
    #[error("undoing it failed: {undo}; recover later")]
    Unfinished { undo: Box<ApplyError>, source: Box<ApplyError> },
    /// Only the observer of [`apply_observed`] asks for this.
    #[error("stopped as after a crash")]
    Stopped,
}

fn list(conflicts: &[Conflict]) -> String {
    let mut shown: Vec<String> = conflicts.iter().take(10).map(Conflict::to_string).collect();
    if conflicts.len() > shown.len() {
        shown.push(format!("and {} more", conflicts.len() - shown.len()));
    }
    shown.join("; ")
}

fn paths(paths: &[RelPath]) -> String {
    paths.iter().map(RelPath::to_string).collect::<Vec<_>>().join(", ")
}

/// What was just done. A crash is possible after each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Checked,
    Announced,
    StageMade,
    Staged,
    Prepared,
    Operated,
    Synced,
    Committed,
    Undone,
    RolledBack,
    Tidied,
    StageRemoved,
    Forgotten,
}

pub(super) type Observer<'a> = &'a mut dyn FnMut(Step) -> ControlFlow<()>;

/// Reports a step, and stops dead if the observer wants to see what a crash here leaves.
pub(super) fn passed(observer: Observer<'_>, step: Step) -> Result<(), ApplyError> {
    match observer(step) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(ApplyError::Stopped),
    }
}

/// Applies all changes, or returns why none was.
pub fn apply(work: &Apply<'_>) -> Result<(), ApplyError> {
    apply_observed(work, &mut |_| ControlFlow::Continue(()))
}

/// Like [`apply`], telling the observer each step. When it breaks, everything is left as a crash would.
pub fn apply_observed(work: &Apply<'_>, observer: Observer<'_>) -> Result<(), ApplyError> {
    let desk = Desk::lock(work.journal)?;
    if desk.read()?.is_some() {
        return Err(ApplyError::Pending);
    }
    let plan = Plan::check(work)?;
    if plan.steps.is_empty() {
        return Ok(());
    }
    passed(observer, Step::Checked)?;

    let mut journal = Journal::new(stage_name(work.live)?);
    desk.write(&journal)?;
    let done = carry_out(work, &plan, &desk, &mut journal, observer);
    match done {
        Ok(()) | Err(ApplyError::Stopped) => done,
        Err(error) => match super::recover::resume(&desk, work.live, &journal, observer) {
            Ok(Recovery::RolledBack { kept }) if !kept.is_empty() => {
                Err(ApplyError::Kept { stage: journal.stage, kept })
            }
            // The last write of the journal failed, and yet it arrived.
            Ok(Recovery::Finished) => Ok(()),
            Ok(_) => Err(error),
            Err(undo) => Err(ApplyError::Unfinished { undo: Box::new(undo), source: Box::new(error) }),
        },
    }
}

/// A name of the live folder that is free.
fn stage_name(live: BorrowedFd<'_>) -> Result<String, ApplyError> {
    let mut number = 0;
    loop {
        let name = format!(".agency-apply-{}-{number}", std::process::id());
        match tree::look(live, name.as_bytes()).map_err(failed("look for a free name"))? {
            None => return Ok(name),
            Some(_) => number += 1,
        }
    }
}

fn carry_out(
    work: &Apply<'_>,
    plan: &Plan,
    desk: &Desk,
    journal: &mut Journal,
    observer: Observer<'_>,
) -> Result<(), ApplyError> {
    passed(observer, Step::Announced)?;
    fs::mkdirat(work.live, &journal.stage, Mode::from_raw_mode(0o700)).map_err(failed("make the stage"))?;
    let stage_path = RelPath::root().join(journal.stage.as_bytes());
    let stage = tree::open_directory(work.live, &stage_path).map_err(failed("open the stage"))?;
    passed(observer, Step::StageMade)?;

    journal.operations = plan.stage(work, stage.as_fd(), observer)?;
    fs::fsync(work.live).map_err(failed("make the stage durable"))?;
    journal.phase = Phase::Applying;
    desk.write(journal)?;
    passed(observer, Step::Prepared)?;

    for operation in &journal.operations {
        operate(work.live, stage.as_fd(), operation)?;
        passed(observer, Step::Operated)?;
    }
    plan.verify_displaced(stage.as_fd(), &journal.operations)?;
    sync_parents(work.live, stage.as_fd(), &journal.operations)?;
    passed(observer, Step::Synced)?;

    // If this fails, what the disk says is unknown, so it is read back before anything is undone.
    let mut applied = journal.clone();
    applied.phase = Phase::Applied;
    let written = desk.write(&applied);
    if written.is_ok() || desk.read().ok().flatten().is_some_and(|read| read.phase == Phase::Applied) {
        *journal = applied;
    }
    written?;
    passed(observer, Step::Committed)?;
    super::recover::clear(desk, work.live, journal, observer)
}

/// One thing to do, decided before anything is done.
struct Planned<'a> {
    path: &'a RelPath,
    /// What is there now.
    live: Option<Stat>,
    after: Option<&'a Entry>,
    /// Who will own it, unless it takes over from something live.
    owner: (u32, u32),
}

struct Plan<'a> {
    /// Deletions, then everything that is put in place.
    steps: Vec<Planned<'a>>,
    /// To be made, the outer ones first.
    directories: BTreeMap<RelPath, (u32, u32)>,
    /// Every path that is to go, also below a directory that goes as a whole.
    deleted: HashSet<&'a RelPath>,
}

impl<'a> Plan<'a> {
    /// Compares every path with what the agent started from.
    fn check(work: &Apply<'a>) -> Result<Self, ApplyError> {
        let deleted = work.changes.iter().filter(|change| change.after.is_none()).map(|change| &change.path);
        let mut plan = Self { steps: Vec::new(), directories: BTreeMap::new(), deleted: deleted.collect() };
        let mut conflicts = Vec::new();
        for change in work.changes {
            if let Err(reason) = plan.check_one(work, change) {
                conflicts.push(Conflict { path: change.path.clone(), reason });
            }
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        // A directory that gives way to a file goes as a whole, so what is in it needs no step of its own.
        let displaced: HashSet<RelPath> = plan
            .steps
            .iter()
            .filter(|step| step.displaces_directory())
            .map(|step| step.path.clone())
            .collect();
        plan.steps.retain(|step| {
            step.after.is_some()
                || displaced.is_empty()
                || !step.path.ancestors().any(|above| displaced.contains(&above))
        });
        plan.steps.sort_by_key(|step| step.after.is_some());
        Ok(plan)
    }

    fn check_one(&mut self, work: &Apply<'a>, change: &'a Change) -> Result<(), ConflictReason> {
        let (above, missing) = self.nearest_directory(work.live, &change.path)?;
        let directory = tree::open_directory(work.live, &above).map_err(unreadable)?;
        let parent = fs::fstat(&directory).map_err(unreadable)?;
        let live = match missing.is_empty() {
            true => tree::look(directory.as_fd(), change.path.name()).map_err(unreadable)?,
            false => None,
        };
        match (&change.before, &live) {
            (None, None) => {
                // A copy of something that was here: then somebody deleted that, if names here changed at all.
                // A file the agent moved in from elsewhere is a copy too, of another path.
                if Mark::of(&parent) >= work.started && is_copied_up(work.upper, change) {
                    return Err(ConflictReason::Gone);
                }
            }
            (None, Some(stat)) if tree::kind(stat) == Kind::Directory => {
                if !self.holds_only_deleted(directory.as_fd(), change.path.name(), &change.path)? {
                    return Err(ConflictReason::DirectoryInUse);
                }
            }
            (None, Some(_)) => return Err(ConflictReason::Appeared),
            (Some(_), None) => return Err(ConflictReason::Gone),
            (Some(before), Some(stat)) => {
                let target = || tree::read_link(directory.as_fd(), change.path.name()).ok();
                let same = match (before, tree::kind(stat)) {
                    (Entry::File { executable, size }, Kind::File) => {
                        *executable == tree::is_executable(stat) && *size == tree::size(stat)
                    }
                    (Entry::Symlink { target: was }, Kind::Symlink) => target().as_ref() == Some(was),
                    _ => false,
                };
                if !same || Mark::of(stat) >= work.started {
                    return Err(ConflictReason::Changed);
                }
            }
        }
        let owner = (parent.st_uid, parent.st_gid);
        if change.after.is_some() {
            self.directories.extend(missing.into_iter().map(|path| (path, owner)));
        }
        self.steps.push(Planned { path: &change.path, live, after: change.after.as_ref(), owner });
        Ok(())
    }

    /// The innermost directory above a path that is there and stays, and those that must be made below it.
    fn nearest_directory(
        &self,
        live: BorrowedFd<'_>,
        path: &RelPath,
    ) -> Result<(RelPath, Vec<RelPath>), ConflictReason> {
        let mut missing = Vec::new();
        for above in path.ancestors() {
            match tree::open_directory(live, &above) {
                Ok(_) => return Ok((above, missing)),
                Err(Errno::NOENT) => missing.push(above),
                // A file or link that the work deletes makes room for a directory.
                Err(Errno::NOTDIR | Errno::LOOP) if self.deleted.contains(&above) => missing.push(above),
                Err(Errno::NOTDIR | Errno::LOOP)
                    if above.ancestors().any(|further| self.deleted.contains(&further)) =>
                {
                    missing.push(above);
                }
                Err(Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => return Err(ConflictReason::ParentReplaced),
                Err(error) => return Err(unreadable(error)),
            }
        }
        Err(ConflictReason::ParentReplaced)
    }

    /// Whether a directory holds nothing but directories and what the work deletes.
    fn holds_only_deleted(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        path: &RelPath,
    ) -> Result<bool, ConflictReason> {
        let mut waiting = vec![RelPath::root().join(name)];
        while let Some(inner) = waiting.pop() {
            let directory = tree::open_directory(parent, &inner).map_err(unreadable)?;
            for name in tree::names(directory.as_fd(), usize::MAX - 1).map_err(unreadable)? {
                let Some(stat) = tree::look(directory.as_fd(), &name).map_err(unreadable)? else { continue };
                let inner = inner.join(&name);
                if tree::kind(&stat) == Kind::Directory {
                    waiting.push(inner);
                    continue;
                }
                let below = inner.components().skip(1).fold(path.clone(), |path, name| path.join(name));
                if !self.deleted.contains(&below) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Writes every new content into the stage, and gives the operations that will put it in place.
    fn stage(
        &self,
        work: &Apply<'_>,
        stage: BorrowedFd<'_>,
        observer: Observer<'_>,
    ) -> Result<Vec<Operation>, ApplyError> {
        // Syncing one by one is the cheaper way for a few files, and far the dearer for thousands.
        let one_by_one = self.steps.len() <= 64;
        let mut puts = Vec::new();
        let mut operations = Vec::new();
        for (slot, step) in self.steps.iter().enumerate() {
            let old = step.live.as_ref().map(Identity::of);
            let action = match (step.after, old) {
                (None, Some(old)) => {
                    let action = Action::Delete { slot, old };
                    operations.push(Operation { path: step.path.clone(), action });
                    continue;
                }
                (None, None) => continue,
                (Some(after), old) => {
                    let new = step
                        .write(work.upper, stage, &slot_name("new", slot), after, one_by_one)
                        .map_err(|source| ApplyError::Path { path: step.path.clone(), source })?;
                    passed(observer, Step::Staged)?;
                    match old {
                        None => Action::Add { slot, new },
                        Some(old) => Action::Replace { slot, new, old },
                    }
                }
            };
            puts.push(Operation { path: step.path.clone(), action });
        }
        match one_by_one {
            true => fs::fsync(stage),
            false => fs::syncfs(stage),
        }
        .map_err(failed("make the stage durable"))?;
        let directories = self.directories.keys();
        operations
            .extend(directories.map(|path| Operation { path: path.clone(), action: Action::MakeDirectory }));
        operations.extend(puts);
        Ok(operations)
    }

    /// What moved into the stage must be what was checked: a person may have saved a file in between.
    fn verify_displaced(&self, stage: BorrowedFd<'_>, operations: &[Operation]) -> Result<(), ApplyError> {
        for operation in operations {
            let (slot, old) = match operation.action {
                Action::Delete { slot, old } | Action::Replace { slot, old, .. } => (slot, old),
                Action::Add { .. } | Action::MakeDirectory => continue,
            };
            let in_path =
                |source: Errno| ApplyError::Path { path: operation.path.clone(), source: source.into() };
            let mut name = slot_name("old", slot);
            let mut found = tree::look(stage, name.as_bytes()).map_err(in_path)?;
            if found.is_none() {
                name = slot_name("new", slot);
                found = tree::look(stage, name.as_bytes()).map_err(in_path)?;
            }
            let mut same = found.is_some_and(|stat| old.is(&stat));
            if same && old.is_directory() {
                same = self.holds_only_deleted(stage, name.as_bytes(), &operation.path).unwrap_or(false);
            }
            if !same {
                return Err(conflict(&operation.path, ConflictReason::Changed));
            }
        }
        Ok(())
    }
}

fn unreadable(error: Errno) -> ConflictReason {
    ConflictReason::Unreadable { error: io::Error::from(error).to_string() }
}

fn conflict(path: &RelPath, reason: ConflictReason) -> ApplyError {
    ApplyError::Conflicts(vec![Conflict { path: path.clone(), reason }])
}

/// Overlayfs marks what it copied up from the lower layer.
fn is_copied_up(upper: BorrowedFd<'_>, change: &Change) -> bool {
    matches!(change.after, Some(Entry::File { .. }))
        && tree::unlock_file(upper, &change.path)
            .and_then(|(file, _)| tree::marks(file.as_fd()))
            .is_ok_and(|marks| marks.origin)
}

impl Planned<'_> {
    fn displaces_directory(&self) -> bool {
        self.live.as_ref().is_some_and(|stat| tree::kind(stat) == Kind::Directory)
    }

    /// One new content in the stage, with its final owner and mode.
    fn write(
        &self,
        upper: BorrowedFd<'_>,
        stage: BorrowedFd<'_>,
        name: &str,
        after: &Entry,
        durably: bool,
    ) -> io::Result<Identity> {
        let leaf = self.live.as_ref().filter(|stat| tree::kind(stat) != Kind::Directory);
        let owner = leaf.map_or(self.owner, |stat| (stat.st_uid, stat.st_gid));
        match after {
            Entry::Symlink { target } => {
                fs::symlinkat(target.as_slice(), stage, name)?;
                if rustix::process::geteuid().is_root() {
                    let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
                    fs::chownat(stage, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                }
            }
            Entry::File { executable, size } => {
                let (mut source, _) = tree::unlock_file(upper, &RelPath::clone(self.path))?;
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = fs::openat(stage, name, flags, Mode::from_raw_mode(0o600))?;
                let mut file = std::fs::File::from(file);
                let mut left = *size;
                let mut buffer =
                    vec![0; CHUNK.min(usize::try_from(*size).unwrap_or(CHUNK).saturating_add(1))];
                loop {
                    let length = tree::fill(&mut source, &mut buffer)?;
                    left = left.checked_sub(length as u64).ok_or(io::ErrorKind::InvalidData)?;
                    file.write_all(&buffer[..length])?;
                    if length < buffer.len() {
                        break;
                    }
                }
                if left > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if rustix::process::geteuid().is_root() {
                    fs::fchown(&file, Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)))?;
                }
                let live = leaf.filter(|stat| tree::kind(stat) == Kind::File);
                fs::fchmod(&file, Mode::from_raw_mode(mode(live, *executable)))?;
                if durably {
                    file.sync_all()?;
                }
            }
        }
        let stat = tree::look(stage, name.as_bytes())?.ok_or(Errno::NOENT)?;
        Ok(Identity::of(&stat))
    }
}

/// Nothing of the agent's mode counts but the executable bit. A file that was there keeps its other bits,
/// except those that would give new content another's rights.
fn mode(live: Option<&Stat>, executable: bool) -> u32 {
    match (live, executable) {
        (Some(stat), _) if tree::is_executable(stat) == executable => stat.st_mode & 0o777,
        // Whoever may read it may execute it, as git does.
        (Some(stat), true) => stat.st_mode & 0o777 | (stat.st_mode & 0o444) >> 2 | 0o100,
        (Some(stat), false) => stat.st_mode & 0o666,
        (None, true) => 0o755,
        (None, false) => 0o644,
    }
}

pub(super) fn slot_name(which: &str, slot: usize) -> String {
    format!("{which}-{slot}")
}

fn operate(live: BorrowedFd<'_>, stage: BorrowedFd<'_>, operation: &Operation) -> Result<(), ApplyError> {
    let path = &operation.path;
    let in_path = |source: Errno| match source {
        Errno::EXIST => conflict(path, ConflictReason::Appeared),
        Errno::NOENT => conflict(path, ConflictReason::Gone),
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV => conflict(path, ConflictReason::ParentReplaced),
        other => ApplyError::Path { path: path.clone(), source: other.into() },
    };
    let parent = parent_of(live, path).map_err(in_path)?;
    let (parent, name) = (parent.as_fd(), path.name());
    match &operation.action {
        Action::Delete { slot, .. } => {
            move_to_free(parent, name, stage, slot_name("old", *slot).as_bytes()).map_err(in_path)
        }
        Action::MakeDirectory => make_directory(parent, name).map_err(in_path),
        Action::Add { slot, .. } => {
            move_to_free(stage, slot_name("new", *slot).as_bytes(), parent, name).map_err(in_path)
        }
        Action::Replace { slot, .. } => {
            let new = slot_name("new", *slot);
            match fs::renameat_with(stage, &new, parent, name, RenameFlags::EXCHANGE) {
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    move_to_free(parent, name, stage, slot_name("old", *slot).as_bytes()).map_err(in_path)?;
                    move_to_free(stage, new.as_bytes(), parent, name).map_err(in_path)
                }
                other => other.map_err(in_path),
            }
        }
    }
}

pub(super) fn parent_of(live: BorrowedFd<'_>, path: &RelPath) -> Result<OwnedFd, Errno> {
    tree::open_directory(live, &path.parent().ok_or(Errno::INVAL)?)
}

/// A rename that never overwrites.
pub(super) fn move_to_free(
    from: BorrowedFd<'_>,
    name: &[u8],
    to: BorrowedFd<'_>,
    free: &[u8],
) -> Result<(), Errno> {
    match fs::renameat_with(from, name, to, free, RenameFlags::NOREPLACE) {
        // Network file systems know no flags. Looking first leaves a gap, but a small one.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match tree::look(to, free)? {
            Some(_) => Err(Errno::EXIST),
            None => fs::renameat(from, name, to, free),
        },
        other => other,
    }
}

/// The owner of a new directory is that of the one around it.
fn make_directory(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    fs::mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
    if rustix::process::geteuid().is_root() {
        let stat = fs::fstat(parent)?;
        let made = tree::open_directory(parent, &RelPath::root().join(name))?;
        fs::fchown(made, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    }
    Ok(())
}

/// Makes the renames durable: those of a few directories one by one, of many by syncing the file system.
pub(super) fn sync_parents(
    live: BorrowedFd<'_>,
    stage: BorrowedFd<'_>,
    operations: &[Operation],
) -> Result<(), ApplyError> {
    let what = "make the changes durable";
    let parents: BTreeSet<RelPath> =
        operations.iter().filter_map(|operation| operation.path.parent()).collect();
    if parents.len() > 64 {
        return fs::syncfs(live).map_err(failed(what));
    }
    for parent in parents {
        match tree::open_directory(live, &parent) {
            Ok(directory) => fs::fsync(directory).map_err(failed(what))?,
            // Undone: the directory was made by an operation.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(failed(what)(error)),
        }
    }
    fs::fsync(stage).map_err(failed(what))
}
