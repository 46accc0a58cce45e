//! What follows for an attempt that has come to rest: it is over, or it is taken up again later.

use std::time::Duration;

use super::action::{
    AbandonOutcome, Action, Actions, DriveFault, Moment, Question, SettlingFacts, SettlingNeeds,
};
use super::backoff;
use super::queue::{RunQueue, RunningAttempt, TRY_EVERY};
use super::summary::TaskResult;
use crate::attempt::{Attempt, AttemptEnd, ParkDetails, TaskKey};
use crate::clock::BootInstant;
use crate::driver::park_policy::LONGEST;
use crate::driver::{FaultDomain, OutcomeSoFar};
use crate::run_event::RunEvent;

/// Those that wait are tried at least this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often an attempt that can't be taken further is taken up again.
const TROUBLES: u32 = 3;

/// An attempt that rests until something changes.
#[derive(Debug)]
pub(super) struct WaitingAttempt {
    pub(super) attempt: Attempt,
    pub(super) rest: Rest,
}

/// Why an attempt rests, and until when.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    pub(super) why: String,
    /// Something of theirs is in the way.
    pub(super) for_a_person: bool,
    /// Its auditor can't work before that.
    pub(super) put_off: bool,
    pub(super) again_at: BootInstant,
}

impl WaitingAttempt {
    /// What it rested for is there.
    pub(super) fn wake(&mut self) {
        (self.rest.again_at, self.rest.for_a_person) = (BootInstant(0), false);
    }
}

/// An attempt whose driver came to its end, and of which something is asked before that counts.
#[derive(Debug)]
pub(super) enum Settling {
    /// It is re-read before it rests; `tell` once the store keeps what it waits for. `is_stale`: the store changed
    /// since it was asked for.
    Resting { rest: Rest, tell: Option<RunEvent>, is_stale: bool },
    /// It is over, and not accounted for yet.
    Ending { attempt: Attempt, ending: AttemptEnd },
    /// It is brought to its end.
    Abandoned,
}

impl Settling {
    pub(super) fn resting(rest: Rest, tell: Option<RunEvent>) -> Self {
        Self::Resting { rest, tell, is_stale: false }
    }

    /// The store has news, of which an answer that is on its way may know nothing.
    pub(super) fn store_changed(&mut self) {
        if let Self::Resting { is_stale, .. } = self {
            *is_stale = true;
        }
    }

    /// Whether nothing is chosen before the answer. To abandon an attempt may take as long as its sandbox lives on.
    pub(super) fn has_to_be_known(&self) -> bool {
        !matches!(self, Self::Abandoned)
    }
}

impl RunQueue {
    /// A driver came to its end.
    pub(super) fn rested(
        &mut self,
        key: TaskKey,
        rest: Result<OutcomeSoFar, DriveFault>,
        now: Moment,
        actions: &mut Actions,
    ) {
        let Some(RunningAttempt { attempt, .. }) = self.running.remove(&key) else { return };
        self.board_changed();
        match rest {
            Ok(OutcomeSoFar::Over(ending)) => {
                if !matches!(ending, AttemptEnd::Lost { .. }) {
                    self.lacks_nothing(actions);
                }
                self.over(attempt, ending, now, actions);
            }
            Ok(OutcomeSoFar::Waits(why)) => self.waits_for_a_person(&attempt, why, now, actions),
            Ok(OutcomeSoFar::Parked(parked)) => self.is_put_off(&attempt, &parked, now, actions),
            Ok(OutcomeSoFar::Interrupted) => {
                self.summary.tasks.insert(key.clone(), TaskResult::Open);
                self.given_up.insert(key);
            }
            Err(DriveFault { blame: FaultDomain::Successor, .. }) => {
                // What it waited for is the other's to tell, and news if it comes back.
                if let Some(TaskResult::Waits(_)) = self.summary.tasks.get(&key) {
                    self.summary.tasks.remove(&key);
                }
                self.taken.insert(key);
            }
            Err(fault) => self.trouble(key, fault, now, actions),
        }
    }

    fn waits_for_a_person(&mut self, attempt: &Attempt, why: String, now: Moment, actions: &mut Actions) {
        let key = attempt.task.clone();
        let told = self.summary.tasks.insert(key.clone(), TaskResult::Waits(why.clone()));
        let again = told.as_ref() == Some(&TaskResult::Waits(why.clone()));
        // Each try may mean another proof, so it is not tried all the time.
        let pause = match (again, self.patience.get(&key)) {
            (true, Some(pause)) => (*pause * 2).min(LONGEST_PAUSE),
            _ => TRY_EVERY,
        };
        self.patience.insert(key, pause);
        let rest = Rest { why, for_a_person: true, put_off: false, again_at: now.boot + pause };
        self.rest_after_note(attempt, rest, !again, actions);
    }

