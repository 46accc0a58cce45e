//! The board as front ends use it: answers in the words of every protocol, documents in this one's own shape.

use jiff::Zoned;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::actions::{NewTask, note};
use super::artifact::VerifyResult;
use super::layout::{self, BoardFileKind, BoardPath, PROFILES, RISKS, ROOT, STATE};
use super::manifest::ProtocolVersion;
use super::risks::RiskRegister;
use super::status::TaskStatus;
use super::task::{KodingXScope, Priority, Task};
use super::{KodingX, lint};
use crate::board::{Board as _, BoardError};
use crate::board_verbs::{
    ArchiveSummary, AssignRequest, BoardStatus, BoardVerbs, CreatedTask, KeptVerification, LintRequest,
    Migration, MoveRequest, OutcomeVerification, ReportPage, RiskNote, StatusFooter, StatusRequest,
    TaskFilter, TaskPage, TaskRequest, TaskSummary, TaskTable, UndoneTask, VerificationInput,
    VerificationOptions, VerificationTarget, WorkOutcome,
};
use crate::finding::Finding;
use crate::names::{Actor, AgentName, Assignee, TaskId};
use crate::store::Effects;
use crate::store::tree::RepoTree;
use crate::text::frontmatter::Frontmatter;

/// A task as documents have it.
#[derive(Serialize)]
struct KodingXTaskDocument<'a> {
    file: &'a str,
    #[serde(flatten)]
    task: &'a Task,
}

fn summary(place: &BoardPath, task: &Task) -> TaskSummary {
    TaskSummary {
        id: task.id.to_string(),
        priority: task.priority.to_string(),
        state: task.status.to_string(),
        owner: task.assignee.to_string(),
        title: task.title.clone(),
        document: document(&KodingXTaskDocument { file: &place.path, task }),
    }
}

