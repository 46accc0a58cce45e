//! Finding and making places in the new root. A place that is made is always in our own memory: where a host
//! folder is already bound above it, nothing is made, and nothing of the host's changes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::handles::{FOLDER, move_onto, relative};
use super::{DRAWER, NewRoot, Result, at};
use crate::path::RelPath;

impl NewRoot<'_> {
    pub(super) fn drawer(&self) -> Result<OwnedFd> {
        self.make_folder(Path::new(DRAWER), 0o755)?;
        rustix::fs::openat(&self.root, DRAWER, FOLDER, Mode::empty())
            .map_err(at("can't open", Path::new(DRAWER)))
    }

    /// A number for the next thing in the drawer.
    pub(super) fn next(&self) -> u32 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        number
    }

    /// Closes the drawer: its layers are in use, so its names can't just be removed. Root's agent can't open
    /// what is root's alone; an ordinary user's agent is that user, so there it is covered.
    pub(super) fn close_drawer(&self) -> Result<()> {
        let path = Path::new("/").join(DRAWER);
        if self.resolve(&path).is_err() {
            return Ok(());
        }
        if self.owner.0 == rustix::process::geteuid().as_raw() {
            return self.hide(&path);
        }
        rustix::fs::chmodat(&self.root, DRAWER, Mode::empty(), AtFlags::empty())
            .map_err(at("can't close", &path))
    }

    /// Makes something in a layer the agent's.
    pub(super) fn give(&self, layer: BorrowedFd<'_>, path: &RelPath, mode: u32) -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
        rustix::fs::chownat(layer, path.as_path(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::chmodat(layer, path.as_path(), Mode::from_raw_mode(mode), AtFlags::empty())
    }

    pub(super) fn clone_own(&self, relative: &Path, shown: &Path) -> Result<OwnedFd> {
        rustix::mount::open_tree(
            &self.root,
            relative,
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
        )
        .map_err(at("can't bind", shown))
    }

    pub(super) fn resolve(&self, path: &Path) -> std::result::Result<OwnedFd, Errno> {
        rustix::fs::openat2(
            &self.root,
            relative(path),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        )
    }

    pub(super) fn attach_inside(&self, tree: BorrowedFd<'_>, path: &Path) -> Result<()> {
        let target = self.resolve(path).map_err(at("can't find", path))?;
        move_onto(tree, target.as_fd()).map_err(at("can't mount over", path))
    }

    /// Makes sure there is something at `path` to mount over.
    pub(super) fn make_target(&self, path: &Path, folder: bool) -> Result<()> {
        if self.resolve(path).is_ok() {
            return Ok(());
        }
        self.make_parents(path)?;
        if folder {
            return self.make_folder(path, 0o755);
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let parent = self.resolve_own(path.parent().unwrap_or(path)).map_err(at("can't make", path))?;
        rustix::fs::openat(&parent, path.file_name().unwrap_or_default(), flags, Mode::from_raw_mode(0o644))
            .map(drop)
            .map_err(at("can't make", path))
    }

    pub(super) fn make_parents(&self, path: &Path) -> Result<()> {
        let parents: Vec<_> =
            relative(path).ancestors().skip(1).filter(|parent| *parent != Path::new("")).collect();
        for parent in parents.into_iter().rev() {
            if self.resolve(parent).is_err() {
                self.make_folder(parent, 0o755)?;
            }
        }
        Ok(())
    }

    /// A folder in our own memory; what is already there stays as it is.
    pub(super) fn make_folder(&self, path: &Path, mode: u32) -> Result<()> {
        let failed = || at("can't make the folder", path);
        let parent = self.resolve_own(path.parent().unwrap_or(Path::new(""))).map_err(failed())?;
        match rustix::fs::mkdirat(&parent, path.file_name().unwrap_or_default(), Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(failed()(error)),
        }
    }

    /// A folder of the new root that lies in our own memory, not on anything of the host's.
    pub(super) fn resolve_own(&self, path: &Path) -> std::result::Result<OwnedFd, Errno> {
        let path = if relative(path) == Path::new("") { Path::new(".") } else { relative(path) };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let folder = rustix::fs::openat2(&self.root, path, FOLDER, Mode::empty(), resolve)?;
        match rustix::fs::fstat(&folder)?.st_dev == rustix::fs::fstat(&self.root)?.st_dev {
            true => Ok(folder),
            false => Err(Errno::XDEV),
        }
    }
}
