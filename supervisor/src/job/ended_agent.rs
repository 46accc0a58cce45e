//! How an agent ended, written down before what it did is collected.
//!
//! Collecting takes a while, and a shim may be killed meanwhile. Everything that only the shim knows is in this file then;
//! the rest is in the layer, which stays ([`agency_sandbox::workspace::state::RunFolder::keep_while`]). So another shim can go on
//! from here, and an hour of an agent's work is not lost for a kill in its last second.
//!
//! Nothing of it is synced: after a crash of the machine the layer may lack what was never written to the disk. The file
//! says in which boot it was written, and is not believed in another.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use agency_sandbox::boot;
use agency_sandbox::nonce::nonce;
use agency_sandbox::secret::NamedSecret;
use agency_sandbox::workspace::state::RunFolder;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::JobFolder;
use super::outcome::{ProgramEnd, StopReason};
use crate::output_signals::{AgentUsage, OutputSignal};

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
    /// What the agent changed; `None` if that goes with its sandbox.
    pub(super) upper: Option<PathBuf>,
    pub(super) secrets: SecretsDigest,
    pub(super) end: ProgramEnd,
    /// Why it was stopped, if it was asked to stop.
    pub(super) stopped: Option<StopReason>,
    pub(super) elapsed_ms: u64,
    pub(super) usage: Option<AgentUsage>,
    pub(super) heard: Option<OutputSignal>,
    pub(super) attestation: Value,
    pub(super) network: Value,
    pub(super) output: Value,
}

impl EndedAgent {
    pub(super) fn write(&self, place: &JobFolder) -> io::Result<()> {
        let beside = place.file("ended.json.new");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, place.file(NAME))
    }

    /// Makes its folder ours alone: it is a second chance, and there is no third. What ended
    /// the first shim may end this one, too.
    pub(super) fn take_over(self, place: &JobFolder) -> io::Result<OrphanedAgent> {
        let upper = self.upper.as_deref().ok_or(io::ErrorKind::NotFound)?;
        let (run, upper) = (RunFolder::adopt(&self.run)?, File::open(upper)?);
        fs::remove_file(place.file(NAME))?;
        Ok(OrphanedAgent { ended: self, run, upper })
    }
}

/// An agent that ended before its shim was killed, held by this process to be collected.
#[derive(Debug)]
pub(super) struct OrphanedAgent {
    pub(super) ended: EndedAgent,
    pub(super) run: RunFolder,
    pub(super) upper: File,
}

/// Tells whether an agent was given the same secrets that are known now, and tells none of them. What it did is searched
/// for its secrets, and those may have been changed since.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SecretsDigest {
    salt: String,
    digest: String,
}

impl SecretsDigest {
    pub(super) fn of(secrets: &[NamedSecret]) -> Self {
        let salt = nonce();
        Self { digest: digest(&salt, secrets), salt }
    }

    pub(super) fn fits(&self, secrets: &[NamedSecret]) -> bool {
        digest(&self.salt, secrets) == self.digest
    }
}

fn digest(salt: &str, secrets: &[NamedSecret]) -> String {
    let mut hash = Sha256::new_with_prefix(salt);
    for secret in secrets {
        hash.update((secret.value.len() as u64).to_le_bytes());
        hash.update(&secret.value);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl JobFolder {
    /// The agent that ended here and is to be collected; `None` if there is none, or nothing is left to collect.
    pub(super) fn ended(&self) -> Option<EndedAgent> {
        let text = fs::read(self.file(NAME)).ok()?;
        let ended: EndedAgent = serde_json::from_slice(&text).ok()?;
        let is_there = ended.upper.as_ref().is_some_and(|upper| upper.is_dir());
        (boot::is(&ended.boot) && is_there).then_some(ended)
    }

    /// No shim goes on from here: the next sandbox removes the layer.
    pub(crate) fn discard_ended(&self) {
        let _ = fs::remove_file(self.file(NAME));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_secrets_are_told_and_none_is_shown() {
        let secret = |value: &str| NamedSecret { name: "KEY".to_owned(), value: value.into() };
        let mark = SecretsDigest::of(&[secret("sk-one"), secret("sk-two")]);
        assert!(mark.fits(&[secret("sk-one"), secret("sk-two")]));
        for others in [vec![], vec![secret("sk-one")], vec![secret("sk-onesk-two")], vec![secret("sk-new")]] {
            assert!(!mark.fits(&others), "{others:?}");
        }
        assert!(!serde_json::to_string(&mark).expect("text").contains("sk-"));
    }
}
