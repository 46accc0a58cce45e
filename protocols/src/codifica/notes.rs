//! The lists of a task that grow during work: execution notes, artifacts, transitions, each with its provenance (§5,
//! §10). The reader accepts what people and agents have written; the writer follows the specification.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_yaml::Value;

use super::block::TaskBlock;
use super::task::TaskState;
use super::task_edit::YamlNode;
use crate::text::one_line;
use crate::text::yaml::text_of;
use crate::timestamp::OffsetTimestamp;

/// §5: the most of a summary, in characters.
pub const LONGEST_SUMMARY: usize = 120;
/// The most of a note that is kept in a state file.
const LONGEST_NOTE: usize = 4_000;

/// How a note begins that asks a person to block its task (§7.2).
pub const RECOMMENDS: &str = "Recommend blocking: ";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ExecutionNote {
    pub by: Option<String>,
    pub note: String,
    pub summary: Option<String>,
    pub timestamp: Option<String>,
    #[serde(flatten)]
    pub provenance: Provenance,
}

/// §10.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Provenance {
    pub session_id: Option<String>,
    pub commit_sha: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Artifact {
    pub path: String,
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// A move that was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TransitionRecord {
    pub from: Option<String>,
    pub to: Option<String>,
    pub by: Option<String>,
    pub reason: Option<String>,
    pub timestamp: Option<String>,
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl Provenance {
    pub fn of_session(session: Option<&str>) -> Self {
        Self { session_id: session.map(str::to_owned), commit_sha: None }
    }

    fn read(value: &Value) -> Self {
        let part = |key: &str| value.get("provenance").and_then(|value| text_of(value.get(key)?));
        Self { session_id: part("session_id"), commit_sha: part("commit_sha") }
    }

    fn node(&self) -> Option<YamlNode> {
        if *self == Self::default() {
            return None;
        }
        let part = |text: &Option<String>| text.clone().map(YamlNode::Text);
        let node = YamlNode::Map(Vec::new());
        Some(node.with("session_id", part(&self.session_id)).with("commit_sha", part(&self.commit_sha)))
    }
}

impl ExecutionNote {
    pub fn node(&self) -> YamlNode {
        let note: String = self.note.trim().chars().take(LONGEST_NOTE).collect();
        let part = |text: &Option<String>| text.clone().map(YamlNode::Text);
        YamlNode::Map(Vec::new())
            .with("by", part(&self.by))
            .with("note", Some(YamlNode::Text(note)))
            .with("summary", self.summary.as_deref().map(|text| YamlNode::Text(summary(text))))
            .with("timestamp", part(&self.timestamp))
            .with("provenance", self.provenance.node())
    }

    pub fn block_recommendation(&self) -> Option<&str> {
        self.note.strip_prefix(RECOMMENDS)
    }
}

impl Artifact {
    pub fn node(&self) -> YamlNode {
        let kind = self.kind.as_deref().unwrap_or("file");
        YamlNode::map([("path", YamlNode::text(&self.path)), ("type", YamlNode::text(kind))])
    }
}

impl TransitionRecord {
    pub fn node(&self) -> YamlNode {
        let part = |text: &Option<String>| text.clone().map(YamlNode::Text);
        YamlNode::Map(Vec::new())
            .with("from", part(&self.from))
            .with("to", part(&self.to))
            .with("by", part(&self.by))
            .with("reason", part(&self.reason))
            .with("timestamp", part(&self.timestamp))
            .with("provenance", self.provenance.node())
    }
}

/// A single line of at most 120 characters.
pub fn summary(text: &str) -> String {
    let line = one_line(text);
    if line.chars().count() <= LONGEST_SUMMARY {
        return line;
    }
    let cut: String = line.chars().take(LONGEST_SUMMARY - 1).collect();
    format!("{}…", cut.trim_end())
}

fn items(block: &TaskBlock<'_>, key: &str) -> Vec<Value> {
    match block.value(key).ok().flatten().map(|read| read.value) {
        Some(Value::Sequence(items)) => items,
        Some(Value::Null) | None => Vec::new(),
        Some(one) => vec![one],
    }
}

pub fn notes(block: &TaskBlock<'_>) -> Vec<ExecutionNote> {
    let read = |value: &Value| match text_of(value) {
        Some(note) => ExecutionNote { note, ..ExecutionNote::default() },
        None => {
            let part = |key: &str| value.get(key).and_then(text_of);
            ExecutionNote {
                by: part("by"),
                note: part("note").unwrap_or_default(),
                summary: part("summary"),
                timestamp: part("timestamp"),
                provenance: Provenance::read(value),
            }
        }
    };
    items(block, "execution_notes").iter().map(read).collect()
}

pub fn artifacts(block: &TaskBlock<'_>) -> Vec<Artifact> {
    let read = |value: &Value| match text_of(value) {
        Some(path) => Some(Artifact { path, kind: None }),
        None => {
            let part = |key: &str| value.get(key).and_then(text_of);
            Some(Artifact { path: part("path")?, kind: part("type") })
        }
    };
    items(block, "artifacts").iter().filter_map(read).collect()
}

pub fn steps(block: &TaskBlock<'_>) -> Vec<TransitionRecord> {
    let read = |value: &Value| {
        let part = |key: &str| value.get(key).and_then(text_of);
        TransitionRecord {
            from: part("from"),
            to: part("to"),
            by: part("by"),
            reason: part("reason"),
            timestamp: part("timestamp"),
            provenance: Provenance::read(value),
        }
    };
    items(block, "state_transitions").iter().map(read).collect()
}

pub fn parse_time(text: &str) -> Option<Timestamp> {
    OffsetTimestamp::parse(text, &TimeZone::UTC).map(OffsetTimestamp::timestamp)
}

/// §8.1.1: the time of the last activity on a task.
pub fn last_activity(block: &TaskBlock<'_>, claimed_at: Option<&str>) -> Option<Timestamp> {
    let noted = notes(block).into_iter().filter_map(|note| note.timestamp);
    let moved = steps(block).into_iter().filter_map(|step| step.timestamp);
    noted.chain(moved).chain(claimed_at.map(str::to_owned)).filter_map(|text| parse_time(&text)).max()
}

/// The session that holds a task by its last claim, if the claim names it. The session keeps a task that a person
/// blocks and unblocks; it loses a task that a person puts back or takes.
pub fn session(block: &TaskBlock<'_>) -> Option<String> {
    let is = |state: &Option<String>, other: TaskState| state.as_deref() == Some(other.as_str());
    for step in steps(block).into_iter().rev() {
        if is(&step.to, TaskState::Todo) {
            return None;
        }
        if is(&step.to, TaskState::InProgress)
            && (step.provenance.session_id.is_some() || !is(&step.from, TaskState::Blocked))
        {
            return step.provenance.session_id;
        }
    }
    None
}

/// Whether a task was ever claimed by one of these sessions.
pub fn was_claimed_by(block: &TaskBlock<'_>, is_one: impl Fn(&str) -> bool) -> bool {
    steps(block).iter().any(|step| step.provenance.session_id.as_deref().is_some_and(&is_one))
}

/// Why an agent wants its task blocked, if that was the last event of the task.
pub fn requested_block(block: &TaskBlock<'_>) -> Option<String> {
    let last = notes(block).pop()?;
    let why = last.block_recommendation()?;
    let noted = last.timestamp.as_deref().and_then(parse_time);
    let answered = steps(block).pop().and_then(|step| step.timestamp).and_then(|text| parse_time(&text));
    // A person who has moved the task since knows the request.
    let heard = matches!((noted, answered), (Some(noted), Some(answered)) if answered > noted);
    (!heard).then(|| why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_as_people_write_them() {
        let text = "- id: A\n  execution_notes:\n    - plain words\n    - by: agent\n      note: more\n      timestamp: 2026-01-01T10:00:00Z\n      provenance:\n        session_id: s1\n  artifacts:\n    - a.txt\n    - path: b.txt\n      type: code\n  state_transitions:\n    - from: todo\n      to: in_progress\n      timestamp: 2026-01-01T09:00:00Z\n      provenance: {session_id: s0}\n";
        let block = TaskBlock::parse(text, 1).expect("a block");
        let read = notes(&block);
        assert_eq!((read[0].note.as_str(), read[1].by.as_deref()), ("plain words", Some("agent")));
        assert_eq!(read[1].provenance.session_id.as_deref(), Some("s1"));
        assert_eq!(artifacts(&block).len(), 2);
        assert_eq!(session(&block).as_deref(), Some("s0"));
        assert_eq!(last_activity(&block, None), parse_time("2026-01-01T10:00:00Z"));
    }

    #[test]
    fn a_summary_is_one_line_of_120_characters_at_most() {
        assert_eq!(summary("a\nb"), "a b");
        let long = summary(&"ä".repeat(200));
        assert_eq!(long.chars().count(), 120);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn a_wish_to_be_blocked_counts_until_somebody_moves_the_task() {
        let with = |step: &str| {
            let text = format!(
                "- id: A\n  execution_notes:\n    - note: \"{RECOMMENDS}no key\"\n      timestamp: 2026-01-01T10:00:00Z\n  state_transitions:\n    - to: in_progress\n      timestamp: {step}\n"
            );
            requested_block(&TaskBlock::parse(&text, 1).expect("a block"))
        };
        assert_eq!(with("2026-01-01T09:00:00Z").as_deref(), Some("no key"));
        assert_eq!(with("2026-01-01T11:00:00Z"), None);
    }
}
