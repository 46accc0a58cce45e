//! §15.1: old work put aside.
//!
//! Only what is over goes: tasks that are DONE or CANCELED, with their reports and artifacts. An old task
//! that is still open stays where it is, however old.

use jiff::Zoned;
use jiff::civil::Date;

use super::KodingX;
use super::layout::{self, Kind, Place};
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
        let over: Vec<(&Place, &TaskId)> = listing
            .tasks
            .iter()
            .filter(|(place, task)| task.status.is_final() && is_before(place, limit))
            .map(|(place, task)| (place, &task.id))
            .collect();
        let rest: Vec<Place> = [Kind::Report, Kind::Artifact]
            .into_iter()
            .map(|kind| layout::places(tree, kind, false))
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        for (place, id) in over {
            archived.tasks.push(id.clone());
            let about = rest.iter().filter(|other| other.is_about(id));
            for place in std::iter::once(place).chain(about) {
                if let Some(text) = tree.read_text(&place.path)? {
                    effects.rename(&place.path, &text, place.archived_path(), &text);
                    archived.files += 1;
                }
            }
        }
        Ok((archived, effects))
    }
}

/// Whether a file lies in the folder of a day before `limit`.
fn is_before(place: &Place, limit: Date) -> bool {
    place.date.as_deref().and_then(|date| date.parse::<Date>().ok()).is_some_and(|date| date < limit)
}
