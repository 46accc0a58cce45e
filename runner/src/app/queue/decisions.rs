//! What an auditor left to a person, and what the person says to it.

use agency_protocols::names::TaskId;
use agency_supervisor::attempt::{Attempt, Epoch, HumanDecision, Phase};
use agency_supervisor::store::AttemptStore;

use super::key;
use crate::app::approval::require_approver;
use crate::app::attempt_store::with_store;
use crate::app::board::{Caller, RepoContext};
use crate::app::error::{CommandError, ErrorKind};

/// An attempt that goes no further before a person has decided.
#[derive(Debug)]
pub(crate) struct OpenDecision {
    pub(crate) attempt: Attempt,
    /// Why the auditor did not decide.
    pub(crate) why: String,
}

/// What a person decides about an attempt.
#[derive(Debug)]
pub(crate) struct DecisionRequest {
    pub(crate) task: TaskId,
    pub(crate) attempt: u64,
    /// Whether the work goes on to its checks, or back to its builder.
    pub(crate) pass: bool,
    pub(crate) reason: String,
    /// Who decides, where it is not the caller or whom git knows.
    pub(crate) approver: Option<String>,
}

/// What waits for a decision.
pub(crate) fn open_decisions(here: &RepoContext) -> Result<Vec<OpenDecision>, CommandError> {
    let open = with_store(here, async |store| store.open().await)?;
    let undecided = |attempt: Attempt| match &attempt.phase {
        Phase::Undecided { why, .. } if attempt.answer.is_none() => {
            let why = why.clone();
            Some(OpenDecision { attempt, why })
        }
        _ => None,
    };
    Ok(open.into_iter().filter_map(undecided).collect())
}

/// Records what a person decides. A run goes on from there.
pub(crate) fn decide(
    here: &RepoContext,
    who: &Caller,
    request: &DecisionRequest,
) -> Result<HumanDecision, CommandError> {
    let DecisionRequest { task, attempt, pass, reason, approver } = request;
    if reason.trim().is_empty() {
        return Err(CommandError::usage("a decision needs its reason"));
    }
    let person = require_approver(here, who, approver.as_deref(), &format!("deciding about {task}"))?;
    let decision = HumanDecision { pass: *pass, person, reason: reason.trim().to_owned() };
    let key = key(here, who, task)?;
    if !with_store(here, async |store| store.answer(&key, Epoch(*attempt), &decision).await)? {
        let what = format!("attempt {attempt} at {task} is not left to you");
        return Err(
            CommandError::new_message(ErrorKind::NoSuch, what).with_hint("`agency decide` lists what is")
        );
    }
    Ok(decision)
}
