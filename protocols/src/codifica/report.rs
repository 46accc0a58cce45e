//! Reports of agents: the instructions for writing one, and the report that is kept: a note of bounded length, a
//! summary, and the artifacts that were really made.

use serde_yaml::Value;

use super::notes::{Artifact, LONGEST_SUMMARY, summary};
use crate::board::{CorrectedReport, ObservedAttempt};
use crate::claim::{ClaimedFile, ReportClaim};
use crate::text::frontmatter::Frontmatter;
use crate::text::one_line;
use crate::text::yaml::{quoted, text_of};

/// The most of an agent's own words that is kept.
const LONGEST: usize = 3_000;
/// The most of a sentence that says why it can't go on.
const LONGEST_REASON: usize = 500;
/// How many changed files become artifacts, where the agent names none.
const MOST_ARTIFACTS: usize = 20;

/// A report, as it is kept until the board records it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub summary: String,
    pub artifacts: Vec<Artifact>,
    pub note: String,
}

/// The instructions for writing a report.
pub(super) fn instructions() -> String {
    format!(
        "It becomes the task's execution note. Write it as Markdown with this header, and your own words below:\n\n\
         ---\n\
         status: done   # or blocked, if you can't go on; say why below\n\
         summary: \"One line, at most {LONGEST_SUMMARY} characters\"\n\
         artifacts: []  # what you made that others need, each as below\n\
         #  - path: src/example.ts\n\
         #    type: code\n\
         ---\n\n\
         What you did, and what whoever comes next must know.\n"
    )
}

/// What a builder's report says, within bounds.
pub(crate) fn read(text: &str) -> ReportClaim {
    let text: String = text.chars().take(LONGEST).collect();
    let matter = Frontmatter::parse(text.trim_start()).ok();
    let field = |key: &str| matter.as_ref().and_then(|matter| matter.value(key).ok().flatten());
    let words = matter.as_ref().map_or(text.as_str(), |matter| matter.body()).trim();
    let said = field("summary").as_ref().and_then(text_of).filter(|text| !text.trim().is_empty());
    let summary = said.or_else(|| first_sentence(words)).map(|text| summary(&text));
    let files = claimed(field("artifacts")).into_iter();
    let status = field("status").as_ref().and_then(text_of).unwrap_or_default();
    let blocked = status.eq_ignore_ascii_case("blocked");
    ReportClaim {
        blocked: blocked.then(|| reason(words).or_else(|| summary.clone()).unwrap_or_else(unsaid)),
        summary,
        files: files.map(|Artifact { path, kind }| ClaimedFile { path, kind }).collect(),
        words: words.to_owned(),
        ..ReportClaim::default()
    }
}

fn unsaid() -> String {
    "the agent says that it can't go on, and not why".to_owned()
}

/// The report as it is kept.
pub(super) fn corrected(claim: Option<&ReportClaim>, seen: &ObservedAttempt<'_>) -> CorrectedReport {
    let said = claim.and_then(|claim| claim.summary.clone());
    let summary =
        said.unwrap_or_else(|| format!("{} files changed; the agent did not say more", seen.files.len()));
    let files = claim.map(|claim| claim.files.as_slice()).unwrap_or_default();
    let (true_ones, untrue): (Vec<_>, Vec<_>) =
        files.iter().partition(|file| seen.files.contains(&file.path));
    let mut artifacts: Vec<Artifact> = true_ones
        .into_iter()
        .map(|file| Artifact { path: file.path.clone(), kind: file.kind.clone() })
        .collect();
    if artifacts.is_empty() {
        let made = seen.files.iter().take(MOST_ARTIFACTS);
        artifacts = made.map(|path| Artifact { path: path.clone(), kind: Some("file".to_owned()) }).collect();
    }
    let words = claim.map(|claim| claim.words.trim()).filter(|words| !words.is_empty());
    // A text without a readable header may be longer.
    let mut note: String = words.unwrap_or(&summary).chars().take(LONGEST).collect();
    let mut notes = vec![seen.ended.to_owned()];
    match claim {
        None => notes.push("The agent wrote no report; this was made from what was seen.".to_owned()),
        Some(ReportClaim { unread: Some(why), .. }) => {
            notes.push(format!("The agent's report could not be understood ({why})."));
        }
        Some(_) => {}
    }
    if !untrue.is_empty() {
        let untrue: Vec<&str> = untrue.iter().map(|file| file.path.as_str()).collect();
        notes.push(format!("It named artifacts that did not change: {}.", untrue.join(", ")));
    }
    if seen.files.len() > artifacts.len() {
        notes.push(format!("{} files changed.", seen.files.len()));
    }
    note.push_str(&format!("\n\nSeen from outside: {}", one_line(&notes.join(" "))));
    let blocked = claim.and_then(|claim| claim.blocked.clone());
    CorrectedReport { text: Report { summary, artifacts, note }.render(), blocked }
}

