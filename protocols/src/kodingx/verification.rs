//! §11.2, §20 and §21: records the result of a verification.
//!
//! This writes the artifact, keeps an earlier one of the same day beside it, and names it in STATE.md. Risks that the
//! task is linked to can change the result. An override, which is a person's decision, is recorded in all the places
//! that the specification names, in the same commit: the artifact, DECISIONS.md, a follow-up task, RISKS.md.

use jiff::Zoned;

use super::actions::{NewTask, ViewUpdate};
use super::artifact::{Artifact, Override, RiskCheck, VerifyResult};
use super::decisions::{self, OverrideRecord};
use super::layout;
use super::risks::{self, Risk, RiskRegister, RiskStatus};
use super::status::TaskStatus;
use super::task::{Priority, Task};
use super::views::LastVerify;
use super::{BoardFile, KodingX};
use crate::board::{BoardError, ProofEvidence};
use crate::board_verbs::OverrideRequest;
use crate::names::TaskId;
use crate::store::Effects;
use crate::store::tree::RepoTree;
use crate::text::one_line;
use crate::timestamp::OffsetTimestamp;

/// The result of recording a verification.
#[derive(Debug, Clone)]
pub struct VerificationRecord {
    pub task: Task,
    pub result: VerifyResult,
    pub risk_check: Option<RiskCheck>,
    pub overridden: Option<Override>,
    pub artifact_path: String,
}

impl KodingX {
    /// Records a verification of a task.
    pub fn record_verification(
        &self,
        tree: &RepoTree,
        id: &TaskId,
        evidence: &ProofEvidence,
        request: Option<&OverrideRequest>,
        now: &Zoned,
    ) -> Result<(VerificationRecord, Effects), BoardError> {
        let now = self.local(now);
        let found = self.find(tree, id)?;
        let (risks, risk_check) = self.linked_risks(tree, &found.value)?;
        let result = match (evidence.passed, risks) {
            (false, _) => VerifyResult::Fail,
            (true, risks) => risks,
        };
        let mut effects = Effects::none();
        let mut acts = Vec::new();
        let overridden = match request {
            Some(request) if result != VerifyResult::Pass => {
                let (given, more, made) = self.record_override(tree, &found, result, request, &now)?;
                effects = more;
                acts.extend(made);
                Some(given)
            }
            // It passed: there is nothing to override, and no override is recorded.
            Some(_) | None => None,
        };
        let moment = OffsetTimestamp::from_zoned(&now);
        let artifact = Artifact {
            protocol: self.manifest.version.to_string(),
            task_id: id.to_string(),
            timestamp: moment.to_string(),
            dod_profile: evidence.profile.clone(),
            result,
            overridden: overridden.clone(),
            risk_check: risk_check.clone(),
            commands: evidence.commands.clone(),
            notes: evidence.notes.clone(),
            evidence: evidence.bound_to.clone(),
        };
        let (path, kept) = self.place_artifact(tree, &found, &artifact, moment)?;
        let last = LastVerify {
            task_id: id.to_string(),
            timestamp: moment,
            result: result.as_str(),
            artifact_path: path.clone(),
        };
        let effects = effects.and(kept).and(self.update_views(tree, &acts, &now, Some(&last))?);
        let verified =
            VerificationRecord { task: found.value, result, risk_check, overridden, artifact_path: path };
        Ok((verified, effects))
    }

    /// §21.4, for a task: `None` where it is linked to no risk.
    pub fn linked_risks(
        &self,
        tree: &RepoTree,
        task: &Task,
    ) -> Result<(VerifyResult, Option<RiskCheck>), BoardError> {
        if task.risks.is_empty() {
            return Ok((VerifyResult::Pass, None));
        }
        let register = RiskRegister::parse(&tree.read_text(layout::RISKS)?.unwrap_or_default());
        let (verdict, check) = register.check(&task.risks);
        Ok((verdict, Some(check)))
    }

    /// §21.4: while a linked risk of priority P0 is OPEN, a task can't be DONE; no override changes that.
    pub fn no_open_p0(&self, tree: &RepoTree, task: &Task) -> Result<(), BoardError> {
        match self.linked_risks(tree, task)? {
            (VerifyResult::Fail, Some(check)) => Err(BoardError::refused(format!(
                "{} can't be DONE, with or without an override: {} (§21.4)",
                task.id, check.blocking_reason
            ))
            .with_hint("mitigate or close the risk first")),
            _ => Ok(()),
        }
    }

    /// Writes the artifact. An existing one of the same day is kept beside it.
    fn place_artifact(
        &self,
        tree: &RepoTree,
        found: &BoardFile<Task>,
        artifact: &Artifact,
        moment: OffsetTimestamp,
    ) -> Result<(String, Effects), BoardError> {
        let (date, stem) = (moment.date(), &found.place.stem);
        let path = layout::artifact_path(&date, stem);
        let text = artifact.render().map_err(|error| {
            BoardError::refused(format!("the artifact can't be written as JSON: {error}"))
        })?;
        let mut effects = Effects::none();
        match tree.read_text(&path)? {
            None => effects.create(&path, text),
            Some(earlier) => {
                let beside = (1..)
                    .map(|number| layout::earlier_artifact_path(&date, stem, number))
                    .find(|path| !tree.exists(path))
                    .unwrap_or_default();
                effects.create(beside, &earlier);
                effects.replace(&path, &earlier, text);
            }
        }
        Ok((path, effects))
    }

