//! A reference's lock that stays, told from one that comes and goes.
//!
//! Git holds the lock of a reference for milliseconds. One and the same lock file after seconds belongs to a git that hangs,
//! or to nothing: it was left by one that died, or came along with the repository. Only a person can tell, so it is
//! named, and never removed.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::names::RefName;
use super::repository::Repository;
use super::stamp::Identity;

/// The lock of one reference, looked at since a moment.
#[derive(Debug)]
pub struct LockWatch {
    path: PathBuf,
    first: Option<Identity>,
    began: Instant,
}

impl LockWatch {
    pub fn begin(repository: &Repository, name: &RefName) -> Self {
        let path = repository.real.common.join(format!("{}.lock", name.as_str()));
        let first = fs::symlink_metadata(&path).ok().map(|stat| Identity::of(&stat));
        Self { path, first, began: Instant::now() }
    }

    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
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
