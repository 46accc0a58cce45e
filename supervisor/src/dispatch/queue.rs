//! The state of a run, and what follows from everything that happens to it.
//!
//! Nothing here waits. [`RunQueue::on_event`] takes note of what happened, [`RunQueue::decide`] chooses what is done next,
//! and both answer with actions for others to carry out. Times, free memory and every answer of the store, the board and
//! git come in as values.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use agency_protocols::board::{BoardAgenda, ReadyTask};

use super::action::{Action, Actions, Answer, Asked, DispatchEvent, Moment, Question, StoreNews};
use super::host_shortage::HostShortage;
use super::parked_agents::ParkedAgents;
use super::plan::{self, PlanFacts, StartChoice, StartLimits};
use super::summary::RunSummary;
use super::unfit::UnfitHere;
use super::waiting::{Settling, WaitingAttempt};
use super::{Interrupt, RunOptions, limits};
use crate::attempt::{Attempt, Epoch, TaskKey, Term, UsageTotals};
use crate::clock::BootInstant;
use crate::driver::DriverSignal;
use crate::run_event::{QueueStatus, RunEvent};
use crate::settings::RunSettings;
use crate::store::QueueMode;

/// How often the board is read again although nothing of ours happened.
const READ_EVERY: Duration = Duration::from_secs(2);
/// A board that takes long to read is read less often: no more of the time than one part in so many.
const READ_SHARE: u32 = 200;
/// How often what waits for a person is tried again, and what others left is looked for.
pub(super) const TRY_EVERY: Duration = Duration::from_secs(2);
/// How long a run that was told to stop, and in which nothing runs, waits for answers.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// One attempt that a driver takes further.
#[derive(Debug)]
pub(super) struct RunningAttempt {
    pub(super) attempt: Attempt,
    /// What its driver was told last.
    pub(super) wish: DriverSignal,
}

/// What is known from outside when something is decided.
#[derive(Debug)]
pub(super) struct QueueFacts {
    pub(super) now: Moment,
    /// Bytes of memory that are free.
    pub(super) free_memory: u64,
    /// How many of each agent judge the work of others, or wait to.
    pub(super) judging: HashMap<String, usize>,
    /// Tasks whose agent is at work although no driver is.
    pub(super) unattended: HashSet<TaskKey>,
}

/// What a run begins with.
#[derive(Debug)]
pub(super) struct QueueStart {
    pub(super) wishes: RunOptions,
    pub(super) settings: RunSettings,
    pub(super) protocol: String,
    pub(super) terms: Vec<Term>,
    pub(super) began: BootInstant,
}

