//! The folder of one run, removed with it; what killed runs left is removed by the next.
//!
//! A run holds a lock on its folder for as long as it lives, so a folder that no process holds is a dead run's. A run
//! whose command has ended, and whose changes are still to be collected, says so ([`RunFolder::keep_while`]): if it is
//! killed then, another process can go on from there ([`RunFolder::adopt`]).

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

use crate::nonce::nonce;
use crate::{boot, erase};

/// The workspace's copy in the folder of its run.
pub(crate) const TREE: &str = "tree";

/// Where each run has its folder, in the state folder.
const SANDBOXES: &str = "sandboxes";

/// In the folder of a run: a boot, and the path of a file. In that boot, and while the file exists, the folder is kept.
///
/// It is the first thing of a folder to be removed, so a folder that has it is whole.
const KEPT: &str = "kept";
/// Nothing goes on from a run that was killed so long ago.
const LONGEST_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How many times we try to adopt a folder, a millisecond apart. A sweeping process has it for a moment.
const TRIES: usize = 200;

/// Whether the folder of a killed run is to stay.
fn is_kept(run: &Path) -> bool {
    let Ok(text) = fs::read(run.join(KEPT)) else { return false };
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else { return false };
    let (noted, needed) = (String::from_utf8_lossy(&text[..end]), OsStr::from_bytes(&text[end + 1..]));
    let changed = fs::symlink_metadata(needed).and_then(|stat| stat.modified());
    let age = changed.map(|at| at.elapsed().unwrap_or_default());
    boot::is(&noted) && age.is_ok_and(|age| age < LONGEST_KEPT)
}

/// Removes the folder of a run, so that what is left of it is never taken for a whole one.
fn remove(run: &Path) -> io::Result<()> {
    match fs::remove_file(run.join(KEPT)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => erase::tree(run),
    }
}

/// Removes what killed runs left: the folders that are neither held nor kept.
fn sweep(runs: &Path) {
    let Ok(entries) = fs::read_dir(runs) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(folder) = open_folder(&path) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() && !is_kept(&path) {
            // Best effort: the next run tries again if this fails.
            let _ = remove(&path);
        }
    }
}

/// The folder of one run. It is removed with the run.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    mode: u32,
    held: OnceCell<OwnedFd>,
}

impl RunFolder {
    /// A new one, in the state folder at `state`.
    pub(super) fn new_in(state: &Path, mode: u32) -> Self {
        // Without namespaces, agents of one user could change modes and times in each other's copies: nothing of ours
        // tells this name, and it can't be guessed.
        Self { path: state.join(SANDBOXES).join(nonce()), mode, held: OnceCell::new() }
    }

    /// One that was kept when its process was killed, to go on from where it stood. It is removed with this one.
    pub fn adopt(path: &Path) -> io::Result<Self> {
        let folder = open_folder(path)?;
        let mut tries = 1..TRIES;
        while let Err(error) = flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            tries.next().ok_or(error)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        // Another process may have begun to remove it.
        if !is_kept(path) {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the folder of its run is not whole any more",
            ));
        }
        let held = OnceCell::new();
        let _ = held.set(folder);
        Ok(Self { path: path.to_owned(), mode: 0o700, held })
    }

    /// Keeps the folder while a file exists, even if this process is killed.
    pub fn keep_while(&self, file: &Path) -> io::Result<()> {
        let boot =
            boot::id().ok_or_else(|| io::Error::other("the kernel does not say which boot this is"))?;
        let text = [boot.as_bytes(), b"\n", file.as_os_str().as_bytes()].concat();
        fs::write(self.path.join(KEPT), text)
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

impl Drop for RunFolder {
    fn drop(&mut self) {
        // The kernel may still be at its own part of an overlay. What can't be removed is swept by the next run.
        if self.held.get().is_some() && remove(&self.path).is_err() {
            std::thread::sleep(Duration::from_millis(20));
            let _ = remove(&self.path);
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
    use crate::workspace::state::StateFolder;

    #[test]
    fn a_run_that_was_killed_is_swept_and_one_that_lives_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::at(folder.path());
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
    fn kill(run: RunFolder) {
        flock(run.held.get().expect("held"), FlockOperation::Unlock).expect("unlocked");
        std::mem::forget(run);
    }

    #[test]
    fn a_killed_run_that_is_needed_stays_and_can_be_gone_on_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateFolder::at(folder.path());
        let needed = folder.path().join("needed");
        let killed = state.run();
        killed.make().expect("a folder");
        killed.keep_while(&needed).expect("written");
        fs::write(&needed, "").expect("written");
        let path = killed.path().to_owned();
        assert!(RunFolder::adopt(&path).is_err(), "it lives");
        kill(killed);
        state.run().make().expect("a folder");
        assert!(path.exists(), "it is needed");
        drop(RunFolder::adopt(&path).expect("adopted"));
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

    /// A folder that was kept and then killed, with a file that needs it.
    fn killed_run(folder: &Path) -> (StateFolder, PathBuf, PathBuf) {
        let (state, needed) = (StateFolder::at(folder), folder.join("needed"));
        fs::write(&needed, "").expect("written");
        let run = state.run();
        run.make().expect("a folder");
        run.keep_while(&needed).expect("written");
        let path = run.path().to_owned();
        kill(run);
        (state, path, needed)
    }

    #[test]
    fn a_folder_whose_removal_has_begun_is_not_gone_on_with() {
        let folder = tempfile::tempdir().expect("a folder");
        let (state, path, _needed) = killed_run(folder.path());
        fs::create_dir_all(path.join("upper/src")).expect("folders");
        // The process that removed it was killed after the first step.
        fs::remove_file(path.join(KEPT)).expect("removed");
        let refused = RunFolder::adopt(&path).expect_err("half of it may be gone");
        assert!(refused.to_string().contains("not whole"), "{refused}");
        state.run().make().expect("a folder");
        assert!(!path.exists(), "the next sandbox removes the rest");
    }

    #[test]
    fn nothing_is_kept_beyond_its_day_or_its_boot() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_state, path, needed) = killed_run(folder.path());
        assert!(is_kept(&path));
        let file = fs::File::options().write(true).open(&needed).expect("opened");
        file.set_modified(std::time::SystemTime::now() - LONGEST_KEPT).expect("set");
        assert!(!is_kept(&path), "it is too old");
        file.set_modified(std::time::SystemTime::now()).expect("set");
        assert!(is_kept(&path));
        let another = [b"another\n", needed.as_os_str().as_bytes()].concat();
        fs::write(path.join(KEPT), another).expect("written");
        assert!(!is_kept(&path) && RunFolder::adopt(&path).is_err(), "it may lack what was never synced");
    }
}
