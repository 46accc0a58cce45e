//! Files of the state folder, written so that they are there whole or not at all, and stay after a crash of the
//! machine.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Puts a file in its place, and replaces what was there.
pub fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    put(path, ".new", |file| {
        file.write_all(contents)?;
        file.sync_all()
    })?;
    sync_folder(path)
}

/// The same for what need not outlive a crash of the machine. Several may write the same file at once, each with an end of
/// a name that is its own.
pub fn write_unsynced(path: &Path, own: &str, contents: &[u8]) -> io::Result<()> {
    put(path, &format!(".{own}.new"), |file| file.write_all(contents))
}

/// Fills a file beside the path, and renames it. Of one that can't be filled nothing stays.
fn put(path: &Path, ending: &str, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(ending);
    let beside = Path::new(&beside);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(beside)?;
    let placed = fill(&mut file).and_then(|()| fs::rename(beside, path));
    if placed.is_err() {
        let _ = fs::remove_file(beside);
    }
    placed
}

/// Makes an empty file that says something by being there. `false` if it said so already.
pub fn mark(path: &Path) -> io::Result<bool> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => sync_folder(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes a folder, and those above it. Returns the new ones, whose names are not on the disk yet ([`sync_folder`]).
pub fn folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut missing: Vec<&Path> = path.ancestors().take_while(|above| !above.is_dir()).collect();
    missing.reverse();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    Ok(missing.into_iter().map(Path::to_owned).collect())
}

/// Makes the names in the folder around a path survive a crash of the machine.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}
