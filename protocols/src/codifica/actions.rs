//! Actions on tasks: make, move and assign them. Each action is one commit of the tasks it changes.

use std::collections::BTreeMap;

use jiff::Zoned;
use jiff::tz::TimeZone;

use super::contract::CodificaVersion;
use super::dependencies::{DependencyStates, would_cycle};
use super::notes::{self, ExecutionNote, Provenance, TransitionRecord};
use super::selection::silent_hours;
use super::task::TaskState;
use super::task::{Priority, Task, TaskOwner, TaskType};
use super::task_edit::{self, TaskEditor, YamlNode};
use super::transitions::{TransitionFacts, transition};
use super::{Codifica, LocatedTask, block, unreadable};
use crate::board::BoardError;
use crate::board_verbs::NoteRequest;
use crate::names::{Actor, AgentName, TaskId};
use crate::store::tree::RepoTree;
use crate::store::{BoardCommit, Effects, FileEdit};
use crate::text::one_line;
use crate::timestamp::OffsetTimestamp;

/// The actor in notes that the runner itself writes.
pub const RUNNER_ACTOR: &str = "agent:agency";

/// A new task.
#[derive(Debug, Clone, Default)]
pub struct NewTask {
    pub title: String,
    /// `None` means `build`.
    pub kind: Option<String>,
    pub owner: TaskOwner,
    pub priority: Priority,
    pub description: Option<String>,
    pub depends_on: Vec<String>,
    pub labels: Vec<String>,
    pub acceptance: Vec<String>,
    pub checklist: Vec<String>,
    pub derived_from: Option<String>,
    pub context_files: Vec<String>,
    pub constraints: Vec<String>,
    pub dod_profile: Option<String>,
}

/// A requested move of a task.
#[derive(Debug, Clone)]
pub(super) struct TaskMove<'a> {
    pub(super) to: TaskState,
    pub(super) actor: &'a Actor,
    pub(super) reason: Option<&'a str>,
    pub(super) provenance: Provenance,
}

pub(super) fn format_time(now: &Zoned) -> String {
    OffsetTimestamp::from_zoned(&now.with_time_zone(TimeZone::UTC)).to_string()
}

/// How an actor is written.
pub(super) fn actor_text(actor: &Actor) -> String {
    match actor {
        // The protocol asks only whether the actor is human; it does not record a person's name.
        Actor::Human(_) => "human".to_owned(),
        Actor::Agent(name) => format!("agent:{name}"),
        Actor::Orchestrator => RUNNER_ACTOR.to_owned(),
    }
}

impl Codifica {
    pub fn new_task(&self, tree: &RepoTree, new: &NewTask) -> Result<((String, Task), Effects), BoardError> {
        let listing = self.tasks(tree)?;
        let known = DependencyStates::of(&listing);
        let kind = new.kind.as_deref().unwrap_or("build");
        let kind = TaskType::parse(kind, &self.contract).ok_or_else(|| {
            BoardError::refused(format!("there is no type `{kind}` (§6)")).with_hint(
                "types are build, test, review, investigate, followup, and `custom_types` of codifica.json",
            )
        })?;
        if kind == TaskType::Followup && new.derived_from.is_none() {
            return Err(BoardError::refused("a followup must say what it is derived from (§6)")
                .with_hint("--derived-from ID"));
        }
        for id in new.depends_on.iter().chain(&new.derived_from) {
            if !known.has(id) {
                return Err(BoardError::refused(format!("it can't name {id}: there is no such task (§5.2)")));
            }
        }
        if one_line(&new.title).is_empty() {
            return Err(BoardError::refused("a task needs a title (§5)"));
        }
        let ids = listing
            .tasks
            .iter()
            .map(|one| one.task.id.as_str())
            .chain(listing.unread.iter().map(String::as_str));
        let id = next_id(&kind.prefix(), ids);
        if let Some(circle) = would_cycle(&listing, &id, &new.depends_on) {
            return Err(BoardError::refused(format!("tasks would wait for each other: {circle} (§5.2)")));
        }
        check_review_owner(&kind, &new.owner)?;
        let node = fields(&id, &kind, new);
        let (file, text, list) = self.list_for_new(tree)?;
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut task = task_edit::task(&node, list.indent);
        // Some people leave a blank line between tasks; we do as they do.
        let apart = list.spans.len() > 1 && {
            let last = &list.spans[list.spans.len() - 2..];
            text[last[0].range.end..last[1].range.start].starts_with(['\r', '\n'])
        };
        if apart {
            task.insert(0, '\n');
        }
        let mut task = task.replace('\n', newline);
        let (before, after) = text.split_at(list.end);
        if !before.is_empty() && !before.ends_with('\n') {
            task.insert_str(0, newline);
        }
        let mut effects = Effects::none();
        effects.replace(&file, &text, [before, &task, after].concat());
        let anchor = list.spans.last().map(|span| &text[span.range.clone()]);
        let edit = match anchor {
            Some(anchor) => {
                FileEdit { path: file.clone(), before: anchor.to_owned(), after: format!("{anchor}{task}") }
            }
            None => {
                FileEdit { path: file.clone(), before: text.clone(), after: [before, &task, after].concat() }
            }
        };
        let message = format!("{id}: {}", one_line(&new.title));
        effects.commit = Some(BoardCommit { message, edits: vec![edit], is_needed: false });
        let block = block::TaskBlock::parse(task.trim_start_matches(['\r', '\n']), 1)
            .map_err(|error| unreadable(&file, error))?;
        match Task::read(&file, &block, 1, &self.contract) {
            super::ParsedTask { task: Some(task), .. } => Ok(((file, task), effects)),
            super::ParsedTask { findings, .. } => Err(BoardError::Unreadable(findings)),
        }
    }

