//! §3.2: archives finished tasks in a file that `state` still covers. They keep their ids, and tasks that depend on
//! them still find them done.

use jiff::{Timestamp, Zoned};
use serde::Serialize;

use super::block::TaskBlock;
use super::contract::StateLocation;
use super::{Codifica, ListedTask, StateListing, notes, state_file};
use crate::board::BoardError;
use crate::names::TaskId;
use crate::store::tree::RepoTree;
use crate::store::{BoardCommit, Effects, FileEdit};

/// The archived tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ArchivedTasks {
    pub tasks: Vec<TaskId>,
    /// The archive file.
    pub file: String,
}

/// A state file without tasks.
const EMPTY: &str =
    "# Archive\n\nFinished tasks (§3.2). Ids stay unique across all state files.\n\n```yaml\n```\n";

impl Codifica {
    /// Archives tasks that were completed more than `days` days ago.
    pub fn archive(
        &self,
        tree: &RepoTree,
        days: u32,
        now: &Zoned,
    ) -> Result<(ArchivedTasks, Effects), BoardError> {
        let file = self.archive_file()?;
        let limit = now.timestamp().as_second() - i64::from(days) * 24 * 3600;
        let listing = self.tasks(tree)?;
        let is_over = |listed: &&ListedTask| {
            let completed = completed(&listing, listed);
            listed.task.state.is_final()
                && listing.path(listed) != file
                && !listing.is_duplicate(listed.task.id.as_str())
                && completed.is_some_and(|at| at.as_second() <= limit)
        };
        let over: Vec<&ListedTask> = listing.tasks.iter().filter(is_over).collect();
        let mut archived = ArchivedTasks { file: file.clone(), ..ArchivedTasks::default() };
        let mut effects = Effects::none();
        if over.is_empty() {
            return Ok((archived, effects));
        }
        archived.tasks = over.iter().map(|listed| listed.task.id.clone()).collect();
        let mut edits = Vec::new();
        for (at, (path, old)) in listing.files.iter().enumerate() {
            let mut text = old.clone();
            for listed in over.iter().rev().filter(|listed| listed.file == at) {
                let range = listed.span.range.clone();
                // The blank line before the task is removed with it.
                let blank =
                    old[range.end..].split_inclusive('\n').next().filter(|line| line.trim().is_empty());
                let end = range.end + blank.map_or(0, str::len);
                edits.push(FileEdit {
                    path: path.clone(),
                    before: old[range.start..end].to_owned(),
                    after: String::new(),
                });
                text.replace_range(range.start..end, "");
            }
            effects.replace(path, old, text);
        }
        let old = tree.read_text(&file)?;
        let text = old.clone().unwrap_or_else(|| EMPTY.to_owned());
        let (lists, _) = state_file::lists(&file, &text);
        let Some(list) = lists.last() else {
            return Err(BoardError::refused(format!(
                "there is no block of YAML in {file} to put tasks into (§3.2)"
            ))
            .with_hint("add one: a line ```yaml and a line ```"));
        };
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut more = String::new();
        for listed in &over {
            let block = listing.block(listed);
            let from = block.len() - block.trim_start_matches(' ').len();
            more.push_str(&indented(block, from, list.indent).replace('\n', newline));
        }
        let (before, after) = text.split_at(list.end);
        let apart = if before.is_empty() || before.ends_with('\n') { "" } else { newline };
        let new = [before, apart, &more, after].concat();
        edits.push(FileEdit {
            path: file.clone(),
            before: old.clone().unwrap_or_default(),
            after: new.clone(),
        });
        effects.put(&file, old.as_deref(), new);
        let message = format!("{} finished tasks put aside", archived.tasks.len());
        effects.commit = Some(BoardCommit { message, edits, is_needed: false });
        Ok((archived, effects))
    }

