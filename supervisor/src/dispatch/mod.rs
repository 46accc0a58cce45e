//! The loop of a supervisor: it sees what happens, decides what to start, and lets every attempt live its life.
//!
//! Everything that happens arrives here as one `Event`: an attempt has come to rest, somebody pressed Ctrl-C, the
//! store or the board changed, time passed. After each one the same questions are asked again: what can be taken
//! over, what can start ([`plan`]), is there anything left to wait for.

mod backoff;
pub mod barred;
pub mod forecast;
mod lack;
mod leases;
mod parking;
pub mod plan;
mod rest;
mod standing;
mod summary;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agency_protocols::board::{Agenda, BoardError, Start};
use sysinfo::{MemoryRefreshKind, System};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::attempt::{Attempt, Epoch, Held, Phase, Spent, TaskKey};
use crate::clock::{self, BootClock, Clock, Instant};
use crate::host_fault;
use crate::life::{Left, LifeError, Rest, Side, Step, Taken, Wanted, Workshop};
use crate::notice::Notice;
use crate::roster::{Duty, Seat};
use crate::settings::{Agent, Settings};
use crate::store::{Claim, Claimed, Mode, Store, StoreError};
use lack::Lack;
pub use parking::ParkedAgent;
use parking::Parking;
use plan::{Choice, Limits, World};
use rest::Resting;
pub use standing::{ForYou, Standing};
pub use summary::{Fate, Summary};

/// How often it is asked whether somebody changed the store.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the board is read again although nothing of ours happened.
const READ_EVERY: Duration = Duration::from_secs(2);
/// A board that takes long to read is read less often: no more of the time than one part in so many.
const READ_SHARE: u32 = 200;
/// How often what waits for a person is tried again, and what others left is looked for.
const TRY_EVERY: Duration = Duration::from_secs(2);

/// What a run is about.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    /// Only these tasks.
    pub tasks: Option<BTreeSet<String>>,
    /// Only tasks of this agent.
    pub agent: Option<String>,
    /// Only what is ready at the start.
    pub once: bool,
    /// Go on although agents can't be started.
    pub keep_going: bool,
    /// Go on when there is nothing to do: something may come.
    pub watch: bool,
}

impl Wishes {
    /// Whether a task is among what was asked for.
    pub fn cover(&self, start: &Start) -> bool {
        self.tasks.as_ref().is_none_or(|tasks| tasks.contains(start.task.as_str()))
            && self.agent.as_ref().is_none_or(|agent| agent == start.agent.as_str())
    }
}

