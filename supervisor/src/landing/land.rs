//! Landing: the branch moves, a person's checkout comes along, and both or neither happen.
//!
//! Everything that can refuse is looked at first ([`super::plan`]). Then the references are locked, with the
//! lease verified, and only while they are, files change; the references move last. So a stale attempt never
//! touches a file, a person who saves a file in the last moment keeps the branch from moving, and a crash
//! leaves at worst the work of the task where it can be seen, never a branch whose work the next commit would
//! revert without a word.

use std::collections::HashSet;
use std::ops::ControlFlow;

use serde::Serialize;

use super::checkout::{self, Checkout, Way};
use super::difference;
use super::error::Error;
use super::index;
use super::journal::Pending;
use super::landed::{self, Landed};
use super::merge;
use super::names::{Oid, RefName};
use super::objects::Objects;
use super::obstacle::Obstacle;
use super::plan::{self, Decision, Facts, Refusal, Request, Work};
use super::refs::{self, Reason, Transaction};
use super::repository::Repository;
use super::steps::{Observer, Step, Watch, When};
use super::undo::{self, Undone};
use super::worktree::{self, Worktree};

/// How often what changed while we looked is looked at again.
const ATTEMPTS: usize = 3;

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The branch is at this commit now, or was there already with the work in it.
    Landed {
        commit: Oid,
    },
    /// This attempt had landed before.
    AlreadyLanded {
        landed: Landed,
    },
    /// Another attempt of the task has landed.
    LandedBefore {
        landed: Landed,
    },
    /// The lease is not this attempt's any more.
    Stale {
        found: Option<Oid>,
    },
    /// The branch is somewhere else: merge, verify, and ask again.
    Moved {
        found: Option<Oid>,
    },
    Refused {
        refusal: Refusal,
    },
    /// A person has something there. Nothing has changed.
    Waits {
        obstacles: Vec<Obstacle>,
    },
    /// Somebody holds a lock, or changes things all the time. Nothing has changed.
    Busy {
        what: String,
    },
}

/// Lands, or says why not.
pub fn land(repository: &Repository, request: &Request<'_>) -> Result<Outcome, Error> {
    land_observed(repository, request, &mut |_| ControlFlow::Continue(()))
}

/// Takes back what an interrupted landing left, whatever task it was for. Every landing does so first.
pub fn recover(repository: &Repository) -> Result<Undone, Error> {
    let _acting = repository.act()?;
    let _turn = repository.landing.take()?;
    undo::undo(repository, &mut |_| ControlFlow::Continue(()))
}

/// Like [`land`], telling the observer each moment.
pub fn land_observed(
    repository: &Repository,
    request: &Request<'_>,
    observer: Observer<'_>,
) -> Result<Outcome, Error> {
    let _acting = repository.act()?;
    let _turn = match repository.landing.take() {
        Err(Error::Busy { what }) => return Ok(Outcome::Busy { what }),
        other => other?,
    };
    let mut busy = String::new();
    for _ in 0..ATTEMPTS {
        match attempt(repository, request, observer) {
            Ok(Tried::Answer(outcome)) => return Ok(outcome),
            Ok(Tried::Again(what)) | Err(Error::Busy { what }) => busy = what,
            Err(error) => return Err(error),
        }
    }
    Ok(Outcome::Busy { what: busy })
}

/// What came of one attempt.
enum Tried {
    Answer(Outcome),
    /// Something changed while we looked.
    Again(String),
}

