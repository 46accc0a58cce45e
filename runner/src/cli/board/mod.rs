//! What people do to a board: one file for each verb.

pub(crate) mod archive;
mod codifica;
pub(crate) mod import;
pub(crate) mod lint;
pub(crate) mod migrate;
pub(crate) mod report;
pub(crate) mod scaffold;
pub(crate) mod status;
pub(crate) mod task;
pub(crate) mod verify;
mod watch;
