//! Landing: moves the branch and a person's checkout, both or neither.
//!
//! Everything that can refuse a landing is checked first ([`super::plan`]). Then git locks the references and verifies
//! the lease. Files change only while the references are locked; the references move last. So a stale attempt never
//! touches a file, and a person who saves a file in the last moment keeps the branch from moving. A crash leaves at
//! worst the work of the task visible in the checkout, never a branch whose work the next commit would silently revert.

use std::collections::HashSet;
use std::ops::ControlFlow;

use serde::Serialize;

use super::checkout::{self, Checkout, CheckoutMove};
use super::commit::Signature;
use super::error::Error;
use super::index;
use super::journal::PendingLanding;
use super::landed_record::{self, LandedRecord};
use super::merge;
use super::names::{Oid, RefName};
use super::objects::ObjectReader;
use super::obstacle::Obstacle;
use super::plan::{self, CheckoutFacts, LandDecision, LandFacts, LandRefusal, LandRequest, LandWork};
use super::refs::{self, RefCommand, RefTransaction, ReflogReason};
use super::repository::LandingRepository;
use super::spare_objects;
use super::steps::{LandObserver, LandStep, StepPoint, StepWatch};
use super::tree_diff;
use super::undo::{self, UndoOutcome};
use super::undo_commit;
use super::worktree::{self, Worktree};

/// How often a landing is tried again when something changed while it was checked.
const ATTEMPTS: usize = 3;

/// The outcome of a request to land.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum LandOutcome {
    /// The branch is at this commit now, or was there already with the work in it.
    Landed {
        commit: Oid,
    },
    /// This attempt had landed before.
    AlreadyLanded {
        landed: LandedRecord,
    },
    /// Another attempt of the task has landed.
    LandedBefore {
        landed: LandedRecord,
    },
    /// The lease is not this attempt's any more.
    Stale {
        found: Option<Oid>,
    },
    /// The branch has moved: merge, verify, and ask again.
    Moved {
        found: Option<Oid>,
    },
    Refused {
        refusal: LandRefusal,
    },
    /// A person's change is in the way. Nothing has changed.
    Waits {
        obstacles: Vec<Obstacle>,
    },
    /// Another program holds a lock, or changes files all the time. Nothing has changed.
    Busy {
        what: String,
    },
}

/// Lands, or says why not.
pub fn land(repository: &LandingRepository, request: &LandRequest<'_>) -> Result<LandOutcome, Error> {
    land_observed(repository, request, &mut |_| ControlFlow::Continue(()))
}

/// Asked when the references are locked, before the first file changes: whether the upstream takes the commit. When it
/// does not, nothing changes here.
pub type PublishCheck<'a> = &'a dyn Fn(&Oid) -> Result<bool, Error>;

/// Lands on a branch that is shared with an upstream: when the upstream does not take the commit, the outcome is
/// [`LandOutcome::Moved`].
pub fn land_published(
    repository: &LandingRepository,
    request: &LandRequest<'_>,
    publish: PublishCheck<'_>,
) -> Result<LandOutcome, Error> {
    take_turns(repository, |observer| attempt(repository, request, Some(publish), observer))
}

/// Brings a branch from one commit to one that has it in its history, and the checkout with it. No task lands by this.
pub fn fast_forward(
    repository: &LandingRepository,
    target: &RefName,
    (from, to): (&Oid, &Oid),
    who: &Signature,
) -> Result<LandOutcome, Error> {
    move_branch(repository, target, (from, to), (who, "agency: brought up to date"), None)
}

/// Moves a branch along to a commit of ours that is on top of it, and the checkout with it; `reason` is for the reflog.
pub(super) fn move_branch(
    repository: &LandingRepository,
    target: &RefName,
    (from, to): (&Oid, &Oid),
    (who, reason): (&Signature, &str),
    publish: Option<PublishCheck<'_>>,
) -> Result<LandOutcome, Error> {
    take_turns(repository, |observer| {
        undo::undo(repository, observer)?;
        if refs::at(repository, target)?.as_ref() != Some(from) {
            return Ok(LandTry::Answer(LandOutcome::Moved { found: refs::at(repository, target)? }));
        }
        let (worktrees, facts, checkouts) = repository.ask(|objects| {
            let changed = tree_diff::compare(objects, from, to)?;
            look_at_checkouts(repository, objects, target, &CheckoutMove { from, to, changed: &changed })
        })?;
        let obstacles = plan::obstacles(&facts);
        if !obstacles.is_empty() {
            return Ok(LandTry::Answer(LandOutcome::Waits { obstacles }));
        }
        let motion = BranchMove {
            target,
            expected: Some(from),
            commit: to,
            lines: vec![RefCommand::Update {
                name: target.clone(),
                from: Some(from.clone()),
                to: to.clone(),
            }],
            // The branch itself shows whether it moved.
            proof: (target.clone(), to.clone()),
            reason: ReflogReason { who, text: reason.to_owned() },
            moves_files: true,
        };
        let checkout = checkouts.into_iter().flatten().next();
        ApprovedLanding { repository, motion, worktrees: &worktrees, publish }.carry_out(checkout, observer)
    })
}

