//! §15.1: old work put aside.
//!
//! Only what is over goes: tasks that are DONE or CANCELED, with their reports and artifacts, earlier ones of the
//! same day included. An old task that is still open stays where it is, however old. The views show what is left.

use jiff::Zoned;
use jiff::civil::Date;

use super::KodingX;
use super::layout::{self, Kind, Place};
use super::task::Task;
use super::views::Row;
use crate::board::BoardError;
use crate::names::TaskId;
use crate::store::Effects;
use crate::store::tree::Tree;

/// What was put aside.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Archived {
    pub tasks: Vec<TaskId>,
    pub files: usize,
}

impl KodingX {
    /// Puts aside what is over and was made more than `days` days ago.
    pub fn archive(&self, tree: &Tree, days: u32, now: &Zoned) -> Result<(Archived, Effects), BoardError> {
        let now = self.local(now);
        let limit = now.date().saturating_sub(jiff::Span::new().days(i64::from(days)));
        let mut archived = Archived::default();
        let mut effects = Effects::none();
        let listing = self.tasks(tree)?;
        let is_over = |(place, task): &(Place, Task)| task.status.is_final() && is_before(place, limit);
        let over = listing.tasks.iter().filter(|entry| is_over(entry));
        let rest: Vec<Place> = [Kind::Report, Kind::Artifact]
            .into_iter()
            .map(|kind| layout::places(tree, kind, false))
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
        let rows: Vec<Row> = left.map(|(_, task)| Row::of(task)).collect();
        let effects = effects.and(self.show_rows(tree, &rows, &now)?);
        Ok((archived, effects))
    }
}

/// A file, and the earlier ones that were kept beside it.
fn versions(tree: &Tree, place: &Place) -> Vec<Place> {
    let mut versions = vec![place.clone()];
    if let (None, Some(date)) = (&place.agent, &place.date) {
        let earlier = (1..).map(|number| layout::earlier_artifact_path(date, &place.stem, number));
        let kept = earlier.take_while(|path| tree.exists(path));
        versions.extend(kept.map(|path| Place { path, ..place.clone() }));
    }
    versions
}

/// Whether a file lies in the folder of a day before `limit`.
fn is_before(place: &Place, limit: Date) -> bool {
    place.date.as_deref().and_then(|date| date.parse::<Date>().ok()).is_some_and(|date| date < limit)
}
