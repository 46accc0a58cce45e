//! Actions on one task: make, move and assign it.
//!
//! Every action changes the task's own file and puts the task into STATE.md, TASK_BOARD.md and, where it is linked to
//! risks, RISKS.md, in one commit.

use jiff::Zoned;

use super::done_gate::DoneGate;
use super::layout;
use super::report::Report;
use super::risks::{self, RiskRegister};
use super::status::{self, StatusRequirement, TaskStatus};
use super::task::{KodingXScope, Priority, Task};
use super::views::{self, BoardTable, LastVerify, StateLists, ViewError, ViewRow};
use super::{BoardFile, KodingX};
use crate::board::BoardError;
use crate::board_verbs::AssignRequest;
use crate::finding::Finding;
use crate::names::{Actor, AgentName, TaskId};
use crate::store::Effects;
use crate::store::tree::RepoTree;
use crate::text::frontmatter::{Frontmatter, FrontmatterError};
use crate::text::one_line;
use crate::text::region::{self, CommentStyle};
use crate::text::slug::slug;
use crate::text::yaml;
use crate::timestamp::OffsetTimestamp;

/// A requested task.
#[derive(Debug, Clone)]
pub struct NewTask {
    pub title: String,
    /// The builder; the board's first builder where none is named.
    pub assignee: Option<AgentName>,
    pub priority: Priority,
    /// `NEW`, or `ASSIGNED` where the orchestrator gives it to its builder at once.
    pub status: TaskStatus,
    pub scope: KodingXScope,
    /// The board's default where none is named.
    pub dod_profile: Option<String>,
    pub labels: Vec<String>,
    pub depends_on: Vec<String>,
    pub context_files: Vec<String>,
    pub acceptance: Vec<String>,
    pub constraints: Vec<String>,
    pub risks: Vec<String>,
    pub external_refs: Vec<(String, String)>,
    /// The text below the header; a skeleton where there is none.
    pub body: Option<String>,
}

impl NewTask {
    pub fn titled(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            assignee: None,
            priority: Priority::P2,
            status: TaskStatus::New,
            scope: KodingXScope::default(),
            dod_profile: None,
            labels: Vec::new(),
            depends_on: Vec::new(),
            context_files: Vec::new(),
            acceptance: Vec::new(),
            constraints: Vec::new(),
            risks: Vec::new(),
            external_refs: Vec::new(),
            body: None,
        }
    }
}

/// A task after an action, as far as the views show it.
#[derive(Debug, Clone)]
pub(super) struct ViewUpdate {
    row: ViewRow,
    risks: Vec<String>,
    /// The state it had before; a new task had none.
    before: Option<TaskStatus>,
}

impl ViewUpdate {
    pub(super) fn made(task: &Task) -> Self {
        Self { row: ViewRow::of(task), risks: task.risks.clone(), before: None }
    }

    pub(super) fn changed(task: &Task, before: TaskStatus) -> Self {
        Self { before: Some(before), ..Self::made(task) }
    }
}

impl KodingX {
    /// Makes a task, with an id that no other task has.
    pub fn new_task(
        &self,
        tree: &RepoTree,
        new: &NewTask,
        now: &Zoned,
    ) -> Result<(BoardFile<Task>, Effects), BoardError> {
        let now = self.local(now);
        let id = self.next_id(tree, &now)?;
        let found = self.draft(tree, new, id, &now)?;
        let mut effects = Effects::none();
        effects.create(&found.place.path, &found.text);
        let views = self.update_views(tree, &[ViewUpdate::made(&found.value)], &now, None)?;
        Ok((found, effects.and(views)))
    }

