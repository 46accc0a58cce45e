//! Watches the lock of a reference, to tell one that stays from one that is released.
//!
//! Git holds the lock of a reference for milliseconds. A lock file that is the same after seconds belongs to a git that
//! hangs, or to no process: a git that died left it, or it came with the repository. Only a person can tell which, so
//! we name the file and never remove it.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use super::file_stamp::{self, FileIdentity};
use super::names::RefName;
use super::repository::LandingRepository;

/// The lock of one reference, and since when it is watched.
#[derive(Debug)]
pub struct LockWatch {
    path: PathBuf,
    first: Option<FileIdentity>,
    began: Instant,
    /// How old the lock was then. Time for which other processes have waited counts, too.
    age: Duration,
}

/// The age since the file was made or moved here. An archive can set the other times.
fn age(stat: &fs::Metadata) -> Duration {
    SystemTime::now().duration_since(file_stamp::change_time(stat)).unwrap_or_default()
}

impl LockWatch {
    pub fn begin(repository: &LandingRepository, name: &RefName) -> Self {
        let path = repository.real.common.join(format!("{}.lock", name.as_str()));
        let found = fs::symlink_metadata(&path).ok();
        let age = found.as_ref().map_or(Duration::ZERO, age);
        Self { path, first: found.as_ref().map(FileIdentity::of), began: Instant::now(), age }
    }

    /// How long the lock has been watched, plus its age at the beginning.
    pub fn elapsed(&self) -> Duration {
        self.age + self.began.elapsed()
    }

    /// If the lock is the one that was there at first: what to do about it.
    pub fn stuck_reason(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        let remedy = "if no git is running, remove it";
        first.is_at(&self.path).then(|| {
            let path = self.path.display();
            format!("{path} is held by another program, or was left behind by one that died; {remedy}")
        })
    }
}