/// Takes back an interrupted landing of any task. Every landing does so first.
pub fn recover(repository: &LandingRepository) -> Result<UndoOutcome, Error> {
    let _turn = repository.landing.acquire()?;
    undo::undo(repository, &mut |_| ControlFlow::Continue(()))
}

/// Like [`land`], telling the observer each moment.
pub fn land_observed(
    repository: &LandingRepository,
    request: &LandRequest<'_>,
    observer: LandObserver<'_>,
) -> Result<LandOutcome, Error> {
    take_turns_observed(repository, observer, |observer| attempt(repository, request, None, observer))
}

fn take_turns(
    repository: &LandingRepository,
    attempt: impl FnMut(LandObserver<'_>) -> Result<LandTry, Error>,
) -> Result<LandOutcome, Error> {
    take_turns_observed(repository, &mut |_| ControlFlow::Continue(()), attempt)
}

fn take_turns_observed(
    repository: &LandingRepository,
    observer: LandObserver<'_>,
    mut attempt: impl FnMut(LandObserver<'_>) -> Result<LandTry, Error>,
) -> Result<LandOutcome, Error> {
    let _turn = match repository.landing.acquire() {
        Err(Error::Busy { what }) => return Ok(LandOutcome::Busy { what }),
        other => other?,
    };
    let mut busy = String::new();
    for _ in 0..ATTEMPTS {
        match attempt(observer) {
            Ok(LandTry::Answer(outcome)) => return Ok(outcome),
            Ok(LandTry::Again(what)) | Err(Error::Busy { what }) => busy = what,
            Err(error) => return Err(error),
        }
    }
    Ok(LandOutcome::Busy { what: busy })
}

/// The outcome of one try.
enum LandTry {
    Answer(LandOutcome),
    /// Something changed while we checked.
    Again(String),
}

fn attempt(
    repository: &LandingRepository,
    request: &LandRequest<'_>,
    publish: Option<PublishCheck<'_>>,
    observer: LandObserver<'_>,
) -> Result<LandTry, Error> {
    undo::undo(repository, observer)?;
    let target = refs::resolve(repository, request.target)?;
    let request = &LandRequest { target: &target, ..request.clone() };
    let LandView { facts, worktrees, checkouts } =
        repository.ask(|objects| observe(repository, objects, request))?;
    let checkout = match plan::decide(request, &facts) {
        LandDecision::Go { checkout } => checkout.and_then(|at| checkouts.into_iter().nth(at).flatten()),
        LandDecision::AlreadyLanded(landed) => {
            return Ok(LandTry::Answer(LandOutcome::AlreadyLanded { landed }));
        }
        LandDecision::LandedBefore(landed) => {
            return Ok(LandTry::Answer(LandOutcome::LandedBefore { landed }));
        }
        LandDecision::Stale { found } => return Ok(LandTry::Answer(LandOutcome::Stale { found })),
        LandDecision::Moved { found } => return Ok(LandTry::Answer(LandOutcome::Moved { found })),
        LandDecision::Refused(refusal) => return Ok(LandTry::Answer(LandOutcome::Refused { refusal })),
        LandDecision::Waits(obstacles) => return Ok(LandTry::Answer(LandOutcome::Waits { obstacles })),
    };
    let commit = match (request.work, request.expected) {
        (LandWork::Commit { commit, .. }, _) => commit,
        (LandWork::Contained, Some(at)) => at,
        (LandWork::Contained, None) => {
            return Err(Error::Answer { doing: "find the branch that has the work" });
        }
    };
    let record = landed_record::write(
        repository,
        &request.lease.task,
        (request.lease.epoch, request.lease.term),
        request.target,
        commit,
    )?;
    let lease = request.lease;
    let motion = BranchMove {
        target: request.target,
        expected: request.expected,
        commit,
        lines: plan::lines(request, &facts, &record),
        proof: (lease.task.landed(), record),
        reason: ReflogReason {
            who: request.who,
            text: format!("agency: {} lands, attempt {}", lease.task, lease.epoch),
        },
        moves_files: matches!(request.work, LandWork::Commit { .. }),
    };
    let named: Vec<Oid> = refs::named_by(&motion.lines).into_iter().cloned().collect();
    let collector = spare_objects::running_gc(repository);
    let tried = ApprovedLanding { repository, motion, worktrees: &worktrees, publish }
        .carry_out(checkout, observer)?;
    spare_objects::recheck_after_gc(repository, collector, &named.iter().collect::<Vec<_>>());
    Ok(tried)
}

/// The facts for a plan, and the observed checkouts.
struct LandView {
    facts: LandFacts,
    /// The work trees that have the branch checked out; there may be none.
    worktrees: Vec<Worktree>,
    /// For each work tree's facts, the checkout with which to move it along.
    checkouts: Vec<Option<Checkout>>,
}

fn observe(
    repository: &LandingRepository,
    objects: &mut ObjectReader,
    request: &LandRequest<'_>,
) -> Result<LandView, Error> {
    let task = &request.lease.task;
    let mut names = vec![task.lease(), task.landed(), request.target.clone()];
    let above: Vec<RefName> = request.target.parent_names().collect();
    names.extend(above.iter().cloned());
    let found = refs::read(repository, &names)?;
    let at = |name: &RefName| found.get(name).map(|found| found.at.clone());
    let facts = LandFacts {
        lease: at(&task.lease()),
        target: at(request.target),
        landed: at(&task.landed()).map(|object| landed_record::parse(objects, object)).transpose()?,
        taken: above.into_iter().find(|name| found.contains_key(name)),
        ..LandFacts::default()
    };
    let mut seen = LandView { facts, worktrees: Vec::new(), checkouts: Vec::new() };
    let LandWork::Commit { commit, base } = request.work else { return Ok(seen) };
    seen.facts.parents = objects.parents(commit)?;
    seen.facts.forward = match request.expected {
        Some(expected) if expected != base => merge::is_ancestor(repository, expected, commit)?,
        _ => true,
    };
    seen.facts.undone = match (&seen.facts.landed, request.expected) {
        (Some(landed), Some(expected)) if !seen.facts.forward => {
            undo_commit::is_undo(repository, objects, &landed.commit, expected)?
        }
        _ => false,
    };
    seen.facts.difference = tree_diff::examined(objects, base, commit)?;
    // Comparing files is the most expensive part, and useless when the answer is known already.
    if !matches!(plan::decide(request, &seen.facts), LandDecision::Go { .. }) {
        return Ok(seen);
    }
    let nothing = repository.format.empty_tree();
    let from = request.expected.unwrap_or(&nothing);
    let changed = match from == base {
        true => seen.facts.difference.changed.clone(),
        false => tree_diff::compare(objects, from, commit)?,
    };
    let way = CheckoutMove { from, to: commit, changed: &changed };
    (seen.worktrees, seen.facts.checkouts, seen.checkouts) =
        look_at_checkouts(repository, objects, request.target, &way)?;
    Ok(seen)
}

/// The work trees that have a branch checked out; for each that exists, its condition and the checkout with which to
/// move it along.
type ObservedCheckouts = (Vec<Worktree>, Vec<CheckoutFacts>, Vec<Option<Checkout>>);

fn look_at_checkouts(
    repository: &LandingRepository,
    objects: &mut ObjectReader,
    target: &RefName,
    way: &CheckoutMove<'_>,
) -> Result<ObservedCheckouts, Error> {
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

/// The references to move, and the reference that shows that they moved.
struct BranchMove<'a> {
    target: &'a RefName,
    expected: Option<&'a Oid>,
    commit: &'a Oid,
    lines: Vec<RefCommand>,
    /// A reference, and where it is when this is done.
    proof: (RefName, Oid),
    reason: ReflogReason<'a>,
    moves_files: bool,
}

/// A landing that the plan approved.
struct ApprovedLanding<'a> {
    repository: &'a LandingRepository,
    motion: BranchMove<'a>,
    worktrees: &'a [Worktree],
    publish: Option<PublishCheck<'a>>,
}

impl ApprovedLanding<'_> {
    fn carry_out(&self, checkout: Option<Checkout>, observer: LandObserver<'_>) -> Result<LandTry, Error> {
        let landed = || LandTry::Answer(LandOutcome::Landed { commit: self.motion.commit.clone() });
        let unpublished = || LandTry::Answer(LandOutcome::Moved { found: None });
        let mut watch = StepWatch { observer, undoing: false };
        let Some(checkout) = checkout else {
            let transaction = match watch.step(LandStep::Prepare, || self.prepare()) {
                Err(Error::Refs { message }) => return Ok(LandTry::Again(message)),
                other => other?,
            };
            if let Some(what) = self.is_in_use()? {
                return Ok(LandTry::Again(what));
            }
            if !self.is_published()? {
                return Ok(unpublished());
            }
            watch.step(LandStep::Commit, || transaction.commit())?;
            return Ok(landed());
        };
        let next = checkout.next_index(&HashSet::new())?;
        let pending = self.pending(&checkout, &next);
        watch.step(LandStep::Announce, || pending.write(self.repository))?;
        match self.with_checkout(&checkout, &next, &mut watch) {
            Ok(None) => {
                watch.step(LandStep::Forget, || PendingLanding::forget(self.repository))?;
                Ok(landed())
            }
            Ok(Some(tried)) => {
                undo::undo(self.repository, watch.observer)?;
                Ok(tried)
            }
            Err(Error::Stopped) => Err(Error::Stopped),
            // The undo finds out whether the references moved.
            Err(error) => match undo::undo(self.repository, watch.observer)? {
                UndoOutcome::Landed => Ok(landed()),
                _ => Err(error),
            },
        }
    }

    /// `None` when it landed.
    fn with_checkout(
        &self,
        checkout: &Checkout,
        next: &index::NextIndex,
        watch: &mut StepWatch<'_>,
    ) -> Result<Option<LandTry>, Error> {
        let again = |what: &str| Ok(Some(LandTry::Again(what.to_owned())));
        if !watch.step(LandStep::LockIndex, || next.lock())? || !checkout.is_unchanged()? {
            return again("the index is in use");
        }
        let transaction = match watch.step(LandStep::Prepare, || self.prepare()) {
            Err(Error::Refs { message }) => return again(&message),
            other => other?,
        };
        if let Some(what) = self.is_in_use()? {
            return again(&what);
        }
        if !self.is_published()? {
            return Ok(Some(LandTry::Answer(LandOutcome::Moved { found: None })));
        }
        watch.notify(LandStep::PlaceFiles, StepPoint::Before)?;
        let obstacles = checkout.place(self.repository, &HashSet::new(), watch)?;
        watch.notify(LandStep::PlaceFiles, StepPoint::After)?;
        if !obstacles.is_empty() {
            return Ok(Some(LandTry::Answer(LandOutcome::Waits { obstacles })));
        }
        watch.step(LandStep::PlaceIndex, || next.place())?;
        if !checkout.is_on_its_branch() {
            return again("the work tree changes its branch");
        }
        // Checked once more: a git that starts from now on finds the index locked, or the branch moved.
        if let Some(what) = self.is_in_use()? {
            return again(&what);
        }
        watch.step(LandStep::Commit, || transaction.commit())?;
        Ok(None)
    }

    /// Whether the upstream takes the commit, where there is one. Our own references are locked meanwhile, so an
    /// attempt that lost its lease never asks.
    fn is_published(&self) -> Result<bool, Error> {
        self.publish.map_or(Ok(true), |publish| publish(self.motion.commit))
    }

    /// Whether a person has begun to use the branch since it was checked. Another work tree that checked it out has the
    /// old files, and the next commit there would revert the work; aborting a rebase moves the branch back to where it
    /// was when the rebase began.
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

    fn prepare(&self) -> Result<RefTransaction<'_>, Error> {
        RefTransaction::prepare(self.repository, &self.motion.lines, &self.motion.reason)
    }

    fn pending(&self, checkout: &Checkout, next: &index::NextIndex) -> PendingLanding {
        let CheckoutMove { from, to, .. } = checkout.checkout_move();
        let (landed, record) = self.motion.proof.clone();
        PendingLanding {
            landed,
            record,
            target: self.motion.target.clone(),
            target_at: self.motion.expected.cloned(),
            from: from.clone(),
            to: to.clone(),
            root: checkout.root.clone(),
            git: checkout.worktree.git.clone(),
            index: next.file,
            left: checkout.already_in_place(),
            staged: checkout.already_staged(),
        }
    }
}
