//! §7: the transitions between the states of a task, and which actor may make them.

use super::task::{TaskOwner, TaskState, TaskType};
use crate::names::Actor;

/// The facts about a task that decide about its moves.
#[derive(Debug, Clone)]
pub struct TransitionFacts<'a> {
    pub kind: &'a TaskType,
    pub owner: &'a TaskOwner,
    pub has_acceptance: bool,
    /// Its unfinished dependencies, in words.
    pub unmet: Option<String>,
    /// For how many hours there was no activity, and after how many a claim is stale.
    pub silent_hours: u64,
    pub stale_hours: u64,
}

/// Why a move is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateTransitionError {
    #[error("can't move from {from} to {to} (§7.1); allowed: {}", list(.next))]
    NoTransition { from: TaskState, to: TaskState, next: Vec<TaskState> },
    #[error("{from} → {to} is for {wanted}, and {actor} asked for it (§{section})")]
    NotTheirs { from: TaskState, to: TaskState, wanted: &'static str, actor: String, section: &'static str },
    #[error("{from} → {to} needs a reason (§{section})")]
    NoReason { from: TaskState, to: TaskState, section: &'static str },
    #[error("a build task must not leave {from} without acceptance criteria (§7.2)")]
    NoAcceptance { from: TaskState },
    #[error("a {kind} task must not skip to_be_tested (§7.2)")]
    Skips { kind: String },
    #[error("{why} (§5.2)")]
    Unmet { why: String },
    #[error(
        "it is not stale: something was heard of it {silent} h ago, and a claim is stale after {stale} h (§8.1.1)"
    )]
    NotStale { silent: u64, stale: u64 },
    #[error("a review is human judgment only (§6)")]
    Review,
}

impl StateTransitionError {
    /// The part of the specification that refuses.
    pub fn section(&self) -> &'static str {
        match self {
            Self::NoTransition { .. } => "7.1",
            Self::NotTheirs { section, .. } | Self::NoReason { section, .. } => section,
            Self::NoAcceptance { .. } | Self::Skips { .. } => "7.2",
            Self::Unmet { .. } => "5.2",
            Self::NotStale { .. } => "8.1.1",
            Self::Review => "6",
        }
    }
}

fn list(states: &[TaskState]) -> String {
    if states.is_empty() {
        return "none".to_owned();
    }
    states.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", ")
}

/// The actor that may make a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransitionActor {
    /// The agent that owns the task, or any agent if no agent owns it; or a person.
    AgentOrHuman,
    /// The agent that owns the task. A person who owns the task acts as its agent.
    Agent,
    Owner,
    Human,
}

/// What a transition requires besides the right actor, with its section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransitionRequirement {
    Nothing,
    Reason(&'static str),
    /// Acceptance criteria, and what it depends on.
    Start,
    /// A stale claim.
    Stale,
    /// A type that may be done without being tested.
    NoTest,
}

/// The table of §7.1. Two rows more: §7.2 lets types other than build skip `to_be_tested`, so there is a way from
/// `in_progress` to `done` for them; and §8.1.1 lets a person reclaim what is stale.
fn rule(from: TaskState, to: TaskState) -> Option<(TransitionActor, TransitionRequirement)> {
    use TaskState::*;
    match (from, to) {
        (Todo, InProgress) => Some((TransitionActor::AgentOrHuman, TransitionRequirement::Start)),
        (InProgress, ToBeTested) => Some((TransitionActor::Agent, TransitionRequirement::Nothing)),
        (ToBeTested, Done | Todo) => Some((TransitionActor::Owner, TransitionRequirement::Nothing)),
        (Todo | InProgress | ToBeTested | Done | Rejected, Blocked) => {
            Some((TransitionActor::Human, TransitionRequirement::Reason("7.2")))
        }
        (Blocked, Todo) => Some((TransitionActor::Human, TransitionRequirement::Nothing)),
        (Blocked, InProgress) => Some((TransitionActor::Human, TransitionRequirement::Start)),
        (Todo | Blocked | InProgress, Rejected) => {
            Some((TransitionActor::Human, TransitionRequirement::Reason("7.2")))
        }
        (Rejected, Todo) => Some((TransitionActor::Human, TransitionRequirement::Reason("7.2"))),
        (Done, Todo) => Some((TransitionActor::Human, TransitionRequirement::Nothing)),
        (InProgress, Done) => Some((TransitionActor::Owner, TransitionRequirement::NoTest)),
        (InProgress, Todo) => Some((TransitionActor::Human, TransitionRequirement::Stale)),
        (Todo, Todo | ToBeTested | Done)
        | (InProgress, InProgress)
        | (ToBeTested, InProgress | ToBeTested | Rejected)
        | (Done, InProgress | ToBeTested | Done | Rejected)
        | (Blocked, ToBeTested | Done | Blocked)
        | (Rejected, InProgress | ToBeTested | Done | Rejected) => None,
    }
}

