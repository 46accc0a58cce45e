//! What a landing left that did not get to its end.
//!
//! If the references say that it landed, the checkout was brought along before, and there is only something to
//! forget. If not, the checkout goes back to where it was: each path, in the index and in the folder, that is
//! exactly as the landing would have put it. What a person did since is theirs, and stays. When the branch has
//! moved or the work tree is on another, a person went on from what they found, and nothing is taken back.
//!
//! So a journal is always forgotten in the end, and never keeps the next task from landing.

use std::collections::HashSet;
use std::os::fd::AsFd;

use agency_sandbox::harvest::apply;
use agency_sandbox::path::RelPath;

use super::checkout::{self, Checkout, Way};
use super::compare;
use super::difference::{self, Changed};
use super::error::{Error, files};
use super::index;
use super::journal::Pending;
use super::names::RefName;
use super::objects::Objects;
use super::refs;
use super::repository::Repository;
use super::steps::{Observer, Step, Watch};
use super::worktree::{Head, Worktree};

/// What was found and done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Undone {
    /// No landing was interrupted.
    Nothing,
    /// It had landed.
    Landed,
    /// The checkout is as it was. Where a person edited a file of the work since, it stays as it is.
    TakenBack { theirs: Vec<RelPath> },
    /// A person went on from what they found.
    Kept,
}

/// Takes back what an interrupted landing left. The caller has the landing lock.
pub(super) fn undo(repository: &Repository, observer: Observer<'_>) -> Result<Undone, Error> {
    let Some(pending) = Pending::read(repository)? else { return Ok(Undone::Nothing) };
    let mut watch = Watch { observer, undoing: true };
    let names = [pending.landed.clone(), pending.target.clone()];
    let found = refs::read(repository, &names)?;
    let at = |name: &RefName| found.get(name).map(|found| found.at.clone());
    let undone = match at(&pending.landed) == Some(pending.record.clone()) {
        true => {
            index::unlock(&pending.git, pending.inode)?;
            Undone::Landed
        }
        false if !pending.root.is_dir() || !pending.git.is_dir() => Undone::Kept,
        false => {
            recover_files(repository, &pending)?;
            index::unlock(&pending.git, pending.inode)?;
            let worktree =
                Worktree { root: Some(pending.root.clone()), git: pending.git.clone(), locked: false };
            let same =
                at(&pending.target) == pending.target_at && is_on(repository, &worktree, &pending.target)?;
            match same {
                true => take_back(repository, &pending, &worktree, &mut watch)?,
                false => Undone::Kept,
            }
        }
    };
    watch.step(Step::Forget, || Pending::forget(repository))?;
    Ok(undone)
}

/// Files are put in place all at once; if that was interrupted, it is finished or taken back first.
fn recover_files(repository: &Repository, pending: &Pending) -> Result<(), Error> {
    let live = compare::open_folder(&pending.root).map_err(files("open", &pending.root))?;
    let desk = checkout::desk(repository)?;
    let failed = |source| Error::Apply { root: pending.root.clone(), source };
    apply::recover(desk.as_fd(), live.as_fd()).map_err(failed)?;
    Ok(())
}

fn is_on(repository: &Repository, worktree: &Worktree, branch: &RefName) -> Result<bool, Error> {
    match worktree.head() {
        Head::Branch(name) => Ok(refs::resolve(repository, &name)? == *branch),
        Head::Detached => Ok(false),
    }
}

fn take_back(
    repository: &Repository,
    pending: &Pending,
    worktree: &Worktree,
    watch: &mut Watch<'_>,
) -> Result<Undone, Error> {
    let changed: Vec<Changed> =
        difference::between(repository, &pending.from, &pending.to)?.into_iter().map(reversed).collect();
    let way = Way { from: &pending.to, to: &pending.from, changed: &changed };
    let mut objects = Objects::open(repository)?;
    let Some(checkout) = Checkout::open(repository, &mut objects, worktree, &pending.root, &way)? else {
        return Ok(Undone::Kept);
    };
    let next = checkout.next_index(repository)?;
    let pending = Pending { inode: next.inode, ..pending.clone() };
    watch.step(Step::Announce, || pending.write(repository))?;
    let locked = watch.step(Step::LockIndex, || next.lock())?;
    if !locked || !checkout.is_as_seen()? {
        return Err(Error::Busy { what: pending.git.join("index.lock").display().to_string() });
    }
    // What was there before the landing began was not put there by it.
    let left: HashSet<RelPath> = pending.left.iter().cloned().collect();
    watch.tell(Step::PlaceFiles, super::steps::When::Before)?;
    let obstacles = checkout.place(repository, &left, watch)?;
    watch.tell(Step::PlaceFiles, super::steps::When::After)?;
    if !obstacles.is_empty() {
        // Somebody saved one of the files this very moment; the next try sees it as theirs.
        index::unlock(&pending.git, pending.inode)?;
        return Err(Error::Busy { what: pending.root.display().to_string() });
    }
    watch.step(Step::PlaceIndex, || next.place())?;
    Ok(Undone::TakenBack { theirs: checkout.theirs() })
}

fn reversed(one: Changed) -> Changed {
    Changed { path: one.path, old: one.new, new: one.old, target: None }
}
