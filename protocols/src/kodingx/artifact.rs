//! §11.1, §20.3 and §21.5: the artifact of a verification.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text::bounds::truncate;
use crate::text::one_line;
use crate::timestamp::OffsetTimestamp;

/// The result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifyResult {
    Pass,
    /// The commands passed, and an open risk of priority P1 needs a person's override.
    Warn,
    Fail,
}

impl VerifyResult {
    pub const fn as_str(self) -> &'static str {
        match self {
            VerifyResult::Pass => "pass",
            VerifyResult::Warn => "warn",
            VerifyResult::Fail => "fail",
        }
    }
}

/// The artifact, in the order it is written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    pub protocol: String,
    pub task_id: String,
    pub timestamp: String,
    #[serde(default)]
    pub dod_profile: String,
    pub result: VerifyResult,
    #[serde(
        rename = "override",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "either"
    )]
    pub overridden: Option<Override>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_check: Option<RiskCheck>,
    #[serde(default)]
    pub commands: Vec<Value>,
    #[serde(default)]
    pub notes: Vec<String>,
    /// Further observations: commit, tree, profile's hash, attestation.
    #[serde(flatten)]
    pub evidence: serde_json::Map<String, Value>,
}

/// §20.3
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    pub approved: bool,
    #[serde(default)]
    pub approver: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub decision_ref: String,
    #[serde(default)]
    pub followup_task: String,
}

/// §21.5
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RiskCheck {
    pub linked_risks: Vec<String>,
    pub blocking_risks: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub blocking_reason: String,
}

/// §20.2 says `override: true`, §20.3 an object. Both are read; the object is written.
fn either<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Override>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OverrideForm {
        Object(Override),
        Flag(bool),
    }
    let written = Option::<OverrideForm>::deserialize(deserializer)?;
    Ok(written.and_then(|written| match written {
        OverrideForm::Object(written) => Some(written),
        OverrideForm::Flag(false) => None,
        OverrideForm::Flag(true) => Some(Override {
            approved: true,
            approver: String::new(),
            reason: String::new(),
            decision_ref: String::new(),
            followup_task: String::new(),
        }),
    }))
}

impl Artifact {
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    pub fn render(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Checks whether it opens the gate of §9.2: it passed and names commands that did, or a person overrode it.
    pub fn check_done(&self) -> Result<(), DoneObstacle> {
        if self.overridden.as_ref().is_some_and(|given| given.approved) {
            return Ok(());
        }
        if self.result != VerifyResult::Pass {
            return Err(DoneObstacle::NotPassed(self.result));
        }
        if self.commands.is_empty() {
            return Err(DoneObstacle::NoCommands);
        }
        let failed = |command: &&Value| command.get("exit_code").and_then(Value::as_i64) != Some(0);
        match self.commands.iter().find(failed) {
            None => Ok(()),
            Some(command) => {
                let cmd = one_line(command.get("cmd").and_then(Value::as_str).unwrap_or("a command"));
                let code = command.get("exit_code").filter(|code| !code.is_null()).map(Value::to_string);
                Err(DoneObstacle::FailedCommand { cmd: truncate(cmd, LONGEST_COMMAND), code })
            }
        }
    }

    /// Checks whether it was made between the end of the work it is about and now.
    pub fn check_time(
        &self,
        reported: Option<OffsetTimestamp>,
        now: Timestamp,
        zone: &TimeZone,
    ) -> Result<(), DoneObstacle> {
        let Some(made) = OffsetTimestamp::parse(&self.timestamp, zone) else {
            return Err(DoneObstacle::NoTime { text: truncate(one_line(&self.timestamp), LONGEST_COMMAND) });
        };
        let (made, at) = (made.timestamp(), self.timestamp.clone());
        if made.as_second() > now.as_second().saturating_add(CLOCK_SKEW) {
            return Err(DoneObstacle::InFuture { at });
        }
        match reported.filter(|reported| reported.timestamp() > made) {
            Some(reported) => Err(DoneObstacle::BeforeReport { at, reported: reported.to_string() }),
            None => Ok(()),
        }
    }
}

/// Seconds by which the clocks of two machines may differ.
const CLOCK_SKEW: i64 = 300;
/// The most of a command in a sentence, in bytes.
const LONGEST_COMMAND: usize = 200;

/// Why an artifact does not open the gate of §9.2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DoneObstacle {
    #[error("its last verification came to `{}` (§9.2)", .0.as_str())]
    NotPassed(VerifyResult),
    #[error("its verification names no commands (§11.1)")]
    NoCommands,
    #[error("its verification says `pass`, and `{cmd}` {} (§11.2)", ended(.code.as_deref()))]
    FailedCommand { cmd: String, code: Option<String> },
    #[error("the `timestamp` of its verification is `{text}`, which is no time (§11.1)")]
    NoTime { text: String },
    #[error("its verification is of {at}, which is in the future (§11.1)")]
    InFuture { at: String },
    #[error("its verification is of {at}, and its report was finished later, at {reported} (§11.2)")]
    BeforeReport { at: String, reported: String },
}

