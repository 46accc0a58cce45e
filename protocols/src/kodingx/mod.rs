//! The KodingX Agency protocol, `agency/1.0`: tasks, reports and proofs as files in `.kodingx/`.
//!
//! One module for each part of the specification, named by what it is: [`layout`] (§4), [`manifest`] (§5),
//! [`task`] (§6), [`report`] (§7), [`views`] (§8), [`status`] (§9), [`artifact`] (§11), [`adapters`] (§12 to
//! §14), [`decisions`] (§20), [`risks`] (§21), [`scaffold`] (§15, §22). What can be done to a board is in
//! [`actions`], [`ids`], [`verification`], [`archive`] and [`migrate`]; [`lint`] says whether a repository
//! complies.
//!
//! A task's own file has its status. STATE.md and TASK_BOARD.md follow it: every action on a task puts it into both, in
//! the same commit.

pub mod actions;
pub mod adapters;
pub mod archive;
pub mod artifact;
mod board;
mod builder_report;
pub mod decisions;
mod done_gate;
mod followups;
mod generated_file;
mod header_fields;
pub mod ids;
pub mod layout;
pub mod lint;
pub mod manifest;
pub mod migrate;
pub mod report;
pub mod risks;
pub mod scaffold;
pub mod status;
pub mod task;
pub mod templates;
mod verbs;
pub mod verification;
pub mod views;

use jiff::Zoned;
use jiff::tz::TimeZone;

use crate::board::BoardError;
use crate::finding::Finding;
use crate::names::TaskId;
use crate::store::tree::{RepoTree, RepoTreeError};
use artifact::Artifact;
pub(crate) use builder_report::read as read_report;
use layout::{BoardFileKind, BoardPath};
use manifest::{BoardManifest, ManifestError};
use report::Report;
use task::{ParsedFile, Task};

/// A board in a repository.
#[derive(Debug, Clone)]
pub struct KodingX {
    pub manifest: BoardManifest,
}

/// A file of the board and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardFile<T> {
    pub place: BoardPath,
    pub text: String,
    pub value: T,
}

/// All tasks of a board.
#[derive(Debug, Default)]
pub struct TaskListing {
    /// In the order of paths.
    pub tasks: Vec<(BoardPath, Task)>,
    /// Findings about the tasks. A task that can't be understood is only here.
    pub findings: Vec<Finding>,
}

impl KodingX {
    pub fn open(tree: &RepoTree) -> Result<Self, BoardError> {
        match BoardManifest::read(tree) {
            Ok(manifest) => Ok(Self { manifest }),
            Err(ManifestError::Missing) => Err(BoardError::NoBoard),
            Err(ManifestError::Tree(error)) => Err(error.into()),
            Err(error) => Err(BoardError::Marker(Box::new(error))),
        }
    }

    pub fn zone(&self) -> &TimeZone {
        &self.manifest.zone
    }

    /// The time on this board's clock.
    pub fn local(&self, now: &Zoned) -> Zoned {
        now.with_time_zone(self.manifest.zone.clone())
    }

    /// Every task. One that can't be read hides none of the others.
    pub fn tasks(&self, tree: &RepoTree) -> Result<TaskListing, RepoTreeError> {
        self.read_tasks(tree, false)
    }

    /// Every archived task.
    pub fn archived_tasks(&self, tree: &RepoTree) -> Result<TaskListing, RepoTreeError> {
        self.read_tasks(tree, true)
    }

    fn read_tasks(&self, tree: &RepoTree, archived: bool) -> Result<TaskListing, RepoTreeError> {
        let mut listing = TaskListing::default();
        for place in layout::list_files(tree, BoardFileKind::Task, archived)? {
            match text(tree, &place.path, "6.2") {
                Ok(None) => {}
                Ok(Some(text)) => {
                    let ParsedFile { value, findings } = Task::read(&place.path, &text, self.zone());
                    listing.findings.extend(findings);
                    listing.tasks.extend(value.map(|task| (place, task)));
                }
                Err(finding) => listing.findings.push(finding),
            }
        }
        Ok(listing)
    }

