//! The Codifica protocol, v0.2: tasks in state files, claimed and moved by commits.
//!
//! One module for each part of the specification, named by what it is: [`contract`] (§3.1), [`state_file`] and [`block`]
//! (§3.2: where tasks are in a file, and what one is made of), [`task`] (§5, §6), [`selection`] (§5.1),
//! [`dependencies`] (§5.2), [`transitions`] (§7), [`notes`] (§5, §10), [`brief`] (§8.2, §11). [`task_edit`] edits one
//! task's bytes; [`actions`], [`evidence`], [`archive`] and [`migrate`] are what can be done to a board; [`lint`] says
//! whether a repository complies.
//!
//! Git alone arbitrates between clones: every change of a task is a commit of that task's block alone, pushed where
//! there is an upstream.

pub mod actions;
pub mod archive;
pub mod block;
mod board;
pub mod brief;
pub mod contract;
pub mod dependencies;
pub mod evidence;
pub mod lint;
pub mod migrate;
pub mod notes;
pub mod report;
pub mod scaffold;
pub mod selection;
pub mod state_file;
pub mod task;
pub mod task_edit;
pub mod transitions;
mod verbs;

pub(crate) use report::read as read_report;

use std::collections::BTreeSet;

use crate::board::BoardError;
use crate::finding::Finding;
use crate::names::{AgentName, TaskId};
use crate::store::tree::{RepoTree, RepoTreeError};
use block::{TaskBlock, quick_id};
use contract::{Contract, ContractError};
use state_file::{TaskList, TaskSpan};
use task::{ParsedTask, Task};

/// The profile of a task that names none, for any repository.
pub const PROFILE: &str = "auto";
/// Where a repository keeps profiles of its own.
pub const PROFILES: &str = ".codifica/profiles";

/// A board in a repository.
#[derive(Debug, Clone)]
pub struct Codifica {
    pub contract: Contract,
    pub setting: CodificaSettings,
}

/// Settings that are not in the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodificaSettings {
    /// The name of this clone, by which it knows its own claims.
    pub site: Option<String>,
    /// The agent for unassigned tasks.
    pub agent: Option<AgentName>,
}

/// A task, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedTask {
    /// Which of the listing's files.
    pub file: usize,
    pub span: TaskSpan,
    pub task: Task,
}

/// All tasks of a board.
#[derive(Debug, Default)]
pub struct StateListing {
    /// Path and text.
    pub files: Vec<(String, String)>,
    /// In the order in which they are written.
    pub tasks: Vec<ListedTask>,
    /// Findings about the tasks. A task that can't be understood is only here.
    pub findings: Vec<Finding>,
    /// The ids of tasks that can't be understood, where they are known.
    pub unread: Vec<String>,
    double: BTreeSet<String>,
}

impl StateListing {
    pub fn path(&self, listed: &ListedTask) -> &str {
        &self.files[listed.file].0
    }

    pub fn block(&self, listed: &ListedTask) -> &str {
        &self.files[listed.file].1[listed.span.range.clone()]
    }

    pub fn get(&self, id: &str) -> Option<&ListedTask> {
        self.tasks.iter().find(|listed| listed.task.id.as_str() == id)
    }

    pub fn path_count(&self) -> usize {
        self.files.len()
    }

    pub fn is_duplicate(&self, id: &str) -> bool {
        self.double.contains(id)
    }
}

/// One task, with the file it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedTask {
    pub file: String,
    pub text: String,
    pub span: TaskSpan,
    pub task: Task,
}

impl LocatedTask {
    pub fn block(&self) -> &str {
        &self.text[self.span.range.clone()]
    }

    pub(crate) fn parsed(&self) -> Result<TaskBlock<'_>, BoardError> {
        TaskBlock::parse(self.block(), self.span.line).map_err(|error| unreadable(&self.file, error))
    }
}

pub(crate) fn unreadable(file: &str, error: block::BlockError) -> BoardError {
    BoardError::Unreadable(vec![Finding::error(file, Some(error.line), "5", error.reason)])
}

impl Codifica {
    pub fn open(tree: &RepoTree, setting: CodificaSettings) -> Result<Self, BoardError> {
        let contract = Contract::read(tree).map_err(contract_error)?;
        let board = Self { contract, setting };
        board.contract.state_files(tree).map_err(contract_error)?;
        Ok(board)
    }

