//! §17: migrates a repository to another version of the protocol.
//!
//! A migration is a sequence of steps between versions, forwards or backwards. There is no agency/2.0 yet, and a
//! request for it says so.

use super::KodingX;
use super::layout;
use super::manifest::{BoardManifest, ProtocolVersion};
use crate::board::BoardError;
use crate::store::Effects;
use crate::store::tree::RepoTree;
use crate::text::frontmatter::Frontmatter;
use crate::text::yaml;

/// A step from one version to the next, and back.
#[derive(Debug, Clone, Copy)]
pub struct MigrationStep {
    pub from: ProtocolVersion,
    pub to: ProtocolVersion,
    /// The changes of files, besides the version.
    pub change: fn(&RepoTree, &mut Effects) -> Result<(), BoardError>,
}

const V1_0: ProtocolVersion = ProtocolVersion { major: 1, minor: 0 };
const V1_1: ProtocolVersion = ProtocolVersion { major: 1, minor: 1 };

/// agency/1.1 only adds fields that 1.0 allows, too: only the version is to be written.
const STEPS: &[MigrationStep] = &[
    MigrationStep { from: V1_0, to: V1_1, change: nothing },
    MigrationStep { from: V1_1, to: V1_0, change: nothing },
];

fn nothing(_: &RepoTree, _: &mut Effects) -> Result<(), BoardError> {
    Ok(())
}

impl KodingX {
    /// The repository in another version. The one it has already is no change.
    pub fn migrate(&self, tree: &RepoTree, to: ProtocolVersion) -> Result<Effects, BoardError> {
        self.migrate_by(STEPS, tree, to)
    }

    fn migrate_by(
        &self,
        steps: &[MigrationStep],
        tree: &RepoTree,
        to: ProtocolVersion,
    ) -> Result<Effects, BoardError> {
        let mut effects = Effects::none();
        if to == self.manifest.version {
            return Ok(effects);
        }
        let Some(way) = way(steps, self.manifest.version, to) else {
            let known: Vec<String> = steps.iter().map(|step| step.to.to_string()).collect();
            return Err(BoardError::refused(format!(
                "there is no way from {} to {to}",
                self.manifest.version
            ))
            .with_hint(format!("versions that can be migrated to: {}", known.join(", "))));
        };
        for step in way {
            (step.change)(tree, &mut effects)?;
        }
        let manifest = with_version(&self.manifest, to);
        effects.replace(self.manifest.path, &self.manifest.text, manifest);
        if let Some(state) = tree.read_text(layout::STATE)? {
            let written = Frontmatter::parse(&state)
                .and_then(|matter| matter.set("protocol", &yaml::quoted(&to.to_string())))
                .map_err(|error| {
                    BoardError::refused(format!("{}:{}: {}", layout::STATE, error.line, error.reason))
                })?;
            effects.replace(layout::STATE, &state, written);
        }
        Ok(effects)
    }
}

/// The steps from one version to another, the fewest there are.
fn way(steps: &[MigrationStep], from: ProtocolVersion, to: ProtocolVersion) -> Option<Vec<MigrationStep>> {
    let mut ways: Vec<Vec<MigrationStep>> =
        steps.iter().filter(|step| step.from == from).map(|step| vec![*step]).collect();
    for _ in 0..steps.len() {
        if let Some(found) = ways.iter().find(|way| way.last().is_some_and(|step| step.to == to)) {
            return Some(found.clone());
        }
        ways = ways
            .iter()
            .flat_map(|way| {
                let end = way.last().map(|step| step.to);
                let onward = steps.iter().filter(move |step| Some(step.from) == end);
                onward.map(|step| way.iter().chain([step]).copied().collect())
            })
            .collect();
    }
    None
}

/// The manifest's text with another version in it; no other byte changes.
fn with_version(manifest: &BoardManifest, to: ProtocolVersion) -> String {
    let old = format!("\"{}\"", manifest.version);
    let key = manifest.text.find("\"protocol\"").unwrap_or(0);
    let (before, after) = manifest.text.split_at(key);
    [before, &after.replacen(&old, &format!("\"{to}\""), 1)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::FileChange;

    const V2_0: ProtocolVersion = ProtocolVersion { major: 2, minor: 0 };

    fn board() -> (tempfile::TempDir, RepoTree, KodingX) {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = RepoTree::open(folder.path()).expect("a tree");
        tree.create(
            layout::MANIFEST,
            b"{\"note\": \"agency/1.0\",\n  \"protocol\" : \"agency/1.0\", \"mine\": 1}",
        )
        .expect("a manifest");
        tree.create(layout::STATE, b"---\nprotocol: \"agency/1.0\" # here\n---\nmine\n").expect("a state");
        let board = KodingX::open(&tree).expect("a board");
        (folder, tree, board)
    }

    fn content<'e>(effects: &'e Effects, path: &str) -> &'e str {
        let written = effects.changes.iter().find(|change| change.path() == path).expect("a change");
        match written {
            FileChange::Create { content, .. }
            | FileChange::Replace { content, .. }
            | FileChange::Move { content, .. } => content,
        }
    }

    #[test]
    fn only_the_version_is_written_and_back_is_where_it_was() {
        let (_folder, tree, board) = board();
        let effects = board.migrate(&tree, V1_1).expect("a way");
        let manifest = content(&effects, layout::MANIFEST);
        assert_eq!(manifest, "{\"note\": \"agency/1.0\",\n  \"protocol\" : \"agency/1.1\", \"mine\": 1}");
        assert_eq!(content(&effects, layout::STATE), "---\nprotocol: \"agency/1.1\" # here\n---\nmine\n");
        assert!(board.migrate(&tree, V1_0).expect("no way to go").is_empty());
    }

    #[test]
    fn a_version_that_does_not_exist_is_refused() {
        let (_folder, tree, board) = board();
        let refused = board.migrate(&tree, V2_0).expect_err("refused").to_string();
        assert_eq!(refused, "there is no way from agency/1.0 to agency/2.0");
    }

    /// The machinery for a breaking change, with one made up.
    #[test]
    fn a_way_of_several_steps_is_found_and_each_changes_its_files() {
        fn risks(_: &RepoTree, effects: &mut Effects) -> Result<(), BoardError> {
            effects.create(layout::RISKS, "new in 2.0");
            Ok(())
        }
        let (_folder, tree, board) = board();
        let steps = [STEPS, &[MigrationStep { from: V1_1, to: V2_0, change: risks }]].concat();
        let effects = board.migrate_by(&steps, &tree, V2_0).expect("a way");
        assert_eq!(content(&effects, layout::RISKS), "new in 2.0");
        assert!(content(&effects, layout::MANIFEST).contains("agency/2.0"));
    }
}