/// The state of a run.
#[derive(Debug)]
pub(super) struct RunQueue {
    pub(super) wishes: RunOptions,
    pub(super) settings: RunSettings,
    pub(super) limits: StartLimits,
    protocol: String,
    pub(super) terms: Vec<Term>,
    began: BootInstant,
    /// Questions that are not answered yet.
    pub(super) in_flight: HashSet<Asked>,
    /// The last question failed: nothing is asked before something else happens.
    is_held: bool,
    pub(super) running: HashMap<TaskKey, RunningAttempt>,
    pub(super) resting: HashMap<TaskKey, WaitingAttempt>,
    /// Attempts that came to rest, and of which something is asked before that counts.
    pub(super) settling: HashMap<TaskKey, Settling>,
    pub(super) agenda: BoardAgenda,
    /// When the board was last read; `None` if it must be read before anything is decided.
    read_at: Option<BootInstant>,
    /// Something of ours happened since the board began to be read.
    is_reading_stale: bool,
    /// How long reading the board takes.
    reading_takes: Duration,
    /// The last attempt at each task.
    pub(super) latest: HashMap<TaskKey, Attempt>,
    /// Attempts that were begun here since the store began to be read: it may not have them as they are.
    newer: HashSet<TaskKey>,
    /// What another supervisor has. Looked at again when the store changes.
    pub(super) taken: HashSet<TaskKey>,
    /// What is not touched again in this run.
    pub(super) given_up: HashSet<TaskKey>,
    pub(super) not_before: HashMap<TaskKey, BootInstant>,
    pub(super) troubles: HashMap<TaskKey, u32>,
    pub(super) parking: ParkedAgents,
    pub(super) unfit: UnfitHere,
    /// How long what waits for a person is left alone.
    pub(super) patience: HashMap<TaskKey, Duration>,
    /// The store's version when it was last read; `None` before the first time.
    version: Option<u64>,
    mode: QueueMode,
    pub(super) draining: bool,
    pub(super) stopping: bool,
    /// Since when nothing runs although the run was told to stop.
    stopped_since: Option<BootInstant>,
    looked_for_orphans: Option<BootInstant>,
    first_agenda: Option<BTreeSet<String>>,
    /// What this run has used, and which attempts it has begun, but those that do not count.
    pub(super) used: UsageTotals,
    pub(super) begun: HashSet<(TaskKey, Epoch)>,
    /// The budget of this run is used up.
    pub(super) used_up: bool,
    /// People know that the disk is full.
    pub(super) full: bool,
    /// What the machine lacked last, until work has gone on.
    pub(super) lack: Option<HostShortage>,
    /// How often an attempt came to its end for which the machine lacked nothing.
    pub(super) went_on: u64,
    /// For an attempt that lacked something: when that was, by the number above, and how often others went on meanwhile.
    pub(super) lacked_alone: HashMap<TaskKey, (u64, u32)>,
    /// Attempts that rest, and could not be written down or read when they came to it.
    pub(super) unread: HashSet<TaskKey>,
    /// What was last said of how the queue stands.
    pub(super) told: QueueStatus,
    pub(super) summary: RunSummary,
}

impl RunQueue {
    pub(super) fn new(QueueStart { wishes, settings, protocol, terms, began }: QueueStart) -> Self {
        Self {
            limits: limits(&settings),
            wishes,
            settings,
            protocol,
            terms,
            began,
            in_flight: HashSet::new(),
            is_held: false,
            running: HashMap::new(),
            resting: HashMap::new(),
            settling: HashMap::new(),
            agenda: BoardAgenda::default(),
            read_at: None,
            is_reading_stale: false,
            reading_takes: Duration::ZERO,
            latest: HashMap::new(),
            newer: HashSet::new(),
            taken: HashSet::new(),
            given_up: HashSet::new(),
            not_before: HashMap::new(),
            troubles: HashMap::new(),
            parking: ParkedAgents::default(),
            unfit: UnfitHere::default(),
            patience: HashMap::new(),
            version: None,
            mode: QueueMode::Running,
            draining: false,
            stopping: false,
            stopped_since: None,
            looked_for_orphans: None,
            first_agenda: None,
            used: UsageTotals::default(),
            begun: HashSet::new(),
            used_up: false,
            full: false,
            lack: None,
            went_on: 0,
            lacked_alone: HashMap::new(),
            unread: HashSet::new(),
            told: QueueStatus::default(),
            summary: RunSummary::default(),
        }
    }

    /// The first thing that is done: a drain that was meant for an earlier run is taken back.
    pub(super) fn begin(&mut self) -> Actions {
        let mut actions = Actions::default();
        self.ask(Question::GiveBackDrain, &mut actions);
        actions
    }

    /// Takes note of what happened.
    pub(super) fn on_event(&mut self, event: DispatchEvent, now: Moment) -> Actions {
        let mut actions = Actions::default();
        self.is_held = false;
        match event {
            DispatchEvent::Interrupted(Interrupt::Detach) => {
                self.summary.interrupted = true;
                actions.push(Action::End);
            }
            DispatchEvent::Interrupted(Interrupt::Drain) => self.interrupted(&mut actions),
            DispatchEvent::Look { is_disk_full } => {
                self.disk_was_looked_at(is_disk_full, &mut actions);
                // Before the first time, it is read when the drain of an earlier run was given back.
                if self.version.is_some() {
                    self.read_store(&mut actions);
                }
            }
            DispatchEvent::Heartbeat => self.ask(Question::RenewLeases, &mut actions),
            DispatchEvent::Rested { key, rest } => self.rested(key, *rest, now, &mut actions),
            DispatchEvent::Answered(answer) => {
                self.in_flight.remove(&answer.asked());
                self.answered(answer, now, &mut actions);
            }
            DispatchEvent::Unanswered { asked, what } => {
                self.in_flight.remove(&asked);
                self.unanswered(&asked, &what, now, &mut actions);
            }
        }
        actions
    }