/// Somebody outside wants an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Start nothing new; a second time, stop what runs.
    Drain,
    /// Leave at once. What runs goes on, and whoever comes next takes it over.
    Detach,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Board(#[from] BoardError),
    #[error(transparent)]
    Life(#[from] LifeError),
}

/// What happened.
#[derive(Debug)]
enum Event {
    Rested {
        task: TaskKey,
        rest: Box<Result<Rest, LifeError>>,
        left: Option<Left>,
    },
    Interrupt(Interrupt),
    /// It is time to look at the store.
    Look,
    Heartbeat,
}

/// One attempt that lives.
#[derive(Debug)]
struct Running {
    attempt: Attempt,
    wanted: watch::Sender<Wanted>,
}

/// A supervisor at work.
struct Dispatcher<S> {
    shop: Arc<Workshop<S>>,
    wishes: Wishes,
    limits: Limits,
    lives: JoinSet<(TaskKey, Taken)>,
    running: HashMap<TaskKey, Running>,
    /// Whose agent is at work although the attempt rests, or was given up.
    left: HashMap<TaskKey, Left>,
    resting: HashMap<TaskKey, Resting>,
    agenda: Agenda,
    /// When the board was last read; `None` if it must be read before anything is decided.
    read_at: Option<Instant>,
    /// How long that took.
    reading_takes: Duration,
    /// The last attempt at each task.
    latest: HashMap<TaskKey, Attempt>,
    /// What somebody else has. Looked at again when the store changes.
    taken: HashSet<TaskKey>,
    /// What is not touched again in this run.
    given_up: HashSet<TaskKey>,
    not_before: HashMap<TaskKey, Instant>,
    troubles: HashMap<TaskKey, u32>,
    parking: Parking,
    /// How long what waits for a person is left alone.
    patience: HashMap<TaskKey, Duration>,
    version: u64,
    mode: Mode,
    draining: bool,
    stopping: bool,
    looked_for_orphans: Option<Instant>,
    first_agenda: Option<BTreeSet<String>>,
    /// What this run has used, and which attempts it has begun, but those that do not count.
    used: Spent,
    begun: HashSet<(TaskKey, Epoch)>,
    /// The budget of this run is used up.
    used_up: bool,
    /// People know that the disk is full.
    full: bool,
    /// What the machine lacked last, until work has gone on.
    lack: Option<Lack>,
    /// How often an attempt came to its end for which the machine lacked nothing.
    went_on: u64,
    /// For an attempt that lacked something: when that was, by the number above, and how often others went on meanwhile.
    lacked_alone: HashMap<TaskKey, (u64, u32)>,
    /// Attempts that rest, and could not be written down or read when they came to it.
    unread: HashSet<TaskKey>,
    /// `None` where it can't be asked.
    system: Option<System>,
    /// What was last said of how the queue stands.
    told: Standing,
    summary: Summary,
}

/// Runs what there is to run, until nothing is left that could be done now.
pub async fn run<S: Store>(
    shop: Arc<Workshop<S>>,
    wishes: Wishes,
    mut interrupts: mpsc::Receiver<Interrupt>,
) -> Result<Summary, RunError> {
    let limits = limits(&shop.settings);
    let beat = shop.settings.leases.heartbeat;
    let mut heartbeat = tokio::time::interval_at(tokio::time::Instant::now() + beat, beat);
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut dispatcher = Dispatcher {
        wishes,
        limits,
        lives: JoinSet::new(),
        running: HashMap::new(),
        left: HashMap::new(),
        resting: HashMap::new(),
        agenda: Agenda::default(),
        read_at: None,
        reading_takes: Duration::ZERO,
        latest: HashMap::new(),
        taken: HashSet::new(),
        given_up: HashSet::new(),
        not_before: HashMap::new(),
        troubles: HashMap::new(),
        parking: Parking::default(),
        patience: HashMap::new(),
        version: 0,
        mode: Mode::Running,
        draining: false,
        stopping: false,
        looked_for_orphans: None,
        first_agenda: None,
        used: Spent::default(),
        begun: HashSet::new(),
        used_up: false,
        full: false,
        lack: None,
        went_on: 0,
        lacked_alone: HashMap::new(),
        unread: HashSet::new(),
        system: System::new().ok(),
        told: Standing::default(),
        summary: Summary::default(),
        shop: Arc::clone(&shop),
    };
    // A drain was meant for those who ran when it was asked for.
    if shop.store.mode().await? == Mode::Draining {
        shop.store.set_mode(Mode::Running).await?;
    }
    dispatcher.look_at_store(true).await?;
    loop {
        let settled = match dispatcher.settle_down().await {
            Err(error) => {
                dispatcher.outlast(error)?;
                dispatcher.is_out_of_time()
            }
            Ok(settled) => settled,
        };
        dispatcher.tell_standing();
        if settled {
            return Ok(dispatcher.finish());
        }
        let event = tokio::select! {
            biased;
            Some(interrupt) = interrupts.recv() => Event::Interrupt(interrupt),
            Some(ended) = dispatcher.lives.join_next() => match ended {
                Ok((task, (rest, left))) => Event::Rested { task, rest: Box::new(rest), left },
                Err(_) => continue,
            },
            _ = heartbeat.tick() => Event::Heartbeat,
            _ = look.tick() => Event::Look,
        };
        tracing::trace!(?event);
        match event {
            Event::Rested { task, rest, left } => {
                dispatcher.left.extend(left.map(|left| (task.clone(), left)));
                if let Err(error) = dispatcher.rested(task.clone(), *rest).await {
                    dispatcher.outlast(error)?;
                    dispatcher.unread.insert(task);
                }
            }
            Event::Interrupt(Interrupt::Detach) => {
                dispatcher.summary.interrupted = true;
                return Ok(dispatcher.finish());
            }
            Event::Interrupt(Interrupt::Drain) => dispatcher.interrupted(),
            Event::Look => {
                dispatcher.look_at_disk();
                if let Err(error) = dispatcher.look_at_store(false).await {
                    dispatcher.outlast(error)?;
                }
            }
            Event::Heartbeat => {
                if let Err(error) = dispatcher.heartbeat().await {
                    dispatcher.outlast(error)?;
                }
            }
        }
    }
}

fn limits(settings: &Settings) -> Limits {
    Limits {
        total: settings.parallel,
        of_agent: parallel_of_agents(settings),
        memory: of_agents(settings, |agent| agent.limits.memory),
    }
}

/// How many of an agent may be at work, where it has a number of its own.
pub(crate) fn parallel_of_agents(settings: &Settings) -> BTreeMap<String, usize> {
    of_agents(settings, |agent| agent.parallel)
}

/// Where it can't be asked, memory keeps nobody from starting.
fn free_memory(system: Option<&mut System>) -> u64 {
    system.map_or(u64::MAX, |system| {
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        system.available_memory()
    })
}

/// What agents have a value of their own for.
fn of_agents<T>(settings: &Settings, value: impl Fn(&Agent) -> Option<T>) -> BTreeMap<String, T> {
    settings.agents.iter().filter_map(|(name, agent)| Some((name.clone(), value(agent)?))).collect()
}

impl<S: Store> Dispatcher<S> {
    /// Starts and takes over what can be; `true` when nothing is left to wait for.
    async fn settle_down(&mut self) -> Result<bool, RunError> {
        let now = BootClock.now();
        self.read_board(now).await?;
        self.left.retain(|_, left| left.is_at_work());
        self.read_again(now).await?;
        if !self.stopping {
            self.look_for_orphans(now).await?;
            self.try_again(now);
        }
        loop {
            let left = self.left.keys().filter_map(|key| self.latest.get(key));
            let busy: HashMap<TaskKey, String> = self
                .running
                .values()
                .map(|one| &one.attempt)
                .chain(left)
                .map(|attempt| (attempt.task.clone(), attempt.agent.clone()))
                .collect();
            let aside: HashSet<TaskKey> = self
                .taken
                .iter()
                .chain(&self.given_up)
                .chain(self.resting.keys())
                .cloned()
                .chain(self.unasked())
                .chain(self.barred().into_iter().map(|(key, _)| key))
                .collect();
            let free_memory = free_memory(self.system.as_mut());
            let (parked, judging) = (self.parked_until(), self.shop.roster.judging());
            let choice = plan::choose(&World {
                ready: &self.agenda.ready,
                protocol: self.shop.desk.protocol,
                busy: &busy,
                judging: &judging,
                aside: &aside,
                not_before: &self.not_before,
                parked: &parked,
                now,
                limits: &self.limits,
                free_memory,
                closed: self.draining || self.mode == Mode::Paused,
            });
            match choice {
                // Its time goes by although nothing is started.
                Choice::Start(_) if self.lacks(now) && self.what_the_run_used_up(now).is_none() => {
                    return Ok(false);
                }
                Choice::Start(start) => {
                    let start = start.clone();
                    match self.what_the_run_used_up(now) {
                        Some(used) => self.end_for_want(&used),
                        None => self.start(start).await?,
                    }
                }
                Choice::Wait { .. } if !self.draining => {
                    // Its time goes by although nobody works.
                    let used = self.running.is_empty().then(|| self.what_the_run_used_up(now)).flatten();
                    match used {
                        Some(used) => self.end_for_want(&used),
                        None => return Ok(false),
                    }
                }
                Choice::Wait { .. } | Choice::Nothing => {
                    let goes_on =
                        self.wishes.watch && !self.draining && self.what_the_run_used_up(now).is_none();
                    return Ok(self.running.is_empty() && !self.has_troubles_to_try() && !goes_on);
                }
            }
        }
    }

    /// Tasks that this run is not about.
    fn unasked(&self) -> Vec<TaskKey> {
        let asked = |start: &Start| {
            let id = start.task.as_str();
            self.wishes.cover(start)
                && self.first_agenda.as_ref().is_none_or(|first| !self.wishes.once || first.contains(id))
        };
        self.agenda
            .ready
            .iter()
            .filter(|start| !asked(start))
            .map(|start| self.key(start.task.as_str()))
            .collect()
    }

    fn key(&self, id: &str) -> TaskKey {
        TaskKey { protocol: self.shop.desk.protocol.to_owned(), id: id.to_owned() }
    }

    async fn read_board(&mut self, now: Instant) -> Result<(), RunError> {
        let pause = READ_EVERY.max(self.reading_takes * READ_SHARE);
        if self.read_at.is_some_and(|at| now.since(at) < pause) {
            return Ok(());
        }
        self.agenda = self.shop.desk.look_around(|board, tree| board.next(tree)).await?;
        let read = BootClock.now();
        (self.read_at, self.reading_takes) = (Some(read), read.since(now));
        let ids = || self.agenda.ready.iter().map(|start| start.task.to_string()).collect();
        self.first_agenda.get_or_insert_with(ids);
        self.heed_people().await
    }

    /// Stops what a person has taken off the board.
    async fn heed_people(&mut self) -> Result<(), RunError> {
        let offered: HashSet<TaskKey> =
            self.agenda.ready.iter().map(|start| self.key(start.task.as_str())).collect();
        let at_hand = self.running.keys().chain(self.resting.keys());
        let doubtful: Vec<TaskKey> = at_hand.filter(|key| !offered.contains(key)).cloned().collect();
        for key in doubtful {
            if self.shop.is_wanted(&key).await? {
                continue;
            }
            if let Some(running) = self.running.get(&key) {
                running.wanted.send_replace(Wanted::Cancel);
            }
            if let Some(resting) = self.resting.get_mut(&key) {
                resting.attempt.cancel = true;
                resting.wake();
            }
        }
        Ok(())
    }

    /// Claims a task and lets it live.
    async fn start(&mut self, start: Start) -> Result<(), RunError> {
        let key = self.key(start.task.as_str());
        if let Some(why) = self.what_the_task_used_up(&key).await? {
            self.shop.teller.tell(&Notice::Waits { task: key.clone(), attempt: 0, why: why.clone() });
            self.summary.tasks.insert(key.clone(), Fate::Waits(why));
            self.given_up.insert(key);
            return Ok(());
        }
        // An auditor may have come to work since it was chosen; then it is chosen again, or something else is.
        let Some(seat) = self.shop.roster.seat(start.agent.as_str(), Duty::Build) else { return Ok(()) };
        let after = self.latest.get(&key).map(|attempt| attempt.epoch);
        let beyond = match after {
            Some(_) => Epoch(0),
            None => self.shop.known_to_git(&key).await?,
        };
        let claim = Claim { task: &key, title: &start.title, agent: start.agent.as_str(), after, beyond };
        (self.shop.witness)(&key, Step::Claim, Side::Before);
        let ttl = self.shop.settings.leases.ttl;
        let claimed = self.shop.store.claim(&claim, self.shop.term, ttl);
        let claimed = claimed.instrument(Step::Claim.span()).await?;
        (self.shop.witness)(&key, Step::Claim, Side::After);
        match claimed {
            Claimed::Taken => {
                self.taken.insert(key);
            }
            Claimed::Held(lease) => {
                self.begun.insert((key.clone(), lease.epoch));
                let now = clock::wall();
                let attempt = Attempt {
                    task: key,
                    epoch: lease.epoch,
                    title: start.title.clone(),
                    agent: start.agent.to_string(),
                    phase: Phase::Claimed,
                    held: Some(Held { term: lease.term, until: BootClock.now() + ttl }),
                    cancel: false,
                    answer: None,
                    spent: Spent::default(),
                    claimed_at: now,
                    recorded_at: now,
                };
                self.shop.teller.tell(&Notice::Phase { attempt: attempt.clone() });
                self.live(attempt, Some(seat));
            }
        }
        Ok(())
    }

    fn live(&mut self, attempt: Attempt, seat: Option<Seat>) {
        let key = attempt.task.clone();
        let start = self.agenda.ready.iter().find(|start| start.task.as_str() == key.id).cloned();
        let wish = if attempt.cancel { Wanted::Cancel } else { Wanted::GoOn };
        let (sender, wanted) = watch::channel(wish);
        self.latest.insert(key.clone(), attempt.clone());
        self.running.insert(key.clone(), Running { attempt: attempt.clone(), wanted: sender });
        let seat = seat.or(self.left.remove(&key).map(|left| left.seat));
        let shop = Arc::clone(&self.shop);
        self.lives.spawn(async move { (key, shop.take_on(attempt, start, wanted, seat).await) });
    }

    /// What waits for room goes on by itself, and people should know what for.
    fn look_at_disk(&mut self) {
        let state = &self.shop.settings.state;
        let full = host_fault::is_too_full_to_begin(state);
        if full && !self.full {
            let what = format!("the disk is full at {}; make room there, and it goes on", state.display());
            self.shop.teller.tell(&Notice::Trouble { task: None, what });
        }
        self.full = full;
    }

    /// What others wrote into the store: wishes of people, ends of attempts.
    async fn look_at_store(&mut self, first: bool) -> Result<(), RunError> {
        let version = self.shop.store.version().await?;
        if version == self.version && !first {
            return Ok(());
        }
        self.version = version;
        self.taken.clear();
        let mode = self.shop.store.mode().await?;
        if mode != self.mode {
            self.shop.teller.tell(&match mode {
                Mode::Running => Notice::Resumed,
                Mode::Paused => Notice::Paused,
                Mode::Draining => Notice::Draining,
            });
            self.mode = mode;
            self.draining |= mode == Mode::Draining;
        }
        for attempt in self.shop.store.latest().await? {
            let key = attempt.task.clone();
            if let Some(running) = self.running.get(&key)
                && attempt.cancel
                && attempt.epoch == running.attempt.epoch
            {
                running.wanted.send_if_modified(|wanted| {
                    let new = *wanted == Wanted::GoOn;
                    *wanted = Wanted::Cancel;
                    new
                });
            }
            if let Some(resting) = self.resting.get_mut(&key)
                && attempt.epoch == resting.attempt.epoch
                && (attempt.cancel || (attempt.answer.is_some() && resting.attempt.answer.is_none()))
            {
                (resting.attempt.cancel, resting.attempt.answer) = (attempt.cancel, attempt.answer.clone());
                resting.wake();
            }
            self.latest.insert(key, attempt);
        }
        self.look_at_parked().await
    }

    fn interrupted(&mut self) {
        self.summary.interrupted = true;
        if !self.draining {
            self.draining = true;
            self.shop.teller.tell(&Notice::Draining);
        } else if !self.stopping {
            self.stopping = true;
            self.shop.teller.tell(&Notice::Stopping);
            for running in self.running.values() {
                running.wanted.send_replace(Wanted::Stop);
            }
        }
    }
}
