//! Putting the work into a live folder: all of it, or nothing.
//!
//! Here the overlay's lower layer is the folder a person is working in, so first every path is compared with
//! what the agent started from, and one that changed meanwhile refuses the whole. Then
//!
//! 1. new contents are written into a stage, a directory on the same file system, durably;
//! 2. a journal lists the operations, durably;
//! 3. each operation is one rename between the stage and the folder. What it displaces is kept in the
//!    stage, also something that appeared a moment ago, so nothing is ever overwritten;
//! 4. the displaced entries are compared once more with those that were checked;
//! 5. the journal says "applied", durably, and the stage is removed.
//!
//! Up to 5 everything can be undone, by the same code after an error and after a crash
//! ([`recover`]).

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::HarvestChange;
use super::journal::{ApplyAction, ApplyJournal, ApplyOperation, ApplyPhase, JournalDirectory, failed};
use super::plan::ApplyPlan;
use super::tree;
use crate::path::RelPath;

pub use super::recover::{ApplyRecovery, recover, recover_observed};

/// A moment, on the clock that stamps a file system's changes. Only that clock can be compared with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileClockTime {
    pub seconds: i64,
    pub nanoseconds: i64,
}

impl FileClockTime {
    /// Now, by the change time of a file made in this directory for the purpose, without a name where the
    /// file system knows such.
    ///
    /// Change times come from a clock that ticks every few milliseconds. The next tick is waited for, so that a
    /// file written by another process just before is older than the mark, and not mistaken for one written after it.
    pub fn now(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let tick = || rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let before = tick();
        while tick() == before {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
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

    pub(super) fn of(stat: &Stat) -> Self {
        Self { seconds: stat.st_ctime, nanoseconds: stat.st_ctime_nsec as i64 }
    }
}

/// What is to be applied, and where.
#[derive(Debug, Clone, Copy)]
pub struct ApplyRequest<'a> {
    /// Of a harvest without violations.
    pub changes: &'a [HarvestChange],
    pub upper: BorrowedFd<'a>,
    /// The folder that was the overlay's lower layer.
    pub live: BorrowedFd<'a>,
    /// Taken in the live folder before the overlay was mounted.
    pub started: FileClockTime,
    /// A directory of ours, outside the live folder, where a crash can be recovered from.
    pub journal: BorrowedFd<'a>,
}

/// A path that keeps the whole from being applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApplyConflict {
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
    /// Git takes the directory for a repository, or would after the work.
    Repository,
    Unreadable {
        error: String,
    },
}

impl fmt::Display for ApplyConflict {
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
            ConflictReason::Repository => f.write_str(
                "would be a folder that git takes for a repository (HEAD beside objects and refs, or beside commondir)",
            ),
            ConflictReason::Unreadable { error } => write!(f, "can't be looked at: {error}"),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("nothing was applied: {}", list(.0))]
    Conflicts(Vec<ApplyConflict>),
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

