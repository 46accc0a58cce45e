//! Taking turns: threads wait for each other in memory, processes by a lock on a file, which goes with whoever
//! holds it.
//!
//! Only one thread of a process at a time asks for the file, so that the next one has its turn at once. Between
//! processes it is asked for again and again, because the kernel knows no lock that is waited for just so long.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::{Error, files};

#[derive(Debug)]
pub(super) struct Turns {
    path: PathBuf,
    patience: Duration,
    taken: Mutex<bool>,
    free: Condvar,
}

/// It is ours until this is dropped, or for as long as somebody lives who was lent the file.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    /// `None` until it is locked.
    file: Option<File>,
}

impl Turns {
    pub(super) fn new(path: PathBuf, patience: Duration) -> Self {
        Self { path, patience, taken: Mutex::new(false), free: Condvar::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, opened anew: a lock belongs to who opened it.
    pub(super) fn open(&self) -> Result<File, Error> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        options.open(&self.path).map_err(files("open", &self.path))
    }

    pub(super) fn take(&self) -> Result<Turn<'_>, Error> {
        self.take_with(self.open()?)
    }

    /// Takes the turn with a file that was opened before.
    pub(super) fn take_with(&self, file: File) -> Result<Turn<'_>, Error> {
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
        let mut turn = Turn { turns: self, file: None };
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

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Said aloud, because a git that stays may have the same open file.
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
        let turns = |patience| Turns::new(folder.path().join("lock"), Duration::from_millis(patience));
        let (hasty, patient) = (turns(0), turns(60_000));
        // Another process has opened the file for itself.
        let elsewhere = hasty.open().expect("opens");
        elsewhere.lock().expect("locks");
        assert!(matches!(hasty.take(), Err(Error::Busy { .. })));
        elsewhere.unlock().expect("unlocks");
        let first = hasty.take().expect("free");
        assert!(matches!(hasty.take(), Err(Error::Busy { .. })), "another thread has it");
        drop(first);
        let count = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _turn = patient.take().expect("my turn");
                        *count.try_lock().expect("nobody else is here") += 1;
                    }
                });
            }
        });
        assert_eq!(count.into_inner().expect("whole"), 400);
    }
}
