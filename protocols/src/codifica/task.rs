//! §5: a task, as far as it can be understood. The reader is tolerant: files have notes that are plain words, agents
//! without a name and reviews that are null, and none of these keeps a task from being worked on.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_yaml::Value;

use super::block::{BlockError, TaskBlock};
use super::contract::Contract;
use crate::finding::Finding;
use crate::names::{AgentName, Assignee, TaskId};
use crate::text::yaml::text_of;

/// The state of a task (§7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    Todo,
    InProgress,
    ToBeTested,
    Done,
    Blocked,
    Rejected,
}

impl TaskState {
    pub const ALL: [TaskState; 6] = [
        TaskState::Todo,
        TaskState::InProgress,
        TaskState::ToBeTested,
        TaskState::Done,
        TaskState::Blocked,
        TaskState::Rejected,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            TaskState::Todo => "todo",
            TaskState::InProgress => "in_progress",
            TaskState::ToBeTested => "to_be_tested",
            TaskState::Done => "done",
            TaskState::Blocked => "blocked",
            TaskState::Rejected => "rejected",
        }
    }

    /// Parses a state as files have it, exactly.
    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    /// Parses a state as people type it: `in-progress` means `in_progress`.
    pub fn typed(text: &str) -> Option<Self> {
        Self::read(&text.to_ascii_lowercase().replace(['-', ' '], "_"))
    }

    /// Whether nothing more will happen to the task by itself.
    pub const fn is_final(self) -> bool {
        matches!(self, TaskState::Done | TaskState::Rejected)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// §6, with the project's own types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskType {
    Build,
    Test,
    Review,
    Investigate,
    Followup,
    Custom(String),
}

impl TaskType {
    pub fn parse(text: &str, contract: &Contract) -> Option<Self> {
        Some(match text {
            "build" => Self::Build,
            "test" => Self::Test,
            "review" => Self::Review,
            "investigate" => Self::Investigate,
            "followup" => Self::Followup,
            other if contract.rules.custom_types.iter().any(|known| known == other) => {
                Self::Custom(other.to_owned())
            }
            _ => return None,
        })
    }

    /// §6: custom types follow the state machine of build.
    pub fn must_be_tested(&self) -> bool {
        matches!(self, Self::Build | Self::Custom(_))
    }

    /// Whether a report alone, without changed files, can complete it.
    pub fn may_change_nothing(&self) -> bool {
        matches!(self, Self::Test | Self::Investigate)
    }

    /// What its ids begin with, as the specification's do.
    pub fn prefix(&self) -> String {
        match self {
            Self::Build => "FEAT".to_owned(),
            Self::Test => "TEST".to_owned(),
            Self::Review => "REVIEW".to_owned(),
            Self::Investigate => "INV".to_owned(),
            Self::Followup => "FOLLOWUP".to_owned(),
            Self::Custom(name) => name
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .map(|character| character.to_ascii_uppercase())
                .take(16)
                .collect(),
        }
    }
}

impl fmt::Display for TaskType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Build => "build",
            Self::Test => "test",
            Self::Review => "review",
            Self::Investigate => "investigate",
            Self::Followup => "followup",
            Self::Custom(name) => name,
        })
    }
}

impl Serialize for TaskType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TaskOwner {
    Human,
    Agent(AgentName),
    #[default]
    Unassigned,
}

impl TaskOwner {
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("human", _) => Some(Self::Human),
            ("unassigned", "") => Some(Self::Unassigned),
            ("agent", name) => AgentName::parse(name).ok().map(Self::Agent),
            _ => None,
        }
    }

    pub fn agent(&self) -> Option<&AgentName> {
        match self {
            Self::Agent(name) => Some(name),
            Self::Human | Self::Unassigned => None,
        }
    }

    /// The owner, as people type it.
    pub fn assignee(&self) -> Assignee {
        match self {
            Self::Human => Assignee::Human,
            Self::Agent(name) => Assignee::Agent(name.clone()),
            Self::Unassigned => Assignee::Unassigned,
        }
    }
}

impl From<&Assignee> for TaskOwner {
    fn from(assignee: &Assignee) -> Self {
        match assignee {
            Assignee::Human => Self::Human,
            Assignee::Agent(name) => Self::Agent(name.clone()),
            Assignee::Unassigned => Self::Unassigned,
        }
    }
}

impl fmt::Display for TaskOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Human => f.pad("human"),
            Self::Agent(name) => f.pad(&format!("agent:{name}")),
            Self::Unassigned => f.pad("unassigned"),
        }
    }
}

impl Serialize for TaskOwner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Critical,
    High,
    #[default]
    Normal,
    Low,
}

