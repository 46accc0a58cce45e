//! What a builder is told about its report, and what becomes of the one it writes.
//!
//! An agent's report is a claim. What can be seen from outside is put in its place: which task and agent it is
//! about, when it began and ended, which files differ. The rest is the agent's word, and stays.

use jiff::tz::TimeZone;

use super::report::{Report, ReportStatus};
use crate::board::{Seen, Told};
use crate::moment::Moment;
use crate::names::{AgentName, TaskId};
use crate::text::frontmatter::Frontmatter;

/// The most of an agent's own words that is kept.
const LONGEST: usize = 64 << 10;
/// The most of a sentence that says why it can't go on.
const LONGEST_REASON: usize = 500;

/// How a report is written, in words.
pub(super) fn instructions(task: &TaskId, agent: &AgentName) -> String {
    format!(
        "Write it as Markdown with this header, every key of it, and your own words below:\n\n\
         ---\n\
         task_id: {task}\n\
         agent: {agent}\n\
         status: READY_FOR_REVIEW   # or BLOCKED, if you can't go on; say why under ## Summary\n\
         started_at: 2026-01-31T16:12:00+01:00\n\
         finished_at: 2026-01-31T16:45:00+01:00\n\
         changes:\n  files_modified: []\n\
         commands_run: []\n\
         verification:\n  dod_passed: false\n\
         risks: []\n\
         ---\n\n\
         ## Summary\n\n\
         ## Follow-ups\n\n\
         (a list of what else should be done and is outside your scope, if anything)\n"
    )
}

/// The report as it is kept.
pub(super) fn corrected(claim: Option<&str>, seen: &Seen<'_>, zone: &TimeZone) -> Told {
    let claim = claim.map(|text| shortened(text, LONGEST));
    let read = claim.as_deref().map(|text| Report::read("the report", text, Some(seen.agent.as_str()), zone));
    let claimed = read.as_ref().and_then(|reading| reading.value.as_ref());
    let moment = |at: jiff::Timestamp| Some(Moment::of(&at.to_zoned(zone.clone())));
    let report = Report {
        task_id: seen.task.clone(),
        agent: seen.agent.clone(),
        status: claimed.map_or(ReportStatus::ReadyForReview, |claimed| claimed.status),
        started_at: moment(seen.started),
        finished_at: moment(seen.finished),
        files_modified: seen.files.to_vec(),
        commands_run: claimed.map(|claimed| claimed.commands_run.clone()).unwrap_or_default(),
        dod_passed: claimed.is_some_and(|claimed| claimed.dod_passed),
        risks: claimed.map(|claimed| claimed.risks.clone()).unwrap_or_default(),
        attempt: Some(seen.attempt),
        returned: false,
        usage: seen.used,
    };
    let words = claim.as_deref().map(|text| Frontmatter::parse(text).map_or(text, |matter| matter.body()));
    let mut body = words.unwrap_or_default().trim().to_owned();
    let mut notes = vec![seen.ended.to_owned()];
    match (&claim, claimed) {
        (None, _) => {
            notes.push("The agent wrote no report; this one was made from what was seen.".to_owned());
        }
        (Some(_), None) => notes.push(format!(
            "The agent's report could not be understood ({}); its words are above as they are.",
            read.iter().flat_map(|reading| &reading.findings).next().map_or("", |finding| &finding.message)
        )),
        (Some(_), Some(claimed)) => notes.extend(differences(claimed, &report)),
    }
    body.push_str("\n\n## Seen from outside\n");
    for note in &notes {
        body.push_str(&format!("- {}\n", note.replace('\n', " ")));
    }
    let blocked = (report.status == ReportStatus::Blocked).then(|| reason(words.unwrap_or_default()));
    Told { text: report.render(&format!("\n{}\n", body.trim())), blocked }
}

/// What the agent said of itself that is not so.
fn differences(claimed: &Report, seen: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if claimed.task_id != seen.task_id {
        notes.push(format!("It said that it was about {}.", claimed.task_id));
    }
    if claimed.agent != seen.agent {
        notes.push(format!("It said that it was by {}.", claimed.agent));
    }
    let missing = |of: &[String], from: &[String]| -> Vec<String> {
        of.iter().filter(|file| !from.contains(file)).cloned().collect()
    };
    let unsaid = missing(&seen.files_modified, &claimed.files_modified);
    let untrue = missing(&claimed.files_modified, &seen.files_modified);
    if !unsaid.is_empty() {
        notes.push(format!("It did not mention: {}.", unsaid.join(", ")));
    }
    if !untrue.is_empty() {
        notes.push(format!("It mentioned what did not change: {}.", untrue.join(", ")));
    }
    notes
}

