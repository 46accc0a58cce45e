//! What people and front ends do with a board, in any protocol.
//!
//! [`Board`] is what the engine needs of a protocol; [`BoardVerbs`] is what a command line, an MCP client or a page
//! needs. The answers are the same for every protocol: a few words for a table, and a document in the protocol's own
//! shape. What a protocol does not have, it refuses by name.

use jiff::Zoned;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::board::{Board, BoardError, ProofEvidence};
use crate::finding::Finding;
use crate::names::{Actor, Assignee, TaskId};
use crate::store::Effects;
use crate::store::tree::RepoTree;

/// A board as front ends use it.
pub trait BoardVerbs: Board {
    /// Refuses states that the protocol does not know.
    fn check_states(&self, states: &[String]) -> Result<(), BoardError>;

    /// The tasks that a filter selects.
    fn task_list(&self, tree: &RepoTree, filter: &TaskFilter) -> Result<TaskTable, BoardError>;

    /// One task with its text.
    fn task_page(&self, tree: &RepoTree, id: &TaskId) -> Result<TaskPage, BoardError>;

    /// Refuses a request that the protocol can't take, whatever the board says.
    fn check_request(&self, _request: &TaskRequest) -> Result<(), BoardError> {
        Ok(())
    }

    /// Makes a task.
    fn task_new(
        &self,
        tree: &RepoTree,
        request: &TaskRequest,
        now: &Zoned,
    ) -> Result<(CreatedTask, Effects), BoardError>;

    /// Makes tasks of issues that were not imported before.
    fn task_import(
        &self,
        _tree: &RepoTree,
        _requests: &[TaskRequest],
        _now: &Zoned,
    ) -> Result<(Vec<TaskSummary>, Effects), BoardError> {
        Err(self.unsupported("import"))
    }