fn claimed(value: Option<Value>) -> Vec<Artifact> {
    let Some(Value::Sequence(items)) = value else { return Vec::new() };
    let read = |item: &Value| match text_of(item) {
        Some(path) => Some(Artifact { path, kind: Some("file".to_owned()) }),
        None => {
            let part = |key: &str| item.get(key).and_then(text_of);
            Some(Artifact { path: part("path")?, kind: part("type") })
        }
    };
    items.iter().filter_map(read).take(MOST_ARTIFACTS).collect()
}

fn first_sentence(words: &str) -> Option<String> {
    let mut lines = words.lines().map(|line| line.trim().trim_start_matches('#').trim());
    lines.find(|line| !line.is_empty()).map(str::to_owned)
}

/// Why an agent can't go on: the first paragraph it wrote.
fn reason(words: &str) -> Option<String> {
    let paragraph: Vec<&str> = words
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty() || line.starts_with('#'))
        .take_while(|line| !line.is_empty())
        .collect();
    (!paragraph.is_empty()).then(|| paragraph.join(" ").chars().take(LONGEST_REASON).collect())
}

impl Report {
    fn render(&self) -> String {
        let artifacts: String = self
            .artifacts
            .iter()
            .map(|one| {
                let kind = one.kind.as_deref().unwrap_or("file");
                format!("  - path: {}\n    type: {}\n", quoted(&one.path), quoted(kind))
            })
            .collect();
        let artifacts = if artifacts.is_empty() { " []\n".to_owned() } else { format!("\n{artifacts}") };
        format!("---\nsummary: {}\nartifacts:{artifacts}---\n\n{}\n", quoted(&self.summary), self.note.trim())
    }

    /// Parses a kept report.
    pub fn parse(text: &str) -> Self {
        let Ok(matter) = Frontmatter::parse(text) else {
            return Self { summary: summary(text), note: text.trim().to_owned(), ..Self::default() };
        };
        let field = |key: &str| matter.value(key).ok().flatten();
        Self {
            summary: field("summary").as_ref().and_then(text_of).unwrap_or_default(),
            artifacts: claimed(field("artifacts")),
            note: matter.body().trim().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{AgentName, TaskId};

    fn told(claim: Option<&str>, files: &[&str]) -> CorrectedReport {
        let (task, agent) =
            (TaskId::parse("FEAT-1").expect("an id"), AgentName::parse("shell").expect("a name"));
        let files: Vec<String> = files.iter().map(ToString::to_string).collect();
        let seen = ObservedAttempt {
            task: &task,
            agent: &agent,
            attempt: 1,
            started: jiff::Timestamp::UNIX_EPOCH,
            finished: jiff::Timestamp::UNIX_EPOCH,
            files: &files,
            ended: "It ended with exit code 0.",
            used: None,
        };
        corrected(claim.map(read).as_ref(), &seen)
    }

    #[test]
    fn what_an_agent_says_is_kept_and_artifacts_are_what_changed() {
        let long = "x".repeat(300);
        let claim = format!(
            "---\nstatus: done\nsummary: {long}\nartifacts:\n  - path: src/a\n    type: code\n  - etc/passwd\n---\n\nDid it.\n\n```yaml\n- id: X\n```\n"
        );
        let report = Report::parse(&told(Some(&claim), &["src/a", "src/b"]).text);
        assert_eq!(report.summary.chars().count(), 120);
        assert_eq!(report.artifacts, [Artifact { path: "src/a".into(), kind: Some("code".into()) }]);
        assert!(
            report.note.starts_with("Did it.\n\n```yaml") && report.note.contains("etc/passwd"),
            "{report:?}"
        );
    }

    #[test]
    fn no_report_is_made_from_what_was_seen() {
        let report = Report::parse(&told(None, &["src/a"]).text);
        assert_eq!(report.artifacts.len(), 1);
        assert!(report.note.contains("wrote no report") && !report.summary.is_empty());
        let words = Report::parse(&told(Some("just words\nmore"), &[]).text);
        assert_eq!((words.summary.as_str(), words.artifacts.len()), ("just words", 0));
    }

    #[test]
    fn an_agent_that_is_blocked_is_believed() {
        let claim = "---\nstatus: BLOCKED\nsummary: s\n---\n\n# Why\n\nThere is no key.\nNone.\n\nMore.\n";
        assert_eq!(told(Some(claim), &[]).blocked.as_deref(), Some("There is no key. None."));
        assert_eq!(
            told(Some("---\nstatus: blocked\nsummary: no key\n---\n"), &[]).blocked.as_deref(),
            Some("no key")
        );
        assert_eq!(told(Some(&instructions()), &[]).blocked, None);
    }
}
