//! §15.1: archives old work.
//!
//! Only finished work is archived: tasks that are DONE or CANCELED, with their reports and artifacts, earlier versions
//! of the same day included. An open task is never archived, however old. The views show the remaining tasks.

use jiff::Zoned;
use jiff::civil::Date;

use super::KodingX;
use super::layout::{self, BoardFileKind, BoardPath};
use super::task::Task;
use super::views::ViewRow;
use crate::board::BoardError;
use crate::names::TaskId;
use crate::store::Effects;
use crate::store::tree::RepoTree;

/// The archived files.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ArchiveCounts {
    pub tasks: Vec<TaskId>,
    pub files: usize,
}

impl KodingX {
    /// Archives finished tasks that were made more than `days` days ago.
    pub fn archive(
        &self,
        tree: &RepoTree,
        days: u32,
        now: &Zoned,
    ) -> Result<(ArchiveCounts, Effects), BoardError> {
        let now = self.local(now);
        let limit = now.date().saturating_sub(jiff::Span::new().days(i64::from(days)));
        let mut archived = ArchiveCounts::default();
        let mut effects = Effects::none();
        let listing = self.tasks(tree)?;
        let is_over = |(place, task): &(BoardPath, Task)| task.status.is_final() && is_before(place, limit);
        let over = listing.tasks.iter().filter(|entry| is_over(entry));
        let rest: Vec<BoardPath> = [BoardFileKind::Report, BoardFileKind::Artifact]
            .into_iter()
            .map(|kind| layout::list_files(tree, kind, false))
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        for (place, Task { id, .. }) in over {
            archived.tasks.push(id.clone());
            let about = rest.iter().filter(|other| other.is_about(id));
            for place in std::iter::once(place).chain(about).flat_map(|place| versions(tree, place)) {
                if let Some(text) = tree.read_text(&place.path)? {
                    effects.rename(&place.path, &text, place.archived_path(), &text);
                    archived.files += 1;
                }
            }
        }
        if archived.tasks.is_empty() {
            return Ok((archived, effects));
        }
        let left = listing.tasks.iter().filter(|entry| !is_over(entry));
        let rows: Vec<ViewRow> = left.map(|(_, task)| ViewRow::of(task)).collect();
        let effects = effects.and(self.rebuild_views_from(tree, &rows, &now)?);
        Ok((archived, effects))
    }
}

/// A file, and the earlier ones that were kept beside it.
fn versions(tree: &RepoTree, place: &BoardPath) -> Vec<BoardPath> {
    let mut versions = vec![place.clone()];
    if let (None, Some(date)) = (&place.agent, &place.date) {
        let earlier = (1..).map(|number| layout::earlier_artifact_path(date, &place.stem, number));
        let kept = earlier.take_while(|path| tree.exists(path));
        versions.extend(kept.map(|path| BoardPath { path, ..place.clone() }));
    }
    versions
}

/// Whether a file lies in the folder of a day before `limit`.
fn is_before(place: &BoardPath, limit: Date) -> bool {
    place.date.as_deref().and_then(|date| date.parse::<Date>().ok()).is_some_and(|date| date < limit)
}
