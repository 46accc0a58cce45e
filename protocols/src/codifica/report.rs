//! What an agent is told about its report, and what becomes of the one it writes: a note of at most so many words, a
//! summary, and the artifacts it really made.

use serde_yaml::Value;

use super::notes::{Artifact, LONGEST_SUMMARY, summary};
use crate::board::{Seen, Told};
use crate::text::frontmatter::Frontmatter;
use crate::text::one_line;
use crate::text::yaml::{quoted, text_of};

/// The most of an agent's own words that is kept.
const LONGEST: usize = 3_000;
/// The most of a sentence that says why it can't go on.
const LONGEST_REASON: usize = 500;
/// So many of the files that changed are artifacts, where the agent names none.
const MOST_ARTIFACTS: usize = 20;

/// A report, as it is kept until the board has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub summary: String,
    pub artifacts: Vec<Artifact>,
    pub note: String,
}

/// How a report is written, in words.
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

/// The report as it is kept.
pub(super) fn corrected(claim: Option<&str>, seen: &Seen<'_>) -> Told {
    let claim = claim.map(|text| text.chars().take(LONGEST).collect::<String>());
    let matter = claim.as_deref().and_then(|text| Frontmatter::parse(text.trim_start()).ok());
    let field = |key: &str| matter.as_ref().and_then(|matter| matter.value(key).ok().flatten());
    let words = match (&matter, &claim) {
        (Some(matter), _) => matter.body().trim(),
        (None, Some(text)) => text.trim(),
        (None, None) => "",
    };
    let said = field("summary").as_ref().and_then(text_of).filter(|text| !text.trim().is_empty());
    let summary = summary(&said.unwrap_or_else(|| first_sentence(words, seen)));
    let mut artifacts = claimed(field("artifacts"));
    let untrue: Vec<String> =
        artifacts.iter().map(|one| one.path.clone()).filter(|path| !seen.files.contains(path)).collect();
    artifacts.retain(|one| seen.files.contains(&one.path));
    if artifacts.is_empty() {
        let made = seen.files.iter().take(MOST_ARTIFACTS);
        artifacts = made.map(|path| Artifact { path: path.clone(), kind: Some("file".to_owned()) }).collect();
    }
    let mut note = if words.is_empty() { summary.clone() } else { words.to_owned() };
    let mut notes = vec![seen.ended.to_owned()];
    if claim.is_none() {
        notes.push("The agent wrote no report; this was made from what was seen.".to_owned());
    }
    if !untrue.is_empty() {
        notes.push(format!("It named artifacts that did not change: {}.", untrue.join(", ")));
    }
    if seen.files.len() > artifacts.len() {
        notes.push(format!("{} files changed.", seen.files.len()));
    }
    note.push_str(&format!("\n\nSeen from outside: {}", one_line(&notes.join(" "))));
    let status = field("status").as_ref().and_then(text_of).unwrap_or_default();
    let blocked = status.eq_ignore_ascii_case("blocked").then(|| reason(words, &summary));
    Told { text: Report { summary, artifacts, note }.render(), blocked }
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

fn first_sentence(words: &str, seen: &Seen<'_>) -> String {
    let line =
        words.lines().map(|line| line.trim().trim_start_matches('#').trim()).find(|line| !line.is_empty());
    line.map_or_else(
        || format!("{} files changed; the agent did not say more", seen.files.len()),
        str::to_owned,
    )
}

/// Why an agent can't go on: the first paragraph it wrote.
fn reason(words: &str, summary: &str) -> String {
    let paragraph: Vec<&str> = words
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty() || line.starts_with('#'))
        .take_while(|line| !line.is_empty())
        .collect();
    match paragraph.is_empty() {
        true => summary.to_owned(),
        false => paragraph.join(" ").chars().take(LONGEST_REASON).collect(),
    }
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

    /// One that was kept.
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

    fn told(claim: Option<&str>, files: &[&str]) -> Told {
        let (task, agent) =
            (TaskId::parse("FEAT-1").expect("an id"), AgentName::parse("shell").expect("a name"));
        let files: Vec<String> = files.iter().map(ToString::to_string).collect();
        let seen = Seen {
            task: &task,
            agent: &agent,
            attempt: 1,
            started: jiff::Timestamp::UNIX_EPOCH,
            finished: jiff::Timestamp::UNIX_EPOCH,
            files: &files,
            ended: "It ended with exit code 0.",
            used: None,
        };
        corrected(claim, &seen)
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
