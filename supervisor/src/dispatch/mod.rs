//! The loop of a supervisor: it hears what happens, has the queue decide, and has what it decides carried out.
//!
//! The loop itself waits for nothing but the next event: an interrupt, a driver or an answer that came to its end, time
//! that passed. `queue` holds the state and decides over it, without waiting; what it wants to know or to change, tasks
//! of their own ask of the store, the board and git (`questions`), at most one for each kind of question, or for each
//! attempt. So an interrupt is heard during any of them. After each event the loop decides the same things again: what
//! can be taken over, what can start ([`plan`]), whether there is anything left to wait for.

mod action;
mod backoff;
mod claims;
pub mod forecast;
mod host_shortage;
pub mod not_started;
mod parked_agents;
pub mod plan;
mod questions;
mod queue;
mod queue_status;
mod summary;
#[cfg(test)]
mod tests;
mod unfit;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use agency_protocols::board::{BoardError, ReadyTask};
use agency_sandbox::error_chain;
use sysinfo::{MemoryRefreshKind, System};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::agent_slots::SlotGuard;
use crate::attempt::{Attempt, TaskKey};
use crate::clock::{self, BootClock, Clock};
use crate::driver::{DriveError, DriveResult, DriverSignal, RunContext, UnattendedAgent};
use crate::host_fault;
use crate::settings::{AgentSettings, RunSettings};
use crate::store::{AttemptStore, AttemptStoreError};
use action::{Action, Actions, Answer, Asked, DispatchEvent, DriveFault, Moment};
use plan::StartLimits;
use questions::AnswerWithPlace;
use queue::{QueueFacts, QueueStart, RunQueue};
pub use summary::{RunSummary, TaskResult};

/// How often the loop checks whether another process changed the store.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a run is about.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Only these tasks.
    pub tasks: Option<BTreeSet<String>>,
    /// Only tasks of this agent.
    pub agent: Option<String>,
    /// Only what is ready at the start.
    pub once: bool,
    /// Go on when there is nothing to do: something may come.
    pub watch: bool,
}

impl RunOptions {
    /// Whether a task is among what was asked for.
    pub fn includes(&self, start: &ReadyTask) -> bool {
        self.tasks.as_ref().is_none_or(|tasks| tasks.contains(start.task.as_str()))
            && self.agent.as_ref().is_none_or(|agent| agent == start.agent.as_str())
    }
}

