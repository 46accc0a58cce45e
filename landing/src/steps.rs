//! The steps of a landing, and the observer by which a test sees each of them.
//!
//! ```text
//!                           a crash after it leaves
//! Announce    journal       nothing else
//! LockIndex   index.lock    a lock that keeps the person's git out, and the journal says that it is ours
//! Prepare     ref locks     the same: git gives these back by itself
//! PlaceFiles  files         files of the work, not staged; the branch has not moved
//! PlaceIndex  index         the work, staged; the branch has not moved
//! Commit      references    a landing: nothing is left to do but to forget
//! Forget      journal       nothing
//! ```
//!
//! If the crash is before Commit, the next landing takes everything back by the journal and begins again; after Commit
//! there is nothing to take back. A branch that is not checked out needs Prepare and Commit only.

use std::ops::ControlFlow;

use agency_sandbox::harvest::apply;

use super::error::Error;

/// One step. Its effect is durable before the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LandStep {
    Announce,
    LockIndex,
    Prepare,
    PlaceFiles,
    PlaceIndex,
    Commit,
    Forget,
}

impl LandStep {
    pub const ALL: [Self; 7] = [
        Self::Announce,
        Self::LockIndex,
        Self::Prepare,
        Self::PlaceFiles,
        Self::PlaceIndex,
        Self::Commit,
        Self::Forget,
    ];

    /// The steps that also take a checkout back.
    pub const UNDOING: [Self; 5] =
        [Self::Announce, Self::LockIndex, Self::PlaceFiles, Self::PlaceIndex, Self::Forget];
}

/// The point within a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepPoint {
    Before,
    /// A step of placing files.
    Within(apply::ApplyStep),
    After,
}

/// A moment at which a landing may be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LandMoment {
    pub step: LandStep,
    pub when: StepPoint,
    /// Whether an earlier landing is being taken back.
    pub undoing: bool,
}

/// Gets every moment. When it answers `Break`, everything is left as a crash would leave it.
pub type LandObserver<'a> = &'a mut dyn FnMut(LandMoment) -> ControlFlow<()>;

/// Passes moments on to the observer.
pub(super) struct StepWatch<'a> {
    pub(super) observer: LandObserver<'a>,
    pub(super) undoing: bool,
}

impl StepWatch<'_> {
    pub(super) fn step<T>(
        &mut self,
        step: LandStep,
        effect: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.notify(step, StepPoint::Before)?;
        let done = effect()?;
        self.notify(step, StepPoint::After)?;
        Ok(done)
    }

    pub(super) fn notify(&mut self, step: LandStep, when: StepPoint) -> Result<(), Error> {
        match (self.observer)(LandMoment { step, when, undoing: self.undoing }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped),
        }
    }
}
