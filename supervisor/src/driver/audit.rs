//! What another agent makes of the work, before it goes on.
//!
//! An auditor sees the work as it is committed, and can write nothing but its verdict. A verdict that can't be
//! read is none; if an auditor gives none twice, a person decides, as for a verdict NEEDS_REVIEW.

use agency_protocols::claim::{AgentClaim, ClaimKind};
use agency_protocols::names::AgentName;
use agency_protocols::verdict::{AuditFinding, AuditRuling, AuditVerdict};

use super::collect::is_out_of_the_runs_time;
use super::{AttemptDriver, AttemptStep, DriveError, OutcomeSoFar, park_policy, unexpected};
use crate::agent_slots::SlotPurpose;
use crate::attempt::{
    AgentWork, AttemptFailure, Audit, FailureKind, Merge, ParkDetails, Phase, RunningAudit, WorkResult,
};
use crate::clock::{BootClock, Clock};
use crate::job::order::{AgentOrder, Attachment, JobKind, JobOrder, ScopeOrder};
use crate::job::outcome::{JobOutcome, JobResult, ProgramEnd};
use crate::job::{JobError, JobState};
use crate::prompt::AuditPrompt;
use crate::store::AttemptStore;
use agency_landing::names::Oid;
use agency_landing::{candidate, tree_diff};

/// How many audits may come to nothing, one after the other.
const UNHEARD: u32 = 2;
/// So much of what an auditor found is told to the builder: so many findings, each so long.
const TOLD: usize = 20;
const LONGEST: usize = 500;

/// Under which name an auditor finds the work, beside its prompt.
pub(super) const WORK: &str = "AGENCY_WORK.patch";

