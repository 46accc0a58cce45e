//! Copies a stack of layers as plain files into a folder.
//!
//! Files share their blocks with the original where the file system can do that. Nothing is written through a symlink: every
//! path is resolved beneath the target folder.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::harvest::tree::{self, NodeKind};
use crate::harvest::{BaseEntry, BaseLayers};
use crate::path::RelPath;

/// Copies a folder's contents into one that is there: files, links and folders, and nothing else; their owner is
/// `agent`, where that is not the caller. Bits that lend another user's rights are not copied.
pub(crate) fn copy_folder(
    from: OwnedFd,
    into: &Path,
    left_out: HashSet<RelPath>,
    agent: Option<(u32, u32)>,
) -> io::Result<()> {
    let (base, target) = (BaseLayers::new(vec![from]), open(into)?);
    TreeCopy { base: &base, target: target.as_fd(), left_out, agent }.everything()
}

pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Nothing of the copy is reached through a link.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// One copy of a layer stack into a folder that is there.
pub(crate) struct TreeCopy<'a> {
    pub(crate) base: &'a BaseLayers,
    pub(crate) target: BorrowedFd<'a>,
    pub(crate) left_out: HashSet<RelPath>,
    pub(crate) agent: Option<(u32, u32)>,
}

impl TreeCopy<'_> {
    pub(crate) fn everything(&self) -> io::Result<()> {
        let mut waiting = vec![(RelPath::root(), self.base.all())];
        // A directory that may not be written gets its mode when it is full.
        let mut finished = vec![RelPath::root()];
        while let Some((path, layers)) = waiting.pop() {
            let (here, names) = match self.base.at(&path, &layers).and_then(|here| Ok((here.names()?, here)))
            {
                Ok((names, here)) => (here, names),
                // What the caller can't read the agent can't either.
                Err(Errno::ACCESS) => continue,
                Err(error) => return Err(error.into()),
            };
            for name in names {
                let child = path.join(&name);
                if self.left_out.contains(&child) {
                    continue;
                }
                match here.child(&name)? {
                    BaseEntry::Nothing => {}
                    BaseEntry::Directory(layers) => {
                        rustix::fs::mkdirat(self.target, child.as_path(), Mode::RWXU)?;
                        finished.push(child.clone());
                        waiting.push((child, layers));
                    }
                    BaseEntry::Leaf { layer, stat } => match tree::kind(&stat) {
                        NodeKind::File => match here.open(&name, layer) {
                            Ok((file, stat)) => self.file(&child, &file, &stat)?,
                            Err(Errno::ACCESS) => {}
                            Err(error) => return Err(error.into()),
                        },
                        NodeKind::Symlink => self.symlink(&child, &here.link(&name, layer)?, &stat)?,
                        // Pipes, sockets and devices are nothing to work on.
                        _ => {}
                    },
                }
            }
        }
        for path in finished.iter().rev() {
            let mode = self.base.directory_mode(path).unwrap_or(0o755) & 0o777;
            let shown: &Path = if path.is_root() { Path::new(".") } else { path.as_path() };
            self.give(shown)?;
            rustix::fs::chmodat(self.target, shown, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        Ok(())
    }

    fn file(&self, path: &RelPath, from: &fs::File, stat: &Stat) -> io::Result<()> {
        let mut to = self.create(path)?;
        if rustix::fs::ioctl_ficlone(&to, from).is_err() {
            copy_data(from, &mut to, tree::size(stat))?;
        }
        self.give(path.as_path())?;
        rustix::fs::fchmod(&to, Mode::from_raw_mode(stat.st_mode & 0o777))?;
        // Git believes a file unchanged by its size and time.
        Ok(rustix::fs::futimens(&to, &times(stat))?)
    }

    fn symlink(&self, path: &RelPath, to: &[u8], stat: &Stat) -> io::Result<()> {
        rustix::fs::symlinkat(to, self.target, path.as_path())?;
        self.give(path.as_path())?;
        Ok(rustix::fs::utimensat(self.target, path.as_path(), &times(stat), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Puts a file of our own in the place of what was copied there.
    pub(crate) fn write(&self, path: &RelPath, contents: &[u8]) -> io::Result<()> {
        match rustix::fs::unlinkat(self.parent_of(path)?, path.name(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let mut file = self.create(path)?;
        file.write_all(contents)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        self.give(path.as_path())
    }

    fn create(&self, path: &RelPath) -> io::Result<fs::File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat2(self.target, path.as_path(), flags, mode, BENEATH)?.into())
    }

    /// The folder of the copy that holds a path, reached through no link: one that was copied leads anywhere.
    fn parent_of(&self, path: &RelPath) -> io::Result<OwnedFd> {
        Ok(tree::open_directory(self.target, &path.parent().ok_or(Errno::INVAL)?)?)
    }

    pub(crate) fn directories_to(&self, path: &RelPath) -> io::Result<()> {
        let mut above: Vec<RelPath> = path.ancestors().filter(|above| !above.is_root()).collect();
        above.reverse();
        above.push(path.clone());
        for directory in above.iter().filter(|directory| !directory.is_root()) {
            let parent = self.parent_of(directory)?;
            match rustix::fs::mkdirat(parent, directory.name(), Mode::from_raw_mode(0o755)) {
                Ok(()) => self.give(directory.as_path())?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        let Some((uid, gid)) = self.agent else { return Ok(()) };
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        Ok(rustix::fs::chownat(self.target, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Copies what a file holds and leaves its holes: eight gigabytes of nothing are copied as nothing. As much as there was: a
/// file that grows while it is copied must not be copied for ever.
fn copy_data(mut from: &fs::File, to: &mut fs::File, size: u64) -> io::Result<()> {
    let mut at = 0;
    while at < size {
        let data = match rustix::fs::seek(from, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => data,
            // There is a hole up to the end.
            Err(Errno::NXIO) => break,
            // Not every file system knows holes.
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error.into()),
        };
        let hole = rustix::fs::seek(from, rustix::fs::SeekFrom::Hole(data)).unwrap_or(size).min(size);
        rustix::fs::seek(from, rustix::fs::SeekFrom::Start(data))?;
        rustix::fs::seek(&*to, rustix::fs::SeekFrom::Start(data))?;
        io::copy(&mut (&mut from).take(hole.saturating_sub(data)), to)?;
        at = hole.max(data + 1);
    }
    to.set_len(size)
}

fn times(stat: &Stat) -> Timestamps {
    let modified = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
    Timestamps { last_access: modified, last_modification: modified }
}