    /// Makes tasks, in one commit, for issues that a tracker has and the board does not. A task that exists already,
    /// open or archived, is recognized by its reference, and by its address where both have one.
    pub fn import(
        &self,
        tree: &RepoTree,
        incoming: &[NewTask],
        now: &Zoned,
    ) -> Result<(Vec<BoardFile<Task>>, Effects), BoardError> {
        let now = self.local(now);
        let (open, archived) = (self.tasks(tree)?, self.archived_tasks(tree)?);
        let known: Vec<&[(String, String)]> =
            open.tasks.iter().chain(&archived.tasks).map(|(_, task)| task.external_refs.as_slice()).collect();
        let mut ids = self.next_ids(tree, &now)?;
        let (mut made, mut effects) = (Vec::new(), Effects::none());
        for new in incoming {
            if known.iter().any(|refs| is_same(refs, &new.external_refs)) {
                continue;
            }
            let found = self.draft(tree, new, ids()?, &now)?;
            effects.create(&found.place.path, &found.text);
            made.push(found);
        }
        if made.is_empty() {
            return Ok((made, Effects::none()));
        }
        let acts: Vec<ViewUpdate> = made.iter().map(|found| ViewUpdate::made(&found.value)).collect();
        let effects = effects.and(self.update_views(tree, &acts, &now, None)?);
        Ok((made, effects))
    }

    /// Prepares a new task and its path, and writes nothing.
    pub(super) fn draft(
        &self,
        tree: &RepoTree,
        new: &NewTask,
        id: TaskId,
        now: &Zoned,
    ) -> Result<BoardFile<Task>, BoardError> {
        if new.title.trim().is_empty() {
            return Err(BoardError::refused("a task needs a title"));
        }
        new.scope.check().map_err(BoardError::refused)?;
        let assignee = new.assignee.clone().or_else(|| self.manifest.builders.first().cloned());
        let Some(assignee) = assignee else {
            return Err(BoardError::refused("no agent is named for the task, and the board has no builders")
                .with_hint("say --assignee AGENT, or name builders in .kodingx/agency.json"));
        };
        self.check_links(tree, new)?;
        let created_at = OffsetTimestamp::from_zoned(now);
        let task = Task {
            id: id.clone(),
            title: new.title.trim().to_owned(),
            priority: new.priority,
            status: new.status,
            assignee,
            created_at: Some(created_at),
            dod_profile: new.dod_profile.clone().unwrap_or_else(|| self.manifest.dod_profile.clone()),
            scope: Some(new.scope.clone()),
            labels: new.labels.clone(),
            depends_on: new.depends_on.clone(),
            context_files: new.context_files.clone(),
            acceptance: new.acceptance.clone(),
            constraints: new.constraints.clone(),
            risks: new.risks.clone(),
            external_refs: new.external_refs.clone(),
        };
        let stem = format!("{id}-{}-{}", created_at.hhmm(), slug(&task.title));
        let path = layout::task_path(&task.assignee, &created_at.date(), &stem);
        let text = task.render(new.body.as_deref().unwrap_or(SKELETON));
        let place = layout::BoardPath {
            path,
            agent: Some(task.assignee.to_string()),
            date: Some(created_at.date()),
            stem,
            archived: false,
        };
        Ok(BoardFile { place, text, value: task })
    }

    /// Checks that the tasks and risks to which a new task links exist.
    fn check_links(&self, tree: &RepoTree, new: &NewTask) -> Result<(), BoardError> {
        for dependency in &new.depends_on {
            let id = TaskId::parse(dependency).map_err(|error| BoardError::refused(error.to_string()))?;
            self.find(tree, &id).map_err(|error| match error {
                BoardError::NoSuchTask { id } => {
                    BoardError::refused(format!("it can't depend on {id}: there is no such task"))
                }
                error => error,
            })?;
        }
        if !new.risks.is_empty() {
            let register = RiskRegister::parse(&tree.read_text(layout::RISKS)?.unwrap_or_default());
            for risk in &new.risks {
                if register.get(risk).is_none() {
                    return Err(BoardError::refused(format!("there is no risk {risk} in {}", layout::RISKS))
                        .with_hint("add an entry `### R-001: …` there first (§21.3)"));
                }
            }
        }
        Ok(())
    }

    /// Moves a task to another state.
    pub fn move_task(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        to: TaskStatus,
        actor: &Actor,
        reason: Option<&str>,
        now: &Zoned,
    ) -> Result<(Task, Effects), BoardError> {
        self.move_through(tree, id, (to, DoneGate::Claimed), actor, reason, now)
    }

