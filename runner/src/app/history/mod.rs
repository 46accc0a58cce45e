//! What became of tasks: read from the store and from the records that attempts left. Nothing here changes anything, but
//! for [`undo`].

pub(crate) mod diff;
mod facts;
pub(crate) mod needs_you;
pub(crate) mod summary;
pub(crate) mod task_page;
pub(crate) mod undo;

pub(crate) use facts::{AttemptFacts, AuditFacts, CheckFacts};