    /// Moves a task to another state.
    fn task_move(
        &self,
        tree: &RepoTree,
        request: &MoveRequest<'_>,
        now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError>;

    /// Whether only a person may make this move.
    fn needs_person(&self, _tree: &RepoTree, _request: &MoveRequest<'_>, _now: &Zoned) -> bool {
        false
    }

    /// Opens a task that is done again, because a person took its work back from the branch.
    fn task_undone(
        &self,
        tree: &RepoTree,
        request: &UndoneTask<'_>,
        now: &Zoned,
    ) -> Result<((), Effects), BoardError>;

    /// Adds a note to a task.
    fn task_note(
        &self,
        _tree: &RepoTree,
        _request: &NoteRequest<'_>,
        _now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError> {
        Err(self.unsupported("task note"))
    }

    /// Gives a task to an agent.
    fn task_assign(
        &self,
        tree: &RepoTree,
        request: &AssignRequest<'_>,
        now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError>;

    /// Gives the task of a file another id.
    fn task_renumber(
        &self,
        _tree: &RepoTree,
        _file: &str,
        _now: &Zoned,
    ) -> Result<(TaskId, Effects), BoardError> {
        Err(self.unsupported("task renumber"))
    }

    /// The state of the board. `lost` are landings that have left their branch.
    fn board_status(&self, tree: &RepoTree, request: StatusRequest<'_>) -> Result<BoardStatus, BoardError>;

    /// The file of a task that is done and not archived, and the section that says what done means.
    fn done_task(&self, tree: &RepoTree, id: &TaskId) -> Option<(String, &'static str)>;

    /// The latest report on a task, or what was said about it.
    fn latest_report(&self, tree: &RepoTree, id: &TaskId) -> Result<ReportPage, BoardError>;

    /// Everything in the board that does not comply with the protocol.
    fn board_lint(&self, tree: &RepoTree, request: &LintRequest<'_>) -> Result<Vec<Finding>, BoardError>;

    /// Writes anew what is computed from the tasks.
    fn board_views(&self, _tree: &RepoTree, _now: &Zoned) -> Result<Effects, BoardError> {
        Err(self.unsupported("lint --fix"))
    }

    /// Archives finished tasks that were made more than `days` days ago.
    fn board_archive(
        &self,
        tree: &RepoTree,
        days: u32,
        now: &Zoned,
    ) -> Result<(ArchiveSummary, Effects), BoardError>;

    /// Converts the board to another version of its protocol.
    fn board_migrate(&self, tree: &RepoTree, to: &str) -> Result<(Migration, Effects), BoardError>;

    /// The checks of a task. Refuses an override that no actor may make.
    fn verification_target(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        options: VerificationOptions,
    ) -> Result<VerificationTarget, BoardError>;

    /// Records what was verified.
    fn keep_verification(
        &self,
        tree: &RepoTree,
        record: &VerificationInput<'_>,
        now: &Zoned,
    ) -> Result<(KeptVerification, Effects), BoardError>;

    /// The risks that a task is linked to.
    fn linked_risk_notes(&self, _tree: &RepoTree, _id: &TaskId) -> Result<Vec<RiskNote>, BoardError> {
        Ok(Vec::new())
    }

    /// The state, and the flags of `agency task move`, that take a task off the board.
    fn removal(&self) -> &'static str;

    /// The refusal of a verb that the protocol does not have.
    fn unsupported(&self, verb: &str) -> BoardError {
        BoardError::refused(format!("the protocol `{}` has no `{verb}`", self.protocol()))
    }
}

/// Which tasks are listed: those in one of the states, if any is named, and of the assignee, if one is named.
#[derive(Debug, Clone, Default)]
pub struct TaskFilter {
    pub states: Vec<String>,
    pub assignee: Option<Assignee>,
}

impl TaskFilter {
    pub fn selects(&self, state: &str, assignee: &Assignee) -> bool {
        let same = |wanted: &String| wanted.replace(['-', ' '], "_").eq_ignore_ascii_case(state);
        (self.states.is_empty() || self.states.iter().any(same))
            && self.assignee.as_ref().is_none_or(|wanted| assignee == wanted)
    }
}

/// One task in a table, and the whole of it as its protocol writes it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSummary {
    pub id: String,
    pub priority: String,
    pub state: String,
    pub owner: String,
    pub title: String,
    pub document: Value,
}

impl TaskSummary {
    /// With the protocol before its id, where several boards are shown together.
    #[must_use]
    pub fn prefixed(mut self, protocol: &str) -> Self {
        self.id = format!("{protocol}:{}", self.id);
        self.document["id"] = self.id.as_str().into();
        self
    }
}

/// As its protocol writes it.
impl Serialize for TaskSummary {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.document.serialize(serializer)
    }
}

/// Tasks, and what could not be read.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TaskTable {
    pub tasks: Vec<TaskSummary>,
    pub findings: Vec<Finding>,
}

/// One task with its text.
#[derive(Debug, Clone)]
pub struct TaskPage {
    pub summary: TaskSummary,
    /// The file, with the line where the file has several tasks.
    pub place: String,
    pub text: String,
    /// The part of the text that people write.
    pub body: Option<String>,
}

/// A task to be made. Each protocol takes the fields that it has.
#[derive(Debug, Clone, Default)]
pub struct TaskRequest {
    pub title: String,
    /// Whether its agent gets it at once.
    pub is_assigned: bool,
    pub assignee: Option<Assignee>,
    /// Zero is the most urgent, three the least.
    pub urgency: u8,
    pub scope: RequestedScope,
    pub dod_profile: Option<String>,
    pub depends_on: Vec<String>,
    pub acceptance: Vec<String>,
    pub constraints: Vec<String>,
    pub context_files: Vec<String>,
    pub labels: Vec<String>,
    pub risks: Vec<String>,
    pub external_refs: Vec<(String, String)>,
    pub body: Option<String>,
    pub kind: Option<String>,
    pub description: Option<String>,
    pub checklist: Vec<String>,
    pub derived_from: Option<String>,
}

/// The files that a requested task may change.
#[derive(Debug, Clone, Default)]
pub struct RequestedScope {
    pub must_touch: Vec<String>,
    pub may_touch: Vec<String>,
    pub must_not_touch: Vec<String>,
    pub author: crate::board::ScopeAuthor,
}

impl RequestedScope {
    pub fn is_empty(&self) -> bool {
        self.must_touch.is_empty() && self.may_touch.is_empty() && self.must_not_touch.is_empty()
    }
}

/// A task whose work was taken back from the branch.
#[derive(Debug, Clone, Copy)]
pub struct UndoneTask<'a> {
    pub id: &'a TaskId,
    pub person: &'a str,
    pub reason: &'a str,
}

/// A task that was made.
#[derive(Debug, Clone)]
pub struct CreatedTask {
    pub id: TaskId,
    /// The task as it was decided: what its file says when all is written is read there.
    pub summary: TaskSummary,
    /// Where it was made, for a sentence: `made …`.
    pub place: String,
    /// What keeps it from starting.
    pub remarks: Vec<String>,
    /// The globs of its scope.
    pub globs: Vec<String>,
}

/// A task to be moved.
#[derive(Debug, Clone, Copy)]
pub struct MoveRequest<'a> {
    pub id: &'a TaskId,
    /// The state, as it was typed.
    pub to: &'a str,
    pub actor: &'a Actor,
    pub reason: Option<&'a str>,
}

/// A note to be added to a task.
#[derive(Debug, Clone, Copy)]
pub struct NoteRequest<'a> {
    pub id: &'a TaskId,
    pub actor: &'a Actor,
    pub text: &'a str,
    /// The note in one line.
    pub summary: Option<&'a str>,
}

