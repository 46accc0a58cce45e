//! The steps of a landing, and the place from which a test sees each of them.
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
//! Up to Commit the next landing takes everything back, by the journal, and begins again; after it there is
//! nothing to take back. A branch that is not checked out needs Prepare and Commit only.

use std::ops::ControlFlow;

use agency_sandbox::harvest::apply;

use super::error::Error;

/// One step. Its effect is durable before the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Announce,
    LockIndex,
    Prepare,
    PlaceFiles,
    PlaceIndex,
    Commit,
    Forget,
}

impl Step {
    pub const ALL: [Self; 7] = [
        Self::Announce,
        Self::LockIndex,
        Self::Prepare,
        Self::PlaceFiles,
        Self::PlaceIndex,
        Self::Commit,
        Self::Forget,
    ];

    /// Those that also take a checkout back.
    pub const UNDOING: [Self; 5] =
        [Self::Announce, Self::LockIndex, Self::PlaceFiles, Self::PlaceIndex, Self::Forget];
}

/// Where in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Before,
    /// Files are put in place in steps of their own.
    Within(apply::Step),
    After,
}

/// A moment at which a landing may be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub step: Step,
    pub when: When,
    /// What an earlier landing left is being taken back.
    pub undoing: bool,
}

/// Told every moment. When it breaks, everything is left as a crash would leave it.
pub type Observer<'a> = &'a mut dyn FnMut(Moment) -> ControlFlow<()>;

/// Passes moments on.
pub(super) struct Watch<'a> {
    pub(super) observer: Observer<'a>,
    pub(super) undoing: bool,
}

impl Watch<'_> {
    pub(super) fn step<T>(
        &mut self,
        step: Step,
        effect: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.tell(step, When::Before)?;
        let done = effect()?;
        self.tell(step, When::After)?;
        Ok(done)
    }

    pub(super) fn tell(&mut self, step: Step, when: When) -> Result<(), Error> {
        match (self.observer)(Moment { step, when, undoing: self.undoing }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped),
        }
    }
}
