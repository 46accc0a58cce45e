//! What people are told of a run: a sentence for each thing that happens, and what is remembered of every task.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agency_supervisor::attempt::{Attempt, Phase, TaskKey, WorkResult};
use agency_supervisor::dispatch::TaskResult;
use agency_supervisor::run_event::{BaseCheck, RunEvent};

use crate::app::wording::fate_text;

/// Follows a run.
#[derive(Debug, Default)]
pub(super) struct RunProgress {
    tasks: Mutex<HashMap<TaskKey, TaskProgress>>,
}

/// What is known of a task.
#[derive(Debug, Clone)]
pub(super) struct TaskProgress {
    pub(super) agent: String,
    pub(super) title: String,
    /// The number of the last attempt.
    pub(super) attempts: u64,
    /// When the first attempt of this run began, and the last one.
    first: Instant,
    began: Instant,
    /// The time of the last event.
    last: Instant,
}

impl TaskProgress {
    /// How long this run has worked on it.
    pub(super) fn took(&self, is_open: bool) -> Duration {
        let until = if is_open { Instant::now() } else { self.last };
        until.saturating_duration_since(self.first)
    }
}

impl RunProgress {
    pub(super) fn of(&self, task: &TaskKey) -> Option<TaskProgress> {
        self.tasks().get(task).cloned()
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<TaskKey, TaskProgress>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn know(&self, attempt: &Attempt, began: Instant) {
        let mut tasks = self.tasks();
        let known = tasks.entry(attempt.task.clone()).or_insert_with(|| TaskProgress {
            agent: attempt.agent.clone(),
            title: attempt.title.clone(),
            attempts: 0,
            first: began,
            began,
            last: began,
        });
        if known.attempts != attempt.epoch.0 {
            (known.attempts, known.began) = (attempt.epoch.0, began);
        }
    }

    /// How long the last attempt has taken so far.
    fn elapsed(&self, task: &TaskKey) -> String {
        let now = Instant::now();
        let took = self.tasks().get_mut(task).map_or(Duration::ZERO, |known| {
            known.last = now;
            now.saturating_duration_since(known.began)
        });
        format!("{:.1} s", took.as_secs_f64())
    }

    /// Records an event. Returns a sentence of one line if the event deserves one, whatever text it quotes.
    pub(super) fn sentence(&self, notice: &RunEvent) -> Option<String> {
        self.wording(notice).map(|sentence| sentence.replace(['\n', '\t'], " "))
    }

    fn wording(&self, notice: &RunEvent) -> Option<String> {
        Some(match notice {
            RunEvent::Phase { attempt } => {
                self.know(attempt, Instant::now());
                let elapsed = self.elapsed(&attempt.task);
                let id = &attempt.task.id;
                match &attempt.phase {
                    Phase::Started => format!("{id} started: {} ({})", attempt.title, attempt.agent),
                    Phase::Ended(WorkResult::Work(_)) => format!("{id} reported after {elapsed}; verifying"),
                    _ => return None,
                }
            }
            RunEvent::Adopted { attempt } => {
                let age = jiff::Timestamp::now().as_second() - attempt.claimed_at;
                let age = Duration::from_secs(u64::try_from(age).unwrap_or(0));
                let now = Instant::now();
                self.know(attempt, now.checked_sub(age).unwrap_or(now));
                format!("{} taken over, attempt {}", attempt.task.id, attempt.epoch)
            }
            RunEvent::Over { task, ending, .. } => {
                let elapsed = self.elapsed(task);
                format!("{} {} ({elapsed})", task.id, fate_text(&TaskResult::Ended(ending.clone())))
            }
            RunEvent::Waits { task, why, .. } => {
                self.elapsed(task);
                format!("{} waits: {why}", task.id)
            }
            RunEvent::Again { task, seconds } => format!("{} is tried again in {seconds} s", task.id),
            RunEvent::Trouble { task, what } => match task {
                Some(task) => format!("{}: {what}", task.id),
                None => what.clone(),
            },
            RunEvent::CheckingBase { profile } => {
                format!("running the checks of `{profile}` on the branch before the first agent starts")
            }
            RunEvent::BaseChecked { profile, result } => return base_check(profile, result),
            RunEvent::Draining => "draining: started tasks will finish; Ctrl-C now stops them".to_owned(),
            RunEvent::Stopping => "stopping what runs".to_owned(),
            RunEvent::Paused => "paused; `agency resume` goes on".to_owned(),
            RunEvent::Resumed => "going on".to_owned(),
            RunEvent::Standing(_) => return None,
        })
    }
}

/// What the checks of a profile came to on the branch; nothing where they passed.
fn base_check(profile: &str, result: &BaseCheck) -> Option<String> {
    let at = |log: &Option<PathBuf>| {
        log.as_ref().map_or_else(String::new, |log| format!(" (log: {})", log.display()))
    };
    Some(match result {
        BaseCheck::Passed => return None,
        BaseCheck::Failing { what, log } => {
            format!("the checks of `{profile}` fail on the branch as it is: {what}{}", at(log))
        }
        BaseCheck::Unfit { why, log, hint } => {
            let hint = hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
            format!("tasks of the profile `{profile}` don't start: {why}{}{hint}", at(log))
        }
        BaseCheck::Untried { why } => {
            format!("the checks of `{profile}` could not be tried on the branch: {why}")
        }
    })
}
