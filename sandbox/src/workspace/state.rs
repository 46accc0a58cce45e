//! Where runs keep their files, and how what a crash left is removed.
//!
//! Inside a repository the state lies in `<git-common-dir>/agency`: not in the work tree, where `git clean`
//! would delete it and an overlay would contain itself. Elsewhere it lies in the user's state folder. Each
//! run has a folder there and holds a lock on it for as long as it lives; a folder without a holder is what
//! a killed run left, and the next one removes it.

use std::cell::OnceCell;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::erase;
use crate::nonce::nonce;

/// Its name in a repository's common directory.
pub(crate) const IN_REPOSITORY: &str = "agency";
/// Where each run has its folder in it.
const SANDBOXES: &str = "sandboxes";

/// The state folder of a workspace.
#[derive(Debug, Clone)]
pub struct State {
    path: PathBuf,
    /// Who may pass through its folders.
    mode: u32,
}

const OURS_ALONE: u32 = 0o700;
/// Others pass, and see nothing but what they know the name of and may.
const PASSABLE: u32 = 0o711;

impl State {
    /// In the repository with this common directory.
    pub fn in_repository(common: &Path) -> io::Result<Self> {
        let path = common.join(IN_REPOSITORY);
        if !path.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            // Root working on somebody's repository leaves nothing there they could not remove.
            let owner = fs::metadata(common)?;
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(&path, Some(owner.uid()), Some(owner.gid()))?;
            }
        }
        Ok(Self { path, mode: OURS_ALONE })
    }

    /// For private copies of workspaces. They lie outside every repository, where a tool that looks for its
    /// project above its folder finds no other one; root's lie where an agent that is nobody gets to.
    pub fn for_copies(base: &Path, root: bool) -> io::Result<Self> {
        let mode = if root { PASSABLE } else { OURS_ALONE };
        let path = base.join("agency");
        DirBuilder::new().recursive(true).mode(mode).create(&path)?;
        Ok(Self { path, mode })
    }

    /// For a folder that is in no repository. `base` is the user's state folder.
    pub fn for_folder(base: &Path, folder: &Path) -> io::Result<Self> {
        let name: String = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let path = base.join("agency/folders").join(format!("{name}-{:016x}", fingerprint(folder)));
        DirBuilder::new().recursive(true).mode(OURS_ALONE).create(&path)?;
        Ok(Self { path, mode: OURS_ALONE })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in it, made if it is missing.
    pub fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        if path.is_dir() {
            return Ok(path);
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }

    /// A run: its folder has a name, and is made when it is first needed.
    pub fn run(&self) -> Run {
        // Without namespaces, agents of one user could change modes and times in each other's copies: nothing of ours tells
        // this name, and nobody can guess it.
        let name = nonce();
        Run { path: self.path.join(SANDBOXES).join(name), mode: self.mode, held: OnceCell::new() }
    }
}

/// Removes what killed runs left: the folders nobody holds.
fn sweep(runs: &Path) {
    let Ok(entries) = fs::read_dir(runs) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(folder) = File::open(&path) else { continue };
        if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
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
    held: OnceCell<File>,
}

impl Run {
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
        let all = File::open(runs)?;
        // A new folder is not held for a moment. Whoever sweeps keeps everybody from making one meanwhile.
        if flock(&all, FlockOperation::NonBlockingLockExclusive).is_ok() {
            sweep(runs);
        }
        flock(&all, FlockOperation::LockShared)?;
        DirBuilder::new().mode(self.mode).create(&self.path)?;
        let held = File::open(&self.path)?;
        flock(&held, FlockOperation::NonBlockingLockExclusive)?;
        let _ = self.held.set(held);
        Ok(())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The kernel may still be at its own part of an overlay. What can't be removed is swept by the next run.
        if self.held.get().is_some() && erase::tree(&self.path).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let _ = erase::tree(&self.path);
        }
    }
}

/// FNV-1a: short, stable, and only there to tell folders of one name apart.
fn fingerprint(path: &Path) -> u64 {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_killed_is_swept_and_one_that_lives_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = State::for_folder(folder.path(), Path::new("/some/folder")).expect("state");
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
}