    fn is_put_off(&mut self, attempt: &Attempt, parked: &ParkDetails, now: Moment, actions: &mut Actions) {
        let why = format!("its auditor can't work: {}", parked.reason);
        self.summary.tasks.insert(attempt.task.clone(), TaskResult::Waits(why.clone()));
        let left = parked.until.map_or(0, |until| until - now.wall).clamp(1, LONGEST);
        let again_at = now.boot + Duration::from_secs(left.unsigned_abs());
        let rest = Rest { why, for_a_person: false, put_off: true, again_at };
        self.rest_after_note(attempt, rest, true, actions);
    }

    /// The store keeps what an attempt waits for, if that is news; then the attempt is re-read, and rests.
    fn rest_after_note(&mut self, attempt: &Attempt, rest: Rest, is_news: bool, actions: &mut Actions) {
        let (key, why) = (attempt.task.clone(), rest.why.clone());
        let text = format!("waits: {why}");
        let tell = is_news.then(|| RunEvent::Waits { task: key.clone(), attempt: attempt.epoch.0, why });
        self.settling.insert(key.clone(), Settling::resting(rest, tell));
        match attempt.lease().filter(|_| is_news) {
            Some(lease) => self.ask(Question::NoteWaiting { lease, text }, actions),
            None => self.waiting_noted(&key, actions),
        }
    }

    /// What an attempt waits for is written down: people are told, and the attempt is re-read.
    pub(super) fn waiting_noted(&mut self, key: &TaskKey, actions: &mut Actions) {
        if let Some(Settling::Resting { tell, .. }) = self.settling.get_mut(key) {
            tell.take().into_iter().for_each(|event| actions.emit(event));
        }
        self.ask(Question::Reread { key: key.clone() }, actions);
    }

    /// An attempt was re-read, and rests if it is still ours.
    pub(super) fn rests(&mut self, key: TaskKey, attempt: Option<Box<Attempt>>, actions: &mut Actions) {
        if let Some(Settling::Resting { is_stale, .. }) = self.settling.get_mut(&key)
            && std::mem::take(is_stale)
        {
            return self.ask(Question::Reread { key }, actions);
        }
        self.unread.remove(&key);
        if let (Some(Settling::Resting { rest, .. }), Some(attempt)) = (self.settling.remove(&key), attempt) {
            self.resting.insert(key, WaitingAttempt { attempt: *attempt, rest });
        }
    }

    /// An attempt is over. What has to be known of it is asked before it is accounted for.
    fn over(&mut self, attempt: Attempt, ending: AttemptEnd, now: Moment, actions: &mut Actions) {
        let key = attempt.task.clone();
        let is_lost = matches!(ending, AttemptEnd::Lost { .. });
        if !is_lost {
            self.troubles.remove(&key);
        }
        let needs = SettlingNeeds {
            wanted: is_lost,
            failures: matches!(ending, AttemptEnd::Failed { .. }),
            spent: !self.settings.budget.run.is_boundless(),
        };
        self.settling.insert(key.clone(), Settling::Ending { attempt: attempt.clone(), ending });
        if needs.any() {
            self.ask(Question::Settle { attempt: Box::new(attempt), needs }, actions);
        } else {
            let facts = SettlingFacts { wanted: true, failures: 0, spent: Default::default() };
            self.settled(key, &facts, now, actions);
        }
    }

    /// An attempt that is over is accounted for.
    pub(super) fn settled(
        &mut self,
        key: TaskKey,
        facts: &SettlingFacts,
        now: Moment,
        actions: &mut Actions,
    ) {
        let Some(Settling::Ending { attempt, ending }) = self.settling.remove(&key) else { return };
        // Another claimer was faster, here or elsewhere: it is nothing that this run has left undone.
        if !facts.wanted {
            self.summary.tasks.remove(&key);
            return;
        }
        match &ending {
            AttemptEnd::Lost { .. } | AttemptEnd::Canceled | AttemptEnd::Parked(_) => {}
            _ => self.parking.worked(&attempt.agent),
        }
        match &ending {
            AttemptEnd::Parked(parked) => {
                // It does not count, for the run neither.
                self.begun.remove(&(key.clone(), attempt.epoch));
                self.parking.park(attempt.clone(), parked);
            }
            AttemptEnd::Failed { failure, given_up } => {
                let pause = backoff::pause(self.settings.backoff, facts.failures, &key, attempt.epoch);
                self.not_before.insert(key.clone(), now.boot + pause);
                if given_up.is_none() {
                    actions.emit(RunEvent::Again { task: key.clone(), seconds: pause.as_secs() });
                }
                self.unfit.learn(&attempt, failure, now.boot);
            }
            AttemptEnd::Lost { .. } => {
                let count = self.troubles.entry(key.clone()).or_default();
                *count += 1;
                match *count >= TROUBLES {
                    true => drop(self.given_up.insert(key.clone())),
                    false => {
                        let pause = Duration::from_millis(500) * *count;
                        self.not_before.insert(key.clone(), now.boot + pause);
                    }
                }
            }
            AttemptEnd::Done { .. }
            | AttemptEnd::Kept { .. }
            | AttemptEnd::Blocked { .. }
            | AttemptEnd::Canceled => {}
        }
        self.used += facts.spent;
        self.summary.tasks.insert(key, TaskResult::Ended(ending));
    }

