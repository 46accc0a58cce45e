//! The loop of a supervisor: it sees what happens, decides what to start, and lets every attempt live its life.
//!
//! Everything that happens arrives here as one `Event`: an attempt has come to rest, somebody pressed Ctrl-C, the
//! store or the board changed, time passed. After each one the same questions are asked again: what can be taken
//! over, what can start ([`plan`]), is there anything left to wait for.

mod backoff;
pub mod plan;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agency_protocols::board::{Agenda, BoardError, Role, Start};
use sysinfo::{MemoryRefreshKind, System};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::attempt::{Attempt, Ending, Epoch, FailureKind, Held, Phase, TaskKey};
use crate::causes;
use crate::clock::{self, BootClock, Clock, Instant};
use crate::errand::{Place, send};
use crate::life::{LifeError, Rest, Side, Step, Wanted, Workshop};
use crate::notice::Notice;
use crate::owner;
use crate::room;
use crate::settings::{Agent, Settings};
use crate::store::{Claim, Claimed, Mode, Store, StoreError};
use plan::{Choice, Limits, World};

/// How often it is asked whether somebody changed the store.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often the board is read again although nothing of ours happened.
const READ_EVERY: Duration = Duration::from_secs(2);
/// A board that takes long to read is read less often: no more of the time than one part in so many.
const READ_SHARE: u32 = 200;
/// How often what waits for a person is tried again, and what others left is looked for.
const TRY_EVERY: Duration = Duration::from_secs(2);
/// Those that wait are tried at least this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often an attempt that can't be taken further is taken up again.
const TROUBLES: u32 = 3;

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
}

/// Somebody outside wants an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Start nothing new; a second time, stop what runs.
    Drain,
    /// Leave at once. What runs goes on, and whoever comes next takes it over.
    Detach,
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Summary {
    /// How each task that was worked on ended last.
    pub tasks: BTreeMap<TaskKey, Fate>,
    /// What the board could not tell or would not start, with the reason.
    pub waiting: Vec<(String, String)>,
    pub findings: Vec<agency_protocols::finding::Finding>,
    /// How many tasks another supervisor has.
    pub elsewhere: usize,
    pub interrupted: bool,
    /// What went wrong that is nobody's work.
    pub troubles: Vec<String>,
}

/// What became of a task in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Ended(Ending),
    Waits(String),
    /// It is still open.
    Open,
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

/// An attempt that rests until something changes.
#[derive(Debug)]
struct Resting {
    attempt: Attempt,
    why: String,
    /// Something of theirs is in the way.
    for_a_person: bool,
    again_at: Instant,
}

/// A supervisor at work.
struct Dispatcher<S> {
    shop: Arc<Workshop<S>>,
    wishes: Wishes,
    limits: Limits,
    lives: JoinSet<(TaskKey, Result<Rest, LifeError>)>,
    running: HashMap<TaskKey, Running>,
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
    /// How long what waits for a person is left alone.
    patience: HashMap<TaskKey, Duration>,
    version: u64,
    mode: Mode,
    draining: bool,
    stopping: bool,
    looked_for_orphans: Option<Instant>,
    first_agenda: Option<BTreeSet<String>>,
    /// People know that the disk is full.
    full: bool,
    /// Where it can't be asked, memory keeps nobody from starting.
    system: Option<System>,
    summary: Summary,
}

