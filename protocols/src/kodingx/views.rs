//! §8: the views of the tasks: STATE.md for machines and TASK_BOARD.md for people.
//!
//! Both are computed from the tasks; text that people wrote in them stays. An action that changed one task puts that
//! task into both views. That costs nearly the same on a board of ten tasks and on one of ten thousand. Making the
//! views from all tasks gives the same text, which a property test checks.

use std::collections::BTreeMap;

use serde_yaml::Value;

use super::status::TaskStatus;
use super::task::{Priority, Task};
use crate::text::frontmatter::{Frontmatter, FrontmatterError};
use crate::text::region::{self, CommentStyle, RegionError};
use crate::text::yaml;
use crate::timestamp::OffsetTimestamp;

/// How many finished tasks the views show.
pub const RECENT: usize = 20;

/// What the views show of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewRow {
    pub id: String,
    pub title: String,
    pub priority: Priority,
    pub status: TaskStatus,
    pub assignee: String,
}

impl ViewRow {
    pub fn of(task: &Task) -> Self {
        Self {
            id: task.id.to_string(),
            title: one_line(&task.title),
            priority: task.priority,
            status: task.status,
            assignee: task.assignee.to_string(),
        }
    }
}

fn one_line(title: &str) -> String {
    let title: String = title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    crate::text::one_line(&title)
}

/// §8.1 `last_verify`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastVerify {
    pub task_id: String,
    pub timestamp: OffsetTimestamp,
    pub result: &'static str,
    pub artifact_path: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("{file}:{}: {}", .source.line, .source.reason)]
    Header { file: &'static str, source: FrontmatterError },
    #[error("{file}: {source}")]
    Region { file: &'static str, source: RegionError },
}

/// A task left a list of the view, and the view does not have the task that comes next: it has to be made from all
/// tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebuildRequired;

/// The lists of STATE.md.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StateLists {
    pub active: Vec<String>,
    pub blocked: Vec<String>,
    /// The newest first.
    pub done: Vec<String>,
}

