//! §9: evidence, as files in the folder of a task. A proof is one of them.

use jiff::Zoned;
use serde_json::{Value, json};

use super::actions::format_time;
use super::notes::{Artifact, ExecutionNote, Provenance};
use super::{Codifica, notes, unreadable};
use crate::board::{BoardError, ProofEvidence, TaskScope};
use crate::names::TaskId;
use crate::store::tree::RepoTree;
use crate::store::{Effects, FileEdit};

/// The endings of pictures' names.
const PICTURES: [&str; 10] = ["png", "jpg", "jpeg", "gif", "webp", "svg", "bmp", "avif", "tiff", "ico"];
/// How deep pictures are searched, and how many.
const DEEPEST: usize = 6;
const MOST: usize = 5_000;

/// The records of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceRecord {
    pub artifact_path: String,
    pub passed: bool,
}

impl Codifica {
    /// The folder of a task's evidence.
    pub fn folder_of(&self, id: &TaskId) -> String {
        format!("{}/{id}", self.contract.assets)
    }

    /// The scope of an agent on a task: the file scope, and the task's own folder of evidence; never the board, and
    /// never an existing picture.
    pub(super) fn scope(&self, kept: &[String], id: &TaskId) -> TaskScope {
        let mut touch = self.contract.rules.include.clone();
        touch.push(format!("{}/**", self.folder_of(id)));
        TaskScope { touch, keep: kept.to_vec(), ..TaskScope::default() }
    }

    /// Files that no agent may change in any task.
    pub(super) fn protected_globs(&self, tree: &RepoTree) -> Result<Vec<String>, BoardError> {
        let mut keep = self.contract.rules.exclude.clone();
        keep.extend(self.board_files());
        keep.push(literal(&self.contract.spec));
        // An agent must not change the files that decide how its work is judged.
        keep.extend(["agency.toml".to_owned(), format!("{}/**", super::PROFILES)]);
        keep.extend(self.pictures(tree)?.iter().map(|path| literal(path)));
        keep.sort();
        keep.dedup();
        Ok(keep)
    }

    /// The contract and the state files, those that are not there yet included.
    pub(super) fn board_files(&self) -> Vec<String> {
        let mut files = vec![super::contract::MARKER.to_owned()];
        files.extend(match &self.contract.state {
            super::contract::StateLocation::Path(path) => vec![literal(path)],
            super::contract::StateLocation::Paths(paths) => paths.iter().map(|path| literal(path)).collect(),
            super::contract::StateLocation::Glob(glob) => vec![glob.clone()],
        });
        files
    }

