//! Verdicts of auditors: the instructions for writing one, and the reader.
//!
//! No protocol has a format of its own for a verdict; this one has the shape of a report. It is read strictly: an
//! ambiguous answer is no verdict.

use serde::{Deserialize, Serialize};
use serde_yaml::Value;

use crate::names::{AgentName, TaskId};
use crate::text::bounds::{shorten, truncate};
use crate::text::frontmatter::Frontmatter;
use crate::text::one_line;
use crate::text::yaml::text_of as scalar;

/// The most findings that are read.
const MOST_FINDINGS: usize = 50;
/// The most bytes of a finding's message, and of its file's name.
const LONGEST_MESSAGE: usize = 4_000;
const LONGEST_FILE: usize = 1_000;

/// An auditor's verdict on the work of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditVerdict {
    pub ruling: AuditRuling,
    pub findings: Vec<AuditFinding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AuditRuling {
    Pass,
    /// The work goes back to its builder.
    Fail,
    /// A person has to decide.
    NeedsReview,
}

impl AuditRuling {
    pub const ALL: [Self; 3] = [Self::Pass, Self::Fail, Self::NeedsReview];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::NeedsReview => "NEEDS_REVIEW",
        }
    }
}

impl std::fmt::Display for AuditRuling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// One thing an auditor found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFinding {
    pub file: Option<String>,
    pub line: Option<u64>,
    pub message: String,
}

impl std::fmt::Display for AuditFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{file}:{line}: {}", self.message),
            (Some(file), None) => write!(f, "{file}: {}", self.message),
            (None, _) => f.write_str(&self.message),
        }
    }
}

/// The instructions for writing a verdict.
pub(crate) fn instructions(task: &TaskId, auditor: &AgentName) -> String {
    format!(
        "It is your verdict. Write it as Markdown with this header, and your reasons below:\n\n\
         ---\n\
         task_id: {task}\n\
         agent: {auditor}\n\
         verdict: PASS   # or FAIL, if it must go back to its builder; NEEDS_REVIEW, if a person has to say\n\
         findings: []    # what is wrong, each as below; FAIL and NEEDS_REVIEW need one at least\n\
         #  - file: src/example.ts\n\
         #    line: 12\n\
         #    message: \"What is wrong, and what would be right\"\n\
         ---\n\n\
         ## Reasons\n"
    )
}

impl AuditVerdict {
    /// The verdict with its findings cut to their bounds.
    pub(crate) fn bounded(mut self) -> Self {
        self.findings.truncate(MOST_FINDINGS);
        shorten(&mut self.findings, |finding| {
            finding.file = finding.file.take().map(|file| truncate(file, LONGEST_FILE));
            finding.message = truncate(std::mem::take(&mut finding.message), LONGEST_MESSAGE);
            finding.message.len() + finding.file.as_ref().map_or(0, String::len)
        });
        self
    }
}

/// Reads the verdict in a text, or says why there is none.
pub(crate) fn read(task: &TaskId, text: &str) -> Result<AuditVerdict, String> {
    let matter = Frontmatter::parse(unfenced(text)).map_err(|error| error.reason)?;
    let field = |key: &str| matter.value(key).map_err(|error| error.reason);
    match field("task_id")?.as_ref().and_then(scalar) {
        Some(about) if about == task.as_str() => {}
        Some(about) => return Err(format!("it is about {about}, and not about {task}")),
        None => return Err("`task_id` is missing".to_owned()),
    }
    let said = field("verdict")?.as_ref().and_then(scalar).ok_or("`verdict` is missing")?;
    let ruling = AuditRuling::ALL.into_iter().find(|ruling| ruling.as_str() == said);
    let ruling =
        ruling.ok_or_else(|| format!("`verdict` is `{said}`; it must be PASS, FAIL or NEEDS_REVIEW"))?;
    let mut findings = Vec::new();
    // Some auditors call them issues.
    for key in ["findings", "issues"] {
        match field(key)? {
            None | Some(Value::Null) => {}
            Some(Value::Sequence(items)) => {
                let more = items.iter().take(MOST_FINDINGS).map(|item| parse_finding(item, key));
                findings.extend(more.collect::<Result<Vec<_>, _>>()?);
            }
            Some(_) => return Err(format!("`{key}` must be a list")),
        }
    }
    findings.truncate(MOST_FINDINGS);
    if ruling != AuditRuling::Pass && findings.is_empty() {
        return Err(format!("it says {ruling} and names no finding"));
    }
    Ok(AuditVerdict { ruling, findings })
}

