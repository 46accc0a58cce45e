//! The one way to open a file that another program may have written.
//!
//! A repository arrives with its files and its `.git`, and either may hold a link to `~/.ssh`, a pipe that never
//! answers, a device that acts on being opened, or a file of eight gigabytes. So a path is resolved beneath the folder
//! it belongs to, links that stay there included; its target is checked before it is opened for reading; only
//! regular files are read, and only up to a size the caller names. The file that is checked is the file that is read:
//! both go through one descriptor, even if the name leads elsewhere by then.

use std::ffi::{CStr, OsStr};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
pub enum UntrustedError {
    #[error("{} is {kind}, not a regular file; remove it, or put a file in its place", path.display())]
    Kind { path: PathBuf, kind: FileKind },
    #[error("{} is a link that leads out of {}; put a file in its place", path.display(), root.display())]
    LeadsOut { path: PathBuf, root: PathBuf },
    #[error("{} has {size} bytes, and at most {most} are read; make it smaller, or move it away", path.display())]
    TooLarge { path: PathBuf, size: u64, most: u64 },
    #[error("can't read {}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// What a path is that is no regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileKind(FileType);

impl FileKind {
    /// `None` for a regular file.
    pub fn of(stat: &rustix::fs::Stat) -> Option<Self> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        (kind != FileType::RegularFile).then_some(Self(kind))
    }

    pub fn is_folder(self) -> bool {
        self.0 == FileType::Directory
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            FileType::Directory => "a folder",
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            FileType::Symlink => "a link",
            FileType::CharacterDevice | FileType::BlockDevice => "a device",
            _ => "something else",
        })
    }
}

/// The bytes of the file at `path` below `root`; `None` where there is nothing.
pub fn read(root: &Path, path: impl AsRef<Path>, most: u64) -> Result<Option<Vec<u8>>, UntrustedError> {
    let Some(file) = open(root, path.as_ref(), most)? else { return Ok(None) };
    let mut bytes = Vec::new();
    let shown = || root.join(path.as_ref());
    // It may have grown since it was looked at.
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|source| UntrustedError::Io { path: shown(), source })?;
    match bytes.len() as u64 {
        size if size > most => Err(UntrustedError::TooLarge { path: shown(), size, most }),
        _ => Ok(Some(bytes)),
    }
}

/// The same, as text; bytes that are none are replaced.
pub fn read_text(root: &Path, path: impl AsRef<Path>, most: u64) -> Result<Option<String>, UntrustedError> {
    Ok(read(root, path, most)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// The file at `path` below `root`, opened for reading; `None` where there is nothing.
pub fn open(root: &Path, path: &Path, most: u64) -> Result<Option<File>, UntrustedError> {
    let Some(held) = look(root, path, most)? else { return Ok(None) };
    let failed = |error: Errno| UntrustedError::Io { path: root.join(path), source: error.into() };
    reopen(held.as_fd()).map(Some).map_err(failed)
}

/// Looks at a file before anything opens it; `None` where there is nothing.
fn look(root: &Path, path: &Path, most: u64) -> Result<Option<OwnedFd>, UntrustedError> {
    let shown = || root.join(path);
    let failed = |error: Errno| match error {
        Errno::XDEV | Errno::LOOP => UntrustedError::LeadsOut { path: shown(), root: root.to_owned() },
        error => UntrustedError::Io { path: shown(), source: error.into() },
    };
    let held = match hold(root, path, OFlags::PATH) {
        Ok(held) => held,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let stat = rustix::fs::fstat(&held).map_err(failed)?;
    if let Some(kind) = FileKind::of(&stat) {
        return Err(UntrustedError::Kind { path: shown(), kind });
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    match size > most {
        true => Err(UntrustedError::TooLarge { path: shown(), size, most }),
        false => Ok(Some(held)),
    }
}

/// That each of these is a regular file of at most so many bytes, or nothing, for programs that open them by name: they
/// would wait for ever, or read all of it.
pub fn check(root: &Path, files: &[(&str, u64)]) -> Result<(), UntrustedError> {
    files.iter().try_for_each(|(name, most)| look(root, Path::new(name), *most).map(drop))
}

/// That a path below `root` is reached through real folders, and is a regular file, a folder or nothing: for programs that
/// write there by name, and would follow a link wherever it leads.
pub fn check_real(root: &Path, path: &Path) -> Result<(), UntrustedError> {
    let shown = || root.join(path);
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::open(root, folder, Mode::empty()).and_then(|root| {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat2(root, path, flags, Mode::empty(), BENEATH | ResolveFlags::NO_SYMLINKS)
    });
    let kind = match held.and_then(|held| rustix::fs::fstat(&held)) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(Errno::LOOP) => FileType::Symlink,
        Err(error) => return Err(UntrustedError::Io { path: shown(), source: error.into() }),
    };
    match kind {
        FileType::RegularFile | FileType::Directory => Ok(()),
        kind => Err(UntrustedError::Kind { path: shown(), kind: FileKind(kind) }),
    }
}

/// Checks that nothing in a folder below `root`, or below that, is a link, a pipe, a socket or a device, for programs
/// that open everything they find there; and that no file is larger than `most`, for programs that read files whole.
/// `depth` is how far down the check goes.
pub fn check_folder(root: &Path, path: &Path, depth: usize, most: u64) -> Result<(), UntrustedError> {
    let mut waiting = vec![(path.to_owned(), depth)];
    while let Some((folder, depth)) = waiting.pop() {
        let Some(held) = open_folder(root, &folder) else { continue };
        let size = |name: &CStr| {
            let stat = rustix::fs::statat(&held, name, AtFlags::SYMLINK_NOFOLLOW);
            stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0))
        };
        let failed = |error: Errno| UntrustedError::Io { path: root.join(&folder), source: error.into() };
        for entry in Dir::read_from(&held).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = folder.join(OsStr::from_bytes(entry.file_name().to_bytes()));
            match entry.file_type() {
                _ if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                FileType::Directory if depth > 0 => waiting.push((path, depth - 1)),
                // Not every file system says what a name is.
                FileType::Unknown => check_real(root, &path)?,
                FileType::RegularFile if most < u64::MAX => {
                    let size = size(entry.file_name());
                    if size > most {
                        return Err(UntrustedError::TooLarge { path: root.join(path), size, most });
                    }
                }
                FileType::RegularFile | FileType::Directory => {}
                kind => return Err(UntrustedError::Kind { path: root.join(path), kind: FileKind(kind) }),
            }
        }
    }
    Ok(())
}

