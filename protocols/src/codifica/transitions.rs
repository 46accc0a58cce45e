//! §7: the states of a task, and who may move it from one to another.

use std::fmt;

use serde::Serialize;

use super::task::{Kind, Owner};
use crate::names::Actor;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Todo,
    InProgress,
    ToBeTested,
    Done,
    Blocked,
    Rejected,
}

impl State {
    pub const ALL: [State; 6] =
        [State::Todo, State::InProgress, State::ToBeTested, State::Done, State::Blocked, State::Rejected];

    pub const fn as_str(self) -> &'static str {
        match self {
            State::Todo => "todo",
            State::InProgress => "in_progress",
            State::ToBeTested => "to_be_tested",
            State::Done => "done",
            State::Blocked => "blocked",
            State::Rejected => "rejected",
        }
    }

    /// As it stands in files, which is exact.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// As people type it: `in-progress` is meant as `in_progress`.
    pub fn typed(text: &str) -> Option<Self> {
        Self::read(&text.to_ascii_lowercase().replace(['-', ' '], "_"))
    }

    /// Whether nothing more will happen to the task by itself.
    pub const fn is_final(self) -> bool {
        matches!(self, State::Done | State::Rejected)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Everything about a task that has a say in its moves.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    pub kind: &'a Kind,
    pub owner: &'a Owner,
    pub has_acceptance: bool,
    /// What it depends on and is not done, in words.
    pub unmet: Option<String>,
    /// For how many hours nothing was heard of it, and after how many a claim is stale.
    pub silent_hours: u64,
    pub stale_hours: u64,
}

/// Why a move is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("{from} → {to} is no transition of the protocol (§7.1); from {from} a task can go to {}", list(.next))]
    NoTransition { from: State, to: State, next: Vec<State> },
    #[error("{from} → {to} is for {wanted}, and {actor} asked for it (§{section})")]
    NotTheirs { from: State, to: State, wanted: &'static str, actor: String, section: &'static str },
    #[error("{from} → {to} needs a reason (§{section})")]
    NoReason { from: State, to: State, section: &'static str },
    #[error("a build task must not leave {from} without acceptance criteria (§7.2)")]
    NoAcceptance { from: State },
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

impl Refused {
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

fn list(states: &[State]) -> String {
    states.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(", ")
}

/// Who may make a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// The agent it belongs to, or nobody yet; a person.
    AgentOrHuman,
    /// The agent it belongs to. A person whose own task it is does an agent's part in it.
    Agent,
    Owner,
    Human,
}

/// What a transition needs beside the right actor, with the section that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Reason(&'static str),
    /// Acceptance criteria, and what it depends on.
    Start,
    /// A claim that nobody has heard of for long.
    Stale,
    /// A type that may be done without being tested.
    NoTest,
}

/// The table of §7.1. Two rows more: §7.2 lets types other than build skip `to_be_tested`, so there is a way from
/// `in_progress` to `done` for them; and §8.1.1 lets a person reclaim what is stale.
fn rule(from: State, to: State) -> Option<(By, Needs)> {
    use State::*;
    match (from, to) {
        (Todo, InProgress) => Some((By::AgentOrHuman, Needs::Start)),
        (InProgress, ToBeTested) => Some((By::Agent, Needs::Nothing)),
        (ToBeTested, Done | Todo) => Some((By::Owner, Needs::Nothing)),
        (Todo | InProgress | ToBeTested | Done | Rejected, Blocked) => {
            Some((By::Human, Needs::Reason("7.2")))
        }
        (Blocked, Todo) => Some((By::Human, Needs::Nothing)),
        (Blocked, InProgress) => Some((By::Human, Needs::Start)),
        (Todo | Blocked | InProgress, Rejected) => Some((By::Human, Needs::Reason("7.2"))),
        (Rejected, Todo) => Some((By::Human, Needs::Reason("7.2"))),
        (Done, Todo) => Some((By::Human, Needs::Nothing)),
        (InProgress, Done) => Some((By::Owner, Needs::NoTest)),
        (InProgress, Todo) => Some((By::Human, Needs::Stale)),
        (Todo, Todo | ToBeTested | Done)
        | (InProgress, InProgress)
        | (ToBeTested, InProgress | ToBeTested | Rejected)
        | (Done, InProgress | ToBeTested | Done | Rejected)
        | (Blocked, ToBeTested | Done | Blocked)
        | (Rejected, InProgress | ToBeTested | Done | Rejected) => None,
    }
}