    fn answered(&mut self, answer: Answer, now: Moment, actions: &mut Actions) {
        match answer {
            Answer::DrainGivenBack => self.read_store(actions),
            Answer::StoreRead { version, news } => {
                self.version = Some(version);
                if let Some(news) = news {
                    self.store_changed(*news, actions);
                }
            }
            Answer::AgendaRead { agenda, took } => self.agenda_read(*agenda, took, now, actions),
            Answer::WantedChecked { unwanted } => {
                unwanted.iter().for_each(|key| self.unwanted(key, actions));
            }
            Answer::OrphansFound(search) => self.orphans_found(search, now, actions),
            Answer::LeasesRenewed { leases } => {
                let ours = |attempt: &Attempt| attempt.lease().is_some_and(|lease| leases.contains(&lease));
                let running = self.running.values().map(|running| &running.attempt);
                running.filter(|attempt| ours(attempt)).for_each(|attempt| {
                    actions.push(Action::RenewShims(attempt.clone()));
                });
            }
            Answer::Claimed { key, start, outcome } => self.claimed(key, &start, outcome, now, actions),
            Answer::WaitingNoted { key } => self.waiting_noted(&key, actions),
            Answer::Reread { key, attempt } => self.rests(key, attempt, actions),
            Answer::Settled { key, facts } => self.settled(key, &facts, now, actions),
            Answer::BaseChecked { profile, result } => {
                self.base_checked(profile, result, now.boot, actions);
            }
            Answer::Abandoned { key, outcome } => self.abandoned(key, outcome, now, actions),
        }
    }

    /// A question was not answered for what the machine lacks. It is asked again after something else happened.
    pub(super) fn unanswered(&mut self, asked: &Asked, what: &str, now: Moment, actions: &mut Actions) {
        self.note_shortage(None, what, now, actions);
        match asked {
            Asked::Attempt(key) => {
                self.settling.remove(key);
                self.unread.insert(key.clone());
                self.is_held = true;
            }
            Asked::Agenda => {
                self.is_reading_stale = false;
                self.is_held = true;
            }
            Asked::Wanted | Asked::Orphans | Asked::Claim | Asked::BaseCheck => self.is_held = true,
            Asked::Drain | Asked::Store | Asked::Leases => {}
        }
    }

    /// Asks, if the same is not asked already.
    pub(super) fn ask(&mut self, question: Question, actions: &mut Actions) {
        if self.in_flight.insert(question.asked()) {
            actions.push(Action::Ask(question));
        }
    }

    fn is_asking(&self, asked: &Asked) -> bool {
        self.in_flight.contains(asked)
    }

    /// Chooses what is done next: what can be taken over, what can start, whether there is anything left to wait for.
    pub(super) fn decide(&mut self, facts: &QueueFacts) -> Actions {
        let mut actions = Actions::default();
        let is_over = self.goes_on_to_its_end(facts, &mut actions);
        if is_over || !self.is_between_questions() {
            self.tell_status(facts.now.wall, &mut actions);
        }
        if is_over {
            actions.push(Action::End);
        }
        actions
    }

    /// Whether an answer is missing without which the state says half of what happened: then no event is told.
    fn is_between_questions(&self) -> bool {
        let asked = [Asked::Drain, Asked::Agenda, Asked::Wanted, Asked::Orphans, Asked::Claim];
        self.version.is_none() || asked.iter().any(|asked| self.is_asking(asked)) || self.is_settling()
    }