    fn pictures(&self, tree: &RepoTree) -> Result<Vec<String>, BoardError> {
        let mut found = Vec::new();
        let mut waiting = vec![(self.contract.assets.clone(), 0)];
        while let Some((folder, depth)) = waiting.pop() {
            for entry in tree.list(&folder)? {
                let path = format!("{folder}/{}", entry.name);
                let ending = entry.name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
                if entry.is_folder && depth < DEEPEST {
                    waiting.push((path, depth + 1));
                } else if ending.is_some_and(|ending| PICTURES.contains(&ending.as_str()))
                    && found.len() < MOST
                {
                    found.push(path);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Records a proof: as a file, as an artifact, and as a note. The same proof twice is recorded once.
    pub fn record_verification(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        evidence: &ProofEvidence,
        by: &str,
        now: &Zoned,
    ) -> Result<(EvidenceRecord, Effects), BoardError> {
        let found = self.find(tree, id)?;
        let name = match evidence.bound_to.get("verify").and_then(Value::as_str) {
            Some(verify) => format!("verify-{}", safe(verify)),
            None => {
                format!("verify-{}", now.with_time_zone(jiff::tz::TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ"))
            }
        };
        let path = format!("{}/{name}.json", self.folder_of(id));
        let verified = EvidenceRecord { artifact_path: path.clone(), passed: evidence.passed };
        if tree.exists(&path) {
            return Ok((verified, Effects::none()));
        }
        let result = if evidence.passed { "pass" } else { "fail" };
        let document = json!({
            "version": 1,
            "protocol": "codifica/0.2",
            "task_id": id.as_str(),
            "timestamp": format_time(now),
            "profile": evidence.profile,
            "result": result,
            "commands": evidence.commands,
            "notes": evidence.notes,
            "evidence": evidence.bound_to,
        });
        let content = format!("{document:#}\n");
        let block = found.parsed()?;
        let count = evidence.commands.len();
        let said = match evidence.passed {
            true => format!("Verified with `{}`: all {count} commands passed", evidence.profile),
            false => format!("Verification with `{}` failed", evidence.profile),
        };
        let commit = evidence.bound_to.get("commit").and_then(Value::as_str).map(str::to_owned);
        let provenance = Provenance { session_id: notes::session(&block), commit_sha: commit };
        let note = ExecutionNote {
            by: Some(by.to_owned()),
            note: format!("{said}; see {path}."),
            summary: Some(said),
            timestamp: Some(format_time(now)),
            provenance,
        };
        let artifact = Artifact { path: path.clone(), kind: Some("verification".to_owned()) };
        let mut draft = self.draft(&found)?;
        draft
            .push("execution_notes", &note.node())
            .and_then(|()| draft.push("artifacts", &artifact.node()))
            .map_err(|error| unreadable(&found.file, error))?;
        let patch = self.finished(found, draft)?;
        let mut effects = self.effects(vec![patch], format!("{id}: verified, {result}"), false);
        effects.create(&path, &content);
        if let Some(commit) = &mut effects.commit {
            commit.edits.push(FileEdit { path, before: String::new(), after: content });
        }
        Ok((verified, effects))
    }
}

/// A path as a glob that matches nothing else.
fn literal(path: &str) -> String {
    let mut glob = String::with_capacity(path.len());
    for character in path.chars() {
        if "*?[]{}\\!".contains(character) {
            glob.push('\\');
        }
        glob.push(character);
    }
    glob
}

fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::board_with;
    use super::*;

    #[test]
    fn a_scope_is_the_file_scope_without_the_board_and_without_pictures() {
        let rules = r#"{"file_scope":{"include":["src/**","work.md"],"exclude":["src/secret/**"]}}"#;
        let (_folder, tree, board) = board_with(rules, "- id: A\n  type: build\n  state: todo\n  title: x\n");
        tree.create("assets/A/old [1].PNG", b"").expect("made");
        tree.create("assets/A/notes.txt", b"").expect("made");
        let kept = board.protected_globs(&tree).expect("a list");
        let scope = board.scope(&kept, &TaskId::parse("A").expect("an id"));
        assert_eq!(scope.touch, ["src/**", "work.md", "assets/A/**"]);
        let kept = [
            ".codifica/profiles/**",
            "agency.toml",
            "assets/A/old \\[1\\].PNG",
            "codifica.json",
            "spec.md",
            "src/secret/**",
            "work.md",
        ];
        assert_eq!(scope.keep, kept);
        assert!(scope.keep.iter().all(|glob| crate::scope_glob::check(glob).is_ok()));
    }

    #[test]
    fn a_proof_is_a_file_an_artifact_and_a_note_and_is_kept_once() {
        let (_folder, tree, board) = board_with(
            "\"strict\"",
            "- id: A\n  type: build\n  state: to_be_tested\n  owner: agent:x\n  title: x\n",
        );
        let id = TaskId::parse("A").expect("an id");
        let mut bound_to = serde_json::Map::new();
        bound_to.insert("verify".into(), "A-1-1".into());
        let evidence = ProofEvidence {
            profile: "make".into(),
            passed: true,
            commands: vec![json!({})],
            notes: Vec::new(),
            bound_to,
        };
        let now: Zoned = "2026-01-31T16:10:00+00:00[UTC]".parse().expect("a time");
        let (verified, effects) =
            board.record_verification(&tree, &id, &evidence, "agent:x", &now).expect("kept");
        assert_eq!(verified.artifact_path, "assets/A/verify-A-1-1.json");
        let commit = effects.commit.as_ref().expect("a commit");
        assert_eq!(commit.edits.len(), 2);
        assert!(commit.edits[0].after.contains("type: verification"), "{:?}", commit.edits[0].after);
        tree.create(&verified.artifact_path, b"{}").expect("made");
        let (_, again) = board.record_verification(&tree, &id, &evidence, "agent:x", &now).expect("kept");
        assert!(again.is_empty());
    }
}