    /// Something went wrong that is not the work's fault. The attempt stays open, and is taken up again a few times;
    /// then it ends alone, unless the run itself is in trouble.
    fn trouble(&mut self, key: TaskKey, fault: DriveFault, now: Moment, actions: &mut Actions) {
        let DriveFault { blame, what } = fault;
        if blame == FaultDomain::Host {
            return self.met_host_fault(key, what, now, actions);
        }
        actions.emit(RunEvent::Trouble { task: Some(key.clone()), what: what.clone() });
        let count = self.troubles.entry(key.clone()).or_default();
        *count += 1;
        let pause = Duration::from_millis(500) * *count;
        if *count < TROUBLES {
            let again_at = now.boot + pause;
            let rest = Rest { why: what, for_a_person: false, put_off: false, again_at };
            self.settling.insert(key.clone(), Settling::resting(rest, None));
            return self.ask(Question::Reread { key }, actions);
        }
        match blame {
            FaultDomain::Task | FaultDomain::Attempt => self.abandon(key, blame, what, actions),
            FaultDomain::Run | FaultDomain::Host | FaultDomain::Successor => {
                self.draining = true;
                self.leave_open(key, what);
            }
        }
    }

    /// The attempt can't be taken further: it ends, with its reason. Where not even that can be done, it stays open, and
    /// the next run tries.
    pub(super) fn abandon(&mut self, key: TaskKey, blame: FaultDomain, why: String, actions: &mut Actions) {
        self.settling.insert(key.clone(), Settling::Abandoned);
        self.ask(Question::Abandon { key, blame, why }, actions);
    }

    pub(super) fn abandoned(
        &mut self,
        key: TaskKey,
        outcome: AbandonOutcome,
        now: Moment,
        actions: &mut Actions,
    ) {
        self.settling.remove(&key);
        self.board_changed();
        match outcome {
            AbandonOutcome::NotOurs => {}
            AbandonOutcome::Over { attempt, ending } => self.over(*attempt, ending, now, actions),
            AbandonOutcome::Fenced => {
                self.taken.insert(key);
            }
            AbandonOutcome::Failed(what) => self.leave_open(key, what),
        }
    }

    fn leave_open(&mut self, key: TaskKey, what: String) {
        self.summary.tasks.insert(key.clone(), TaskResult::Open);
        self.summary.troubles.push(format!("{key}: {what}"));
        self.given_up.insert(key);
    }

    /// Whether something rests that is tried again without a user's help.
    pub(super) fn has_troubles_to_try(&self) -> bool {
        // A run that ends does not wait for hours, and one without time does not wait for what the machine lacks.
        let lacking = self.used_up && self.lack.is_some();
        let left =
            |one: &WaitingAttempt| one.rest.for_a_person || (one.rest.put_off && self.draining) || lacking;
        !self.stopping && !self.resting.values().all(left)
    }

    /// Takes up what rests, when it is time.
    pub(super) fn try_again(&mut self, now: BootInstant, actions: &mut Actions) {
        // A person is waited for only while there is something else to do: what waits for a person itself is nothing
        // else, or several such attempts would keep each other waiting.
        let something_runs =
            self.wishes.watch || self.running.keys().any(|key| !self.patience.contains_key(key));
        let due = self
            .resting
            .iter()
            .filter(|(_, one)| one.rest.again_at <= now && (something_runs || !one.rest.for_a_person));
        let due: Vec<TaskKey> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            if self.running.len() >= self.limits.total {
                return;
            }
            if let Some(WaitingAttempt { attempt, .. }) = self.resting.remove(&key) {
                actions.push(Action::Rejoin(attempt.clone()));
                self.drive(attempt, actions);
            }
        }
    }
}
