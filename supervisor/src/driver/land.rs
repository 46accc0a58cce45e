//! From a commit that no reference shows to the branch.

use std::collections::HashSet;
use std::time::Duration;

use agency_protocols::board::ProofDecision;
use agency_sandbox::path::RelPath;
use agency_sandbox::scope::Scope;
use jiff::Zoned;
use serde_json::json;

use super::{AttemptDriver, AttemptStep, DriveError, DriverSignal, OutcomeSoFar, unexpected};
use crate::attempt::{AgentWork, AttemptEnd, AttemptFailure, FailureKind, Merge, Phase, WorkResult};
use crate::evidence::UNAUDITED;
use crate::job::JobState;
use crate::job::order::{JobKind, JobOrder, ProofOrder, ScopeOrder};
use crate::job::outcome::JobResult;
use crate::settings::LandingTarget;
use crate::store::AttemptStore;
use crate::train::{TrainSnapshot, TrainTurn};
use agency_landing::commit::{self, CommitMetadata, Signature};
use agency_landing::land::{self, LandOutcome};
use agency_landing::lock_watch::LockWatch;
use agency_landing::merge::{self, MergeOutcome};
use agency_landing::names::{Oid, RefName};
use agency_landing::plan::{LandRefusal, LandRequest, LandWork};
use agency_landing::{self, landed_record, refs, scope, tree_diff};

/// How long a repository that is busy is asked again, and how long between.
const BUSY: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

/// How often a proof that was killed is begun again.
const LOST: u32 = 3;

/// How often a merge is made that a garbage collection takes apart.
const MADE_AGAIN: u32 = 3;

/// What a merge came to.
enum TrainMerge {
    On { onto: Option<Oid>, commit: Option<Oid> },
    Conflict { paths: Vec<RelPath> },
    Outside { reason: String },
}

