//! Undoing or finishing an apply that did not end.
//!
//! Nothing here trusts that an operation happened: each looks at what is in the folder and in the stage, and
//! puts back what was there. So it may itself be interrupted and begun again. What a person did to the folder
//! after the crash is never overwritten; then the saved entry stays in the stage, and the caller is told.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, RenameFlags};
use rustix::io::Errno;

use super::apply::{
    ApplyError, ApplyStep, ApplyStepHook, move_to_free, parent_of, report_step, slot_name, sync_parents,
};
use super::journal::{ApplyAction, ApplyJournal, ApplyOperation, ApplyPhase, JournalDirectory, failed};
use super::tree::{self, NodeKind};
use crate::path::RelPath;

/// What a recovery found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyRecovery {
    /// No apply was interrupted.
    Nothing,
    /// The folder is as it was before the apply, except where another process has changed it since: what belongs at
    /// the `kept` paths is still in the stage, or what was put there has been edited and stays.
    RolledBack { kept: Vec<RelPath> },
    /// All changes had been made; what was left over is cleared away.
    Finished,
}

/// Brings the folder to the state before an interrupted apply, or after it.
pub fn recover(journal: BorrowedFd<'_>, live: BorrowedFd<'_>) -> Result<ApplyRecovery, ApplyError> {
    recover_observed(journal, live, &mut |_| ControlFlow::Continue(()))
}

/// Like [`recover`], telling the observer each step.
pub fn recover_observed(
    journal: BorrowedFd<'_>,
    live: BorrowedFd<'_>,
    observer: ApplyStepHook<'_>,
) -> Result<ApplyRecovery, ApplyError> {
    let desk = JournalDirectory::lock(journal)?;
    match desk.read()? {
        None => Ok(ApplyRecovery::Nothing),
        Some(journal) => resume(&desk, live, &journal, observer),
    }
}

pub(super) fn resume(
    desk: &JournalDirectory,
    live: BorrowedFd<'_>,
    journal: &ApplyJournal,
    observer: ApplyStepHook<'_>,
) -> Result<ApplyRecovery, ApplyError> {
    match journal.phase {
        ApplyPhase::Staging => {
            clear(desk, live, journal, observer)?;
            Ok(ApplyRecovery::RolledBack { kept: Vec::new() })
        }
        ApplyPhase::Applied => {
            clear(desk, live, journal, observer)?;
            Ok(ApplyRecovery::Finished)
        }
        ApplyPhase::Applying => {
            let kept = roll_back(live, journal, observer)?;
            if kept.is_empty() {
                // From here on the stage holds nothing of worth, and a second recovery must not look into it.
                let undone =
                    ApplyJournal { phase: ApplyPhase::Staging, operations: Vec::new(), ..journal.clone() };
                desk.write(&undone)?;
                report_step(observer, ApplyStep::RolledBack)?;
                clear(desk, live, &undone, observer)?;
            } else {
                desk.remove()?;
            }
            Ok(ApplyRecovery::RolledBack { kept })
        }
    }
}

