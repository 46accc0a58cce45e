//! What a run has found out not to work here: profiles whose checks can't pass, and agents that can't be started.
//!
//! Their tasks are not started, and every other task goes on.

use std::collections::HashMap;

use agency_protocols::board::ReadyTask;

use super::action::{Actions, Asked, Question};
use super::queue::RunQueue;
use crate::attempt::{Attempt, AttemptFailure, FailureKind};
use crate::run_event::{BaseCheck, RunEvent};

/// What does not work here.
#[derive(Debug, Default)]
pub(super) struct UnfitHere {
    /// What the checks of each profile came to on the base.
    profiles: HashMap<String, BaseCheck>,
    /// Agents whose sandbox could not be started, with the reason.
    agents: HashMap<String, String>,
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
    pub(super) fn learn(&mut self, attempt: &Attempt, failure: &AttemptFailure) {
        match failure.kind {
            FailureKind::Start => drop(self.agents.insert(attempt.agent.clone(), failure.reason.clone())),
            // Something that landed broke them, or this task alone did: every profile is tried anew.
            FailureKind::Checks | FailureKind::Setup => self.profiles.clear(),
            _ => {}
        }
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

    pub(super) fn base_checked(&mut self, profile: String, result: BaseCheck, actions: &mut Actions) {
        actions.emit(RunEvent::BaseChecked { profile: profile.clone(), result: result.clone() });
        self.unfit.profiles.insert(profile, result);
    }
}