fn attempt(repository: &Repository, request: &Request<'_>, observer: Observer<'_>) -> Result<Tried, Error> {
    undo::undo(repository, observer)?;
    let target = refs::resolve(repository, request.target)?;
    let request = &Request { target: &target, ..request.clone() };
    let Seen { facts, worktrees, checkouts } =
        repository.ask(|objects| observe(repository, objects, request))?;
    let checkout = match plan::decide(request, &facts) {
        Decision::Go { checkout } => checkout.and_then(|at| checkouts.into_iter().nth(at).flatten()),
        Decision::AlreadyLanded(landed) => return Ok(Tried::Answer(Outcome::AlreadyLanded { landed })),
        Decision::LandedBefore(landed) => return Ok(Tried::Answer(Outcome::LandedBefore { landed })),
        Decision::Stale { found } => return Ok(Tried::Answer(Outcome::Stale { found })),
        Decision::Moved { found } => return Ok(Tried::Answer(Outcome::Moved { found })),
        Decision::Refused(refusal) => return Ok(Tried::Answer(Outcome::Refused { refusal })),
        Decision::Waits(obstacles) => return Ok(Tried::Answer(Outcome::Waits { obstacles })),
    };
    let commit = match (request.work, request.expected) {
        (Work::Commit { commit, .. }, _) => commit,
        (Work::Contained, Some(at)) => at,
        (Work::Contained, None) => return Err(Error::Answer { doing: "find the branch that has the work" }),
    };
    let record = landed::write(repository, request.lease, request.target, commit)?;
    let landing = Landing { repository, request, facts: &facts, worktrees: &worktrees, commit, record };
    landing.carry_out(checkout, observer)
}

/// Everything a plan is made of.
struct Seen {
    facts: Facts,
    /// The work trees with the branch, of which there may be none.
    worktrees: Vec<Worktree>,
    /// For each of the facts about one, what is needed to bring it along.
    checkouts: Vec<Option<Checkout>>,
}

fn observe(repository: &Repository, objects: &mut Objects, request: &Request<'_>) -> Result<Seen, Error> {
    let task = &request.lease.task;
    let mut names = vec![task.lease(), task.landed(), request.target.clone()];
    let above: Vec<RefName> = request.target.above().collect();
    names.extend(above.iter().cloned());
    let found = refs::read(repository, &names)?;
    let at = |name: &RefName| found.get(name).map(|found| found.at.clone());
    let facts = Facts {
        lease: at(&task.lease()),
        target: at(request.target),
        landed: at(&task.landed()).map(|object| landed::parse(objects, object)).transpose()?,
        taken: above.into_iter().find(|name| found.contains_key(name)),
        ..Facts::default()
    };
    let mut seen = Seen { facts, worktrees: Vec::new(), checkouts: Vec::new() };
    let Work::Commit { commit, base } = request.work else { return Ok(seen) };
    seen.facts.parents = objects.parents(commit)?;
    seen.facts.forward = match request.expected {
        Some(expected) if expected != base => merge::is_ancestor(repository, expected, commit)?,
        _ => true,
    };
    seen.facts.changed = difference::compare(objects, base, commit)?;
    // Looking at files is the dearest part, and for nothing when the answer is known.
    if matches!(plan::decide(request, &seen.facts), Decision::Go { .. }) {
        seen.worktrees = worktree::with_branch(repository, request.target)?;
    }
    if seen.worktrees.is_empty() {
        return Ok(seen);
    }
    let nothing = repository.format.empty_tree();
    let from = request.expected.unwrap_or(&nothing);
    let changed = match from == base {
        true => seen.facts.changed.clone(),
        false => difference::compare(objects, from, commit)?,
    };
    let way = Way { from, to: commit, changed: &changed };
    for worktree in &seen.worktrees {
        if let Some((facts, checkout)) = checkout::observe(repository, objects, worktree, &way)? {
            seen.facts.checkouts.push(facts);
            seen.checkouts.push(checkout);
        }
    }
    Ok(seen)
}

/// A landing that nothing speaks against.
struct Landing<'a> {
    repository: &'a Repository,
    request: &'a Request<'a>,
    facts: &'a Facts,
    worktrees: &'a [Worktree],
    commit: &'a Oid,
    record: Oid,
}

