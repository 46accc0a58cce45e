//! What a run has found out not to work here: profiles whose checks can't pass, and agents that can't be started.
//!
//! Their tasks are not started, and every other task goes on. A run that watches has no end after which a person would
//! start it anew, so it tries again after a while what they may have mended.

use std::collections::HashMap;
use std::time::Duration;

use agency_protocols::board::ReadyTask;

use super::action::{Actions, Asked, Question};
use super::queue::RunQueue;
use crate::attempt::{Attempt, AttemptFailure, FailureKind};
use crate::clock::BootInstant;
use crate::run_event::{BaseCheck, RunEvent};

/// When a run that watches tries again what does not work, and how long it waits at most: each time costs a task whose
/// agent still can't be started.
const AGAIN: Duration = Duration::from_secs(10 * 60);
const RAREST: Duration = Duration::from_secs(6 * 3600);

/// What does not work here.
#[derive(Debug, Default)]
pub(super) struct UnfitHere {
    /// What the checks of each profile came to on the base.
    profiles: HashMap<String, BaseCheck>,
    /// What was said of them last.
    told: HashMap<String, BaseCheck>,
    /// Agents whose sandbox could not be started, with the reason.
    agents: HashMap<String, String>,
    /// When each was found out, and how long it stays so.
    since: HashMap<Found, (BootInstant, Duration)>,
}

/// What was found not to work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Found {
    Profile(String),
    Agent(String),
}

impl UnfitHere {
    /// Why a task is not started.
    pub(super) fn why_not(&self, start: &ReadyTask) -> Option<String> {
        let agent = start.agent.as_str();
        if let Some(why) = self.agents.get(agent) {
            return Some(format!("`{agent}` can't be started: {why}"));
        }
        // Why was said when the checks ended, once for all tasks of the profile.
        self.profiles.get(&start.profile)?.bars()?;
        Some(format!("the checks of `{}` can't pass here", start.profile))
    }

    /// An attempt failed: what does that say of the tasks after it?
    pub(super) fn learn(&mut self, attempt: &Attempt, failure: &AttemptFailure, now: BootInstant) {
        match failure.kind {
            FailureKind::Start => {
                self.agents.insert(attempt.agent.clone(), failure.reason.clone());
                self.note(Found::Agent(attempt.agent.clone()), now);
            }
            // Something that landed broke them, or this task alone did: every profile is tried anew.
            FailureKind::Checks | FailureKind::Setup => self.profiles.clear(),
            _ => {}
        }
    }

    fn note(&mut self, found: Found, now: BootInstant) {
        let before = self.since.get(&found);
        let pause = before.map_or(AGAIN, |(_, pause)| (*pause * 2).min(RAREST));
        self.since.insert(found, (now, pause));
    }

    /// Forgets what was found out long ago.
    pub(super) fn forget_old(&mut self, now: BootInstant) {
        let is_old =
            |found: Found| self.since.get(&found).is_some_and(|(since, pause)| now.since(*since) >= *pause);
        self.agents.retain(|agent, _| !is_old(Found::Agent(agent.clone())));
        self.profiles
            .retain(|profile, result| result.bars().is_none() || !is_old(Found::Profile(profile.clone())));
    }
}

impl RunQueue {
    /// Whether the checks of a task's profile have to run on the base before the task starts.
    pub(super) fn has_to_check_base(&self, start: &ReadyTask) -> bool {
        self.settings.checks_base && !self.unfit.profiles.contains_key(&start.profile)
    }

    /// Whether a task can't start before the checks that run on the base now are over. One profile is tried at a time.
    pub(super) fn waits_for_base_check(&self, start: &ReadyTask) -> bool {
        self.is_checking_base() && self.has_to_check_base(start)
    }

    pub(super) fn is_checking_base(&self) -> bool {
        self.in_flight.contains(&Asked::BaseCheck)
    }

    pub(super) fn ask_base_check(&mut self, profile: String, actions: &mut Actions) {
        self.ask(Question::CheckBase { profile }, actions);
    }

    pub(super) fn base_checked(
        &mut self,
        profile: String,
        result: BaseCheck,
        now: BootInstant,
        actions: &mut Actions,
    ) {
        if self.unfit.told.insert(profile.clone(), result.clone()).as_ref() != Some(&result) {
            actions.emit(RunEvent::BaseChecked { profile: profile.clone(), result: result.clone() });
        }
        match result.bars() {
            Some(_) => self.unfit.note(Found::Profile(profile.clone()), now),
            None => drop(self.unfit.since.remove(&Found::Profile(profile.clone()))),
        }
        self.unfit.profiles.insert(profile, result);
    }
}
