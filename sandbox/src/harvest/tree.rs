//! A directory tree reached only through descriptors.
//!
//! What an agent left behind is opened beneath a directory we already hold, never by a path that the kernel
//! resolves from somewhere else, and never through a link. Nothing here recurses, and nothing holds more than
//! a few descriptors: a directory is opened anew from the root of the tree each time, which is one system
//! call because no path is longer than [`PATH_MAX`].

use std::ffi::CStr;
use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::path::RelPath;

/// The longest path the kernel resolves in one call, and the longest that git or any other tool could be
/// handed. It also bounds how deep a tree is followed: no more than half as many directories.
pub(crate) const PATH_MAX: usize = 4095;

/// How much is read at once when contents are compared, copied or searched.
pub(crate) const CHUNK: usize = 128 * 1024;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Without O_NONBLOCK, opening a FIFO waits for its other end for ever.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// What a name of a directory stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Directory,
    File,
    Symlink,
    Fifo,
    Socket,
    /// A character device 0:0, with which overlayfs marks a deleted name. As a device it can't be opened.
    Whiteout,
    Device,
}

pub(crate) fn kind(stat: &Stat) -> NodeKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => NodeKind::Directory,
        FileType::RegularFile => NodeKind::File,
        FileType::Symlink => NodeKind::Symlink,
        FileType::Fifo => NodeKind::Fifo,
        FileType::Socket => NodeKind::Socket,
        FileType::CharacterDevice if stat.st_rdev == 0 => NodeKind::Whiteout,
        _ => NodeKind::Device,
    }
}

pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Git knows one bit of a file's mode: whether its owner may execute it.
pub(crate) fn is_executable(stat: &Stat) -> bool {
    stat.st_mode & 0o100 != 0
}

fn open(root: BorrowedFd<'_>, path: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
    let path: &[u8] = if path.is_root() { b"." } else { path.as_bytes() };
    fs::openat2(root, path, flags, Mode::empty(), BENEATH)
}

/// A directory beneath `root`, no part of its path a link or a mount point.
pub(crate) fn open_directory(root: BorrowedFd<'_>, path: &RelPath) -> Result<OwnedFd, Errno> {
    open(root, path, READ | OFlags::DIRECTORY)
}

