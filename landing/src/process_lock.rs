//! A lock between threads and processes: threads wait for each other in memory, processes for a lock on a file. The
//! kernel releases that lock when the process that holds it ends.
//!
//! Only one thread of a process at a time asks for the file, so the next thread gets its turn at once. Between
//! processes the file is asked for again and again, because the kernel has no lock that waits with a timeout.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::{Error, files};

#[derive(Debug)]
pub(super) struct ProcessLock {
    path: PathBuf,
    patience: Duration,
    taken: Mutex<bool>,
    free: Condvar,
}

/// Holds the lock until this is dropped, or until the last process that was lent the file ends.
#[derive(Debug)]
pub(super) struct ProcessLockGuard<'a> {
    turns: &'a ProcessLock,
    /// `None` until it is locked.
    file: Option<File>,
}

impl ProcessLock {
    pub(super) fn new(path: PathBuf, patience: Duration) -> Self {
        Self { path, patience, taken: Mutex::new(false), free: Condvar::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file anew: each opening has a lock of its own.
    pub(super) fn open(&self) -> Result<File, Error> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        options.open(&self.path).map_err(files("open", &self.path))
    }

    pub(super) fn acquire(&self) -> Result<ProcessLockGuard<'_>, Error> {
        self.acquire_with(self.open()?)
    }

    /// Takes the lock with a file that is open already.
    pub(super) fn acquire_with(&self, file: File) -> Result<ProcessLockGuard<'_>, Error> {
        let busy = || Error::Busy { what: self.path.display().to_string() };
        let until = Instant::now() + self.patience;
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.free.wait_timeout_while(taken, self.patience, |taken| *taken);
        let (mut taken, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(busy());
        }
        *taken = true;
        drop(taken);
        let mut turn = ProcessLockGuard { turns: self, file: None };
        let mut pause = Duration::from_micros(200);
        loop {
            match file.try_lock() {
                Ok(()) => {
                    turn.file = Some(file);
                    return Ok(turn);
                }
                Err(TryLockError::Error(error)) => return Err(files("lock", &self.path)(error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return Err(busy()),
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(5));
                }
            }
        }
    }
}

impl Drop for ProcessLockGuard<'_> {
    fn drop(&mut self) {
        // Unlocked explicitly, because a running git may have the same open file.
        if let Some(file) = &self.file {
            let _ = file.unlock();
        }
        *self.turns.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.turns.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_waited_for_by_threads_and_by_processes_and_not_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        let turns = |patience| ProcessLock::new(folder.path().join("lock"), Duration::from_millis(patience));
        let (hasty, patient) = (turns(0), turns(60_000));
        // Another process has opened the file for itself.
        let elsewhere = hasty.open().expect("opens");
        elsewhere.lock().expect("locks");
        assert!(matches!(hasty.acquire(), Err(Error::Busy { .. })));
        elsewhere.unlock().expect("unlocks");
        let first = hasty.acquire().expect("free");
        assert!(matches!(hasty.acquire(), Err(Error::Busy { .. })), "another thread has it");
        drop(first);
        let count = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _turn = patient.acquire().expect("my turn");
                        *count.try_lock().expect("nobody else is here") += 1;
                    }
                });
            }
        });
        assert_eq!(count.into_inner().expect("whole"), 400);
    }
}
