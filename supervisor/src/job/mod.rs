//! One sandbox, run on behalf of a supervisor and not tied to its life.
//!
//! A job is a program of its own, the *shim*: the same binary, with one thread until its sandbox is started.
//! It owns the sandbox, its output and its deadlines, and writes down the result. A supervisor that is
//! killed or replaced takes nothing with it: the next one finds the shim by its folder and goes on from there.
//!
//! ```text
//! runs/<attempt>/<job>/
//!   order.json    what is to be done; written first, and never changed
//!   lock          held by the shim for as long as it lives
//!   control       where a supervisor talks to it
//!   started       whether the order may have been begun: then it is never begun again
//!   output.log    what the sandbox wrote, redacted
//!   ended.json    how its agent ended, while what it did is being collected
//!   outcome.json  the result; written last
//! ```
//!
//! The order of things is what makes it safe. The shim waits for a word from its supervisor, which gives it when
//! its own record is durable; a supervisor that dies before that closes the shim's input, and the shim goes. Then
//! the shim marks its folder and only then begins. So there is one start at most, even if one of them is killed, and
//! the folder alone tells whether there was one ([`JobState`]).
//!
//! A shim that is killed while it collects what its agent did leaves `ended.json`. Then a shim may be sent once more, which
//! begins nothing and only collects (`ended_agent`).
//!
//! The lease that the job was started under ends by itself. A shim whose supervisor does not put that off
//! stops what it runs.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

mod agent;
mod agent_policy;
pub mod claim_reader;
mod control;
mod ended_agent;
mod not_run;
pub mod order;
pub mod outcome;
mod placeholders;
mod proof;
mod setup;
pub mod shim;
pub mod shim_client;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use agency_sandbox::durable;
use order::{JobKind, JobOrder};
use outcome::JobOutcome;

/// The folder of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFolder {
    path: PathBuf,
}

/// How far a job has come, as its folder shows it.
#[derive(Debug)]
pub enum JobState {
    /// There is no order yet.
    Unordered,
    /// A shim may be sent: nothing was begun and no shim is about to, or an agent has ended and no shim collects what
    /// it did.
    Waiting,
    /// A shim lives: it waits for its word, or is at work.
    Alive,
    /// It was begun, and its shim is gone without a word.
    Lost,
    Over(Box<JobOutcome>),
}

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("can't {doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is not what this program wrote", path.display())]
    Unexpected { path: PathBuf, source: serde_json::Error },
    #[error("the shim can't be started")]
    Start { source: io::Error },
    #[error("the shim ended before it was ready: {said}")]
    NotReady { said: String },
}

impl JobFolder {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn output(&self) -> PathBuf {
        self.path.join("output.log")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn failed(&self, doing: &'static str, name: &str) -> impl FnOnce(io::Error) -> JobError {
        let path = self.file(name);
        move |source| JobError::File { doing, path, source }
    }

    /// Writes the order down. The same one twice is the first one.
    pub fn order(&self, order: &JobOrder) -> Result<(), JobError> {
        let new = durable::folder(&self.path).map_err(self.failed("make", ""))?;
        let path = self.file("order.json");
        if path.exists() {
            return Ok(());
        }
        let text = serde_json::to_vec_pretty(order)
            .map_err(|source| JobError::Unexpected { path: path.clone(), source })?;
        // What the order names is on the disk before the order is.
        if let JobKind::Agent(agent) | JobKind::Audit(agent) = &order.what {
            for attachment in &agent.papers {
                let synced = File::open(&attachment.source).and_then(|file| file.sync_all());
                synced.map_err(|source| JobError::File {
                    doing: "sync",
                    path: attachment.source.clone(),
                    source,
                })?;
            }
        }
        durable::write(&path, &text).map_err(self.failed("write", "order.json"))?;
        // After the order, when most file systems have them on the disk already: a start waits for both.
        let mut new = new.iter();
        new.try_for_each(|folder| durable::sync_folder(folder)).map_err(self.failed("sync", ""))
    }

    /// Makes the folder ready to begin again, after a start without a result.
    pub fn reset(&self) -> Result<(), JobError> {
        // The mark first, also on the disk: without it, the outcome still says that nothing was run.
        let lock = OpenOptions::new().write(true).open(self.file("lock")).and_then(|lock| lock.set_len(0));
        match lock {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.failed("empty", "lock")(error));
            }
            _ => {}
        }
        for name in ["started", "outcome.json"] {
            match std::fs::remove_file(self.file(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(self.failed("remove", name)(error));
                }
                _ => durable::sync_folder(&self.file(name)).map_err(self.failed("sync", ""))?,
            }
        }
        Ok(())
    }

    pub fn read_order(&self) -> Result<JobOrder, JobError> {
        self.read("order.json")
    }

    fn read<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, JobError> {
        let bytes = std::fs::read(self.file(name)).map_err(self.failed("read", name))?;
        serde_json::from_slice(&bytes)
            .map_err(|source| JobError::Unexpected { path: self.file(name), source })
    }

    /// What can be told from outside, now.
    pub fn state(&self) -> Result<JobState, JobError> {
        if !self.file("order.json").exists() {
            return Ok(JobState::Unordered);
        }
        // The lock is looked at first: its holder may be about to write the outcome.
        let lives = self.lock(FlockOperation::NonBlockingLockShared)?.is_none();
        match (lives, self.file("outcome.json").exists(), self.is_begun()) {
            (_, true, _) => Ok(JobState::Over(Box::new(self.read("outcome.json")?))),
            (true, false, _) => Ok(JobState::Alive),
            (false, false, true) if self.ended().is_none() => Ok(JobState::Lost),
            (false, false, _) => Ok(JobState::Waiting),
        }
    }

    /// Whether the order may have been begun. The lock says so, too: a mark that is lost begins no second agent.
    fn is_begun(&self) -> bool {
        let is_noted = std::fs::metadata(self.file("lock")).is_ok_and(|stat| stat.len() > 0);
        is_noted || self.file("started").exists()
    }

    /// Whether a shim is at work here, even if its files say otherwise.
    pub(crate) fn is_alive(&self) -> Result<bool, JobError> {
        Ok(self.path.is_dir() && self.lock(FlockOperation::NonBlockingLockShared)?.is_none())
    }

    /// Takes the lock that says that a shim is at work here; `None` if one is. To look, it is shared.
    fn lock(&self, how: FlockOperation) -> Result<Option<File>, JobError> {
        let open =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(self.file("lock"));
        let file = open.map_err(self.failed("open", "lock"))?;
        match flock(&file, how) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(self.failed("lock", "lock")(error.into())),
        }
    }

    /// By descriptor, because the name of a socket has a hundred bytes at most.
    fn control(&self) -> Result<(File, PathBuf), JobError> {
        use std::os::fd::AsRawFd;
        let folder = File::open(&self.path).map_err(self.failed("open", ""))?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/control", folder.as_raw_fd()));
        Ok((folder, path))
    }
}