    /// The archive file: one that `state` covers.
    fn archive_file(&self) -> Result<String, BoardError> {
        let found = match &self.contract.state {
            StateLocation::Path(_) => None,
            StateLocation::Paths(paths) => {
                paths.iter().find(|path| path.contains("archive") || path.contains("done")).cloned()
            }
            StateLocation::Glob(glob) => {
                let named = glob.replace("**/", "").replace('*', "archive");
                Some(named).filter(|named| self.contract.is_state(named))
            }
        };
        found.ok_or_else(|| {
            BoardError::refused(format!(
                "`state` is {}: it covers no file to put tasks aside in (§3.2)",
                self.contract.state
            ))
            .with_hint("make it a list with an archive in codifica.json: [\"work.md\", \"work-archive.md\"]")
        })
    }
}

/// When a task was finished: `completed_at`, or else its last move to the state it is in. Old tasks have only the
/// latter (§12.3).
fn completed(listing: &StateListing, listed: &ListedTask) -> Option<Timestamp> {
    if let Some(at) = listed.task.completed_at.as_deref().and_then(notes::parse_time) {
        return Some(at);
    }
    let block = TaskBlock::parse(listing.block(listed), listed.span.line).ok()?;
    let state = listed.task.state.as_str();
    let step = notes::steps(&block).into_iter().rfind(|step| step.to.as_deref() == Some(state))?;
    notes::parse_time(&step.timestamp?)
}

/// A block, indented as another list.
fn indented(block: &str, from: usize, to: usize) -> String {
    let mut out = String::with_capacity(block.len());
    for line in block.replace("\r\n", "\n").split_inclusive('\n') {
        match line.trim().is_empty() {
            true => out.push('\n'),
            false => out.extend([&" ".repeat(to), line.get(from..).unwrap_or(line.trim_start())]),
        }
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::CodificaSettings;
    use super::*;

    #[test]
    fn what_is_over_moves_whole_and_the_rest_stays_to_the_byte() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = RepoTree::open(folder.path()).expect("a tree");
        let contract =
            r#"{"protocol":"codifica","version":"0.2","spec":"s.md","state":["work.md","work-archive.md"]}"#;
        tree.create("codifica.json", contract.as_bytes()).expect("made");
        tree.create("s.md", b"").expect("made");
        let done = "  - id: A\n    type: test\n    state: done\n    title: x\n    completed_at: 2026-01-01T00:00:00Z\n    description: |\n      ```yaml\n      x\n      ```\n";
        let text = format!(
            "# Work\n```yaml\n# mine\n{done}\n  - id: B\n    type: test\n    state: done\n    title: x\n  - id: C\n    type: test\n    state: todo\n    title: x\n    depends_on: [A]\n```\nEnd.\n"
        );
        tree.create("work.md", text.as_bytes()).expect("made");
        let board = Codifica::open(&tree, CodificaSettings::default()).expect("a board");
        let now: Zoned = "2026-03-01T00:00:00+00:00[UTC]".parse().expect("a time");
        assert!(board.archive(&tree, 90, &now).expect("looked").1.is_empty());
        let (archived, effects) = board.archive(&tree, 30, &now).expect("put aside");
        assert_eq!((archived.tasks.len(), archived.file.as_str()), (1, "work-archive.md"));
        for change in &effects.changes {
            match change {
                crate::store::FileChange::Replace { path, content, .. } => {
                    assert_eq!(
                        (path.as_str(), content),
                        ("work.md", &text.replace(&format!("{done}\n"), ""))
                    );
                }
                crate::store::FileChange::Create { path, content } => {
                    tree.create(path, content.as_bytes()).expect("made");
                }
                other => panic!("{other:?}"),
            }
        }
        let kept = tree.read_text("work-archive.md").expect("read").expect("there");
        assert!(
            kept.contains("\n- id: A\n  type: test\n") && kept.contains("\n    ```yaml\n    x\n"),
            "{kept}"
        );
        tree.replace("work.md", text.replace(&format!("{done}\n"), "").as_bytes()).expect("written");
        let listing = board.tasks(&tree).expect("read");
        assert!(listing.findings.is_empty(), "{:?}", listing.findings);
        let known = super::super::dependencies::DependencyStates::of(&listing);
        assert_eq!(known.unmet(&listing.get("C").expect("there").task), None);
    }
}
