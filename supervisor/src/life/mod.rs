//! The life of an attempt: from a claim to an end that the board knows.
//!
//! ```text
//! Claim     the store knows whose it is
//! Announce  so does git, and the board says that it is being worked on
//! Order     what the agent is to do is written down, and not changed any more
//! Send      a shim waits for its word
//! Permit    the store knows that the agent may run
//! Begin     it is let go
//! Keep      its commit has a name
//! Report    the board has its report
//! Collect   the store knows what it did
//! Ask       an auditor looks at it, where there is one
//! Heed      the store knows what it said
//! Merge     it is on the branch as it will be, as a commit nobody sees
//! Prove     the Definition of Done is tried there
//! Attest    the board has the proof
//! Land      the branch has it
//! Settle    the board knows how it ended
//! Release   the lease is given back
//! ```
//!
//! There is no second way for attempts that were interrupted. An attempt is always taken on by looking at it: the
//! phase in the store, and what its errands left in their folders ([`next`]). Every step may be done again, and
//! changes nothing when it was done already; so it does not matter who did the last one, or whether that was
//! finished.

mod audit;
mod begin;
mod blame;
mod close;
mod collect;
mod footing;
mod land;
pub mod next;
pub(crate) mod parking;
mod seat;
mod set_aside;

pub(crate) use collect::impossible;

use std::path::PathBuf;
use std::sync::Arc;

use agency_protocols::board::{Board, BoardError, Start};
use agency_protocols::store::Effects;
use agency_protocols::store::tree::Tree;
use agency_sandbox::container::Container;
use agency_sandbox::policy::Level;
use tokio::sync::watch;
use tracing::Instrument;

use crate::attempt::{
    Attempt, Audit, Ended, Ending, Epoch, Lease, Merge, Parked, Phase, Spent, TaskKey, Term,
};
use crate::clock::Instant;
use crate::desk::Desk;
use crate::errand::claims::ClaimReader;
use crate::errand::order::{self, Order, What};
use crate::errand::outcome::StopReason;
use crate::errand::send::Shim;
use crate::errand::{ErrandError, Place, Standing};
use crate::landing;
use crate::landing::names::Task;
use crate::landing::repository::Repository;
use crate::notice::{Notice, Teller};
use crate::roster::{Roster, Seat};
use crate::settings::{Land, Settings};
use crate::sharing::Sharing;
use crate::store::{Store, StoreError};
use crate::trace;
use crate::train::Train;
pub(crate) use blame::Blame;
use next::{Next, Seen};
pub(crate) use seat::Left;

/// One durable step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    Claim,
    Announce,
    Order,
    Send,
    Permit,
    Begin,
    Keep,
    Report,
    Collect,
    Ask,
    Heed,
    Merge,
    Prove,
    Attest,
    Land,
    Settle,
    Release,
}

impl Step {
    pub const ALL: [Self; 17] = [
        Self::Claim,
        Self::Announce,
        Self::Order,
        Self::Send,
        Self::Permit,
        Self::Begin,
        Self::Keep,
        Self::Report,
        Self::Collect,
        Self::Ask,
        Self::Heed,
        Self::Merge,
        Self::Prove,
        Self::Attest,
        Self::Land,
        Self::Settle,
        Self::Release,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Announce => "announce",
            Self::Order => "order",
            Self::Send => "send",
            Self::Permit => "permit",
            Self::Begin => "begin",
            Self::Collect => "collect",
            Self::Keep => "keep",
            Self::Report => "report",
            Self::Ask => "ask",
            Self::Heed => "heed",
            Self::Merge => "merge",
            Self::Prove => "prove",
            Self::Attest => "attest",
            Self::Land => "land",
            Self::Settle => "settle",
            Self::Release => "release",
        }
    }

    /// What is known of it while it is done.
    pub(crate) fn span(self) -> tracing::Span {
        tracing::info_span!("step", step = self.name())
    }
}

/// Which side of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Before,
    After,
}

/// Told every step, before and after. Tests die here.
pub type Witness = Arc<dyn Fn(&TaskKey, Step, Side) + Send + Sync>;

