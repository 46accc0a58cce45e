//! Carries out the plan of a [`crate::mount_plan`]: a new root, filled by mounts, that the process then moves into.
//!
//! Every mount is made detached, given its final attributes, and only then attached, so there is no moment
//! at which a read-only path is writable. Targets are resolved inside the new root (`RESOLVE_IN_ROOT`): a
//! symbolic link on the way can't lead a mount out of it.

mod fsmonitor;
mod handles;
mod layers;
mod targets;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, OpenTreeFlags, UnmountFlags,
};

use crate::channel;
use crate::control::Control;
use crate::mount_plan::{BindAccess, MountStep};
use crate::policy::Policy;
use crate::sys::{self, MountAttributes};
use handles::{
    FOLDER, attach, clone_of, clone_tree, descriptor, is_directory, is_kernel_file_system, mount_new,
    move_onto, restrict,
};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const WRITABLE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const DEVICE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

/// What our overlays call themselves.
pub(crate) const OVERLAY: &str = "agency";

/// Where files of our own lie in the new root until they are bound to their places.
const DRAWER: &str = ".drawer";

/// What could not be mounted, and where.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}", path.display())]
pub(crate) struct MountError {
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) source: io::Error,
}

type Result<T> = std::result::Result<T, MountError>;

fn at<E: Into<io::Error>>(what: &'static str, path: &Path) -> impl FnOnce(E) -> MountError {
    move |source| MountError { what, path: path.to_owned(), source: source.into() }
}

/// A root under construction.
pub(crate) struct NewRoot<'a> {
    root: OwnedFd,
    policy: &'a Policy,
    /// The agent's user and group on the host, who own the private folders.
    owner: (u32, u32),
    /// The user namespace that maps the workspace owner's files to the agent, where one is needed.
    idmap: Option<OwnedFd>,
    /// What we made ourselves, in folders we made ourselves, with nothing mounted over any of them: no link
    /// and nothing of the host's is on the way there.
    own: RefCell<HashSet<PathBuf>>,
    /// How many things were put into the drawer.
    numbers: Cell<u32>,
    /// Some of the mounts that overlays lie over, and that are no longer needed.
    spent: RefCell<Vec<OwnedFd>>,
    /// An empty folder of the host: the new root is built there.
    staging: &'a Path,
}