impl StateLists {
    /// Reads the lists of STATE.md; a list that can't be read is empty.
    pub fn read(text: &str) -> Self {
        let Ok(matter) = Frontmatter::parse(text) else { return Self::default() };
        let list = |field| match matter.value(field) {
            Ok(Some(Value::Sequence(items))) => {
                items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        Self { active: list("active_tasks"), blocked: list("blocked_tasks"), done: list("done_tasks_recent") }
    }

    /// Puts one task, as it is now, into the lists.
    pub fn put(&mut self, row: &ViewRow) -> Result<(), RebuildRequired> {
        let done_before = self.done.iter().position(|id| *id == row.id);
        if done_before.is_some() && row.status != TaskStatus::Done && self.done.len() == RECENT {
            return Err(RebuildRequired);
        }
        for list in [&mut self.active, &mut self.blocked] {
            list.retain(|id| *id != row.id);
        }
        match row.status {
            TaskStatus::New | TaskStatus::Assigned | TaskStatus::InProgress | TaskStatus::ReadyForReview => {
                insert(&mut self.active, &row.id);
            }
            TaskStatus::Blocked => insert(&mut self.blocked, &row.id),
            TaskStatus::Done if done_before.is_none() => self.done.insert(0, row.id.clone()),
            TaskStatus::Done | TaskStatus::Canceled => {}
        }
        if row.status != TaskStatus::Done
            && let Some(at) = done_before
        {
            self.done.remove(at);
        }
        self.done.truncate(RECENT);
        Ok(())
    }

    /// Makes the lists from all tasks. The order in which tasks were done is kept where it is known; tasks without a
    /// known order come before.
    pub fn of(rows: &[ViewRow], before: &StateLists) -> Self {
        let (over, open): (Vec<&ViewRow>, Vec<&ViewRow>) = rows.iter().partition(|row| row.status.is_final());
        let mut state = Self::default();
        let known = before.done.iter().filter_map(|id| over.iter().copied().find(|row| row.id == *id));
        let done = recent(known, &over, TaskStatus::Done);
        state.done = done.into_iter().map(|row| row.id.clone()).collect();
        for row in open {
            // Nothing is done that could leave the list.
            let _ = state.put(row);
        }
        state
    }

    /// STATE.md with a new task, which is in none of its lists yet, without reading the lists. `None` where that is not
    /// possible: a person wrote the list in another form, or it has a higher id.
    pub fn with_new(text: &str, row: &ViewRow, now: OffsetTimestamp) -> Option<String> {
        let matter = Frontmatter::parse(text).ok()?;
        let list = matter.raw("active_tasks")?;
        let last = list.rsplit('"').nth(1).unwrap_or_default();
        if row.status.is_final() || row.status == TaskStatus::Blocked || !in_order(last, &row.id).is_lt() {
            return None;
        }
        let active = yaml::appended_list(list, &row.id)?;
        matter.set_all(&[("updated_at", now.to_string()), ("active_tasks", active)]).ok()
    }

    /// STATE.md with these lists; everything else in it stays.
    pub fn write(
        &self,
        text: &str,
        now: OffsetTimestamp,
        verify: Option<&LastVerify>,
    ) -> Result<String, ViewError> {
        let mut fields = vec![
            ("updated_at", now.to_string()),
            ("active_tasks", yaml::flow_list(&self.active)),
            ("blocked_tasks", yaml::flow_list(&self.blocked)),
            ("done_tasks_recent", yaml::flow_list(&self.done)),
        ];
        if let Some(verify) = verify {
            fields.push(("last_verify", verify.written()));
        }
        Frontmatter::parse(text)
            .and_then(|matter| matter.set_all(&fields))
            .map_err(|source| ViewError::Header { file: super::layout::STATE, source })
    }
}

impl LastVerify {
    fn written(&self) -> String {
        format!(
            "{{task_id: {}, timestamp: {}, result: {}, artifact_path: {}}}",
            yaml::quoted(&self.task_id),
            yaml::quoted(&self.timestamp.to_string()),
            yaml::quoted(self.result),
            yaml::quoted(&self.artifact_path)
        )
    }
}

/// An empty STATE.md. `header` is the line of §16.
pub fn new_state(
    version: super::manifest::ProtocolVersion,
    now: OffsetTimestamp,
    header: Option<&str>,
) -> String {
    let header = header.map_or_else(|| "\n".to_owned(), |header| format!("{header}\n\n"));
    format!(
        "---\nprotocol: {}\nupdated_at: {now}\nactive_tasks: []\nblocked_tasks: []\ndone_tasks_recent: []\n\
         last_verify: {{task_id: null, timestamp: null, result: null, artifact_path: null}}\n---\n{header}\
         ## Current Focus\n\n## Notes\n",
        yaml::quoted(&version.to_string())
    )
}

/// The tasks of a final state that are shown: those with a known order first, then the others, the highest id first.
fn recent<'r>(
    known: impl Iterator<Item = &'r ViewRow>,
    over: &[&'r ViewRow],
    status: TaskStatus,
) -> Vec<&'r ViewRow> {
    let mut listed: Vec<&ViewRow> = Vec::new();
    let mut others: Vec<&ViewRow> = over.to_vec();
    others.sort_by(|a, b| in_order(&b.id, &a.id));
    for row in known.chain(others).filter(|row| row.status == status) {
        if listed.len() < RECENT && !listed.iter().any(|other| other.id == row.id) {
            listed.push(row);
        }
    }
    listed
}

/// Ids in the order of their numbers: T9 before T10.
fn in_order(a: &str, b: &str) -> std::cmp::Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn insert(list: &mut Vec<String>, id: &str) {
    let at = list.partition_point(|other| in_order(other, id).is_lt());
    list.insert(at, id.to_owned());
}

const REGION: &str = "board";

/// The parts of the board in their order, with their titles.
const PARTS: [(TaskStatus, &str); 7] = [
    (TaskStatus::InProgress, "In progress"),
    (TaskStatus::ReadyForReview, "Ready for review"),
    (TaskStatus::Blocked, "Blocked"),
    (TaskStatus::Assigned, "Assigned"),
    (TaskStatus::New, "New"),
    (TaskStatus::Done, "Done recently"),
    (TaskStatus::Canceled, "Canceled recently"),
];

/// How many open tasks of a state the board shows. It is for people; `agency task list` is for all of them.
const SHOWN: usize = 100;

/// TASK_BOARD.md's table, part by part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoardTable {
    /// In the order they are shown in.
    rows: Vec<ViewRow>,
    /// How many more there are in each state, after those that are shown.
    more: BTreeMap<TaskStatus, usize>,
}

