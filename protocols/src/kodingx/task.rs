//! §6: the task file.
//!
//! The reader is tolerant: it reads what it can understand, and each error becomes a finding with its line. A file
//! without the four required fields (id, title, status, assignee) is no task; a task without a scope can't start.
//! Writing is strict.

use std::fmt;

use jiff::tz::TimeZone;
use serde::Serialize;
use serde_yaml::Value;

use super::header_fields::{HeaderReader, scalar};
use super::status::TaskStatus;
use crate::board::ScopeAuthor;
use crate::board_verbs::RequestedScope;
use crate::finding::Finding;
use crate::names::{AgentName, TaskId};
use crate::scope_glob;
use crate::text::frontmatter::Frontmatter;
use crate::text::yaml;
use crate::timestamp::OffsetTimestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum Priority {
    P0,
    P1,
    P2,
    P3,
}

impl Priority {
    pub const ALL: [Priority; 4] = [Priority::P0, Priority::P1, Priority::P2, Priority::P3];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.to_string() == text)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Priority::P0 => "P0",
            Priority::P1 => "P1",
            Priority::P2 => "P2",
            Priority::P3 => "P3",
        })
    }
}

/// What a builder may change (§6.3).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct KodingXScope {
    pub must_touch: Vec<String>,
    pub may_touch: Vec<String>,
    pub must_not_touch: Vec<String>,
    /// `written_by`, a field of ours: an agent that made the task. It stays until a person takes the line away.
    #[serde(skip_serializing_if = "ScopeAuthor::is_person")]
    pub author: ScopeAuthor,
}

/// The field for the author of a scope, and its value for an agent.
const WRITTEN_BY: &str = "written_by";
const AGENT: &str = "agent";

impl KodingXScope {
    fn parts(&self) -> [(&'static str, &[String]); 3] {
        [
            ("must_touch", &self.must_touch),
            ("may_touch", &self.may_touch),
            ("must_not_touch", &self.must_not_touch),
        ]
    }

    /// The scope with each list that was asked for in place of its own. It is an agent's as long as a list of an agent is
    /// in it.
    #[must_use]
    pub fn with(self, asked: &RequestedScope) -> Self {
        let by_agent = self.author == ScopeAuthor::Agent;
        let mut keeps_old = false;
        let mut part = |asked: &[String], old: Vec<String>| match asked.is_empty() {
            true => {
                keeps_old |= !old.is_empty();
                old
            }
            false => asked.to_vec(),
        };
        let (must_touch, may_touch, must_not_touch) = (
            part(&asked.must_touch, self.must_touch),
            part(&asked.may_touch, self.may_touch),
            part(&asked.must_not_touch, self.must_not_touch),
        );
        let author = if by_agent && keeps_old { ScopeAuthor::Agent } else { asked.author };
        Self { must_touch, may_touch, must_not_touch, author }
    }

    /// The scope on one line.
    pub(super) fn flow(&self) -> String {
        let mut parts: Vec<String> =
            self.parts().iter().map(|(name, globs)| format!("{name}: {}", yaml::flow_list(globs))).collect();
        if self.author == ScopeAuthor::Agent {
            parts.push(format!("{WRITTEN_BY}: {AGENT}"));
        }
        format!("{{{}}}", parts.join(", "))
    }

    /// The first glob that can't be used, and why.
    pub fn check(&self) -> Result<(), String> {
        for (name, globs) in self.parts() {
            for glob in globs {
                scope_glob::check(glob).map_err(|error| format!("`scope.{name}`: {error}"))?;
            }
        }
        Ok(())
    }
}

/// A task, as its file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Task {
    pub id: TaskId,
    pub title: String,
    pub priority: Priority,
    pub status: TaskStatus,
    pub assignee: AgentName,
    pub created_at: Option<OffsetTimestamp>,
    pub dod_profile: String,
    /// `None` if missing or wrong: no file is writable then, and the task can't start.
    pub scope: Option<KodingXScope>,
    pub labels: Vec<String>,
    pub depends_on: Vec<String>,
    pub context_files: Vec<String>,
    pub acceptance: Vec<String>,
    pub constraints: Vec<String>,
    /// §21.2: ids of entries in RISKS.md.
    pub risks: Vec<String>,
    /// §22.6: the task's issues in other trackers.
    pub external_refs: Vec<(String, String)>,
}

/// The result of reading a file.
#[derive(Debug, Clone)]
pub struct ParsedFile<T> {
    pub value: Option<T>,
    pub findings: Vec<Finding>,
}