    /// Every task. One that can't be read hides none of the others.
    pub fn tasks(&self, tree: &RepoTree) -> Result<StateListing, BoardError> {
        let (paths, findings) = self.contract.state_files(tree).map_err(contract_error)?;
        let mut listing = StateListing { findings, ..StateListing::default() };
        for path in paths {
            match text(tree, &path) {
                Ok(None) => {}
                Ok(Some(text)) => self.read_file(&mut listing, path, text),
                Err(finding) => listing.findings.push(finding),
            }
        }
        find_doubles(&mut listing);
        Ok(listing)
    }

    fn read_file(&self, listing: &mut StateListing, path: String, text: String) {
        let (lists, findings) = state_file::lists(&path, &text);
        listing.findings.extend(findings);
        let file = listing.files.len();
        for span in lists.into_iter().flat_map(|list| list.spans) {
            let written = &text[span.range.clone()];
            let ParsedTask { task, findings } = match TaskBlock::parse(written, span.line) {
                Ok(block) => Task::read(&path, &block, span.line, &self.contract),
                Err(error) => ParsedTask {
                    task: None,
                    findings: vec![Finding::error(&path, Some(error.line), "5", error.reason)],
                },
            };
            listing.findings.extend(findings);
            match task {
                Some(task) => listing.tasks.push(ListedTask { file, span, task }),
                None => {
                    let id = quick_id(written).map(str::to_owned).or_else(|| parse_id(written, span.line));
                    listing.unread.extend(id);
                }
            }
        }
        listing.files.push((path, text));
    }

    /// The task with this id. Only blocks that may have the id are parsed.
    pub fn find(&self, tree: &RepoTree, id: &TaskId) -> Result<LocatedTask, BoardError> {
        let (paths, _) = self.contract.state_files(tree).map_err(contract_error)?;
        let mut found: Vec<(String, String, TaskSpan)> = Vec::new();
        for path in paths {
            let Some(text) = text(tree, &path).ok().flatten() else { continue };
            let (lists, _) = state_file::lists(&path, &text);
            let is_it = |span: &TaskSpan| {
                let written = &text[span.range.clone()];
                match quick_id(written) {
                    Some(quick) => quick == id.as_str(),
                    None => parse_id(written, span.line).as_deref() == Some(id.as_str()),
                }
            };
            let spans: Vec<TaskSpan> = lists.into_iter().flat_map(|list| list.spans).filter(is_it).collect();
            found.extend(spans.into_iter().map(|span| (path.clone(), text.clone(), span)));
        }
        if found.len() > 1 {
            let at = |(path, _, span): &(String, String, TaskSpan)| format!("{path}:{}", span.line);
            return Err(BoardError::Ambiguous { id: id.to_string(), files: found.iter().map(at).collect() });
        }
        let Some((file, text, span)) = found.pop() else {
            return Err(BoardError::NoSuchTask { id: id.to_string() });
        };
        let block = TaskBlock::parse(&text[span.range.clone()], span.line)
            .map_err(|error| unreadable(&file, error))?;
        let ParsedTask { task, mut findings } = Task::read(&file, &block, span.line, &self.contract);
        match task {
            Some(task) => Ok(LocatedTask { file, text, span, task }),
            None => {
                findings.retain(Finding::is_error);
                Err(BoardError::Unreadable(findings))
            }
        }
    }

    /// The list for new tasks: the first one.
    pub(crate) fn list_for_new(&self, tree: &RepoTree) -> Result<(String, String, TaskList), BoardError> {
        let (paths, _) = self.contract.state_files(tree).map_err(contract_error)?;
        for path in &paths {
            let Some(text) = tree.read_text(path)? else { continue };
            if let Some(list) = state_file::lists(path, &text).0.into_iter().next() {
                return Ok((path.clone(), text, list));
            }
        }
        let all = paths.join(", ");
        Err(BoardError::refused(format!(
            "there is no block of YAML in {all} that a task could be put into (§3.2)"
        ))
        .with_hint("add one: a line ```yaml and a line ```"))
    }
}

fn parse_id(written: &str, line: usize) -> Option<String> {
    let block = TaskBlock::parse(written, line).ok()?;
    let read = block.value("id").ok()??;
    crate::text::yaml::text_of(&read.value)
}

