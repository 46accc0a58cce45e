//! §5.1: unique ids of tasks.
//!
//! Ids are given out under the board's lock, so two processes never get the same one. Two clones can: each
//! makes a T0008, and the files lie beside each other after a merge. That is a finding, and
//! [`KodingX::renumber`] gives one of them a new id.

use jiff::Zoned;

use super::KodingX;
use super::actions::ViewUpdate;
use super::layout::{self, BoardFileKind};
use super::manifest::IdStrategy;
use super::task::Task;
use crate::board::BoardError;
use crate::names::TaskId;
use crate::store::Effects;
use crate::store::tree::{FolderEntry, RepoTree, RepoTreeError};
use crate::text::frontmatter::Frontmatter;
use crate::text::yaml;
use crate::timestamp::OffsetTimestamp;

/// The number of a sequential id.
pub fn number(id: &str) -> Option<u64> {
    let digits = id.strip_prefix('T')?;
    (digits.len() <= 12 && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())?
}

/// Whether text is an id of one strategy or the other.
pub fn is_id(id: &str) -> bool {
    number(id).is_some()
        || id.strip_prefix('T').is_some_and(|rest| rest.len() == 26 && ulid::Ulid::from_string(rest).is_ok())
}

impl KodingX {
    pub(super) fn next_id(&self, tree: &RepoTree, now: &Zoned) -> Result<TaskId, BoardError> {
        self.next_ids(tree, now)?()
    }

    /// Free ids, one after the other, for one commit.
    pub(super) fn next_ids(
        &self,
        tree: &RepoTree,
        now: &Zoned,
    ) -> Result<impl FnMut() -> Result<TaskId, BoardError>, BoardError> {
        let strategy = self.manifest.strategy;
        let mut last = match strategy {
            IdStrategy::Sequential => highest(tree, &OffsetTimestamp::from_zoned(now).date())?,
            IdStrategy::Ulid => 0,
        };
        let milliseconds = now.timestamp().as_millisecond().unsigned_abs();
        Ok(move || {
            last += 1;
            let text = match strategy {
                IdStrategy::Sequential => format!("T{last:04}"),
                IdStrategy::Ulid => format!("T{}", ulid::Ulid::from_parts(milliseconds, random()?)),
            };
            TaskId::parse(&text).map_err(|error| BoardError::refused(error.to_string()))
        })
    }

    /// Gives the task in `file` a new id, where two tasks have the same. References to the old id still mean the other
    /// task.
    pub fn renumber(&self, tree: &RepoTree, file: &str, now: &Zoned) -> Result<(Task, Effects), BoardError> {
        let now = self.local(now);
        let mut places = layout::list_files(tree, BoardFileKind::Task, false)?;
        places.retain(|place| place.path == file);
        let Some(place) = places.pop() else { return Err(BoardError::NoSuchTask { id: file.to_owned() }) };
        let found = self.read(tree, &place)?;
        let id = self.next_id(tree, &now)?;
        // The file goes to the folder of the day on which the task was made, which may be any.
        tree.memory.invalidate();
        let edited = Frontmatter::parse(&found.text)
            .and_then(|matter| matter.set("id", &yaml::scalar(id.as_str())))
            .map_err(|error| super::actions::unreadable(&place.path, error))?;
        let rest = place.stem.strip_prefix(place.id()).unwrap_or_default();
        let to = place.path.replace(&format!("{}.md", place.stem), &format!("{id}{rest}.md"));
        let mut effects = Effects::none();
        effects.rename(&place.path, &found.text, to, edited);
        let mut task = found.value;
        task.id = id;
        let effects = effects.and(self.update_views(tree, &[ViewUpdate::made(&task)], &now, None)?);
        Ok((task, effects))
    }
}

fn random() -> Result<u128, BoardError> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes[..10], rustix::rand::GetRandomFlags::empty())
        .map_err(|error| BoardError::refused(format!("there are no random numbers: {error}")))?;
    Ok(u128::from_le_bytes(bytes))
}

/// The highest number any task has had, archived ones included. `today` is the folder that new ones go to.
fn highest(tree: &RepoTree, today: &str) -> Result<u64, RepoTreeError> {
    let greatest = |folder: &str| {
        let names = tree.list(folder)?;
        Ok::<_, RepoTreeError>(names.iter().filter_map(of_name).max().unwrap_or(0))
    };
    let mut highest = 0;
    for top in BoardFileKind::Task.folders() {
        for agent in tree.list(top)?.iter().filter(|entry| entry.is_folder) {
            let agent = format!("{top}/{}", agent.name);
            // Files made since then in folders of earlier days are not known; and in a linked work tree git keeps its
            // files elsewhere, where no change would be noticed.
            let evidence = tree.change_stamp(today, &[&agent, ".git/index", ".git/HEAD"]);
            let fresh = tree.memory.cached(&agent, evidence).filter(|_| !tree.is_file(".git"));
            let found = match fresh {
                Some(known) => known.max(greatest(&format!("{agent}/{today}"))?),
                None => {
                    let entries = tree.list(&agent)?;
                    let days = tree.folder_stamps(&agent, &entries)?;
                    let of_day = |day: &str| greatest(&format!("{agent}/{day}"));
                    // Older tools and people put tasks beside the folders.
                    let beside = entries.iter().filter_map(of_name).max().unwrap_or(0);
                    tree.memory.greatest_number(&agent, evidence, &days, of_day)?.max(beside)
                }
            };
            highest = highest.max(found);
        }
    }
    Ok(highest)
}

/// The number a task's name begins with.
fn of_name(entry: &FolderEntry) -> Option<u64> {
    if entry.is_folder {
        return None;
    }
    let end = entry.name.find(['-', '.']).unwrap_or(entry.name.len());
    number(&entry.name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_both_strategies_are_known() {
        for id in ["T0001", "T001", "T10000", "T01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
            assert!(is_id(id), "{id}");
        }
        for id in ["", "T", "0001", "Tx", "T-1", "T01ARZ3NDEKTSV4RRFFQ69G5FA", "T01ARZ3NDEKTSV4RRFFQ69G5FAI"]
        {
            assert!(!is_id(id), "{id}");
        }
    }
}