const SECTION: &str = "6.2";

/// Trackers whose references may also stand at the top level (§22.5).
const TRACKERS: [&str; 3] = ["issue", "jira", "linear"];

impl Task {
    /// Reads a task file. `zone` is where times without an offset are.
    pub fn read(file: &str, text: &str, zone: &TimeZone) -> ParsedFile<Self> {
        let matter = match Frontmatter::parse(text) {
            Ok(matter) => matter,
            Err(error) => {
                let finding = Finding::error(file, Some(error.line), SECTION, error.reason);
                return ParsedFile { value: None, findings: vec![finding] };
            }
        };
        let mut header = HeaderReader::new(file, SECTION, &matter);
        let id = header.required("id").and_then(|text| match TaskId::parse(&text) {
            Ok(id) if text.starts_with('T') => Some(id),
            _ => {
                header.wrong("id", format!("`id` is `{text}`; it must be like `T0001`"));
                None
            }
        });
        let title = header.required("title");
        let status = header.required("status").and_then(|text| {
            let status = TaskStatus::read(&text);
            if status.is_none() {
                let known: Vec<&str> = TaskStatus::ALL.iter().map(|status| status.as_str()).collect();
                header
                    .wrong("status", format!("`status` is `{text}`; it must be one of {}", known.join(", ")));
            }
            status
        });
        let assignee = header.required("assignee").and_then(|text| match AgentName::parse(&text) {
            Ok(name) => Some(name),
            Err(error) => {
                header.wrong("assignee", format!("`assignee`: {error}"));
                None
            }
        });
        let priority = header.required("priority").and_then(|text| {
            let priority = Priority::parse(&text);
            if priority.is_none() {
                header.wrong("priority", format!("`priority` is `{text}`; it must be P0, P1, P2 or P3"));
            }
            priority
        });
        let created_at = header.required("created_at").and_then(|text| {
            let moment = OffsetTimestamp::parse(&text, zone);
            if moment.is_none() {
                let message =
                    format!("`created_at` is `{text}`; it must be like `2026-01-31T16:10:00+01:00`");
                header.wrong("created_at", message);
            }
            moment
        });
        let dod_profile = header.required("dod_profile");
        let scope = read_scope(&mut header);
        let (labels, depends_on) = (header.list("labels"), header.list("depends_on"));
        let (context_files, acceptance) = (header.list("context_files"), header.list("acceptance"));
        let (constraints, risks) = (header.list("constraints"), header.list("risks"));
        let external_refs = read_external(&mut header);
        let findings = header.findings;
        let value = match (id, title, status, assignee) {
            (Some(id), Some(title), Some(status), Some(assignee)) => Some(Self {
                id,
                title,
                priority: priority.unwrap_or(Priority::P3),
                status,
                assignee,
                created_at,
                dod_profile: dod_profile.unwrap_or_else(|| "auto".to_owned()),
                scope,
                labels,
                depends_on,
                context_files,
                acceptance,
                constraints,
                risks,
                external_refs,
            }),
            _ => None,
        };
        ParsedFile { value, findings }
    }

    /// The file of a new task. `body` is the text after the header.
    pub fn render(&self, body: &str) -> String {
        let mut out = String::from("---\n");
        let mut line = |key: &str, value: &str| {
            out.push_str(key);
            out.push_str(": ");
            out.push_str(value);
            out.push('\n');
        };
        line("id", &yaml::scalar(self.id.as_str()));
        line("title", &yaml::quoted(&self.title));
        line("priority", &self.priority.to_string());
        line("status", self.status.as_str());
        line("assignee", &yaml::scalar(self.assignee.as_str()));
        if let Some(created_at) = &self.created_at {
            line("created_at", &created_at.to_string());
        }
        line("dod_profile", &yaml::scalar(&self.dod_profile));
        if let Some(scope) = &self.scope {
            out.push_str("scope:\n");
            for (name, globs) in scope.parts() {
                out.push_str(&format!("  {name}:{}", yaml::block_list(4, globs)));
            }
            if scope.author == ScopeAuthor::Agent {
                out.push_str(&format!("  {WRITTEN_BY}: {AGENT}\n"));
            }
        }
        for (name, items) in [
            ("acceptance", &self.acceptance),
            ("constraints", &self.constraints),
            ("context_files", &self.context_files),
            ("depends_on", &self.depends_on),
            ("risks", &self.risks),
        ] {
            if !items.is_empty() {
                out.push_str(&format!("{name}:{}", yaml::block_list(2, items)));
            }
        }
        if !self.labels.is_empty() {
            out.push_str(&format!("labels: {}\n", yaml::flow_list(&self.labels)));
        }
        if !self.external_refs.is_empty() {
            out.push_str("external_refs:\n");
            for (tracker, reference) in &self.external_refs {
                out.push_str(&format!("  {}: {}\n", yaml::scalar(tracker), yaml::quoted(reference)));
            }
        }
        out.push_str("---\n");
        out.push_str(body);
        out
    }
}

