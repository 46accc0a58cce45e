//! What people do to a board: one file for each verb.

pub(crate) mod archive;
pub(crate) mod import;
pub(crate) mod lint;
pub(crate) mod migrate;
pub(crate) mod report;
pub(crate) mod scaffold;
pub(crate) mod status;
pub(crate) mod task;
mod task_table;
pub(crate) mod verify;
mod watch;