fn document(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn parse_status(text: &str) -> Result<TaskStatus, BoardError> {
    TaskStatus::typed(text).ok_or_else(|| {
        let known: Vec<&str> = TaskStatus::ALL.iter().map(|status| status.as_str()).collect();
        BoardError::refused(format!("there is no state `{text}`; there are {}", known.join(", ")))
    })
}

/// The agent of an assignee. A person may build as well (§3.3), and has a folder of that name.
fn builder(assignee: &Assignee) -> Result<AgentName, BoardError> {
    let parsed = match assignee {
        Assignee::Agent(name) => return Ok(name.clone()),
        Assignee::Human => AgentName::parse("human"),
        Assignee::Unassigned => {
            return Err(BoardError::refused("a task of KodingX has an assignee (§6.2)")
                .with_hint("say --assignee AGENT"));
        }
    };
    parsed.map_err(|error| BoardError::refused(error.to_string()))
}

fn new_task(request: &TaskRequest) -> Result<NewTask, BoardError> {
    let TaskRequest { scope, .. } = request;
    Ok(NewTask {
        assignee: request.assignee.as_ref().map(builder).transpose()?,
        priority: Priority::ALL[usize::from(request.urgency).min(Priority::ALL.len() - 1)],
        status: if request.is_assigned { TaskStatus::Assigned } else { TaskStatus::New },
        scope: KodingXScope {
            must_touch: scope.must_touch.clone(),
            may_touch: scope.may_touch.clone(),
            must_not_touch: scope.must_not_touch.clone(),
            author: scope.author,
        },
        dod_profile: request.dod_profile.clone(),
        labels: request.labels.clone(),
        depends_on: request.depends_on.clone(),
        context_files: request.context_files.clone(),
        acceptance: request.acceptance.clone(),
        constraints: request.constraints.clone(),
        risks: request.risks.clone(),
        external_refs: request.external_refs.clone(),
        body: request.body.clone(),
        ..NewTask::titled(request.title.as_str())
    })
}

impl KodingX {
    /// How many reports there are that can be read, and what is wrong with the others.
    fn count_reports(&self, tree: &RepoTree) -> Result<(usize, Vec<Finding>), BoardError> {
        let places = layout::list_files(tree, BoardFileKind::Report, false)?;
        let (mut count, mut unreadable) = (0, Vec::new());
        for place in places {
            let (read, findings) = self.read_reports(tree, std::iter::once(place));
            match read.is_empty() {
                true => unreadable.extend(findings.into_iter().filter(Finding::is_error)),
                false => count += 1,
            }
        }
        Ok((count, unreadable))
    }

    fn status_document(
        &self,
        counts: &[(String, usize)],
        tasks: &[TaskSummary],
        reports: usize,
        last_verify: &Option<Value>,
        findings: &[Finding],
    ) -> Value {
        let counts: Map<String, Value> =
            counts.iter().map(|(status, count)| (status.clone(), (*count).into())).collect();
        json!({
            "version": 1,
            "protocol": self.protocol(),
            "project": self.manifest.project,
            "counts": counts,
            "tasks": tasks.iter().map(|task| &task.document).collect::<Vec<_>>(),
            "reports": reports,
            "last_verify": last_verify,
            "findings": findings,
        })
    }
}

impl BoardVerbs for KodingX {
    fn check_states(&self, states: &[String]) -> Result<(), BoardError> {
        states.iter().try_for_each(|text| parse_status(text).map(drop))
    }

    fn task_list(&self, tree: &RepoTree, filter: &TaskFilter) -> Result<TaskTable, BoardError> {
        let listing = self.tasks(tree)?;
        let assignee = |task: &Task| match task.assignee.as_str() {
            "human" => Assignee::Human,
            _ => Assignee::Agent(task.assignee.clone()),
        };
        let wanted = |(_, task): &&(BoardPath, Task)| filter.selects(task.status.as_str(), &assignee(task));
        let tasks = listing.tasks.iter().filter(wanted).map(|(place, task)| summary(place, task)).collect();
        Ok(TaskTable { tasks, findings: listing.findings })
    }

    fn task_page(&self, tree: &RepoTree, id: &TaskId) -> Result<TaskPage, BoardError> {
        let found = self.find(tree, id)?;
        let body = Frontmatter::parse(&found.text).map(|matter| matter.body().to_owned()).ok();
        Ok(TaskPage {
            summary: summary(&found.place, &found.value),
            place: found.place.path,
            text: found.text,
            body,
        })
    }

    fn task_new(
        &self,
        tree: &RepoTree,
        request: &TaskRequest,
        now: &Zoned,
    ) -> Result<(CreatedTask, Effects), BoardError> {
        let new = new_task(request)?;
        let (made, effects) = KodingX::new_task(self, tree, &new, now)?;
        let globs = [new.scope.must_touch, new.scope.may_touch].concat();
        let remarks = match globs.is_empty() {
            true => vec![
                "its scope is empty: nothing will be writable; give it --must-touch or --may-touch"
                    .to_owned(),
            ],
            false => Vec::new(),
        };
        let summary = summary(&made.place, &made.value);
        Ok((CreatedTask { id: made.value.id, summary, place: made.place.path, remarks, globs }, effects))
    }

    fn task_import(
        &self,
        tree: &RepoTree,
        requests: &[TaskRequest],
        now: &Zoned,
    ) -> Result<(Vec<TaskSummary>, Effects), BoardError> {
        let tasks: Vec<NewTask> = requests.iter().map(new_task).collect::<Result<_, _>>()?;
        let (made, effects) = self.import(tree, &tasks, now)?;
        Ok((made.iter().map(|found| summary(&found.place, &found.value)).collect(), effects))
    }

    fn task_move(
        &self,
        tree: &RepoTree,
        request: &MoveRequest<'_>,
        now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError> {
        let MoveRequest { id, to, actor, reason } = *request;
        let (task, effects) = self.move_task(tree, id, parse_status(to)?, actor, reason, now)?;
        Ok((task.id, effects))
    }

    /// §9.2 has no way out of DONE but CANCELED: this is an extension, as the way out of BLOCKED is.
    fn task_undone(
        &self,
        tree: &RepoTree,
        request: &UndoneTask<'_>,
        now: &Zoned,
    ) -> Result<((), Effects), BoardError> {
        let found = self.find(tree, request.id)?;
        let mut task = found.value.clone();
        task.status = TaskStatus::Assigned;
        let person = Actor::Human(Some(request.person.to_owned()));
        let note = note(found.value.status, task.status, &person, Some(request.reason));
        Ok(((), self.rewrite(tree, &found, &task, &["status"], note.as_deref(), &self.local(now))?))
    }

    fn task_assign(
        &self,
        tree: &RepoTree,
        request: &AssignRequest<'_>,
        now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError> {
        let (task, effects) = self.assign(tree, &builder(request.assignee)?, request, now)?;
        Ok((task.id, effects))
    }

    fn task_renumber(
        &self,
        tree: &RepoTree,
        file: &str,
        now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError> {
        let (task, effects) = self.renumber(tree, file, now)?;
        Ok((task.id, effects))
    }

    fn board_status(&self, tree: &RepoTree, request: StatusRequest<'_>) -> Result<BoardStatus, BoardError> {
        let mut listing = self.tasks(tree)?;
        listing.findings.extend_from_slice(request.lost);
        let mut findings = listing.findings;
        let all = |(place, task): &(BoardPath, Task)| (task.status, task.priority, summary(place, task));
        let mut open: Vec<_> = listing.tasks.iter().map(all).collect();
        if request.is_among_others {
            let tasks: Vec<TaskSummary> =
                open.iter().map(|(_, _, task)| task.clone().prefixed(self.protocol())).collect();
            let documents: Vec<&Value> = tasks.iter().map(|task| &task.document).collect();
            let document = json!({ "protocol": self.protocol(), "tasks": documents });
            let states = open.iter().map(|(status, ..)| status);
            let open = tasks.into_iter().zip(states).filter(|(_, status)| !status.is_final());
            let open = open.map(|(task, _)| task).collect();
            return Ok(BoardStatus {
                document,
                open,
                stale: Vec::new(),
                stuck: Vec::new(),
                footer: None,
                findings,
            });
        }
        let count = |status: TaskStatus| open.iter().filter(|(own, ..)| *own == status).count();
        let counts: Vec<_> =
            TaskStatus::ALL.iter().map(|status| (status.to_string(), count(*status))).collect();
        let (reports, unreadable) = self.count_reports(tree)?;
        findings.extend(unreadable);
        let last_verify = last_verify(&tree.read_text(STATE)?.unwrap_or_default());
        let tasks: Vec<TaskSummary> = open.iter().map(|(_, _, task)| task.clone()).collect();
        let document = self.status_document(&counts, &tasks, reports, &last_verify, &findings);
        open.retain(|(status, ..)| !status.is_final());
        open.sort_by_key(|(status, priority, _)| (urgency(*status), *priority));
        let word = |verify: &Value, key: &str| verify[key].as_str().unwrap_or_default().to_owned();
        let last_verified =
            last_verify.map(|verify| ["task_id", "result", "timestamp"].map(|key| word(&verify, key)));
        Ok(BoardStatus {
            document,
            open: open.into_iter().map(|(_, _, task)| task).collect(),
            stale: Vec::new(),
            stuck: Vec::new(),
            footer: Some(StatusFooter { counts, reports: Some(reports), last_verified }),
            findings,
        })
    }

    fn done_task(&self, tree: &RepoTree, id: &TaskId) -> Option<(String, &'static str)> {
        let found = self.find(tree, id).ok()?;
        let is_done = !found.place.archived && found.value.status == TaskStatus::Done;
        is_done.then_some((found.place.path, "11"))
    }

    fn latest_report(&self, tree: &RepoTree, id: &TaskId) -> Result<ReportPage, BoardError> {
        let task = self.find(tree, id)?.value;
        let (reports, findings) = self.reports(tree, id)?;
        let missing = match findings.iter().find(|finding| finding.is_error()) {
            Some(finding) => format!("the report on {id} can't be read: {finding}"),
            None => format!("there is no report on {id}"),
        };
        let verified = self.artifact(tree, id).ok().flatten();
        let outcome = WorkOutcome {
            state: task.status.to_string(),
            commit: reports.last().and_then(|report| report.value.landed.clone()),
            verification: verified.map(|artifact| OutcomeVerification {
                result: artifact.value.result.as_str().to_owned(),
                artifact: artifact.place.path,
            }),
            ..WorkOutcome::default()
        };
        let Some((latest, earlier)) = reports.split_last() else {
            let place = String::new();
            return Ok(ReportPage { document: None, place, text: None, missing, findings, outcome });
        };
        let body = Frontmatter::parse(&latest.text).map(|matter| matter.body()).unwrap_or_default();
        let document = json!({
            "version": 1,
            "file": latest.place.path,
            "report": document(&latest.value),
            "body": body,
            // The oldest first.
            "earlier": earlier.iter().map(|report| report.place.path.as_str()).collect::<Vec<_>>(),
        });
        let (place, text) = (latest.place.path.clone(), Some(latest.text.clone()));
        Ok(ReportPage { document: Some(document), place, text, missing, findings, outcome })
    }

    fn board_lint(&self, tree: &RepoTree, request: &LintRequest<'_>) -> Result<Vec<Finding>, BoardError> {
        lint::lint(self, tree, request.profiles, &request.closed_glob)
    }

    fn board_views(&self, tree: &RepoTree, now: &Zoned) -> Result<Effects, BoardError> {
        self.rebuild_views(tree, now)
    }

    fn board_archive(
        &self,
        tree: &RepoTree,
        days: u32,
        now: &Zoned,
    ) -> Result<(ArchiveSummary, Effects), BoardError> {
        let (archived, effects) = self.archive(tree, days, now)?;
        let (document, count) = (document(&archived), archived.files);
        Ok((ArchiveSummary { document, tasks: archived.tasks, count }, effects))
    }

    fn board_migrate(&self, tree: &RepoTree, to: &str) -> Result<(Migration, Effects), BoardError> {
        let to = ProtocolVersion::parse(to)
            .ok_or_else(|| BoardError::refused(format!("`{to}` is no version; say it like agency/1.1")))?;
        let effects = self.migrate(tree, to)?;
        let (from, is_changed) = (self.manifest.version.to_string(), !effects.is_empty());
        Ok((Migration { from, to: to.to_string(), is_changed }, effects))
    }

    fn verification_target(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        options: VerificationOptions,
    ) -> Result<VerificationTarget, BoardError> {
        let found = self.find(tree, id)?;
        if options.is_override {
            self.no_open_p0(tree, &found.value)?;
        }
        let profile = found.value.dod_profile;
        Ok(VerificationTarget { profile, profiles_folder: PROFILES, apart: Some(ROOT) })
    }

    fn keep_verification(
        &self,
        tree: &RepoTree,
        record: &VerificationInput<'_>,
        now: &Zoned,
    ) -> Result<(KeptVerification, Effects), BoardError> {
        let VerificationInput { id, evidence, request, .. } = *record;
        let (verified, effects) = self.record_verification(tree, id, evidence, request, now)?;
        let mut fields = Map::new();
        if let Some(given) = &verified.overridden {
            fields.insert("override".to_owned(), document(given));
        }
        if let Some(check) = &verified.risk_check {
            fields.insert("risk_check".to_owned(), document(check));
        }
        let override_note = match (&verified.overridden, request) {
            (Some(given), _) => Some(format!(
                "overridden by {}: {}, follow-up {}",
                given.approver, given.decision_ref, given.followup_task
            )),
            (None, Some(_)) => Some("it passed, so there was nothing to override".to_owned()),
            (None, None) => None,
        };
        let reason = verified.risk_check.map(|check| check.blocking_reason);
        let kept = KeptVerification {
            id: verified.task.id.to_string(),
            result: verified.result.as_str().to_owned(),
            is_enough: verified.result == VerifyResult::Pass || verified.overridden.is_some(),
            artifact: verified.artifact_path,
            fields,
            blocking_reason: reason.filter(|reason| !reason.is_empty()),
            override_note,
        };
        Ok((kept, effects))
    }

    fn removal(&self) -> &'static str {
        "CANCELED"
    }

    fn linked_risk_notes(&self, tree: &RepoTree, id: &TaskId) -> Result<Vec<RiskNote>, BoardError> {
        let task = self.find(tree, id)?.value;
        let register = RiskRegister::parse(&tree.read_text(RISKS)?.unwrap_or_default());
        let (_, check) = self.linked_risks(tree, &task)?;
        let note = |id: &String| RiskNote {
            id: id.clone(),
            known: match register.get(id) {
                Some(risk) => format!("{} {:?}", risk.priority, risk.status).to_uppercase(),
                None => "not in RISKS.md".to_owned(),
            },
            blocks: check.as_ref().is_some_and(|check| check.blocking_risks.contains(id)),
        };
        Ok(task.risks.iter().map(note).collect())
    }
}

/// The last verification that STATE.md names.
fn last_verify(state: &str) -> Option<Value> {
    let verify = Frontmatter::parse(state).ok()?.value("last_verify").ok().flatten()?;
    let is_one = verify.get("task_id").is_some_and(|id| !id.is_null());
    is_one.then(|| serde_json::to_value(verify).ok()).flatten()
}

/// What needs a person comes first.
fn urgency(status: TaskStatus) -> u8 {
    match status {
        TaskStatus::Blocked => 0,
        TaskStatus::ReadyForReview => 1,
        TaskStatus::InProgress => 2,
        TaskStatus::Assigned => 3,
        TaskStatus::New => 4,
        TaskStatus::Done | TaskStatus::Canceled => 5,
    }
}