/// A folder below `root`, by descriptor; `None` where there is none, or something else.
pub fn open_folder(root: &Path, path: impl AsRef<Path>) -> Option<OwnedFd> {
    hold(root, path.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY).ok()
}

/// Whether there is anything at all at `path` below `root`, a link that leads nowhere included.
pub fn exists(root: &Path, path: impl AsRef<Path>) -> bool {
    hold(root, path.as_ref(), OFlags::PATH | OFlags::NOFOLLOW).is_ok()
}

fn hold(root: &Path, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, folder, Mode::empty())?;
    rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), BENEATH)
}

/// Opens for reading what a descriptor holds, and nothing that took its name since.
fn reopen(held: impl AsFd) -> Result<File, Errno> {
    let path = format!("/proc/self/fd/{}", held.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn said(root: &Path, name: &str) -> String {
        read(root, name, 10).expect_err("refused").to_string()
    }

    #[test]
    fn only_regular_files_below_the_folder_are_read_and_only_so_much_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, at) = (folder.path().join("root"), |name: &str| folder.path().join("root").join(name));
        fs::create_dir_all(at("below")).expect("folders");
        fs::write(folder.path().join("secret"), "secret").expect("written");
        fs::write(at("below/file"), "0123456789").expect("written");
        fs::write(at("large"), "01234567890").expect("written");
        symlink("below/file", at("inside")).expect("linked");
        symlink("../secret", at("outside")).expect("linked");
        symlink("/etc/passwd", at("absolute")).expect("linked");
        symlink("loop", at("loop")).expect("linked");
        symlink("/dev/zero", at("device")).expect("linked");
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");

        for name in ["below/file", "inside"] {
            assert_eq!(read(&root, name, 10).expect("read"), Some(b"0123456789".to_vec()), "{name}");
        }
        for name in ["none", "none/none", "below/file/none"] {
            assert!(read(&root, name, 10).expect("looked at").is_none(), "{name}");
        }
        for name in ["outside", "absolute", "device", "loop", "../secret"] {
            assert!(said(&root, name).contains("leads out of"), "{name}: {}", said(&root, name));
        }
        assert!(said(&root, "pipe").contains("is a pipe, not a regular file"));
        assert!(said(&root, "socket").contains("is a socket"));
        assert!(said(&root, "below").contains("is a folder"));
        assert!(said(&root, "large").contains("has 11 bytes, and at most 10 are read"));
        assert!(exists(&root, "outside") && exists(&root, "pipe") && !exists(&root, "none"));
        assert!(open_folder(&root, "below").is_some() && open_folder(&root, "inside").is_none());
    }
}
