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
use super::commit::Signature;
use super::difference;
use super::error::Error;
use super::index;
use super::journal::Pending;
use super::landed::{self, Landed};
use super::merge;
use super::names::{Oid, RefName};
use super::objects::Objects;
use super::obstacle::Obstacle;
use super::plan::{self, CheckoutFacts, Decision, Facts, Refusal, Request, Work};
use super::refs::{self, Line, Reason, Transaction};
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

/// What is asked when the references are locked, and before the first file changes: whether others take the commit.
/// When they do not, nothing happens here.
pub type Publish<'a> = &'a dyn Fn(&Oid) -> Result<bool, Error>;

/// Lands where others have a say: what they do not take is [`Outcome::Moved`].
pub fn land_published(
    repository: &Repository,
    request: &Request<'_>,
    publish: Publish<'_>,
) -> Result<Outcome, Error> {
    take_turns(repository, |observer| attempt(repository, request, Some(publish), observer))
}

/// Brings a branch from one commit to one that has it in its history, and the checkout with it. No task lands by this.
pub fn forward(
    repository: &Repository,
    target: &RefName,
    (from, to): (&Oid, &Oid),
    who: &Signature,
) -> Result<Outcome, Error> {
    take_turns(repository, |observer| {
        undo::undo(repository, observer)?;
        if refs::at(repository, target)?.as_ref() != Some(from) {
            return Ok(Tried::Answer(Outcome::Moved { found: refs::at(repository, target)? }));
        }
        let (worktrees, facts, checkouts) = repository.ask(|objects| {
            let changed = difference::compare(objects, from, to)?;
            look_at_checkouts(repository, objects, target, &Way { from, to, changed: &changed })
        })?;
        let obstacles = plan::obstacles(&facts);
        if !obstacles.is_empty() {
            return Ok(Tried::Answer(Outcome::Waits { obstacles }));
        }
        let motion = Motion {
            target,
            expected: Some(from),
            commit: to,
            lines: vec![Line::Update { name: target.clone(), from: Some(from.clone()), to: to.clone() }],
            // Whether it happened is seen in the branch itself.
            proof: (target.clone(), to.clone()),
            reason: Reason { who, text: "agency: brought up to date".to_owned() },
            moves_files: true,
        };
        let checkout = checkouts.into_iter().flatten().next();
        Landing { repository, motion, worktrees: &worktrees, publish: None }.carry_out(checkout, observer)
    })
}

/// Takes back what an interrupted landing left, whatever task it was for. Every landing does so first.
pub fn recover(repository: &Repository) -> Result<Undone, Error> {
    let _turn = repository.landing.take()?;
    undo::undo(repository, &mut |_| ControlFlow::Continue(()))
}

/// Like [`land`], telling the observer each moment.
pub fn land_observed(
    repository: &Repository,
    request: &Request<'_>,
    observer: Observer<'_>,
) -> Result<Outcome, Error> {
    take_turns_observed(repository, observer, |observer| attempt(repository, request, None, observer))
}