    /// Moves a task to another state, if that actor may.
    pub fn move_task(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        to: TaskState,
        actor: &Actor,
        reason: Option<&str>,
        now: &Zoned,
    ) -> Result<(Task, Effects), BoardError> {
        let found = self.find(tree, id)?;
        if let (TaskState::Todo, TaskState::InProgress, Actor::Agent(agent)) = (found.task.state, to, actor) {
            self.may_claim(tree, agent)?;
        }
        let session = (found.task.state != TaskState::Todo).then(|| found.parsed().ok()).flatten();
        let session = session.and_then(|block| notes::session(&block));
        let provenance = match actor {
            Actor::Agent(_) => Provenance::of_session(session.as_deref()),
            Actor::Human(_) | Actor::Orchestrator => Provenance::default(),
        };
        let wanted = TaskMove { to, actor, reason, provenance };
        self.may_move(tree, &found, &wanted, now)?;
        let mut draft = self.draft(&found)?;
        let closing = closing_note(&found, &wanted, now)?;
        closing
            .map_or(Ok(()), |note| draft.push("execution_notes", &note.node()))
            .and_then(|()| apply_move(&mut draft, &found.task, &wanted, now))
            .map_err(|error| unreadable(&found.file, error))?;
        let mut patches = vec![self.finished(found.clone(), draft)?];
        if found.task.state == TaskState::Done {
            patches.extend(self.warn_dependents(tree, &found.task, to, now)?);
        }
        let message = format!("{id}: {} -> {to} by {}", found.task.state, actor_text(actor));
        // A claim counts only when the others can see it.
        let is_needed = to == TaskState::InProgress && matches!(actor, Actor::Agent(_));
        let effects = self.effects(patches, message, is_needed);
        let owner = owner_after(&found.task, &wanted);
        Ok((Task { state: to, owner, ..found.task }, effects))
    }

    /// Checks the rules of §5 and §7 for a move.
    pub(super) fn may_move(
        &self,
        tree: &RepoTree,
        found: &LocatedTask,
        wanted: &TaskMove<'_>,
        now: &Zoned,
    ) -> Result<(), BoardError> {
        let task = &found.task;
        if self.contract.version == CodificaVersion::V0_1 && wanted.to == TaskState::Rejected {
            return Err(BoardError::refused(format!("{}: version 0.1 has no `rejected` (§12)", task.id))
                .with_hint("`agency migrate --to 0.2` brings the repository to the version that has it"));
        }
        let block = found.parsed()?;
        let unmet = match wanted.to {
            TaskState::InProgress => DependencyStates::of(&self.tasks(tree)?).unmet(task),
            _ => None,
        };
        let facts = TransitionFacts {
            kind: &task.kind,
            owner: &task.owner,
            has_acceptance: !task.acceptance.is_empty(),
            unmet,
            silent_hours: silent_hours(&block, task.claimed_at.as_deref(), now.timestamp()),
            stale_hours: self.contract.rules.stale_hours,
        };
        transition(task.state, wanted.to, wanted.actor, &facts, wanted.reason)
            .map_err(|refused| BoardError::refused(format!("{}: {refused}", task.id)))
    }