/// What all attempts of a supervisor share.
pub struct Workshop<S> {
    pub(crate) store: Arc<S>,
    pub(crate) desk: Desk,
    pub(crate) repository: Arc<Repository>,
    /// Where the board's commits go, and with them the branch, if git carries them.
    pub(crate) sharing: Option<Sharing>,
    pub(crate) settings: Settings,
    pub(crate) shim: Shim,
    pub(crate) reader: ClaimReader,
    pub(crate) term: Term,
    pub(crate) train: Train,
    pub(crate) roster: Arc<Roster>,
    /// When this run began.
    pub(crate) began: Instant,
    pub(crate) teller: Arc<dyn Teller>,
    pub(crate) witness: Witness,
}

impl<S> std::fmt::Debug for Workshop<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workshop").field("term", &self.term).finish_non_exhaustive()
    }
}

/// Why an attempt could not be taken further. It stays as it is, and may be taken on again.
#[derive(Debug, thiserror::Error)]
pub enum LifeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Errand(#[from] ErrandError),
    #[error(transparent)]
    Landing(#[from] landing::Error),
    #[error(transparent)]
    Board(#[from] BoardError),
    /// The machine lacked something, and nothing was begun.
    #[error("{reason}")]
    Host { reason: String },
    /// A program that it needs, such as a container engine, did not answer, and nothing was begun.
    #[error("{reason}")]
    Away { reason: String },
    #[error("{what}")]
    Odd { what: String },
}

/// Where an attempt has come to when nothing more can be done about it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rest {
    Over(Ending),
    /// Something of a person's is in the way; what, in a sentence.
    Waits(String),
    /// Whoever is to judge it can't work now.
    Parked(Parked),
    /// It was asked to stop, and can be taken on again.
    Interrupted,
}

/// What those in charge want of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    GoOn,
    /// Nobody wants it any more.
    Cancel,
    /// We are to end: what it runs is stopped, and the attempt does not count.
    Stop,
}

/// One attempt, being taken on.
#[derive(Debug)]
pub(crate) struct Life<'a, S> {
    pub(crate) shop: &'a Workshop<S>,
    pub(crate) lease: Lease,
    pub(crate) task: Task,
    pub(crate) attempt: Attempt,
    /// What the board says of it; `None` if it does not offer it any more.
    pub(crate) start: Option<Start>,
    pub(crate) wanted: watch::Receiver<Wanted>,
    /// A person had taken it off the board before it was taken on.
    pub(crate) unwanted: bool,
    /// Its lease in git, once it was looked at.
    pub(crate) held: Option<landing::lease::Lease>,
    /// Its agent's place, or its auditor's, while one of them is at work.
    pub(crate) seat: Option<Seat>,
}

/// How far an attempt was taken, and who stays at work on it.
pub(crate) type Taken = (Result<Rest, LifeError>, Option<Left>);

impl<S: Store> Workshop<S> {
    /// Takes an attempt as far as it goes.
    pub(crate) async fn take_on(
        &self,
        attempt: Attempt,
        start: Option<Start>,
        wanted: watch::Receiver<Wanted>,
        seat: Option<Seat>,
    ) -> Taken {
        let span = tracing::info_span!(
            "attempt",
            task = %attempt.task,
            attempt = attempt.epoch.0,
            agent = %attempt.agent,
            outcome = tracing::field::Empty,
        );
        let key = attempt.task.clone();
        let mut life = match self.life(attempt, start, wanted, seat) {
            Ok(life) => life,
            Err(error) => return (Err(error), None),
        };
        async {
            let rest = match life.run().await {
                Err(LifeError::Board(
                    error @ (BoardError::NoSuchTask { .. } | BoardError::Refused { .. }),
                )) => life.leave_the_board(error.to_string()).await,
                rest => rest,
            };
            self.train.leave(&key, matches!(rest, Ok(Rest::Over(Ending::Done { .. }))));
            let outcome = match &rest {
                Ok(Rest::Over(ending)) => ending.name(),
                Ok(Rest::Waits(_)) => "waits",
                Ok(Rest::Parked(_)) => "parked",
                Ok(Rest::Interrupted) => "interrupted",
                Err(error) if error.is_fenced() => "fenced",
                Err(_) => "error",
            };
            tracing::Span::current().record("outcome", outcome);
            trace::rested(&rest);
            // Whoever took the attempt from us counts its agent.
            let fenced = matches!(&rest, Err(error) if error.is_fenced());
            (rest, life.left().filter(|_| !fenced))
        }
        .instrument(span)
        .await
    }

