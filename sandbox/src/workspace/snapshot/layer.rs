//! Writes a layer: files, links, empty folders and whiteouts, into a folder that only we write to.
//!
//! Every path is reached from the layer's root one component at a time, through folders this writer made
//! itself, so no name and no link of a tree leads anywhere else. Paths come in the order of their bytes: what
//! a folder holds comes in one piece, each folder is made and opened once, and a name that is there already
//! is a tree that contradicts itself.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::error::{SnapshotError, SnapshotResult, at};
use crate::harvest::is_dot_git;

/// The longest target a link can have.
const LONGEST_LINK: u64 = 4095;

#[derive(Debug)]
pub(super) struct LayerWriter {
    path: PathBuf,
    root: OwnedFd,
    /// The folders on the way to the last path.
    open: Vec<(Vec<u8>, OwnedFd)>,
    times: Timestamps,
    buffer: Vec<u8>,
}

impl LayerWriter {
    /// `time` is the second at which every file says it was changed.
    pub(super) fn new(path: &Path, time: u32) -> SnapshotResult<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(at("can't open", path))?;
        let second = Timespec { tv_sec: time.into(), tv_nsec: 0 };
        let times = Timestamps { last_access: second, last_modification: second };
        Ok(Self { path: path.to_owned(), root, open: Vec::new(), times, buffer: vec![0; 128 * 1024] })
    }

    pub(super) fn file(
        &mut self,
        path: &[u8],
        executable: bool,
        content: &mut dyn Read,
    ) -> SnapshotResult<()> {
        let name = self.enter(path)?;
        let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.folder(), name, flags, mode);
        let mut file = File::from(file.map_err(|error| self.refused(path, error))?);
        loop {
            let length =
                content.read(&mut self.buffer).map_err(at("can't read the content of", self.shown(path)))?;
            if length == 0 {
                break;
            }
            file.write_all(&self.buffer[..length]).map_err(at("can't write", self.shown(path)))?;
        }
        // The umask took bits away.
        rustix::fs::fchmod(&file, mode).map_err(at("can't set the mode of", self.shown(path)))?;
        rustix::fs::futimens(&file, &self.times).map_err(at("can't set the time of", self.shown(path)))
    }

    pub(super) fn link(&mut self, path: &[u8], size: u64, content: &mut dyn Read) -> SnapshotResult<()> {
        let hostile = |reason| SnapshotError::Hostile { path: path.to_vec(), reason };
        if size == 0 || size > LONGEST_LINK {
            return Err(hostile("is a link whose target is empty or too long"));
        }
        let mut target = Vec::new();
        content.read_to_end(&mut target).map_err(at("can't read the content of", self.shown(path)))?;
        if target.contains(&0) {
            return Err(hostile("is a link whose target holds a NUL"));
        }
        let name = self.enter(path)?;
        rustix::fs::symlinkat(target.as_slice(), self.folder(), name)
            .map_err(|error| self.refused(path, error))?;
        rustix::fs::utimensat(self.folder(), name, &self.times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(at("can't set the time of", self.shown(path)))
    }

    /// The very file, or link, that another layer has at the same path. Layers never change, so it does not matter
    /// how many have it.
    pub(super) fn link_existing(&mut self, path: &[u8], other: &Path) -> SnapshotResult<()> {
        let name = self.enter(path)?;
        let other = other.join(Path::new(OsStr::from_bytes(path)));
        rustix::fs::linkat(rustix::fs::CWD, &other, self.folder(), name, AtFlags::empty())
            .map_err(|error| self.refused(path, error))
    }

    /// An empty folder.
    pub(super) fn directory(&mut self, path: &[u8]) -> SnapshotResult<()> {
        let mut inside = path.to_vec();
        inside.extend_from_slice(b"/x");
        self.enter(&inside).map(drop)
    }

    /// Hides what the layers below have by this name. Such a device can be made without any privilege, and
    /// every overlay understands it, mounted by any user.
    pub(super) fn whiteout(&mut self, path: &[u8]) -> SnapshotResult<()> {
        let name = self.enter(path)?;
        rustix::fs::mknodat(self.folder(), name, FileType::CharacterDevice, Mode::empty(), 0)
            .map_err(|error| self.refused(path, error))
    }

    fn folder(&self) -> BorrowedFd<'_> {
        self.open.last().map_or(self.root.as_fd(), |(_, folder)| folder.as_fd())
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        self.path.join(Path::new(OsStr::from_bytes(path)))
    }

    fn refused(&self, path: &[u8], error: Errno) -> SnapshotError {
        match error {
            Errno::EXIST => SnapshotError::Hostile { path: path.to_vec(), reason: "is there twice" },
            Errno::NAMETOOLONG => {
                SnapshotError::Hostile { path: path.to_vec(), reason: "is longer than a name can be here" }
            }
            error => at("can't make", self.shown(path))(error),
        }
    }

    /// Opens the folder that holds `path`, made if need be, and returns the last component.
    fn enter<'p>(&mut self, path: &'p [u8]) -> SnapshotResult<&'p [u8]> {
        let mut components: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        // Git refuses these before us; what a layer may hold is too important to be held once.
        if components.iter().any(|name| matches!(*name, b"" | b"." | b"..") || is_dot_git(name)) {
            return Err(SnapshotError::Hostile { path: path.to_vec(), reason: "is no name for a file" });
        }
        let name = components.pop().unwrap_or_default();
        let shared =
            self.open.iter().zip(&components).take_while(|(open, wanted)| open.0 == **wanted).count();
        self.open.truncate(shared);
        for component in &components[shared..] {
            let folder = self.make(component).map_err(|error| self.refused(path, error))?;
            self.open.push((component.to_vec(), folder));
        }
        Ok(name)
    }

    fn make(&self, name: &[u8]) -> rustix::io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o755);
        rustix::fs::mkdirat(self.folder(), name, mode)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(self.folder(), name, flags, Mode::empty())?;
        rustix::fs::fchmod(&folder, mode)?;
        Ok(folder)
    }
}