    fn goes_on_to_its_end(&mut self, facts: &QueueFacts, actions: &mut Actions) -> bool {
        let now = facts.now;
        if self.has_waited_for_answers(now.boot) {
            return true;
        }
        if self.is_held {
            return self.is_out_of_time(now.boot, actions);
        }
        self.is_informed(now, actions) && self.start_what_can(facts, actions)
    }

    /// Whether the run was told to stop, nothing runs, and the last answers have not come for a while.
    fn has_waited_for_answers(&mut self, now: BootInstant) -> bool {
        if !self.stopping || !self.running.is_empty() {
            self.stopped_since = None;
            return false;
        }
        now.since(*self.stopped_since.get_or_insert(now)) >= LAST_ANSWERS
    }

    /// Whether everything is known that has to be before something is chosen. Asks for what is not, in the order in
    /// which it matters: how supervisors are to go on, how attempts ended, what the board says, how the last claim
    /// ended, and what others left.
    fn is_informed(&mut self, now: Moment, actions: &mut Actions) -> bool {
        if self.version.is_none() || self.is_settling() {
            return false;
        }
        if self.is_asking(&Asked::Agenda) || self.is_asking(&Asked::Wanted) {
            return false;
        }
        let pause = READ_EVERY.max(self.reading_takes * READ_SHARE);
        if self.read_at.is_none_or(|at| now.boot.since(at) >= pause) {
            self.ask(Question::ReadAgenda, actions);
            return false;
        }
        self.read_again(now.boot, actions);
        if self.is_settling() {
            return false;
        }
        // An attempt that is taken up meanwhile would have the room for which the task was chosen.
        if self.is_asking(&Asked::Claim) {
            return false;
        }
        if !self.stopping {
            if self.is_asking(&Asked::Orphans) {
                return false;
            }
            if self.looked_for_orphans.is_none_or(|at| now.boot.since(at) >= TRY_EVERY) {
                self.looked_for_orphans = Some(now.boot);
                let books = self.running.keys().chain(self.resting.keys()).chain(self.settling.keys());
                let ours = books.cloned().collect();
                self.ask(Question::FindOrphans { ours }, actions);
                return false;
            }
            self.try_again(now.boot, actions);
        }
        true
    }

    fn is_settling(&self) -> bool {
        self.settling.values().any(Settling::has_to_be_known)
    }

    /// Starts the next task that can be; `true` when nothing is left to wait for.
    fn start_what_can(&mut self, facts: &QueueFacts, actions: &mut Actions) -> bool {
        let now = facts.now.boot;
        if self.wishes.watch {
            self.unfit.forget_old(now);
        }
        loop {
            let busy = self.busy(&facts.unattended);
            let aside = self.aside();
            let parked = self.parking.until(facts.now.wall, now);
            let waits = self.is_checking_base();
            let choice = plan::choose(&PlanFacts {
                ready: &self.agenda.ready,
                protocol: &self.protocol,
                busy: &busy,
                judging: &facts.judging,
                aside: &aside,
                not_before: &self.not_before,
                parked: &parked,
                now,
                limits: &self.limits,
                free_memory: facts.free_memory,
                closed: self.draining || self.mode == QueueMode::Paused,
            });
            match choice {
                // The time of the run goes by although nothing is started.
                StartChoice::Start(_) if self.lacks(now) && self.what_the_run_used_up(now).is_none() => {
                    return false;
                }
                StartChoice::Start(start) => {
                    let start = Box::new(start.clone());
                    match self.what_the_run_used_up(now) {
                        Some(used) => self.end_for_want(&used, actions),
                        None if self.has_to_check_base(&start) => {
                            self.ask_base_check(start.profile, actions);
                        }
                        None => {
                            let key = self.key(start.task.as_str());
                            let after = self.latest.get(&key).map(|attempt| attempt.epoch);
                            self.ask(Question::Claim { key, start, after }, actions);
                            return false;
                        }
                    }
                }
                choice if !self.draining && (waits || choice != StartChoice::Nothing) => {
                    // The time of the run goes by although no agent works.
                    let used = self.running.is_empty().then(|| self.what_the_run_used_up(now)).flatten();
                    match used {
                        Some(used) => self.end_for_want(&used, actions),
                        None => return false,
                    }
                }
                StartChoice::Wait { .. } | StartChoice::Nothing => {
                    let goes_on =
                        self.wishes.watch && !self.draining && self.what_the_run_used_up(now).is_none();
                    return self.has_nothing_at_hand() && !self.has_troubles_to_try() && !goes_on;
                }
            }
        }
    }

