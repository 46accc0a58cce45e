//! What an auditor is told about its verdict, and how the one it writes is read.
//!
//! No protocol has a format of its own for it; this one has the shape of a report. It is
//! read strictly: an auditor whose answer leaves room for doubt has given none.

use serde_yaml::Value;

use crate::board::{Remark, Ruling, Verdict};
use crate::claim::{cut, shorten};
use crate::names::{AgentName, TaskId};
use crate::text::frontmatter::Frontmatter;
use crate::text::one_line;
use crate::text::yaml::text_of as scalar;

/// More than anybody reads.
const MOST_FINDINGS: usize = 50;
/// Bytes of what a finding says, and of the name of its file.
const LONGEST_MESSAGE: usize = 4_000;
const LONGEST_FILE: usize = 1_000;

/// How a verdict is written, in words.
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

impl Verdict {
    /// The verdict with as many findings as anybody reads, each as long as it may be.
    pub(crate) fn bounded(mut self) -> Self {
        self.findings.truncate(MOST_FINDINGS);
        shorten(&mut self.findings, |finding| {
            finding.file = finding.file.take().map(|file| cut(file, LONGEST_FILE));
            finding.message = cut(std::mem::take(&mut finding.message), LONGEST_MESSAGE);
            finding.message.len() + finding.file.as_ref().map_or(0, String::len)
        });
        self
    }
}

/// The verdict in a text, or why there is none.
pub(crate) fn read(task: &TaskId, text: &str) -> Result<Verdict, String> {
    let matter = Frontmatter::parse(unfenced(text)).map_err(|error| error.reason)?;
    let field = |key: &str| matter.value(key).map_err(|error| error.reason);
    match field("task_id")?.as_ref().and_then(scalar) {
        Some(about) if about == task.as_str() => {}
        Some(about) => return Err(format!("it is about {about}, and not about {task}")),
        None => return Err("`task_id` is missing".to_owned()),
    }
    let said = field("verdict")?.as_ref().and_then(scalar).ok_or("`verdict` is missing")?;
    let ruling = Ruling::ALL.into_iter().find(|ruling| ruling.as_str() == said);
    let ruling =
        ruling.ok_or_else(|| format!("`verdict` is `{said}`; it must be PASS, FAIL or NEEDS_REVIEW"))?;
    let findings = match field("findings")? {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Sequence(items)) => {
            items.iter().take(MOST_FINDINGS).map(remark).collect::<Result<Vec<_>, _>>()?
        }
        Some(_) => return Err("`findings` must be a list".to_owned()),
    };
    if ruling != Ruling::Pass && findings.is_empty() {
        return Err(format!("it says {ruling} and names no finding"));
    }
    Ok(Verdict { ruling, findings })
}

fn remark(value: &Value) -> Result<Remark, String> {
    let text = |key: &str| value.get(key).and_then(scalar).map(|text| one_line(&text));
    let message = match value {
        Value::Mapping(_) => text("message"),
        sentence => scalar(sentence).map(|text| one_line(&text)),
    };
    let message = message.filter(|message| !message.is_empty()).ok_or("a finding has no `message`")?;
    let line = match value.get("line") {
        None | Some(Value::Null) => None,
        Some(line) => Some(line.as_u64().ok_or("the `line` of a finding is no number")?),
    };
    Ok(Remark { file: text("file").filter(|file| !file.is_empty()), line, message })
}

/// A text without the one fence that models like to put around everything they write.
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

    fn read(text: &str) -> Result<Verdict, String> {
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
        for ruling in Ruling::ALL {
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
        assert_eq!(read(example).expect("a verdict").ruling, Ruling::Pass);
    }

    #[test]
    fn one_fence_around_it_is_tolerated() {
        let fenced = format!("```markdown\n{}```\n", written("PASS", "[]"));
        assert_eq!(read(&fenced).expect("a verdict").ruling, Ruling::Pass);
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
