//! What people are told of a run: a sentence for each thing that happens, and what is remembered of every task.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agency_supervisor::attempt::{Attempt, Ended, Ending, Parked, Phase, TaskKey};
use agency_supervisor::dispatch::Fate;
use agency_supervisor::notice::Notice;

use crate::units;

/// Listens to a run.
#[derive(Debug, Default)]
pub(super) struct Progress {
    tasks: Mutex<HashMap<TaskKey, Known>>,
}

/// What was heard of a task.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) agent: String,
    /// The number of the last attempt.
    pub(super) attempts: u64,
    /// When the first attempt of this run began, and the last one.
    first: Instant,
    began: Instant,
    /// When something was last heard.
    last: Instant,
}

impl Known {
    /// How long this run was at it, or is.
    pub(super) fn took(&self, is_open: bool) -> Duration {
        let until = if is_open { Instant::now() } else { self.last };
        until.saturating_duration_since(self.first)
    }
}

impl Progress {
    pub(super) fn of(&self, task: &TaskKey) -> Option<Known> {
        self.tasks().get(task).cloned()
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<TaskKey, Known>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn know(&self, attempt: &Attempt, began: Instant) {
        let mut tasks = self.tasks();
        let known = tasks.entry(attempt.task.clone()).or_insert_with(|| Known {
            agent: attempt.agent.clone(),
            attempts: 0,
            first: began,
            began,
            last: began,
        });
        if known.attempts != attempt.epoch.0 {
            (known.attempts, known.began) = (attempt.epoch.0, began);
        }
    }

    /// How long its last attempt has taken up to now.
    fn elapsed(&self, task: &TaskKey) -> String {
        let now = Instant::now();
        let took = self.tasks().get_mut(task).map_or(Duration::ZERO, |known| {
            known.last = now;
            now.saturating_duration_since(known.began)
        });
        format!("{:.1} s", took.as_secs_f64())
    }

    /// Takes note of what happens; the sentence, where it is worth one. It is one line, whoever is quoted in it.
    pub(super) fn sentence(&self, notice: &Notice) -> Option<String> {
        self.wording(notice).map(|sentence| sentence.replace(['\n', '\t'], " "))
    }

    fn wording(&self, notice: &Notice) -> Option<String> {
        Some(match notice {
            Notice::Phase { attempt } => {
                self.know(attempt, Instant::now());
                let elapsed = self.elapsed(&attempt.task);
                let id = &attempt.task.id;
                match &attempt.phase {
                    Phase::Started => format!("{id} started: {} ({})", attempt.title, attempt.agent),
                    Phase::Ended(Ended::Work(_)) => format!("{id} reported after {elapsed}; verifying"),
                    _ => return None,
                }
            }
            Notice::Adopted { attempt } => {
                let age = jiff::Timestamp::now().as_second() - attempt.claimed_at;
                let age = Duration::from_secs(u64::try_from(age).unwrap_or(0));
                let now = Instant::now();
                self.know(attempt, now.checked_sub(age).unwrap_or(now));
                format!("{} taken over, attempt {}", attempt.task.id, attempt.epoch)
            }
            Notice::Over { task, ending, .. } => {
                let elapsed = self.elapsed(task);
                format!("{} {} ({elapsed})", task.id, described(&Fate::Ended(ending.clone())))
            }
            Notice::Waits { task, why, .. } => {
                self.elapsed(task);
                format!("{} waits: {why}", task.id)
            }
            Notice::Again { task, seconds } => format!("{} is tried again in {seconds} s", task.id),
            Notice::Trouble { task, what } => match task {
                Some(task) => format!("{}: {what}", task.id),
                None => what.clone(),
            },
            Notice::Draining => "nothing new is started; what runs comes to its end".to_owned(),
            Notice::Stopping => "stopping what runs".to_owned(),
            Notice::Paused => "paused; `agency resume` goes on".to_owned(),
            Notice::Resumed => "going on".to_owned(),
            Notice::Standing(_) => return None,
        })
    }
}

/// What became of a task, after its name.
pub(super) fn described(fate: &Fate) -> String {
    match fate {
        Fate::Ended(Ending::Done { commit }) => format!("done, {}", short(commit)),
        Fate::Ended(Ending::Kept { candidate }) => format!("verified and kept, {}", short(candidate)),
        Fate::Ended(Ending::Blocked { reason }) => format!("blocked: {reason}"),
        Fate::Ended(Ending::Failed { failure, given_up }) => {
            format!("failed: {}{}", failure.reason, given_up.as_deref().unwrap_or_default())
        }
        Fate::Ended(Ending::Lost { reason }) => format!("lost: {reason}"),
        Fate::Ended(Ending::Parked(parked)) => put_off(parked),
        Fate::Ended(Ending::Canceled) => "canceled".to_owned(),
        Fate::Waits(why) => format!("waits: {why}"),
        Fate::Open => "is still open; `agency run` takes it up again".to_owned(),
    }
}

/// An attempt that does not count, because its agent could not work.
fn put_off(parked: &Parked) -> String {
    match parked.until {
        Some(until) => format!("put off until {}: {}", units::moment(until), parked.reason),
        None => format!("put off: {}", parked.reason),
    }
}

/// A commit as people name it.
pub(super) fn short(commit: &str) -> &str {
    &commit[..commit.len().min(12)]
}
