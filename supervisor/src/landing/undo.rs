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
use std::path::Path;

use agency_sandbox::harvest::apply::{self, ApplyError};
use agency_sandbox::path::RelPath;

use super::checkout::{self, Checkout, Way};
use super::compare;
use super::difference::{self, Changed};
use super::error::{Error, files};
use super::index;
use super::journal::Pending;
use super::names::RefName;
use super::refs;
use super::repository::Repository;
use super::steps::{Observer, Step, Watch, When};
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

/// Takes back what an interrupted landing left. It is the caller's turn to land.
pub(super) fn undo(repository: &Repository, observer: Observer<'_>) -> Result<Undone, Error> {
    let Some(pending) = Pending::read(repository)? else { return Ok(Undone::Nothing) };
    let mut watch = Watch { observer, undoing: true };
    let names = [pending.landed.clone(), pending.target.clone()];
    let found = refs::read(repository, &names)?;
    let at = |name: &RefName| found.get(name).map(|found| found.at.clone());
    let landed = at(&pending.landed) == Some(pending.record.clone());
    if !landed {
        recover_files(repository, &pending)?;
    }
    index::unlock(&pending.git, &pending.index)?;
    let undone = match landed {
        true => Undone::Landed,
        false if !pending.root.is_dir() || at(&pending.target) != pending.target_at => Undone::Kept,
        false => {
            let (root, git) = (Some(pending.root.clone()), pending.git.clone());
            let worktree = Worktree { root, git, locked: false };
            match is_on(repository, &worktree, &pending.target)? {
                true => take_back(repository, &pending, &worktree, &mut watch)?,
                false => Undone::Kept,
            }
        }
    };
    watch.step(Step::Forget, || Pending::forget(repository))?;
    Ok(undone)
}

/// Files are put in place all at once; if that was interrupted, it is finished or taken back first. If a person
/// removed the work tree since, or what was displaced, there is nothing to be put back: git has all of it.
fn recover_files(repository: &Repository, pending: &Pending) -> Result<(), Error> {
    if !pending.root.is_dir() {
        return checkout::clear_desk(repository);
    }
    let live = compare::open_folder(&pending.root).map_err(files("open", &pending.root))?;
    let desk = checkout::desk(repository)?;
    match apply::recover(desk.as_fd(), live.as_fd()) {
        Ok(_) => Ok(()),
        Err(ApplyError::NoStage { .. }) => checkout::clear_desk(repository),
        Err(source) => Err(Error::Apply { root: pending.root.clone(), source }),
    }
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
    let opened = repository.ask(|objects| {
        let changed = difference::compare(objects, &pending.from, &pending.to)?;
        let changed: Vec<Changed> = changed.into_iter().map(reversed).collect();
        let way = Way { from: &pending.to, to: &pending.from, changed: &changed };
        Checkout::open(repository, objects, worktree, &pending.root, &way)
    });
    let checkout = match opened {
        Ok(Some(checkout)) => checkout,
        // Nothing names a commit that did not land. If git has cleared it away, it can't be told what was its.
        Ok(None) | Err(Error::Missing { .. }) => return Ok(Undone::Kept),
        Err(error) => return Err(error),
    };
    // What was staged before the landing began was not staged by it.
    let staged: HashSet<RelPath> = pending.staged.iter().cloned().collect();
    let next = checkout.next_index(&staged)?;
    let pending = Pending { index: next.file, ..pending.clone() };
    watch.step(Step::Announce, || pending.write(repository))?;
    match place(repository, &pending, &checkout, &next, watch) {
        Ok(()) => Ok(Undone::TakenBack { theirs: checkout.theirs() }),
        Err(Error::Stopped) => Err(Error::Stopped),
        Err(error) => {
            // The next try begins anew, and a person's git need not wait for it.
            index::unlock(&pending.git, &pending.index)?;
            Err(error)
        }
    }
}

fn place(
    repository: &Repository,
    pending: &Pending,
    checkout: &Checkout,
    next: &index::Next,
    watch: &mut Watch<'_>,
) -> Result<(), Error> {
    let busy = |what: &Path| Err(Error::Busy { what: what.display().to_string() });
    if !watch.step(Step::LockIndex, || next.lock())? || !checkout.is_as_seen()? {
        return busy(&pending.git.join("index.lock"));
    }
    // What was there before the landing began was not put there by it.
    let left: HashSet<RelPath> = pending.left.iter().cloned().collect();
    watch.tell(Step::PlaceFiles, When::Before)?;
    let obstacles = checkout.place(repository, &left, watch)?;
    watch.tell(Step::PlaceFiles, When::After)?;
    if !obstacles.is_empty() {
        // Somebody saved one of the files this very moment; the next try sees it as theirs.
        return busy(&pending.root);
    }
    watch.step(Step::PlaceIndex, || next.place())
}

fn reversed(one: Changed) -> Changed {
    Changed { path: one.path, old: one.new, new: one.old, target: None }
}