    /// §3.1 and §5.1: whether an agent may take one more.
    pub(super) fn may_claim(&self, tree: &RepoTree, agent: &AgentName) -> Result<(), BoardError> {
        if !self.contract.allows(agent) {
            let reason = format!("agent:{agent} is not among `allowed_agents` of codifica.json (§3.1)");
            return Err(BoardError::refused(reason));
        }
        let Some(most) = self.contract.rules.most_at_once else { return Ok(()) };
        let listing = self.tasks(tree)?;
        let held = listing
            .tasks
            .iter()
            .filter(|one| one.task.state == TaskState::InProgress && one.task.owner.agent() == Some(agent));
        match held.count() {
            held if held >= most => Err(BoardError::refused(format!(
                "agent:{agent} holds {held} tasks, and may hold {most} (§5.1)"
            ))),
            _ => Ok(()),
        }
    }

    /// Gives a task on which no agent works to an agent, to a person, or to nobody.
    pub fn assign(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        owner: &TaskOwner,
        actor: &Actor,
    ) -> Result<(Task, Effects), BoardError> {
        let found = self.find(tree, id)?;
        if let Actor::Agent(name) = actor
            && (owner.agent() != Some(name) || found.task.owner != TaskOwner::Unassigned)
        {
            return Err(BoardError::refused(format!(
                "{id}: an agent takes only what is unassigned, and for itself (§5.1)"
            )));
        }
        if !matches!(found.task.state, TaskState::Todo | TaskState::Blocked) {
            let reason =
                format!("{id} is {}: only what nobody works on changes its owner (§8.1)", found.task.state);
            return Err(BoardError::refused(reason));
        }
        if let Some(agent) = owner.agent().filter(|agent| !self.contract.allows(agent)) {
            let reason = format!("{id}: agent:{agent} is not among `allowed_agents` of codifica.json (§3.1)");
            return Err(BoardError::refused(reason));
        }
        check_review_owner(&found.task.kind, owner)?;
        // However it is written, it stays as it is.
        if found.task.owner == *owner {
            return Ok((found.task, Effects::none()));
        }
        let mut draft = self.draft(&found)?;
        draft
            .set("owner", &YamlNode::text(owner.to_string()))
            .map_err(|error| unreadable(&found.file, error))?;
        let patch = self.finished(found.clone(), draft)?;
        let effects = self.effects(vec![patch], format!("{id}: owner is {owner}"), false);
        Ok((Task { owner: owner.clone(), ..found.task }, effects))
    }