/// Whether the table has a move, for any actor.
pub fn is_known(from: TaskState, to: TaskState) -> bool {
    rule(from, to).is_some()
}

/// Whether an actor may move a task.
pub fn transition(
    from: TaskState,
    to: TaskState,
    actor: &Actor,
    facts: &TransitionFacts<'_>,
    reason: Option<&str>,
) -> Result<(), StateTransitionError> {
    let Some((by, needs)) = rule(from, to) else {
        let next = TaskState::ALL.into_iter().filter(|next| rule(from, *next).is_some()).collect();
        return Err(StateTransitionError::NoTransition { from, to, next });
    };
    // A build that would skip its test gets that refusal, for any actor.
    if needs == TransitionRequirement::NoTest && facts.kind.must_be_tested() {
        return Err(StateTransitionError::Skips { kind: facts.kind.to_string() });
    }
    let is_review = *facts.kind == TaskType::Review;
    if is_review && matches!(actor, Actor::Agent(_)) {
        return Err(StateTransitionError::Review);
    }
    let owns = match (actor, facts.owner) {
        (Actor::Human(_), TaskOwner::Human) => true,
        // A review that was given to an agent is a person's all the same.
        (Actor::Human(_), TaskOwner::Agent(_)) => is_review,
        (Actor::Agent(name), TaskOwner::Agent(owner)) => name == owner,
        _ => false,
    };
    let human = matches!(actor, Actor::Human(_));
    let agent = matches!(actor, Actor::Agent(_));
    let (may, wanted, section) = match by {
        TransitionActor::AgentOrHuman => {
            let free = *facts.owner == TaskOwner::Unassigned;
            (human || (agent && (free || owns)), "its owner, or an agent if it is unassigned", "5.1")
        }
        TransitionActor::Agent => (owns, "the agent that owns it", "7.1"),
        TransitionActor::Owner => (owns, "its owner", "7.2"),
        TransitionActor::Human => {
            (human, "a person", if needs == TransitionRequirement::Stale { "8.1.1" } else { "7.1" })
        }
    };
    if !may {
        return Err(StateTransitionError::NotTheirs { from, to, wanted, actor: actor.to_string(), section });
    }
    let silent = reason.is_none_or(|reason| reason.trim().is_empty());
    match needs {
        TransitionRequirement::Nothing | TransitionRequirement::NoTest => Ok(()),
        TransitionRequirement::Reason(section) if silent => {
            Err(StateTransitionError::NoReason { from, to, section })
        }
        TransitionRequirement::Reason(_) => Ok(()),
        TransitionRequirement::Stale if facts.silent_hours < facts.stale_hours => {
            Err(StateTransitionError::NotStale { silent: facts.silent_hours, stale: facts.stale_hours })
        }
        TransitionRequirement::Stale if silent => {
            Err(StateTransitionError::NoReason { from, to, section: "8.1.1" })
        }
        TransitionRequirement::Stale => Ok(()),
        TransitionRequirement::Start if *facts.kind == TaskType::Build && !facts.has_acceptance => {
            Err(StateTransitionError::NoAcceptance { from })
        }
        TransitionRequirement::Start => match &facts.unmet {
            Some(why) => Err(StateTransitionError::Unmet { why: why.clone() }),
            None => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::AgentName;

    fn agent(name: &str) -> AgentName {
        AgentName::parse(name).expect("a name")
    }

    fn facts<'a>(kind: &'a TaskType, owner: &'a TaskOwner) -> TransitionFacts<'a> {
        TransitionFacts { kind, owner, has_acceptance: true, unmet: None, silent_hours: 30, stale_hours: 24 }
    }

    /// Every pair of states with who may make the move: h(uman), o(wner, an agent), a(nother agent). The task
    /// belongs to an agent, has everything it needs, and a reason is given.
    #[test]
    fn the_table_of_transitions_is_the_specifications() {
        use TaskState::*;
        let allowed = [
            (Todo, InProgress, "ho"),
            (InProgress, ToBeTested, "o"),
            (ToBeTested, Done, "o"),
            (ToBeTested, Todo, "o"),
            (Todo, Blocked, "h"),
            (InProgress, Blocked, "h"),
            (ToBeTested, Blocked, "h"),
            (Done, Blocked, "h"),
            (Rejected, Blocked, "h"),
            (Blocked, Todo, "h"),
            (Blocked, InProgress, "h"),
            (Todo, Rejected, "h"),
            (Blocked, Rejected, "h"),
            (InProgress, Rejected, "h"),
            (Rejected, Todo, "h"),
            (Done, Todo, "h"),
            (InProgress, Todo, "h"),
        ];
        let owner = TaskOwner::Agent(agent("mine"));
        for from in TaskState::ALL {
            for to in TaskState::ALL {
                let who =
                    allowed.iter().find(|(f, t, _)| (*f, *t) == (from, to)).map_or("", |(_, _, who)| who);
                for (actor, letter) in [
                    (Actor::Human(None), 'h'),
                    (Actor::Agent(agent("mine")), 'o'),
                    (Actor::Agent(agent("other")), 'a'),
                    (Actor::Orchestrator, 'x'),
                ] {
                    let moved =
                        transition(from, to, &actor, &facts(&TaskType::Build, &owner), Some("because"));
                    assert_eq!(moved.is_ok(), who.contains(letter), "{from} {to} {actor}: {moved:?}");
                    if let Err(refused) = moved {
                        assert!(
                            refused.to_string().contains(&format!("(§{})", refused.section())),
                            "{refused}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn only_its_owner_completes_a_task() {
        let (human, mine) = (TaskOwner::Human, TaskOwner::Agent(agent("mine")));
        for to in [TaskState::Done, TaskState::Todo] {
            let by = |actor: Actor, owner: &TaskOwner| {
                transition(TaskState::ToBeTested, to, &actor, &facts(&TaskType::Build, owner), None).is_ok()
            };
            assert!(by(Actor::Human(None), &human) && !by(Actor::Human(None), &mine));
            assert!(by(Actor::Agent(agent("mine")), &mine) && !by(Actor::Agent(agent("mine")), &human));
            assert!(!by(Actor::Human(None), &TaskOwner::Unassigned));
        }
    }

    #[test]
    fn types_other_than_build_may_skip_their_test() {
        let owner = TaskOwner::Agent(agent("mine"));
        let skip = |kind: &TaskType| {
            let actor = Actor::Agent(agent("mine"));
            transition(TaskState::InProgress, TaskState::Done, &actor, &facts(kind, &owner), None).is_ok()
        };
        for kind in [TaskType::Test, TaskType::Investigate, TaskType::Followup] {
            assert!(skip(&kind), "{kind}");
        }
        let signs = |owner: &TaskOwner| {
            let facts = facts(&TaskType::Review, owner);
            transition(TaskState::InProgress, TaskState::Done, &Actor::Human(None), &facts, None).is_ok()
        };
        assert!(signs(&TaskOwner::Human) && signs(&owner), "a review is a person's, whoever owns it (§6)");
        assert!(!skip(&TaskType::Build));
        assert!(!skip(&TaskType::Custom("deploy".into())), "custom types follow build (§6)");
    }

    #[test]
    fn what_a_move_needs_is_asked_for_with_its_section() {
        let owner = TaskOwner::Agent(agent("mine"));
        let (mine, human) = (Actor::Agent(agent("mine")), Actor::Human(None));
        let ready = facts(&TaskType::Build, &owner);
        let refused = |from, to, actor: &Actor, facts: &TransitionFacts<'_>, reason| {
            transition(from, to, actor, facts, reason).expect_err("refused").section()
        };
        use TaskState::*;
        let bare = TransitionFacts { has_acceptance: false, ..ready.clone() };
        assert_eq!(refused(Todo, InProgress, &mine, &bare, None), "7.2");
        let unmet = TransitionFacts { unmet: Some("it depends on B".into()), ..ready.clone() };
        assert_eq!(refused(Todo, InProgress, &mine, &unmet, None), "5.2");
        assert_eq!(refused(Blocked, InProgress, &human, &unmet, None), "5.2");
        for (from, to) in [(Todo, Blocked), (Todo, Rejected), (Rejected, Todo), (InProgress, Rejected)] {
            assert_eq!(refused(from, to, &human, &ready, Some(" ")), "7.2");
        }
        let fresh = TransitionFacts { silent_hours: 2, ..ready.clone() };
        assert_eq!(refused(InProgress, Todo, &human, &fresh, Some("why")), "8.1.1");
        assert_eq!(refused(InProgress, Todo, &human, &ready, None), "8.1.1");
        assert_eq!(refused(InProgress, Todo, &mine, &ready, Some("why")), "8.1.1");
        let review = TransitionFacts { kind: &TaskType::Review, ..ready.clone() };
        for (from, to) in
            [(Todo, InProgress), (InProgress, ToBeTested), (InProgress, Done), (ToBeTested, Done)]
        {
            assert_eq!(refused(from, to, &mine, &review, None), "6");
        }
        assert_eq!(refused(Todo, InProgress, &Actor::Agent(agent("other")), &ready, None), "5.1");
    }
}