fn parse_finding(value: &Value, list: &str) -> Result<AuditFinding, String> {
    let text = |key: &str| value.get(key).and_then(scalar).map(|text| one_line(&text));
    let message = match value {
        Value::Mapping(_) => ["message", "description", "issue"].into_iter().find_map(text),
        sentence => scalar(sentence).map(|text| one_line(&text)),
    };
    let message = message.filter(|message| !message.is_empty());
    let message = message.ok_or_else(|| format!("an entry of `{list}` has no `message`"))?;
    let line = match value.get("line") {
        None | Some(Value::Null) => None,
        Some(line) => Some(line.as_u64().ok_or("the `line` of a finding is no number")?),
    };
    Ok(AuditFinding { file: text("file").filter(|file| !file.is_empty()), line, message })
}

/// A text without the code fence that models often put around it.
fn unfenced(text: &str) -> &str {
    let trimmed = text.trim();
    let inner = trimmed.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inner.and_then(|inner| inner.split_once('\n')) {
        Some((_, inner)) => inner.trim_start(),
        None => trimmed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<AuditVerdict, String> {
        super::read(&TaskId::parse("T0007").expect("an id"), text)
    }

    fn written(verdict: &str, findings: &str) -> String {
        format!(
            "---\ntask_id: T0007\nagent: gemini\nverdict: {verdict}\nfindings: {findings}\n---\n\nBecause.\n"
        )
    }

    #[test]
    fn the_three_verdicts_read_with_their_findings() {
        let found = "\n  - {file: src/a.ts, line: 12, message: \"Off by one\"}\n  - The docs are missing";
        for ruling in AuditRuling::ALL {
            let verdict = read(&written(ruling.as_str(), found)).expect("a verdict");
            assert_eq!(verdict.ruling, ruling);
            let said: Vec<String> = verdict.findings.iter().map(ToString::to_string).collect();
            assert_eq!(said, ["src/a.ts:12: Off by one", "The docs are missing"]);
        }
        assert_eq!(read(&written("PASS", "[]")).expect("a verdict").findings, []);
    }

    #[test]
    fn the_instructions_are_a_verdict_themselves() {
        let (task, auditor) =
            (TaskId::parse("T0007").expect("an id"), AgentName::parse("gemini").expect("a name"));
        let text = instructions(&task, &auditor);
        let example = &text[text.find("---").expect("a header")..];
        assert_eq!(read(example).expect("a verdict").ruling, AuditRuling::Pass);
    }

    #[test]
    fn one_fence_around_it_is_tolerated() {
        let fenced = format!("```markdown\n{}```\n", written("PASS", "[]"));
        assert_eq!(read(&fenced).expect("a verdict").ruling, AuditRuling::Pass);
    }

    #[test]
    fn issues_are_findings_by_another_name() {
        let issues = "\n  - {file: src/a.ts, line: 12, description: \"Off by one\"}\n  - issue: No test";
        let verdict = read(&written("FAIL", issues).replace("findings:", "issues:")).expect("a verdict");
        let said: Vec<String> = verdict.findings.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["src/a.ts:12: Off by one", "No test"]);
        let both = written("FAIL", "[one]").replace("findings:", "issues: [two]\nfindings:");
        assert_eq!(read(&both).expect("a verdict").findings.len(), 2);
        let none = read(&written("FAIL", "[]").replace("findings:", "issues:")).expect_err("no finding");
        assert!(none.contains("names no finding"), "{none}");
    }

    #[test]
    fn whatever_leaves_room_for_doubt_is_no_verdict() {
        for (text, why) in [
            ("Looks good to me! PASS".to_owned(), "does not start"),
            (String::new(), "does not start"),
            (written("pass", "[]"), "must be PASS"),
            (written("PASS or FAIL", "[]"), "must be PASS"),
            (written("FAIL", "[]"), "names no finding"),
            (written("NEEDS_REVIEW", "[]"), "names no finding"),
            (written("FAIL", "all of it"), "must be a list"),
            (written("FAIL", "[{file: a}]"), "no `message`"),
            (written("FAIL", "[{message: x, line: far}]"), "no number"),
            (written("PASS", "[]").replace("T0007", "T0008"), "about T0008"),
            (written("PASS", "[]").replace("verdict", "verdicts"), "`verdict` is missing"),
        ] {
            let refused = read(&text).expect_err(&text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn no_text_that_is_not_a_verdict_passes(text in any::<String>()) {
            prop_assert!(read(&text).is_err());
        }
    }
}
