//! §2: makes a repository Codifica-enabled.

use serde::Serialize;
use serde_json::json;

use super::brief::CONTRACT;
use super::contract::MARKER;
use crate::board::BoardError;
use crate::names::AgentName;
use crate::store::tree::RepoTree;
use crate::store::{BoardCommit, Effects, FileEdit};

const SPEC: &str = "codifica-spec.md";
const STATE: &str = "work.md";
const ARCHIVE: &str = "work-archive.md";

/// The protocol's text, for repositories without another copy. The contract of agents is added verbatim.
const SPECIFICATION: &str = include_str!("specification.md");

/// A file, and whether it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScaffoldedFile {
    pub path: String,
    pub made: bool,
}

/// Makes missing files. With `force`, generated files are written again; tasks never are.
pub fn scaffold(
    tree: &RepoTree,
    agents: &[AgentName],
    force: bool,
) -> Result<(Vec<ScaffoldedFile>, Effects), BoardError> {
    let allowed: Vec<String> = agents.iter().map(|agent| format!("agent:{agent}")).collect();
    let contract = json!({
        "protocol": "codifica",
        "version": "0.2",
        "spec": SPEC,
        "state": [STATE, ARCHIVE],
        "assets": "assets/",
        "rules": {
            "mode": "strict",
            "allowed_agents": allowed,
            "file_scope": { "include": ["**"], "exclude": [".env", "**/.env", "agency.toml", ".github/**"] },
            "stale_claim_hours": 24,
        },
    });
    let files = [
        (MARKER, format!("{contract:#}\n"), force),
        (
            SPEC,
            format!(
                "{SPECIFICATION}\n## 11. Agent Contract (Mandatory)\n\nAll agents must receive this instruction:\n\n```\n{CONTRACT}```\n"
            ),
            force,
        ),
        (STATE, work("Work", "Active"), false),
        (ARCHIVE, work("Archive", "Done"), false),
    ];
    let (mut deeds, mut effects, mut edits) = (Vec::new(), Effects::none(), Vec::new());
    for (path, content, anew) in files {
        let old = tree.read_text(path)?;
        let made = old.is_none() || (anew && old.as_deref() != Some(&content));
        if made {
            edits.push(FileEdit {
                path: path.to_owned(),
                before: old.clone().unwrap_or_default(),
                after: content.clone(),
            });
            effects.put(path, old.as_deref(), content);
        }
        deeds.push(ScaffoldedFile { path: path.to_owned(), made });
    }
    if !edits.is_empty() {
        effects.commit = Some(BoardCommit { message: "codifica 0.2".to_owned(), edits, is_needed: false });
    }
    Ok((deeds, effects))
}

fn work(title: &str, section: &str) -> String {
    format!(
        "<!-- Tasks of the Codifica protocol: see {MARKER} and {SPEC}. -->\n\n# {title}\n\n## {section}\n\n```yaml\n```\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::{Codifica, CodificaSettings};
    use super::*;

    #[test]
    fn what_is_made_is_a_board_and_a_second_time_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = RepoTree::open(folder.path()).expect("a tree");
        let (deeds, effects) = scaffold(&tree, &[], false).expect("made");
        assert_eq!((deeds.len(), effects.changes.len()), (4, 4));
        for change in &effects.changes {
            if let crate::store::FileChange::Create { path, content } = change {
                tree.create(path, content.as_bytes()).expect("made");
            }
        }
        let board = Codifica::open(&tree, CodificaSettings::default()).expect("a board");
        assert_eq!(
            super::super::lint::lint(&board, &tree, jiff::Timestamp::UNIX_EPOCH, &|_| None).expect("looked"),
            []
        );
        assert!(board.list_for_new(&tree).is_ok());
        assert!(scaffold(&tree, &[], true).expect("looked").1.is_empty());
    }
}