impl<S: AttemptStore> AttemptDriver<'_, S> {
    /// The branch this lands on; `None` if it does not land.
    fn target(&self) -> Option<RefName> {
        match self.context.settings.land {
            // What is on the branch already can only be said to be there.
            _ if self.is_on_the_branch() => Some(self.context.settings.branch.clone()),
            LandingTarget::Merge => Some(self.context.settings.branch.clone()),
            LandingTarget::Branch => Some(self.task.branch()),
            LandingTarget::None => None,
        }
    }

    fn is_on_the_branch(&self) -> bool {
        self.attempt.phase.work().is_some_and(AgentWork::is_already_landed)
    }

    /// Merges the work with the branch as it is, or as it will be when what is ahead has landed.
    pub(super) async fn merge(&mut self) -> Result<(), DriveError> {
        let (work, audit, before) = match self.attempt.phase.clone() {
            Phase::Ended(WorkResult::Work(work)) => (work, None, None),
            Phase::Audited { work, audit } => (work, Some(audit), None),
            Phase::Merged(merge) => (merge.work.clone(), merge.audit.clone(), Some((merge, false))),
            Phase::Proved { merge, passed } => {
                (merge.work.clone(), merge.audit.clone(), Some((merge, passed)))
            }
            _ => return Err(unexpected("there is nothing to merge")),
        };
        self.context.train.leave(&self.attempt.task, false);
        let coupling = self.context.train.coupling.lock().await;
        let ahead = match self.context.settings.land {
            LandingTarget::Merge => Some(self.context.train.snapshot()),
            LandingTarget::Branch | LandingTarget::None => None,
        };
        let number = before.as_ref().map_or(1, |(merge, _)| merge.number + 1);
        // A proof that came to its end was not killed, even if it failed.
        let lost = match (&self.attempt.phase, &before) {
            (Phase::Merged(_), Some((merge, _))) => match self.proof_place(merge).state()? {
                JobState::Over(outcome) if outcome.stopped.is_none() => 0,
                _ => merge.lost + 1,
            },
            _ => 0,
        };
        if lost >= LOST {
            let reason = format!("its checks were killed {lost} times in a row");
            return self.failed(FailureKind::Verify, reason).await;
        }
        let (onto, commit) = match self.couple_and_pin(&work, ahead.as_ref(), number).await? {
            TrainMerge::On { onto, commit } => (onto, commit),
            TrainMerge::Conflict { paths } => {
                let paths: Vec<String> = paths.iter().take(5).map(ToString::to_string).collect();
                let reason = format!("merge conflict in {}", paths.join(", "));
                return self.failed(FailureKind::Conflict, reason).await;
            }
            TrainMerge::Outside { reason } => return self.failed(FailureKind::Scope, reason).await,
        };
        let merge = Merge {
            work,
            audit,
            onto: onto.map(|onto| onto.to_string()),
            commit: commit.map(|commit| commit.to_string()),
            number,
            lost,
        };
        // A proof still holds where nothing but the board's own files came between.
        let proved = match before {
            Some((before, true)) => self.only_the_board_moved(&before, &merge).await?,
            _ => false,
        };
        self.context.join(&self.attempt.task, &merge);
        drop(coupling);
        self.advance(if proved { Phase::Proved { merge, passed: true } } else { Phase::Merged(merge) }).await
    }

    async fn failed(&mut self, kind: FailureKind, reason: String) -> Result<(), DriveError> {
        let mut failure = AttemptFailure::new(kind, reason);
        failure.work = self.attempt.phase.work().cloned();
        self.advance(Phase::Ended(WorkResult::Failed { failure })).await
    }

    /// Merges, and names the merge. One that a garbage collection took apart before it had a name is made again.
    async fn couple_and_pin(
        &self,
        work: &AgentWork,
        ahead: Option<&TrainSnapshot>,
        number: u32,
    ) -> Result<TrainMerge, DriveError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let coupled = self.step(AttemptStep::Merge, self.couple(work, ahead.cloned(), number)).await?;
            let TrainMerge::On { commit: Some(commit), .. } = &coupled else { return Ok(coupled) };
            match self.pin_new(commit).await {
                Err(DriveError::Landing(agency_landing::Error::Missing { .. })) if tries < MADE_AGAIN => {}
                pinned => return pinned.map(|()| coupled),
            }
        }
    }

    async fn couple(
        &self,
        work: &AgentWork,
        ahead: Option<TrainSnapshot>,
        number: u32,
    ) -> Result<TrainMerge, DriveError> {
        let (base, candidate) = (Oid::parse(&work.base)?, Oid::parse(&work.candidate)?);
        let there = work.is_already_landed();
        let (target, own, task) = (self.target(), self.task.branch(), self.task.clone());
        let order = self.agent_order()?;
        let globs = scope_of(&order.scope)?;
        let seconds = if there { self.attempt.claimed_at } else { self.outcome()?.ended_at };
        let author = Signature::of_agent(&order.agent, seconds);
        let committer = self.context.settings.committer.signature(seconds);
        let (epoch, verify) = (self.attempt.epoch.0, self.verify_id(number));
        self.blocking(move |repository| {
            let Some(target) = target else {
                return Ok(TrainMerge::On { onto: None, commit: Some(candidate) });
            };
            let at =
                refs::read(repository, std::slice::from_ref(&target))?.remove(&target).map(|found| found.at);
            let statement = CommitMetadata {
                author: &author,
                committer: &committer,
                subject: &order.subject,
                body: "",
                task: &task,
                epoch,
                verify: Some(&verify),
            };
            // On a branch of the task's own there is nothing to merge with.
            let (parent, onto) = match target == own {
                true => (base.clone(), at),
                false => {
                    let Some(tip) = at else {
                        return Ok(TrainMerge::On { onto: None, commit: None });
                    };
                    let onto = match &ahead {
                        Some(ahead) => Oid::parse(ahead.last(tip.as_str()))?,
                        None => tip,
                    };
                    (onto.clone(), Some(onto))
                }
            };
            if there {
                return Ok(TrainMerge::On { onto, commit: None });
            }
            let tree = match merge::merge_candidate(repository, &base, &candidate, &parent)? {
                MergeOutcome::Clean { tree } => tree,
                MergeOutcome::Conflict { paths } => return Ok(TrainMerge::Conflict { paths }),
                MergeOutcome::Contained => return Ok(TrainMerge::On { onto, commit: None }),
            };
            let commit = commit::write(repository, &tree, &parent, &statement)?;
            if parent != base {
                let outside =
                    scope::refused_paths(&globs, &tree_diff::examine(repository, &parent, &commit)?);
                if !outside.is_empty() {
                    return Ok(TrainMerge::Outside { reason: LandRefusal::Scope { outside }.to_string() });
                }
            }
            Ok(TrainMerge::On { onto, commit: Some(commit) })
        })
        .await
    }

    /// The id of a proof, given out before it is made.
    fn verify_id(&self, number: u32) -> String {
        format!("{}-{}-{number}", self.attempt.task.id, self.attempt.epoch)
    }

    async fn only_the_board_moved(&self, before: &Merge, after: &Merge) -> Result<bool, DriveError> {
        let (Some(old), Some(new)) = (before.commit.as_ref(), after.commit.as_ref()) else {
            return Ok(false);
        };
        let (old, new) = (Oid::parse(old)?, Oid::parse(new)?);
        let own = Scope::parse(&self.context.board_thread.own, &[])
            .map_err(|error| unexpected(&error.to_string()))?;
        self.blocking(move |repository| {
            match tree_diff::differs_only_in(repository, &own, &old, &new) {
                // The commit that was proved is gone, so it can't be compared.
                Err(agency_landing::Error::Missing { .. }) => Ok(false),
                compared => compared,
            }
        })
        .await
    }

    /// Has the Definition of Done tried on exactly what would land.
    pub(super) async fn prove(&mut self) -> Result<(), DriveError> {
        let Phase::Merged(merge) = self.attempt.phase.clone() else {
            return Err(unexpected("there is nothing to prove"));
        };
        let place = self.proof_place(&merge);
        let settings = &self.context.settings;
        let order = self.agent_order()?;
        let JobOrder { level, container, .. } = self.agent_place().read_order()?;
        // Others may have landed meanwhile: what is prepared for them is good enough for what stands on them.
        let now = match &settings.setup {
            Some(_) => Some(self.base().await?),
            None => None,
        };
        let landed = [Some(merge.work.base.as_str()), now.as_deref()].into_iter().flatten();
        let proof = ProofOrder {
            commit: merge.subject().to_owned(),
            judged_by: merge.work.base.clone(),
            profile: order.profile,
            profiles: self.context.board_thread.profiles.map(str::to_owned),
            trust: settings.trust.clone(),
            setup: settings.setup_order(landed),
        };
        place.order(&self.ordered(level, container, JobKind::Proof(Box::new(proof))))?;
        let until = self.lease_end();
        self.step(AttemptStep::Prove, async {
            match self.send(&place).await? {
                Some(waiting) => self.release_shim(waiting, until).await,
                None => Ok(()),
            }
        })
        .await
    }

    /// Tells the board the result of the proof.
    pub(super) async fn attest(&mut self) -> Result<(), DriveError> {
        let Phase::Merged(merge) = self.attempt.phase.clone() else {
            return Err(unexpected("there is no proof"));
        };
        let JobState::Over(outcome) = self.proof_place(&merge).state()? else {
            return Err(unexpected("the proof is gone"));
        };
        let mut evidence = match outcome.done {
            JobResult::Proof(proof) => proof.evidence,
            JobResult::NotRun { .. } if !self.is_whole(merge.subject()).await? => return self.merge().await,
            JobResult::NotRun { reason, .. } => {
                return self.failed(FailureKind::Checks, format!("checks could not run: {reason}")).await;
            }
            JobResult::Agent(_)
            | JobResult::NoRoom { .. }
            | JobResult::Away { .. }
            | JobResult::Lost { .. }
            | JobResult::Unread { .. }
            | JobResult::Stopped => {
                return Err(unexpected("the outcome of a proof is none"));
            }
        };
        // An attempt does not answer for work that it was only merged with: that work may be what fails. And a board
        // that git carries is told once of what lands, not of every proof on the way.
        if !evidence.passed || self.context.sharing.is_some() {
            let turn = self.wait_for_turn().await?;
            if *self.wanted.borrow() != DriverSignal::GoOn {
                return Ok(());
            }
            if turn == TrainTurn::Broken {
                return self.merge().await;
            }
        }
        if evidence.passed && self.is_overtaken(&merge).await? {
            return self.merge().await;
        }
        evidence.bound_to.insert("verify".to_owned(), json!(self.verify_id(merge.number)));
        evidence.notes.push(match &merge.audit {
            Some(audit) => self.audit_note(audit).await?,
            None => UNAUDITED.to_owned(),
        });
        if merge.work.is_already_landed() {
            evidence.notes.push(match self.agent_place().state()? {
                JobState::Over(_) => "its agent changed no file".to_owned(),
                _ => "the work was done outside: what it changed was not seen".to_owned(),
            });
        }
        let (task, _) = self.names()?;
        let judged = self
            .step(
                AttemptStep::Attest,
                self.write_board(move |board, tree| {
                    board.record_proof(tree, &task, &evidence, &Zoned::now())
                }),
            )
            .await?;
        let passed = match judged {
            ProofDecision::Accepted => true,
            ProofDecision::Failed => false,
            ProofDecision::Waits { why } => return self.failed(FailureKind::Decision, why).await,
        };
        self.advance(Phase::Proved { merge, passed }).await
    }

    /// Lands it. `None` if it goes on from there.
    pub(super) async fn land(&mut self) -> Result<Option<OutcomeSoFar>, DriveError> {
        let Phase::Proved { merge, .. } = self.attempt.phase.clone() else {
            return Err(unexpected("nothing is proved"));
        };
        let Some(target) = self.target() else {
            let candidate = merge.work.candidate.clone();
            return self
                .end(AttemptEnd::Kept { candidate })
                .await
                .map(|ending| Some(OutcomeSoFar::Over(ending)));
        };
        let turn = self.wait_for_turn().await?;
        if *self.wanted.borrow() != DriverSignal::GoOn {
            return Ok(None);
        }
        if turn == TrainTurn::Broken {
            self.merge().await?;
            return Ok(None);
        }
        let lock = LockWatch::begin(&self.context.repository, &target);
        loop {
            let outcome = match self.try_to_land(&merge, &target).await {
                // A person may have removed its name, and git the merge. Its parts are still there.
                Err(DriveError::Landing(agency_landing::Error::Missing { .. })) => {
                    LandOutcome::Moved { found: None }
                }
                other => other?,
            };
            match outcome {
                LandOutcome::Landed { commit } => return self.landed(commit).await,
                LandOutcome::AlreadyLanded { landed } => return self.landed(landed.commit).await,
                LandOutcome::LandedBefore { landed } => {
                    let reason = format!("attempt {} of it has landed as {}", landed.epoch, landed.commit);
                    self.failed(FailureKind::Conflict, reason).await?;
                }
                LandOutcome::Stale { .. } => {
                    return Err(crate::store::AttemptStoreError::Fenced(self.lease.clone()).into());
                }
                LandOutcome::Moved { .. } => {
                    if let Some(why) = self.refresh(&target).await? {
                        return Ok(Some(OutcomeSoFar::Waits(why)));
                    }
                    match self.over_the_board(&merge).await? {
                        Some(merge) => {
                            if let Some(commit) = &merge.commit {
                                self.pin(commit).await?;
                            }
                            self.advance(Phase::Proved { merge, passed: true }).await?;
                        }
                        None => self.merge().await?,
                    }
                }
                LandOutcome::Refused { refusal: refusal @ LandRefusal::Scope { .. } } => {
                    self.failed(FailureKind::Scope, refusal.to_string()).await?;
                }
                LandOutcome::Refused { refusal } => {
                    self.failed(FailureKind::Conflict, refusal.to_string()).await?;
                }
                LandOutcome::Waits { obstacles } => {
                    let mut seen = HashSet::new();
                    let all =
                        obstacles.iter().map(ToString::to_string).filter(|one| seen.insert(one.clone()));
                    return Ok(Some(OutcomeSoFar::Waits(all.collect::<Vec<_>>().join("; "))));
                }
                LandOutcome::Busy { what } => {
                    tracing::debug!(what, "the repository is busy");
                    if lock.elapsed() < BUSY {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    return Ok(Some(OutcomeSoFar::Waits(match lock.stuck_reason() {
                        Some(stuck) => stuck,
                        None => format!("another program is at work in the repository all the time: {what}"),
                    })));
                }
            }
            return Ok(None);
        }
    }

    /// What was proved, on the branch as it is now, if nothing but commits of the board came between. Those that stand
    /// on it need not be merged again: what it lands as differs in the board alone.
    async fn over_the_board(&self, merge: &Merge) -> Result<Option<Merge>, DriveError> {
        let Some(onto) = &merge.onto else { return Ok(None) };
        if self.context.sharing.is_none() || self.target().as_ref() != Some(&self.context.settings.branch) {
            return Ok(None);
        }
        let onto = Oid::parse(onto)?;
        let proved = merge.commit.as_deref().map(Oid::parse).transpose()?;
        let own = Scope::parse(&self.context.board_thread.own, &[])
            .map_err(|error| unexpected(&error.to_string()))?;
        let (branch, task, order) =
            (self.context.settings.branch.clone(), self.task.clone(), self.agent_order()?);
        let seconds = self.outcome()?.ended_at;
        let author = Signature::of_agent(&order.agent, seconds);
        let committer = self.context.settings.committer.signature(seconds);
        let (epoch, verify) = (self.attempt.epoch.0, self.verify_id(merge.number));
        let moved = self.blocking(move |repository| {
            let Some(tip) = refs::at(repository, &branch)?.filter(|tip| *tip != onto) else {
                return Ok(None);
            };
            let boards = tree_diff::differs_only_in(repository, &own, &onto, &tip)?;
            if !boards || !merge::is_ancestor(repository, &onto, &tip)? {
                return Ok(None);
            }
            // What the branch has already, it still has.
            let Some(proved) = proved else { return Ok(Some((tip, None))) };
            let MergeOutcome::Clean { tree } = merge::merge_candidate(repository, &onto, &proved, &tip)?
            else {
                return Ok(None);
            };
            let statement = CommitMetadata {
                author: &author,
                committer: &committer,
                subject: &order.subject,
                body: "",
                task: &task,
                epoch,
                verify: Some(&verify),
            };
            let commit = commit::write(repository, &tree, &tip, &statement)?;
            Ok(Some((tip, Some(commit))))
        });
        let moved = match moved.await {
            // The merge is gone: it is made again.
            Err(DriveError::Landing(agency_landing::Error::Missing { .. })) => None,
            other => other?,
        };
        Ok(moved.map(|(tip, commit)| Merge {
            onto: Some(tip.to_string()),
            commit: commit.map(|commit| commit.to_string()),
            ..merge.clone()
        }))
    }

    /// Others may have gone on where the branch is shared. Says what a person has to do before it lands: where a branch
    /// is shared, nothing lands that others do not take at the same moment.
    async fn refresh(&self, target: &RefName) -> Result<Option<String>, DriveError> {
        let shared = self.context.sharing.clone().filter(|sharing| sharing.branch == *target);
        let Some(sharing) = shared else { return Ok(None) };
        self.blocking(move |_| sharing.refresh()).await
    }

    /// Whether others have landed since this was merged. It will be merged and proved again, and the board is told of
    /// that proof: each is a commit on a board that git carries.
    async fn is_overtaken(&self, merge: &Merge) -> Result<bool, DriveError> {
        let (Some(sharing), Some(onto)) = (self.context.sharing.clone(), &merge.onto) else {
            return Ok(false);
        };
        let onto = Oid::parse(onto)?;
        if self.target().as_ref() != Some(&sharing.branch) {
            return Ok(false);
        }
        self.blocking(move |repository| {
            // What keeps us from asking is met, and said, where it lands.
            let _ = sharing.refresh();
            let Some(tip) = refs::at(repository, &sharing.branch)? else { return Ok(false) };
            Ok(!sharing.differs_only_in_board(&onto, &tip)?)
        })
        .await
    }

    async fn landed(&mut self, commit: Oid) -> Result<Option<OutcomeSoFar>, DriveError> {
        self.context.train.leave(&self.attempt.task, true);
        self.advance(Phase::Landed { commit: commit.to_string() }).await?;
        Ok(None)
    }

    /// Waits until what is ahead has landed or gone. A cancellation is heard meanwhile.
    async fn wait_for_turn(&mut self) -> Result<TrainTurn, DriveError> {
        let key = self.attempt.task.clone();
        loop {
            tokio::select! {
                turn = self.context.train.wait_for_turn(&key) => return Ok(turn),
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return Err(unexpected("nobody is in charge of this attempt any more"));
                    }
                    // It is taken up again from where it is.
                    if *self.wanted.borrow() != DriverSignal::GoOn {
                        return Ok(TrainTurn::Broken);
                    }
                }
            }
        }
    }

    async fn try_to_land(&mut self, merge: &Merge, target: &RefName) -> Result<LandOutcome, DriveError> {
        let lease = self.hold().await?;
        if !self.context.store.holds(&self.lease).await? {
            return Err(crate::store::AttemptStoreError::Fenced(self.lease.clone()).into());
        }
        let globs = scope_of(&self.agent_order()?.scope)?;
        let reopened_after = self.reopened_after().await?;
        let who = self.context.settings.committer.signature(crate::clock::wall_seconds());
        let (merge, target) = (merge.clone(), target.clone());
        let sharing = self.context.sharing.clone().filter(|sharing| sharing.branch == target);
        self.step(
            AttemptStep::Land,
            self.blocking(move |repository| {
                let oid = |text: &Option<String>| text.as_deref().map(Oid::parse).transpose();
                let (onto, commit, base) =
                    (oid(&merge.onto)?, oid(&merge.commit)?, Oid::parse(&merge.work.base)?);
                let own = target == lease.task.branch();
                let parent = match (&onto, own) {
                    (Some(onto), false) => onto,
                    _ => &base,
                };
                let work = match &commit {
                    Some(commit) => LandWork::Commit { commit, base: parent },
                    None => LandWork::Contained,
                };
                let request = LandRequest {
                    lease: &lease,
                    target: &target,
                    expected: onto.as_ref(),
                    work,
                    scope: &globs,
                    reopened_after,
                    who: &who,
                };
                match &sharing {
                    Some(sharing) => {
                        land::land_published(repository, &request, &|made| sharing.publish(made))
                    }
                    None => land::land(repository, &request),
                }
            }),
        )
        .await
    }

    /// The attempt that landed before, if it was brought to its end: then a person has opened the task again.
    async fn reopened_after(&self) -> Result<Option<u64>, DriveError> {
        let task = self.task.clone();
        let Some(landed) = self.blocking(move |repository| landed_record::read(repository, &task)).await?
        else {
            return Ok(None);
        };
        let attempts = self.context.store.attempts(&self.attempt.task).await?;
        // What the store has forgotten was over long ago.
        let ended = match attempts.iter().find(|one| one.epoch.0 == landed.epoch) {
            Some(one) => matches!(one.phase, Phase::Over(AttemptEnd::Done { .. })),
            None => true,
        };
        Ok(ended.then_some(landed.epoch))
    }
}

pub(super) fn scope_of(order: &ScopeOrder) -> Result<Scope, DriveError> {
    crate::scope::parse(&order.write, &order.deny, order.author)
        .map_err(|error| unexpected(&error.to_string()))
}
