//! Finding and making places in the new root. A place that is made is always in our own memory: where a host
//! folder is already bound above it, nothing is made, and nothing of the host's changes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::handles::{FOLDER, move_below, move_onto, relative, restrict};
use super::{DRAWER, NewRoot, READ_ONLY, Result, at};
use crate::doctor;

impl NewRoot<'_> {
    pub(super) fn holding_folder(&self) -> Result<OwnedFd> {
        self.make_folder(Path::new(DRAWER), 0o755)?;
        rustix::fs::openat(&self.root, DRAWER, FOLDER, Mode::empty())
            .map_err(at("can't open", Path::new(DRAWER)))
    }

    /// Puts a mount into the drawer. Before Linux 6.15 what an overlay lies over must hang somewhere.
    pub(super) fn hold_mount(&self, tree: BorrowedFd<'_>) -> Result<()> {
        if doctor::kernel() >= (6, 15) {
            return Ok(());
        }
        let name = Path::new(DRAWER).join(format!("lower{}", self.next_number()));
        self.make_folder(Path::new(DRAWER), 0o755)?;
        self.make_folder(&name, 0o700)?;
        restrict(tree, READ_ONLY, false).map_err(at("can't make read-only:", &name))?;
        self.attach_inside(tree, &name)
    }

    /// A number for the next thing in the drawer.
    pub(super) fn next_number(&self) -> u32 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        number
    }

    /// Closes the drawer: its layers are in use, so its names can't just be removed. Root's agent can't open
    /// what is root's alone; an ordinary user's agent is that user, so there it is covered.
    pub(super) fn remove_holding_folder(&self) -> Result<()> {
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
    pub(super) fn set_owner(&self, layer: BorrowedFd<'_>, path: &Path, mode: u32) -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
        rustix::fs::chownat(layer, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::chmodat(layer, path, Mode::from_raw_mode(mode), AtFlags::empty())
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

    /// Mounts over a path of the new root.
    pub(super) fn attach_inside(&self, tree: BorrowedFd<'_>, path: &Path) -> Result<()> {
        // What is mounted there is no longer ours alone, nor is anything below it.
        if self.own.borrow_mut().remove(relative(path)) {
            return move_below(tree, self.root.as_fd(), relative(path)).map_err(at("can't mount over", path));
        }
        let target = self.resolve(path).map_err(at("can't find", path))?;
        move_onto(tree, target.as_fd()).map_err(at("can't mount over", path))
    }

    /// Makes sure there is something at `path` to mount over.
    pub(super) fn make_target(&self, path: &Path, folder: bool) -> Result<()> {
        if !self.parent_is_own(path) {
            if self.resolve(path).is_ok() {
                return Ok(());
            }
            self.make_parents(path)?;
        }
        if folder {
            return self.make_folder(path, 0o755);
        }
        let mode = Mode::from_raw_mode(0o644);
        self.make(path, |parent, name| rustix::fs::mknodat(parent, name, FileType::RegularFile, mode, 0))
            .map(drop)
            .map_err(at("can't make", path))
    }

    pub(super) fn make_parents(&self, path: &Path) -> Result<()> {
        let parents: Vec<_> =
            relative(path).ancestors().skip(1).filter(|parent| *parent != Path::new("")).collect();
        for parent in parents.into_iter().rev() {
            if !self.own.borrow().contains(parent) && self.resolve(parent).is_err() {
                self.make_folder(parent, 0o755)?;
            }
        }
        Ok(())
    }

    /// A folder in our own memory; what is already there stays as it is.
    pub(super) fn make_folder(&self, path: &Path, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        self.make(path, |parent, name| rustix::fs::mkdirat(parent, name, mode))
            .map(drop)
            .map_err(at("can't make the folder", path))
    }

    /// Makes something in our own memory, and remembers it; what is already there stays as it is. Says
    /// whether it was made.
    pub(super) fn make(
        &self,
        path: &Path,
        make: impl FnOnce(BorrowedFd<'_>, &Path) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<bool> {
        match self.within_own(path, make) {
            Ok(()) => {
                if self.parent_is_own(path) {
                    self.own.borrow_mut().insert(relative(path).to_owned());
                }
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Does something to a name in a folder of our own memory, not in anything of the host's. Where we made
    /// every folder above it ourselves there is nothing to find out; anywhere else the path is followed.
    pub(super) fn within_own<T>(
        &self,
        path: &Path,
        act: impl FnOnce(BorrowedFd<'_>, &Path) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        if self.parent_is_own(path) {
            return act(self.root.as_fd(), relative(path));
        }
        let parent = relative(path).parent().filter(|parent| *parent != Path::new(""));
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let parent = parent.unwrap_or(Path::new("."));
        let folder = rustix::fs::openat2(&self.root, parent, FOLDER, Mode::empty(), resolve)?;
        if rustix::fs::fstat(&folder)?.st_dev != rustix::fs::fstat(&self.root)?.st_dev {
            return Err(Errno::XDEV);
        }
        act(folder.as_fd(), Path::new(path.file_name().unwrap_or_default()))
    }

    /// Whether the folder above a path is one we made, with nothing mounted over it.
    fn parent_is_own(&self, path: &Path) -> bool {
        relative(path)
            .parent()
            .is_some_and(|parent| parent == Path::new("") || self.own.borrow().contains(parent))
    }
}
