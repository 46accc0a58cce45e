//! How an agent ended, written down before what it did is collected.
//!
//! Collecting takes a while, and a shim may be killed meanwhile. Everything that only the shim knows is in this file then;
//! the rest is in the layer, which stays ([`agency_sandbox::workspace::state::Run::keep_while`]). So another shim can go on
//! from here, and an hour of an agent's work is not lost for a kill in its last second.
//!
//! Nothing of it is synced: after a crash of the machine the layer may lack what was never written to the disk. The file
//! says in which boot it was written, and is not believed in another.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Place;
use super::outcome::{End, Usage};
use crate::hearing::Heard;
use crate::owner;

pub(super) const NAME: &str = "ended.json";

/// An agent that has ended, and whose changes are to be collected.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndedAgent {
    /// The boot in which it ended.
    pub(super) boot: String,
    /// Seconds since 1970.
    pub(super) started_at: i64,
    /// The folder of the sandbox's run.
    pub(super) run: PathBuf,
    /// What the agent changed.
    pub(super) upper: PathBuf,
    pub(super) end: End,
    pub(super) elapsed_ms: u64,
    pub(super) usage: Option<Usage>,
    pub(super) heard: Option<Heard>,
    pub(super) attestation: Value,
    pub(super) network: Value,
    pub(super) output: Value,
}

impl EndedAgent {
    pub(super) fn write(&self, place: &Place) -> io::Result<()> {
        let beside = place.file("ended.json.new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, place.file(NAME))
    }

    pub(super) fn open_upper(&self) -> io::Result<File> {
        File::open(&self.upper)
    }
}

impl Place {
    /// The agent that ended here and is to be collected; `None` if there is none, or nothing is left to collect.
    pub(super) fn ended(&self) -> Option<EndedAgent> {
        let text = fs::read(self.file(NAME)).ok()?;
        let ended: EndedAgent = serde_json::from_slice(&text).ok()?;
        (ended.boot == owner::boot() && ended.upper.is_dir()).then_some(ended)
    }
}
