//! §7: the report of a builder. It is a claim, which nothing here trusts.

use jiff::tz::TimeZone;
use serde::Serialize;
use serde_yaml::Value;

use super::header_fields::{HeaderReader, scalar};
use super::task::ParsedFile;
use crate::board::RecordedUsage;
use crate::finding::Finding;
use crate::names::{AgentName, TaskId};
use crate::text::frontmatter::{Frontmatter, FrontmatterError};
use crate::text::yaml;
use crate::timestamp::OffsetTimestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReportStatus {
    ReadyForReview,
    Blocked,
}

impl ReportStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            ReportStatus::ReadyForReview => "READY_FOR_REVIEW",
            ReportStatus::Blocked => "BLOCKED",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub task_id: TaskId,
    pub agent: AgentName,
    pub status: ReportStatus,
    pub started_at: Option<OffsetTimestamp>,
    pub finished_at: Option<OffsetTimestamp>,
    pub files_modified: Vec<String>,
    pub commands_run: Vec<String>,
    /// The builder's claim.
    pub dod_passed: bool,
    pub risks: Vec<String>,
    /// The attempt, where the engine wrote the report; a report from outside of a run has none. An extension of ours.
    pub attempt: Option<u64>,
    /// Whether its work went back to its builder. An extension of ours.
    pub returned: bool,
    /// The usage that the builder reports. An extension of ours.
    pub usage: Option<RecordedUsage>,
    /// The commit with which its work landed. An extension of ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landed: Option<String>,
}

const SECTION: &str = "7.2";
const ATTEMPT: &str = "attempt";
const RETURNED: &str = "returned";
const USAGE: &str = "usage";
const LANDED: &str = "landed";

impl Report {
    /// Reads a report. `agent` is the agent of its folder, for files that do not name one.
    pub fn read(file: &str, text: &str, agent: Option<&str>, zone: &TimeZone) -> ParsedFile<Self> {
        let matter = match Frontmatter::parse(text) {
            Ok(matter) => matter,
            Err(error) => {
                let finding = Finding::error(file, Some(error.line), SECTION, error.reason);
                return ParsedFile { value: None, findings: vec![finding] };
            }
        };
        let mut header = HeaderReader::new(file, SECTION, &matter);
        // An older tool says `id`, `completed_at` and `files_changed`.
        let id_field = either(&matter, "task_id", "id");
        let task_id = header.required(id_field).and_then(|text| match TaskId::parse(&text) {
            Ok(id) => Some(id),
            Err(error) => {
                header.wrong(id_field, format!("`{id_field}`: {error}"));
                None
            }
        });
        let named = match (matter.line("agent"), agent) {
            (None, Some(agent)) if id_field == "id" => Some(agent.to_owned()),
            _ => header.required("agent"),
        };
        let agent = named.and_then(|text| match AgentName::parse(&text) {
            Ok(name) => Some(name),
            Err(error) => {
                header.wrong("agent", format!("`agent`: {error}"));
                None
            }
        });
        let status = read_status(&mut header);
        let mut time = |field: &str, needed: bool| {
            let text = if needed { header.required(field) } else { header.text(field) }?;
            let moment = OffsetTimestamp::parse(&text, zone);
            if moment.is_none() {
                header.wrong(
                    field,
                    format!("`{field}` is `{text}`; it must be like `2026-01-31T16:45:00+01:00`"),
                );
            }
            moment
        };
        let older = id_field == "id";
        let started_at = time("started_at", !older);
        let finished_at = time(either(&matter, "finished_at", "completed_at"), true);
        let files_modified = read_files(&mut header);
        let commands_run = needed_list(&mut header, "commands_run", older);
        let risks = needed_list(&mut header, "risks", older);
        let dod_passed = read_claim(&mut header, older);
        let attempt = header.value(ATTEMPT).and_then(|value| value.as_u64());
        let returned = matter.line(RETURNED).is_some();
        let usage = header.value(USAGE).and_then(|value| read_usage(&value));
        let landed = header.text(LANDED);
        let findings = header.findings;
        let value = match (task_id, agent, status) {
            (Some(task_id), Some(agent), Some(status)) => Some(Self {
                task_id,
                agent,
                status,
                started_at,
                finished_at,
                files_modified,
                commands_run,
                dod_passed,
                risks,
                attempt,
                returned,
                usage,
                landed,
            }),
            _ => None,
        };
        ParsedFile { value, findings }
    }