    /// The task with this id, archived or not. File names are compared first; a file whose name differs from its header
    /// is found by reading all files.
    pub fn find(&self, tree: &RepoTree, id: &TaskId) -> Result<BoardFile<Task>, BoardError> {
        let mut named: Vec<BoardPath> = Vec::new();
        for archived in [false, true] {
            let about = layout::list_files(tree, BoardFileKind::Task, archived)?;
            named.extend(about.into_iter().filter(|place| place.is_about(id)));
        }
        if named.is_empty() {
            for listing in [self.tasks(tree)?, self.archived_tasks(tree)?] {
                let same = listing.tasks.into_iter().filter(|(_, task)| task.id == *id);
                named.extend(same.map(|(place, _)| place));
            }
        }
        match named.as_slice() {
            [] => Err(BoardError::NoSuchTask { id: id.to_string() }),
            [place] => self.read(tree, place),
            several => Err(BoardError::Ambiguous {
                id: id.to_string(),
                files: several.iter().map(|place| place.path.clone()).collect(),
            }),
        }
    }

    fn read(&self, tree: &RepoTree, place: &BoardPath) -> Result<BoardFile<Task>, BoardError> {
        let text = text(tree, &place.path, "6.2")
            .map_err(|finding| BoardError::Unreadable(vec![finding]))?
            .ok_or_else(|| BoardError::NoSuchTask { id: place.id().to_owned() })?;
        let ParsedFile { value, mut findings } = Task::read(&place.path, &text, self.zone());
        match value {
            Some(value) => Ok(BoardFile { place: place.clone(), text, value }),
            None => {
                findings.retain(Finding::is_error);
                Err(BoardError::Unreadable(findings))
            }
        }
    }

    /// The reports on a task, the newest last. One that can't be read is a finding.
    pub fn reports(
        &self,
        tree: &RepoTree,
        id: &TaskId,
    ) -> Result<(Vec<BoardFile<Report>>, Vec<Finding>), RepoTreeError> {
        let mut places = layout::list_files(tree, BoardFileKind::Report, false)?;
        places.extend(layout::list_files(tree, BoardFileKind::Report, true)?);
        Ok(self.read_reports(tree, places.into_iter().filter(|place| place.is_about(id))))
    }

    fn read_reports(
        &self,
        tree: &RepoTree,
        places: impl Iterator<Item = BoardPath>,
    ) -> (Vec<BoardFile<Report>>, Vec<Finding>) {
        let (mut reports, mut all) = (Vec::new(), Vec::new());
        for place in places {
            match text(tree, &place.path, "7.2") {
                Ok(None) => {}
                Ok(Some(text)) => {
                    let agent = place.agent.as_deref();
                    let ParsedFile { value, findings } = Report::read(&place.path, &text, agent, self.zone());
                    all.extend(findings);
                    reports.extend(value.map(|value| BoardFile { place, text, value }));
                }
                Err(finding) => all.push(finding),
            }
        }
        let when = |found: &BoardFile<Report>| {
            let finished = found.value.finished_at.map(crate::timestamp::OffsetTimestamp::timestamp);
            (found.place.date.clone(), finished)
        };
        reports.sort_by_key(when);
        (reports, all)
    }

    /// The newest artifact of a task.
    pub fn artifact(&self, tree: &RepoTree, id: &TaskId) -> Result<Option<BoardFile<Artifact>>, BoardError> {
        let mut places = Vec::new();
        for archived in [false, true] {
            let about = layout::list_files(tree, BoardFileKind::Artifact, archived)?;
            places.extend(about.into_iter().filter(|place| place.is_about(id)));
        }
        // Folders are dates; the newest is the greatest.
        places.sort_by(|a, b| a.date.cmp(&b.date));
        let Some(place) = places.pop() else { return Ok(None) };
        let text = text(tree, &place.path, "11.1")
            .map_err(|finding| BoardError::Unreadable(vec![finding]))?
            .unwrap_or_default();
        match Artifact::parse(&text) {
            Ok(value) if value.task_id == id.as_str() => Ok(Some(BoardFile { place, text, value })),
            Ok(value) => {
                let message = format!("its name says {id}, and its `task_id` is {}", value.task_id);
                Err(BoardError::Unreadable(vec![Finding::error(&place.path, None, "11.1", message)]))
            }
            Err(error) => {
                let message = format!("it is no verify artifact: {error}");
                let finding = Finding::error(&place.path, Some(error.line()), "11.1", message);
                Err(BoardError::Unreadable(vec![finding]))
            }
        }
    }
}

/// The text of a file. An error is a finding.
fn text(tree: &RepoTree, path: &str, section: &'static str) -> Result<Option<String>, Finding> {
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
        Finding::error(path, line, section, message)
    })
}
