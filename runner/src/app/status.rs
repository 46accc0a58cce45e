//! The state of every board: open tasks, reports, the last verification, and the attempts that are at work.

use std::path::{Path, PathBuf};

use agency_protocols::board_verbs::{BoardStatus, StatusFooter, StatusRequest, TaskSummary};
use agency_protocols::finding::Finding;
use agency_supervisor::attempt::Attempt;
use agency_supervisor::store::sqlite::{SqliteStore, open_store, store_path};
use agency_supervisor::store::{AttemptStore, AttemptStoreError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::app::board::{Boards, Caller, RepoContext, board_error, lost_commits};
use crate::app::error::CommandError;
use crate::app::state_folder;
use crate::app::wording::phase_label;

/// The state of the boards, and the document that says it.
#[derive(Debug)]
pub(crate) struct StatusAnswer {
    pub(crate) document: Value,
    pub(crate) boards: Vec<ShownBoard>,
    pub(crate) working: Vec<ActiveAttempt>,
    pub(crate) findings: Vec<Finding>,
}

/// One board as it is shown to people.
#[derive(Debug)]
pub(crate) struct ShownBoard {
    pub(crate) open: Vec<TaskSummary>,
    pub(crate) stale: Vec<String>,
    pub(crate) stuck: Vec<String>,
    pub(crate) footer: Option<StatusFooter>,
}

/// An attempt at work.
#[derive(Debug, Serialize)]
pub(crate) struct ActiveAttempt {
    pub(crate) task: String,
    pub(crate) agent: String,
    pub(crate) attempt: u64,
    pub(crate) doing: &'static str,
    /// Seconds since 1970.
    pub(crate) since: i64,
}

impl ActiveAttempt {
    fn of(attempt: &Attempt) -> Self {
        Self {
            task: attempt.task.id.clone(),
            agent: attempt.agent.clone(),
            attempt: attempt.epoch.0,
            doing: phase_label(&attempt.phase),
            since: attempt.claimed_at,
        }
    }
}

/// The state as it is now. `working` are the attempts at work, for those who watch.
pub(crate) fn status(
    here: &RepoContext,
    who: &Caller,
    working: Option<&[Attempt]>,
) -> Result<StatusAnswer, CommandError> {
    let boards = here.boards(who)?;
    let is_among_others = matches!(boards, Boards::Several(_));
    let (mut documents, mut shown, mut findings) = (Vec::new(), Vec::new(), Vec::new());
    for board in boards.all() {
        let lost = lost_commits::findings(here, board.as_ref());
        let request = StatusRequest { now: &here.now, lost: &lost, is_among_others };
        let BoardStatus { document, open, stale, stuck, footer, findings: found } =
            board.board_status(here.tree(), request).map_err(board_error)?;
        documents.push(document);
        shown.push(ShownBoard { open, stale, stuck, footer });
        findings.extend(found);
    }
    let mut document = match is_among_others {
        true => json!({ "version": 1, "boards": documents, "findings": findings }),
        false => documents.pop().unwrap_or_default(),
    };
    if let Some(working) = working {
        let working: Vec<ActiveAttempt> = working.iter().map(ActiveAttempt::of).collect();
        document["working"] = serde_json::to_value(&working).unwrap_or_default();
    }
    let working = working.unwrap_or_default().iter().map(ActiveAttempt::of).collect();
    Ok(StatusAnswer { document, boards: shown, working, findings })
}

/// Tells when the store changes. There is no store before the first run.
pub(crate) struct StoreWatch {
    state: PathBuf,
    store: Option<SqliteStore>,
}

impl StoreWatch {
    pub(crate) fn new(here: &RepoContext) -> Result<Self, CommandError> {
        let state = state_folder::of_folder(&here.folder)?.path().to_owned();
        Ok(Self { state, store: None })
    }

    /// The attempts at work, and the version of the store that says so.
    pub(crate) async fn working(&mut self) -> Result<(Vec<Attempt>, Option<u64>), CommandError> {
        let version = self.version().await?;
        match &self.store {
            Some(store) => Ok((store.open().await.map_err(failed)?, version)),
            None => Ok((Vec::new(), None)),
        }
    }

    pub(crate) async fn version(&mut self) -> Result<Option<u64>, CommandError> {
        if self.store.is_none() && has_store(&self.state) {
            self.store = Some(open_store(&self.state).await.map_err(failed)?);
        }
        match &self.store {
            Some(store) => store.version().await.map(Some).map_err(failed),
            None => Ok(None),
        }
    }
}

fn has_store(state: &Path) -> bool {
    store_path(state).exists()
}

fn failed(error: AttemptStoreError) -> CommandError {
    CommandError::internal(&error)
}