    fn life(
        &self,
        attempt: Attempt,
        start: Option<Start>,
        wanted: watch::Receiver<Wanted>,
        seat: Option<Seat>,
    ) -> Result<Life<'_, S>, LifeError> {
        let lease = attempt.lease().ok_or_else(|| odd("an attempt that nobody holds"))?;
        // Once it was begun, its branch is called what it was called then.
        let begun = Place::new(self.records(&attempt).join("agent")).read_order().ok();
        let named = match begun.map(|order| order.what) {
            Some(What::Agent(order)) => order.branch,
            _ => start.as_ref().and_then(|start| start.branch.clone()),
        };
        let task = Task::new(&attempt.task.protocol, &attempt.task.id)?.with_branch(named.as_deref());
        Ok(Life { shop: self, lease, task, attempt, start, wanted, unwanted: false, held: None, seat })
    }

    /// An attempt that was merged takes its place among what is on its way to the branch.
    pub(crate) fn rejoin(&self, attempt: &Attempt) {
        if let Phase::Merged(merge) | Phase::Proved { merge, passed: true } = &attempt.phase {
            self.join(&attempt.task, merge);
        }
    }

    fn join(&self, task: &TaskKey, merge: &Merge) {
        if let (Land::Merge, Some(onto)) = (self.settings.land, &merge.onto) {
            self.train.join(task, onto, merge.subject());
        }
    }

    /// Whether the board still wants work on a task. A file that can't be read at the moment has not been taken off it.
    pub(crate) async fn is_wanted(&self, key: &TaskKey) -> Result<bool, BoardError> {
        let Ok(task) = agency_protocols::names::TaskId::parse(&key.id) else { return Ok(true) };
        match self.desk.look(move |board, tree| board.is_wanted(tree, &task)).await {
            Err(BoardError::Unreadable(_) | BoardError::Ambiguous { .. }) => Ok(true),
            found => found,
        }
    }

    /// The last attempt at a task that git knows of, zero if there is none.
    pub(crate) async fn known_to_git(&self, key: &TaskKey) -> Result<Epoch, LifeError> {
        let (task, repository) = (Task::new(&key.protocol, &key.id)?, Arc::clone(&self.repository));
        let look = move || -> Result<u64, landing::Error> {
            let claimed = landing::lease::read(&repository, &task)?.map_or(0, |last| last.lease.epoch);
            let landed = landing::landed::read(&repository, &task)?.map_or(0, |landed| landed.epoch);
            Ok(claimed.max(landed))
        };
        match tokio::task::spawn_blocking(look).await {
            Ok(found) => Ok(Epoch(found?)),
            Err(_) => Err(odd("a thread that looked at git broke")),
        }
    }

    /// The folder of an attempt's records.
    pub(crate) fn records(&self, attempt: &Attempt) -> PathBuf {
        records(&self.settings.state, attempt)
    }
}

/// The folder of an attempt's records.
pub fn records(state: &std::path::Path, attempt: &Attempt) -> PathBuf {
    let name = format!("{}.{}.{}", attempt.task.protocol, attempt.task.id, attempt.epoch);
    // Ids come from files; what could lead elsewhere is taken out.
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    state.join("runs").join(name.chars().map(safe).collect::<String>())
}

/// Whether an attempt is on its way to a branch. One whose end is certain is told to the board whatever that says.
fn may_land(phase: &Phase) -> bool {
    match phase {
        Phase::Claimed | Phase::Landed { .. } | Phase::Over(_) => false,
        Phase::Ended(ended) => matches!(ended, Ended::Work(_)),
        Phase::Proved { passed, .. } => *passed,
        Phase::Started
        | Phase::Auditing(_)
        | Phase::Undecided { .. }
        | Phase::Audited { .. }
        | Phase::Merged(_) => true,
    }
}

pub(crate) fn odd(what: &str) -> LifeError {
    LifeError::Odd { what: what.to_owned() }
}