    /// Whether no attempt is at work, or on its way to an end.
    pub(super) fn has_nothing_at_hand(&self) -> bool {
        self.running.is_empty() && self.settling.is_empty() && !self.is_asking(&Asked::Claim)
    }

    /// Tasks at which an agent is at work, with the agent.
    fn busy(&self, unattended: &HashSet<TaskKey>) -> HashMap<TaskKey, String> {
        let unattended = unattended.iter().filter_map(|key| self.latest.get(key));
        let running = self.running.values().map(|one| &one.attempt);
        running.chain(unattended).map(|attempt| (attempt.task.clone(), attempt.agent.clone())).collect()
    }

    /// Tasks that are not to be touched now.
    fn aside(&self) -> HashSet<TaskKey> {
        let known = self.taken.iter().chain(&self.given_up).chain(self.resting.keys());
        let barred = self.barred().into_iter().map(|(key, _)| key);
        let unchecked = self.agenda.ready.iter().filter(|start| self.waits_for_base_check(start));
        let unchecked = unchecked.map(|start| self.key(start.task.as_str()));
        known
            .chain(self.settling.keys())
            .cloned()
            .chain(self.unasked())
            .chain(barred)
            .chain(unchecked)
            .collect()
    }

    /// Tasks that this run is not about.
    pub(super) fn unasked(&self) -> Vec<TaskKey> {
        let asked = |start: &ReadyTask| {
            let id = start.task.as_str();
            self.wishes.includes(start)
                && self.first_agenda.as_ref().is_none_or(|first| !self.wishes.once || first.contains(id))
        };
        let ready = self.agenda.ready.iter().filter(|start| !asked(start));
        ready.map(|start| self.key(start.task.as_str())).collect()
    }

    pub(super) fn key(&self, id: &str) -> TaskKey {
        TaskKey { protocol: self.protocol.clone(), id: id.to_owned() }
    }

    /// How long the run has been going on.
    pub(super) fn elapsed(&self, now: BootInstant) -> Duration {
        now.since(self.began)
    }

    /// Something of ours may have changed the board: what was read of it, or is being read, does not count any more.
    pub(super) fn board_changed(&mut self) {
        self.read_at = None;
        self.is_reading_stale = self.is_asking(&Asked::Agenda);
    }

    fn agenda_read(&mut self, agenda: BoardAgenda, took: Duration, now: Moment, actions: &mut Actions) {
        self.reading_takes = took;
        // What came to rest meanwhile may have changed the board after it was read.
        if std::mem::take(&mut self.is_reading_stale) {
            return;
        }
        self.agenda = agenda;
        self.read_at = Some(now.boot);
        let ids = || self.agenda.ready.iter().map(|start| start.task.to_string()).collect();
        self.first_agenda.get_or_insert_with(ids);
        let offered: HashSet<TaskKey> =
            self.agenda.ready.iter().map(|start| self.key(start.task.as_str())).collect();
        let at_hand = self.running.keys().chain(self.resting.keys());
        let keys: Vec<TaskKey> = at_hand.filter(|key| !offered.contains(key)).cloned().collect();
        if !keys.is_empty() {
            self.ask(Question::CheckWanted { keys }, actions);
        }
    }

    /// A person has taken a task off the board: its attempt is canceled.
    fn unwanted(&mut self, key: &TaskKey, actions: &mut Actions) {
        if let Some(running) = self.running.get_mut(key) {
            running.wish = DriverSignal::Cancel;
            actions.push(Action::Signal { key: key.clone(), signal: DriverSignal::Cancel, wakes: true });
        }
        if let Some(resting) = self.resting.get_mut(key) {
            resting.attempt.cancel = true;
            resting.wake();
        }
    }