impl BoardTable {
    /// Reads the table of the board; `None` where a person changed it so that we can't read it.
    pub fn read(text: &str) -> Option<Self> {
        let inside = &text[region::find(text, REGION, CommentStyle::Html).ok()??];
        let mut board = Self::default();
        let mut part = None;
        for line in inside.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                part = Some(PARTS.iter().find(|(_, name)| *name == heading)?.0);
            } else if let Some(more) = line.strip_prefix("And ") {
                board.more.insert(part?, more.split(' ').next()?.parse().ok()?);
            } else if line.starts_with("| ") && !line.starts_with("| id ") && !line.starts_with("| ---") {
                board.rows.push(row(line, part?)?);
            }
        }
        Some(board)
    }

    /// Puts one task, as it is now, into the table. `before` is its earlier state; a new task had none.
    pub fn put(&mut self, new: &ViewRow, before: Option<TaskStatus>) -> Result<(), RebuildRequired> {
        match self.rows.iter().position(|row| row.id == new.id) {
            Some(at) => {
                let old = self.rows[at].status;
                if old == new.status && old.is_final() {
                    self.rows[at] = new.clone();
                    return Ok(());
                }
                let full =
                    old.is_final() && self.rows.iter().filter(|row| row.status == old).count() == RECENT;
                if full || self.more.contains_key(&old) {
                    return Err(RebuildRequired);
                }
                self.rows.remove(at);
            }
            None => {
                if let Some(more) = before.and_then(|before| self.more.get_mut(&before)) {
                    *more -= 1;
                }
                self.more.retain(|_, more| *more > 0);
            }
        }
        let key = place(new);
        let at = self.rows.partition_point(|row| {
            let other = place(row);
            match new.status.is_final() {
                // The newest first.
                true => other.0 < key.0,
                false => (other.0, other.1).cmp(&key).then_with(|| in_order(&row.id, &new.id)).is_lt(),
            }
        });
        self.rows.insert(at, new.clone());
        self.cut(new.status);
        Ok(())
    }

    /// Leaves as many rows of a state as are shown.
    fn cut(&mut self, status: TaskStatus) {
        let limit = if status.is_final() { RECENT } else { SHOWN };
        let part: Vec<usize> = (0..self.rows.len()).filter(|at| self.rows[*at].status == status).collect();
        if let (Some(first), true) = (part.get(limit), part.len() > limit) {
            let over = part.len() - limit;
            self.rows.drain(first..&(first + over));
            if !status.is_final() {
                *self.more.entry(status).or_default() += over;
            }
        }
    }

    /// From all tasks.
    pub fn of(rows: &[ViewRow], before: &BoardTable) -> Self {
        let (over, mut open): (Vec<&ViewRow>, Vec<&ViewRow>) =
            rows.iter().partition(|row| row.status.is_final());
        let mut board = Self::default();
        for status in TaskStatus::ALL.into_iter().filter(|status| status.is_final()) {
            let shown = before.rows.iter().filter(|row| row.status == status);
            let known = shown.filter_map(|old| over.iter().copied().find(|row| row.id == old.id));
            board.rows.extend(recent(known, &over, status).into_iter().cloned());
        }
        open.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| in_order(&a.id, &b.id)));
        board.rows.extend(open.into_iter().cloned());
        board.rows.sort_by_key(|row| place(row).0);
        TaskStatus::ALL.into_iter().filter(|status| !status.is_final()).for_each(|status| board.cut(status));
        board
    }

    /// TASK_BOARD.md with this table; everything outside its region stays.
    pub fn write(&self, text: &str) -> Result<String, ViewError> {
        let mut inside = String::new();
        for (status, name) in PARTS {
            let mut rows = self.rows.iter().filter(|row| row.status == status).peekable();
            if rows.peek().is_none() {
                continue;
            }
            inside.push_str(&format!(
                "## {name}\n\n| id | priority | title | assignee |\n| --- | --- | --- | --- |\n"
            ));
            for ViewRow { id, priority, title, assignee, .. } in rows {
                let title = title.replace('\\', "\\\\").replace('|', "\\|");
                inside.push_str(&format!("| {id} | {priority} | {title} | {assignee} |\n"));
            }
            inside.push('\n');
            if let Some(more) = self.more.get(&status) {
                inside.push_str(&format!("And {more} more: `agency task list --status {status}`\n\n"));
            }
        }
        if inside.is_empty() {
            inside.push_str("No tasks yet: `agency task new --title …` makes the first one.\n");
        }
        region::upsert(text, REGION, inside.trim_end_matches('\n'), CommentStyle::Html)
            .map_err(|source| ViewError::Region { file: super::layout::TASK_BOARD, source })
    }
}