impl<S: AttemptStore> AttemptDriver<'_, S> {
    /// Another audit: the first one, or one after an audit that came to nothing.
    pub(super) async fn audit(&mut self) -> Result<(), DriveError> {
        match self.attempt.phase.clone() {
            Phase::Ended(WorkResult::Work(work))
            | Phase::Merged(Merge { work, .. })
            | Phase::Proved { merge: Merge { work, .. }, .. } => {
                let Some(auditor) = self.context.settings.auditor.clone() else {
                    return Err(unexpected("nobody judges here"));
                };
                self.context.train.leave(&self.attempt.task, false);
                let audit = Audit { auditor, number: 1, answer: None };
                self.advance(Phase::Auditing(RunningAudit { work, audit, unheard: 0, why: None, put_off: 0 }))
                    .await
            }
            Phase::Auditing(auditing) => match self.audit_place(&auditing.audit).state()? {
                // We stopped it ourselves.
                JobState::Over(_) => self.again(auditing).await,
                _ => self.unheard(auditing, "its audit was killed".to_owned()).await,
            },
            _ => Err(unexpected("there is nothing to audit")),
        }
    }

    /// Starts the auditor, if there is one and it can be paid.
    pub(super) async fn start_auditor(&mut self) -> Result<Option<OutcomeSoFar>, DriveError> {
        let Phase::Auditing(auditing) = self.attempt.phase.clone() else {
            return Err(unexpected("there is nothing to audit"));
        };
        let place = self.audit_place(&auditing.audit);
        let unordered = matches!(place.state()?, JobState::Unordered);
        let used_up = "the budget of this run is used up; the next one has it judged";
        if unordered {
            if self.is_the_runs_time_up() {
                return Ok(Some(OutcomeSoFar::Waits(used_up.to_owned())));
            }
            if let Some(why) = self.why_nobody_judges(&auditing.audit.auditor).await? {
                let RunningAudit { work, audit, .. } = auditing;
                let why = format!("not audited: {why}");
                self.advance(Phase::Undecided { work, audit, why }).await?;
                return Ok(None);
            }
        }
        if !self.wait_for_place(&auditing.audit.auditor, SlotPurpose::Judge).await? {
            return Ok(None);
        }
        if unordered {
            // That may have taken a while.
            if self.is_the_runs_time_up() {
                return Ok(Some(OutcomeSoFar::Waits(used_up.to_owned())));
            }
            place.order(&self.audit_order(&auditing).await?)?;
        }
        let until = self.lease_end();
        self.step(AttemptStep::Ask, async {
            match self.send(&place).await? {
                Some(waiting) => self.release_shim(waiting, until).await,
                None => Ok(()),
            }
        })
        .await?;
        Ok(None)
    }

    fn is_the_runs_time_up(&self) -> bool {
        let gone = BootClock.now().since(self.context.began);
        self.context.settings.budget.run.time_left(gone).is_some_and(|left| left.is_zero())
    }

    /// What keeps an auditor from being asked.
    async fn why_nobody_judges(&self, auditor: &str) -> Result<Option<String>, DriveError> {
        if *auditor == self.attempt.agent {
            return Ok(Some(format!("{auditor} built it, and no agent audits its own work")));
        }
        if self.context.settings.agents.get(auditor).is_none_or(|agent| agent.outside) {
            return Ok(Some(format!("no agent `{auditor}` is configured any more")));
        }
        let used = self.context.settings.budget.task.used_up(&self.used().await?, 0);
        Ok(used.map(|used| format!("its budget is used up, {used}")))
    }

    /// What the work changes, as a file for the auditor, and every path.
    async fn shown(
        &self,
        work: &AgentWork,
        audit: &Audit,
    ) -> Result<(Vec<Attachment>, Vec<String>), DriveError> {
        if work.is_already_landed() {
            return Ok((Vec::new(), Vec::new()));
        }
        let folder = self.audit_place(audit).path().to_owned();
        let source = folder.join("work.patch");
        let (base, made, file) = (Oid::parse(&work.base)?, Oid::parse(&work.candidate)?, source.clone());
        let (paths, written) = self
            .blocking(move |repository| {
                let changed = tree_diff::between(repository, &base, &made)?;
                let patch = candidate::patch(repository, &base, &made)?;
                let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, patch));
                Ok((changed.iter().map(|one| one.path.to_string()).collect(), written))
            })
            .await?;
        written.map_err(|source| JobError::Start { source })?;
        Ok((vec![Attachment { name: WORK.to_owned(), source }], paths))
    }

    async fn audit_order(&self, auditing: &RunningAudit) -> Result<JobOrder, DriveError> {
        let settings = &self.context.settings;
        let RunningAudit { work, audit, why, .. } = auditing;
        let Some(agent) = settings.agents.get(&audit.auditor) else {
            return Err(unexpected(&format!("no agent `{}` is configured to audit", audit.auditor)));
        };
        let (task, _) = self.names()?;
        let auditor = AgentName::parse(&audit.auditor).map_err(|error| unexpected(&error.to_string()))?;
        let brief = self
            .context
            .board_thread
            .read(move |board, tree| board.audit_brief(tree, &task, &auditor))
            .await?;
        let built = self.agent_order()?;
        let (papers, changed) = self.shown(work, audit).await?;
        let prompt = AuditPrompt {
            id: &self.attempt.task.id,
            file: &built.task_file,
            builder: &self.attempt.agent,
            brief: &brief,
            scope: &built.scope,
            patch: papers.first().map(|attachment| attachment.name.as_str()),
            base: &work.base,
            changed: &changed,
            unheard: why.as_deref(),
        };
        let (limits, short_of_time) = self.within_budget(&agent.limits).await?;
        let level = agent.level.unwrap_or(settings.level);
        Ok(self.ordered(
            level,
            settings.container_of(agent),
            JobKind::Audit(Box::new(AgentOrder {
                base: work.candidate.clone(),
                start: None,
                agent: audit.auditor.clone(),
                program: agent.program.clone(),
                prompt: prompt.text(),
                profile: built.profile,
                task_file: built.task_file,
                scope: ScopeOrder::default(),
                live: self.context.board_thread.folder.map(str::to_owned).into_iter().collect(),
                limits,
                short_of_time,
                papers,
                setup: settings.setup_order([work.base.as_str()]),
                subject: built.subject,
                may_change_nothing: true,
                branch: None,
            })),
        ))
    }

    /// Takes in what the auditor said, if it could say anything.
    pub(super) async fn take_verdict(&mut self) -> Result<Option<OutcomeSoFar>, DriveError> {
        let Phase::Auditing(auditing) = self.attempt.phase.clone() else {
            return Err(unexpected("nobody was asked"));
        };
        let JobState::Over(outcome) = self.audit_place(&auditing.audit).state()? else {
            return Err(unexpected("the verdict is gone"));
        };
        let order = self.audit_place(&auditing.audit).read_order()?;
        if let JobKind::Audit(order) = &order.what
            && is_out_of_the_runs_time(&outcome, order)
        {
            self.again(auditing).await?;
            return Ok(None);
        }
        if let Some(parked) = parked(&outcome) {
            return self.put_off(auditing, parked).await;
        }
        let verdict = match self.verdict_of(&outcome, &auditing.audit).await? {
            Ok(verdict) => verdict,
            Err(why) => {
                self.unheard(auditing, why).await?;
                return Ok(None);
            }
        };
        let RunningAudit { work, audit, .. } = auditing;
        let said = remarks(&verdict);
        let phase = match verdict.ruling {
            AuditRuling::Pass => Phase::Audited { work, audit },
            AuditRuling::Fail => failed(&work, format!("{} found: {said}", audit.auditor)),
            AuditRuling::NeedsReview => {
                let why = format!("{} leaves it to you: {said}", audit.auditor);
                Phase::Undecided { work, audit, why }
            }
        };
        self.step(AttemptStep::Heed, self.record(&phase)).await?;
        self.reach(phase);
        Ok(None)
    }

    /// What the auditor says, or why that does not count.
    async fn verdict_of(
        &self,
        outcome: &JobOutcome,
        audit: &Audit,
    ) -> Result<Result<AuditVerdict, String>, DriveError> {
        if let Err(why) = ended_well(outcome) {
            return Ok(Err(why));
        }
        Ok(match self.claim(&outcome.done, ClaimKind::Verdict, &audit.auditor).await? {
            Some(AgentClaim::Verdict(verdict)) => Ok(verdict),
            Some(AgentClaim::NoVerdict { why }) => Err(why),
            Some(AgentClaim::Report(_)) => {
                return Err(unexpected("the auditor's claim is that of a builder"));
            }
            None => Err("it wrote none".to_owned()),
        })
    }

    /// An auditor could not work. It is asked again when it can, if that is known; a few times, and then a person is.
    async fn put_off(
        &mut self,
        auditing: RunningAudit,
        parked: ParkDetails,
    ) -> Result<Option<OutcomeSoFar>, DriveError> {
        let put_off = auditing.put_off + 1;
        if parked.until.is_some() && put_off < park_policy::MOST {
            self.again(RunningAudit { put_off, ..auditing }).await?;
            return Ok(Some(OutcomeSoFar::Parked(parked)));
        }
        let RunningAudit { work, audit, .. } = auditing;
        let why = format!("not audited: {} can't work: {}", audit.auditor, parked.reason);
        self.advance(Phase::Undecided { work, audit, why }).await?;
        Ok(None)
    }

    /// An audit was cut short by us, and is to be made again.
    async fn again(&mut self, mut auditing: RunningAudit) -> Result<(), DriveError> {
        auditing.audit.number += 1;
        self.advance(Phase::Auditing(auditing)).await
    }

    /// An audit came to nothing.
    async fn unheard(&mut self, auditing: RunningAudit, why: String) -> Result<(), DriveError> {
        let RunningAudit { work, mut audit, unheard, .. } = auditing;
        let unheard = unheard + 1;
        if unheard >= UNHEARD {
            let why = format!("{} gave no verdict, {unheard} times: {why}", audit.auditor);
            return self.advance(Phase::Undecided { work, audit, why }).await;
        }
        audit.number += 1;
        self.advance(Phase::Auditing(RunningAudit { work, audit, unheard, why: Some(why), put_off: 0 })).await
    }

    /// Goes on as a person said.
    pub(super) async fn decide(&mut self) -> Result<(), DriveError> {
        let (Phase::Undecided { work, audit, .. }, Some(answer)) =
            (self.attempt.phase.clone(), self.attempt.answer.clone())
        else {
            return Err(unexpected("nobody has decided anything"));
        };
        let phase = match answer.pass {
            true => Phase::Audited { work, audit: Audit { answer: Some(answer), ..audit } },
            false => failed(&work, format!("{} says: {}", answer.person, answer.reason)),
        };
        self.advance(phase).await
    }

    /// What is noted about who judged the work.
    pub(super) async fn audit_note(&self, audit: &Audit) -> Result<String, DriveError> {
        if let Some(answer) = &audit.answer {
            return Ok(format!(
                "{} left it to a person; {} let it pass: {}",
                audit.auditor, answer.person, answer.reason
            ));
        }
        let note = format!("audited by {}: {}", audit.auditor, AuditRuling::Pass);
        let JobState::Over(outcome) = self.audit_place(audit).state()? else { return Ok(note) };
        Ok(match self.verdict_of(&outcome, audit).await? {
            Ok(verdict) if !verdict.findings.is_empty() => format!("{note}; {}", remarks(&verdict)),
            _ => note,
        })
    }
}

