//! §9: the states of a task, and who may move it from one to another.

use std::fmt;

use serde::Serialize;

use crate::names::{Actor, AgentName};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    New,
    Assigned,
    InProgress,
    Blocked,
    ReadyForReview,
    Done,
    Canceled,
}

impl Status {
    pub const ALL: [Status; 7] = [
        Status::New,
        Status::Assigned,
        Status::InProgress,
        Status::Blocked,
        Status::ReadyForReview,
        Status::Done,
        Status::Canceled,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Status::New => "NEW",
            Status::Assigned => "ASSIGNED",
            Status::InProgress => "IN_PROGRESS",
            Status::Blocked => "BLOCKED",
            Status::ReadyForReview => "READY_FOR_REVIEW",
            Status::Done => "DONE",
            Status::Canceled => "CANCELED",
        }
    }

    /// As it stands in files, which is exact.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// As people type it: `in-progress` is meant as `IN_PROGRESS`.
    pub fn typed(text: &str) -> Option<Self> {
        Self::read(&text.to_ascii_uppercase().replace(['-', ' '], "_"))
    }

    /// Whether nothing more will happen to the task.
    pub const fn is_final(self) -> bool {
        matches!(self, Status::Done | Status::Canceled)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a move needs beside the right actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// A sentence that says why.
    Reason,
    /// A report, and a verification that passed or was overridden by a person.
    Proof,
}

/// Why a move is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("{from} → {to} is no transition of the protocol (§9.2); from {from} a task can go to {}", list(.next))]
    NoTransition { from: Status, to: Status, next: Vec<Status> },
    #[error("{from} → {to} is for {wanted}, and {actor} asked for it (§9.2)")]
    NotTheirs { from: Status, to: Status, wanted: &'static str, actor: String },
    #[error("{from} → {to} needs a reason (§9.2)")]
    NoReason { from: Status, to: Status },
}

fn list(statuses: &[Status]) -> String {
    if statuses.is_empty() {
        return "no other state".to_owned();
    }
    statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(", ")
}

/// Who may make a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Orchestrator,
    /// The agent the task is assigned to.
    Builder,
    Either,
}

/// The table of §9.2. Our one extension: it knows no way out of BLOCKED but CANCELED, so the orchestrator may
/// assign a blocked task again, with a reason.
fn rule(from: Status, to: Status) -> Option<(By, Needs)> {
    use Status::*;
    match (from, to) {
        (New, Assigned) => Some((By::Orchestrator, Needs::Nothing)),
        (Assigned, InProgress) => Some((By::Either, Needs::Nothing)),
        (InProgress, ReadyForReview) => Some((By::Builder, Needs::Nothing)),
        (InProgress, Blocked) => Some((By::Builder, Needs::Reason)),
        (ReadyForReview, Done) => Some((By::Orchestrator, Needs::Proof)),
        (ReadyForReview, InProgress) => Some((By::Either, Needs::Nothing)),
        (Blocked, Assigned) => Some((By::Orchestrator, Needs::Reason)),
        (New | Assigned | InProgress | Blocked | ReadyForReview | Done, Canceled) => {
            Some((By::Orchestrator, Needs::Nothing))
        }
        (New, New | InProgress | Blocked | ReadyForReview | Done)
        | (Assigned, New | Assigned | Blocked | ReadyForReview | Done)
        | (InProgress, New | Assigned | InProgress | Done)
        | (Blocked, New | InProgress | Blocked | ReadyForReview | Done)
        | (ReadyForReview, New | Assigned | Blocked | ReadyForReview)
        | (Done, New | Assigned | InProgress | Blocked | ReadyForReview | Done)
        | (Canceled, _) => None,
    }
}

/// Whether an actor may move a task of `assignee`, and what the move needs.
///
/// A human may act as orchestrator or as builder (§3.3).
pub fn transition(
    from: Status,
    to: Status,
    actor: &Actor,
    assignee: &AgentName,
    reason: Option<&str>,
) -> Result<Needs, Refused> {
    let Some((by, needs)) = rule(from, to) else {
        let next = Status::ALL.into_iter().filter(|next| rule(from, *next).is_some()).collect();
        return Err(Refused::NoTransition { from, to, next });
    };
    let (may, wanted) = match (by, actor) {
        (_, Actor::Human(_)) => (true, ""),
        (By::Orchestrator, Actor::Orchestrator) | (By::Either, Actor::Orchestrator) => (true, ""),
        (By::Builder | By::Either, Actor::Agent(name)) => (name == assignee, "the agent it is assigned to"),
        (By::Orchestrator, Actor::Agent(_)) => (false, "the orchestrator"),
        (By::Builder, Actor::Orchestrator) => (false, "the builder"),
    };
    if !may {
        return Err(Refused::NotTheirs { from, to, wanted, actor: actor.to_string() });
    }
    if needs == Needs::Reason && reason.is_none_or(|reason| reason.trim().is_empty()) {
        return Err(Refused::NoReason { from, to });
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentName {
        AgentName::parse(name).expect("a name")
    }

    /// Every pair of states, with who may make the move: o(rchestrator), b(uilder).
    #[test]
    fn the_table_of_transitions_is_the_specifications() {
        use Status::*;
        let allowed = [
            (New, Assigned, "o"),
            (Assigned, InProgress, "ob"),
            (InProgress, ReadyForReview, "b"),
            (InProgress, Blocked, "b"),
            (ReadyForReview, Done, "o"),
            (ReadyForReview, InProgress, "ob"),
            (Blocked, Assigned, "o"),
            (New, Canceled, "o"),
            (Assigned, Canceled, "o"),
            (InProgress, Canceled, "o"),
            (Blocked, Canceled, "o"),
            (ReadyForReview, Canceled, "o"),
            (Done, Canceled, "o"),
        ];
        let (codex, other) = (agent("codex"), Actor::Agent(agent("other")));
        for from in Status::ALL {
            for to in Status::ALL {
                let who =
                    allowed.iter().find(|(f, t, _)| (*f, *t) == (from, to)).map_or("", |(_, _, who)| who);
                let may = |actor: &Actor| transition(from, to, actor, &codex, Some("because")).is_ok();
                assert_eq!(may(&Actor::Orchestrator), who.contains('o'), "{from} {to} orchestrator");
                assert_eq!(may(&Actor::Agent(codex.clone())), who.contains('b'), "{from} {to} builder");
                assert_eq!(may(&Actor::Human(None)), !who.is_empty(), "{from} {to} human");
                assert!(!may(&other), "{from} {to} another agent");
            }
        }
    }

    #[test]
    fn a_block_and_its_end_need_a_reason() {
        let codex = agent("codex");
        let builder = Actor::Agent(codex.clone());
        for (from, to, actor) in [
            (Status::InProgress, Status::Blocked, builder),
            (Status::Blocked, Status::Assigned, Actor::Orchestrator),
        ] {
            for reason in [None, Some(" ")] {
                let refused = transition(from, to, &actor, &codex, reason);
                assert_eq!(refused, Err(Refused::NoReason { from, to }));
            }
            assert_eq!(transition(from, to, &actor, &codex, Some("why")), Ok(Needs::Reason));
        }
    }
}
