//! A reference's lock that stays, told from one that comes and goes.
//!
//! Git holds the lock of a reference for milliseconds. One and the same lock file after seconds belongs to a git that hangs,
//! or to nothing: it was left by one that died, or came along with the repository. Only a person can tell, so it is
//! named, and never removed.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use super::names::RefName;
use super::repository::Repository;
use super::stamp::{self, Identity};

/// The lock of one reference, looked at since a moment.
#[derive(Debug)]
pub struct LockWatch {
    path: PathBuf,
    first: Option<Identity>,
    began: Instant,
    /// How old the lock was then. Nobody waits again for one that others waited for.
    age: Duration,
}

/// Since it was made or moved here, and not since whoever packed it says.
fn age(stat: &fs::Metadata) -> Duration {
    SystemTime::now().duration_since(stamp::made(stat)).unwrap_or_default()
}

impl LockWatch {
    pub fn begin(repository: &Repository, name: &RefName) -> Self {
        let path = repository.real.common.join(format!("{}.lock", name.as_str()));
        let found = fs::symlink_metadata(&path).ok();
        let age = found.as_ref().map_or(Duration::ZERO, age);
        Self { path, first: found.as_ref().map(Identity::of), began: Instant::now(), age }
    }

    /// For how long it has been looked at, and a lock that was there before has been there.
    pub fn elapsed(&self) -> Duration {
        self.age + self.began.elapsed()
    }

    /// If the lock is the one that was there at first: what to do about it.
    pub fn stuck(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        let remedy = "if no git is running, remove it";
        first.is_at(&self.path).then(|| {
            let path = self.path.display();
            format!("{path} is held by another program, or was left behind by one that died; {remedy}")
        })
    }
}
