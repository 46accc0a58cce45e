//! Where an attempt begins: on the branch as it is, with the work of the attempt before it, where there is some
//! and it still fits.
//!
//! Whoever is to mend something goes on from what was found wanting, merged with what has landed since. Work that
//! does not merge any more, or that the scope does not allow any more, is only shown.

use super::{Life, LifeError, odd};
use crate::attempt::{Attempt, Ending, Failure, Phase, Work};
use crate::errand::order::{Paper, ScopeOrder};
use crate::landing::commit::{self, Signature, Statement};
use crate::landing::merge::{self, Merged};
use crate::landing::names::Oid;
use crate::landing::{self, candidate, difference, scope};
use crate::store::{Store, StoreError};

/// Under which name an agent finds work of before that does not fit any more, beside its prompt.
pub(super) const BEFORE: &str = "AGENCY_BEFORE.patch";

/// Where to begin.
#[derive(Debug, Default)]
pub(super) struct Footing {
    /// The commit, if it is not the branch's own.
    pub(super) start: Option<String>,
    pub(super) papers: Vec<Paper>,
    /// Why the attempts before did not do, the last one last.
    pub(super) before: Vec<String>,
}

impl<S: Store> Life<'_, S> {
    pub(super) async fn footing(
        &self,
        base: &str,
        globs: &ScopeOrder,
        subject: &str,
    ) -> Result<Footing, LifeError> {
        let attempts = self.shop.store.attempts(&self.attempt.task).await?;
        let failures: Vec<_> = attempts
            .iter()
            .filter(|one| one.epoch < self.attempt.epoch)
            .filter_map(|one| match &one.phase {
                Phase::Over(Ending::Failed { failure, .. }) => Some((one, failure)),
                _ => None,
            })
            .collect();
        let before: Vec<String> = failures.iter().map(|(_, failure)| failure.reason.clone()).collect();
        let with_work = |(attempt, failure): &(&'_ Attempt, &'_ Failure)| {
            let work = failure.work.clone().filter(|work| !work.is_on_the_branch())?;
            Some(((*attempt).clone(), work))
        };
        let Some((last, work)) = failures.iter().rev().find_map(with_work) else {
            return Ok(Footing { before, ..Footing::default() });
        };
        if let Some(start) = self.with_earlier_work(base, &work, globs, subject).await? {
            return Ok(Footing { start: Some(start), before, papers: Vec::new() });
        }
        let patch = self.shop.records(&last).join("agent").join("work.patch");
        let papers = match patch.exists() {
            true => vec![Paper { name: BEFORE.to_owned(), source: patch }],
            false => Vec::new(),
        };
        Ok(Footing { start: None, before, papers })
    }

    /// The branch with earlier work on it; `None` if they don't go together.
    async fn with_earlier_work(
        &self,
        base: &str,
        work: &Work,
        globs: &ScopeOrder,
        subject: &str,
    ) -> Result<Option<String>, LifeError> {
        let (tip, from, earlier) = (Oid::parse(base)?, Oid::parse(&work.base)?, Oid::parse(&work.candidate)?);
        let (task, epoch, agent) = (self.task.clone(), self.attempt.epoch.0, self.attempt.agent.clone());
        let lease = self.held.clone().ok_or_else(|| odd("an order before its lease"))?;
        let (globs, subject) = (super::land::scope_of(globs)?, subject.to_owned());
        let at = self.attempt.claimed_at;
        let made = self.blocking(move |repository| {
            let start = match merge::onto(repository, &from, &earlier, &tip)? {
                Merged::Conflict { .. } | Merged::Contained => return Ok(Some(None)),
                Merged::Clean { .. } if tip == from => earlier,
                Merged::Clean { tree } => {
                    let author = Signature::new(&agent, &format!("{agent}@agency.invalid"), at, 0);
                    let statement = Statement {
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
            if !scope::outside(&globs, &difference::examine(repository, &tip, &start)?).is_empty() {
                return Ok(Some(None));
            }
            // It needs a name, or git may clear it away while the agent is at work on it.
            Ok(candidate::keep(repository, &lease, &start)?.then_some(Some(start.to_string())))
        });
        match made.await {
            Ok(Some(start)) => Ok(start),
            Ok(None) => Err(StoreError::Fenced(self.lease.clone()).into()),
            // What git has cleared away can't be gone on with.
            Err(LifeError::Landing(landing::Error::Missing { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
