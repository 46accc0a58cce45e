//! Where an attempt begins: on the branch as it is, with the work of the attempt before it, where there is some
//! and it still fits.
//!
//! An attempt that is to mend something goes on from what was found wanting, merged with what has landed since. Work
//! that does not merge any more, or that the scope does not allow any more, is only shown.

use super::{AttemptDriver, DriveError, unexpected};
use crate::attempt::{AgentWork, Attempt, AttemptEnd, AttemptFailure, Phase};
use crate::job::order::{Attachment, ScopeOrder};
use crate::store::{AttemptStore, AttemptStoreError};
use agency_landing::commit::{self, CommitMetadata, Signature};
use agency_landing::merge::{self, MergeOutcome};
use agency_landing::names::Oid;
use agency_landing::{self, candidate, scope, tree_diff};

/// Under which name an agent finds work of before that does not fit any more, beside its prompt.
pub(super) const BEFORE: &str = "AGENCY_BEFORE.patch";

/// Where to begin.
#[derive(Debug, Default)]
pub(super) struct StartingPoint {
    /// The commit, if it is not the branch's own.
    pub(super) start: Option<String>,
    pub(super) papers: Vec<Attachment>,
    /// Why the attempts before did not do, the last one last.
    pub(super) before: Vec<String>,
}

impl<S: AttemptStore> AttemptDriver<'_, S> {
    pub(super) async fn starting_point(
        &self,
        base: &str,
        globs: &ScopeOrder,
        subject: &str,
    ) -> Result<StartingPoint, DriveError> {
        let attempts = self.context.store.attempts(&self.attempt.task).await?;
        let failures: Vec<_> = attempts
            .iter()
            .filter(|one| one.epoch < self.attempt.epoch)
            .filter_map(|one| match &one.phase {
                Phase::Over(AttemptEnd::Failed { failure, .. }) => Some((one, failure)),
                _ => None,
            })
            .collect();
        let before: Vec<String> = failures.iter().map(|(_, failure)| failure.reason.clone()).collect();
        let with_work = |(attempt, failure): &(&'_ Attempt, &'_ AttemptFailure)| {
            let work = failure.work.clone().filter(|work| !work.is_already_landed())?;
            Some(((*attempt).clone(), work))
        };
        let Some((last, work)) = failures.iter().rev().find_map(with_work) else {
            return Ok(StartingPoint { before, ..StartingPoint::default() });
        };
        if let Some(start) = self.with_earlier_work(base, &work, globs, subject).await? {
            return Ok(StartingPoint { start: Some(start), before, papers: Vec::new() });
        }
        let patch = self.context.records(&last).join("agent").join("work.patch");
        let papers = match patch.exists() {
            true => vec![Attachment { name: BEFORE.to_owned(), source: patch }],
            false => Vec::new(),
        };
        Ok(StartingPoint { start: None, before, papers })
    }

    /// The branch with earlier work on it; `None` if they don't go together.
    async fn with_earlier_work(
        &self,
        base: &str,
        work: &AgentWork,
        globs: &ScopeOrder,
        subject: &str,
    ) -> Result<Option<String>, DriveError> {
        let (tip, from, earlier) = (Oid::parse(base)?, Oid::parse(&work.base)?, Oid::parse(&work.candidate)?);
        let (task, epoch, agent) = (self.task.clone(), self.attempt.epoch.0, self.attempt.agent.clone());
        let lease = self.held.clone().ok_or_else(|| unexpected("an order before its lease"))?;
        let (globs, subject) = (super::land::scope_of(globs)?, subject.to_owned());
        let at = self.attempt.claimed_at;
        let made = self.blocking(move |repository| {
            let start = match merge::merge_candidate(repository, &from, &earlier, &tip)? {
                MergeOutcome::Conflict { .. } | MergeOutcome::Contained => return Ok(Some(None)),
                MergeOutcome::Clean { .. } if tip == from => earlier,
                MergeOutcome::Clean { tree } => {
                    let author = Signature::of_agent(&agent, at);
                    let statement = CommitMetadata {
                        author: &author,
                        committer: &author,
                        subject: &subject,
                        body: "",
                        task: &task,
                        epoch,
                        verify: None,
                    };
                    commit::write(repository, &tree, &tip, &statement)?
                }
            };
            if !scope::refused_paths(&globs, &tree_diff::examine(repository, &tip, &start)?).is_empty() {
                return Ok(Some(None));
            }
            // It needs a name, or git may clear it away while the agent is at work on it.
            Ok(candidate::keep(repository, &lease, &start)?.then_some(Some(start.to_string())))
        });
        match made.await {
            Ok(Some(start)) => Ok(start),
            Ok(None) => Err(AttemptStoreError::Fenced(self.lease.clone()).into()),
            // What git has cleared away can't be gone on with.
            Err(DriveError::Landing(agency_landing::Error::Missing { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
