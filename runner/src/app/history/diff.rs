//! What a task changed: the commit that landed, or the work of an attempt.

use agency_landing::candidate;
use agency_landing::landed_record;
use agency_landing::names::{Oid, TaskName};
use agency_landing::refs;
use agency_landing::repository::LandingRepository;
use agency_protocols::names::TaskId;
use agency_sandbox::host::HostUser;
use serde::Serialize;

use crate::app::attempt_store::open_repository;
use crate::app::board::{Caller, RepoContext};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::tasks::board_with_task;

/// The changes of a task.
#[derive(Debug, Serialize)]
pub(crate) struct DiffAnswer {
    version: u32,
    pub(crate) task: TaskId,
    /// Whether it is what landed, and not the work of an attempt before its merge.
    pub(crate) landed: bool,
    pub(crate) attempt: u64,
    pub(crate) commit: String,
    /// What it is compared with.
    pub(crate) base: String,
    pub(crate) patch: String,
    /// The patch byte for byte: a file in another encoding is no UTF-8.
    #[serde(skip)]
    pub(crate) bytes: Vec<u8>,
}

/// Without an attempt: what landed, else the last work there is.
pub(crate) fn diff(
    here: &RepoContext,
    who: &Caller,
    task: &TaskId,
    attempt: Option<u64>,
) -> Result<DiffAnswer, CommandError> {
    let board = board_with_task(here, who, task)?;
    let failed = |error: agency_landing::Error| CommandError::internal(&error);
    let name = TaskName::new(board.protocol(), task.as_str()).map_err(failed)?;
    let (_, repository) = open_repository(here, &HostUser::observe())?;
    let landed = landed_record::read(&repository, &name).map_err(failed)?;
    let landed = landed.filter(|landed| attempt.is_none_or(|attempt| attempt == landed.epoch));
    let (is_landed, epoch, commit) = match landed {
        Some(landed) => (true, landed.epoch, landed.commit),
        None => {
            let (epoch, commit) =
                last_work(&repository, &name, attempt).map_err(failed)?.ok_or_else(|| {
                    let which = attempt.map_or_else(String::new, |attempt| format!(" of attempt {attempt}"));
                    CommandError::new_message(ErrorKind::NoSuch, format!("there is no work{which} at {task}"))
                        .with_hint(format!("`agency show {task}` shows its attempts"))
                })?;
            (false, epoch, commit)
        }
    };
    let base = candidate::base_of(&repository, &commit).map_err(failed)?;
    let patch = candidate::patch(&repository, &base, &commit).map_err(failed)?;
    Ok(DiffAnswer {
        version: 1,
        task: task.clone(),
        landed: is_landed,
        attempt: epoch,
        commit: commit.to_string(),
        base: base.to_string(),
        patch: String::from_utf8_lossy(&patch).into_owned(),
        bytes: patch,
    })
}

/// The work of an attempt, or of the last one that has any.
fn last_work(
    repository: &LandingRepository,
    task: &TaskName,
    attempt: Option<u64>,
) -> Result<Option<(u64, Oid)>, agency_landing::Error> {
    if let Some(epoch) = attempt {
        return Ok(refs::at(repository, &task.candidate(epoch))?.map(|commit| (epoch, commit)));
    }
    let named = agency_landing::settled_refs::task_refs(repository)?;
    let ours = named.into_iter().find(|named| named.task == *task);
    Ok(ours.and_then(|named| named.candidates.into_iter().next_back()))
}
