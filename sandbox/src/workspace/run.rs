//! The folder of one run, removed with it; what killed runs left is removed by the next.
//!
//! A run holds a lock on its folder for as long as it lives, so a folder that nobody holds is a dead run's. A run whose
//! command has ended, and whose changes are still to be collected, says so ([`Run::keep_while`]): if it is killed then,
//! another process can go on from there ([`Run::adopt`]).

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::erase;
use crate::nonce::nonce;

/// Where each run has its folder, in the state folder.
const SANDBOXES: &str = "sandboxes";

/// In the folder of a run: the path of a file. While that exists, the folder is kept.
const KEPT: &str = "kept";
/// Nothing goes on from a run that was killed so long ago.
const LONGEST_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Whether the folder of a killed run is to stay.
fn is_kept(run: &Path) -> bool {
    let Ok(needed) = fs::read(run.join(KEPT)) else { return false };
    let needed = fs::symlink_metadata(Path::new(OsStr::from_bytes(&needed)));
    let age = needed.and_then(|stat| stat.modified()).map(|at| at.elapsed().unwrap_or_default());
    age.is_ok_and(|age| age < LONGEST_KEPT)
}

/// Removes what killed runs left: the folders nobody holds and nobody needs.
fn sweep(runs: &Path) {
    let Ok(entries) = fs::read_dir(runs) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(folder) = open_folder(&path) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() && !is_kept(&path) {
            // Best effort: whatever resists is tried again by the next run.
            let _ = erase::tree(&path);
        }
    }
}

/// The folder of one run. It is removed with the run.
#[derive(Debug)]
pub struct Run {
    path: PathBuf,
    mode: u32,
    held: OnceCell<OwnedFd>,
}

impl Run {
    /// A new one, in the state folder at `state`.
    pub(super) fn below(state: &Path, mode: u32) -> Self {
        // Without namespaces, agents of one user could change modes and times in each other's copies: nothing of ours tells
        // this name, and nobody can guess it.
        Self { path: state.join(SANDBOXES).join(nonce()), mode, held: OnceCell::new() }
    }

    /// One whose process was killed, to go on from where it stood. It is removed with this one.
    pub fn adopt(path: &Path) -> io::Result<Self> {
        let folder = open_folder(path)?;
        flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
        let held = OnceCell::new();
        let _ = held.set(folder);
        Ok(Self { path: path.to_owned(), mode: 0o700, held })
    }

    /// Keeps the folder while a file exists, even if this process is killed.
    pub fn keep_while(&self, file: &Path) -> io::Result<()> {
        fs::write(self.path.join(KEPT), file.as_os_str().as_bytes())
    }

    /// Where it is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it, and holds it until the run is dropped.
    pub fn make(&self) -> io::Result<()> {
        if self.held.get().is_some() {
            return Ok(());
        }
        let runs = self.path.parent().unwrap_or(&self.path);
        DirBuilder::new().recursive(true).mode(self.mode).create(runs)?;
        let all = open_folder(runs)?;
        // A new folder is not held for a moment. The run that sweeps keeps others from making one meanwhile.
        if flock(&all, FlockOperation::NonBlockingLockExclusive).is_ok() {
            sweep(runs);
        }
        flock(&all, FlockOperation::LockShared)?;
        DirBuilder::new().mode(self.mode).create(&self.path)?;
        let held = open_folder(&self.path)?;
        flock(&held, FlockOperation::NonBlockingLockExclusive)?;
        let _ = self.held.set(held);
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The kernel may still be at its own part of an overlay. What can't be removed is swept by the next run.
        if self.held.get().is_some() && erase::tree(&self.path).is_err() {
            std::thread::sleep(Duration::from_millis(20));
            let _ = erase::tree(&self.path);
        }
    }
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::state::State;

    #[test]
    fn a_run_that_was_killed_is_swept_and_one_that_lives_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = State::at(folder.path());
        let living = state.run();
        living.make().expect("a folder");
        let dead = state.path().join("sandboxes/dead");
        fs::create_dir_all(dead.join("upper/x")).expect("folders");
        let third = state.run();
        third.make().expect("a folder");
        assert!(living.path().exists() && third.path().exists());
        assert!(!dead.exists());
        let path = third.path().to_owned();
        drop(third);
        assert!(!path.exists());
    }

    /// Nothing is removed, and the lock is free.
    fn kill(run: Run) {
        flock(run.held.get().expect("held"), FlockOperation::Unlock).expect("unlocked");
        std::mem::forget(run);
    }

    #[test]
    fn a_killed_run_that_is_needed_stays_and_can_be_gone_on_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = State::at(folder.path());
        let needed = folder.path().join("needed");
        let killed = state.run();
        killed.make().expect("a folder");
        killed.keep_while(&needed).expect("written");
        fs::write(&needed, "").expect("written");
        let path = killed.path().to_owned();
        assert!(Run::adopt(&path).is_err(), "it lives");
        kill(killed);
        state.run().make().expect("a folder");
        assert!(path.exists(), "it is needed");
        drop(Run::adopt(&path).expect("adopted"));
        assert!(!path.exists(), "it went with who adopted it");
        let killed = state.run();
        killed.make().expect("a folder");
        killed.keep_while(&needed).expect("written");
        let path = killed.path().to_owned();
        kill(killed);
        fs::remove_file(&needed).expect("removed");
        state.run().make().expect("a folder");
        assert!(!path.exists(), "nobody needs it");
    }
}