fn read_scope(header: &mut HeaderReader<'_, '_>) -> Option<KodingXScope> {
    let before = header.findings.len();
    let value = match header.value("scope") {
        Some(Value::Mapping(scope)) => scope,
        Some(_) => {
            header.wrong("scope", "`scope` must hold must_touch, may_touch and must_not_touch");
            return None;
        }
        None => {
            if header.findings.len() == before {
                header.wrong("scope", "`scope` is missing: nothing is writable until it is given");
            }
            return None;
        }
    };
    let mut part = |name: &str| match value.get(name) {
        Some(globs) => header.strings("scope", &format!("scope.{name}"), globs),
        None => Vec::new(),
    };
    let scope = KodingXScope {
        must_touch: part("must_touch"),
        may_touch: part("may_touch"),
        must_not_touch: part("must_not_touch"),
        // Any value marks the scope as an agent's.
        author: match value.get(WRITTEN_BY) {
            None | Some(Value::Null) => ScopeAuthor::Person,
            Some(_) => ScopeAuthor::Agent,
        },
    };
    if let Err(reason) = scope.check() {
        header.wrong("scope", reason);
    }
    let fine = header.findings[before..].iter().all(|finding| !finding.is_error());
    fine.then_some(scope)
}

fn read_external(header: &mut HeaderReader<'_, '_>) -> Vec<(String, String)> {
    let unquoted = "is empty: an unquoted `#…` is a comment in YAML; write \"#123\" in quotes";
    let mut found = Vec::new();
    if let Some(value) = header.value("external_refs") {
        match value {
            Value::Mapping(map) => {
                for (tracker, reference) in &map {
                    let Some(tracker) = scalar(tracker) else { continue };
                    match scalar(reference) {
                        Some(reference) => found.push((tracker, reference)),
                        None => header.odd("external_refs", format!("`external_refs.{tracker}` {unquoted}")),
                    }
                }
            }
            _ => header.wrong("external_refs", "`external_refs` must be a map of trackers"),
        }
    }
    for tracker in TRACKERS {
        match header.text(tracker) {
            Some(reference) => found.push((tracker.to_owned(), reference)),
            None if header.matter.line(tracker).is_some() => {
                header.odd(tracker, format!("`{tracker}` {unquoted}"));
            }
            None => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> ParsedFile<Task> {
        Task::read("t.md", text, &TimeZone::UTC)
    }

    fn arbitrary() -> impl Strategy<Value = Task> {
        let list = || prop::collection::vec(any::<String>(), 0..3);
        let globs = || prop::collection::vec("[a-z]{1,5}/[a-z*]{1,5}", 0..3);
        let scope = prop::option::of((globs(), globs(), globs(), any::<bool>()));
        let lists = (list(), list(), list(), list(), list(), list());
        let external = prop::collection::vec(("[a-z_]{1,8}", any::<String>()), 0..3);
        (any::<String>(), 0..4_usize, 0..7_usize, -9_000_000_i64..9_000_000_000, scope, lists, external)
            .prop_map(|(title, priority, status, second, scope, lists, mut external)| {
                external.sort();
                external.dedup_by(|a, b| a.0 == b.0);
                external.retain(|(tracker, _)| !TRACKERS.contains(&tracker.as_str()));
                let at = jiff::Timestamp::from_second(second).expect("a time").to_zoned(TimeZone::UTC);
                Task {
                    id: TaskId::parse("T0007").expect("an id"),
                    title,
                    priority: Priority::ALL[priority],
                    status: TaskStatus::ALL[status],
                    assignee: AgentName::parse("codex").expect("a name"),
                    created_at: Some(OffsetTimestamp::from_zoned(&at)),
                    dod_profile: "auto".to_owned(),
                    scope: scope.map(|(must_touch, may_touch, must_not_touch, by_agent)| KodingXScope {
                        must_touch,
                        may_touch,
                        must_not_touch,
                        author: if by_agent { ScopeAuthor::Agent } else { ScopeAuthor::Person },
                    }),
                    labels: lists.0,
                    depends_on: lists.1,
                    context_files: lists.2,
                    acceptance: lists.3,
                    constraints: lists.4,
                    risks: lists.5,
                    external_refs: external,
                }
            })
    }

    proptest! {
        #[test]
        fn any_task_we_write_reads_back_equal(task in arbitrary(), body in any::<String>()) {
            let text = task.render(&body);
            let read = read(&text);
            prop_assert_eq!(read.value.as_ref(), Some(&task), "{}", text);
            let complaints: Vec<_> = read.findings.iter().filter(|finding| finding.field.as_deref() != Some("scope")).collect();
            prop_assert!(complaints.is_empty(), "{complaints:?}");
            prop_assert_eq!(Frontmatter::parse(&text).expect("a header").body(), body);
        }

        #[test]
        fn any_field_edit_leaves_every_other_byte_alone(task in arbitrary(), body in any::<String>(), crlf in any::<bool>()) {
            let mut text = task.render("");
            if crlf {
                text = text.replace('\n', "\r\n");
            }
            text.push_str(&body);
            let edited = Frontmatter::parse(&text).expect("a header").set("status", "CANCELED").expect("edited");
            let line = text.lines().position(|line| line.starts_with("status: ")).expect("a status");
            let (old, new): (Vec<_>, Vec<_>) =
                (text.split_inclusive('\n').collect(), edited.split_inclusive('\n').collect());
            prop_assert_eq!(old.len(), new.len());
            for (index, (old, new)) in old.iter().zip(&new).enumerate() {
                prop_assert!(old == new || index == line);
            }
            let ending = if crlf { "\r\n" } else { "\n" };
            prop_assert_eq!(new[line], format!("status: CANCELED{ending}"));
        }
    }

    const EXAMPLE: &str = "---\nid: T0007\ntitle: \"Fix VAT rounding\"\npriority: P1\nstatus: NEW\nassignee: claude-code\ncreated_at: 2026-01-31T16:10:00+01:00\ndod_profile: node_strict\nscope:\n  must_touch:\n    - \"src/accounting/**\"\n  may_touch:\n    - \"tests/**\"\n  must_not_touch:\n    - \"db/migrations/**\"\nlabels: [\"bug\", \"accounting\"]\n---\n\n## Problem\n";

    #[test]
    fn every_required_field_is_missed_with_its_section() {
        for field in ["id", "title", "priority", "status", "assignee", "created_at", "dod_profile", "scope"] {
            let without: String = EXAMPLE
                .replace("  must_touch:\n    - \"src/accounting/**\"\n  may_touch:\n    - \"tests/**\"\n  must_not_touch:\n    - \"db/migrations/**\"\n", "")
                .replace("scope:\n", if field == "scope" { "" } else { "scope: {must_touch: [a]}\n" })
                .lines()
                .filter(|line| !line.starts_with(&format!("{field}:")))
                .map(|line| format!("{line}\n"))
                .collect();
            let findings = read(&without).findings;
            assert_eq!(findings.len(), 1, "{field}: {findings:?}");
            assert_eq!((findings[0].field.as_deref(), findings[0].section), (Some(field), "6.2"));
        }
        assert!(read(EXAMPLE).findings.is_empty());
    }

    #[test]
    fn the_older_dialect_reads() {
        let text = "---\nid: T001\ntitle: Older\npriority: P2\nstatus: NEW\nassignee: codex\ncreated_at: 2026-01-31\ndod_profile: auto\nscope:\n  must_touch: [src]\n  must_not_touch:\n    []\nexternal_refs: {}\n---\n";
        let read = read(text);
        assert_eq!(read.findings, []);
        let task = read.value.expect("a task");
        assert_eq!(task.scope.expect("a scope").must_not_touch, Vec::<String>::new());
        assert_eq!(task.external_refs, []);
    }

    #[test]
    fn an_unquoted_issue_number_is_told_how_to_quote() {
        let text = EXAMPLE.replace("labels:", "issue: #123\nlabels:");
        let read = read(&text);
        assert_eq!(read.findings.len(), 1);
        assert!(read.findings[0].message.contains("in quotes") && !read.findings[0].is_error());
        assert!(read.value.is_some());
    }

    #[test]
    fn a_glob_that_escapes_takes_the_scope_away_and_is_told() {
        let read = read(&EXAMPLE.replace("tests/**", "../tests/**"));
        assert_eq!(read.findings.len(), 1);
        assert!(read.findings[0].message.contains("escapes"), "{:?}", read.findings);
        assert_eq!(read.value.expect("a task").scope, None);
    }
}
