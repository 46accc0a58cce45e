//! What the verbs mean where the board is Codifica's.

pub(super) mod evidence;
pub(super) mod init;
pub(super) mod status;
pub(super) mod task;

use agency_protocols::codifica::task::Task;
use serde::Serialize;

/// A task as `--json` shows it.
#[derive(Debug, Serialize)]
pub(super) struct CodificaTaskJson<'a> {
    pub(super) file: &'a str,
    pub(super) line: usize,
    #[serde(flatten)]
    pub(super) task: &'a Task,
}
