//! The file of a store: only its user can read it, and it is there as a whole or not at all.
//!
//! A new store is made under a name of its own and renamed when it is complete. So a program that finds the file finds
//! all of it, many may begin at once, and an empty file is damage and never a beginning.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, RenameFlags, accessat, renameat_with};
use rustix::io::Errno;

/// Why a file is not taken for a store.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreFileError {
    #[error("it is not a file")]
    NotAFile,
    #[error("it is empty, and a store never is; `agency store rebuild` makes a new one")]
    Empty,
    #[error("it is the database of another program")]
    Foreign,
    #[error("can't {doing} {}", path.display())]
    Files { doing: &'static str, path: PathBuf, source: io::Error },
}

fn files(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> StoreFileError {
    move |source| StoreFileError::Files { doing, path: path.to_owned(), source }
}

/// Whether there is a store to be opened, and to be written.
pub(super) fn look(path: &Path) -> Result<bool, StoreFileError> {
    // SQLite would say of a folder or a file that can't be written that it "can't open" the database.
    let folder = folder(path);
    may(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(files("write in", folder))?;
    let stat = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other.map_err(files("look at", path))?,
    };
    if !stat.is_file() {
        return Err(StoreFileError::NotAFile);
    }
    // To SQLite this is a new database, and the log beside it, with all that was committed, is to be deleted.
    if stat.len() == 0 {
        return Err(StoreFileError::Empty);
    }
    may(path, Access::READ_OK | Access::WRITE_OK).map_err(files("write", path))?;
    Ok(true)
}

fn may(path: &Path, access: Access) -> io::Result<()> {
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A store in the making. What is not put in its place is removed.
#[derive(Debug)]
pub(super) struct NewStoreFile {
    path: PathBuf,
}

impl NewStoreFile {
    pub(super) fn beside(path: &Path) -> Result<Self, StoreFileError> {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.new", random().map_err(files("name a file beside", path))?));
        let draft = Self { path: folder(path).join(name) };
        draft.make().map_err(files("make", &draft.path))?;
        Ok(draft)
    }

    fn make(&self) -> io::Result<()> {
        // The journal gets the mode of this file; SQLite sees to that.
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&self.path).map(drop)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its name, unless another program was faster: then that file is as good.
    pub(super) fn put(self, path: &Path) -> Result<(), StoreFileError> {
        let put = match renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE) {
            // Not every file system knows how to.
            Err(Errno::INVAL) => fs::hard_link(&self.path, path),
            other => other.map_err(io::Error::from),
        };
        match put {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.and_then(|()| File::open(folder(path))?.sync_all()).map_err(files("make", path)),
        }
    }
}

impl Drop for NewStoreFile {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm", "-journal"] {
            let mut name = self.path.clone().into_os_string();
            name.push(end);
            let _ = fs::remove_file(name);
        }
    }
}

fn random() -> io::Result<String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes)))
}
