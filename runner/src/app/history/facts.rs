//! One attempt as its records show it: how it ended, which checks ran, what its auditors found, what it used.

use std::path::Path;

use agency_protocols::claim::AgentClaim;
use agency_protocols::verdict::AuditVerdict;
use agency_supervisor::attempt::{Attempt, AttemptEnd, Phase, UsageTotals};
use agency_supervisor::dispatch::TaskResult;
use agency_supervisor::job::outcome::{AgentOutcome, JobResult};
use agency_supervisor::job::{JobFolder, JobState};
use agency_supervisor::records;
use serde::Serialize;
use serde_json::Value;

use crate::app::wording::{fate_text, phase_label};

/// One attempt.
#[derive(Debug, Serialize)]
pub(crate) struct AttemptFacts {
    pub(crate) attempt: u64,
    pub(crate) agent: String,
    /// Seconds since 1970.
    pub(crate) began: i64,
    /// When it ended; `None` while it is open.
    pub(crate) ended: Option<i64>,
    /// `done`, `failed` and so on, or what it is at.
    pub(crate) outcome: &'static str,
    /// The same in a sentence.
    pub(crate) sentence: String,
    /// The commit that landed, or was kept.
    pub(crate) commit: Option<String>,
    /// The files that its agent changed.
    pub(crate) files: Vec<String>,
    /// Why its changes were refused, path by path.
    pub(crate) violations: Vec<String>,
    pub(crate) checks: Vec<CheckFacts>,
    pub(crate) audits: Vec<AuditFacts>,
    pub(crate) used: UsageTotals,
    /// What its sandbox was asked to hold, and what it held.
    pub(crate) attestation: Value,
}

/// One command of the last verification.
#[derive(Debug, Serialize)]
pub(crate) struct CheckFacts {
    pub(crate) command: String,
    pub(crate) exit_code: Option<i64>,
    pub(crate) duration_ms: u64,
    pub(crate) log: Option<String>,
}

/// One audit.
#[derive(Debug, Serialize)]
pub(crate) struct AuditFacts {
    pub(crate) auditor: String,
    /// `None` where it came to no verdict.
    pub(crate) verdict: Option<AuditVerdict>,
}

impl AttemptFacts {
    pub(crate) fn of(state: &Path, attempt: &Attempt) -> Self {
        let records = records::folder_of(state, attempt);
        let agent = outcome_of(&records, "agent").and_then(agent_outcome);
        let ending = match &attempt.phase {
            Phase::Over(ending) => Some(ending),
            _ => None,
        };
        let commit = match &attempt.phase {
            Phase::Over(AttemptEnd::Done { commit }) | Phase::Landed { commit } => Some(commit.clone()),
            Phase::Over(AttemptEnd::Kept { candidate }) => Some(candidate.clone()),
            _ => None,
        };
        Self {
            attempt: attempt.epoch.0,
            agent: attempt.agent.clone(),
            began: attempt.claimed_at,
            ended: ending.is_some().then_some(attempt.recorded_at),
            outcome: ending.map_or_else(|| phase_label(&attempt.phase), AttemptEnd::name),
            sentence: match ending {
                Some(ending) => fate_text(&TaskResult::Ended(ending.clone())),
                None => phase_label(&attempt.phase).to_owned(),
            },
            commit,
            files: agent.as_ref().map(|agent| agent.changed.clone()).unwrap_or_default(),
            violations: agent.as_ref().map(|agent| agent.violations.clone()).unwrap_or_default(),
            checks: last_checks(&records),
            audits: audits(&records),
            used: attempt.spent,
            attestation: agent.map(|agent| agent.attestation).unwrap_or_default(),
        }
    }

    /// How many of its checks passed.
    pub(crate) fn passed_checks(&self) -> usize {
        self.checks.iter().filter(|check| check.exit_code == Some(0)).count()
    }
}

fn outcome_of(records: &Path, job: &str) -> Option<JobResult> {
    match JobFolder::new(records.join(job)).state().ok()? {
        JobState::Over(outcome) => Some(outcome.done),
        _ => None,
    }
}

fn agent_outcome(done: JobResult) -> Option<AgentOutcome> {
    match done {
        JobResult::Agent(outcome) => Some(*outcome),
        _ => None,
    }
}

/// The jobs of a kind, by their numbers: `verify-1`, `verify-2`.
fn numbered(records: &Path, kind: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(records).into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| -> Option<u32> {
        entry.file_name().to_str()?.strip_prefix(kind)?.strip_prefix('-')?.parse().ok()
    };
    let mut numbers: Vec<u32> = entries.filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn last_checks(records: &Path) -> Vec<CheckFacts> {
    let proofs = numbered(records, "verify").into_iter().rev();
    let mut proofs = proofs.filter_map(|number| match outcome_of(records, &format!("verify-{number}"))? {
        JobResult::Proof(proof) => Some(proof.evidence.commands),
        _ => None,
    });
    let check = |command: &Value| CheckFacts {
        command: command["cmd"].as_str().unwrap_or_default().to_owned(),
        exit_code: command["exit_code"].as_i64(),
        duration_ms: command["duration_ms"].as_u64().unwrap_or_default(),
        log: command["log"].as_str().map(str::to_owned),
    };
    proofs.next().unwrap_or_default().iter().map(check).collect()
}

fn audits(records: &Path) -> Vec<AuditFacts> {
    let audit = |number: u32| {
        let job = format!("audit-{number}");
        let order = JobFolder::new(records.join(&job)).read_order().ok()?;
        let agency_supervisor::job::order::JobKind::Audit(order) = order.what else { return None };
        let verdict = outcome_of(records, &job).and_then(agent_outcome).and_then(|done| match done.claim? {
            AgentClaim::Verdict(verdict) => Some(verdict),
            AgentClaim::Report(_) | AgentClaim::NoVerdict { .. } => None,
        });
        Some(AuditFacts { auditor: order.agent.clone(), verdict })
    };
    numbered(records, "audit").into_iter().filter_map(audit).collect()
}