impl<'a> NewRoot<'a> {
    /// An empty root: one file system in memory, whose size is what all private folders share.
    pub(crate) fn create(staging: &'a Path, policy: &'a Policy, owner: (u32, u32)) -> Result<Self> {
        let slash = Path::new("/");
        rustix::mount::mount_change(slash, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
            .map_err(at("can't detach from the host's mounts at", slash))?;
        let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)
            .map_err(at("can't make a file system in memory for", staging))?;
        let set = |key: &str, value: &str| rustix::mount::fsconfig_set_string(&context, key, value);
        let size = policy.limits.tmp_size;
        // Files cost memory beyond their bytes: one for every 4 KiB of the size is plenty, and bounds them.
        let inodes = (size / 4096).clamp(4096, 1 << 20);
        set("mode", "0755")
            .and_then(|()| match policy.requires(Control::TmpSize) {
                true => set("size", &size.to_string()).and_then(|()| set("nr_inodes", &inodes.to_string())),
                false => Ok(()),
            })
            .and_then(|()| rustix::mount::fsconfig_create(&context))
            .map_err(at("can't make a file system in memory for", staging))?;
        let root = rustix::mount::fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
        )
        .map_err(at("can't make a file system in memory for", staging))?;
        attach(root.as_fd(), staging)?;
        let (own, spent) = (RefCell::default(), RefCell::default());
        Ok(Self { root, policy, owner, idmap: None, own, numbers: Cell::new(0), spent, staging })
    }

    /// From here on, the owner of the workspace's files is seen as the agent, by this user namespace.
    pub(crate) fn map_owner(&mut self, idmap: Option<OwnedFd>) {
        self.idmap = idmap;
    }

    pub(crate) fn apply_step(&self, steps: &[MountStep]) -> Result<()> {
        for step in steps {
            match step {
                MountStep::Folder { at: path } => self.make_target(path, true)?,
                MountStep::Link { at: path, to } => self.link(path, to)?,
                MountStep::File { at: path, contents } => self.file(path, contents)?,
                MountStep::Private { at: path, mode } => self.private(path, *mode)?,
                MountStep::Note { at: path, contents } => self.note(path, contents)?,
                MountStep::Bind { source, at: path, access } => self.bind(source, path, *access)?,
                MountStep::Device { name } => self.device(name)?,
                MountStep::Proc => self.proc()?,
                MountStep::Terminals => self.terminals()?,
                MountStep::Hide { at: path } => self.hide(path)?,
                MountStep::Pin { at: path, access } => self.pin(path, *access)?,
            }
        }
        Ok(())
    }

    /// Moves into the new root; nothing of the old one stays reachable. The root itself is memory of the
    /// sandbox's own: it needs no protection from the agent, only a size.
    ///
    /// Returns what is only left to be closed. Closing the last descriptor of a mount that hangs nowhere waits for all
    /// processors, about a tenth of a millisecond: that is for a caller with time.
    pub(crate) fn enter(self) -> Result<Vec<OwnedFd>> {
        let staging = self.staging;
        // What was only made to be bound elsewhere lives on in its mounts; its names go.
        self.remove_holding_folder()?;
        rustix::process::fchdir(&self.root).map_err(at("can't enter", staging))?;
        // With the same folder for both, the old root ends up mounted over the new one, and one unmount
        // removes it.
        rustix::process::pivot_root(".", ".").map_err(at("can't move into", staging))?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)
            .map_err(at("can't leave the host's file system from", staging))?;
        rustix::process::chdir("/").map_err(at("can't enter", staging))?;
        Ok(self.spent.into_inner())
    }

    /// Keeps a mount to be closed later. There may be a thousand, and not that many can be open: most are closed now.
    fn spend(&self, tree: OwnedFd) {
        let mut spent = self.spent.borrow_mut();
        if spent.len() + 1 < channel::MOST {
            spent.push(tree);
        }
    }

    fn link(&self, path: &Path, to: &Path) -> Result<()> {
        self.make_parents(path)?;
        self.within_own(path, |parent, name| rustix::fs::symlinkat(to, parent, name))
            .map_err(at("can't link", path))
    }

    /// A small file over one of the host's.
    fn file(&self, path: &Path, contents: &str) -> Result<()> {
        let hidden = Path::new(DRAWER).join(format!("file{}", self.next_number()));
        self.make_folder(Path::new(DRAWER), 0o755)?;
        let file = rustix::fs::openat(
            &self.root,
            &hidden,
            OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o644),
        )
        .map_err(at("can't write", path))?;
        rustix::io::write(&file, contents.as_bytes()).map_err(at("can't write", path))?;
        drop(file);
        let tree = self.clone_own(&hidden, path)?;
        restrict(tree.as_fd(), READ_ONLY, false).map_err(at("can't make read-only:", path))?;
        match self.resolve(path) {
            Ok(target) => move_onto(tree.as_fd(), target.as_fd()).map_err(at("can't mount over", path)),
            // A host without this file has no program that reads it.
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(at("can't mount over", path)(error)),
        }
    }

    /// An empty folder of the agent's. It is made in our own memory, wherever the path leads: a host folder
    /// may already be bound above it, and nothing of the host's may change hands.
    fn private(&self, path: &Path, mode: u32) -> Result<()> {
        let failed = || at("can't give the agent", path);
        if self.make_parents(path).is_ok() {
            let made = self.make(path, |parent, name| {
                rustix::fs::mkdirat(parent, name, Mode::RWXU)?;
                self.set_owner(parent, name, mode)
            });
            match made {
                Ok(true) => return Ok(()),
                // There is something already, or it would be in a folder of the host's.
                Ok(false) | Err(Errno::XDEV) => {}
                Err(error) => return Err(failed()(error)),
            }
        }
        let drawer = self.holding_folder()?;
        let name = PathBuf::from(format!("private{}", self.next_number()));
        rustix::fs::mkdirat(&drawer, &name, Mode::RWXU)
            .and_then(|()| self.set_owner(drawer.as_fd(), &name, mode))
            .map_err(failed())?;
        let tree = self.clone_own(&Path::new(DRAWER).join(&name), path)?;
        self.attach_inside(tree.as_fd(), path)
    }

    fn note(&self, path: &Path, contents: &str) -> Result<()> {
        self.within_own(path, |parent, name| {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
            let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
            rustix::io::write(&file, contents.as_bytes())?;
            self.set_owner(parent, name, 0o644)
        })
        .map_err(at("can't write", path))
    }

    fn bind(&self, source: &Path, path: &Path, access: BindAccess) -> Result<()> {
        let whole = || {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE;
            rustix::mount::open_tree(rustix::fs::CWD, source, flags).map_err(at("can't bind", source))
        };
        let tree = match access {
            BindAccess::ReadAsOwner => self.reading_glass(source)?,
            // Some file systems take no overlay over them. The attestation says so.
            BindAccess::ReadApart => self.apart(source).or_else(|_| whole())?,
            BindAccess::Read | BindAccess::Write => whole()?,
        };
        // Host devices stay devices only where the whole of /dev was asked for.
        let attributes = match access {
            _ if path == Path::new("/dev") => DEVICE,
            BindAccess::Read | BindAccess::ReadAsOwner | BindAccess::ReadApart => READ_ONLY,
            BindAccess::Write => WRITABLE,
        };
        restrict(tree.as_fd(), attributes, true).map_err(at("can't restrict", source))?;
        let folder = is_directory(tree.as_fd()).map_err(at("can't look at", source))?;
        self.make_target(path, folder)?;
        self.attach_inside(tree.as_fd(), path)
    }

    /// Something of the host's, to be read and nothing else. A folder is seen through an overlay: a socket in
    /// it is then a file without a listener, where in a read-only bind it could be talked to.
    fn reading_glass(&self, source: &Path) -> Result<OwnedFd> {
        let plain = clone_of(source).map_err(at("can't bind", source))?;
        let mapped = self.map(&plain).map_err(at("can't map the owner of", source))?;
        let has_sockets = !is_kernel_file_system(mapped.as_fd());
        if !has_sockets || !is_directory(mapped.as_fd()).map_err(at("can't look at", source))? {
            return Ok(mapped);
        }
        self.hold_mount(mapped.as_fd())?;
        let drawer = self.holding_folder()?;
        let failed = || at("can't show", source);
        let empty = self.empty()?;
        let glass = format!("glass{}", self.next_number());
        rustix::fs::mkdirat(&drawer, glass.as_str(), Mode::from_raw_mode(0o755)).map_err(failed())?;
        let target = rustix::fs::openat(&drawer, glass.as_str(), FOLDER, Mode::empty()).map_err(failed())?;
        let options = format!("lowerdir={}:{}", descriptor(empty.as_fd()), descriptor(mapped.as_fd()));
        let options = CString::new(options).map_err(|_| failed()(Errno::INVAL))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        let place = descriptor(target.as_fd());
        rustix::mount::mount(OVERLAY, place.as_str(), "overlay", flags, Some(options.as_c_str()))
            .map_err(failed())?;
        self.spend(mapped);
        self.clone_own(&Path::new(DRAWER).join(&glass), source)
    }

    /// The same, with every owner as it is, which takes no mount to lie over. A lock on a file of it is one on the overlay's,
    /// where in a bind it would hold up the host's programs.
    fn apart(&self, source: &Path) -> Result<OwnedFd> {
        let failed = || at("can't show", source);
        let folder = handles::open_folder(source)?;
        let empty = self.empty()?;
        let lowers = format!("{}:{}", descriptor(empty.as_fd()), descriptor(folder.as_fd()));
        let options = [("source", Some(OVERLAY)), ("lowerdir", Some(lowers.as_str()))];
        mount_new("overlay", &options, FsMountFlags::FSMOUNT_CLOEXEC, READ_ONLY).map_err(failed())
    }

    /// An empty folder to lay over others: an overlay without an upper layer takes two lower ones.
    fn empty(&self) -> Result<OwnedFd> {
        let name = Path::new(DRAWER).join("empty");
        self.make_folder(Path::new(DRAWER), 0o755)?;
        self.make_folder(&name, 0o755)?;
        rustix::fs::openat(&self.root, &name, FOLDER, Mode::empty()).map_err(at("can't open", &name))
    }

    /// A mount with the owner of the workspace's files seen as the agent, where that is needed and the file
    /// system can do it. Where it can't, others' permissions apply.
    fn map(&self, tree: &OwnedFd) -> io::Result<OwnedFd> {
        let mapped = tree.try_clone()?;
        let Some(idmap) = &self.idmap else { return Ok(mapped) };
        let attributes = MountAttributes { set: READ_ONLY, recursive: false, idmap: Some(idmap.as_fd()) };
        match sys::mount_setattr(mapped.as_fd(), attributes) {
            Ok(()) => Ok(mapped),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(mapped),
            Err(error) => Err(error),
        }
    }

    fn device(&self, name: &'static str) -> Result<()> {
        let path = Path::new("/dev").join(name);
        let tree = clone_of(&path).map_err(at("can't bind", &path))?;
        restrict(tree.as_fd(), DEVICE, false).map_err(at("can't restrict", &path))?;
        self.make_target(&path, false)?;
        self.attach_inside(tree.as_fd(), &path)
    }

    fn proc(&self) -> Result<()> {
        let path = Path::new("/proc");
        let private =
            self.policy.requires(Control::PrivateProc) && self.policy.requires(Control::PidNamespace);
        if !private {
            return self.bind(
                path,
                path,
                if self.policy.requires(Control::PrivateProc) { BindAccess::Read } else { BindAccess::Write },
            );
        }
        // Read-only as a whole: what an honest program writes there (its own name, its own OOM score) it can
        // do without, and no kernel setting is left to try.
        let tree = mount_new("proc", &[], FsMountFlags::FSMOUNT_CLOEXEC, READ_ONLY | libc::MOUNT_ATTR_NOEXEC)
            .map_err(at("can't mount a fresh", path))?;
        self.make_target(path, true)?;
        self.attach_inside(tree.as_fd(), path)
    }

    fn terminals(&self) -> Result<()> {
        let path = Path::new("/dev/pts");
        let options = [("newinstance", None), ("ptmxmode", Some("0666")), ("mode", Some("620"))];
        let tree = mount_new("devpts", &options, FsMountFlags::FSMOUNT_CLOEXEC, DEVICE)
            .map_err(at("can't mount a fresh", path))?;
        self.make_target(path, true)?;
        self.attach_inside(tree.as_fd(), path)
    }

    /// Covers a path with something empty that can't be opened.
    fn hide(&self, path: &Path) -> Result<()> {
        let Ok(target) = self.resolve(path) else {
            return Ok(());
        };
        let folder = is_directory(target.as_fd()).map_err(at("can't look at", path))?;
        let cover = self.cover(folder, path)?;
        restrict(cover.as_fd(), READ_ONLY, false).map_err(at("can't hide", path))?;
        move_onto(cover.as_fd(), target.as_fd()).map_err(at("can't hide", path))
    }

    fn cover(&self, folder: bool, path: &Path) -> Result<OwnedFd> {
        let name = &Path::new(DRAWER).join(if folder { "hidden-folder" } else { "hidden-file" });
        self.make_folder(Path::new(DRAWER), 0o755)?;
        if folder {
            self.make_folder(name, 0)?;
        } else {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(&self.root, name, flags, Mode::empty()).map_err(at("can't hide", path))?;
        }
        self.clone_own(name, path)
    }

    fn pin(&self, path: &Path, access: BindAccess) -> Result<()> {
        let target = self.resolve(path).map_err(at("can't protect", path))?;
        let tree = clone_tree(target.as_fd()).map_err(at("can't protect", path))?;
        let attributes = if access == BindAccess::Write { WRITABLE } else { READ_ONLY };
        restrict(tree.as_fd(), attributes, true).map_err(at("can't protect", path))?;
        move_onto(tree.as_fd(), target.as_fd()).map_err(at("can't protect", path))
    }
}
