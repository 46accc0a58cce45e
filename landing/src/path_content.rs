//! Compares the content at a path of a person's folder byte for byte with what git would put there.
//!
//! No time or size that was recorded earlier is trusted.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use agency_sandbox::harvest::HarvestEntry;
use agency_sandbox::path::RelPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// What a path has.
#[derive(Debug)]
pub(super) enum PathContent {
    Nothing,
    /// An entry that is no folder is where a folder should be.
    Blocked(RelPath),
    Folder,
    File {
        executable: bool,
        size: u64,
    },
    Link(Vec<u8>),
    /// A device, a pipe, a socket.
    Special,
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens a folder, to read and write in it.
pub(super) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes an empty folder.
pub(super) fn remove_folder(root: BorrowedFd<'_>, path: &RelPath) -> io::Result<()> {
    let above = path.parent().filter(|above| !above.is_root());
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let name = OsStr::from_bytes(path.name());
    match above {
        None => rustix::fs::unlinkat(root, name, AtFlags::REMOVEDIR)?,
        Some(above) => {
            let held = rustix::fs::openat2(root, above.as_path(), flags, Mode::empty(), BENEATH)?;
            rustix::fs::unlinkat(held, name, AtFlags::REMOVEDIR)?;
        }
    }
    Ok(())
}

pub(super) fn look(root: BorrowedFd<'_>, path: &RelPath) -> io::Result<PathContent> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = match rustix::fs::openat2(root, path.as_path(), flags, Mode::empty(), BENEATH) {
        Ok(held) => held,
        Err(Errno::NOENT) => return Ok(PathContent::Nothing),
        Err(Errno::NOTDIR | Errno::LOOP) => return blocked(root, path),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&held)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => PathContent::Folder,
        FileType::RegularFile => PathContent::File {
            executable: stat.st_mode & 0o100 != 0,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        },
        FileType::Symlink => PathContent::Link(rustix::fs::readlinkat(&held, c"", Vec::new())?.into_bytes()),
        _ => PathContent::Special,
    })
}

fn blocked(root: BorrowedFd<'_>, path: &RelPath) -> io::Result<PathContent> {
    let mut above: Vec<RelPath> = path.ancestors().filter(|above| !above.is_root()).collect();
    while let Some(outer) = above.pop() {
        if !matches!(look(root, &outer)?, PathContent::Folder) {
            return Ok(PathContent::Blocked(outer));
        }
    }
    Ok(PathContent::Nothing)
}

impl PathContent {
    /// The entry, as a change names it. A folder has none: it consists of its files.
    pub(super) fn entry(&self) -> Option<HarvestEntry> {
        match self {
            Self::File { executable, size } => {
                Some(HarvestEntry::File { executable: *executable, size: *size })
            }
            Self::Link(target) => Some(HarvestEntry::Symlink { target: target.clone() }),
            Self::Nothing | Self::Blocked(_) | Self::Folder | Self::Special => None,
        }
    }
}

/// Whether a path has the same in two folders. The executable bit counts where the file system has one.
pub(super) fn is_same(
    path: &RelPath,
    (live, found): (BorrowedFd<'_>, &PathContent),
    made: BorrowedFd<'_>,
    modes: bool,
) -> io::Result<bool> {
    match (found, &look(made, path)?) {
        (PathContent::Link(one), PathContent::Link(other)) => Ok(one == other),
        (
            PathContent::File { executable: one, size },
            PathContent::File { executable: other, size: expected },
        ) => {
            if size != expected || (modes && one != other) {
                return Ok(false);
            }
            is_same_content(open(live, path)?, open(made, path)?)
        }
        _ => Ok(false),
    }
}

fn open(root: BorrowedFd<'_>, path: &RelPath) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::openat2(root, path.as_path(), flags, Mode::empty(), BENEATH)?))
}

fn is_same_content(mut one: File, mut other: File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        let length = fill(&mut one, &mut left)?;
        if fill(&mut other, &mut right)? != length || left[..length] != right[..length] {
            return Ok(false);
        }
        if length < left.len() {
            return Ok(true);
        }
    }
}

fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_there_is_seen_without_following_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| RelPath::parse(name.as_bytes()).expect("a path");
        fs::create_dir(folder.path().join("d")).expect("made");
        fs::write(folder.path().join("d/f"), "x").expect("written");
        std::os::unix::fs::symlink("d", folder.path().join("l")).expect("linked");
        let root = open_folder(folder.path()).expect("opens");
        let seen = |name: &str| look(root.as_fd(), &path(name)).expect("looked");
        assert!(matches!(seen("d"), PathContent::Folder));
        assert!(matches!(seen("d/f"), PathContent::File { executable: false, size: 1 }));
        assert!(matches!(seen("l"), PathContent::Link(target) if target == b"d"));
        assert!(matches!(seen("l/f"), PathContent::Blocked(above) if above == path("l")));
        assert!(matches!(seen("d/f/x"), PathContent::Blocked(above) if above == path("d/f")));
        assert!(matches!(seen("d/none/x"), PathContent::Nothing));
    }

    #[test]
    fn the_same_size_is_not_the_same_content() {
        let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
        let path = RelPath::parse(b"f").expect("a path");
        let same = |one: &[u8], other: &[u8], modes| {
            for (folder, content) in folders.iter().zip([one, other]) {
                fs::write(folder.path().join("f"), content).expect("written");
            }
            let held = [0, 1].map(|at: usize| open_folder(folders[at].path()).expect("opens"));
            let found = look(held[0].as_fd(), &path).expect("looked");
            is_same(&path, (held[0].as_fd(), &found), held[1].as_fd(), modes).expect("compared")
        };
        assert!(same(b"abc", b"abc", true));
        assert!(!same(b"abc", b"abd", true));
        let large = vec![7; 200_000];
        assert!(same(&large, &large, true));
        use std::os::unix::fs::PermissionsExt;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folders[0].path().join("f"), executable).expect("chmod");
        assert!(!same(b"abc", b"abc", true));
        assert!(same(b"abc", b"abc", false));
    }
}