fn place(row: &ViewRow) -> (usize, Priority) {
    let part = PARTS.iter().position(|(status, _)| *status == row.status).unwrap_or(PARTS.len());
    (part, row.priority)
}

fn row(line: &str, status: TaskStatus) -> Option<ViewRow> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let (id, rest) = inner.split_once(" | ")?;
    let (priority, rest) = rest.split_once(" | ")?;
    let (title, assignee) = match rest.rsplit_once(" | ") {
        Some(both) => both,
        None => ("", rest.strip_prefix(" | ").or_else(|| rest.strip_prefix("| "))?),
    };
    let title = title.replace("\\|", "|").replace("\\\\", "\\");
    Some(ViewRow {
        id: id.to_owned(),
        title,
        priority: Priority::parse(priority)?,
        status,
        assignee: assignee.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows() -> impl Strategy<Value = Vec<ViewRow>> {
        // Mostly new tasks and done ones, so that parts of the board overflow.
        let status = prop_oneof![6 => Just(0), 2 => Just(5), 1 => 0..7_usize];
        let one =
            (1..250_u32, "[a-z|\\\\ ]{0,9}", 0..4_usize, status).prop_map(|(id, title, priority, status)| {
                ViewRow {
                    id: format!("T{id:04}"),
                    title: one_line(&title),
                    priority: Priority::ALL[priority],
                    status: TaskStatus::ALL[status],
                    assignee: "codex".to_owned(),
                }
            });
        prop::collection::vec(one, 0..260)
    }

    const STATE: &str = "---\nprotocol: \"agency/1.0\"\nupdated_at: x\nactive_tasks: []\nblocked_tasks: []\ndone_tasks_recent: []\nlast_verify:\n  task_id: T1\n---\n\n## Notes\nmine\n";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn one_by_one_is_the_same_as_all_at_once(acts in rows()) {
            let (mut state, mut board) = (StateLists::default(), BoardTable::default());
            let mut tasks: Vec<ViewRow> = Vec::new();
            let (mut state_text, mut board_text) = (STATE.to_owned(), "# Mine\n".to_owned());
            let now = OffsetTimestamp::parse("2026-01-31", &jiff::tz::TimeZone::UTC).expect("a time");
            for act in acts {
                let before = tasks.iter().find(|task| task.id == act.id).map(|task| task.status);
                tasks.retain(|task| task.id != act.id);
                tasks.push(act.clone());
                let new = before.is_none().then(|| StateLists::with_new(&state_text, &act, now)).flatten();
                if state.put(&act).is_err() {
                    state = StateLists::of(&tasks, &state);
                }
                if let Some(new) = new {
                    prop_assert_eq!(&StateLists::read(&new), &state);
                }
                let mut next = board.clone();
                board = match next.put(&act, before) {
                    Ok(()) => next,
                    Err(RebuildRequired) => BoardTable::of(&tasks, &board),
                };
                state_text = state.write(&state_text, now, None).expect("written");
                board_text = board.write(&board_text).expect("written");
                prop_assert_eq!(&StateLists::read(&state_text), &state);
                prop_assert_eq!(BoardTable::read(&board_text), Some(board.clone()));
            }
            let (all_state, all_board) = (StateLists::of(&tasks, &state), BoardTable::of(&tasks, &board));
            prop_assert_eq!(all_state, state);
            prop_assert_eq!(all_board.write("").expect("x"), board.write("").expect("x"));
            prop_assert!(state_text.ends_with("\n## Notes\nmine\n"));
            prop_assert!(board_text.starts_with("# Mine\n"));
        }
    }
}