/// A request from outside to end the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Start nothing new; a second time, stop what runs.
    Drain,
    /// Leave at once. What runs goes on, and the next run takes it over.
    Detach,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] AttemptStoreError),
    #[error(transparent)]
    Board(#[from] BoardError),
    #[error(transparent)]
    Drive(#[from] DriveError),
}

/// Runs what there is to run, until nothing is left that could be done now.
pub async fn run<S: AttemptStore>(
    context: Arc<RunContext<S>>,
    wishes: RunOptions,
    mut interrupts: mpsc::Receiver<Interrupt>,
) -> Result<RunSummary, RunError> {
    let beat = context.settings.leases.heartbeat;
    let mut heartbeat = tokio::time::interval_at(tokio::time::Instant::now() + beat, beat);
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut queue = RunQueue::new(QueueStart {
        wishes,
        settings: context.settings.clone(),
        protocol: context.board_thread.protocol.to_owned(),
        terms: context.terms.all(),
        began: context.began,
    });
    let mut dispatcher = Dispatcher::new(context);
    let actions = queue.begin();
    dispatcher.carry_out(actions);
    loop {
        let facts = dispatcher.facts();
        let decided = queue.decide(&facts);
        if dispatcher.carry_out(decided) {
            return Ok(queue.finish());
        }
        let event = tokio::select! {
            biased;
            Some(interrupt) = interrupts.recv() => DispatchEvent::Interrupted(interrupt),
            Some(ended) = dispatcher.drivers.join_next() => match dispatcher.rested(ended) {
                Some(event) => event,
                None => continue,
            },
            Some(ended) = dispatcher.questions.join_next() => dispatcher.answered(ended)?,
            _ = heartbeat.tick() => DispatchEvent::Heartbeat,
            _ = look.tick() => {
                let state = &dispatcher.context.settings.state;
                DispatchEvent::Look { is_disk_full: host_fault::is_too_full_to_begin(state) }
            }
        };
        tracing::trace!(?event);
        let actions = queue.on_event(event, now());
        if dispatcher.carry_out(actions) {
            return Ok(queue.finish());
        }
    }
}

fn now() -> Moment {
    Moment { boot: BootClock.now(), wall: clock::wall_seconds() }
}

/// What carries out actions: the drivers and the tasks that find answers. They end with it.
struct Dispatcher<S> {
    context: Arc<RunContext<S>>,
    drivers: JoinSet<(TaskKey, DriveResult)>,
    questions: JoinSet<(Asked, AnswerWithPlace)>,
    signals: HashMap<TaskKey, watch::Sender<DriverSignal>>,
    /// Places of agents whose driver begins next.
    places: HashMap<TaskKey, SlotGuard>,
    /// Whose agent is at work although the attempt rests, or was given up.
    unattended: HashMap<TaskKey, UnattendedAgent>,
    /// The store was read for the first time.
    has_begun: bool,
    /// `None` where it can't be asked.
    system: Option<System>,
}

impl<S: AttemptStore> Dispatcher<S> {
    fn new(context: Arc<RunContext<S>>) -> Self {
        Self {
            context,
            drivers: JoinSet::new(),
            questions: JoinSet::new(),
            signals: HashMap::new(),
            places: HashMap::new(),
            unattended: HashMap::new(),
            has_begun: false,
            system: System::new().ok(),
        }
    }

    /// What the queue has to know to decide.
    fn facts(&mut self) -> QueueFacts {
        self.unattended.retain(|_, agent| agent.is_at_work());
        QueueFacts {
            now: now(),
            free_memory: free_memory(self.system.as_mut()),
            judging: self.context.slots.judging(),
            unattended: self.unattended.keys().cloned().collect(),
        }
    }

    /// Carries out what was decided, without waiting for any of it; `true` when the run is over.
    fn carry_out(&mut self, actions: Actions) -> bool {
        for action in actions.0 {
            match action {
                Action::Ask(question) => {
                    let (asked, context) = (question.asked(), Arc::clone(&self.context));
                    self.questions.spawn(async move { (asked, questions::answer(context, question).await) });
                }
                Action::Emit(event) => self.context.events.tell(&event),
                Action::Rejoin(attempt) => self.context.rejoin(&attempt),
                Action::Drive { attempt, start, wish } => {
                    self.drive(attempt, start.map(|start| *start), wish);
                }
                Action::Signal { key, signal, wakes } => {
                    if let Some(wanted) = self.signals.get(&key) {
                        wanted.send_if_modified(|wanted| {
                            *wanted = signal;
                            wakes
                        });
                    }
                }
                Action::RenewShims(attempt) => questions::renew_shims(&self.context, &attempt),
                Action::End => return true,
            }
        }
        false
    }

    fn drive(&mut self, attempt: Attempt, start: Option<ReadyTask>, wish: DriverSignal) {
        let key = attempt.task.clone();
        let (sender, wanted) = watch::channel(wish);
        self.signals.insert(key.clone(), sender);
        let unattended = self.unattended.remove(&key).map(|agent| agent.slot);
        let place = self.places.remove(&key).or(unattended);
        let context = Arc::clone(&self.context);
        self.drivers.spawn(async move { (key, context.drive(attempt, start, wanted, place).await) });
    }

    /// A driver came to its end. What one that broke was about stays as it is.
    fn rested(&mut self, ended: Result<(TaskKey, DriveResult), JoinError>) -> Option<DispatchEvent> {
        let (key, (rest, unattended)) = ended.ok()?;
        self.signals.remove(&key);
        self.unattended.extend(unattended.map(|agent| (key.clone(), agent)));
        let state = &self.context.settings.state;
        let rest = rest.map_err(|error| DriveFault {
            blame: error.blame(state),
            what: error_chain::on_one_line(&error),
        });
        Some(DispatchEvent::Rested { key, rest: Box::new(rest) })
    }

    /// A question was answered, or met an error: one that the machine is to blame for passes, every other ends the run.
    fn answered(
        &mut self,
        ended: Result<(Asked, AnswerWithPlace), JoinError>,
    ) -> Result<DispatchEvent, RunError> {
        let (asked, answer) = match ended {
            Ok(ended) => ended,
            Err(broken) => std::panic::resume_unwind(broken.into_panic()),
        };
        match answer {
            Ok((answer, place)) => {
                if let (Answer::Claimed { key, .. }, Some(place)) = (&answer, place) {
                    self.places.insert(key.clone(), place);
                }
                self.has_begun |= matches!(answer, Answer::StoreRead { .. });
                Ok(DispatchEvent::Answered(answer))
            }
            // Without them nothing begins.
            Err(error) if !self.has_begun && matches!(asked, Asked::Drain | Asked::Store) => Err(error),
            Err(error) => {
                let what = questions::absorbed(&self.context, error)?;
                Ok(DispatchEvent::Unanswered { asked, what })
            }
        }
    }
}

fn limits(settings: &RunSettings) -> StartLimits {
    StartLimits {
        total: settings.parallel,
        of_agent: parallel_of_agents(settings),
        memory: of_agents(settings, |agent| agent.limits.memory),
    }
}

/// How many of an agent may be at work, where it has a number of its own.
pub(crate) fn parallel_of_agents(settings: &RunSettings) -> BTreeMap<String, usize> {
    of_agents(settings, |agent| agent.parallel)
}

/// Free memory in bytes. If it can't be read, memory keeps no agent from starting.
fn free_memory(system: Option<&mut System>) -> u64 {
    system.map_or(u64::MAX, |system| {
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        system.available_memory()
    })
}

/// What agents have a value of their own for.
fn of_agents<T>(settings: &RunSettings, value: impl Fn(&AgentSettings) -> Option<T>) -> BTreeMap<String, T> {
    settings.agents.iter().filter_map(|(name, agent)| Some((name.clone(), value(agent)?))).collect()
}
