//! The board as front ends use it: answers in the words of every protocol, documents in this one's own shape.

use jiff::Zoned;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::actions::{NewTask, RUNNER_ACTOR};
use super::contract::CodificaVersion;
use super::task::{Priority, Task, TaskOwner, TaskState, TaskType};
use super::{Codifica, LocatedTask, PROFILE, PROFILES, StateListing, lint, notes};
use crate::board::{Board as _, BoardError};
use crate::board_verbs::WorkOutcome;
use crate::board_verbs::{
    ArchiveSummary, AssignRequest, BoardStatus, BoardVerbs, CreatedTask, KeptVerification, LintRequest,
    Migration, MoveRequest, NoteRequest, ReportPage, RequestedScope, StatusFooter, StatusRequest, TaskFilter,
    TaskPage, TaskRequest, TaskSummary, TaskTable, UndoneTask, VerificationInput, VerificationOptions,
    VerificationTarget,
};
use crate::finding::Finding;
use crate::names::{Actor, TaskId};
use crate::store::Effects;
use crate::store::tree::RepoTree;

/// A task as documents have it.
#[derive(Serialize)]
struct CodificaTaskDocument<'a> {
    file: &'a str,
    line: usize,
    #[serde(flatten)]
    task: &'a Task,
}

fn summary(file: &str, line: usize, task: &Task) -> TaskSummary {
    TaskSummary {
        id: task.id.to_string(),
        priority: task.priority.to_string(),
        state: task.state.to_string(),
        owner: task.owner.to_string(),
        title: task.title.clone(),
        document: serde_json::to_value(CodificaTaskDocument { file, line, task }).unwrap_or_default(),
    }
}

/// Every task of a listing, with its state and priority.
fn summaries(listing: &StateListing) -> Vec<(&Task, TaskSummary)> {
    let of = |one: &super::ListedTask| summary(listing.path(one), one.span.line, &one.task);
    listing.tasks.iter().map(|one| (&one.task, of(one))).collect()
}

fn parse_state(text: &str) -> Result<TaskState, BoardError> {
    TaskState::typed(text).ok_or_else(|| {
        let known: Vec<&str> = TaskState::ALL.iter().map(|state| state.as_str()).collect();
        BoardError::refused(format!("there is no state `{text}`; there are {}", known.join(", ")))
    })
}

fn no_such_field() -> BoardError {
    BoardError::refused("a task of Codifica has no scope, risks or references of its own (§5)")
        .with_hint("what agents may change is `rules.file_scope` of codifica.json")
}

fn check_no_scope(scope: &RequestedScope) -> Result<(), BoardError> {
    if scope.is_empty() { Ok(()) } else { Err(no_such_field()) }
}

fn new_task(request: &TaskRequest) -> Result<NewTask, BoardError> {
    if !request.risks.is_empty() || !request.external_refs.is_empty() {
        return Err(no_such_field());
    }
    check_no_scope(&request.scope)?;
    Ok(NewTask {
        title: request.title.clone(),
        kind: request.kind.clone(),
        owner: request.assignee.as_ref().map(TaskOwner::from).unwrap_or_default(),
        priority: Priority::ALL[usize::from(request.urgency).min(Priority::ALL.len() - 1)],
        description: request.description.clone().or_else(|| request.body.clone()),
        depends_on: request.depends_on.clone(),
        labels: request.labels.clone(),
        acceptance: request.acceptance.clone(),
        checklist: request.checklist.clone(),
        derived_from: request.derived_from.clone(),
        context_files: request.context_files.clone(),
        constraints: request.constraints.clone(),
        dod_profile: request.dod_profile.clone(),
    })
}

impl BoardVerbs for Codifica {
    fn check_states(&self, states: &[String]) -> Result<(), BoardError> {
        states.iter().try_for_each(|text| parse_state(text).map(drop))
    }

    fn task_list(&self, tree: &RepoTree, filter: &TaskFilter) -> Result<TaskTable, BoardError> {
        let listing = self.tasks(tree)?;
        let all = summaries(&listing).into_iter();
        let wanted = all.filter(|(task, _)| filter.selects(task.state.as_str(), &task.owner.assignee()));
        let tasks = wanted.map(|(_, shown)| shown).collect();
        Ok(TaskTable { tasks, findings: listing.findings })
    }

    fn task_page(&self, tree: &RepoTree, id: &TaskId) -> Result<TaskPage, BoardError> {
        let found = self.find(tree, id)?;
        let text = found.block().to_owned();
        let summary = summary(&found.file, found.span.line, &found.task);
        Ok(TaskPage { summary, place: place(&found), body: Some(text.clone()), text })
    }

    fn check_request(&self, request: &TaskRequest) -> Result<(), BoardError> {
        new_task(request).map(drop)
    }