/// Whether an actor may move a task.
pub fn transition(
    from: State,
    to: State,
    actor: &Actor,
    facts: &Facts<'_>,
    reason: Option<&str>,
) -> Result<(), Refused> {
    let Some((by, needs)) = rule(from, to) else {
        let next = State::ALL.into_iter().filter(|next| rule(from, *next).is_some()).collect();
        return Err(Refused::NoTransition { from, to, next });
    };
    // A build that would skip its test is told that, whoever asks.
    if needs == Needs::NoTest && facts.kind.must_be_tested() {
        return Err(Refused::Skips { kind: facts.kind.to_string() });
    }
    let owns = match (actor, facts.owner) {
        (Actor::Human(_), Owner::Human) => true,
        (Actor::Agent(name), Owner::Agent(owner)) => name == owner,
        _ => false,
    };
    let human = matches!(actor, Actor::Human(_));
    let agent = matches!(actor, Actor::Agent(_));
    let (may, wanted, section) = match by {
        By::AgentOrHuman => {
            let free = *facts.owner == Owner::Unassigned;
            (human || (agent && (free || owns)), "its owner, or an agent if it is unassigned", "5.1")
        }
        By::Agent => (owns, "the agent that owns it", "7.1"),
        By::Owner => (owns, "its owner", "7.2"),
        By::Human => (human, "a person", if needs == Needs::Stale { "8.1.1" } else { "7.1" }),
    };
    if !may {
        return Err(Refused::NotTheirs { from, to, wanted, actor: actor.to_string(), section });
    }
    let silent = reason.is_none_or(|reason| reason.trim().is_empty());
    match needs {
        Needs::Nothing | Needs::NoTest => Ok(()),
        Needs::Reason(section) if silent => Err(Refused::NoReason { from, to, section }),
        Needs::Reason(_) => Ok(()),
        Needs::Stale if facts.silent_hours < facts.stale_hours => {
            Err(Refused::NotStale { silent: facts.silent_hours, stale: facts.stale_hours })
        }
        Needs::Stale if silent => Err(Refused::NoReason { from, to, section: "8.1.1" }),
        Needs::Stale => Ok(()),
        Needs::Start if agent && *facts.kind == Kind::Review => Err(Refused::Review),
        Needs::Start if *facts.kind == Kind::Build && !facts.has_acceptance => {
            Err(Refused::NoAcceptance { from })
        }
        Needs::Start => match &facts.unmet {
            Some(why) => Err(Refused::Unmet { why: why.clone() }),
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

    fn facts<'a>(kind: &'a Kind, owner: &'a Owner) -> Facts<'a> {
        Facts { kind, owner, has_acceptance: true, unmet: None, silent_hours: 30, stale_hours: 24 }
    }

    /// Every pair of states with who may make the move: h(uman), o(wner, an agent), a(nother agent). The task
    /// belongs to an agent, has everything it needs, and a reason is given.
    #[test]
    fn the_table_of_transitions_is_the_specifications() {
        use State::*;
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
        let owner = Owner::Agent(agent("mine"));
        for from in State::ALL {
            for to in State::ALL {
                let who =
                    allowed.iter().find(|(f, t, _)| (*f, *t) == (from, to)).map_or("", |(_, _, who)| who);
                for (actor, letter) in [
                    (Actor::Human(None), 'h'),
                    (Actor::Agent(agent("mine")), 'o'),
                    (Actor::Agent(agent("other")), 'a'),
                    (Actor::Orchestrator, 'x'),
                ] {
                    let moved = transition(from, to, &actor, &facts(&Kind::Build, &owner), Some("because"));
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
        let (human, mine) = (Owner::Human, Owner::Agent(agent("mine")));
        for to in [State::Done, State::Todo] {
            let by = |actor: Actor, owner: &Owner| {
                transition(State::ToBeTested, to, &actor, &facts(&Kind::Build, owner), None).is_ok()
            };
            assert!(by(Actor::Human(None), &human) && !by(Actor::Human(None), &mine));
            assert!(by(Actor::Agent(agent("mine")), &mine) && !by(Actor::Agent(agent("mine")), &human));
            assert!(!by(Actor::Human(None), &Owner::Unassigned));
        }
    }

    #[test]
    fn types_other_than_build_may_skip_their_test() {
        let owner = Owner::Agent(agent("mine"));
        let skip = |kind: &Kind| {
            let actor = Actor::Agent(agent("mine"));
            transition(State::InProgress, State::Done, &actor, &facts(kind, &owner), None).is_ok()
        };
        for kind in [Kind::Test, Kind::Review, Kind::Investigate, Kind::Followup] {
            assert!(skip(&kind), "{kind}");
        }
        assert!(!skip(&Kind::Build));
        assert!(!skip(&Kind::Custom("deploy".into())), "custom types follow build (§6)");
    }

    #[test]
    fn what_a_move_needs_is_asked_for_with_its_section() {
        let owner = Owner::Agent(agent("mine"));
        let (mine, human) = (Actor::Agent(agent("mine")), Actor::Human(None));
        let ready = facts(&Kind::Build, &owner);
        let refused = |from, to, actor: &Actor, facts: &Facts<'_>, reason| {
            transition(from, to, actor, facts, reason).expect_err("refused").section()
        };
        use State::*;
        let bare = Facts { has_acceptance: false, ..ready.clone() };
        assert_eq!(refused(Todo, InProgress, &mine, &bare, None), "7.2");
        let unmet = Facts { unmet: Some("it depends on B".into()), ..ready.clone() };
        assert_eq!(refused(Todo, InProgress, &mine, &unmet, None), "5.2");
        assert_eq!(refused(Blocked, InProgress, &human, &unmet, None), "5.2");
        for (from, to) in [(Todo, Blocked), (Todo, Rejected), (Rejected, Todo), (InProgress, Rejected)] {
            assert_eq!(refused(from, to, &human, &ready, Some(" ")), "7.2");
        }
        let fresh = Facts { silent_hours: 2, ..ready.clone() };
        assert_eq!(refused(InProgress, Todo, &human, &fresh, Some("why")), "8.1.1");
        assert_eq!(refused(InProgress, Todo, &human, &ready, None), "8.1.1");
        assert_eq!(refused(InProgress, Todo, &mine, &ready, Some("why")), "8.1.1");
        let review = Facts { kind: &Kind::Review, ..ready.clone() };
        assert_eq!(refused(Todo, InProgress, &mine, &review, None), "6");
        assert_eq!(refused(Todo, InProgress, &Actor::Agent(agent("other")), &ready, None), "5.1");
    }
}
