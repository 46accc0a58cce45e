//! What the board offers and this run does not start, with the reason: no agent here would do it, or nothing is left
//! to do it with.

use agency_protocols::board::ReadyTask;

use super::action::Actions;
use super::queue::RunQueue;
use crate::attempt::{TaskKey, UsageTotals};
use crate::clock::BootInstant;
use crate::run_event::RunEvent;
use crate::settings::RunSettings;

/// Why a task is not started, even with room for it.
pub fn reason_not_started(start: &ReadyTask, settings: &RunSettings) -> Option<String> {
    let name = start.agent.as_str();
    if settings.auditor.as_deref() == Some(name) {
        return Some(format!("it is built by {name}, who audits, and no agent audits its own work"));
    }
    if settings.is_review(start) {
        return None;
    }
    match settings.agents.get(name) {
        Some(agent) if agent.outside => Some(format!("{name} works outside; its report is waited for")),
        Some(_) => None,
        None => Some(match settings.unusable.get(name) {
            Some(why) => why.clone(),
            None => format!("no agent `{name}` is configured"),
        }),
    }
}

impl RunQueue {
    pub(super) fn barred(&self) -> Vec<(TaskKey, String)> {
        let barred = |start: &ReadyTask| {
            let agent = start.agent.as_str();
            let away = || self.parking.why_not(agent).filter(|_| !self.settings.is_review(start));
            let unfit = || self.unfit.why_not(start);
            let why = reason_not_started(start, &self.settings).or_else(unfit).or_else(away)?;
            let key = self.key(start.task.as_str());
            (!self.running.contains_key(&key)).then_some((key, why))
        };
        self.agenda.ready.iter().filter_map(barred).collect()
    }

    /// What this run has used up, if it has. Its time goes by even if no agent works.
    pub(super) fn what_the_run_used_up(&self, now: BootInstant) -> Option<String> {
        let gone = self.elapsed(now).as_millis();
        let used = UsageTotals { time_ms: u64::try_from(gone).unwrap_or(u64::MAX), ..self.used };
        self.settings.budget.run.used_up(&used, self.begun.len() as u64)
    }

    /// Nothing new is started from here on.
    pub(super) fn end_for_want(&mut self, used: &str, actions: &mut Actions) {
        let what = format!("the budget of this run is used up: {used}");
        (self.draining, self.used_up) = (true, true);
        actions.emit(RunEvent::Trouble { task: None, what: what.clone() });
        self.summary.troubles.push(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AgentSettings;
    use agency_protocols::board::{TaskRole, TaskScope};
    use agency_protocols::names::{AgentName, TaskId};

    fn start(agent: &str, role: TaskRole) -> ReadyTask {
        ReadyTask {
            task: TaskId::parse("T0001").expect("an id"),
            title: "x".into(),
            role,
            agent: AgentName::parse(agent).expect("a name"),
            file: "f".into(),
            scope: TaskScope::default(),
            profile: "auto".into(),
            urgency: 0,
            handed_in: false,
            may_change_nothing: false,
            branch: None,
        }
    }

    #[test]
    fn nobody_judges_their_own_work_and_nobody_starts_who_is_not_here() {
        let mut settings = crate::settings::tests::settings();
        settings.auditor = Some("gemini".into());
        settings.agents.insert("codex".into(), AgentSettings::default());
        settings.agents.insert("gemini".into(), AgentSettings::default());
        settings.agents.insert("ann".into(), AgentSettings { outside: true, ..AgentSettings::default() });
        for (agent, role, why) in [
            ("codex", TaskRole::Builder, None),
            ("codex", TaskRole::Reviewer, None),
            ("ann", TaskRole::Reviewer, None),
            ("nobody", TaskRole::Reviewer, None),
            ("gemini", TaskRole::Builder, Some("audits its own work")),
            ("gemini", TaskRole::Reviewer, Some("audits its own work")),
            ("ann", TaskRole::Builder, Some("works outside")),
            ("nobody", TaskRole::Builder, Some("is configured")),
        ] {
            let said = reason_not_started(&start(agent, role), &settings);
            let handed_in = ReadyTask { handed_in: true, ..start(agent, role) };
            let ours = ["codex", "gemini"].contains(&agent);
            assert_eq!(
                settings.is_review(&handed_in),
                role == TaskRole::Reviewer || !ours,
                "{agent} {role:?}"
            );
            match why {
                None => assert_eq!(said, None, "{agent} {role:?}"),
                Some(why) => {
                    assert!(said.as_ref().is_some_and(|said| said.contains(why)), "{agent}: {said:?}");
                }
            }
        }
    }
}
