//! What became of each task, told from what is seen when all is over: the board, the attempts, the branch.

#![allow(clippy::disallowed_methods, reason = "opens our own sample repository")]

use agency_protocols::kodingx::KodingX;
use agency_protocols::names::TaskId;
use agency_sandbox::output::sanitize::TerminalSanitizer;
use agency_supervisor::attempt::{Attempt, AttemptEnd, FailureKind, Phase};
use serde::Serialize;

use super::sample_repo::{self, DemoTask, ExpectedOutcome};
use crate::app::board::{RepoContext, board_error};
use crate::app::error::{CommandError, without_control_chars};
use crate::app::queue::logs::{self, LogRequest, LogSource};
use crate::app::scratch_repo::ScratchRepo;

/// What became of a task.
#[derive(Debug, Serialize)]
pub(crate) struct DemoOutcome {
    #[serde(skip)]
    pub(crate) task: DemoTask,
    pub(crate) id: &'static str,
    pub(crate) agent: &'static str,
    /// As the board has it.
    pub(crate) status: String,
    pub(crate) attempts: u64,
    /// The commit that has its work, and the files that changed there.
    pub(crate) commit: Option<String>,
    pub(crate) files: Vec<String>,
    /// Why its last attempt did not do, and of which kind that was.
    pub(crate) reason: Option<String>,
    #[serde(skip)]
    pub(crate) kind: Option<FailureKind>,
    /// What its agent wrote last, line by line.
    #[serde(skip)]
    pub(crate) words: Vec<String>,
    /// Whether what it must not change is as it was.
    pub(crate) kept: bool,
}

impl DemoOutcome {
    pub(super) fn of(
        place: &ScratchRepo,
        here: &RepoContext,
        attempts: &[Attempt],
        task: &DemoTask,
    ) -> Result<Self, CommandError> {
        let id = TaskId::parse(task.id).map_err(|error| CommandError::internal(&error))?;
        let last = attempts.iter().find(|attempt| attempt.task.id == task.id);
        let board = KodingX::open(here.tree()).map_err(board_error)?;
        let status = board.find(here.tree(), &id).map_err(board_error)?.value.status;
        let ending = last.and_then(|attempt| match &attempt.phase {
            Phase::Over(ending) => Some(ending.clone()),
            _ => None,
        });
        let commit = match &ending {
            Some(AttemptEnd::Done { commit }) => Some(commit.clone()),
            _ => None,
        };
        let files = match &commit {
            Some(commit) => place.git(&["show", "--name-only", "--format=", commit])?,
            None => String::new(),
        };
        let (kind, reason) = match ending {
            Some(AttemptEnd::Failed { failure, .. }) => (Some(failure.kind), Some(failure.reason)),
            Some(AttemptEnd::Blocked { reason } | AttemptEnd::Lost { reason }) => (None, Some(reason)),
            _ => (None, None),
        };
        let words = match last {
            Some(_) => words(here, id)?,
            None => String::new(),
        };
        let kept = match task.should {
            ExpectedOutcome::BeRefused(path) => {
                std::fs::read_to_string(place.folder.join(path)).ok().as_deref()
                    == sample_repo::original(path)
            }
            ExpectedOutcome::Land(_) | ExpectedOutcome::BeStopped => true,
        };
        Ok(Self {
            task: *task,
            id: task.id,
            agent: task.agent,
            status: status.to_string(),
            attempts: last.map_or(0, |attempt| attempt.epoch.0),
            commit,
            files: files.lines().map(str::to_owned).collect(),
            reason,
            kind,
            words: words.lines().map(without_control_chars).collect(),
            kept,
        })
    }

    /// Whether it came as it should.
    pub(crate) fn is_as_it_should(&self) -> bool {
        match self.task.should {
            ExpectedOutcome::Land(attempt) => {
                self.status == "DONE" && self.attempts == attempt && self.files == [self.task.scope]
            }
            ExpectedOutcome::BeRefused(_) => {
                let refused = self.kind == Some(FailureKind::Scope);
                self.status == "BLOCKED" && refused && self.kept && self.commit.is_none()
            }
            ExpectedOutcome::BeStopped => self.status == "BLOCKED" && self.kind == Some(FailureKind::Stopped),
        }
    }
}

/// What the agent of a task wrote in its last attempt.
fn words(here: &RepoContext, task: TaskId) -> Result<String, CommandError> {
    let request = LogRequest { task, attempt: None, source: LogSource::Agent };
    let logs = logs::open(here, &ScratchRepo::caller(), &request)?.files();
    let (mut shown, mut words) = (TerminalSanitizer::default(), Vec::new());
    for mut log in logs {
        loop {
            let bytes = log.read_chunk()?;
            if bytes.is_empty() {
                break;
            }
            shown.push(&bytes, &mut |bytes| words.extend_from_slice(bytes));
        }
    }
    shown.finish(&mut |bytes| words.extend_from_slice(bytes));
    Ok(String::from_utf8_lossy(&words).into_owned())
}
