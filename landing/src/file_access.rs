//! How files are read, written and removed: our own, and those of the person's repository.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use agency_sandbox::durable;
use agency_sandbox::untrusted::{self, UntrustedError};

use super::error::{Error, files};
use super::path_content;

/// A file name that no other thread or process uses.
pub(super) fn unique_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Syncs a folder of the repository, if it exists: the names in it survive a crash of the machine then.
pub(super) fn sync_names_in(folder: &Path) -> Result<(), Error> {
    match path_content::open_folder(folder).and_then(|folder| Ok(rustix::fs::fsync(folder)?)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        synced => synced.map_err(files("sync", folder)),
    }
}

/// Writes a file of ours durably.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), Error> {
    durable::write(path, text.as_bytes()).map_err(files("write", path))
}

/// Removes a file or folder of ours with everything in it, if it is there.
pub(super) fn remove_tree(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Reads a file of the person's repository, up to a size. Anything at the path that is no regular file counts as missing.
pub(super) fn read_file(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let (folder, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    match untrusted::read(folder, name, most) {
        Ok(found) => Ok(found),
        Err(UntrustedError::Kind { .. }) => Ok(None),
        Err(UntrustedError::Io { source, .. }) => match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(source),
        },
        Err(refused) => Err(io::Error::other(refused)),
    }
}

/// Reads a text of the person's repository; `None` if the file is gone, or a folder by now.
pub(super) fn read_text(path: &Path) -> Result<Option<String>, Error> {
    const MOST: u64 = 256 << 20;
    let contents = read_file(path, MOST).map_err(files("read", path))?;
    Ok(contents.map(|contents| String::from_utf8_lossy(&contents).into_owned()))
}