/// A task to be given to an agent or a person.
#[derive(Debug, Clone, Copy)]
pub struct AssignRequest<'a> {
    pub id: &'a TaskId,
    pub assignee: &'a Assignee,
    pub actor: &'a Actor,
    pub reason: Option<&'a str>,
    /// The task's new scope; empty to leave it as it is.
    pub scope: &'a RequestedScope,
}

/// Which status is asked for.
#[derive(Debug, Clone, Copy)]
pub struct StatusRequest<'a> {
    pub now: &'a Zoned,
    /// Landings that have left their branch.
    pub lost: &'a [Finding],
    /// Whether other boards are shown beside this one: ids then have the protocol before them.
    pub is_among_others: bool,
}

/// The state of a board.
#[derive(Debug, Clone)]
pub struct BoardStatus {
    pub document: Value,
    /// The open tasks, those that need a person first.
    pub open: Vec<TaskSummary>,
    /// Claims that were not renewed for too long.
    pub stale: Vec<String>,
    /// Tasks that were begun and that no run of this clone continues by itself, with the reason and what helps.
    pub stuck: Vec<String>,
    /// What is below the table, where there is one.
    pub footer: Option<StatusFooter>,
    pub findings: Vec<Finding>,
}

/// The figures below a table of tasks.
#[derive(Debug, Clone, Default)]
pub struct StatusFooter {
    /// How many tasks are in each state.
    pub counts: Vec<(String, usize)>,
    pub reports: Option<usize>,
    /// The last verified task, its result and the time.
    pub last_verified: Option<[String; 3]>,
}

/// A report on a task.
#[derive(Debug, Clone)]
pub struct ReportPage {
    /// Nothing, where a report is a file and there is none.
    pub document: Option<Value>,
    pub place: String,
    pub text: Option<String>,
    /// The sentence where there is no text.
    pub missing: String,
    pub findings: Vec<Finding>,
    pub outcome: WorkOutcome,
}

/// What became of the work that a report is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct WorkOutcome {
    /// The state of the task now.
    pub state: String,
    /// The commit with which the work landed, and its branch where git knows it.
    pub commit: Option<String>,
    pub branch: Option<String>,
    /// The files that this commit changed, where git knows them.
    pub files: Vec<String>,
    /// The result of the last verification, and its artifact.
    pub verification: Option<OutcomeVerification>,
}

/// A verification as an outcome names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutcomeVerification {
    pub result: String,
    pub artifact: String,
}

/// Facts from outside the board that a lint needs.
#[derive(Debug, Clone, Copy)]
pub struct LintRequest<'a> {
    pub now: &'a Zoned,
    /// The names of the built-in profiles.
    pub profiles: &'a [String],
    /// What a glob seems to open and does not, in a sentence.
    pub closed_glob: fn(&str) -> Option<String>,
}

/// What was archived.
#[derive(Debug, Clone)]
pub struct ArchiveSummary {
    pub document: Value,
    pub tasks: Vec<TaskId>,
    /// How many files or tasks were moved.
    pub count: usize,
}

/// A change of the protocol's version.
#[derive(Debug, Clone)]
pub struct Migration {
    pub from: String,
    pub to: String,
    pub is_changed: bool,
}

/// What a verification was asked for beside the checks.
#[derive(Debug, Clone, Copy, Default)]
pub struct VerificationOptions {
    pub is_override: bool,
    pub checks_risks: bool,
}

/// The checks of a task.
#[derive(Debug, Clone)]
pub struct VerificationTarget {
    pub profile: String,
    /// The folder of the repository's own profiles.
    pub profiles_folder: &'static str,
    /// A folder of the board that the checks don't see change.
    pub apart: Option<&'static str>,
}

/// A person's decision that a task may be DONE although its verification says otherwise.
#[derive(Debug, Clone)]
pub struct OverrideRequest {
    pub approver: String,
    pub reason: String,
    /// A task that exists, or the title of one to be made.
    pub followup: String,
}

/// A verification to be recorded.
#[derive(Debug, Clone, Copy)]
pub struct VerificationInput<'a> {
    pub id: &'a TaskId,
    pub evidence: &'a ProofEvidence,
    pub request: Option<&'a OverrideRequest>,
    pub actor: &'a Actor,
}

/// A verification that was recorded.
#[derive(Debug, Clone)]
pub struct KeptVerification {
    pub id: String,
    pub result: String,
    /// Whether nothing is in the way of DONE.
    pub is_enough: bool,
    pub artifact: String,
    /// What the protocol adds to the answer: the override, the risks.
    pub fields: Map<String, Value>,
    /// Why risks changed the result.
    pub blocking_reason: Option<String>,
    /// What happened to a requested override.
    pub override_note: Option<String>,
}

/// A risk that a task is linked to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RiskNote {
    pub id: String,
    /// Its priority and status.
    pub known: String,
    pub blocks: bool,
}
