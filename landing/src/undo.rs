//! Undoes an interrupted landing.
//!
//! If the references show that it landed, the checkout was moved before, and only the journal is removed. If not, the
//! checkout goes back: each path, in the index and in the folder, that is exactly as the landing would have put it. A
//! person's later changes stay. When the branch has moved or the work tree is on another branch, a person went on from
//! what they found, and nothing is taken back.
//!
//! So the journal is always removed in the end, and never keeps the next task from landing.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::Path;

use agency_sandbox::harvest::apply::{self, ApplyError};
use agency_sandbox::path::RelPath;

use super::checkout::{self, Checkout, CheckoutMove};
use super::error::{Error, files};
use super::index;
use super::journal::PendingLanding;
use super::names::RefName;
use super::path_content;
use super::refs;
use super::repository::LandingRepository;
use super::steps::{LandObserver, LandStep, StepPoint, StepWatch};
use super::tree_diff::{self, ChangedPath};
use super::worktree::{Worktree, WorktreeHead};

/// What the undo found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoOutcome {
    /// No landing was interrupted.
    Nothing,
    /// It had landed.
    Landed,
    /// The checkout is as it was. Where a person edited a file of the work since, it stays as it is.
    TakenBack { theirs: Vec<RelPath> },
    /// A person went on from what they found.
    Kept,
}

/// Takes back an interrupted landing. The caller holds the landing lock.
pub(super) fn undo(repository: &LandingRepository, observer: LandObserver<'_>) -> Result<UndoOutcome, Error> {
    let Some(pending) = PendingLanding::read(repository)? else { return Ok(UndoOutcome::Nothing) };
    let mut watch = StepWatch { observer, undoing: true };
    let names = [pending.landed.clone(), pending.target.clone()];
    let found = refs::read(repository, &names)?;
    let at = |name: &RefName| found.get(name).map(|found| found.at.clone());
    let landed = at(&pending.landed) == Some(pending.record.clone());
    if !landed {
        recover_files(repository, &pending)?;
    }
    index::unlock(&pending.git, &pending.index)?;
    let undone = match landed {
        true => UndoOutcome::Landed,
        false if !pending.root.is_dir() || at(&pending.target) != pending.target_at => UndoOutcome::Kept,
        false => {
            let (root, git) = (Some(pending.root.clone()), pending.git.clone());
            let worktree = Worktree { root, git, locked: false };
            match is_on(repository, &worktree, &pending.target)? {
                true => take_back(repository, &pending, &worktree, &mut watch)?,
                false => UndoOutcome::Kept,
            }
        }
    };
    watch.step(LandStep::Forget, || PendingLanding::forget(repository))?;
    Ok(undone)
}

/// Files are put in place all at once. If that was interrupted, it is finished or taken back first. If a person has
/// removed the work tree or the displaced files since, there is nothing to put back: git has all of it.
fn recover_files(repository: &LandingRepository, pending: &PendingLanding) -> Result<(), Error> {
    if !pending.root.is_dir() {
        return checkout::clear_apply_folder(repository);
    }
    let live = path_content::open_folder(&pending.root).map_err(files("open", &pending.root))?;
    let desk = checkout::apply_folder(repository)?;
    match apply::recover(desk.as_fd(), live.as_fd()) {
        Ok(_) => Ok(()),
        Err(ApplyError::NoStage { .. }) => checkout::clear_apply_folder(repository),
        Err(source) => Err(Error::Apply { root: pending.root.clone(), source }),
    }
}

fn is_on(repository: &LandingRepository, worktree: &Worktree, branch: &RefName) -> Result<bool, Error> {
    match worktree.head() {
        WorktreeHead::Branch(name) => Ok(refs::resolve(repository, &name)? == *branch),
        WorktreeHead::Detached => Ok(false),
    }
}

fn take_back(
    repository: &LandingRepository,
    pending: &PendingLanding,
    worktree: &Worktree,
    watch: &mut StepWatch<'_>,
) -> Result<UndoOutcome, Error> {
    let opened = repository.ask(|objects| {
        let changed = tree_diff::compare(objects, &pending.from, &pending.to)?;
        let changed: Vec<ChangedPath> = changed.into_iter().map(reversed).collect();
        let way = CheckoutMove { from: &pending.to, to: &pending.from, changed: &changed };
        Checkout::open(repository, objects, worktree, &pending.root, &way)
    });
    let checkout = match opened {
        Ok(Some(checkout)) => checkout,
        // No reference names a commit that did not land. If git has removed it, its paths are unknown.
        Ok(None) | Err(Error::Missing { .. }) => return Ok(UndoOutcome::Kept),
        Err(error) => return Err(error),
    };
    // Entries that were staged before the landing are not the landing's.
    let staged: HashSet<RelPath> = pending.staged.iter().cloned().collect();
    let next = checkout.next_index(&staged)?;
    let pending = PendingLanding { index: next.file, ..pending.clone() };
    watch.step(LandStep::Announce, || pending.write(repository))?;
    match place(repository, &pending, &checkout, &next, watch) {
        Ok(()) => Ok(UndoOutcome::TakenBack { theirs: checkout.changed_by_person() }),
        Err(Error::Stopped) => Err(Error::Stopped),
        Err(error) => {
            // The next try begins anew, so the person's git need not wait.
            index::unlock(&pending.git, &pending.index)?;
            Err(error)
        }
    }
}

fn place(
    repository: &LandingRepository,
    pending: &PendingLanding,
    checkout: &Checkout,
    next: &index::NextIndex,
    watch: &mut StepWatch<'_>,
) -> Result<(), Error> {
    let busy = |what: &Path| Err(Error::Busy { what: what.display().to_string() });
    if !watch.step(LandStep::LockIndex, || next.lock())? || !checkout.is_unchanged()? {
        return busy(&pending.git.join("index.lock"));
    }
    // Files that had their content before the landing are not the landing's.
    let left: HashSet<RelPath> = pending.left.iter().cloned().collect();
    watch.notify(LandStep::PlaceFiles, StepPoint::Before)?;
    let obstacles = checkout.place(repository, &left, watch)?;
    watch.notify(LandStep::PlaceFiles, StepPoint::After)?;
    if !obstacles.is_empty() {
        // A person saved one of the files at this moment; the next try finds their version.
        return busy(&pending.root);
    }
    watch.step(LandStep::PlaceIndex, || next.place())
}

fn reversed(one: ChangedPath) -> ChangedPath {
    ChangedPath { path: one.path, old: one.new, new: one.old, target: None }
}
