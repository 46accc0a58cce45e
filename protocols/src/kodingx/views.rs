//! §8: STATE.md, and TASK_BOARD.md: what the tasks say, for machines and for people.
//!
//! Both are computed from the tasks; what people wrote in them stays. A verb that changed one task puts that
//! task into both views, which costs the same on a board of ten tasks and nearly the same on one of ten
//! thousand; making them from all tasks gives the same text, which a property test holds.

use std::collections::BTreeMap;

use serde_yaml::Value;

use super::status::Status;
use super::task::{Priority, Task};
use crate::moment::Moment;
use crate::text::frontmatter::{Frontmatter, Malformed};
use crate::text::region::{self, Comment, RegionError};
use crate::text::yaml;

/// How many finished tasks the views show.
pub const RECENT: usize = 20;

/// What the views show of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub id: String,
    pub title: String,
    pub priority: Priority,
    pub status: Status,
    pub assignee: String,
}

impl Row {
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
    pub timestamp: Moment,
    pub result: &'static str,
    pub artifact_path: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    #[error("{file}:{}: {}", .source.line, .source.reason)]
    Header { file: &'static str, source: Malformed },
    #[error("{file}: {source}")]
    Region { file: &'static str, source: RegionError },
}

/// A view can't tell by itself what comes after what left it: it has to be made from all tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incomplete;

/// The lists of STATE.md.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    pub active: Vec<String>,
    pub blocked: Vec<String>,
    /// The newest first.
    pub done: Vec<String>,
}

impl State {
    /// What STATE.md says now; a list that can't be read is empty.
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

    /// With one task as it is now.
    pub fn put(&mut self, row: &Row) -> Result<(), Incomplete> {
        let done_before = self.done.iter().position(|id| *id == row.id);
        if done_before.is_some() && row.status != Status::Done && self.done.len() == RECENT {
            return Err(Incomplete);
        }
        for list in [&mut self.active, &mut self.blocked] {
            list.retain(|id| *id != row.id);
        }
        match row.status {
            Status::New | Status::Assigned | Status::InProgress | Status::ReadyForReview => {
                insert(&mut self.active, &row.id);
            }
            Status::Blocked => insert(&mut self.blocked, &row.id),
            Status::Done if done_before.is_none() => self.done.insert(0, row.id.clone()),
            Status::Done | Status::Canceled => {}
        }
        if row.status != Status::Done
            && let Some(at) = done_before
        {
            self.done.remove(at);
        }
        self.done.truncate(RECENT);
        Ok(())
    }

    /// From all tasks. The order in which tasks were done is kept where it is known; those of which it is not
    /// known were done before.
    pub fn of(rows: &[Row], before: &State) -> Self {
        let (over, open): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.status.is_final());
        let mut state = Self::default();
        let known = before.done.iter().filter_map(|id| over.iter().copied().find(|row| row.id == *id));
        let done = recent(known, &over, Status::Done);
        state.done = done.into_iter().map(|row| row.id.clone()).collect();
        for row in open {
            // Nothing is done that could leave the list.
            let _ = state.put(row);
        }
        state
    }

    /// STATE.md with a new task, which is in none of its lists yet, without reading them. `None` where that can't
    /// be told: somebody wrote the list another way, or has a higher id in it.
    pub fn with_new(text: &str, row: &Row, now: Moment) -> Option<String> {
        let matter = Frontmatter::parse(text).ok()?;
        let list = matter.raw("active_tasks")?;
        let last = list.rsplit('"').nth(1).unwrap_or_default();
        if row.status.is_final() || row.status == Status::Blocked || !in_order(last, &row.id).is_lt() {
            return None;
        }
        let active = yaml::grown_list(list, &row.id)?;
        matter.set_all(&[("updated_at", now.to_string()), ("active_tasks", active)]).ok()
    }