    /// The text of a report that says that the work went back to its builder.
    pub(super) fn as_returned(text: &str, at: OffsetTimestamp) -> Result<String, FrontmatterError> {
        Frontmatter::parse(text)?.set(RETURNED, &at.to_string())
    }

    /// The text of a report that says that its work was verified and landed. Its status stays: a builder's is one of two.
    pub(super) fn as_landed(text: &str, commit: &str) -> Result<String, FrontmatterError> {
        let verified = "{dod_passed: true}".to_owned();
        Frontmatter::parse(text)?.set_all(&[("verification", verified), (LANDED, yaml::quoted(commit))])
    }

    /// Whether it was written outside of a run and is not handled yet.
    pub fn is_handed_in(&self) -> bool {
        self.attempt.is_none() && !self.returned
    }

    pub fn render(&self, body: &str) -> String {
        let mut out = String::from("---\n");
        let mut line = |key: &str, value: &str| out.push_str(&format!("{key}: {value}\n"));
        line("task_id", &yaml::scalar(self.task_id.as_str()));
        line("agent", &yaml::scalar(self.agent.as_str()));
        line("status", self.status.as_str());
        if let Some(attempt) = self.attempt {
            line(ATTEMPT, &attempt.to_string());
        }
        for (key, moment) in [("started_at", &self.started_at), ("finished_at", &self.finished_at)] {
            if let Some(moment) = moment {
                line(key, &moment.to_string());
            }
        }
        out.push_str(&format!("changes:\n  files_modified:{}", yaml::block_list(4, &self.files_modified)));
        out.push_str(&format!("commands_run:{}", yaml::block_list(2, &self.commands_run)));
        out.push_str(&format!("verification:\n  dod_passed: {}\n", self.dod_passed));
        if let Some(usage) = &self.usage {
            out.push_str(&format!("{USAGE}:\n  tokens: {}\n", usage.tokens));
            let parts = [("input_tokens", usage.input_tokens), ("output_tokens", usage.output_tokens)];
            for (key, count) in parts.into_iter().filter_map(|(key, count)| Some((key, count?))) {
                out.push_str(&format!("  {key}: {count}\n"));
            }
            if let Some(cost) = usage.cost() {
                out.push_str(&format!("  cost: {cost}\n"));
            }
        }
        if let Some(commit) = &self.landed {
            out.push_str(&format!("{LANDED}: {}\n", yaml::quoted(commit)));
        }
        out.push_str(&format!("risks:{}---\n{body}", yaml::block_list(2, &self.risks)));
        out
    }
}

fn read_usage(value: &Value) -> Option<RecordedUsage> {
    let count = |key: &str| value.get(key).and_then(Value::as_u64);
    let cost = value.get("cost").and_then(Value::as_f64).filter(|cost| *cost >= 0.0);
    Some(RecordedUsage {
        tokens: count("tokens")?,
        input_tokens: count("input_tokens"),
        output_tokens: count("output_tokens"),
        // A number that is too large becomes the largest there is.
        cost_micros: cost.map(|cost| (cost * 1_000_000.0).round() as u64),
    })
}

