//! Reports of builders: the instructions for writing one, and the corrected report that is kept.
//!
//! An agent's report is a claim. Observed facts replace it: the task and the agent, the start and the end, the files
//! that differ. The rest is kept as the agent wrote it.

use std::collections::BTreeSet;

use jiff::tz::TimeZone;

use super::report::{Report, ReportStatus};
use crate::board::{CorrectedReport, ObservedAttempt};
use crate::claim::{ClaimedFile, ReportClaim};
use crate::names::{AgentName, TaskId};
use crate::text::frontmatter::Frontmatter;
use crate::timestamp::OffsetTimestamp;

/// The most of a sentence that says why it can't go on.
const LONGEST_REASON: usize = 500;

/// The instructions for writing a report.
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

/// What a builder's report says, within bounds.
pub(crate) fn read(text: &str, agent: &AgentName) -> ReportClaim {
    // Its times are not used: where it names no zone, any will do.
    let reading = Report::read("the report", text, Some(agent.as_str()), &TimeZone::UTC);
    let words = Frontmatter::parse(text).map_or(text, |matter| matter.body()).trim();
    let Some(report) = reading.value else {
        let why = reading.findings.into_iter().next().map(|finding| finding.message);
        return ReportClaim {
            words: words.to_owned(),
            unread: Some(why.unwrap_or_default()),
            ..ReportClaim::default()
        };
    };
    ReportClaim {
        task: Some(report.task_id.to_string()),
        agent: Some(report.agent.to_string()),
        blocked: (report.status == ReportStatus::Blocked).then(|| reason(words)),
        summary: None,
        files: report.files_modified.into_iter().map(|path| ClaimedFile { path, kind: None }).collect(),
        commands: report.commands_run,
        passed: report.dod_passed,
        risks: report.risks,
        words: words.to_owned(),
        unread: None,
        left_out: 0,
    }
}

/// The report as it is kept.
pub(super) fn corrected(
    claim: Option<&ReportClaim>,
    seen: &ObservedAttempt<'_>,
    zone: &TimeZone,
) -> CorrectedReport {
    let moment = |at: jiff::Timestamp| Some(OffsetTimestamp::from_zoned(&at.to_zoned(zone.clone())));
    let blocked = claim.and_then(|claim| claim.blocked.clone());
    let report = Report {
        task_id: seen.task.clone(),
        agent: seen.agent.clone(),
        status: if blocked.is_some() { ReportStatus::Blocked } else { ReportStatus::ReadyForReview },
        started_at: moment(seen.started),
        finished_at: moment(seen.finished),
        files_modified: seen.files.to_vec(),
        commands_run: claim.map(|claim| claim.commands.clone()).unwrap_or_default(),
        dod_passed: claim.is_some_and(|claim| claim.passed),
        risks: claim.map(|claim| claim.risks.clone()).unwrap_or_default(),
        attempt: Some(seen.attempt),
        returned: false,
        usage: seen.used,
        landed: None,
    };
    let mut body = claim.map(|claim| claim.words.trim().to_owned()).unwrap_or_default();
    let mut notes = vec![seen.ended.to_owned()];
    match claim {
        None => notes.push("The agent wrote no report; this one was made from what was seen.".to_owned()),
        Some(ReportClaim { unread: Some(why), .. }) => notes.push(format!(
            "The agent's report could not be understood ({why}); its words are above as they are."
        )),
        Some(claim) => notes.extend(differences(claim, &report)),
    }
    body.push_str("\n\n## Seen from outside\n");
    for note in &notes {
        body.push_str(&format!("- {}\n", note.replace('\n', " ")));
    }
    CorrectedReport { text: report.render(&format!("\n{}\n", body.trim())), blocked }
}

/// The agent's statements that differ from the observed facts.
fn differences(claim: &ReportClaim, seen: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(task) = claim.task.as_ref().filter(|task| **task != seen.task_id.as_str()) {
        notes.push(format!("It said that it was about {task}."));
    }
    if let Some(agent) = claim.agent.as_ref().filter(|agent| **agent != seen.agent.as_str()) {
        notes.push(format!("It said that it was by {agent}."));
    }
    let claimed: BTreeSet<&str> = claim.files.iter().map(|file| file.path.as_str()).collect();
    let changed: BTreeSet<&str> = seen.files_modified.iter().map(String::as_str).collect();
    let missing = |of: &BTreeSet<&str>, from: &BTreeSet<&str>| -> Vec<String> {
        of.difference(from).map(ToString::to_string).collect()
    };
    let (unsaid, untrue) = (missing(&changed, &claimed), missing(&claimed, &changed));
    if !unsaid.is_empty() {
        notes.push(format!("It did not mention: {}.", unsaid.join(", ")));
    }
    if !untrue.is_empty() {
        notes.push(format!("It mentioned what did not change: {}.", untrue.join(", ")));
    }
    if claim.left_out > 0 {
        notes.push(format!("{} entries of its lists were left out.", claim.left_out));
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
    use crate::board::RecordedUsage;

    fn told(claim: Option<&str>, files: &[&str]) -> CorrectedReport {
        let (task, agent) =
            (TaskId::parse("T0001").expect("an id"), AgentName::parse("codex").expect("a name"));
        let files: Vec<String> = files.iter().map(ToString::to_string).collect();
        let seen = ObservedAttempt {
            task: &task,
            agent: &agent,
            attempt: 2,
            started: jiff::Timestamp::from_second(1_000_000).expect("a time"),
            finished: jiff::Timestamp::from_second(1_000_060).expect("a time"),
            files: &files,
            ended: "It ended by itself.",
            used: Some(RecordedUsage {
                tokens: 2200,
                input_tokens: Some(2000),
                output_tokens: Some(200),
                cost_micros: Some(15_000),
            }),
        };
        corrected(claim.map(|text| super::read(text, &agent)).as_ref(), &seen, &TimeZone::UTC)
    }

    fn read(told: &CorrectedReport) -> Report {
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