    /// STATE.md with these lists; everything else in it stays.
    pub fn write(&self, text: &str, now: Moment, verify: Option<&LastVerify>) -> Result<String, ViewError> {
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

/// A STATE.md with nothing in it yet. `header` is the line of §16.
pub fn new_state(version: super::manifest::Version, now: Moment, header: Option<&str>) -> String {
    let header = header.map_or_else(|| "\n".to_owned(), |header| format!("{header}\n\n"));
    format!(
        "---\nprotocol: {}\nupdated_at: {now}\nactive_tasks: []\nblocked_tasks: []\ndone_tasks_recent: []\n\
         last_verify: {{task_id: null, timestamp: null, result: null, artifact_path: null}}\n---\n{header}\
         ## Current Focus\n\n## Notes\n",
        yaml::quoted(&version.to_string())
    )
}

/// Those of a final state that are shown: in the order that is known, then the others, the highest id first.
fn recent<'r>(known: impl Iterator<Item = &'r Row>, over: &[&'r Row], status: Status) -> Vec<&'r Row> {
    let mut listed: Vec<&Row> = Vec::new();
    let mut others: Vec<&Row> = over.to_vec();
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

/// The order of the board's parts, and what they are called.
const PARTS: [(Status, &str); 7] = [
    (Status::InProgress, "In progress"),
    (Status::ReadyForReview, "Ready for review"),
    (Status::Blocked, "Blocked"),
    (Status::Assigned, "Assigned"),
    (Status::New, "New"),
    (Status::Done, "Done recently"),
    (Status::Canceled, "Canceled recently"),
];

/// How many open tasks of a state the board shows. It is for people; `agency task list` is for all of them.
const SHOWN: usize = 100;

/// TASK_BOARD.md's table, part by part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Board {
    /// In the order they are shown in.
    rows: Vec<Row>,
    /// How many more there are in each state, after those that are shown.
    more: BTreeMap<Status, usize>,
}

impl Board {
    /// What the board shows now; `None` where a person changed it so that it is no longer ours to read.
    pub fn read(text: &str) -> Option<Self> {
        let inside = &text[region::find(text, REGION, Comment::Html).ok()??];
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

    /// With one task as it is now. `before` is the state it had; a new task had none.
    pub fn put(&mut self, new: &Row, before: Option<Status>) -> Result<(), Incomplete> {
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
                    return Err(Incomplete);
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
    fn cut(&mut self, status: Status) {
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
    pub fn of(rows: &[Row], before: &Board) -> Self {
        let (over, mut open): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.status.is_final());
        let mut board = Self::default();
        for status in Status::ALL.into_iter().filter(|status| status.is_final()) {
            let shown = before.rows.iter().filter(|row| row.status == status);
            let known = shown.filter_map(|old| over.iter().copied().find(|row| row.id == old.id));
            board.rows.extend(recent(known, &over, status).into_iter().cloned());
        }
        open.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| in_order(&a.id, &b.id)));
        board.rows.extend(open.into_iter().cloned());
        board.rows.sort_by_key(|row| place(row).0);
        Status::ALL.into_iter().filter(|status| !status.is_final()).for_each(|status| board.cut(status));
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
            for Row { id, priority, title, assignee, .. } in rows {
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
        region::put(text, REGION, inside.trim_end_matches('\n'), Comment::Html)
            .map_err(|source| ViewError::Region { file: super::layout::TASK_BOARD, source })
    }
}

fn place(row: &Row) -> (usize, Priority) {
    let part = PARTS.iter().position(|(status, _)| *status == row.status).unwrap_or(PARTS.len());
    (part, row.priority)
}

fn row(line: &str, status: Status) -> Option<Row> {
    let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let (id, rest) = inner.split_once(" | ")?;
    let (priority, rest) = rest.split_once(" | ")?;
    let (title, assignee) = match rest.rsplit_once(" | ") {
        Some(both) => both,
        None => ("", rest.strip_prefix(" | ").or_else(|| rest.strip_prefix("| "))?),
    };
    let title = title.replace("\\|", "|").replace("\\\\", "\\");
    Some(Row {
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

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        // Mostly new tasks and done ones, so that parts of the board overflow.
        let status = prop_oneof![6 => Just(0), 2 => Just(5), 1 => 0..7_usize];
        let one =
            (1..250_u32, "[a-z|\\\\ ]{0,9}", 0..4_usize, status).prop_map(|(id, title, priority, status)| {
                Row {
                    id: format!("T{id:04}"),
                    title: one_line(&title),
                    priority: Priority::ALL[priority],
                    status: Status::ALL[status],
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
            let (mut state, mut board) = (State::default(), Board::default());
            let mut tasks: Vec<Row> = Vec::new();
            let (mut state_text, mut board_text) = (STATE.to_owned(), "# Mine\n".to_owned());
            let now = Moment::parse("2026-01-31", &jiff::tz::TimeZone::UTC).expect("a time");
            for act in acts {
                let before = tasks.iter().find(|task| task.id == act.id).map(|task| task.status);
                tasks.retain(|task| task.id != act.id);
                tasks.push(act.clone());
                let new = before.is_none().then(|| State::with_new(&state_text, &act, now)).flatten();
                if state.put(&act).is_err() {
                    state = State::of(&tasks, &state);
                }
                if let Some(new) = new {
                    prop_assert_eq!(&State::read(&new), &state);
                }
                let mut next = board.clone();
                board = match next.put(&act, before) {
                    Ok(()) => next,
                    Err(Incomplete) => Board::of(&tasks, &board),
                };
                state_text = state.write(&state_text, now, None).expect("written");
                board_text = board.write(&board_text).expect("written");
                prop_assert_eq!(&State::read(&state_text), &state);
                prop_assert_eq!(Board::read(&board_text), Some(board.clone()));
            }
            let (all_state, all_board) = (State::of(&tasks, &state), Board::of(&tasks, &board));
            prop_assert_eq!(all_state, state);
            prop_assert_eq!(all_board.write("").expect("x"), board.write("").expect("x"));
            prop_assert!(state_text.ends_with("\n## Notes\nmine\n"));
            prop_assert!(board_text.starts_with("# Mine\n"));
        }
    }
}