/// Like [`open_directory`], for a tree whose owner may have locked us out of it: the lock is opened.
pub(crate) fn unlock_directory(root: BorrowedFd<'_>, path: &RelPath) -> Result<OwnedFd, Errno> {
    match open_directory(root, path) {
        Err(Errno::ACCESS) => {
            unlock(&open(root, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?, 0o700)?;
            open_directory(root, path)
        }
        other => other,
    }
}

/// Opens a directory's lock even where only some rights are missing.
pub(crate) fn unlock_fully(directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    let held = fs::openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    unlock(&held, 0o700)
}

/// A regular file and what it is. Anything else under that name is refused, also one that took the place of
/// a file after it was looked at.
pub(crate) fn open_file(directory: BorrowedFd<'_>, name: &RelPath) -> Result<(File, Stat), Errno> {
    let file = open(directory, name, READ)?;
    let stat = fs::fstat(&file)?;
    match kind(&stat) {
        NodeKind::File => Ok((File::from(file), stat)),
        NodeKind::Symlink => Err(Errno::LOOP),
        _ => Err(Errno::INVAL),
    }
}

/// Like [`open_file`], where the agent may have taken our permission away. The mode that is returned is the
/// one it chose.
pub(crate) fn unlock_file(directory: BorrowedFd<'_>, name: &RelPath) -> Result<(File, Stat), Errno> {
    match open_file(directory, name) {
        Err(Errno::ACCESS) => {
            let held = open(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
            let original = fs::fstat(&held)?;
            unlock(&held, 0o400)?;
            let (file, mut stat) = open_file(directory, name)?;
            stat.st_mode = original.st_mode;
            Ok((file, stat))
        }
        other => other,
    }
}

/// Adds permission bits to the file that the descriptor holds, even if its name leads elsewhere by now. An O_PATH
/// descriptor takes no fchmod; its entry in /proc leads to the very inode.
fn unlock(held: &OwnedFd, bits: u32) -> Result<(), Errno> {
    let stat = fs::fstat(held)?;
    if !matches!(kind(&stat), NodeKind::Directory | NodeKind::File) {
        return Err(Errno::ACCESS);
    }
    fs::chmod(
        format!("/proc/self/fd/{}", held.as_raw_fd()),
        Mode::from_raw_mode(stat.st_mode & 0o7777 | bits),
    )
}

/// What a name stands for, `None` when there is nothing.
pub(crate) fn inspect(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Stat>, Errno> {
    match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn read_link(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    fs::readlinkat(directory, name, Vec::new()).map(|target| target.into_bytes())
}

/// Calls `seen` with each name in a directory and its type, as far as the file system says it in a listing, until it
/// breaks.
pub(crate) fn each_name(
    directory: BorrowedFd<'_>,
    mut seen: impl FnMut(&[u8], FileType) -> ControlFlow<()>,
) -> Result<(), Errno> {
    // The descriptor remembers how far it was read before.
    fs::seek(directory, fs::SeekFrom::Start(0))?;
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut listing = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") && seen(name, entry.file_type()).is_break() {
            break;
        }
    }
    Ok(())
}

/// The names in a directory, at most `limit` of them and one more.
pub(crate) fn names(directory: BorrowedFd<'_>, limit: usize) -> Result<Vec<Box<[u8]>>, Errno> {
    let mut names = Vec::new();
    each_name(directory, |name, _| {
        names.push(name.into());
        if names.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(names)
}

/// The extended attributes of an open file or directory that mean something to a harvest. Overlayfs keeps
/// its own in the `trusted` namespace when root mounted it and in `user` otherwise. The agent can forge the
/// latter on a mount of the former kind, and gains nothing: what it can pretend are deletions, which are
/// judged like real ones, or a redirection, which is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OverlayMarks {
    pub(crate) opaque: bool,
    pub(crate) whiteout: bool,
    pub(crate) origin: bool,
    /// `redirect` or `metacopy`: the data is somewhere else.
    pub(crate) elsewhere: bool,
    pub(crate) capability: bool,
}

pub(crate) fn marks(held: BorrowedFd<'_>) -> Result<OverlayMarks, Errno> {
    // 64 KiB is the most the kernel ever lists.
    let mut list = Vec::with_capacity(1024);
    match fs::flistxattr(held, spare_capacity(&mut list)) {
        Err(Errno::RANGE) => {
            list = Vec::with_capacity(64 * 1024);
            fs::flistxattr(held, spare_capacity(&mut list))?;
        }
        Err(Errno::NOTSUP) => return Ok(OverlayMarks::default()),
        other => drop(other?),
    }
    let mut marks = OverlayMarks::default();
    for name in list.split_inclusive(|byte| *byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        match name.to_bytes() {
            b"trusted.overlay.opaque" | b"user.overlay.opaque" => marks.opaque |= is_yes(held, name)?,
            b"trusted.overlay.whiteout" | b"user.overlay.whiteout" => marks.whiteout = true,
            b"trusted.overlay.origin" | b"user.overlay.origin" => marks.origin = true,
            b"trusted.overlay.redirect"
            | b"user.overlay.redirect"
            | b"trusted.overlay.metacopy"
            | b"user.overlay.metacopy" => marks.elsewhere = true,
            b"security.capability" => marks.capability = true,
            _ => {}
        }
    }
    Ok(marks)
}

/// `y` makes a directory opaque. `x` only says that whiteouts in it may be marked by an attribute.
fn is_yes(held: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    let mut value = [0u8; 2];
    match fs::fgetxattr(held, name, &mut value[..]) {
        Ok(length) => Ok(&value[..length] == b"y"),
        Err(Errno::RANGE) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Fills as much of the buffer as the file has left.
pub(crate) fn fill(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Whether two files hold the same bytes. Sizes that differ decide it without reading; nothing else does.
pub(crate) fn same_content(one: (File, Stat), other: (File, Stat)) -> std::io::Result<bool> {
    if one.1.st_size != other.1.st_size {
        return Ok(false);
    }
    let (mut one, mut other) = (one.0, other.0);
    let small = usize::try_from(size(&fs::fstat(one.as_fd())?)).unwrap_or(CHUNK).saturating_add(1).min(CHUNK);
    let (mut left, mut right) = (vec![0; small], vec![0; small]);
    loop {
        let length = fill(&mut one, &mut left)?;
        if fill(&mut other, &mut right)? != length || left[..length] != right[..length] {
            return Ok(false);
        }
        if length < small {
            return Ok(true);
        }
    }
}
