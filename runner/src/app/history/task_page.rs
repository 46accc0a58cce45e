//! One task on one page: its attempts, what happened when, its checks, its audits, and what its sandbox held.

use agency_protocols::board_verbs::TaskSummary;
use agency_protocols::names::TaskId;
use agency_supervisor::attempt::{TaskKey, UsageTotals};
use agency_supervisor::store::{AttemptStore, AttemptStoreError};
use serde::Serialize;

use super::AttemptFacts;
use crate::app::attempt_store::with_existing_store;
use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::error::CommandError;
use crate::app::state_folder;
use crate::app::tasks::board_with_task;

/// How many events are read at once.
const PAGE: usize = 10_000;

/// One task.
#[derive(Debug, Serialize)]
pub(crate) struct ShowAnswer {
    version: u32,
    pub(crate) task: TaskSummary,
    /// The file that has it.
    pub(crate) place: String,
    pub(crate) attempts: Vec<AttemptFacts>,
    pub(crate) timeline: Vec<TimelineEntry>,
    pub(crate) used: UsageTotals,
}

/// Something that happened to an attempt.
#[derive(Debug, Serialize)]
pub(crate) struct TimelineEntry {
    /// Seconds since 1970.
    pub(crate) at: i64,
    pub(crate) attempt: u64,
    /// A phase, or `note`, `adopted`, `cancel`, `answer`.
    pub(crate) what: String,
    /// The text of a note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

pub(crate) fn show(here: &RepoContext, who: &Caller, id: &TaskId) -> Result<ShowAnswer, CommandError> {
    let board = board_with_task(here, who, id)?;
    let page = board.task_page(here.tree(), id).map_err(board_error)?;
    let key = TaskKey { protocol: board.protocol().to_owned(), id: id.to_string() };
    let state = state_folder::of_folder(&here.folder)?;
    let known = with_existing_store(here, async |store| {
        Ok((store.attempts(&key).await?, timeline(store, &key).await?))
    })?;
    let (attempts, timeline) = known.unwrap_or_default();
    Ok(ShowAnswer {
        version: 1,
        task: page.summary,
        place: page.place,
        used: attempts.iter().map(|attempt| attempt.spent).sum(),
        attempts: attempts.iter().map(|attempt| AttemptFacts::of(state.path(), attempt)).collect(),
        timeline,
    })
}

async fn timeline(store: &impl AttemptStore, key: &TaskKey) -> Result<Vec<TimelineEntry>, AttemptStoreError> {
    let (mut entries, mut after) = (Vec::new(), 0);
    loop {
        let page = store.events(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(entries) };
        after = last.number;
        entries.extend(page.into_iter().filter(|event| event.task == *key).map(|event| TimelineEntry {
            at: event.at,
            attempt: event.epoch.0,
            note: (event.what == "note").then_some(event.detail),
            what: event.what,
        }));
    }
}
