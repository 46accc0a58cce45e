//! From a claim to an agent at work.

use agency_protocols::board::{BoardError, Brief, Start};
use agency_protocols::names::{AgentName, TaskId};
use jiff::Zoned;
use tracing::Instrument;

use super::{Life, LifeError, Side, Step, odd};
use crate::attempt::{Ended, Ending, Phase};
use crate::clock::{BootClock, Clock, Instant};
use crate::errand::order::{self, AgentOrder, Order, ScopeOrder, What};
use crate::errand::send::Waiting;
use crate::errand::{ErrandError, Place, Standing};
use crate::landing::lease::{self, Lease, Taken};
use crate::landing::refs;
use crate::prompt::Prompt;
use crate::settings::Agent;
use crate::store::Store;
use crate::trace;

impl<S: Store> Life<'_, S> {
    /// Brings an attempt that was claimed as far as its agent's first breath; or says why the board does not want
    /// that any more.
    pub(super) async fn begin(&mut self) -> Result<Option<String>, LifeError> {
        let Some(start) = self.start.clone() else {
            return Ok(Some("the board does not offer it any more".to_owned()));
        };
        (self.shop.witness)(&self.attempt.task, Step::Announce, Side::Before);
        match trace::watch(self.announce()).instrument(Step::Announce.span()).await {
            Err(LifeError::Board(BoardError::Refused { reason, .. })) => return Ok(Some(reason)),
            Err(LifeError::Board(error @ BoardError::NoSuchTask { .. })) => {
                return Ok(Some(error.to_string()));
            }
            other => other?,
        }
        (self.shop.witness)(&self.attempt.task, Step::Announce, Side::After);
        self.step(Step::Order, self.order(&start)).await?;
        let place = self.agent_place();
        let Some(waiting) = self.step(Step::Send, self.send(&place)).await? else {
            // One that was sent before us goes when it sees that its supervisor did, or gives no word.
            self.wait().await?;
            return Ok(None);
        };
        // From here on it may have been begun, and is looked at before it is begun again.
        let until = self.lease_end();
        self.step(Step::Permit, self.record(&Phase::Started)).await?;
        self.reach(Phase::Started);
        self.step(Step::Begin, self.let_go(waiting, until)).await?;
        Ok(None)
    }

    /// A shim that waits for its word; `None` if there is one already, or it was too fast for us.
    pub(super) async fn send(&self, place: &Place) -> Result<Option<Waiting>, LifeError> {
        match self.shop.shim.send(place, self.lease.term).await {
            Err(ErrandError::NotReady { .. }) if !matches!(place.standing()?, Standing::Waiting) => Ok(None),
            sent => Ok(Some(sent?)),
        }
    }

    pub(super) async fn let_go(&self, waiting: Waiting, until: Instant) -> Result<(), LifeError> {
        let begun = waiting.begin(self.lease.term, until).await;
        begun.map_err(|source| ErrandError::Start { source }.into())
    }

    /// For a shim that went before it had its word.
    pub(super) async fn send_again(&mut self) -> Result<(), LifeError> {
        let Some(waiting) = self.send(&self.agent_place()).await? else { return Ok(()) };
        let until = self.lease_end();
        // The store is asked whether we may: a word from somebody who lost the lease begins nothing.
        self.record(&Phase::Started).await?;
        self.let_go(waiting, until).await
    }

    pub(super) fn lease_end(&self) -> Instant {
        BootClock.now() + self.shop.settings.leases.ttl
    }

    /// Git and the board know whose it is.
    async fn announce(&mut self) -> Result<(), LifeError> {
        self.hold().await?;
        let (task, agent) = self.names()?;
        self.write_board(move |board, tree| Ok(((), board.claim(tree, &task, &agent, &Zoned::now())?))).await
    }

    /// The lease in git, moved to this attempt and this owner if it is not there yet.
    pub(super) async fn hold(&mut self) -> Result<Lease, LifeError> {
        if let Some(held) = &self.held {
            return Ok(held.clone());
        }
        let lease = self.take_lease().await?;
        self.held = Some(lease.clone());
        Ok(lease)
    }

    async fn take_lease(&self) -> Result<Lease, LifeError> {
        let (task, epoch, term) = (self.task.clone(), self.lease.epoch.0, self.lease.term.0);
        let taken = self
            .blocking(move |repository| {
                // Whatever is there was left by an owner the store has replaced; a newer one is not moved.
                let found = lease::read(repository, &task)?;
                let found = found.as_ref();
                let object = found.map(|found| &found.lease.object);
                match found {
                    Some(found) if found.bars(epoch, term) => Ok(Taken::Lost { found: object.cloned() }),
                    Some(found) if (found.lease.epoch, found.lease.term) == (epoch, term) => {
                        Ok(Taken::Held(found.lease.clone()))
                    }
                    _ => lease::take(repository, &task, (epoch, term), object),
                }
            })
            .await?;
        match taken {
            Taken::Held(lease) => Ok(lease),
            Taken::Lost { .. } => Err(crate::store::StoreError::Fenced(self.lease.clone()).into()),
        }
    }

    pub(super) fn names(&self) -> Result<(TaskId, AgentName), LifeError> {
        let task = TaskId::parse(&self.attempt.task.id).map_err(|error| odd(&error.to_string()))?;
        let agent = AgentName::parse(&self.attempt.agent).map_err(|error| odd(&error.to_string()))?;
        Ok((task, agent))
    }

    /// What the agent is to do, read from the board once: whatever becomes of the task's file from here on, this
    /// is what counts.
    async fn order(&self, start: &Start) -> Result<(), LifeError> {
        let place = self.agent_place();
        if !matches!(place.standing()?, Standing::Unordered) {
            return Ok(());
        }
        let settings = &self.shop.settings;
        let Some(agent) = settings.agents.get(&self.attempt.agent) else {
            return Err(odd(&format!("no agent `{}` is configured", self.attempt.agent)));
        };
        let (task, _) = self.names()?;
        let brief = self.shop.desk.look(move |board, tree| board.brief(tree, &task)).await?;
        let base = self.base().await?;
        let before = self.failures().await?;
        let order = Order {
            version: order::VERSION,
            task: self.attempt.task.clone(),
            epoch: self.attempt.epoch,
            root: settings.root.clone(),
            copies: settings.copies.clone(),
            level: agent.level.unwrap_or(settings.level),
            trace: trace::of_errand(),
            what: What::Agent(Box::new(agent_order(
                start,
                agent,
                &brief,
                base,
                &before,
                self.shop.desk.folder,
            ))),
        };
        Ok(place.order(&order)?)
    }

    /// The commit an agent starts from.
    async fn base(&self) -> Result<String, LifeError> {
        let branch = self.shop.settings.branch.clone();
        let found = self
            .blocking(move |repository| {
                let found = refs::read(repository, std::slice::from_ref(&branch))?;
                Ok(found.get(&branch).map(|found| found.at.to_string()))
            })
            .await?;
        found.ok_or_else(|| odd("the branch has no commit to start from"))
    }

    /// Why the attempts before this one did not do.
    async fn failures(&self) -> Result<Vec<String>, LifeError> {
        let attempts = self.shop.store.attempts(&self.attempt.task).await?;
        let reason = |phase: &Phase| match phase {
            Phase::Over(Ending::Failed { failure }) => Some(failure.reason.clone()),
            Phase::Ended(Ended::Failed { failure }) => Some(failure.reason.clone()),
            _ => None,
        };
        Ok(attempts
            .iter()
            .filter(|one| one.epoch < self.attempt.epoch)
            .filter_map(|one| reason(&one.phase))
            .collect())
    }
}

fn agent_order(
    start: &Start,
    agent: &Agent,
    brief: &Brief,
    base: String,
    before: &[String],
    folder: &str,
) -> AgentOrder {
    let prompt = Prompt {
        id: start.task.as_str(),
        file: &start.file,
        brief,
        scope: &start.scope,
        profile: &start.profile,
        before,
    };
    AgentOrder {
        base,
        agent: start.agent.to_string(),
        command: agent.command.clone(),
        prompt: prompt.text(),
        task_file: start.file.clone(),
        scope: ScopeOrder {
            must: start.scope.must.clone(),
            write: start.scope.touch.clone(),
            deny: start.scope.keep.clone(),
        },
        profile: start.profile.clone(),
        live: vec![folder.to_owned()],
        network: agent.network.clone(),
        env: agent.env.clone(),
        limits: agent.limits.clone(),
        subject: start.title.clone(),
    }
}
