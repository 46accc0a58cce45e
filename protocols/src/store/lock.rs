//! One writer at a time.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::tree::give;

/// The right to write, held until dropped. The kernel gives it back when its holder dies, however it dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
#[error("can't take the lock {}", path.display())]
pub struct LockError {
    path: PathBuf,
    source: io::Error,
}

impl Lock {
    /// Waits for the lock at `path`. The file is never removed by us; should somebody else remove it while we
    /// wait, the lock we get is on a file that nobody will look for again, so it is taken anew.
    pub fn take(path: &Path) -> Result<Self, LockError> {
        let failed = |source| LockError { path: path.to_owned(), source };
        loop {
            let file =
                OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(failed)?;
            if let Some(folder) = path.parent() {
                let folder = File::open(folder).map_err(failed)?;
                give(&file, &folder).map_err(|error| failed(error.into()))?;
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
        let first = Lock::take(&path).expect("the lock");
        let (ready, waits) = mpsc::channel();
        let second = {
            let path = path.clone();
            std::thread::spawn(move || {
                ready.send(()).expect("sent");
                let lock = Lock::take(&path).expect("the lock");
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