fn either(matter: &Frontmatter<'_>, field: &'static str, older: &'static str) -> &'static str {
    if matter.line(field).is_none() && matter.line(older).is_some() { older } else { field }
}

fn needed_list(header: &mut HeaderReader<'_, '_>, field: &str, older: bool) -> Vec<String> {
    if header.matter.line(field).is_none() && !older {
        header.wrong(field, format!("`{field}` is missing; it may be an empty list"));
    }
    header.list(field)
}

fn read_status(header: &mut HeaderReader<'_, '_>) -> Option<ReportStatus> {
    header.required("status").and_then(|text| match text.as_str() {
        "READY_FOR_REVIEW" => Some(ReportStatus::ReadyForReview),
        "BLOCKED" => Some(ReportStatus::Blocked),
        "DONE" => {
            header.wrong(
                "status",
                "`status` is `DONE`, which no builder may say (§3.2); it must be READY_FOR_REVIEW or BLOCKED",
            );
            None
        }
        other => {
            header.wrong("status", format!("`status` is `{other}`; it must be READY_FOR_REVIEW or BLOCKED"));
            None
        }
    })
}

fn read_files(header: &mut HeaderReader<'_, '_>) -> Vec<String> {
    if let Some(Value::Sequence(changes)) = header.value("files_changed") {
        let path = |change: &Value| scalar(change).or_else(|| scalar(change.get("path")?));
        return changes.iter().filter_map(path).collect();
    }
    match header.value("changes") {
        Some(Value::Mapping(changes)) => match changes.get("files_modified") {
            Some(files) => header.strings("changes", "changes.files_modified", files),
            None => {
                header.wrong("changes", "`changes.files_modified` is missing");
                Vec::new()
            }
        },
        Some(_) => {
            header.wrong("changes", "`changes` must hold files_modified");
            Vec::new()
        }
        None => {
            if header.matter.line("changes").is_none() {
                header.wrong("changes", "`changes.files_modified` is missing");
            }
            Vec::new()
        }
    }
}

fn read_claim(header: &mut HeaderReader<'_, '_>, older: bool) -> bool {
    let claim = header.value("verification");
    match claim.as_ref().and_then(|value| value.get("dod_passed")) {
        Some(Value::Bool(passed)) => *passed,
        Some(_) => {
            header.wrong("verification", "`verification.dod_passed` must be true or false");
            false
        }
        None => {
            if !older {
                header.wrong("verification", "`verification.dod_passed` is missing");
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> ParsedFile<Report> {
        Report::read("r.md", text, Some("codex"), &TimeZone::UTC)
    }

    proptest! {
        #[test]
        fn any_report_we_write_reads_back_equal(
            blocked in any::<bool>(), passed in any::<bool>(), second in 0_i64..9_000_000_000,
            files in prop::collection::vec(any::<String>(), 0..3), commands in prop::collection::vec(any::<String>(), 0..3),
            risks in prop::collection::vec(any::<String>(), 0..3), body in any::<String>(), micros in any::<u32>(),
        ) {
            let at = OffsetTimestamp::from_zoned(&jiff::Timestamp::from_second(second).expect("a time").to_zoned(TimeZone::UTC));
            let report = Report {
                task_id: TaskId::parse("T0007").expect("an id"),
                agent: AgentName::parse("claude-code").expect("a name"),
                status: if blocked { ReportStatus::Blocked } else { ReportStatus::ReadyForReview },
                started_at: Some(at),
                finished_at: Some(at),
                files_modified: files,
                commands_run: commands,
                dod_passed: passed,
                risks,
                attempt: passed.then_some(second.unsigned_abs()),
                returned: false,
                usage: blocked.then_some(RecordedUsage {
                    tokens: second.unsigned_abs(),
                    input_tokens: passed.then_some(7),
                    output_tokens: None,
                    cost_micros: passed.then_some(u64::from(micros)),
                }),
                landed: blocked.then(|| format!("{second:x}")),
            };
            let text = report.render(&body);
            let read = read(&text);
            prop_assert_eq!(read.findings, vec![]);
            prop_assert_eq!(read.value, Some(report));
        }
    }

    #[test]
    fn the_older_dialect_reads() {
        let text = "---\nid: T001\nstatus: READY_FOR_REVIEW\ncompleted_at: 2026-01-31T16:45:00Z\nfiles_changed:\n  - path: src/a.rs\n    action: modified\n---\n";
        let read = read(text);
        assert_eq!(read.findings, []);
        let report = read.value.expect("a report");
        assert_eq!((report.agent.as_str(), report.files_modified), ("codex", vec!["src/a.rs".to_owned()]));
    }

    #[test]
    fn a_builder_that_says_done_is_told_so() {
        let read = read("---\ntask_id: T1\nagent: codex\nstatus: DONE\n---\n");
        assert!(read.value.is_none());
        assert!(read.findings.iter().any(|finding| finding.message.contains("no builder may say")));
    }

    #[test]
    fn every_required_field_is_missed() {
        let whole = "---\ntask_id: T1\nagent: codex\nstatus: BLOCKED\nstarted_at: 2026-01-31T16:45:00Z\nfinished_at: 2026-01-31T16:45:00Z\nchanges: {files_modified: []}\ncommands_run: []\nverification: {dod_passed: false}\nrisks: []\n---\n";
        assert_eq!(read(whole).findings, []);
        for field in [
            "task_id",
            "agent",
            "status",
            "started_at",
            "finished_at",
            "changes",
            "commands_run",
            "verification",
            "risks",
        ] {
            let without: String = whole
                .lines()
                .filter(|line| !line.starts_with(&format!("{field}:")))
                .map(|line| format!("{line}\n"))
                .collect();
            let findings = read(&without).findings;
            assert_eq!(findings.len(), 1, "{field}: {findings:?}");
            assert_eq!(findings[0].field.as_deref(), Some(field));
        }
    }
}
