//! §11.1, §20.3 and §21.5: the artifact of a verification.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

    /// Whether it opens the gate of §9.2: it passed, or a person overrode it.
    pub fn allows_done(&self) -> bool {
        self.result == VerifyResult::Pass || self.overridden.as_ref().is_some_and(|given| given.approved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification_read() {
        let text = r#"{"protocol":"agency/1.0","task_id":"T0007","timestamp":"2026-01-31T17:00:00+01:00","result":"fail",
            "override":{"approved":true,"approver":"john.doe@company.com","reason":"Hotfix","decision_ref":"ADR-015","followup_task":"T0008"},"commands":[]}"#;
        let artifact = Artifact::parse(text).expect("read");
        assert!(artifact.allows_done());
        assert_eq!(Artifact::parse(&artifact.render().expect("written")).expect("read"), artifact);
        let flag = Artifact::parse(
            r#"{"protocol":"agency/1.0","task_id":"T1","timestamp":"x","result":"fail","override":true}"#,
        );
        assert!(flag.expect("read").allows_done());
        let failed = Artifact::parse(
            r#"{"protocol":"agency/1.0","task_id":"T1","timestamp":"x","result":"fail","override":false}"#,
        );
        assert!(!failed.expect("read").allows_done());
        assert!(Artifact::parse(r#"{"task_id":"T1","result":"maybe"}"#).is_err());
    }

    #[test]
    fn what_is_not_known_is_kept() {
        let text =
            r#"{"protocol":"agency/1.3","task_id":"T1","timestamp":"x","result":"pass","novel":{"a":1}}"#;
        let artifact = Artifact::parse(text).expect("read");
        assert!(artifact.render().expect("written").contains("\"novel\""));
    }
}