    fn task_new(
        &self,
        tree: &RepoTree,
        request: &TaskRequest,
        _now: &Zoned,
    ) -> Result<(CreatedTask, Effects), BoardError> {
        let ((file, task), effects) = Codifica::new_task(self, tree, &new_task(request)?)?;
        let remarks = match task.kind == TaskType::Build && task.acceptance.is_empty() {
            true => vec![
                "a build task does not start without acceptance criteria (§7.2): give it --acceptance"
                    .to_owned(),
            ],
            false => Vec::new(),
        };
        // On which line it will be is not known before it is written.
        let summary = summary(&file, 0, &task);
        let place = format!("in {file}");
        Ok((CreatedTask { id: task.id, summary, place, remarks, globs: Vec::new() }, effects))
    }

    fn task_move(
        &self,
        tree: &RepoTree,
        request: &MoveRequest<'_>,
        now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError> {
        let MoveRequest { id, to, actor, reason } = *request;
        let (task, effects) = self.move_task(tree, id, parse_state(to)?, actor, reason, now)?;
        Ok((task.id, effects))
    }

    fn task_undone(
        &self,
        tree: &RepoTree,
        request: &UndoneTask<'_>,
        now: &Zoned,
    ) -> Result<((), Effects), BoardError> {
        let person = Actor::Human(Some(request.person.to_owned()));
        let reason = Some(request.reason);
        let (_, effects) = self.move_task(tree, request.id, TaskState::Todo, &person, reason, now)?;
        Ok(((), effects))
    }

    fn task_note(
        &self,
        tree: &RepoTree,
        request: &NoteRequest<'_>,
        now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError> {
        self.add_note(tree, request, now)
    }

    /// Whether a person must confirm the move: only a person is the orchestrator in this protocol.
    fn needs_person(&self, tree: &RepoTree, request: &MoveRequest<'_>, now: &Zoned) -> bool {
        let by_person = MoveRequest { actor: &Actor::Human(None), ..*request };
        *request.actor == Actor::Orchestrator && self.task_move(tree, &by_person, now).is_ok()
    }

    fn task_assign(
        &self,
        tree: &RepoTree,
        request: &AssignRequest<'_>,
        _now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError> {
        check_no_scope(request.scope)?;
        let owner = TaskOwner::from(request.assignee);
        let (task, effects) = self.assign(tree, request.id, &owner, request.actor)?;
        Ok((task.id, effects))
    }

    fn board_status(&self, tree: &RepoTree, request: StatusRequest<'_>) -> Result<BoardStatus, BoardError> {
        let mut listing = self.tasks(tree)?;
        listing.findings.extend_from_slice(request.lost);
        let selection = self.select(&listing, request.now.timestamp());
        let named = |id: &TaskId| match request.is_among_others {
            true => format!("{}:{id}", self.protocol()),
            false => id.to_string(),
        };
        let shown = |summary: TaskSummary| match request.is_among_others {
            true => summary.prefixed(self.protocol()),
            false => summary,
        };
        let all: Vec<_> = summaries(&listing).into_iter().map(|(task, one)| (task, shown(one))).collect();
        let count = |state: TaskState| all.iter().filter(|(task, _)| task.state == state).count();
        let counts: Vec<_> = TaskState::ALL.iter().map(|state| (state.to_string(), count(*state))).collect();
        let by_state: Map<String, Value> =
            counts.iter().map(|(state, count)| (state.clone(), (*count).into())).collect();
        let waiting = selection.waiting.iter().chain(&selection.reported).chain(&selection.elsewhere);
        // Beside another board, a command that writes names the protocol.
        let said = |why: &str| match request.is_among_others {
            true => why.replace("`agency ", &format!("`agency --protocol {} ", self.protocol())),
            false => why.to_owned(),
        };
        let document = json!({
            "version": 1,
            "protocol": self.protocol(),
            "counts": by_state,
            "tasks": all.iter().map(|(_, shown)| &shown.document).collect::<Vec<_>>(),
            "waiting": waiting
                .clone()
                .map(|(listed, why)| json!({ "task": named(&listed.task.id), "why": said(why) }))
                .collect::<Vec<_>>(),
            "findings": &listing.findings,
        });
        let mut open: Vec<_> = all.into_iter().filter(|(task, _)| !task.state.is_final()).collect();
        open.sort_by_key(|(task, _)| (urgency(task.state), task.priority));
        let open = open.into_iter().map(|(_, shown)| shown).collect();
        let line = |(listed, why): &(&super::ListedTask, String)| {
            format!("{}: {}", named(&listed.task.id), said(why))
        };
        let (stale, stuck) = waiting
            .filter(|(listed, _)| listed.task.state != TaskState::Todo)
            .partition::<Vec<_>, _>(|(listed, _)| selection.stale.contains(listed));
        let [stale, stuck] = [stale, stuck].map(|some| some.into_iter().map(line).collect());
        let footer = Some(StatusFooter { counts, ..StatusFooter::default() });
        Ok(BoardStatus { document, open, stale, stuck, footer, findings: listing.findings })
    }

    fn done_task(&self, tree: &RepoTree, id: &TaskId) -> Option<(String, &'static str)> {
        let found = self.find(tree, id).ok()?;
        (found.task.state == TaskState::Done).then_some((found.file, "5"))
    }

    fn latest_report(&self, tree: &RepoTree, id: &TaskId) -> Result<ReportPage, BoardError> {
        let found = self.find(tree, id)?;
        let block = found.parsed()?;
        let (said, made) = (notes::notes(&block), notes::artifacts(&block));
        let document = json!({
            "version": 1,
            "task": id,
            "file": found.file,
            "execution_notes": said,
            "artifacts": made,
            "state_transitions": notes::steps(&block),
        });
        let mut text = String::new();
        for note in &said {
            let by = note.by.as_deref().unwrap_or("somebody");
            let at = note.timestamp.as_deref().unwrap_or("at some time");
            text.push_str(&format!("{at}  {by}: {}\n", note.summary.as_deref().unwrap_or("")));
            note.note.lines().for_each(|line| text.push_str(&format!("    {line}\n")));
        }
        for artifact in &made {
            let kind = artifact.kind.as_deref().unwrap_or("");
            text.push_str(&format!("artifact  {}  {kind}\n", artifact.path));
        }
        Ok(ReportPage {
            document: Some(document),
            place: place(&found),
            text: (!text.is_empty()).then_some(text),
            missing: format!("there is no note on {id} yet"),
            findings: Vec::new(),
            outcome: WorkOutcome {
                state: found.task.state.to_string(),
                // A task that was opened again has not landed.
                commit: notes::steps(&block)
                    .pop()
                    .filter(|step| step.to.as_deref() == Some(TaskState::Done.as_str()))
                    .and_then(|step| step.provenance.commit_sha),
                ..WorkOutcome::default()
            },
        })
    }

    fn board_lint(&self, tree: &RepoTree, request: &LintRequest<'_>) -> Result<Vec<Finding>, BoardError> {
        lint::lint(self, tree, request.now.timestamp(), &request.closed_glob)
    }

    fn board_archive(
        &self,
        tree: &RepoTree,
        days: u32,
        now: &Zoned,
    ) -> Result<(ArchiveSummary, Effects), BoardError> {
        let (archived, effects) = self.archive(tree, days, now)?;
        let document = serde_json::to_value(&archived).unwrap_or_default();
        Ok((ArchiveSummary { document, count: archived.tasks.len(), tasks: archived.tasks }, effects))
    }

    fn board_migrate(&self, _tree: &RepoTree, to: &str) -> Result<(Migration, Effects), BoardError> {
        let to = CodificaVersion::parse(to)
            .ok_or_else(|| BoardError::refused(format!("`{to}` is no version; say it like 0.2")))?;
        let effects = self.migrate(to)?;
        let (from, is_changed) = (self.contract.version.to_string(), !effects.is_empty());
        Ok((Migration { from, to: to.to_string(), is_changed }, effects))
    }

    fn verification_target(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        options: VerificationOptions,
    ) -> Result<VerificationTarget, BoardError> {
        if options.is_override {
            return Err(self.unsupported("verify --override"));
        }
        if options.checks_risks {
            return Err(self.unsupported("verify --check-risks"));
        }
        let profile = self.find(tree, id)?.task.dod_profile.unwrap_or_else(|| PROFILE.to_owned());
        Ok(VerificationTarget { profile, profiles_folder: PROFILES, apart: None })
    }

    fn keep_verification(
        &self,
        tree: &RepoTree,
        record: &VerificationInput<'_>,
        now: &Zoned,
    ) -> Result<(KeptVerification, Effects), BoardError> {
        let VerificationInput { id, evidence, actor, .. } = *record;
        let by = match (actor, self.find(tree, id)?.task.owner.agent()) {
            (Actor::Agent(name), _) | (_, Some(name)) => format!("agent:{name}"),
            _ => RUNNER_ACTOR.to_owned(),
        };
        let (kept, effects) = self.record_verification(tree, id, evidence, &by, now)?;
        let kept = KeptVerification {
            id: id.to_string(),
            result: if kept.passed { "pass" } else { "fail" }.to_owned(),
            is_enough: kept.passed,
            artifact: kept.artifact_path,
            fields: Map::new(),
            blocking_reason: None,
            override_note: None,
        };
        Ok((kept, effects))
    }

    fn removal(&self) -> &'static str {
        "rejected --as human --reason …"
    }
}

fn place(found: &LocatedTask) -> String {
    format!("{}:{}", found.file, found.span.line)
}

/// What needs a person comes first.
fn urgency(state: TaskState) -> u8 {
    match state {
        TaskState::Blocked => 0,
        TaskState::ToBeTested => 1,
        TaskState::InProgress => 2,
        TaskState::Todo => 3,
        TaskState::Done | TaskState::Rejected => 4,
    }
}
