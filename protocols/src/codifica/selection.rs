//! §5.1: selects the tasks that may be worked on now, with their agents, and says why the others wait.

use std::collections::HashMap;

use jiff::Timestamp;

use super::block::TaskBlock;
use super::dependencies::DependencyStates;
use super::task::TaskState;
use super::task::{Task, TaskOwner, TaskType};
use super::{Codifica, ListedTask, StateListing, notes};
use crate::names::{AgentName, TaskId};
use crate::text::bounds::truncate;
use crate::text::one_line;

/// The result of a selection.
#[derive(Debug, Default)]
pub struct TaskSelection<'l> {
    /// The tasks that may be worked on, in order.
    pub ready: Vec<(&'l ListedTask, AgentName)>,
    pub waiting: Vec<(&'l ListedTask, String)>,
    /// Of those that wait, the tasks of agents that were silent for too long (§8.1.1).
    pub stale: Vec<&'l ListedTask>,
    /// Tasks that our own attempts have moved to be tested, with what is known of them.
    pub reported: Vec<(&'l ListedTask, String)>,
    /// Tasks that other clones have, with what can be done about them.
    pub elsewhere: Vec<(&'l ListedTask, String)>,
}

/// Whether one task is available.
enum TaskAvailability {
    /// Already ours, to be continued.
    Resumed(AgentName),
    Free(AgentName),
    Reported(String),
    Waits(String),
    /// Waits until a person reclaims it.
    Stale(String),
    /// Claimed by another, who is heard of.
    Elsewhere(String),
    Finished,
}

impl Codifica {
    pub fn select<'l>(&self, listing: &'l StateListing, now: Timestamp) -> TaskSelection<'l> {
        let known = DependencyStates::of(listing);
        let mut selection = TaskSelection::default();
        let (mut resumed, mut free) = (Vec::new(), Vec::new());
        let mut held: HashMap<&AgentName, usize> = HashMap::new();
        for listed in &listing.tasks {
            if let (TaskState::InProgress, TaskOwner::Agent(agent)) = (listed.task.state, &listed.task.owner)
            {
                *held.entry(agent).or_default() += 1;
            }
            match self.availability(listing, listed, &known, now) {
                TaskAvailability::Resumed(agent) => resumed.push((listed, agent)),
                TaskAvailability::Free(agent) => free.push((listed, agent)),
                TaskAvailability::Reported(why) => selection.reported.push((listed, why)),
                TaskAvailability::Waits(why) => selection.waiting.push((listed, why)),
                TaskAvailability::Stale(why) => {
                    selection.stale.push(listed);
                    selection.waiting.push((listed, why));
                }
                TaskAvailability::Elsewhere(why) => selection.elsewhere.push((listed, why)),
                TaskAvailability::Finished => {}
            }
        }
        // Critical tasks first; among equals those without dependencies; then in the order of the file.
        let order = |(listed, _): &(&ListedTask, AgentName)| {
            (listed.task.priority, !listed.task.depends_on.is_empty())
        };
        resumed.sort_by_key(order);
        free.sort_by_key(order);
        let most = self.contract.rules.most_at_once.unwrap_or(usize::MAX);
        let mut taken: HashMap<AgentName, usize> = HashMap::new();
        for (listed, agent) in free {
            let holds = held.get(&agent).copied().unwrap_or(0);
            let taken = taken.entry(agent.clone()).or_default();
            if holds + *taken < most {
                *taken += 1;
                resumed.push((listed, agent));
            } else {
                let why = format!("agent:{agent} may hold {most} tasks at once (§5.1)");
                selection.waiting.push((listed, why));
            }
        }
        selection.ready = resumed;
        selection
    }

    fn availability(
        &self,
        listing: &StateListing,
        listed: &ListedTask,
        known: &DependencyStates<'_>,
        now: Timestamp,
    ) -> TaskAvailability {
        let task = &listed.task;
        if listing.is_duplicate(task.id.as_str()) && !task.state.is_final() {
            return TaskAvailability::Waits("its id is there more than once (§4.1)".to_owned());
        }
        match (task.state, &task.owner) {
            (TaskState::Done | TaskState::Rejected, _) => TaskAvailability::Finished,
            (TaskState::Blocked, _) => {
                let why = task.blocked_reason.as_deref().map_or("nobody says why".to_owned(), first_sentence);
                let opens = opens_again(&task.id);
                TaskAvailability::Waits(format!("it is blocked: {why}; `{opens}` opens it again"))
            }
            (TaskState::Todo, owner) => match self.why_not(listed, known, owner) {
                Ok(agent) => TaskAvailability::Free(agent),
                Err(why) => TaskAvailability::Waits(why),
            },
            (TaskState::InProgress | TaskState::ToBeTested, owner) => {
                match TaskBlock::parse(listing.block(listed), listed.span.line) {
                    Ok(block) => self.begun(task, owner, &block, now),
                    Err(_) => TaskAvailability::Waits("it can't be read".to_owned()),
                }
            }
        }
    }

    /// Whether a task that was begun can be continued here, and what helps where it can't.
    fn begun(
        &self,
        task: &Task,
        owner: &TaskOwner,
        block: &TaskBlock<'_>,
        now: Timestamp,
    ) -> TaskAvailability {
        let id = &task.id;
        let stale = self.stale_for(block, task.claimed_at.as_deref(), now);
        let takes_back = takes_back(task, stale.is_some());
        let agent = match owner {
            TaskOwner::Human if task.state == TaskState::InProgress => {
                let why = "a person has it: its owner is human".to_owned();
                return TaskAvailability::Elsewhere(why);
            }
            TaskOwner::Human => {
                return TaskAvailability::Waits(format!(
                    "it is to be tested by a person (§7.2): `agency task move {id} done --as human`, or `todo`"
                ));
            }
            TaskOwner::Unassigned if task.state == TaskState::InProgress => {
                return TaskAvailability::Waits(format!(
                    "it is in_progress and unassigned (§8.1): `{takes_back}`"
                ));
            }
            TaskOwner::Unassigned => {
                return TaskAvailability::Waits(format!(
                    "it is to be tested by its owner, and has none (§7.2): `{takes_back}`"
                ));
            }
            TaskOwner::Agent(agent) if task.kind == TaskType::Review => {
                return TaskAvailability::Waits(format!(
                    "a review is human judgment only, and agent:{agent} owns it (§6): `agency task move {id} done --as human`"
                ));
            }
            TaskOwner::Agent(agent) => agent,
        };
        let is_ours = self.is_ours(block);
        if let Some(why) = notes::requested_block(block) {
            let blocks = format!("agency task move {id} blocked --as human --reason 'as recommended'");
            let why = format!("its agent recommends to block it: {}", first_sentence(&why));
            return TaskAvailability::Waits(match is_ours {
                true => format!("{why}; `agency retry {id}` tries it again, `{blocks}` blocks it"),
                false => format!("{why}; `{blocks}` blocks it"),
            });
        }
        match (task.state, is_ours, stale) {
            (TaskState::ToBeTested, true, _) => TaskAvailability::Reported(format!(
                "agent:{agent} has reported it, and its work has not landed; `agency run` continues its attempt, `agency retry {id}` begins another"
            )),
            (_, true, _) => TaskAvailability::Resumed(agent.clone()),
            (TaskState::InProgress, false, Some(hours)) => TaskAvailability::Stale(format!(
                "{owner} has it, and nothing was heard for {hours} h; a person may reclaim it (§8.1.1): `{takes_back}`"
            )),
            (state, false, _) => TaskAvailability::Elsewhere(format!(
                "{owner} has it {state}, by a claim that is not of this clone (§8.1.1); `{takes_back}` takes it back"
            )),
        }
    }

    /// The agent that would do a task, or why none can.
    fn why_not(
        &self,
        listed: &ListedTask,
        known: &DependencyStates<'_>,
        owner: &TaskOwner,
    ) -> Result<AgentName, String> {
        let task = &listed.task;
        let agent = match (owner, &self.setting.agent) {
            (TaskOwner::Human, _) => return Err("it is for a person: its owner is human".to_owned()),
            (TaskOwner::Agent(name), _) => name.clone(),
            (TaskOwner::Unassigned, Some(name)) => name.clone(),
            (TaskOwner::Unassigned, None) => {
                return Err(
                    "it is unassigned, and `[roles] builder` in agency.toml names no agent".to_owned()
                );
            }
        };
        match task.kind {
            TaskType::Review => return Err("a review is human judgment only (§6)".to_owned()),
            TaskType::Build if task.acceptance.is_empty() => {
                return Err("it has no acceptance criteria (§7.2)".to_owned());
            }
            TaskType::Followup if task.derived_from.is_none() => {
                return Err("a followup must say what it is derived from (§6)".to_owned());
            }
            _ => {}
        }
        if !self.contract.allows(&agent) {
            return Err(format!("agent:{agent} is not among `allowed_agents` of codifica.json (§3.1)"));
        }
        match known.unmet(task) {
            Some(why) => Err(format!("{why} (§5.2)")),
            None => Ok(agent),
        }
    }

    /// Whether the claim of a task was made by this clone.
    pub(super) fn is_ours(&self, block: &TaskBlock<'_>) -> bool {
        notes::session(block).is_some_and(|session| self.is_our_session(&session))
    }

    pub(super) fn is_our_session(&self, session: &str) -> bool {
        let site = self.setting.site.as_deref();
        site.is_some_and(|site| session.strip_prefix(site).is_some_and(|rest| rest.starts_with('/')))
    }

    /// For how many hours a task has had no activity, if that is too long. A task without any activity is stale.
    pub(super) fn stale_for(
        &self,
        block: &TaskBlock<'_>,
        claimed_at: Option<&str>,
        now: Timestamp,
    ) -> Option<u64> {
        let hours = silent_hours(block, claimed_at, now);
        (hours >= self.contract.rules.stale_hours).then_some(hours)
    }
}

/// The first line of what somebody wrote, within bounds.
fn first_sentence(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    truncate(one_line(line), LONGEST_REASON)
}

/// The most of a reason in a list of tasks, in bytes.
const LONGEST_REASON: usize = 200;

/// The command with which a person opens a blocked task.
pub(super) fn opens_again(id: &TaskId) -> String {
    format!("agency task move {id} todo --as human")
}

/// The command with which a person takes a task from the agent that has it: §8.1.1 asks for a stale claim, and a person
/// may block anything (§7.1).
pub(super) fn takes_back(task: &Task, is_stale: bool) -> String {
    let to = match is_stale && task.state == TaskState::InProgress {
        true => TaskState::Todo,
        false => TaskState::Blocked,
    };
    format!("agency task move {} {to} --as human --reason 'taken back'", task.id)
}

/// For how many hours a task has had no activity.
pub(super) fn silent_hours(block: &TaskBlock<'_>, claimed_at: Option<&str>, now: Timestamp) -> u64 {
    match notes::last_activity(block, claimed_at) {
        Some(heard) => u64::try_from((now.as_second() - heard.as_second()).max(0) / 3600).unwrap_or(0),
        None => 24 * 365,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{board, board_with};
    use super::*;

    fn names(selection: &TaskSelection<'_>) -> String {
        let names = selection.ready.iter().map(|(listed, agent)| format!("{}/{agent}", listed.task.id));
        names.collect::<Vec<_>>().join(" ")
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn the_algorithm_of_the_specification_is_followed_step_by_step() {
        let (_folder, tree, board) = board(
            "- {id: DONE, type: test, state: done, owner: human, title: x}\n\
             - {id: LOW, type: test, state: todo, owner: unassigned, title: x, priority: low}\n\
             - {id: AFTER, type: test, state: todo, owner: 'agent:a', title: x, priority: high, depends_on: [DONE]}\n\
             - {id: LEAF, type: test, state: todo, owner: 'agent:a', title: x, priority: high}\n\
             - {id: LATER, type: test, state: todo, owner: 'agent:a', title: x, depends_on: [LOW]}\n\
             - {id: OTHER, type: test, state: todo, owner: 'agent:b', title: x, priority: critical}\n\
             - {id: MINE, type: test, state: todo, owner: human, title: x}\n\
             - {id: LOOK, type: review, state: todo, owner: unassigned, title: x}\n\
             - {id: BARE, type: build, state: todo, owner: 'agent:a', title: x}\n\
             - {id: STUCK, type: test, state: blocked, owner: 'agent:a', title: x, blocked_reason: no key}\n",
        );
        let listing = board.tasks(&tree).expect("read");
        let selection = board.select(&listing, NOW);
        assert_eq!(names(&selection), "OTHER/b LEAF/a AFTER/a LOW/default");
        let waiting: Vec<&str> =
            selection.waiting.iter().map(|(listed, _)| listed.task.id.as_str()).collect();
        assert_eq!(waiting, ["LATER", "MINE", "LOOK", "BARE", "STUCK"]);
    }

    #[test]
    fn nobody_claims_more_than_they_may_hold() {
        let rules = r#"{"max_concurrent_tasks_per_agent": 2, "allowed_agents": ["a"]}"#;
        let (_folder, tree, board) = board_with(
            rules,
            "- {id: A, type: test, state: in_progress, owner: 'agent:a', title: x, claimed_at: '1970-01-01T00:00:00Z'}\n\
             - {id: B, type: test, state: todo, owner: 'agent:a', title: x}\n\
             - {id: C, type: test, state: todo, owner: 'agent:a', title: x}\n\
             - {id: D, type: test, state: todo, owner: 'agent:b', title: x}\n",
        );
        let listing = board.tasks(&tree).expect("read");
        let selection = board.select(&listing, NOW);
        assert_eq!(names(&selection), "B/a");
        assert!(
            selection.waiting.iter().any(|(one, why)| one.task.id.as_str() == "C" && why.contains("(§5.1)"))
        );
        assert!(
            selection.waiting.iter().any(|(one, why)| one.task.id.as_str() == "D" && why.contains("(§3.1)"))
        );
    }

    #[test]
    fn only_a_claim_of_our_own_is_gone_on_with_and_a_stale_one_is_shown() {
        let claimed = |id: &str, session: &str| {
            format!(
                "- id: {id}\n  type: test\n  state: in_progress\n  owner: agent:a\n  title: x\n  claimed_at: 1970-01-01T00:00:00Z\n  state_transitions:\n    - to: in_progress\n      timestamp: 1970-01-01T00:00:00Z\n      provenance:\n        session_id: {session}\n"
            )
        };
        let text = [claimed("OURS", "here/OURS.1"), claimed("THEIRS", "there/THEIRS.1")].concat();
        let (_folder, tree, board) = board(&text);
        let listing = board.tasks(&tree).expect("read");
        let soon = board.select(&listing, NOW);
        assert_eq!((names(&soon).as_str(), soon.waiting.len()), ("OURS/a", 0));
        let later = board.select(&listing, Timestamp::from_second(25 * 3600).expect("a time"));
        assert_eq!(names(&later), "OURS/a");
        assert!(later.waiting[0].1.contains("a person may reclaim it (§8.1.1)"), "{:?}", later.waiting[0].1);
    }
}