impl Landing<'_> {
    fn carry_out(&self, checkout: Option<Checkout>, observer: Observer<'_>) -> Result<Tried, Error> {
        let landed = || Tried::Answer(Outcome::Landed { commit: self.commit.clone() });
        let mut watch = Watch { observer, undoing: false };
        let Some(checkout) = checkout else {
            let transaction = match watch.step(Step::Prepare, || self.prepare()) {
                Err(Error::Refs { message }) => return Ok(Tried::Again(message)),
                other => other?,
            };
            if self.is_checked_out_elsewhere()? {
                return Ok(Tried::Again("the branch is being checked out".to_owned()));
            }
            watch.step(Step::Commit, || transaction.commit())?;
            return Ok(landed());
        };
        let next = checkout.next_index()?;
        let pending = self.pending(&checkout, &next);
        watch.step(Step::Announce, || pending.write(self.repository))?;
        match self.with_checkout(&checkout, &next, &mut watch) {
            Ok(None) => {
                watch.step(Step::Forget, || Pending::forget(self.repository))?;
                Ok(landed())
            }
            Ok(Some(tried)) => {
                undo::undo(self.repository, watch.observer)?;
                Ok(tried)
            }
            Err(Error::Stopped) => Err(Error::Stopped),
            // Whether the references moved is seen when it is undone.
            Err(error) => match undo::undo(self.repository, watch.observer)? {
                Undone::Landed => Ok(landed()),
                _ => Err(error),
            },
        }
    }

    /// `None` when it landed.
    fn with_checkout(
        &self,
        checkout: &Checkout,
        next: &index::Next,
        watch: &mut Watch<'_>,
    ) -> Result<Option<Tried>, Error> {
        let again = |what: &str| Ok(Some(Tried::Again(what.to_owned())));
        if !watch.step(Step::LockIndex, || next.lock())? || !checkout.is_as_seen()? {
            return again("the index is in use");
        }
        let transaction = match watch.step(Step::Prepare, || self.prepare()) {
            Err(Error::Refs { message }) => return again(&message),
            other => other?,
        };
        if self.is_checked_out_elsewhere()? {
            return again("the branch is being checked out");
        }
        watch.tell(Step::PlaceFiles, When::Before)?;
        let obstacles = checkout.place(self.repository, &HashSet::new(), watch)?;
        watch.tell(Step::PlaceFiles, When::After)?;
        if !obstacles.is_empty() {
            return Ok(Some(Tried::Answer(Outcome::Waits { obstacles })));
        }
        watch.step(Step::PlaceIndex, || next.place())?;
        if !checkout.is_on_its_branch() {
            return again("the work tree changes its branch");
        }
        watch.step(Step::Commit, || transaction.commit())?;
        Ok(None)
    }

    /// Whether other work trees have the branch now. Their files would be what the branch was, and the next
    /// commit there would take the work back.
    fn is_checked_out_elsewhere(&self) -> Result<bool, Error> {
        match self.request.work {
            Work::Commit { .. } => {
                Ok(worktree::with_branch(self.repository, self.request.target)? != self.worktrees)
            }
            Work::Contained => Ok(false),
        }
    }

    fn prepare(&self) -> Result<Transaction<'_>, Error> {
        let Request { lease, who, .. } = self.request;
        let text = format!("agency: {} lands, attempt {}", lease.task, lease.epoch);
        let lines = plan::lines(self.request, self.facts, &self.record);
        Transaction::prepare(self.repository, &lines, &Reason { who, text })
    }

    fn pending(&self, checkout: &Checkout, next: &index::Next) -> Pending {
        let Way { from, to, .. } = checkout.way();
        Pending {
            landed: self.request.lease.task.landed(),
            record: self.record.clone(),
            target: self.request.target.clone(),
            target_at: self.request.expected.cloned(),
            from: from.clone(),
            to: to.clone(),
            root: checkout.root.clone(),
            git: checkout.worktree.git.clone(),
            index: next.file,
            left: checkout.left(),
        }
    }
}
