//! From a claim to an agent at work.

use std::time::Duration;

use agency_protocols::board::{BoardError, Claimant, ReadyTask, ScopeAuthor};
use agency_protocols::names::{AgentName, TaskId};
use agency_sandbox::scope::ScopeOrigin;
use jiff::Zoned;
use tracing::Instrument;

use super::starting_point::StartingPoint;
use super::{AttemptDriver, AttemptStep, DriveError, NOT_OFFERED, StepSide, unexpected};
use crate::agent_slots::SlotPurpose;
use crate::attempt::{AgentWork, Phase, WorkResult};
use crate::clock::{BootClock, BootInstant, Clock};
use crate::job::order::{AgentLimits, AgentOrder, BudgetOwner, JobKind, ScopeOrder};
use crate::job::shim_client::WaitingShim;
use crate::job::{JobError, JobFolder, JobState};
use crate::prompt::Prompt;
use crate::settings::AgentSettings;
use crate::store::AttemptStore;
use crate::trace;
use agency_landing::lease::{self, GitLease, LeaseResult};
use agency_landing::names::Oid;
use agency_landing::repository::LandingRepository;
use agency_landing::{pin, refs};

impl<S: AttemptStore> AttemptDriver<'_, S> {
    /// Brings an attempt that was claimed as far as its agent's first breath; or says why the board does not want
    /// that any more.
    pub(super) async fn begin(&mut self) -> Result<Option<String>, DriveError> {
        // Work that was done elsewhere needs no place.
        let received = self.start.as_ref().is_some_and(|start| self.context.settings.is_review(start));
        if self.slot.is_none() && !received {
            if self.wait_for_place(&self.attempt.agent.clone(), SlotPurpose::Build).await? {
                // That may have taken a while, and what the board says now is what counts.
                self.start = self.offered().await?;
            }
            return Ok(None);
        }
        let Some(start) = self.start.clone() else {
            return Ok(Some(NOT_OFFERED.to_owned()));
        };
        if received {
            return self.receive(&start).await;
        }
        (self.context.step_hook)(&self.attempt.task, AttemptStep::Announce, StepSide::Before);
        match trace::with_status(self.announce()).instrument(AttemptStep::Announce.span()).await {
            Err(DriveError::Board(BoardError::Refused { reason, .. } | BoardError::Apart { reason })) => {
                return Ok(Some(reason));
            }
            Err(DriveError::Board(error @ BoardError::NoSuchTask { .. })) => {
                return Ok(Some(error.to_string()));
            }
            other => other?,
        }
        (self.context.step_hook)(&self.attempt.task, AttemptStep::Announce, StepSide::After);
        self.step(AttemptStep::Order, self.order(&start)).await?;
        let place = self.agent_place();
        let Some(waiting) = self.step(AttemptStep::Send, self.send(&place)).await? else {
            // One that was sent before us goes when it sees that its supervisor did, or gives no word.
            self.wait().await?;
            return Ok(None);
        };
        // From here on it may have been begun, and is looked at before it is begun again.
        let until = self.lease_end();
        self.step(AttemptStep::Permit, self.record(&Phase::Started)).await?;
        self.reach(Phase::Started);
        self.step(AttemptStep::Begin, self.release_shim(waiting, until)).await?;
        Ok(None)
    }

    /// What the board says of it now.
    async fn offered(&self) -> Result<Option<ReadyTask>, DriveError> {
        let agenda = self.context.agenda().await?;
        Ok(agenda.ready.into_iter().find(|start| start.task.as_str() == self.attempt.task.id))
    }

    /// Takes over work that was done outside and reported. It is on the branch, and is judged there.
    async fn receive(&mut self, start: &ReadyTask) -> Result<Option<String>, DriveError> {
        self.hold().await?;
        let (task, _) = self.names()?;
        let received = self.write_board(move |board, tree| board.receive(tree, &task, &Zoned::now())).await;
        let blocked = match received {
            Err(DriveError::Board(BoardError::Refused { reason, .. })) => return Ok(Some(reason)),
            other => other?,
        };
        self.order(start).await?;
        let base = self.agent_order()?.base;
        let ended = match blocked {
            Some(reason) => WorkResult::Blocked { reason },
            None => WorkResult::Work(AgentWork { base: base.clone(), candidate: base }),
        };
        self.advance(Phase::Ended(ended)).await?;
        Ok(None)
    }

    /// A shim that waits for its word; `None` if there is one already, or it was too fast for us.
    pub(super) async fn send(&self, place: &JobFolder) -> Result<Option<WaitingShim>, DriveError> {
        match self.context.shim.send(place, self.lease.term).await {
            Err(JobError::NotReady { .. }) if !matches!(place.state()?, JobState::Waiting) => Ok(None),
            sent => Ok(Some(sent?)),
        }
    }

    pub(super) async fn release_shim(
        &self,
        waiting: WaitingShim,
        until: BootInstant,
    ) -> Result<(), DriveError> {
        let begun = waiting.begin(self.lease.term, until).await;
        begun.map_err(|source| JobError::Start { source }.into())
    }

    /// For a shim that went before it had its word, or before it had collected what its agent did. The next one begins the
    /// agent, or collects.
    pub(super) async fn send_again(&mut self) -> Result<(), DriveError> {
        if !self.wait_for_place(&self.attempt.agent.clone(), SlotPurpose::Build).await? {
            return Ok(());
        }
        let Some(waiting) = self.send(&self.agent_place()).await? else { return Ok(()) };
        let until = self.lease_end();
        // The store is asked whether we may: a word from a supervisor that lost the lease begins nothing.
        self.record(&Phase::Started).await?;
        self.release_shim(waiting, until).await
    }

    pub(super) fn lease_end(&self) -> BootInstant {
        BootClock.now() + self.context.settings.leases.ttl
    }

    /// Git and the board know whose it is.
    async fn announce(&mut self) -> Result<(), DriveError> {
        self.hold().await?;
        let (task, agent) = self.names()?;
        let session = format!("{}.{}", self.attempt.task.id, self.attempt.epoch);
        self.write_board(move |board, tree| {
            let claimant = Claimant { agent: &agent, session: &session };
            Ok(((), board.claim(tree, &task, &claimant, &Zoned::now())?))
        })
        .await
    }

    /// The lease in git, moved to this attempt and this owner if it is not there yet.
    pub(super) async fn hold(&mut self) -> Result<GitLease, DriveError> {
        if let Some(held) = &self.held {
            return Ok(held.clone());
        }
        let lease = self.take_lease().await?;
        self.held = Some(lease.clone());
        Ok(lease)
    }

    async fn take_lease(&self) -> Result<GitLease, DriveError> {
        let (task, epoch, term) = (self.task.clone(), self.lease.epoch.0, self.lease.term.0);
        let taken = self
            .blocking(move |repository| {
                // A lease that is there was left by an owner the store has replaced; a newer one is not moved.
                let found = lease::read(repository, &task)?;
                let found = found.as_ref();
                let object = found.map(|found| &found.lease.object);
                match found {
                    Some(found) if found.bars(epoch, term) => {
                        Ok(LeaseResult::Lost { found: object.cloned() })
                    }
                    Some(found) if (found.lease.epoch, found.lease.term) == (epoch, term) => {
                        Ok(LeaseResult::Held(found.lease.clone()))
                    }
                    _ => lease::take(repository, &task, (epoch, term), object),
                }
            })
            .await?;
        match taken {
            LeaseResult::Held(lease) => Ok(lease),
            LeaseResult::Lost { .. } => {
                Err(crate::store::AttemptStoreError::Fenced(self.lease.clone()).into())
            }
        }
    }

    pub(super) fn names(&self) -> Result<(TaskId, AgentName), DriveError> {
        let task = TaskId::parse(&self.attempt.task.id).map_err(|error| unexpected(&error.to_string()))?;
        let agent = AgentName::parse(&self.attempt.agent).map_err(|error| unexpected(&error.to_string()))?;
        Ok((task, agent))
    }

    /// What the agent is to do, read from the board once: even if the task's file changes from here on, this
    /// is what counts.
    async fn order(&self, start: &ReadyTask) -> Result<(), DriveError> {
        let place = self.agent_place();
        if !matches!(place.state()?, JobState::Unordered) {
            return Ok(());
        }
        let settings = &self.context.settings;
        let agent = match settings.agents.get(&self.attempt.agent) {
            Some(agent) => agent.clone(),
            None if settings.is_review(start) => AgentSettings::default(),
            None => return Err(unexpected(&format!("no agent `{}` is configured", self.attempt.agent))),
        };
        let (task, _) = self.names()?;
        let brief = self.context.board_thread.read(move |board, tree| board.brief(tree, &task)).await?;
        let base = self.base().await?;
        self.pin(&base).await?;
        let scope = ScopeOrder {
            must: start.scope.must.clone(),
            write: start.scope.touch.clone(),
            deny: start.scope.keep.clone(),
            author: match start.scope.author {
                ScopeAuthor::Person => ScopeOrigin::Person,
                ScopeAuthor::Agent => ScopeOrigin::Agent,
            },
        };
        let starting_point = match settings.is_review(start) {
            false => self.starting_point(&base, &scope, &start.title).await?,
            true => StartingPoint::default(),
        };
        let (limits, short_of_time) = self.within_budget(&agent.limits).await?;
        let prompt = Prompt {
            id: start.task.as_str(),
            file: &start.file,
            brief: &brief,
            scope: &start.scope,
            profile: &start.profile,
            before: &starting_point.before,
            goes_on: starting_point.start.is_some(),
            papers: &starting_point.papers,
        };
        let order = self.ordered(
            agent.level.unwrap_or(settings.level),
            settings.container_of(&agent),
            JobKind::Agent(Box::new(AgentOrder {
                setup: settings.setup_order([base.as_str()]),
                base,
                start: starting_point.start.clone(),
                agent: start.agent.to_string(),
                program: agent.program,
                prompt: prompt.text(),
                task_file: start.file.clone(),
                scope,
                profile: start.profile.clone(),
                live: self.context.board_thread.folder.map(str::to_owned).into_iter().collect(),
                limits,
                short_of_time,
                papers: starting_point.papers.clone(),
                subject: start.title.clone(),
                may_change_nothing: start.may_change_nothing,
                branch: start.branch.clone(),
            })),
        );
        Ok(place.order(&order)?)
    }

    /// Keeps a commit that this attempt stands on, even if the branch goes.
    pub(super) async fn pin(&self, commit: &str) -> Result<(), DriveError> {
        self.pin_by(pin::pin, Oid::parse(commit)?).await
    }

    /// Keeps a commit that was made a moment ago; an error if a part of it is gone already.
    pub(super) async fn pin_new(&self, commit: &Oid) -> Result<(), DriveError> {
        self.pin_by(pin::pin_new, commit.clone()).await
    }

    async fn pin_by(
        &self,
        pin: fn(&LandingRepository, &GitLease, &Oid) -> Result<bool, agency_landing::Error>,
        commit: Oid,
    ) -> Result<(), DriveError> {
        let Some(lease) = self.held.clone() else {
            return Err(unexpected("an attempt that git does not know of"));
        };
        match self.blocking(move |repository| pin(repository, &lease, &commit)).await? {
            true => Ok(()),
            false => Err(crate::store::AttemptStoreError::Fenced(self.lease.clone()).into()),
        }
    }

    /// Whether a commit is there, with everything that is new in it.
    pub(super) async fn is_whole(&self, commit: &str) -> Result<bool, DriveError> {
        let commit = Oid::parse(commit)?;
        self.blocking(move |repository| pin::is_whole(repository, &commit)).await
    }

    /// What an agent may use, and whose budget has less time left than it may take.
    pub(super) async fn within_budget(
        &self,
        limits: &AgentLimits,
    ) -> Result<(AgentLimits, Option<BudgetOwner>), DriveError> {
        let budget = &self.context.settings.budget;
        if budget.task.is_boundless() && budget.run.is_boundless() {
            return Ok((limits.clone(), None));
        }
        let used = self.used().await?;
        let of_task = budget.task.time_left(Duration::from_millis(used.time_ms));
        let of_run = budget.run.time_left(BootClock.now().since(self.context.began));
        let left = [(of_task, BudgetOwner::Task), (of_run, BudgetOwner::Run)];
        let left = left
            .into_iter()
            .filter_map(|(left, budget_owner)| Some((left?, budget_owner)))
            .min_by_key(|(left, _)| *left);
        let left = left.map(|(left, budget_owner)| {
            (u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1), budget_owner)
        });
        Ok(match left {
            Some((left, budget_owner)) if limits.wall_ms.is_none_or(|wall| left < wall) => {
                (AgentLimits { wall_ms: Some(left), ..limits.clone() }, Some(budget_owner))
            }
            _ => (limits.clone(), None),
        })
    }

    /// The commit an agent starts from.
    pub(super) async fn base(&self) -> Result<String, DriveError> {
        let branch = self.context.settings.branch.clone();
        let found = self
            .blocking(move |repository| {
                let found = refs::read(repository, std::slice::from_ref(&branch))?;
                Ok(found.get(&branch).map(|found| found.at.to_string()))
            })
            .await?;
        found.ok_or_else(|| unexpected("the branch has no commit to start from"))
    }
}
