//! The result of a job, as it was seen from outside the sandbox.

use agency_protocols::board::ProofEvidence;
use agency_protocols::claim::AgentClaim;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::output_signals::{AgentUsage, OutputSignal};

/// The format of an outcome.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobOutcome {
    pub version: u32,
    /// Seconds since 1970.
    pub started_at: i64,
    pub ended_at: i64,
    /// The same, for those who put it beside other things that happened.
    #[serde(default)]
    pub times: Option<TimeSpan>,
    /// Why it was stopped, if it was asked to stop.
    pub stopped: Option<StopReason>,
    pub done: JobResult,
}

/// From when to when, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSpan {
    pub from: u64,
    pub to: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "done", rename_all = "snake_case")]
pub enum JobResult {
    Agent(Box<AgentOutcome>),
    Proof(ProofOutcome),
    /// Nothing was run.
    NotRun {
        reason: String,
        hint: Option<String>,
        /// Whether the setup of the workspace failed, and not the sandbox.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        of_setup: bool,
    },
    /// There was no room for it on the disk, so nothing was run. It may be begun again.
    NoRoom {
        reason: String,
    },
    /// What it needs of this machine did not answer, so nothing was run. It may be begun again.
    Away {
        reason: String,
    },
    /// It was run, and ended by something that is no part of it.
    Lost {
        reason: String,
    },
    /// It was run, and what it did could not be read or kept.
    Unread {
        reason: String,
    },
    /// It was stopped before there was anything to say.
    Stopped,
}

/// Why a job was ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The task is not wanted any more.
    Canceled,
    /// Its lease ran out, and no supervisor renewed it.
    LeaseEnded,
    /// Another process sent the shim a signal.
    Signal,
}

/// What an agent did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentOutcome {
    pub end: ProgramEnd,
    pub elapsed_ms: u64,
    /// Paths in scope that differ, up to a size; of more, the number.
    pub changed: Vec<String>,
    #[serde(default)]
    pub changed_left_out: u64,
    /// Why nothing of it may land, path by path; the same.
    pub violations: Vec<String>,
    #[serde(default)]
    pub violations_left_out: u64,
    /// What a person's scope would have to spell for some of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub openings: Vec<String>,
    /// Whether something of what must change did.
    pub did_something: bool,
    /// The commit that has its work; `None` where there is none, or none that may land.
    pub candidate: Option<String>,
    /// What it wrote, redacted and read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<AgentClaim>,
    /// What it wrote as it is, redacted: in outcomes of shims that did not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<String>,
    /// What it says it used.
    #[serde(default)]
    pub usage: Option<AgentUsage>,
    /// What it said of itself that decides how its end is understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<OutputSignal>,
    pub warnings: Vec<String>,
    pub attestation: Value,
    pub network: Value,
    pub output: Value,
}

/// As many texts as are kept of a list that an agent made long, and how many are left out. Every command that looks at
/// the task reads its outcome, and whole.
pub(super) fn kept(texts: impl Iterator<Item = String>, most: usize) -> (Vec<String>, u64) {
    let (mut kept, mut left_out, mut room) = (Vec::new(), 0, LONGEST_LIST);
    for text in texts {
        match room.checked_sub(text.len()).filter(|_| kept.len() < most && left_out == 0) {
            Some(left) => {
                room = left;
                kept.push(text);
            }
            None => left_out += 1,
        }
    }
    (kept, left_out)
}

/// Bytes of one list.
const LONGEST_LIST: usize = 1 << 20;

/// How its program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum ProgramEnd {
    Exited {
        code: i32,
    },
    Signaled {
        signal: i32,
    },
    /// It ran for longer than it may.
    Wall,
    /// It was silent for longer than it may.
    Stall,
    Memory,
    /// It was asked to.
    Asked,
    NotStarted {
        error: i32,
    },
}

/// The result of trying a Definition of Done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProofOutcome {
    pub evidence: ProofEvidence,
    /// The whole proof.
    pub proof: Value,
    /// When each command was run, in their order.
    #[serde(default)]
    pub times: Vec<TimeSpan>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_up_to_its_number_and_its_bytes_and_the_rest_is_counted() {
        let many = || (0..100).map(|number| number.to_string());
        assert_eq!(kept(many(), 1000).1, 0);
        let (few, left_out) = kept(many(), 7);
        assert_eq!((few.len(), left_out), (7, 93));
        let (long, left_out) = kept((0..100).map(|_| "x".repeat(100_000)), 1000);
        assert_eq!((long.len(), left_out), (10, 90));
    }
}
