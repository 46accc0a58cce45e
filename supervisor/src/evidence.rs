//! What was seen when a Definition of Done was tried, as a board keeps it.

use std::path::Path;

use agency_profiles::proof::{CommandProof, Proof};
use agency_protocols::board::ProofEvidence;
use serde_json::{Map, Value, json};

/// The note for work that no auditor judged.
pub const UNAUDITED: &str = "no auditor is configured: the commands decide alone";

/// `root` is the work tree.
pub fn from_proof(proof: &Proof, root: &Path) -> ProofEvidence {
    let mut commands = Vec::new();
    for command in &proof.commands {
        // Artifacts are committed: where a repository lies on this machine does not belong in them.
        let log = command.log.as_deref().map(|log| log.strip_prefix(root).unwrap_or(log).to_owned());
        let command = CommandProof { log, ..command.clone() };
        commands.push(serde_json::to_value(command).unwrap_or_default());
    }
    let mut bound_to = Map::new();
    for (key, value) in [
        ("commit", json!(proof.commit)),
        ("tree", json!(proof.tree)),
        ("dirty", json!(proof.dirty)),
        ("profile_hash", json!(proof.hash)),
        ("isolation", json!(proof.level)),
        ("attestation", serde_json::to_value(&proof.attestation).unwrap_or_default()),
    ] {
        if value != Value::Null {
            bound_to.insert(key.to_owned(), value);
        }
    }
    let mut notes = proof.notes.clone();
    if !proof.changed_meanwhile.is_empty() {
        let files: Vec<String> = proof.changed_meanwhile.iter().map(ToString::to_string).collect();
        notes
            .push(format!("changed while the commands were run, so nothing is proved: {}", files.join(", ")));
    }
    ProofEvidence { profile: proof.profile.clone(), passed: proof.passed(), commands, notes, bound_to }
}