    /// Writes all records of an override but the artifact.
    fn record_override(
        &self,
        tree: &RepoTree,
        found: &BoardFile<Task>,
        result: VerifyResult,
        request: &OverrideRequest,
        now: &Zoned,
    ) -> Result<(Override, Effects, Vec<ViewUpdate>), BoardError> {
        let id = found.value.id.to_string();
        self.no_open_p0(tree, &found.value)?;
        for (what, text) in [("reason", &request.reason), ("approver", &request.approver)] {
            if text.trim().is_empty() {
                return Err(BoardError::refused(format!("an override needs its {what} (§20.2)")));
            }
        }
        let mut effects = Effects::none();
        let old_risks = tree.read_text(layout::RISKS)?;
        let risks = old_risks.as_deref().unwrap_or("# Risks\n");
        let risk = RiskRegister::parse(risks).next_id();
        let (followup, made, was) = self.followup(tree, found, request, &risk, now)?;
        let followup_id = followup.id.to_string();
        let entry = Risk {
            id: risk.clone(),
            title: format!("{id} was done without its Definition of Done"),
            priority: Priority::P2,
            status: RiskStatus::Open,
            linked_tasks: vec![followup_id.clone()],
            line: 0,
        };
        let note = format!("{} Approved by {}.", one_line(&request.reason), request.approver.trim());
        effects.put(layout::RISKS, old_risks.as_deref(), risks::append(risks, &entry, &note));
        let old_decisions = tree.read_text(layout::DECISIONS)?;
        let decisions = old_decisions.as_deref().unwrap_or("# Decisions\n");
        let decision = decisions::next_id(decisions);
        let record = OverrideRecord {
            task: &id,
            date: &OffsetTimestamp::from_zoned(now).date(),
            reason: &request.reason,
            result: result.as_str(),
            followup: &followup_id,
            risk: &risk,
            approver: request.approver.trim(),
        };
        effects.put(
            layout::DECISIONS,
            old_decisions.as_deref(),
            decisions::append(decisions, &decision, &record),
        );
        let given = Override {
            approved: true,
            approver: request.approver.trim().to_owned(),
            reason: request.reason.trim().to_owned(),
            decision_ref: decision,
            followup_task: followup_id,
        };
        // RISKS.md is written above, follow-up included; the views need not link it again.
        let mut shown = followup;
        shown.risks.clear();
        let act = was.map_or_else(|| ViewUpdate::made(&shown), |was| ViewUpdate::changed(&shown, was));
        Ok((given, effects.and(made), vec![act]))
    }

    /// The follow-up task: one that exists, linked to the new risk, with its state; or one that is made.
    fn followup(
        &self,
        tree: &RepoTree,
        found: &BoardFile<Task>,
        request: &OverrideRequest,
        risk: &str,
        now: &Zoned,
    ) -> Result<(Task, Effects, Option<TaskStatus>), BoardError> {
        let wanted = request.followup.trim();
        if wanted.is_empty() {
            return Err(BoardError::refused("an override needs a follow-up task (§20.2)"));
        }
        let mut effects = Effects::none();
        if super::ids::is_id(wanted) {
            let id = TaskId::parse(wanted).map_err(|error| BoardError::refused(error.to_string()))?;
            if id == found.value.id {
                return Err(BoardError::refused(format!("{id} can't be its own follow-up")));
            }
            let followup = self.find(tree, &id).map_err(|error| match error {
                BoardError::NoSuchTask { id } => {
                    BoardError::refused(format!("there is no task {id} to follow up with"))
                        .with_hint("name a task that exists, or give a title and it will be made")
                }
                error => error,
            })?;
            let mut task = followup.value.clone();
            task.risks.push(risk.to_owned());
            let written = crate::text::yaml::flow_list(&task.risks);
            let text = crate::text::frontmatter::Frontmatter::parse(&followup.text)
                .and_then(|matter| matter.set("risks", &written))
                .map_err(|error| super::actions::unreadable(&followup.place.path, error))?;
            effects.replace(&followup.place.path, &followup.text, text);
            let was = task.status;
            return Ok((task, effects, Some(was)));
        }
        let new = NewTask {
            assignee: Some(found.value.assignee.clone()),
            priority: Priority::P1,
            status: TaskStatus::New,
            scope: found.value.scope.clone().unwrap_or_default(),
            dod_profile: Some(found.value.dod_profile.clone()),
            labels: vec!["followup".to_owned()],
            acceptance: vec![format!(
                "The Definition of Done that {} was done without holds",
                found.value.id
            )],
            body: Some(format!("\n## Problem\n\n{}\n", one_line(&request.reason))),
            ..NewTask::titled(wanted)
        };
        let id = self.next_id(tree, now)?;
        let mut made = self.draft(tree, &new, id, now)?;
        made.value.risks.push(risk.to_owned());
        let text = made.value.render(new.body.as_deref().unwrap_or_default());
        effects.create(&made.place.path, text);
        Ok((made.value, effects, None))
    }
}
