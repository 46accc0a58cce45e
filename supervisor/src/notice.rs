//! What a supervisor tells whoever listens, as it happens.

use serde::Serialize;

use crate::attempt::{Attempt, Ending, TaskKey};
use crate::dispatch::Standing;

/// Something people may want to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Notice {
    /// An attempt has come to another phase.
    Phase {
        attempt: Attempt,
    },
    /// An attempt that somebody else began is ours now.
    Adopted {
        attempt: Attempt,
    },
    /// It is over.
    Over {
        task: TaskKey,
        attempt: u64,
        agent: String,
        ending: Ending,
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
    /// Something went wrong that is nobody's work.
    Trouble {
        task: Option<TaskKey>,
        what: String,
    },
    /// Nothing new is started from here on.
    Draining,
    /// What runs is being stopped.
    Stopping,
    Paused,
    Resumed,
    /// How the queue stands, each time that is news.
    Standing(Standing),
}

/// Whoever listens.
pub trait Teller: Send + Sync {
    fn tell(&self, notice: &Notice);
}

/// Nobody listens.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Teller for Silent {
    fn tell(&self, _: &Notice) {}
}