fn failed(work: &AgentWork, reason: String) -> Phase {
    Phase::Ended(WorkResult::Failed {
        failure: AttemptFailure::new(FailureKind::Audit, reason).with_work(work),
    })
}

/// Why an auditor that wrote nothing could not work, if it says so.
fn parked(outcome: &JobOutcome) -> Option<ParkDetails> {
    let JobResult::Agent(done) = &outcome.done else { return None };
    let wrote = ended_well(outcome).is_ok() && (done.claim.is_some() || done.report.is_some());
    let excuse = done.heard.as_ref().filter(|_| !wrote && done.violations.is_empty());
    park_policy::parked(excuse?, outcome.ended_at)
}

/// Why what the auditor wrote does not count, however it reads.
fn ended_well(outcome: &JobOutcome) -> Result<(), String> {
    match &outcome.done {
        JobResult::Agent(done) => match done.end {
            _ if !done.violations.is_empty() => {
                Err(format!("it tried to change what it judges: {}", done.violations[0]))
            }
            ProgramEnd::Exited { code: 0 } => Ok(()),
            ProgramEnd::Exited { code } => Err(format!("it ended with exit code {code}")),
            ProgramEnd::Signaled { signal } => Err(format!("it was ended by signal {signal}")),
            ProgramEnd::Wall => Err("it ran for too long".to_owned()),
            ProgramEnd::Stall => Err("no output or file change".to_owned()),
            ProgramEnd::Memory => Err("it used more memory than it may".to_owned()),
            ProgramEnd::Asked => Err("it was stopped".to_owned()),
            ProgramEnd::NotStarted { error } => {
                Err(format!("its program could not be started: {}", std::io::Error::from_raw_os_error(error)))
            }
        },
        JobResult::NotRun { reason, .. } => Err(format!("it could not be started: {reason}")),
        JobResult::Unread { reason } => Err(format!("what it said could not be kept: {reason}")),
        JobResult::NoRoom { .. }
        | JobResult::Away { .. }
        | JobResult::Lost { .. }
        | JobResult::Stopped
        | JobResult::Proof(_) => Err("it was not run".to_owned()),
    }
}

fn remarks(verdict: &AuditVerdict) -> String {
    let told = |finding: &AuditFinding| finding.to_string().chars().take(LONGEST).collect::<String>();
    let mut said: Vec<String> = verdict.findings.iter().take(TOLD).map(told).collect();
    if verdict.findings.len() > TOLD {
        said.push(format!("and {} more", verdict.findings.len() - TOLD));
    }
    said.join("; ")
}
