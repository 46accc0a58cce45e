//! §5.1: which tasks may be worked on now, by whom, and what the others wait for.

use std::collections::HashMap;

use jiff::Timestamp;

use super::block::Block;
use super::dependencies::Known;
use super::task::{Kind, Owner};
use super::transitions::State;
use super::{Codifica, Listed, Listing, notes};
use crate::names::AgentName;

/// What came of looking for work.
#[derive(Debug, Default)]
pub struct Selection<'l> {
    /// What may be worked on, the first first.
    pub ready: Vec<(&'l Listed, AgentName)>,
    pub waiting: Vec<(&'l Listed, String)>,
    /// What one of our own attempts has handed over to be tested.
    pub reported: Vec<&'l Listed>,
}

/// How one task stands.
enum Standing {
    /// Ours already, to be gone on with.
    Resumed(AgentName),
    Free(AgentName),
    Reported,
    Waits(String),
    /// Somebody else's, or over.
    Elsewhere,
}

impl Codifica {
    pub fn select<'l>(&self, listing: &'l Listing, now: Timestamp) -> Selection<'l> {
        let known = Known::of(listing);
        let mut selection = Selection::default();
        let (mut resumed, mut free) = (Vec::new(), Vec::new());
        let mut held: HashMap<&AgentName, usize> = HashMap::new();
        for listed in &listing.tasks {
            if let (State::InProgress, Owner::Agent(agent)) = (listed.task.state, &listed.task.owner) {
                *held.entry(agent).or_default() += 1;
            }
            match self.standing(listing, listed, &known, now) {
                Standing::Resumed(agent) => resumed.push((listed, agent)),
                Standing::Free(agent) => free.push((listed, agent)),
                Standing::Reported => selection.reported.push(listed),
                Standing::Waits(why) => selection.waiting.push((listed, why)),
                Standing::Elsewhere => {}
            }
        }
        // Critical first; among equals those that depend on nothing; else as they are written.
        let order =
            |(listed, _): &(&Listed, AgentName)| (listed.task.priority, !listed.task.depends_on.is_empty());
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

    fn standing(&self, listing: &Listing, listed: &Listed, known: &Known<'_>, now: Timestamp) -> Standing {
        let task = &listed.task;
        if listing.is_double(task.id.as_str()) && !task.state.is_final() {
            return Standing::Waits("its id is there more than once (§4.1)".to_owned());
        }
        let waits = |why: &str| Standing::Waits(why.to_owned());
        match (task.state, &task.owner) {
            (State::Done | State::Rejected, _) => Standing::Elsewhere,
            (State::Blocked, _) => {
                let why = task.blocked_reason.as_deref().unwrap_or("nobody says why");
                Standing::Waits(format!("it is blocked: {why}"))
            }
            (State::Todo, owner) => match self.why_not(listed, known, owner) {
                Ok(agent) => Standing::Free(agent),
                Err(why) => Standing::Waits(why),
            },
            (State::InProgress, Owner::Unassigned) => waits("it is in_progress and unassigned (§8.1)"),
            (State::ToBeTested, Owner::Unassigned) => {
                waits("it is to be tested by its owner, and has none (§7.2)")
            }
            (State::ToBeTested, Owner::Human) => waits("it is to be tested by a person (§7.2)"),
            (State::InProgress | State::ToBeTested, owner) => {
                let Ok(block) = Block::parse(listing.block(listed), listed.span.line) else {
                    return waits("it can't be read");
                };
                let ours = owner.agent().filter(|_| self.is_ours(&block));
                match (task.state, ours) {
                    (State::ToBeTested, Some(_)) => Standing::Reported,
                    (_, Some(agent)) => match notes::wants_a_block(&block) {
                        Some(why) => Standing::Waits(format!("its agent recommends to block it: {why}")),
                        None => Standing::Resumed(agent.clone()),
                    },
                    (State::InProgress, None) => {
                        match self.stale_for(&block, task.claimed_at.as_deref(), now) {
                            Some(hours) => Standing::Waits(format!(
                                "{owner} has it, and nothing was heard for {hours} h; a person may reclaim it (§8.1.1)"
                            )),
                            None => Standing::Elsewhere,
                        }
                    }
                    (_, None) => Standing::Elsewhere,
                }
            }
        }
    }

    /// Who would do a task that is to be done, or why nobody can.
    fn why_not(&self, listed: &Listed, known: &Known<'_>, owner: &Owner) -> Result<AgentName, String> {
        let task = &listed.task;
        let agent = match (owner, &self.setting.agent) {
            (Owner::Human, _) => return Err("it is for a person: its owner is human".to_owned()),
            (Owner::Agent(name), _) => name.clone(),
            (Owner::Unassigned, Some(name)) => name.clone(),
            (Owner::Unassigned, None) => {
                return Err("it is unassigned, and `[roles] builder` in agency.toml names nobody".to_owned());
            }
        };
        match task.kind {
            Kind::Review => return Err("a review is human judgment only (§6)".to_owned()),
            Kind::Build if task.acceptance.is_empty() => {
                return Err("it has no acceptance criteria (§7.2)".to_owned());
            }
            Kind::Followup if task.derived_from.is_none() => {
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
    pub(super) fn is_ours(&self, block: &Block<'_>) -> bool {
        notes::session(block).is_some_and(|session| self.is_our_session(&session))
    }

    pub(super) fn is_our_session(&self, session: &str) -> bool {
        let site = self.setting.site.as_deref();
        site.is_some_and(|site| session.strip_prefix(site).is_some_and(|rest| rest.starts_with('/')))
    }

    /// For how many hours nothing was heard of a task, if that is too long. One that never said anything is stale.
    pub(super) fn stale_for(
        &self,
        block: &Block<'_>,
        claimed_at: Option<&str>,
        now: Timestamp,
    ) -> Option<u64> {
        let hours = silent_hours(block, claimed_at, now);
        (hours >= self.contract.rules.stale_hours).then_some(hours)
    }
}

/// For how many hours nothing was heard.
pub(super) fn silent_hours(block: &Block<'_>, claimed_at: Option<&str>, now: Timestamp) -> u64 {
    match notes::last_heard(block, claimed_at) {
        Some(heard) => u64::try_from((now.as_second() - heard.as_second()).max(0) / 3600).unwrap_or(0),
        None => 24 * 365,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{board, board_with};
    use super::*;

    fn names(selection: &Selection<'_>) -> String {
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
