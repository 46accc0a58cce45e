//! What an agent wrote while it worked on a task.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use agency_protocols::names::TaskId;
use agency_supervisor::attempt::{Attempt, TaskKey};
use agency_supervisor::records;
use agency_supervisor::store::AttemptStore;

use super::key;
use crate::app::attempt_store::with_existing_store;
use crate::app::board::{Caller, RepoContext};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;

/// So many bytes are read at once.
const CHUNK: usize = 64 << 10;

/// Which log is read.
#[derive(Debug)]
pub(crate) struct LogRequest {
    pub(crate) task: TaskId,
    /// The last attempt where none is named.
    pub(crate) attempt: Option<u64>,
}

/// The log of an attempt, which may still grow. Its bytes are as the agent wrote them.
pub(crate) struct AttemptLog<'a> {
    /// Which attempt it is.
    pub(crate) attempt: u64,
    here: &'a RepoContext,
    key: TaskKey,
    named: Option<u64>,
    path: PathBuf,
    read: u64,
}

/// Finds the log of an attempt.
pub(crate) fn open<'a>(
    here: &'a RepoContext,
    who: &Caller,
    request: &LogRequest,
) -> Result<AttemptLog<'a>, CommandError> {
    let state = state_folder::of_folder(&here.folder)?;
    let key = key(here, who, &request.task)?;
    let attempt = find(here, &key, request.attempt)?.ok_or_else(|| {
        let what = format!("there is no attempt at {} to show", request.task);
        CommandError::new_message(ErrorKind::NoSuch, what).with_hint("`agency ps --all` shows what there is")
    })?;
    let path = file_of(state.path(), &attempt, "agent");
    Ok(AttemptLog { attempt: attempt.epoch.0, here, key, named: request.attempt, path, read: 0 })
}

/// The file that a job of an attempt writes to: its agent, or whoever audits it.
pub(crate) fn file_of(state: &Path, attempt: &Attempt, job: &str) -> PathBuf {
    records::folder_of(state, attempt).join(job).join("output.log")
}

/// Keeps a log where its attempt's folder goes away.
pub(crate) fn copy(log: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::copy(log, to).map(drop)
}

fn find(here: &RepoContext, key: &TaskKey, named: Option<u64>) -> Result<Option<Attempt>, CommandError> {
    let attempts = with_existing_store(here, async |store| store.attempts(key).await)?;
    let is_it = |attempt: &Attempt| named.is_none_or(|number| number == attempt.epoch.0);
    Ok(attempts.unwrap_or_default().into_iter().rfind(is_it))
}

impl AttemptLog<'_> {
    /// Whether somebody looks after the attempt: its agent may write more.
    pub(crate) fn may_grow(&self) -> Result<bool, CommandError> {
        Ok(find(self.here, &self.key, self.named)?.is_some_and(|attempt| attempt.held.is_some()))
    }

    /// The next bytes; none where there are no more yet.
    pub(crate) fn read_chunk(&mut self) -> Result<Vec<u8>, CommandError> {
        // An agent that has not begun has no log.
        let Ok(mut file) = File::open(&self.path) else { return Ok(Vec::new()) };
        let failed = |error: std::io::Error| CommandError::internal(&error);
        file.seek(SeekFrom::Start(self.read)).map_err(failed)?;
        let mut bytes = vec![0; CHUNK];
        let length = file.read(&mut bytes).map_err(failed)?;
        bytes.truncate(length);
        self.read += length as u64;
        Ok(bytes)
    }
}
