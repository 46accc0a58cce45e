//! The lock of a board store: one writer at a time.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::tree::chown_to_parent;

/// The lock, held until dropped. The kernel releases it when the process dies.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
#[error("can't take the lock {}", path.display())]
pub struct FileLockError {
    path: PathBuf,
    source: io::Error,
}

impl FileLock {
    /// Waits for the lock at `path`. We never remove the file. If another program removes it while we wait, we hold a
    /// lock on a file that no other process will open, so we take the lock anew.
    pub fn take(path: &Path) -> Result<Self, FileLockError> {
        let failed = |source| FileLockError { path: path.to_owned(), source };
        loop {
            let file =
                OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(failed)?;
            if let Some(folder) = path.parent() {
                let folder = File::open(folder).map_err(failed)?;
                chown_to_parent(&file, &folder).map_err(|error| failed(error.into()))?;
            }
            loop {
                match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                    Ok(()) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(failed(error.into())),
                }
            }
            let ours = file.metadata().map_err(failed)?;
            match std::fs::metadata(path) {
                Ok(named) if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) => {
                    return Ok(Self { _file: file });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_lock_on_a_file_that_was_removed_meanwhile_is_taken_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lock");
        let first = FileLock::take(&path).expect("the lock");
        let (ready, waits) = mpsc::channel();
        let second = {
            let path = path.clone();
            std::thread::spawn(move || {
                ready.send(()).expect("sent");
                let lock = FileLock::take(&path).expect("the lock");
                let named = std::fs::metadata(&path).expect("the file");
                let held = lock._file.metadata().expect("the file");
                assert_eq!(named.ino(), held.ino(), "what is held is what others will look for");
            })
        };
        waits.recv().expect("ready");
        std::fs::remove_file(&path).expect("removed");
        drop(first);
        second.join().expect("taken");
    }
}
