//! What the board offers and this run does not start, with the reason: nobody here would do it, or nothing is left
//! to do it with.

use agency_protocols::board::{Role, Start};

use super::{Dispatcher, RunError};
use crate::attempt::{Spent, TaskKey};
use crate::clock::Instant;
use crate::notice::Notice;
use crate::settings::Settings;
use crate::store::Store;

/// Whether a start is about work that was done elsewhere. A report that lies about for one of our own builders is no
/// reason not to start it.
pub(crate) fn is_review(start: &Start, settings: &Settings) -> bool {
    let ours = settings.agents.get(start.agent.as_str()).is_some_and(|agent| !agent.outside);
    start.role == Role::Reviewer || (start.handed_in && !ours)
}

/// Why a task is not started, whatever room there is.
pub fn why_not(start: &Start, settings: &Settings) -> Option<String> {
    let name = start.agent.as_str();
    if settings.auditor.as_deref() == Some(name) {
        return Some(format!("it is built by {name}, who audits, and nobody judges their own work"));
    }
    if is_review(start, settings) {
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

impl<S: Store> Dispatcher<S> {
    pub(super) fn barred(&self) -> Vec<(TaskKey, String)> {
        let barred = |start: &Start| {
            let agent = start.agent.as_str();
            let away = || self.parking.why_not(agent).filter(|_| !is_review(start, &self.shop.settings));
            let why = why_not(start, &self.shop.settings).or_else(away)?;
            let key = self.key(start.task.as_str());
            (!self.running.contains_key(&key)).then_some((key, why))
        };
        self.agenda.ready.iter().filter_map(barred).collect()
    }

    /// What a task has used up, if it has.
    pub(super) async fn what_the_task_used_up(&self, key: &TaskKey) -> Result<Option<String>, RunError> {
        let allowed = &self.shop.settings.budget.task;
        if allowed.is_boundless() {
            return Ok(None);
        }
        let used = allowed.used_up(&self.shop.store.spent(key).await?, 0);
        Ok(used.map(|used| format!("its budget is used up: {used}")))
    }

    /// What this run has used up, if it has. Its time goes by whether somebody works or not.
    pub(super) fn what_the_run_used_up(&self, now: Instant) -> Option<String> {
        let gone = now.since(self.shop.began).as_millis();
        let used = Spent { time_ms: u64::try_from(gone).unwrap_or(u64::MAX), ..self.used };
        self.shop.settings.budget.run.used_up(&used, self.begun.len() as u64)
    }

    /// Nothing new is started from here on.
    pub(super) fn end_for_want(&mut self, used: &str) {
        let what = format!("the budget of this run is used up: {used}");
        (self.draining, self.used_up) = (true, true);
        self.shop.teller.tell(&Notice::Trouble { task: None, what: what.clone() });
        self.summary.troubles.push(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Agent;
    use agency_protocols::board::Scope;
    use agency_protocols::names::{AgentName, TaskId};

    fn start(agent: &str, role: Role) -> Start {
        Start {
            task: TaskId::parse("T0001").expect("an id"),
            title: "x".into(),
            role,
            agent: AgentName::parse(agent).expect("a name"),
            file: "f".into(),
            scope: Scope::default(),
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
        settings.agents.insert("codex".into(), Agent::default());
        settings.agents.insert("gemini".into(), Agent::default());
        settings.agents.insert("ann".into(), Agent { outside: true, ..Agent::default() });
        for (agent, role, why) in [
            ("codex", Role::Builder, None),
            ("codex", Role::Reviewer, None),
            ("ann", Role::Reviewer, None),
            ("nobody", Role::Reviewer, None),
            ("gemini", Role::Builder, Some("judges their own")),
            ("gemini", Role::Reviewer, Some("judges their own")),
            ("ann", Role::Builder, Some("works outside")),
            ("nobody", Role::Builder, Some("is configured")),
        ] {
            let said = why_not(&start(agent, role), &settings);
            let handed_in = Start { handed_in: true, ..start(agent, role) };
            let ours = ["codex", "gemini"].contains(&agent);
            assert_eq!(is_review(&handed_in, &settings), role == Role::Reviewer || !ours, "{agent} {role:?}");
            match why {
                None => assert_eq!(said, None, "{agent} {role:?}"),
                Some(why) => {
                    assert!(said.as_ref().is_some_and(|said| said.contains(why)), "{agent}: {said:?}");
                }
            }
        }
    }
}
