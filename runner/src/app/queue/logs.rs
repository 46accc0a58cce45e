//! What was written while a task was worked on: by its agent, by those who audited it, and by the checks.

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
use crate::app::transcript::OutputFormat;

/// So many bytes are read at once.
const CHUNK: usize = 64 << 10;

/// Which logs are read.
#[derive(Debug)]
pub(crate) struct LogRequest {
    pub(crate) task: TaskId,
    /// The last attempt where none is named.
    pub(crate) attempt: Option<u64>,
    pub(crate) source: LogSource,
}

/// Whose output it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LogSource {
    #[default]
    Agent,
    Auditors,
    Checks,
}

/// The logs of an attempt, which may still grow, and become more.
pub(crate) struct AttemptLogs<'a> {
    /// Which attempt it is.
    pub(crate) attempt: u64,
    here: &'a RepoContext,
    key: TaskKey,
    named: Option<u64>,
    /// The attempt's records.
    folder: PathBuf,
    source: LogSource,
}

/// One log. Its bytes are as they were written.
#[derive(Debug)]
pub(crate) struct JobLog {
    /// `agent`, `audit-1`, `verify-1/01-cargo-test`
    pub(crate) job: String,
    /// How its lines are to be read.
    pub(crate) format: OutputFormat,
    path: PathBuf,
    read: u64,
}

/// Finds the logs of an attempt.
pub(crate) fn open<'a>(
    here: &'a RepoContext,
    who: &Caller,
    request: &LogRequest,
) -> Result<AttemptLogs<'a>, CommandError> {
    let state = state_folder::of_folder(&here.folder)?;
    let key = key(here, who, &request.task)?;
    let attempt = find(here, &key, request.attempt)?.ok_or_else(|| {
        let what = format!("there is no attempt at {} to show", request.task);
        CommandError::new_message(ErrorKind::NoSuch, what).with_hint("`agency ps --all` shows what there is")
    })?;
    let folder = records::folder_of(state.path(), &attempt);
    let (attempt, named) = (attempt.epoch.0, request.attempt);
    Ok(AttemptLogs { attempt, here, key, named, folder, source: request.source })
}

/// The file that a job of an attempt writes to: its agent, or whoever audits it.
pub(crate) fn file_of(state: &Path, attempt: &Attempt, job: &str) -> PathBuf {
    records::folder_of(state, attempt).join(job).join(OUTPUT)
}

/// What a job's sandbox wrote.
const OUTPUT: &str = "output.log";

/// Keeps a log where its attempt's folder goes away.
pub(crate) fn copy(log: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::copy(log, to).map(drop)
}

fn find(here: &RepoContext, key: &TaskKey, named: Option<u64>) -> Result<Option<Attempt>, CommandError> {
    let attempts = with_existing_store(here, async |store| store.attempts(key).await)?;
    let is_it = |attempt: &Attempt| named.is_none_or(|number| number == attempt.epoch.0);
    Ok(attempts.unwrap_or_default().into_iter().rfind(is_it))
}

impl AttemptLogs<'_> {
    /// Whether somebody looks after the attempt: more may be written.
    pub(crate) fn may_grow(&self) -> Result<bool, CommandError> {
        Ok(find(self.here, &self.key, self.named)?.is_some_and(|attempt| attempt.held.is_some()))
    }

    /// The logs that there are by now, in the order in which they were begun. The agent's is one of them even before it
    /// is there.
    pub(crate) fn files(&self) -> Vec<JobLog> {
        let job_log = |job: &str| {
            let folder = self.folder.join(job);
            JobLog {
                job: job.to_owned(),
                format: OutputFormat::of_job(&folder),
                path: folder.join(OUTPUT),
                read: 0,
            }
        };
        match self.source {
            LogSource::Agent => vec![job_log("agent")],
            LogSource::Auditors => self.jobs("audit-").iter().map(|job| job_log(job)).collect(),
            LogSource::Checks => self.jobs("verify-").iter().flat_map(|job| self.checks(job)).collect(),
        }
    }

    /// The jobs of a kind, in the order of their numbers.
    fn jobs(&self, kind: &str) -> Vec<String> {
        let number = |name: &str| name.strip_prefix(kind)?.parse::<u64>().ok();
        let mut found: Vec<(u64, String)> =
            names(&self.folder).into_iter().filter_map(|name| Some((number(&name)?, name))).collect();
        found.sort();
        found.into_iter().map(|(_, name)| name).collect()
    }

    /// A log for each command of a proof, after what its setup wrote.
    fn checks(&self, job: &str) -> Vec<JobLog> {
        let folder = self.folder.join(job);
        let log = |name: String, path: PathBuf| JobLog {
            job: format!("{job}/{name}"),
            format: OutputFormat::Text,
            path,
            read: 0,
        };
        let setup = folder.join(OUTPUT);
        let has_setup = setup.metadata().is_ok_and(|file| file.len() > 0);
        let setup = has_setup.then(|| log("setup".to_owned(), setup));
        let logs = folder.join("logs");
        let mut commands = names(&logs);
        commands.retain(|name| name.ends_with(".log"));
        commands.sort();
        let commands =
            commands.into_iter().map(|name| log(name.trim_end_matches(".log").to_owned(), logs.join(&name)));
        setup.into_iter().chain(commands).collect()
    }

    /// What is said where there is no such log.
    pub(crate) fn nothing_there(&self, task: &TaskId) -> CommandError {
        let attempt = self.attempt;
        let what = match self.source {
            LogSource::Agent => format!("attempt {attempt} of {task} has no output"),
            LogSource::Auditors => format!("attempt {attempt} of {task} has no auditor's output"),
            LogSource::Checks => format!("attempt {attempt} of {task} has no output of checks"),
        };
        CommandError::new_message(ErrorKind::NoSuch, what)
            .with_hint(format!("`agency logs {task}` shows what its agent wrote"))
    }
}

/// The names in a folder of ours; none where it is not there.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

impl JobLog {
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