fn take_turns(
    repository: &Repository,
    attempt: impl FnMut(Observer<'_>) -> Result<Tried, Error>,
) -> Result<Outcome, Error> {
    take_turns_observed(repository, &mut |_| ControlFlow::Continue(()), attempt)
}

fn take_turns_observed(
    repository: &Repository,
    observer: Observer<'_>,
    mut attempt: impl FnMut(Observer<'_>) -> Result<Tried, Error>,
) -> Result<Outcome, Error> {
    let _turn = match repository.landing.take() {
        Err(Error::Busy { what }) => return Ok(Outcome::Busy { what }),
        other => other?,
    };
    let mut busy = String::new();
    for _ in 0..ATTEMPTS {
        match attempt(observer) {
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

fn attempt(
    repository: &Repository,
    request: &Request<'_>,
    publish: Option<Publish<'_>>,
    observer: Observer<'_>,
) -> Result<Tried, Error> {
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
    let lease = request.lease;
    let motion = Motion {
        target: request.target,
        expected: request.expected,
        commit,
        lines: plan::lines(request, &facts, &record),
        proof: (lease.task.landed(), record),
        reason: Reason {
            who: request.who,
            text: format!("agency: {} lands, attempt {}", lease.task, lease.epoch),
        },
        moves_files: matches!(request.work, Work::Commit { .. }),
    };
    let named: Vec<Oid> = refs::named_by(&motion.lines).into_iter().cloned().collect();
    let collector = repository.collector();
    let tried =
        Landing { repository, motion, worktrees: &worktrees, publish }.carry_out(checkout, observer)?;
    repository.outlast(collector, &named.iter().collect::<Vec<_>>());
    Ok(tried)
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
    seen.facts.difference = difference::examined(objects, base, commit)?;
    // Looking at files is the dearest part, and for nothing when the answer is known.
    if !matches!(plan::decide(request, &seen.facts), Decision::Go { .. }) {
        return Ok(seen);
    }
    let nothing = repository.format.empty_tree();
    let from = request.expected.unwrap_or(&nothing);
    let changed = match from == base {
        true => seen.facts.difference.changed.clone(),
        false => difference::compare(objects, from, commit)?,
    };
    let way = Way { from, to: commit, changed: &changed };
    (seen.worktrees, seen.facts.checkouts, seen.checkouts) =
        look_at_checkouts(repository, objects, request.target, &way)?;
    Ok(seen)
}

/// The work trees that have a branch checked out; of each that is there how it stands, and what it takes to bring it
/// along.
type Checkouts = (Vec<Worktree>, Vec<CheckoutFacts>, Vec<Option<Checkout>>);

fn look_at_checkouts(
    repository: &Repository,
    objects: &mut Objects,
    target: &RefName,
    way: &Way<'_>,
) -> Result<Checkouts, Error> {
    let worktrees = worktree::with_branch(repository, target)?;
    let (mut all, mut checkouts) = (Vec::new(), Vec::new());
    for worktree in &worktrees {
        if let Some((facts, checkout)) = checkout::observe(repository, objects, worktree, way)? {
            all.push(facts);
            checkouts.push(checkout);
        }
    }
    Ok((worktrees, all, checkouts))
}

/// What is to move, and how it is told that it did.
struct Motion<'a> {
    target: &'a RefName,
    expected: Option<&'a Oid>,
    commit: &'a Oid,
    lines: Vec<Line>,
    /// A reference, and where it is when this is done.
    proof: (RefName, Oid),
    reason: Reason<'a>,
    moves_files: bool,
}

/// A landing that nothing speaks against.
struct Landing<'a> {
    repository: &'a Repository,
    motion: Motion<'a>,
    worktrees: &'a [Worktree],
    publish: Option<Publish<'a>>,
}

impl Landing<'_> {
    fn carry_out(&self, checkout: Option<Checkout>, observer: Observer<'_>) -> Result<Tried, Error> {
        let landed = || Tried::Answer(Outcome::Landed { commit: self.motion.commit.clone() });
        let unpublished = || Tried::Answer(Outcome::Moved { found: None });
        let mut watch = Watch { observer, undoing: false };
        let Some(checkout) = checkout else {
            let transaction = match watch.step(Step::Prepare, || self.prepare()) {
                Err(Error::Refs { message }) => return Ok(Tried::Again(message)),
                other => other?,
            };
            if let Some(what) = self.is_in_use()? {
                return Ok(Tried::Again(what));
            }
            if !self.is_published()? {
                return Ok(unpublished());
            }
            watch.step(Step::Commit, || transaction.commit())?;
            return Ok(landed());
        };
        let next = checkout.next_index(&HashSet::new())?;
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
        if let Some(what) = self.is_in_use()? {
            return again(&what);
        }
        if !self.is_published()? {
            return Ok(Some(Tried::Answer(Outcome::Moved { found: None })));
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
        // Once more: what begins now finds the index locked, or the branch where it will be.
        if let Some(what) = self.is_in_use()? {
            return again(&what);
        }
        watch.step(Step::Commit, || transaction.commit())?;
        Ok(None)
    }

    /// Whether others take it, where they are asked. Our own references are locked meanwhile: nobody who lost the lease
    /// gets as far as to ask.
    fn is_published(&self) -> Result<bool, Error> {
        self.publish.map_or(Ok(true), |publish| publish(self.motion.commit))
    }

    /// Whether a person has begun something with the branch since it was looked at. Other work trees that have it now
    /// have the files of what it was, and the next commit there would take the work back; a rebase that is given up
    /// moves the branch back to where it was when it began.
    fn is_in_use(&self) -> Result<Option<String>, Error> {
        if !self.motion.moves_files {
            return Ok(None);
        }
        let worktrees = worktree::with_branch(self.repository, self.motion.target)?;
        if worktrees != self.worktrees {
            return Ok(Some("the branch is being checked out".to_owned()));
        }
        let begun = worktrees.iter().find_map(Worktree::operation);
        Ok(begun.map(|operation| format!("{operation} has just begun")))
    }

    fn prepare(&self) -> Result<Transaction<'_>, Error> {
        Transaction::prepare(self.repository, &self.motion.lines, &self.motion.reason)
    }

    fn pending(&self, checkout: &Checkout, next: &index::Next) -> Pending {
        let Way { from, to, .. } = checkout.way();
        let (landed, record) = self.motion.proof.clone();
        Pending {
            landed,
            record,
            target: self.motion.target.clone(),
            target_at: self.motion.expected.cloned(),
            from: from.clone(),
            to: to.clone(),
            root: checkout.root.clone(),
            git: checkout.worktree.git.clone(),
            index: next.file,
            left: checkout.left(),
            staged: checkout.staged(),
        }
    }
}