    pub(super) fn move_through(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        (to, gate): (TaskStatus, DoneGate),
        actor: &Actor,
        reason: Option<&str>,
        now: &Zoned,
    ) -> Result<(Task, Effects), BoardError> {
        let now = self.local(now);
        let found = self.open_task(tree, id)?;
        let from = found.value.status;
        let needs = status::transition(from, to, actor, &found.value.assignee, reason)
            .map_err(|refused| BoardError::refused(format!("{id}: {refused}")))?;
        if needs == StatusRequirement::Proof {
            self.check_done_gate(tree, id, gate, &now)?;
        }
        let note = note(from, to, actor, reason);
        let report = if to == TaskStatus::Done { self.reports(tree, id)?.0.pop() } else { None };
        let more = match &report {
            Some(report) => self.followups(tree, &found, &report.text, &now)?,
            None => (Effects::none(), Vec::new()),
        };
        self.move_effects(tree, &found, to, note.as_deref(), more, &now)
    }

    /// The effects of a move to another state, with everything that follows from it.
    pub(super) fn move_effects(
        &self,
        tree: &RepoTree,
        found: &BoardFile<Task>,
        to: TaskStatus,
        note: Option<&str>,
        (more, mut acts): (Effects, Vec<ViewUpdate>),
        now: &Zoned,
    ) -> Result<(Task, Effects), BoardError> {
        let mut task = found.value.clone();
        task.status = to;
        let effects = self.edit(tree, found, &task, &["status"], note, now)?.and(more);
        acts.push(ViewUpdate::changed(&task, found.value.status));
        let shown = self.update_views(tree, &acts, now, None)?;
        Ok((task, effects.and(shown)))
    }

    /// Marks reports from outside of a run: their work went back.
    fn report_returned(&self, tree: &RepoTree, id: &TaskId, now: &Zoned) -> Result<Effects, BoardError> {
        let mut effects = Effects::none();
        for report in self.reports(tree, id)?.0.iter().filter(|found| found.value.is_handed_in()) {
            let text = Report::as_returned(&report.text, OffsetTimestamp::from_zoned(now))
                .map_err(|error| unreadable(&report.place.path, error))?;
            effects.replace(&report.place.path, &report.text, text);
        }
        Ok(effects)
    }

    /// Gives a task to an agent, with another scope if the request has one. Its file goes to that agent's inbox.
    pub fn assign(
        &self,
        tree: &RepoTree,
        agent: &AgentName,
        request: &AssignRequest<'_>,
        now: &Zoned,
    ) -> Result<(Task, Effects), BoardError> {
        let (AssignRequest { id, actor, reason, scope, .. }, now) = (*request, self.local(now));
        let found = self.open_task(tree, id)?;
        let from = found.value.status;
        if from != TaskStatus::Assigned {
            status::transition(from, TaskStatus::Assigned, actor, &found.value.assignee, reason)
                .map_err(|refused| BoardError::refused(format!("{id}: {refused}")))?;
        } else if matches!(actor, Actor::Agent(_)) {
            return Err(BoardError::refused(format!("{id}: only the orchestrator assigns tasks (§9.2)")));
        }
        let mut task = found.value.clone();
        task.status = TaskStatus::Assigned;
        task.assignee = agent.clone();
        // A value that stays is not written again, however it is written.
        let mut fields = Vec::new();
        if from != task.status {
            fields.push("status");
        }
        if found.value.assignee != task.assignee {
            fields.push("assignee");
        }
        if !scope.is_empty() {
            let wanted = task.scope.clone().unwrap_or_default().with(scope);
            wanted.check().map_err(|error| BoardError::refused(format!("{id}: {error} (§6.3)")))?;
            task.scope = Some(wanted);
            fields.push("scope");
        }
        let note = note(from, TaskStatus::Assigned, actor, reason);
        let effects = self.rewrite(tree, &found, &task, &fields, note.as_deref(), &now)?;
        Ok((task, effects))
    }

    /// Finds a task that is not archived.
    fn open_task(&self, tree: &RepoTree, id: &TaskId) -> Result<BoardFile<Task>, BoardError> {
        let found = self.find(tree, id)?;
        if found.place.archived {
            return Err(BoardError::refused(format!("{id} is archived ({})", found.place.path)));
        }
        Ok(found)
    }