/// §4.1: an id belongs to one task.
fn find_doubles(listing: &mut StateListing) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let ids = listing.tasks.iter().map(|listed| listed.task.id.as_str());
    let ids = ids.chain(listing.unread.iter().map(String::as_str));
    let double: BTreeSet<String> = ids.filter(|id| !seen.insert(id)).map(str::to_owned).collect();
    for id in &double {
        let same: Vec<&ListedTask> =
            listing.tasks.iter().filter(|listed| listed.task.id.as_str() == id).collect();
        let places: Vec<String> =
            same.iter().map(|listed| format!("{}:{}", listing.path(listed), listed.span.line)).collect();
        let found = same.iter().map(|listed| {
            let message = format!("the id {id} is there more than once: {}", places.join(", "));
            Finding::error(listing.path(listed), Some(listed.span.line), "4.1", message).of_field("id")
        });
        let found: Vec<Finding> = found.collect();
        listing.findings.extend(found);
    }
    listing.double = double;
}

pub(crate) fn contract_error(error: ContractError) -> BoardError {
    match error {
        ContractError::Missing => BoardError::NoBoard,
        ContractError::Tree(error) => error.into(),
        error => BoardError::Marker(Box::new(error)),
    }
}

/// The text of a file. An error is a finding.
fn text(tree: &RepoTree, path: &str) -> Result<Option<String>, Finding> {
    tree.read_text(path).map_err(|error| {
        let line = match &error {
            RepoTreeError::NotText { line, .. } => Some(*line),
            _ => None,
        };
        // A finding names its file relative to the repository, and not by the repository's place on this machine.
        let named = tree.path().join(path).display().to_string();
        let message = match &error {
            RepoTreeError::Open { source, .. } => format!("it can't be read: {source}"),
            error => error.to_string().replacen(&named, "it", 1),
        };
        Finding::error(path, line, "3.2", message)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A board with these tasks in its one state file.
    pub(crate) fn board(tasks: &str) -> (tempfile::TempDir, RepoTree, Codifica) {
        board_with("\"strict\"", tasks)
    }

    pub(crate) fn board_with(rules: &str, tasks: &str) -> (tempfile::TempDir, RepoTree, Codifica) {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = RepoTree::open(folder.path()).expect("a tree");
        let contract = format!(
            "{{\"protocol\":\"codifica\",\"version\":\"0.2\",\"spec\":\"spec.md\",\"state\":\"work.md\",\"rules\":{rules}}}"
        );
        tree.create(contract::MARKER, contract.as_bytes()).expect("made");
        tree.create("spec.md", b"# Codifica\n").expect("made");
        tree.create("work.md", format!("# Work\n\n## Active\n\n```yaml\n{tasks}```\n\n## Done\n").as_bytes())
            .expect("made");
        let setting =
            CodificaSettings { site: Some("here".to_owned()), agent: AgentName::parse("default").ok() };
        let board = Codifica::open(&tree, setting).expect("a board");
        (folder, tree, board)
    }

    #[test]
    fn a_broken_task_and_a_double_id_hide_nothing() {
        let (_folder, tree, board) = board(
            "- id: A\n  type: test\n  state: todo\n  title: a: b\n- id: B\n  type: test\n  state: odd\n  title: x\n- id: C\n  type: test\n  state: todo\n  title: fine\n- id: D\n  type: test\n  state: todo\n  title: one\n- id: D\n  type: test\n  state: todo\n  title: two\n",
        );
        let listing = board.tasks(&tree).expect("read");
        let ids: Vec<&str> = listing.tasks.iter().map(|one| one.task.id.as_str()).collect();
        assert_eq!(ids, ["A", "C", "D", "D"], "a title is not needed to know how a task stands");
        assert_eq!(listing.unread, ["B"]);
        let told = |line: usize| listing.findings.iter().filter(|one| one.line == Some(line)).count();
        assert_eq!([9, 12, 18, 22].map(told), [1, 1, 1, 1], "{:#?}", listing.findings);
        assert!(matches!(
            board.find(&tree, &TaskId::parse("D").expect("an id")),
            Err(BoardError::Ambiguous { .. })
        ));
        assert!(matches!(
            board.find(&tree, &TaskId::parse("B").expect("an id")),
            Err(BoardError::Unreadable(_))
        ));
        assert!(matches!(
            board.find(&tree, &TaskId::parse("X").expect("an id")),
            Err(BoardError::NoSuchTask { .. })
        ));
        assert_eq!(board.find(&tree, &TaskId::parse("C").expect("an id")).expect("found").span.line, 14);
    }
}