    /// Adds an execution note of an agent to a task.
    pub fn add_note(
        &self,
        tree: &RepoTree,
        request: &NoteRequest<'_>,
        now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError> {
        let NoteRequest { id, actor, text, summary } = *request;
        let found = self.find(tree, id)?;
        let Actor::Agent(agent) = actor else {
            return Err(BoardError::refused(format!("{id}: execution notes are for agents (§5)")).with_hint(
                format!("say --as agent:NAME; a person writes `human_review` in {}", found.file),
            ));
        };
        if !self.contract.allows(agent) {
            let reason = format!("{id}: agent:{agent} is not among `allowed_agents` of codifica.json (§3.1)");
            return Err(BoardError::refused(reason));
        }
        if text.trim().is_empty() {
            return Err(BoardError::refused(format!("{id}: a note needs a text (§5)")));
        }
        let session = notes::session(&found.parsed()?).filter(|_| found.task.owner.agent() == Some(agent));
        let note = ExecutionNote {
            by: Some(actor_text(actor)),
            note: text.to_owned(),
            summary: summary.map(str::to_owned),
            timestamp: Some(format_time(now)),
            provenance: Provenance::of_session(session.as_deref()),
        };
        let mut draft = self.draft(&found)?;
        draft.push("execution_notes", &note.node()).map_err(|error| unreadable(&found.file, error))?;
        let message = format!("{id}: note by {}", actor_text(actor));
        Ok((found.task.id.clone(), self.effects(vec![self.finished(found, draft)?], message, false)))
    }

    /// §5.2: warns the agents whose tasks depend on a task that is not done any more, and does nothing else.
    fn warn_dependents(
        &self,
        tree: &RepoTree,
        task: &Task,
        to: TaskState,
        now: &Zoned,
    ) -> Result<Vec<(LocatedTask, String)>, BoardError> {
        let listing = self.tasks(tree)?;
        let depends = |one: &&super::ListedTask| {
            one.task.state == TaskState::InProgress
                && one.task.depends_on.iter().any(|id| id == task.id.as_str())
        };
        let mut patches = Vec::new();
        for listed in listing.tasks.iter().filter(depends) {
            let found = self.find(tree, &listed.task.id)?;
            let note = ExecutionNote {
                by: Some(RUNNER_ACTOR.to_owned()),
                note: format!("Warning: {}, which this depends on, went from done to {to}.", task.id),
                timestamp: Some(format_time(now)),
                ..ExecutionNote::default()
            };
            let mut draft = self.draft(&found)?;
            draft.push("execution_notes", &note.node()).map_err(|error| unreadable(&found.file, error))?;
            patches.push(self.finished(found, draft)?);
        }
        Ok(patches)
    }

    pub(super) fn draft(&self, found: &LocatedTask) -> Result<TaskEditor, BoardError> {
        TaskEditor::new(found.block(), found.span.line).map_err(|error| unreadable(&found.file, error))
    }

    pub(super) fn finished(
        &self,
        found: LocatedTask,
        draft: TaskEditor,
    ) -> Result<(LocatedTask, String), BoardError> {
        let text = draft.finish().map_err(|error| unreadable(&found.file, error))?;
        Ok((found, text))
    }

    /// The effects of an action: the new bytes of its tasks, as one commit.
    pub(super) fn effects(
        &self,
        patches: Vec<(LocatedTask, String)>,
        message: String,
        is_needed: bool,
    ) -> Effects {
        let mut by_file: BTreeMap<String, Vec<(LocatedTask, String)>> = BTreeMap::new();
        for (found, text) in patches {
            by_file.entry(found.file.clone()).or_default().push((found, text));
        }
        let mut effects = Effects::none();
        let mut edits = Vec::new();
        for (file, mut patches) in by_file {
            // From the end, so that earlier positions stay right.
            patches.sort_by_key(|(found, _)| std::cmp::Reverse(found.span.range.start));
            let old = patches[0].0.text.clone();
            let mut text = old.clone();
            for (found, after) in patches {
                text.replace_range(found.span.range.clone(), &after);
                let before = found.block().to_owned();
                edits.push(FileEdit { path: file.clone(), before, after });
            }
            effects.replace(&file, &old, text);
        }
        edits.retain(|edit| edit.before != edit.after);
        if !edits.is_empty() {
            effects.commit = Some(BoardCommit { message, edits, is_needed });
        }
        effects
    }
}

/// Sets a task's fields for a move.
pub(super) fn apply_move(
    draft: &mut TaskEditor,
    task: &Task,
    wanted: &TaskMove<'_>,
    now: &Zoned,
) -> Result<(), block::BlockError> {
    let (from, to) = (task.state, wanted.to);
    let reason = wanted.reason.map(one_line).filter(|reason| !reason.is_empty());
    draft.set("state", &YamlNode::text(to.as_str()))?;
    let owner = owner_after(task, wanted);
    if owner != task.owner {
        draft.set("owner", &YamlNode::text(owner.to_string()))?;
    }
    if to == TaskState::InProgress {
        draft.set("claimed_at", &YamlNode::text(format_time(now)))?;
    } else if is_reclaim(task.state, wanted) {
        draft.remove("claimed_at")?;
    }
    if from == TaskState::Blocked {
        draft.remove("blocked_reason")?;
        draft.remove("blocked_by")?;
    }
    if from.is_final() {
        draft.remove("completed_at")?;
    }
    match to {
        TaskState::Done | TaskState::Rejected => {
            draft.set("completed_at", &YamlNode::text(format_time(now)))?;
        }
        TaskState::Blocked => {
            draft.set("blocked_reason", &YamlNode::text(reason.clone().unwrap_or_default()))?;
        }
        TaskState::Todo | TaskState::InProgress | TaskState::ToBeTested => {}
    }
    let step = TransitionRecord {
        from: Some(from.to_string()),
        to: Some(to.to_string()),
        by: Some(actor_text(wanted.actor)),
        reason,
        timestamp: Some(format_time(now)),
        provenance: wanted.provenance.clone(),
    };
    draft.push("state_transitions", &step.node())
}

/// §5 and §12.2: the note with which an agent closes its task. It has a summary: the reason, or else the last summary of
/// the task, or its title.
fn closing_note(
    found: &LocatedTask,
    wanted: &TaskMove<'_>,
    now: &Zoned,
) -> Result<Option<ExecutionNote>, BoardError> {
    let (TaskState::Done, Actor::Agent(_)) = (wanted.to, wanted.actor) else { return Ok(None) };
    let reason = wanted.reason.map(one_line).filter(|reason| !reason.is_empty());
    let mut earlier = notes::notes(&found.parsed()?).into_iter().rev();
    let summary = reason.clone().or_else(|| earlier.find_map(|note| note.summary));
    Ok(Some(ExecutionNote {
        by: Some(actor_text(wanted.actor)),
        note: reason.unwrap_or_else(|| "Done.".to_owned()),
        summary: Some(summary.unwrap_or_else(|| found.task.title.clone())),
        timestamp: Some(format_time(now)),
        provenance: wanted.provenance.clone(),
    }))
}

/// §8.1: a task in progress has an owner: the agent that claims it, or else a person. A task that a person reclaims has
/// none any more: any agent may take it.
fn owner_after(task: &Task, wanted: &TaskMove<'_>) -> TaskOwner {
    match (wanted.to, wanted.actor, &task.owner) {
        (TaskState::InProgress, Actor::Agent(name), _) => TaskOwner::Agent(name.clone()),
        (TaskState::InProgress, _, TaskOwner::Unassigned) => TaskOwner::Human,
        // §6: a review is for a person, and a person has begun it.
        (TaskState::InProgress, Actor::Human(_), TaskOwner::Agent(_)) if task.kind == TaskType::Review => {
            TaskOwner::Human
        }
        (_, _, TaskOwner::Agent(_)) if is_reclaim(task.state, wanted) => TaskOwner::Unassigned,
        (_, _, owner) => owner.clone(),
    }
}

/// §8.1.1: whether a person takes a claim back.
fn is_reclaim(from: TaskState, wanted: &TaskMove<'_>) -> bool {
    matches!((from, wanted.to, wanted.actor), (TaskState::InProgress, TaskState::Todo, Actor::Human(_)))
}

/// §6: a review is human judgment, so no agent owns one.
fn check_review_owner(kind: &TaskType, owner: &TaskOwner) -> Result<(), BoardError> {
    match (kind, owner) {
        (TaskType::Review, TaskOwner::Agent(agent)) => Err(BoardError::refused(format!(
            "a review is human judgment only, so agent:{agent} can't own it (§6)"
        ))
        .with_hint("say --assignee human or --assignee unassigned, or make it a task of type test")),
        _ => Ok(()),
    }
}

/// One more than the highest.
fn next_id<'a>(prefix: &str, ids: impl Iterator<Item = &'a str>) -> String {
    let number = |id: &str| id.strip_prefix(prefix)?.strip_prefix('-')?.parse::<u64>().ok();
    let next = ids.filter_map(number).max().unwrap_or(0).saturating_add(1);
    format!("{prefix}-{next:03}")
}

fn fields(id: &str, kind: &TaskType, new: &NewTask) -> YamlNode {
    let texts = |texts: &[String]| (!texts.is_empty()).then(|| YamlNode::texts(texts));
    let text = |text: &Option<String>| {
        text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(YamlNode::text)
    };
    let context = YamlNode::Map(Vec::new())
        .with("files", texts(&new.context_files))
        .with("constraints", texts(&new.constraints));
    let context = (context != YamlNode::Map(Vec::new())).then_some(context);
    YamlNode::map([
        ("id", YamlNode::text(id)),
        ("type", YamlNode::text(kind.to_string())),
        ("state", YamlNode::text("todo")),
        ("owner", YamlNode::text(new.owner.to_string())),
        ("title", YamlNode::text(one_line(&new.title))),
    ])
    .with("description", text(&new.description))
    .with("priority", Some(YamlNode::text(new.priority.as_str())))
    .with("depends_on", texts(&new.depends_on))
    .with("labels", texts(&new.labels))
    .with("acceptance", texts(&new.acceptance))
    .with("checklist", texts(&new.checklist))
    .with("derived_from", text(&new.derived_from))
    .with("context", context)
    .with("dod_profile", text(&new.dod_profile))
}