/// Runs what there is to run, until nothing is left that could be done now.
pub async fn run<S: Store>(
    shop: Arc<Workshop<S>>,
    wishes: Wishes,
    mut interrupts: mpsc::Receiver<Interrupt>,
) -> Result<Summary, RunError> {
    let settings = &shop.settings;
    let limits = Limits {
        total: settings.parallel,
        of_agent: of_agents(settings, |agent| agent.parallel),
        memory: of_agents(settings, |agent| agent.limits.memory),
    };
    let beat = settings.leases.heartbeat;
    let mut heartbeat = tokio::time::interval_at(tokio::time::Instant::now() + beat, beat);
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut dispatcher = Dispatcher {
        wishes,
        limits,
        lives: JoinSet::new(),
        running: HashMap::new(),
        resting: HashMap::new(),
        agenda: Agenda::default(),
        read_at: None,
        reading_takes: Duration::ZERO,
        latest: HashMap::new(),
        taken: HashSet::new(),
        given_up: HashSet::new(),
        not_before: HashMap::new(),
        troubles: HashMap::new(),
        patience: HashMap::new(),
        version: 0,
        mode: Mode::Running,
        draining: false,
        stopping: false,
        looked_for_orphans: None,
        first_agenda: None,
        full: false,
        system: System::new().ok(),
        summary: Summary::default(),
        shop: Arc::clone(&shop),
    };
    // A drain was meant for those who ran when it was asked for.
    if shop.store.mode().await? == Mode::Draining {
        shop.store.set_mode(Mode::Running).await?;
    }
    dispatcher.look_at_store(true).await?;
    loop {
        if dispatcher.settle_down().await? {
            return Ok(dispatcher.finish());
        }
        let event = tokio::select! {
            biased;
            Some(interrupt) = interrupts.recv() => Event::Interrupt(interrupt),
            Some(ended) = dispatcher.lives.join_next() => match ended {
                Ok((task, rest)) => Event::Rested { task, rest: Box::new(rest) },
                Err(_) => continue,
            },
            _ = heartbeat.tick() => Event::Heartbeat,
            _ = look.tick() => Event::Look,
        };
        tracing::trace!(?event);
        match event {
            Event::Rested { task, rest } => dispatcher.rested(task, *rest).await?,
            Event::Interrupt(Interrupt::Detach) => {
                dispatcher.summary.interrupted = true;
                return Ok(dispatcher.finish());
            }
            Event::Interrupt(Interrupt::Drain) => dispatcher.interrupted(),
            Event::Look => {
                dispatcher.look_at_disk();
                dispatcher.look_at_store(false).await?;
            }
            Event::Heartbeat => dispatcher.heartbeat().await?,
        }
    }
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
        if !self.stopping {
            self.look_for_orphans(now).await?;
            self.try_again(now);
        }
        loop {
            let busy: HashMap<TaskKey, String> =
                self.running.iter().map(|(key, one)| (key.clone(), one.attempt.agent.clone())).collect();
            let aside: HashSet<TaskKey> = self
                .taken
                .iter()
                .chain(&self.given_up)
                .chain(self.resting.keys())
                .cloned()
                .chain(self.unasked())
                .collect();
            let free_memory = self.system.as_mut().map_or(u64::MAX, |system| {
                system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
                system.available_memory()
            });
            let choice = plan::choose(&World {
                ready: &self.agenda.ready,
                protocol: self.shop.desk.protocol,
                busy: &busy,
                aside: &aside,
                not_before: &self.not_before,
                now,
                limits: &self.limits,
                free_memory,
                closed: self.draining || self.mode == Mode::Paused,
            });
            match choice {
                Choice::Start(start) => {
                    let start = start.clone();
                    self.start(start).await?;
                }
                Choice::Wait { .. } if !self.draining => return Ok(false),
                Choice::Wait { .. } | Choice::Nothing => {
                    return Ok(self.running.is_empty() && !self.has_troubles_to_try());
                }
            }
        }
    }

    /// Tasks that this run is not about.
    fn unasked(&self) -> Vec<TaskKey> {
        let asked = |start: &Start| {
            let id = start.task.as_str();
            self.wishes.tasks.as_ref().is_none_or(|tasks| tasks.contains(id))
                && self.wishes.agent.as_ref().is_none_or(|agent| agent == start.agent.as_str())
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
        self.agenda = self.shop.desk.look(|board, tree| board.next(tree)).await?;
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
        let doubtful: Vec<TaskKey> =
            self.running.keys().filter(|key| !offered.contains(key)).cloned().collect();
        for key in doubtful {
            let Ok(task) = agency_protocols::names::TaskId::parse(&key.id) else { continue };
            let wanted = self.shop.desk.look(move |board, tree| board.is_wanted(tree, &task)).await?;
            if let (false, Some(running)) = (wanted, self.running.get(&key)) {
                running.wanted.send_replace(Wanted::Cancel);
            }
        }
        Ok(())
    }

    /// Claims a task and lets it live.
    async fn start(&mut self, start: Start) -> Result<(), RunError> {
        let key = self.key(start.task.as_str());
        let after = self.latest.get(&key).map(|attempt| attempt.epoch);
        let beyond = match after {
            Some(_) => Epoch(0),
            None => self.shop.known_to_git(&key).await?,
        };
        let claim = Claim { task: &key, title: &start.title, agent: start.agent.as_str(), after, beyond };
        (self.shop.witness)(&key, Step::Claim, Side::Before);
        let ttl = self.shop.settings.leases.ttl;
        let claimed = self.shop.store.claim(&claim, self.shop.term, ttl).await?;
        (self.shop.witness)(&key, Step::Claim, Side::After);
        match claimed {
            Claimed::Taken => {
                self.taken.insert(key);
            }
            Claimed::Held(lease) => {
                let now = clock::wall();
                let attempt = Attempt {
                    task: key,
                    epoch: lease.epoch,
                    title: start.title.clone(),
                    agent: start.agent.to_string(),
                    phase: Phase::Claimed,
                    held: Some(Held { term: lease.term, until: BootClock.now() + ttl }),
                    cancel: false,
                    claimed_at: now,
                    recorded_at: now,
                };
                self.live(attempt);
            }
        }
        Ok(())
    }

    fn live(&mut self, attempt: Attempt) {
        let key = attempt.task.clone();
        let start = self.agenda.ready.iter().find(|start| start.task.as_str() == key.id).cloned();
        let wish = if attempt.cancel { Wanted::Cancel } else { Wanted::GoOn };
        let (sender, wanted) = watch::channel(wish);
        self.latest.insert(key.clone(), attempt.clone());
        self.running.insert(key.clone(), Running { attempt: attempt.clone(), wanted: sender });
        let shop = Arc::clone(&self.shop);
        self.lives.spawn(async move { (key, shop.take_on(attempt, start, wanted).await) });
    }

    /// An attempt has come to rest.
    async fn rested(&mut self, key: TaskKey, rest: Result<Rest, LifeError>) -> Result<(), RunError> {
        let Some(Running { attempt, .. }) = self.running.remove(&key) else { return Ok(()) };
        self.read_at = None;
        match rest {
            Ok(Rest::Over(ending)) => self.over(key, attempt, ending).await?,
            Ok(Rest::Waits(why)) => {
                let told = self.summary.tasks.insert(key.clone(), Fate::Waits(why.clone()));
                let again = told.as_ref() == Some(&Fate::Waits(why.clone()));
                if !again {
                    self.waits(&attempt, &why).await?;
                }
                // Each try may mean another proof, so it is not tried all the time.
                let pause = match (again, self.patience.get(&key)) {
                    (true, Some(pause)) => (*pause * 2).min(LONGEST_PAUSE),
                    _ => TRY_EVERY,
                };
                self.patience.insert(key.clone(), pause);
                let again_at = BootClock.now() + pause;
                if let Some(attempt) = self.reread(&key).await? {
                    self.resting.insert(key, Resting { attempt, why, for_a_person: true, again_at });
                }
            }
            Ok(Rest::Interrupted) => {
                self.summary.tasks.insert(key.clone(), Fate::Open);
                self.given_up.insert(key);
            }
            Err(error) if error.is_fenced() => {
                self.taken.insert(key);
            }
            Err(error) => self.trouble(key, &error).await?,
        }
        Ok(())
    }

    async fn waits(&self, attempt: &Attempt, why: &str) -> Result<(), RunError> {
        let (task, why) = (attempt.task.clone(), why.to_owned());
        if let Some(lease) = attempt.lease() {
            self.shop.store.note(&lease, &format!("waits: {why}")).await?;
        }
        self.shop.teller.tell(&Notice::Waits { task, attempt: attempt.epoch.0, why });
        Ok(())
    }

    async fn over(&mut self, key: TaskKey, attempt: Attempt, ending: Ending) -> Result<(), RunError> {
        if !matches!(ending, Ending::Lost { .. }) {
            self.troubles.remove(&key);
        }
        match &ending {
            Ending::Failed { failure } => {
                let failures = self.shop.store.failures(&key).await?;
                let pause = backoff::pause(self.shop.settings.backoff, failures, &key, attempt.epoch);
                self.not_before.insert(key.clone(), BootClock.now() + pause);
                if failure.kind.is_worth_another() && failures < self.shop.settings.attempts {
                    self.shop.teller.tell(&Notice::Again { task: key.clone(), seconds: pause.as_secs() });
                }
                let stays = failure.kind == FailureKind::Start && !self.wishes.keep_going;
                if stays && !self.draining {
                    self.draining = true;
                    self.summary.troubles.push(format!("{key}: {}", failure.reason));
                    self.shop.teller.tell(&Notice::Draining);
                }
            }
            Ending::Lost { .. } => {
                let count = self.troubles.entry(key.clone()).or_default();
                *count += 1;
                match *count >= TROUBLES {
                    true => drop(self.given_up.insert(key.clone())),
                    false => {
                        let pause = Duration::from_millis(500) * *count;
                        self.not_before.insert(key.clone(), BootClock.now() + pause);
                    }
                }
            }
            Ending::Done { .. } | Ending::Kept { .. } | Ending::Blocked { .. } | Ending::Canceled => {}
        }
        self.summary.tasks.insert(key, Fate::Ended(ending));
        Ok(())
    }

    /// Something went wrong that is nobody's work. The attempt stays open, and is taken up again a few times.
    async fn trouble(&mut self, key: TaskKey, error: &LifeError) -> Result<(), RunError> {
        let what = causes::on_one_line(error);
        self.shop.teller.tell(&Notice::Trouble { task: Some(key.clone()), what: what.clone() });
        let count = self.troubles.entry(key.clone()).or_default();
        *count += 1;
        let pause = Duration::from_millis(500) * *count;
        if *count >= TROUBLES {
            self.summary.tasks.insert(key.clone(), Fate::Open);
            self.summary.troubles.push(format!("{key}: {what}"));
            self.given_up.insert(key);
            self.draining = true;
        } else if let Some(attempt) = self.reread(&key).await? {
            let again_at = BootClock.now() + pause;
            self.resting.insert(key, Resting { attempt, why: what, for_a_person: false, again_at });
        }
        Ok(())
    }

    /// An attempt as the store has it, if it is still ours.
    async fn reread(&self, key: &TaskKey) -> Result<Option<Attempt>, RunError> {
        let attempts = self.shop.store.attempts(key).await?;
        let ours = |attempt: &Attempt| attempt.held.is_some_and(|held| held.term == self.shop.term);
        Ok(attempts.into_iter().next_back().filter(ours))
    }

    /// Whether something rests that is tried again without anybody's doing.
    fn has_troubles_to_try(&self) -> bool {
        !self.stopping && self.resting.values().any(|one| !one.for_a_person)
    }

    /// Takes up what rests, when it is time.
    fn try_again(&mut self, now: Instant) {
        let something_runs = !self.running.is_empty();
        // A person is waited for only while there is something else to do.
        let due = self
            .resting
            .iter()
            .filter(|(_, one)| one.again_at <= now && (something_runs || !one.for_a_person));
        let due: Vec<TaskKey> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            if self.running.len() >= self.limits.total {
                return;
            }
            if let Some(Resting { attempt, .. }) = self.resting.remove(&key) {
                self.shop.rejoin(&attempt);
                self.live(attempt);
            }
        }
    }

    /// Takes over what nobody looks after: of owners that are dead, or whose time is up.
    async fn look_for_orphans(&mut self, now: Instant) -> Result<(), RunError> {
        if self.looked_for_orphans.is_some_and(|at| now.since(at) < TRY_EVERY) {
            return Ok(());
        }
        self.looked_for_orphans = Some(now);
        let open = self.shop.store.open().await?;
        let others: Vec<&Attempt> = open
            .iter()
            .filter(|attempt| attempt.task.protocol == self.shop.desk.protocol)
            .filter(|attempt| attempt.held.is_some_and(|held| held.term != self.shop.term))
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let owners: HashMap<_, _> = self.shop.store.owners().await?.into_iter().collect();
        let time = self.shop.store.now().await?;
        let mut adopted = Vec::new();
        for attempt in others {
            let (Some(held), Some(lease)) = (attempt.held, attempt.lease()) else { continue };
            let dead = match owners.get(&held.term) {
                Some(owner) => owner::is_dead(&self.shop.settings.state, held.term, owner),
                None => true,
            };
            if !dead && held.until > time {
                self.taken.insert(attempt.task.clone());
                continue;
            }
            let ttl = self.shop.settings.leases.ttl;
            let Some(lease) = self.shop.store.adopt(&lease, self.shop.term, ttl).await? else { continue };
            let attempt =
                Attempt { held: Some(Held { term: lease.term, until: time + ttl }), ..attempt.clone() };
            self.taken.remove(&attempt.task);
            self.renew_shims(&attempt);
            self.shop.teller.tell(&Notice::Adopted { attempt: attempt.clone() });
            adopted.push(attempt);
        }
        // They may stand on each other: all of them are in their places before the first goes on.
        adopted.iter().for_each(|attempt| self.shop.rejoin(attempt));
        adopted.into_iter().for_each(|attempt| self.live(attempt));
        Ok(())
    }

    /// Puts the end of all our leases off, in the store and with every shim.
    async fn heartbeat(&mut self) -> Result<(), RunError> {
        let leases = self.shop.store.renew(self.shop.term, self.shop.settings.leases.ttl).await?;
        for running in self.running.values() {
            let ours = running.attempt.lease().is_some_and(|lease| leases.contains(&lease));
            if ours {
                self.renew_shims(&running.attempt);
            }
        }
        Ok(())
    }

    /// Nobody waits for it: a shim that takes its time holds up only itself.
    fn renew_shims(&self, attempt: &Attempt) {
        let until = BootClock.now() + self.shop.settings.leases.ttl;
        let folder = self.shop.records(attempt);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let (place, term) = (Place::new(entry.path()), self.shop.term);
            tokio::spawn(async move {
                // Whoever does not answer has nothing to be put off.
                if let Err(error) = send::renew(&place, term, until).await {
                    tracing::debug!(%error, "a shim does not answer");
                }
            });
        }
    }

    /// What runs waits for room by itself, and people should know what for.
    fn look_at_disk(&mut self) {
        let state = &self.shop.settings.state;
        let full = !self.running.is_empty() && room::is_full(state);
        if full && !self.full {
            let what = format!("the disk is full at {}: what runs waits for room there", state.display());
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
                && attempt.cancel
            {
                resting.attempt.cancel = true;
                (resting.again_at, resting.for_a_person) = (Instant(0), false);
            }
            self.latest.insert(key, attempt);
        }
        Ok(())
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

    /// What this run is about and did not come to, because it was told to end.
    fn not_started(&self) -> Vec<(String, String)> {
        if !self.draining && !self.summary.interrupted {
            return Vec::new();
        }
        let unasked: HashSet<TaskKey> = self.unasked().into_iter().collect();
        let others = |key: &TaskKey| self.latest.get(key).is_some_and(|attempt| attempt.held.is_some());
        let left = self.agenda.ready.iter().filter(|start| start.role == Role::Builder).filter(|start| {
            let key = self.key(start.task.as_str());
            !self.summary.tasks.contains_key(&key) && !unasked.contains(&key) && !others(&key)
        });
        left.map(|start| (start.task.to_string(), "this run ends before its turn".to_owned())).collect()
    }

    fn finish(mut self) -> Summary {
        for (key, resting) in &self.resting {
            self.summary.tasks.entry(key.clone()).or_insert_with(|| Fate::Waits(resting.why.clone()));
        }
        // Somebody who leaves at once leaves them at work.
        for key in self.running.keys() {
            self.summary.tasks.insert(key.clone(), Fate::Open);
        }
        let asked = |id: &str| self.wishes.tasks.as_ref().is_none_or(|tasks| tasks.contains(id));
        self.summary.waiting = self
            .agenda
            .waiting
            .iter()
            .filter(|waiting| asked(waiting.task.as_str()))
            .map(|waiting| (waiting.task.to_string(), waiting.why.clone()))
            .chain(self.not_started())
            .collect();
        self.summary.findings = self.agenda.findings.clone();
        let others = |attempt: &&Attempt| attempt.held.is_some_and(|held| held.term != self.shop.term);
        self.summary.elsewhere = self.latest.values().filter(others).count();
        self.summary
    }
}