fn roll_back(
    live: BorrowedFd<'_>,
    journal: &ApplyJournal,
    observer: ApplyStepHook<'_>,
) -> Result<Vec<RelPath>, ApplyError> {
    let stage = match tree::open_directory(live, &RelPath::root().join(journal.stage.as_bytes())) {
        Ok(stage) => stage,
        Err(Errno::NOENT) => return Err(ApplyError::NoStage { stage: journal.stage.clone() }),
        Err(error) => return Err(failed("open the stage")(error)),
    };
    let mut kept = Vec::new();
    for operation in journal.operations.iter().rev() {
        match undo(live, stage.as_fd(), operation) {
            Ok(true) => {}
            // A directory above it was replaced since: what belongs there can't be put back.
            Ok(false) | Err(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => kept.push(operation.path.clone()),
            Err(error) => {
                return Err(ApplyError::Path { path: operation.path.clone(), source: error.into() });
            }
        }
        report_step(observer, ApplyStep::Undone)?;
    }
    sync_parents(live, stage.as_fd(), &journal.operations)?;
    kept.reverse();
    Ok(kept)
}

/// Puts back what one operation moved, as far as it happened. `false` when something else is in the way.
fn undo(live: BorrowedFd<'_>, stage: BorrowedFd<'_>, operation: &ApplyOperation) -> Result<bool, Errno> {
    let parent = match parent_of(live, &operation.path) {
        Ok(parent) => parent,
        // Its directory was never made, or is a saved entry again.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
            if matches!(operation.action, ApplyAction::Add { .. } | ApplyAction::MakeDirectory) =>
        {
            return Ok(true);
        }
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error),
    };
    let (parent, name) = (parent.as_fd(), operation.path.name());
    let there = tree::inspect(parent, name)?;
    match &operation.action {
        ApplyAction::MakeDirectory => match fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            // Not empty: another process uses it by now.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR | Errno::BUSY) => {
                Ok(true)
            }
            Err(error) => Err(error),
        },
        ApplyAction::Delete { slot, .. } => {
            let old = slot_name("old", *slot);
            match (tree::inspect(stage, old.as_bytes())?, there) {
                (None, _) => Ok(true),
                (Some(_), None) => move_to_free(stage, old.as_bytes(), parent, name).map(|()| true),
                (Some(_), Some(_)) => Ok(false),
            }
        }
        ApplyAction::Add { slot, new } => match there {
            Some(stat) if new.matches(&stat) => {
                move_to_free(parent, name, stage, slot_name("new", *slot).as_bytes()).map(|()| true)
            }
            Some(stat) => Ok(!new.is_inode_of(&stat)),
            None => Ok(true),
        },
        ApplyAction::Replace { slot, new, .. } => {
            let (new_name, old_name) = (slot_name("new", *slot), slot_name("old", *slot));
            let ours = there.is_some_and(|stat| new.matches(&stat));
            if tree::inspect(stage, old_name.as_bytes())?.is_some() {
                if ours {
                    move_to_free(parent, name, stage, new_name.as_bytes())?;
                } else if there.is_some() {
                    return Ok(false);
                }
                return move_to_free(stage, old_name.as_bytes(), parent, name).map(|()| true);
            }
            match tree::inspect(stage, new_name.as_bytes())? {
                Some(stat) if new.is_inode_of(&stat) => Ok(true),
                // The two changed places.
                Some(_) if ours => {
                    fs::renameat_with(stage, &new_name, parent, name, RenameFlags::EXCHANGE).map(|()| true)
                }
                Some(_) if there.is_none() => {
                    move_to_free(stage, new_name.as_bytes(), parent, name).map(|()| true)
                }
                Some(_) | None => Ok(false),
            }
        }
    }
}

/// The end of an apply or of its undoing: directories that deletions left empty go, as git does it, then
/// the stage, and at last the journal.
pub(super) fn clear(
    desk: &JournalDirectory,
    live: BorrowedFd<'_>,
    journal: &ApplyJournal,
    observer: ApplyStepHook<'_>,
) -> Result<(), ApplyError> {
    if journal.phase == ApplyPhase::Applied {
        for operation in &journal.operations {
            if matches!(operation.action, ApplyAction::Delete { .. }) {
                remove_empty_above(live, &operation.path);
            }
        }
        report_step(observer, ApplyStep::Tidied)?;
    }
    remove_tree(live, &RelPath::root().join(journal.stage.as_bytes())).map_err(failed("remove the stage"))?;
    fs::fsync(live).map_err(failed("make the stage's removal durable"))?;
    report_step(observer, ApplyStep::StageRemoved)?;
    desk.remove()?;
    report_step(observer, ApplyStep::Forgotten)
}

/// Stops at the first directory that is not empty, or may not be removed: an empty directory is no harm.
fn remove_empty_above(live: BorrowedFd<'_>, path: &RelPath) {
    for directory in path.ancestors().filter(|above| !above.is_root()) {
        let removed = parent_of(live, &directory)
            .and_then(|parent| fs::unlinkat(parent, directory.name(), AtFlags::REMOVEDIR));
        if !matches!(removed, Ok(()) | Err(Errno::NOENT)) {
            return;
        }
    }
}

/// Removes a directory of ours with all it holds.
fn remove_tree(root: BorrowedFd<'_>, path: &RelPath) -> Result<(), Errno> {
    let mut found = vec![path.clone()];
    let mut emptied = BTreeSet::new();
    while let Some(path) = found.pop() {
        let directory = match tree::unlock_directory(root, &path) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        };
        for name in tree::names(directory.as_fd(), usize::MAX - 1)? {
            match tree::inspect(directory.as_fd(), &name)? {
                Some(stat) if tree::kind(&stat) == NodeKind::Directory => found.push(path.join(&name)),
                Some(_) => fs::unlinkat(&directory, &*name, AtFlags::empty())?,
                None => {}
            }
        }
        emptied.insert(path);
    }
    // A directory sorts before what is in it.
    for path in emptied.iter().rev() {
        fs::unlinkat(parent_of(root, path)?, path.name(), AtFlags::REMOVEDIR)?;
    }
    Ok(())
}