impl Priority {
    pub const ALL: [Self; 4] = [Self::Critical, Self::High, Self::Normal, Self::Low];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.as_str() == text)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// §5, without the lists that grow during work: those are read when they are needed ([`super::notes`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    pub id: TaskId,
    #[serde(rename = "type")]
    pub kind: TaskType,
    pub state: TaskState,
    pub owner: TaskOwner,
    pub title: String,
    pub priority: Priority,
    pub depends_on: Vec<String>,
    pub labels: Vec<String>,
    pub acceptance: Vec<String>,
    pub checklist: Vec<String>,
    pub derived_from: Option<String>,
    pub claimed_at: Option<String>,
    pub completed_at: Option<String>,
    pub blocked_reason: Option<String>,
    /// An extension of ours, and no part of the protocol: the Definition of Done that the task must pass.
    pub dod_profile: Option<String>,
}

/// The result of reading a task.
#[derive(Debug)]
pub struct ParsedTask {
    pub task: Option<Task>,
    pub findings: Vec<Finding>,
}

/// The fields of §5. Other fields are kept, and mean nothing.
pub const FIELDS: [&str; 19] = [
    "id",
    "type",
    "state",
    "owner",
    "title",
    "description",
    "priority",
    "depends_on",
    "labels",
    "acceptance",
    "checklist",
    "derived_from",
    "context",
    "claimed_at",
    "execution_notes",
    "artifacts",
    "human_review",
    "completed_at",
    "state_transitions",
];

impl Task {
    pub fn read(file: &str, block: &TaskBlock<'_>, line: usize, contract: &Contract) -> ParsedTask {
        let mut reader = TaskReader { file, block, line, findings: Vec::new() };
        let task = reader.task(contract);
        ParsedTask { task, findings: reader.findings }
    }
}

struct TaskReader<'a, 't> {
    file: &'a str,
    block: &'a TaskBlock<'t>,
    line: usize,
    findings: Vec<Finding>,
}

impl TaskReader<'_, '_> {
    /// `None` if its type or its state is unknown.
    fn task(&mut self, contract: &Contract) -> Option<Task> {
        let id = self.text("id");
        let id = match id.as_deref().map(TaskId::parse) {
            Some(Ok(id)) => Some(id),
            Some(Err(error)) => {
                self.wrong("id", "4.1", error.to_string());
                None
            }
            None => {
                self.wrong("id", "5", "`id` is missing");
                None
            }
        };
        let kind = self.one_of(
            "type",
            |text| TaskType::parse(text, contract),
            "build, test, review, investigate, followup or a custom type",
        );
        let state = self.one_of(
            "state",
            TaskState::read,
            "todo, in_progress, to_be_tested, done, blocked or rejected",
        );
        let owner = match self.text("owner") {
            None => Some(TaskOwner::Unassigned),
            Some(text) => {
                let owner = TaskOwner::parse(&text);
                if owner.is_none() {
                    self.wrong(
                        "owner",
                        "5",
                        format!("`owner` is `{text}`; it must be human, agent:NAME or unassigned"),
                    );
                }
                owner
            }
        };
        let priority = match self.text("priority") {
            None => Priority::default(),
            Some(text) => Priority::parse(&text).unwrap_or_else(|| {
                self.odd("priority", "5", format!("`priority` is `{text}`; it is taken for normal"));
                Priority::default()
            }),
        };
        let before = self.errors();
        let title = self.text("title").unwrap_or_else(|| {
            if self.errors() == before {
                self.odd("title", "5", "`title` is missing");
            }
            String::new()
        });
        // A task whose criteria or dependencies can't be read must not be taken for one that has none.
        let before = self.errors();
        let (depends_on, acceptance) = (self.list("depends_on"), self.list("acceptance"));
        let understood = self.errors() == before;
        let task = Task {
            id: id?,
            kind: kind?,
            state: state?,
            owner: owner?,
            title,
            priority,
            depends_on,
            labels: self.list("labels"),
            acceptance,
            checklist: self.list("checklist"),
            derived_from: self.text("derived_from"),
            claimed_at: self.text("claimed_at"),
            completed_at: self.text("completed_at"),
            blocked_reason: self.text("blocked_reason"),
            dod_profile: self.text("dod_profile"),
        };
        understood.then_some(task)
    }

    fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.is_error()).count()
    }

    fn wrong(&mut self, field: &str, section: &'static str, message: impl Into<String>) {
        let line = self.block.line(field).unwrap_or(self.line);
        self.findings.push(Finding::error(self.file, Some(line), section, message).of_field(field));
    }

    fn odd(&mut self, field: &str, section: &'static str, message: impl Into<String>) {
        let line = self.block.line(field).unwrap_or(self.line);
        self.findings.push(Finding::warning(self.file, Some(line), section, message).of_field(field));
    }

    fn value(&mut self, field: &str) -> Option<Value> {
        match self.block.value(field) {
            Ok(None) => None,
            Ok(Some(read)) => {
                if read.mended {
                    let message = format!(
                        "a value of `{field}` begins with a character that YAML forbids: put it into quotes"
                    );
                    self.odd(field, "5", message);
                }
                Some(read.value).filter(|value| !value.is_null())
            }
            Err(BlockError { line, reason }) => {
                self.findings.push(Finding::error(self.file, Some(line), "5", reason).of_field(field));
                None
            }
        }
    }

    fn text(&mut self, field: &str) -> Option<String> {
        let value = self.value(field)?;
        let text = text_of(&value);
        if text.is_none() {
            self.wrong(field, "5", format!("`{field}` must be a text"));
        }
        text.filter(|text| !text.trim().is_empty())
    }

    fn one_of<T>(&mut self, field: &str, parse: impl Fn(&str) -> Option<T>, known: &str) -> Option<T> {
        let before = self.errors();
        match self.text(field) {
            Some(text) => {
                let parsed = parse(&text);
                if parsed.is_none() {
                    self.wrong(field, "5", format!("`{field}` is `{text}`; it must be {known}"));
                }
                parsed
            }
            None => {
                if self.errors() == before {
                    self.wrong(field, "5", format!("`{field}` is missing"));
                }
                None
            }
        }
    }

    fn list(&mut self, field: &str) -> Vec<String> {
        let items = match self.value(field) {
            None => return Vec::new(),
            Some(Value::Sequence(items)) => items,
            Some(one) => vec![one],
        };
        // `- a: b` is a sentence with a colon in it, and YAML's idea of a map.
        let sentence = |item: &Value| match item {
            Value::Mapping(map) if map.len() == 1 => {
                let (key, value) = map.iter().next()?;
                Some(format!("{}: {}", text_of(key)?, text_of(value).unwrap_or_default()))
            }
            item => text_of(item),
        };
        let read: Option<Vec<String>> = items.iter().map(sentence).collect();
        if read.is_none() {
            self.wrong(field, "5", format!("`{field}` must be a list of strings"));
        }
        read.unwrap_or_default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::codifica) fn contract() -> Contract {
        Contract::parse(r#"{"protocol":"codifica","version":"0.2","spec":"s.md","state":"work.md","rules":{"custom_types":["deploy"]}}"#)
            .expect("a contract")
    }

    pub(in crate::codifica) fn read(text: &str) -> ParsedTask {
        let block = TaskBlock::parse(text, 1).expect("a block");
        Task::read("work.md", &block, 1, &contract())
    }

    #[test]
    fn what_is_seen_in_the_wild_is_read() {
        let text = "- id: FEAT-1\n  type: build\n  state: in_progress\n  owner: agent:shell\n  title: T\n  acceptance:\n    - `x` works\n    - it: really does\n  execution_notes:\n    - plain words\n    - by: agent\n      note: hm\n  artifacts: [a.txt]\n  human_review: null\n";
        let ParsedTask { task, findings } = read(text);
        let task = task.expect("a task");
        assert_eq!(task.acceptance, ["`x` works", "it: really does"]);
        assert_eq!((task.owner.to_string().as_str(), task.priority), ("agent:shell", Priority::Normal));
        assert!(findings.iter().all(|finding| !finding.is_error()), "{findings:?}");
        assert_eq!(findings.len(), 1, "the backtick is told: {findings:?}");
    }

    #[test]
    fn what_it_is_and_how_it_stands_must_be_known() {
        for (text, field) in [
            ("- type: build\n  state: todo\n  title: T\n", "id"),
            ("- id: ../x\n  type: build\n  state: todo\n  title: T\n", "id"),
            ("- id: A\n  state: todo\n  title: T\n", "type"),
            ("- id: A\n  type: unheard\n  state: todo\n  title: T\n", "type"),
            ("- id: A\n  type: build\n  state: doing\n  title: T\n", "state"),
            ("- id: A\n  type: build\n  state: todo\n  owner: agent\n  title: T\n", "owner"),
            ("- id: A\n  type: build\n  state: todo\n  title: T\n  depends_on: [{}]\n", "depends_on"),
            ("- id: A\n  type: build\n  state: todo\n  title: T\n  acceptance: \"open\n", "acceptance"),
        ] {
            let ParsedTask { task, findings } = read(text);
            assert_eq!(task, None, "{text}");
            assert!(
                findings.iter().any(|one| one.is_error() && one.field.as_deref() == Some(field)),
                "{findings:?}"
            );
        }
        assert!(read("- id: A\n  type: deploy\n  state: todo\n  title: T\n").task.is_some(), "a custom type");
    }
}
