//! Ids as people type them: `1`, `t1` and `T1` are T0001 where no other task can be meant.

use agency_protocols::board::BoardError;
use agency_protocols::names::TaskId;

use super::{Caller, RepoContext};
use crate::app::error::CommandError;

/// How many tasks an error names.
const NAMED: usize = 5;

impl RepoContext {
    /// The id of the task that a typed id means. An id that a board has is taken as it is, and no board is listed for it.
    /// So is one that fits no task: the verb says what it always says.
    pub(crate) fn full_id(&self, who: &Caller, typed: &TaskId) -> Result<TaskId, CommandError> {
        // A board that can't be opened is the verb's to report.
        let Ok((boards, _)) = self.open_boards(who) else { return Ok(typed.clone()) };
        let boards = boards.all();
        let is_unknown = |error| matches!(error, BoardError::NoSuchTask { .. });
        if !boards.iter().all(|board| board.brief(self.tree(), typed).is_err_and(is_unknown)) {
            return Ok(typed.clone());
        }
        let lists = boards.iter().filter_map(|board| board.task_list(self.tree(), &Default::default()).ok());
        let mut ids: Vec<String> = lists.flat_map(|list| list.tasks).map(|task| task.id).collect();
        ids.retain(|id| is_short_for(typed.as_str(), id));
        ids.sort();
        ids.dedup();
        match ids.as_slice() {
            [] => Ok(typed.clone()),
            [one] => TaskId::parse(one).map_err(|error| CommandError::internal(&error)),
            [some @ .., last] => {
                let more = some.len().saturating_sub(NAMED);
                let named = match more {
                    0 => format!("{} or {last}", some.join(", ")),
                    more => format!("{} or {} others", some[..NAMED].join(", "), more + 1),
                };
                Err(CommandError::usage(format!("`{typed}` can be {named}")).with_hint("type the whole id"))
            }
        }
    }
}

/// Whether a typed text means an id: the same letters in any case, or none, and the same number with any zeros before it.
fn is_short_for(typed: &str, id: &str) -> bool {
    let ((letters, number), (all_letters, whole_number)) = (parts(typed), parts(id));
    number == whole_number
        && (letters.eq_ignore_ascii_case(all_letters) || letters.is_empty() && number.is_some())
}

/// What is before the number at the end of an id, and that number without the zeros before it.
fn parts(id: &str) -> (&str, Option<&str>) {
    let letters = id.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &id[letters.len()..];
    let number = (!number.is_empty()).then(|| number.trim_start_matches('0'));
    (letters.trim_end_matches(['-', '_']), number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_count_in_any_case_and_zeros_do_not() {
        for (typed, id) in [
            ("1", "T0001"),
            ("t1", "T0001"),
            ("T01", "T0001"),
            ("T000001", "T0001"),
            ("feat-1", "FEAT-001"),
            ("feat1", "FEAT-001"),
            ("001", "FEAT-001"),
            ("0", "T0000"),
            ("setup-db", "SETUP-DB"),
        ] {
            assert!(is_short_for(typed, id), "{typed} is not {id}");
        }
        for (typed, id) in [
            ("1", "T0010"),
            ("10", "T0001"),
            ("t", "T0001"),
            ("t", "T0000"),
            ("x1", "T0001"),
            ("feat", "FEAT-001"),
            ("f-1", "FEAT-001"),
            ("0", "SETUP-DB"),
        ] {
            assert!(!is_short_for(typed, id), "{typed} is {id}");
        }
    }
}