fn ended(code: Option<&str>) -> String {
    code.map_or("has no exit code".to_owned(), |code| format!("ended with exit code {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification_read() {
        let text = r#"{"protocol":"agency/1.0","task_id":"T0007","timestamp":"2026-01-31T17:00:00+01:00","result":"fail",
            "override":{"approved":true,"approver":"john.doe@company.com","reason":"Hotfix","decision_ref":"ADR-015","followup_task":"T0008"},"commands":[]}"#;
        let artifact = Artifact::parse(text).expect("read");
        assert!(artifact.check_done().is_ok());
        assert_eq!(Artifact::parse(&artifact.render().expect("written")).expect("read"), artifact);
        let flag = Artifact::parse(
            r#"{"protocol":"agency/1.0","task_id":"T1","timestamp":"x","result":"fail","override":true}"#,
        );
        assert!(flag.expect("read").check_done().is_ok());
        let failed = Artifact::parse(
            r#"{"protocol":"agency/1.0","task_id":"T1","timestamp":"x","result":"fail","override":false}"#,
        );
        assert!(failed.expect("read").check_done().is_err());
        assert!(Artifact::parse(r#"{"task_id":"T1","result":"maybe"}"#).is_err());
    }

    #[test]
    fn a_verification_opens_the_gate_only_if_its_commands_passed_after_the_report_and_before_now() {
        let read = |result: &str, commands: &str, at: &str| {
            Artifact::parse(&format!(
                r#"{{"protocol":"agency/1.0","task_id":"T1","timestamp":"{at}","result":"{result}","commands":{commands}}}"#
            ))
            .expect("read")
        };
        let fine = r#"[{"cmd":"make","exit_code":0}]"#;
        let at = "2026-01-31T16:58:00+01:00";
        assert_eq!(read("pass", fine, at).check_done(), Ok(()));
        for (result, commands, words) in [
            ("fail", fine, "came to `fail` (§9.2)"),
            ("warn", fine, "came to `warn` (§9.2)"),
            ("pass", "[]", "names no commands (§11.1)"),
            ("pass", r#"[{"cmd":"make","exit_code":2}]"#, "`make` ended with exit code 2 (§11.2)"),
            ("pass", r#"[{"cmd":"make"}]"#, "`make` has no exit code (§11.2)"),
            ("pass", r#"["make"]"#, "`a command` has no exit code (§11.2)"),
            ("pass", r#"[{"cmd":"make","exit_code":"0"}]"#, "exit code \"0\" (§11.2)"),
        ] {
            let refused = read(result, commands, at).check_done().expect_err(commands).to_string();
            assert!(refused.contains(words), "{refused}");
        }
        let moment = |text: &str| OffsetTimestamp::parse(text, &TimeZone::UTC);
        let now = moment("2026-02-01T00:00:00Z").expect("a time").timestamp();
        let judge = |at: &str, reported: &str| {
            read("pass", fine, at).check_time(moment(reported), now, &TimeZone::UTC)
        };
        assert_eq!(judge(at, "2026-01-31T15:58:00Z"), Ok(()), "in the same second");
        for (at, reported, words) in [
            (at, "2026-01-31T15:58:01Z", "was finished later"),
            ("2026-02-01T00:06:00Z", "2026-01-31T15:58:00Z", "in the future (§11.1)"),
            ("soon", "2026-01-31T15:58:00Z", "no time (§11.1)"),
        ] {
            let refused = judge(at, reported).expect_err(at).to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn what_is_not_known_is_kept() {
        let text =
            r#"{"protocol":"agency/1.3","task_id":"T1","timestamp":"x","result":"pass","novel":{"a":1}}"#;
        let artifact = Artifact::parse(text).expect("read");
        assert!(artifact.render().expect("written").contains("\"novel\""));
    }
}