impl<S: Store> Life<'_, S> {
    async fn run(&mut self) -> Result<Rest, LifeError> {
        // An owner before us may sleep in the middle of landing it. From here on it can't.
        if !matches!(self.attempt.phase, Phase::Claimed | Phase::Over(_)) {
            match self.hold().await {
                // It was given back by ourselves, and the store could not be told any more. What is left to do is to
                // tell it; to land, it would have to be held.
                Err(error) if error.is_fenced() && self.shop.store.holds(&self.lease).await? => {}
                held => drop(held?),
            }
        }
        if may_land(&self.attempt.phase) {
            self.unwanted = !self.shop.is_wanted(&self.attempt.task).await?;
        }
        loop {
            let (seen, errand) = (self.look()?, self.current_place());
            let next = next::next(&self.attempt.phase, &seen);
            self.take_place(&next);
            tracing::debug!(phase = self.attempt.phase.name(), ?next, "looked");
            match next {
                Next::Begin => {
                    if let Some(reason) = self.begin().await? {
                        return self.end(Ending::Lost { reason }).await.map(Rest::Over);
                    }
                }
                Next::Send => self.send_again().await?,
                Next::Await => self.wait().await?,
                Next::TakeBack { reason, host_fault } => {
                    self.current_place().take_back()?;
                    return Err(if host_fault {
                        LifeError::Host { reason }
                    } else {
                        LifeError::Away { reason }
                    });
                }
                Next::Collect => {
                    self.collect().await?;
                    trace::over(&errand, &seen);
                }
                Next::Audit => {
                    trace::over(&errand, &seen);
                    self.audit().await?;
                }
                Next::Ask => {
                    if let Some(rest) = self.ask().await? {
                        return Ok(rest);
                    }
                }
                Next::Heed => {
                    let rest = self.heed().await?;
                    trace::over(&errand, &seen);
                    if let Some(rest) = rest {
                        return Ok(rest);
                    }
                }
                Next::Decide => self.decide().await?,
                Next::Leave { why } => {
                    return Ok(Rest::Waits(format!("{why}; `agency decide` says what becomes of it")));
                }
                Next::GiveUp { reason } => {
                    trace::over(&errand, &seen);
                    return self.end(Ending::Lost { reason }).await.map(Rest::Over);
                }
                Next::Merge => {
                    trace::over(&errand, &seen);
                    self.merge().await?;
                }
                Next::Prove => self.prove().await?,
                Next::Attest => {
                    self.attest().await?;
                    trace::over(&errand, &seen);
                }
                Next::Land => {
                    if let Some(rest) = self.land().await? {
                        return Ok(rest);
                    }
                }
                Next::Settle => return self.settle().await.map(Rest::Over),
                Next::Nothing(ending) => return Ok(Rest::Over(ending)),
            }
            // Whoever ends us wants nothing new to be begun.
            if *self.wanted.borrow() == Wanted::Stop && !self.is_at_work()? {
                return Ok(Rest::Interrupted);
            }
        }
    }

    fn is_at_work(&self) -> Result<bool, LifeError> {
        Ok(matches!(self.look()?.errand, Some(Standing::Alive)))
    }

    /// What can be told from outside.
    fn look(&self) -> Result<Seen, LifeError> {
        let errand = match &self.attempt.phase {
            Phase::Started => Some(self.agent_place().standing()?),
            Phase::Auditing(auditing) => Some(self.audit_place(&auditing.audit).standing()?),
            Phase::Merged(merge) => Some(self.proof_place(merge).standing()?),
            _ => None,
        };
        Ok(Seen {
            errand,
            canceled: self.is_unwanted(),
            audited: self.shop.settings.auditor.is_some(),
            answered: self.attempt.answer.is_some(),
        })
    }

    pub(crate) fn is_unwanted(&self) -> bool {
        self.unwanted || *self.wanted.borrow() == Wanted::Cancel
    }

    fn agent_place(&self) -> Place {
        Place::new(self.shop.records(&self.attempt).join("agent"))
    }

    fn audit_place(&self, audit: &Audit) -> Place {
        Place::new(self.shop.records(&self.attempt).join(audit.errand()))
    }

    fn proof_place(&self, merge: &Merge) -> Place {
        Place::new(self.shop.records(&self.attempt).join(merge.proof()))
    }

    fn current_place(&self) -> Place {
        match &self.attempt.phase {
            Phase::Auditing(auditing) => self.audit_place(&auditing.audit),
            Phase::Merged(merge) => self.proof_place(merge),
            _ => self.agent_place(),
        }
    }

    /// An order for a sandbox of this attempt.
    fn ordered(&self, level: Level, container: Option<Container>, what: What) -> Order {
        let settings = &self.shop.settings;
        Order {
            version: order::VERSION,
            task: self.attempt.task.clone(),
            epoch: self.attempt.epoch,
            root: settings.root.clone(),
            state: settings.state.clone(),
            copies: settings.copies.clone(),
            level,
            container,
            trace: trace::of_errand(),
            what,
        }
    }

    /// What was used for the task so far, by this attempt and those before it.
    async fn used(&self) -> Result<Spent, LifeError> {
        let mut used = self.shop.store.spent(&self.attempt.task).await?;
        used += self.spent();
        Ok(used)
    }

    /// Does a step, with witnesses.
    pub(crate) async fn step<T>(
        &self,
        step: Step,
        effect: impl Future<Output = Result<T, LifeError>>,
    ) -> Result<T, LifeError> {
        (self.shop.witness)(&self.attempt.task, step, Side::Before);
        let done = trace::watch(effect).instrument(step.span()).await?;
        (self.shop.witness)(&self.attempt.task, step, Side::After);
        Ok(done)
    }

    /// Records the next phase.
    pub(crate) async fn advance(&mut self, phase: Phase) -> Result<(), LifeError> {
        self.record(&phase).await?;
        self.reach(phase);
        Ok(())
    }

    async fn record(&self, phase: &Phase) -> Result<(), LifeError> {
        Ok(self.shop.store.advance(&self.lease, phase).await?)
    }

    /// Takes note of a phase that is recorded.
    fn reach(&mut self, phase: Phase) {
        self.attempt.phase = phase;
        self.tell(Notice::Phase { attempt: self.attempt.clone() });
    }

    /// Changes the board, if the lease still counts. That is asked under the board's lock, where nobody can come
    /// between: whoever was replaced while it slept writes nothing.
    pub(crate) async fn write_board<T: Send + 'static>(
        &self,
        mut verb: impl FnMut(&dyn Board, &Tree) -> Result<(T, Effects), BoardError> + Send + 'static,
    ) -> Result<T, LifeError> {
        let (store, lease) = (Arc::clone(&self.shop.store), self.lease.clone());
        let runtime = tokio::runtime::Handle::current();
        let written = self.shop.desk.act(move |board, tree| {
            Ok(match runtime.block_on(store.holds(&lease)) {
                Ok(true) => {
                    let (answer, effects) = verb(board, tree)?;
                    (Ok(answer), effects)
                }
                Ok(false) => (Err(StoreError::Fenced(lease.clone())), Effects::none()),
                Err(error) => (Err(error), Effects::none()),
            })
        });
        Ok(written.await??)
    }

    pub(crate) fn tell(&self, notice: Notice) {
        self.shop.teller.tell(&notice);
    }

    /// Runs something that waits for git or for files, on a thread where it may.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Repository) -> Result<T, landing::Error> + Send + 'static,
    ) -> Result<T, LifeError> {
        let repository = Arc::clone(&self.shop.repository);
        match tokio::task::spawn_blocking(move || work(&repository)).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(odd("a thread that landed work broke")),
        }
    }

    /// Waits for an errand to end. Whoever does not want it any more is heard meanwhile.
    async fn wait(&mut self) -> Result<(), LifeError> {
        let place = self.current_place();
        loop {
            let wish = *self.wanted.borrow_and_update();
            let why = match wish {
                Wanted::GoOn if self.unwanted => Some(StopReason::Canceled),
                Wanted::GoOn => None,
                Wanted::Cancel => Some(StopReason::Canceled),
                Wanted::Stop => Some(StopReason::Signal),
            };
            if let Some(why) = why {
                crate::errand::send::stop(&place, self.shop.term, why).await?;
            }
            tokio::select! {
                gone = crate::errand::send::gone(&place) => {
                    gone?;
                    if !matches!(place.standing()?, Standing::Alive) {
                        return Ok(());
                    }
                    // It has its lock for a moment longer than its socket, or not yet its socket.
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                }
                changed = self.wanted.changed() => {
                    if changed.is_err() {
                        return Err(odd("nobody is in charge of this attempt any more"));
                    }
                }
            }
        }
    }
}