/// Why an agent can't go on: the first paragraph it wrote.
pub(super) fn reason(words: &str) -> String {
    let paragraph: Vec<&str> = words
        .lines()
        .map(str::trim)
        .skip_while(|line| line.is_empty() || line.starts_with('#'))
        .take_while(|line| !line.is_empty())
        .collect();
    match paragraph.is_empty() {
        true => "the agent says that it can't go on, and not why".to_owned(),
        false => shortened(&paragraph.join(" "), LONGEST_REASON),
    }
}

fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Used;

    fn told(claim: Option<&str>, files: &[&str]) -> Told {
        let (task, agent) =
            (TaskId::parse("T0001").expect("an id"), AgentName::parse("codex").expect("a name"));
        let files: Vec<String> = files.iter().map(ToString::to_string).collect();
        let seen = Seen {
            task: &task,
            agent: &agent,
            attempt: 2,
            started: jiff::Timestamp::from_second(1_000_000).expect("a time"),
            finished: jiff::Timestamp::from_second(1_000_060).expect("a time"),
            files: &files,
            ended: "It ended by itself.",
            used: Some(Used {
                tokens: 2200,
                input_tokens: Some(2000),
                output_tokens: Some(200),
                cost_micros: Some(15_000),
            }),
        };
        corrected(claim, &seen, &TimeZone::UTC)
    }

    fn read(told: &Told) -> Report {
        let reading = Report::read("r.md", &told.text, None, &TimeZone::UTC);
        assert_eq!(reading.findings, []);
        reading.value.expect("a report")
    }

    const CLAIM: &str = "---\ntask_id: T0009\nagent: mallory\nstatus: READY_FOR_REVIEW\nstarted_at: 2001-01-01T00:00:00Z\nfinished_at: 2001-01-01T00:00:00Z\nchanges: {files_modified: [src/a, src/b]}\ncommands_run: [make]\nverification: {dod_passed: true}\nrisks: [\"none\"]\n---\n\n## Summary\nDid it.\n";

    #[test]
    fn what_was_seen_takes_the_place_of_what_is_claimed() {
        let told = told(Some(CLAIM), &["src/a", "src/c"]);
        let report = read(&told);
        assert_eq!((report.task_id.as_str(), report.agent.as_str()), ("T0001", "codex"));
        assert_eq!(report.files_modified, ["src/a", "src/c"]);
        assert!(told.text.contains("usage:\n  tokens: 2200\n") && told.text.contains("  cost: 0.015\n"));
        assert_eq!(report.usage.and_then(|used| used.cost_micros), Some(15_000));
        assert_eq!(report.started_at.map(|at| at.timestamp().as_second()), Some(1_000_000));
        assert_eq!((report.commands_run, report.dod_passed), (vec!["make".to_owned()], true));
        for said in
            ["about T0009", "by mallory", "did not mention: src/c", "did not change: src/b", "Did it."]
        {
            assert!(told.text.contains(said), "{said}: {}", told.text);
        }
        assert_eq!(told.blocked, None);
    }

    #[test]
    fn no_report_is_made_from_what_was_seen() {
        let told = told(None, &["src/a"]);
        assert_eq!(read(&told).files_modified, ["src/a"]);
        assert!(told.text.contains("wrote no report"));
    }

    #[test]
    fn words_that_are_no_report_are_kept_as_words() {
        let told = told(Some("I am done!\n---\nstatus: DONE\n"), &[]);
        assert_eq!(read(&told).status, ReportStatus::ReadyForReview);
        assert!(told.text.contains("could not be understood") && told.text.contains("I am done!"));
    }

    #[test]
    fn an_agent_that_is_blocked_is_believed_and_its_reason_is_its_first_paragraph() {
        let claim = CLAIM
            .replace("READY_FOR_REVIEW", "BLOCKED")
            .replace("Did it.", "The scope\nis too small.\n\nMore.");
        assert_eq!(told(Some(&claim), &[]).blocked.as_deref(), Some("The scope is too small."));
        let silent = claim.replace("## Summary\nThe scope\nis too small.\n\nMore.", "");
        assert!(told(Some(&silent), &[]).blocked.is_some_and(|why| why.contains("not why")));
    }
}
