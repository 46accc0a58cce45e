//! Being in charge, so that others can tell.
//!
//! Every supervisor holds a lock on a file of its own for as long as it lives. The kernel gives it back with the
//! process, however that ends, so a lock that can be taken says that its owner is dead. One that can't says only
//! that the process exists: it may have been stopped, and then its leases run out.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use agency_sandbox::boot;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::attempt::Term;
use crate::store::SupervisorProcess;
use agency_sandbox::durable;

/// Another supervisor may hold a lock for a moment, to see whether its owner is dead. It is waited for so long.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);

/// This process, as an owner.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    path: PathBuf,
    _lock: File,
}

/// Who this process is.
pub(crate) fn this_process() -> SupervisorProcess {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    SupervisorProcess { host: host.trim().to_owned(), boot: this_boot(), pid: std::process::id() }
}

fn this_boot() -> String {
    boot::id().unwrap_or_default()
}

impl OwnerLock {
    /// Shows that this process is in charge under a term.
    pub(crate) fn acquire(state: &Path, term: Term) -> io::Result<Self> {
        let path = file(state, term);
        // After a crash of the machine this folder is not needed.
        let _new = durable::folder(path.parent().unwrap_or(state))?;
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        let until = Instant::now() + PATIENCE;
        while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::AGAIN || Instant::now() >= until {
                return Err(error.into());
            }
            thread::sleep(PAUSE);
        }
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Whether the supervisor that had this term is certainly dead.
pub(crate) fn is_dead(state: &Path, term: Term, owner: &SupervisorProcess) -> bool {
    // The store is on this machine, so an owner of another boot is gone, even if the machine's name has changed.
    if owner.boot != this_boot() {
        return true;
    }
    match File::open(file(state, term)) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        // It is removed by an owner that goes, and made by one that comes before it holds anything.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Whether any supervisor that uses a state folder may be alive.
pub(crate) fn is_any_supervisor_alive(state: &Path) -> bool {
    let entries = fs::read_dir(state.join(OWNERS)).into_iter().flatten().flatten();
    let is_held = |path: PathBuf| {
        File::open(path).is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err())
    };
    entries.map(|entry| entry.path()).any(is_held)
}

const OWNERS: &str = "owners";

fn file(state: &Path, term: Term) -> PathBuf {
    state.join(OWNERS).join(term.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_dead_when_its_lock_can_be_taken() {
        let state = tempfile::tempdir().expect("a folder");
        let presence = OwnerLock::acquire(state.path(), Term(7)).expect("shown");
        assert!(!is_dead(state.path(), Term(7), &this_process()));
        assert!(OwnerLock::acquire(state.path(), Term(7)).is_err());
        drop(presence);
        assert!(is_dead(state.path(), Term(7), &this_process()));
        let before =
            SupervisorProcess { boot: "another".to_owned(), host: "elsewhere".to_owned(), ..this_process() };
        let _presence = OwnerLock::acquire(state.path(), Term(8)).expect("shown");
        assert!(is_dead(state.path(), Term(8), &before));
        let renamed = SupervisorProcess { host: "elsewhere".to_owned(), ..this_process() };
        assert!(!is_dead(state.path(), Term(8), &renamed));
    }
}
