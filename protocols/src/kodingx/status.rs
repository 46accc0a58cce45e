//! §9: the states of a task, their transitions, and which actor may make them.

use std::fmt;

use serde::Serialize;

use crate::names::{Actor, AgentName};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskStatus {
    New,
    Assigned,
    InProgress,
    Blocked,
    ReadyForReview,
    Done,
    Canceled,
}

impl TaskStatus {
    pub const ALL: [TaskStatus; 7] = [
        TaskStatus::New,
        TaskStatus::Assigned,
        TaskStatus::InProgress,
        TaskStatus::Blocked,
        TaskStatus::ReadyForReview,
        TaskStatus::Done,
        TaskStatus::Canceled,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            TaskStatus::New => "NEW",
            TaskStatus::Assigned => "ASSIGNED",
            TaskStatus::InProgress => "IN_PROGRESS",
            TaskStatus::Blocked => "BLOCKED",
            TaskStatus::ReadyForReview => "READY_FOR_REVIEW",
            TaskStatus::Done => "DONE",
            TaskStatus::Canceled => "CANCELED",
        }
    }

    /// Parses a state as files have it, exactly.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Parses a state as people type it: `in-progress` means `IN_PROGRESS`.
    pub fn typed(text: &str) -> Option<Self> {
        Self::read(&text.to_ascii_uppercase().replace(['-', ' '], "_"))
    }

    /// Whether nothing more will happen to the task.
    pub const fn is_final(self) -> bool {
        matches!(self, TaskStatus::Done | TaskStatus::Canceled)
    }
}

impl fmt::Display for TaskStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a move requires besides the right actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusRequirement {
    Nothing,
    /// A reason, in a sentence.
    Reason,
    /// A report, and a verification that passed or was overridden by a person.
    Proof,
}

/// Why a move is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatusTransitionError {
    #[error("can't move from {from} to {to} (§9.2); allowed: {}", list(.next))]
    NoTransition { from: TaskStatus, to: TaskStatus, next: Vec<TaskStatus> },
    #[error("{from} → {to} is for {wanted}, and {actor} asked for it (§9.2)")]
    NotTheirs { from: TaskStatus, to: TaskStatus, wanted: &'static str, actor: String },
    #[error("{from} → {to} needs a reason (§9.2)")]
    NoReason { from: TaskStatus, to: TaskStatus },
}

fn list(statuses: &[TaskStatus]) -> String {
    if statuses.is_empty() {
        return "none".to_owned();
    }
    statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(", ")
}

/// The actor that may make a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusActor {
    Orchestrator,
    /// The agent the task is assigned to.
    Builder,
    Either,
}

/// The table of §9.2, with one extension: the specification allows only CANCELED after BLOCKED; here the orchestrator
/// may also assign a blocked task again, with a reason.
fn rule(from: TaskStatus, to: TaskStatus) -> Option<(StatusActor, StatusRequirement)> {
    use TaskStatus::*;
    match (from, to) {
        (New, Assigned) => Some((StatusActor::Orchestrator, StatusRequirement::Nothing)),
        (Assigned, InProgress) => Some((StatusActor::Either, StatusRequirement::Nothing)),
        (InProgress, ReadyForReview) => Some((StatusActor::Builder, StatusRequirement::Nothing)),
        (InProgress, Blocked) => Some((StatusActor::Builder, StatusRequirement::Reason)),
        (ReadyForReview, Done) => Some((StatusActor::Orchestrator, StatusRequirement::Proof)),
        (ReadyForReview, InProgress) => Some((StatusActor::Either, StatusRequirement::Nothing)),
        (Blocked, Assigned) => Some((StatusActor::Orchestrator, StatusRequirement::Reason)),
        (New | Assigned | InProgress | Blocked | ReadyForReview | Done, Canceled) => {
            Some((StatusActor::Orchestrator, StatusRequirement::Nothing))
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
    from: TaskStatus,
    to: TaskStatus,
    actor: &Actor,
    assignee: &AgentName,
    reason: Option<&str>,
) -> Result<StatusRequirement, StatusTransitionError> {
    let Some((by, needs)) = rule(from, to) else {
        let next = TaskStatus::ALL.into_iter().filter(|next| rule(from, *next).is_some()).collect();
        return Err(StatusTransitionError::NoTransition { from, to, next });
    };
    let (may, wanted) = match (by, actor) {
        (_, Actor::Human(_)) => (true, ""),
        (StatusActor::Orchestrator, Actor::Orchestrator) | (StatusActor::Either, Actor::Orchestrator) => {
            (true, "")
        }
        (StatusActor::Builder | StatusActor::Either, Actor::Agent(name)) => {
            (name == assignee, "the agent it is assigned to")
        }
        (StatusActor::Orchestrator, Actor::Agent(_)) => (false, "the orchestrator"),
        (StatusActor::Builder, Actor::Orchestrator) => (false, "the builder"),
    };
    if !may {
        return Err(StatusTransitionError::NotTheirs { from, to, wanted, actor: actor.to_string() });
    }
    if needs == StatusRequirement::Reason && reason.is_none_or(|reason| reason.trim().is_empty()) {
        return Err(StatusTransitionError::NoReason { from, to });
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
        use TaskStatus::*;
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
        for from in TaskStatus::ALL {
            for to in TaskStatus::ALL {
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
            (TaskStatus::InProgress, TaskStatus::Blocked, builder),
            (TaskStatus::Blocked, TaskStatus::Assigned, Actor::Orchestrator),
        ] {
            for reason in [None, Some(" ")] {
                let refused = transition(from, to, &actor, &codex, reason);
                assert_eq!(refused, Err(StatusTransitionError::NoReason { from, to }));
            }
            assert_eq!(transition(from, to, &actor, &codex, Some("why")), Ok(StatusRequirement::Reason));
        }
    }
}
