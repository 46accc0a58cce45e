//! What becomes of an attempt that has come to rest: it is over, or it is taken up again later.

use std::time::Duration;

use super::summary::Fate;
use super::{Dispatcher, RunError, Running, TRY_EVERY, backoff};
use crate::attempt::{Attempt, Ending, FailureKind, Spent, TaskKey};
use crate::causes;
use crate::clock::{self, BootClock, Clock, Instant};
use crate::life::parking::LONGEST;
use crate::life::{self, Blame, LifeError, Rest};
use crate::notice::Notice;
use crate::store::Store;

/// Those that wait are tried at least this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often an attempt that can't be taken further is taken up again.
const TROUBLES: u32 = 3;

/// An attempt that rests until something changes.
#[derive(Debug)]
pub(super) struct Resting {
    pub(super) attempt: Attempt,
    pub(super) why: String,
    /// Something of theirs is in the way.
    pub(super) for_a_person: bool,
    /// Its auditor can't work before that.
    pub(super) put_off: bool,
    pub(super) again_at: Instant,
}

impl Resting {
    /// What it rested for is there.
    pub(super) fn wake(&mut self) {
        (self.again_at, self.for_a_person) = (Instant(0), false);
    }
}

impl<S: Store> Dispatcher<S> {
    /// An attempt has come to rest.
    pub(super) async fn rested(
        &mut self,
        key: TaskKey,
        rest: Result<Rest, LifeError>,
    ) -> Result<(), RunError> {
        let Some(Running { attempt, .. }) = self.running.remove(&key) else { return Ok(()) };
        self.read_at = None;
        match rest {
            Ok(Rest::Over(ending)) => {
                if !matches!(ending, Ending::Lost { .. }) {
                    self.lacks_nothing();
                }
                self.over(key, attempt, ending).await?;
            }
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
                    self.resting
                        .insert(key, Resting { attempt, why, for_a_person: true, put_off: false, again_at });
                }
            }
            Ok(Rest::Parked(parked)) => {
                let why = format!("its auditor can't work: {}", parked.reason);
                self.waits(&attempt, &why).await?;
                self.summary.tasks.insert(key.clone(), Fate::Waits(why.clone()));
                let left = parked.until.map_or(0, |until| until - clock::wall()).clamp(1, LONGEST);
                let again_at = BootClock.now() + Duration::from_secs(left.unsigned_abs());
                if let Some(attempt) = self.reread(&key).await? {
                    let resting = Resting { attempt, why, for_a_person: false, put_off: true, again_at };
                    self.resting.insert(key, resting);
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
        // Somebody else was faster, here or elsewhere: it is nothing that this run has left undone.
        if matches!(ending, Ending::Lost { .. }) && !self.shop.is_wanted(&key).await? {
            self.summary.tasks.remove(&key);
            return Ok(());
        }
        match &ending {
            Ending::Lost { .. } | Ending::Canceled | Ending::Parked(_) => {}
            _ => self.parking.worked(&attempt.agent),
        }
        match &ending {
            Ending::Parked(parked) => {
                // It does not count, for the run neither.
                self.begun.remove(&(key.clone(), attempt.epoch));
                self.parking.park(attempt.clone(), parked);
            }
            Ending::Failed { failure, given_up } => {
                let failures = self.shop.store.failures(&key).await?;
                let pause = backoff::pause(self.shop.settings.backoff, failures, &key, attempt.epoch);
                self.not_before.insert(key.clone(), BootClock.now() + pause);
                if given_up.is_none() {
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
        if !self.shop.settings.budget.run.is_boundless() {
            let attempts = self.shop.store.attempts(&key).await?;
            let over = attempts.iter().filter(|one| one.epoch == attempt.epoch);
            let spent: Spent = over.map(|one| one.spent).sum();
            let impossible = life::impossible(&self.shop.records(&attempt));
            self.used += self.shop.settings.budget.counts_for_the_run(spent, impossible);
        }
        self.summary.tasks.insert(key, Fate::Ended(ending));
        Ok(())
    }

    /// Something went wrong that is nobody's work. The attempt stays open, and is taken up again a few times; then it
    /// ends alone, unless the run itself is in trouble.
    async fn trouble(&mut self, key: TaskKey, error: &LifeError) -> Result<(), RunError> {
        let what = causes::on_one_line(error);
        let blame = error.blame(&self.shop.settings.state);
        if blame == Blame::Host {
            return self.met_host_fault(key, what).await;
        }
        self.shop.teller.tell(&Notice::Trouble { task: Some(key.clone()), what: what.clone() });
        let count = self.troubles.entry(key.clone()).or_default();
        *count += 1;
        let pause = Duration::from_millis(500) * *count;
        if *count >= TROUBLES {
            return match blame {
                Blame::Task | Blame::Attempt => self.set_aside(key, blame, what).await,
                Blame::Run | Blame::Host | Blame::Successor => {
                    self.draining = true;
                    self.leave_open(key, what);
                    Ok(())
                }
            };
        } else if let Some(attempt) = self.reread(&key).await? {
            let again_at = BootClock.now() + pause;
            self.resting
                .insert(key, Resting { attempt, why: what, for_a_person: false, put_off: false, again_at });
        }
        Ok(())
    }

    /// The attempt can't be taken further: it ends, with its reason. Where not even that can be done, it stays open, and
    /// the next run tries.
    pub(super) async fn set_aside(
        &mut self,
        key: TaskKey,
        blame: Blame,
        why: String,
    ) -> Result<(), RunError> {
        let Some(attempt) = self.reread(&key).await? else { return Ok(()) };
        match self.shop.set_aside(attempt.clone(), blame, why.clone()).await {
            Ok(ending) => self.over(key, attempt, ending).await,
            Err(error) if error.is_fenced() => {
                self.taken.insert(key);
                Ok(())
            }
            Err(error) => {
                self.leave_open(
                    key,
                    format!("{why}; it can't be set aside: {}", causes::on_one_line(&error)),
                );
                Ok(())
            }
        }
    }

    fn leave_open(&mut self, key: TaskKey, what: String) {
        self.summary.tasks.insert(key.clone(), Fate::Open);
        self.summary.troubles.push(format!("{key}: {what}"));
        self.given_up.insert(key);
    }

    /// An attempt as the store has it, if it is still ours.
    pub(super) async fn reread(&self, key: &TaskKey) -> Result<Option<Attempt>, RunError> {
        let attempts = self.shop.store.attempts(key).await?;
        let ours = |attempt: &Attempt| attempt.held.is_some_and(|held| held.term == self.shop.term);
        Ok(attempts.into_iter().next_back().filter(ours))
    }

    /// Whether something rests that is tried again without anybody's doing.
    pub(super) fn has_troubles_to_try(&self) -> bool {
        // Whoever ends does not wait for hours, and a run without time does not wait for what the machine lacks.
        let lacking = self.used_up && self.lack.is_some();
        let left = |one: &Resting| one.for_a_person || (one.put_off && self.draining) || lacking;
        !self.stopping && !self.resting.values().all(left)
    }

    /// Takes up what rests, when it is time.
    pub(super) fn try_again(&mut self, now: Instant) {
        // A person is waited for only while there is something else to do: what waits for a person itself is nothing
        // else, or several such attempts would keep each other waiting.
        let something_runs =
            self.wishes.watch || self.running.keys().any(|key| !self.patience.contains_key(key));
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
                self.live(attempt, None);
            }
        }
    }
}