fn list(conflicts: &[ApplyConflict]) -> String {
    let mut shown: Vec<String> = conflicts.iter().take(10).map(ApplyConflict::to_string).collect();
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
pub enum ApplyStep {
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

pub(super) type ApplyStepHook<'a> = &'a mut dyn FnMut(ApplyStep) -> ControlFlow<()>;

/// Reports a step, and stops dead if the observer wants to see what a crash here leaves.
pub(super) fn report_step(observer: ApplyStepHook<'_>, step: ApplyStep) -> Result<(), ApplyError> {
    match observer(step) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(ApplyError::Stopped),
    }
}

/// Applies all changes, or returns why none was.
pub fn apply(work: &ApplyRequest<'_>) -> Result<(), ApplyError> {
    apply_observed(work, &mut |_| ControlFlow::Continue(()))
}

/// Like [`apply`], telling the observer each step. When it breaks, everything is left as a crash would.
pub fn apply_observed(work: &ApplyRequest<'_>, observer: ApplyStepHook<'_>) -> Result<(), ApplyError> {
    let desk = JournalDirectory::lock(work.journal)?;
    if desk.read()?.is_some() {
        return Err(ApplyError::Pending);
    }
    let plan = ApplyPlan::check(work)?;
    if plan.steps.is_empty() {
        return Ok(());
    }
    report_step(observer, ApplyStep::Checked)?;

    let mut journal = ApplyJournal::new(stage_name(work.live)?);
    desk.write(&journal)?;
    let done = carry_out(work, &plan, &desk, &mut journal, observer);
    match done {
        Ok(()) | Err(ApplyError::Stopped) => done,
        Err(error) => match super::recover::resume(&desk, work.live, &journal, observer) {
            Ok(ApplyRecovery::RolledBack { kept }) if !kept.is_empty() => {
                Err(ApplyError::Kept { stage: journal.stage, kept })
            }
            // The last write of the journal failed, and yet it arrived.
            Ok(ApplyRecovery::Finished) => Ok(()),
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
        match tree::inspect(live, name.as_bytes()).map_err(failed("look for a free name"))? {
            None => return Ok(name),
            Some(_) => number += 1,
        }
    }
}

fn carry_out(
    work: &ApplyRequest<'_>,
    plan: &ApplyPlan,
    desk: &JournalDirectory,
    journal: &mut ApplyJournal,
    observer: ApplyStepHook<'_>,
) -> Result<(), ApplyError> {
    report_step(observer, ApplyStep::Announced)?;
    fs::mkdirat(work.live, &journal.stage, Mode::from_raw_mode(0o700)).map_err(failed("make the stage"))?;
    let stage_path = RelPath::root().join(journal.stage.as_bytes());
    let stage = tree::open_directory(work.live, &stage_path).map_err(failed("open the stage"))?;
    report_step(observer, ApplyStep::StageMade)?;

    journal.operations = plan.stage(work, stage.as_fd(), observer)?;
    fs::fsync(work.live).map_err(failed("make the stage durable"))?;
    journal.phase = ApplyPhase::Applying;
    desk.write(journal)?;
    report_step(observer, ApplyStep::Prepared)?;

    for operation in &journal.operations {
        operate(work.live, stage.as_fd(), operation)?;
        report_step(observer, ApplyStep::Operated)?;
    }
    plan.verify_displaced(stage.as_fd(), &journal.operations)?;
    sync_parents(work.live, stage.as_fd(), &journal.operations)?;
    report_step(observer, ApplyStep::Synced)?;

    // If this fails, what the disk says is unknown, so it is read back before anything is undone.
    let mut applied = journal.clone();
    applied.phase = ApplyPhase::Applied;
    let written = desk.write(&applied);
    if written.is_ok() || desk.read().ok().flatten().is_some_and(|read| read.phase == ApplyPhase::Applied) {
        *journal = applied;
    }
    written?;
    report_step(observer, ApplyStep::Committed)?;
    super::recover::clear(desk, work.live, journal, observer)
}

pub(super) fn conflict(path: &RelPath, reason: ConflictReason) -> ApplyError {
    ApplyError::Conflicts(vec![ApplyConflict { path: path.clone(), reason }])
}

pub(super) fn slot_name(which: &str, slot: usize) -> String {
    format!("{which}-{slot}")
}

fn operate(
    live: BorrowedFd<'_>,
    stage: BorrowedFd<'_>,
    operation: &ApplyOperation,
) -> Result<(), ApplyError> {
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
        ApplyAction::Delete { slot, .. } => {
            move_to_free(parent, name, stage, slot_name("old", *slot).as_bytes()).map_err(in_path)
        }
        ApplyAction::MakeDirectory => make_directory(parent, name).map_err(in_path),
        ApplyAction::Add { slot, .. } => {
            move_to_free(stage, slot_name("new", *slot).as_bytes(), parent, name).map_err(in_path)
        }
        ApplyAction::Replace { slot, .. } => {
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
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match tree::inspect(to, free)? {
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
    operations: &[ApplyOperation],
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
