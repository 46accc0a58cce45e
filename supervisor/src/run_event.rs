//! What a supervisor tells its listeners, as it happens.

use std::path::PathBuf;

use serde::Serialize;

use crate::attempt::{Attempt, AttemptEnd, TaskKey};

/// Something people may want to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RunEvent {
    /// An attempt has come to another phase.
    Phase {
        attempt: Attempt,
    },
    /// We took over an attempt that another supervisor began.
    Adopted {
        attempt: Attempt,
    },
    /// It is over.
    Over {
        task: TaskKey,
        attempt: u64,
        agent: String,
        ending: AttemptEnd,
    },
    /// It waits for a person.
    Waits {
        task: TaskKey,
        attempt: u64,
        why: String,
    },
    /// It will be tried again.
    Again {
        task: TaskKey,
        seconds: u64,
    },
    /// Something went wrong and belongs to no task's work.
    Trouble {
        task: Option<TaskKey>,
        what: String,
    },
    /// The checks of a profile run on the branch as it is, before the first task of the profile starts, and take a while.
    CheckingBase {
        profile: String,
    },
    /// What they came to there.
    BaseChecked {
        profile: String,
        result: BaseCheck,
    },
    /// Nothing new is started from here on.
    Draining,
    /// What runs is being stopped.
    Stopping,
    Paused,
    Resumed,
    /// How the queue stands, each time that is news.
    Standing(QueueStatus),
}

/// What the checks of a profile came to on the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BaseCheck {
    Passed,
    /// They fail. A task may be there to fix them.
    Failing {
        what: String,
        log: Option<PathBuf>,
    },
    /// They would fail for every task.
    Unfit {
        why: String,
        log: Option<PathBuf>,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The machine lacked something, or the job was stopped: nothing is known.
    Untried {
        why: String,
    },
}

impl BaseCheck {
    /// Whether a later run may believe it. What a person is told to change may have changed since.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, Self::Passed | Self::Failing { .. })
    }

    /// Why tasks of the profile don't start, if they don't.
    pub(crate) fn bars(&self) -> Option<&str> {
        match self {
            Self::Unfit { why, .. } => Some(why),
            Self::Passed | Self::Failing { .. } | Self::Untried { .. } => None,
        }
    }
}

/// Where a run is, in numbers and a few names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct QueueStatus {
    /// The tasks that are being worked on here.
    pub running: Vec<String>,
    /// How many could start, and wait for their turn.
    pub ready: usize,
    /// What can't go on before a person has done something.
    pub waits_for_you: Vec<HumanWait>,
    /// How many the board holds back: for other tasks, or for a decision.
    pub held_back: usize,
    /// How many another supervisor has.
    pub elsewhere: usize,
    /// Agents that can't work now, and their tasks with them.
    pub parked: Vec<ParkedAgent>,
    /// How many came to a good end in this run.
    pub done: usize,
    /// How many came to another one.
    pub failed: usize,
}

/// A task that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HumanWait {
    pub task: String,
    /// What for, in a sentence.
    pub why: String,
}

/// An agent that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ParkedAgent {
    pub agent: String,
    pub why: String,
    /// Seconds since 1970; `None` for a person to say.
    pub until: Option<i64>,
}

/// A listener to events.
pub trait EventSink: Send + Sync {
    fn tell(&self, notice: &RunEvent);
}

/// A sink that drops every event.
#[derive(Debug, Clone, Copy)]
pub struct NullSink;

impl EventSink for NullSink {
    fn tell(&self, _: &RunEvent) {}
}