    /// The file of a task with some fields as they are in `task`, and the views with it.
    pub(super) fn rewrite(
        &self,
        tree: &RepoTree,
        found: &BoardFile<Task>,
        task: &Task,
        fields: &[&'static str],
        note: Option<&str>,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let act = ViewUpdate::changed(task, found.value.status);
        let edited = self.edit(tree, found, task, fields, note, now)?;
        Ok(edited.and(self.update_views(tree, &[act], now, None)?))
    }

    /// The same without the views. When a task goes back to its builder, a report from outside of a run counts as
    /// handled.
    fn edit(
        &self,
        tree: &RepoTree,
        found: &BoardFile<Task>,
        task: &Task,
        fields: &[&'static str],
        note: Option<&str>,
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let written = |field: &&'static str| match *field {
            "status" => ("status", task.status.as_str().to_owned()),
            "assignee" => ("assignee", yaml::scalar(task.assignee.as_str())),
            "risks" => ("risks", yaml::flow_list(&task.risks)),
            "scope" => ("scope", task.scope.clone().unwrap_or_default().flow()),
            other => unreachable!("no act sets {other}"),
        };
        let fields: Vec<(&str, String)> = fields.iter().map(written).collect();
        let mut text = Frontmatter::parse(&found.text)
            .and_then(|matter| matter.set_all(&fields))
            .map_err(|error| unreadable(&found.place.path, error))?;
        if let Some(note) = note {
            text = with_history(&text, &format!("- {} {note}", OffsetTimestamp::from_zoned(now)))
                .map_err(|error| BoardError::refused(format!("{}: {error}", found.place.path)))?;
        }
        let mut effects = Effects::none();
        let home = found.place.path.split('/').nth(2) == Some(task.assignee.as_str());
        if home {
            effects.replace(&found.place.path, &found.text, text);
        } else {
            let date = found.place.date.clone().unwrap_or_else(|| OffsetTimestamp::from_zoned(now).date());
            let to = layout::task_path(&task.assignee, &date, &found.place.stem);
            effects.rename(&found.place.path, &found.text, to, text);
        }
        let back = matches!(found.value.status, TaskStatus::ReadyForReview | TaskStatus::Blocked)
            && matches!(task.status, TaskStatus::Assigned | TaskStatus::InProgress);
        match back {
            true => Ok(effects.and(self.report_returned(tree, &task.id, now)?)),
            false => Ok(effects),
        }
    }

    /// Puts tasks into STATE.md, TASK_BOARD.md and the linked-tasks lines of RISKS.md.
    pub(super) fn update_views(
        &self,
        tree: &RepoTree,
        acts: &[ViewUpdate],
        now: &Zoned,
        verify: Option<&LastVerify>,
    ) -> Result<Effects, BoardError> {
        let mut effects = Effects::none();
        let refused = |error: ViewError| {
            BoardError::refused(error.to_string())
                .with_hint("mend it by hand, or let `agency lint --fix` write it anew")
        };
        let old_state = tree.read_text(layout::STATE)?;
        let before = old_state.clone().unwrap_or_else(|| self.new_state(now));
        let quick = match acts {
            [ViewUpdate { row, before: None, .. }] if verify.is_none() => {
                StateLists::with_new(&before, row, OffsetTimestamp::from_zoned(now))
            }
            _ => None,
        };
        let state = match quick {
            Some(state) => state,
            None => {
                let known = StateLists::read(&before);
                let mut state = known.clone();
                if !acts.iter().all(|act| state.put(&act.row).is_ok()) {
                    state = StateLists::of(&self.rows_with(tree, acts)?, &known);
                }
                state.write(&before, OffsetTimestamp::from_zoned(now), verify).map_err(refused)?
            }
        };
        let old_board = tree.read_text(layout::TASK_BOARD)?;
        effects.put(layout::STATE, old_state.as_deref(), state);
        // A minimal installation has no board for people (§22.2).
        if let Some(old) = &old_board {
            let board = self.board_with(tree, old, acts)?;
            effects.replace(layout::TASK_BOARD, old, board.write(old).map_err(refused)?);
        }
        if acts.iter().any(|act| !act.risks.is_empty())
            && let Some(old) = tree.read_text(layout::RISKS)?
        {
            let link = |text: String, act: &ViewUpdate| {
                act.risks.iter().fold(text, |text, risk| risks::link(&text, risk, &act.row.id))
            };
            effects.replace(layout::RISKS, &old, acts.iter().fold(old.clone(), link));
        }
        Ok(effects)
    }

    /// The board for people after the actions. A board that a person changed, or that can't show which task comes next,
    /// is made anew from all tasks.
    fn board_with(&self, tree: &RepoTree, text: &str, acts: &[ViewUpdate]) -> Result<BoardTable, BoardError> {
        let known = BoardTable::read(text);
        if let Some(mut board) = known.clone()
            && acts.iter().all(|act| board.put(&act.row, act.before).is_ok())
        {
            return Ok(board);
        }
        Ok(BoardTable::of(&self.rows_with(tree, acts)?, &known.unwrap_or_default()))
    }

    /// Every task as it is after the actions.
    fn rows_with(&self, tree: &RepoTree, acts: &[ViewUpdate]) -> Result<Vec<ViewRow>, BoardError> {
        let mut rows: Vec<ViewRow> =
            self.tasks(tree)?.tasks.iter().map(|(_, task)| ViewRow::of(task)).collect();
        for act in acts {
            rows.retain(|row| row.id != act.row.id);
            rows.push(act.row.clone());
        }
        Ok(rows)
    }

    /// Both views made from all tasks, as `lint --fix` does it.
    pub fn rebuild_views(&self, tree: &RepoTree, now: &Zoned) -> Result<Effects, BoardError> {
        let rows: Vec<ViewRow> = self.tasks(tree)?.tasks.iter().map(|(_, task)| ViewRow::of(task)).collect();
        self.rebuild_views_from(tree, &rows, &self.local(now))
    }

    /// Both views, made from these tasks, which are all tasks there are or will be.
    pub(super) fn rebuild_views_from(
        &self,
        tree: &RepoTree,
        rows: &[ViewRow],
        now: &Zoned,
    ) -> Result<Effects, BoardError> {
        let mut effects = Effects::none();
        let refused = |error: ViewError| BoardError::refused(error.to_string());
        let old_state = tree.read_text(layout::STATE)?;
        let before = old_state.clone().unwrap_or_else(|| self.new_state(now));
        let known = StateLists::read(&before);
        let state = StateLists::of(rows, &known);
        if state != known || old_state.is_none() {
            let written = state.write(&before, OffsetTimestamp::from_zoned(now), None).map_err(refused)?;
            effects.put(layout::STATE, old_state.as_deref(), written);
        }
        if let Some(old) = tree.read_text(layout::TASK_BOARD)? {
            let board = BoardTable::of(rows, &BoardTable::read(&old).unwrap_or_default());
            effects.replace(layout::TASK_BOARD, &old, board.write(&old).map_err(refused)?);
        }
        Ok(effects)
    }

    /// An empty STATE.md.
    pub(super) fn new_state(&self, now: &Zoned) -> String {
        views::new_state(self.manifest.version, OffsetTimestamp::from_zoned(now), None)
    }
}

/// Whether two lists of references name the same issue of a tracker.
fn is_same(one: &[(String, String)], other: &[(String, String)]) -> bool {
    let find = |refs: &[(String, String)], key: &str| {
        refs.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())
    };
    if let (Some(one), Some(other)) = (find(one, "url"), find(other, "url")) {
        return one == other;
    }
    other.iter().filter(|(key, _)| key != "url").any(|reference| one.contains(reference))
}

/// The note about a move, if the move has a reason.
pub(super) fn note(from: TaskStatus, to: TaskStatus, actor: &Actor, reason: Option<&str>) -> Option<String> {
    let reason = one_line(reason?);
    (!reason.is_empty()).then(|| format!("{from} → {to} by {actor}: {reason}"))
}

const HISTORY: &str = "history";

/// A task with one more line in its history region.
fn with_history(text: &str, line: &str) -> Result<String, region::RegionError> {
    let inside = match region::find(text, HISTORY, CommentStyle::Html)? {
        Some(range) => format!("{}{line}\n", &text[range]),
        None => format!("## History\n\n{line}\n"),
    };
    region::upsert(text, HISTORY, &inside, CommentStyle::Html)
}

pub(super) fn unreadable(path: &str, error: FrontmatterError) -> BoardError {
    BoardError::Unreadable(vec![Finding::error(path, Some(error.line), "6.2", error.reason)])
}

const SKELETON: &str = "\n## Problem\n\n## Expected Outcome\n\n## Notes\n";