    /// Has a driver take an attempt further.
    pub(super) fn drive(&mut self, mut attempt: Attempt, actions: &mut Actions) {
        let key = attempt.task.clone();
        // The store may have said so before this was known to be ours. Once asked for, it stays so.
        attempt.cancel |=
            self.latest.get(&key).is_some_and(|known| known.epoch == attempt.epoch && known.cancel);
        let start = self.agenda.ready.iter().find(|start| start.task.as_str() == key.id).cloned();
        let wish = match (attempt.cancel, self.stopping) {
            (true, _) => DriverSignal::Cancel,
            (false, true) => DriverSignal::Stop,
            (false, false) => DriverSignal::GoOn,
        };
        self.latest.insert(key.clone(), attempt.clone());
        self.newer.insert(key.clone());
        self.running.insert(key, RunningAttempt { attempt: attempt.clone(), wish });
        actions.push(Action::Drive { attempt, start: start.map(Box::new), wish });
    }

    fn read_store(&mut self, actions: &mut Actions) {
        if self.is_asking(&Asked::Store) {
            return;
        }
        self.newer.clear();
        self.ask(Question::ReadStore { known: self.version, parked: self.parking.tasks() }, actions);
    }

    /// Heeds what others wrote into the store: wishes of people, ends of attempts.
    fn store_changed(&mut self, news: StoreNews, actions: &mut Actions) {
        let StoreNews { mode, latest, forgiven } = news;
        self.taken.clear();
        // What is re-read now may have been read before that.
        self.settling.values_mut().for_each(Settling::store_changed);
        if mode != self.mode {
            actions.emit(match mode {
                QueueMode::Running => RunEvent::Resumed,
                QueueMode::Paused => RunEvent::Paused,
                QueueMode::Draining => RunEvent::Draining,
            });
            self.mode = mode;
            self.draining |= mode == QueueMode::Draining;
        }
        for attempt in latest {
            let key = attempt.task.clone();
            if let Some(running) = self.running.get_mut(&key)
                && attempt.cancel
                && attempt.epoch == running.attempt.epoch
            {
                let wakes = running.wish == DriverSignal::GoOn;
                running.wish = DriverSignal::Cancel;
                actions.push(Action::Signal { key: key.clone(), signal: DriverSignal::Cancel, wakes });
            }
            let is_ours = attempt.held.is_some_and(|held| self.terms.contains(&held.term));
            if let Some(resting) = self.resting.get(&key)
                && attempt.epoch == resting.attempt.epoch
                && !is_ours
                && !self.newer.contains(&key)
            {
                // Another supervisor took it over while this one slept. What it waited for is the other's to tell.
                self.resting.remove(&key);
                self.patience.remove(&key);
                self.summary.tasks.remove(&key);
            }
            if let Some(resting) = self.resting.get_mut(&key)
                && attempt.epoch == resting.attempt.epoch
                && (attempt.cancel || (attempt.answer.is_some() && resting.attempt.answer.is_none()))
            {
                (resting.attempt.cancel, resting.attempt.answer) = (attempt.cancel, attempt.answer.clone());
                resting.wake();
            }
            if !self.newer.contains(&key) {
                self.latest.insert(key, attempt);
            }
        }
        self.parking.look(self.latest.values(), &forgiven);
    }

    fn interrupted(&mut self, actions: &mut Actions) {
        self.summary.interrupted = true;
        if !self.draining {
            self.draining = true;
            actions.emit(RunEvent::Draining);
        } else if !self.stopping {
            self.stopping = true;
            actions.emit(RunEvent::Stopping);
            for (key, running) in &mut self.running {
                running.wish = DriverSignal::Stop;
                let signal = DriverSignal::Stop;
                actions.push(Action::Signal { key: key.clone(), signal, wakes: true });
            }
        }
    }
}
