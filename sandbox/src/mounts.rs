//! Carries out the plan of a [`crate::view`]: a new root, filled by mounts, that the process then moves into.
//!
//! Every mount is made detached, given its final attributes, and only then attached, so there is no moment
//! at which a read-only path is writable. Targets are resolved inside the new root (`RESOLVE_IN_ROOT`): a
//! symbolic link on the way can't lead a mount out of it.

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags,
};

use crate::control::Control;
use crate::harvest::Base;
use crate::opening::Opening;
use crate::path::RelPath;
use crate::policy::Policy;
use crate::scope::Judgement;
use crate::sys::{self, MountAttributes};
use crate::view::{Access, Step};
use crate::workspace::{Added, Layer, Overlay, Workspace};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const WRITABLE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const DEVICE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;

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
    /// How many things were put into the drawer.
    numbers: Cell<u32>,
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
            .and_then(|()| match policy.wants(Control::TmpSize) {
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
        Ok(Self { root, policy, owner, idmap: None, numbers: Cell::new(0), staging })
    }

    /// From here on, the owner of the workspace's files is seen as the agent, by this user namespace.
    pub(crate) fn map_owner(&mut self, idmap: Option<OwnedFd>) {
        self.idmap = idmap;
    }

    pub(crate) fn perform(&self, steps: &[Step]) -> Result<()> {
        for step in steps {
            match step {
                Step::Folder { at: path } => self.make_target(path, true)?,
                Step::Link { at: path, to } => self.link(path, to)?,
                Step::File { at: path, contents } => self.file(path, contents)?,
                Step::Private { at: path, mode } => self.private(path, *mode)?,
                Step::Bind { source, at: path, access } => self.bind(source, path, *access)?,
                Step::Device { name } => self.device(name)?,
                Step::Proc => self.proc()?,
                Step::Terminals => self.terminals()?,
                Step::Hide { at: path } => self.hide(path)?,
                Step::Pin { at: path, access } => self.pin(path, *access)?,
            }
        }
        Ok(())
    }

    /// Moves into the new root; nothing of the old one stays reachable. The root itself is memory of the
    /// sandbox's own: it needs no protection from the agent, only a size.
    pub(crate) fn enter(self) -> Result<()> {
        let staging = self.staging;
        // What was only made to be bound elsewhere lives on in its mounts; its names go.
        self.close_drawer()?;
        rustix::process::fchdir(&self.root).map_err(at("can't enter", staging))?;
        // With the same folder for both, the old root ends up mounted over the new one, and one unmount
        // removes it.
        rustix::process::pivot_root(".", ".").map_err(at("can't move into", staging))?;
        rustix::mount::unmount(".", UnmountFlags::DETACH)
            .map_err(at("can't leave the host's file system from", staging))?;
        rustix::process::chdir("/").map_err(at("can't enter", staging))
    }

    fn link(&self, path: &Path, to: &Path) -> Result<()> {
        self.make_parents(path)?;
        let parent = self.resolve_own(path.parent().unwrap_or(path)).map_err(at("can't link", path))?;
        rustix::fs::symlinkat(to, &parent, path.file_name().unwrap_or_default())
            .map_err(at("can't link", path))
    }

    /// A small file over one of the host's.
    fn file(&self, path: &Path, contents: &str) -> Result<()> {
        let hidden = Path::new(DRAWER).join(path.file_name().unwrap_or_default());
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
        self.restrict(tree.as_fd(), READ_ONLY, false).map_err(at("can't make read-only:", path))?;
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
        if self.make_parents(path).is_ok()
            && let Ok(parent) = self.resolve_own(path.parent().unwrap_or(path))
        {
            let name = RelPath::parse(path.file_name().unwrap_or_default().as_encoded_bytes())
                .map_err(|_| failed()(Errno::INVAL))?;
            match rustix::fs::mkdirat(&parent, name.as_path(), Mode::RWXU) {
                Ok(()) => return self.give(parent.as_fd(), &name, mode).map_err(failed()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed()(error)),
            }
        }
        let drawer = self.drawer()?;
        let name = RelPath::root().join(format!("private{}", self.next()).as_bytes());
        rustix::fs::mkdirat(&drawer, name.as_path(), Mode::RWXU)
            .and_then(|()| self.give(drawer.as_fd(), &name, mode))
            .map_err(failed())?;
        let tree = self.clone_own(&Path::new(DRAWER).join(name.as_path()), path)?;
        self.attach_inside(tree.as_fd(), path)
    }

    fn bind(&self, source: &Path, path: &Path, access: Access) -> Result<()> {
        let tree = match access {
            Access::ReadAsOwner => self.reading_glass(source)?,
            Access::Read | Access::Write => {
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_RECURSIVE;
                rustix::mount::open_tree(rustix::fs::CWD, source, flags).map_err(at("can't bind", source))?
            }
        };
        // Host devices stay devices only where the whole of /dev was asked for.
        let attributes = match access {
            _ if path == Path::new("/dev") => DEVICE,
            Access::Read | Access::ReadAsOwner => READ_ONLY,
            Access::Write => WRITABLE,
        };
        self.restrict(tree.as_fd(), attributes, true).map_err(at("can't restrict", source))?;
        let folder = is_directory(tree.as_fd()).map_err(at("can't look at", source))?;
        self.make_target(path, folder)?;
        self.attach_inside(tree.as_fd(), path)
    }

    /// Something of the host's, to be read and nothing else. A folder is seen through an overlay: a socket in
    /// it is then a file without anybody behind it, where in a read-only bind it could be talked to.
    fn reading_glass(&self, source: &Path) -> Result<OwnedFd> {
        let plain = clone_of(source).map_err(at("can't bind", source))?;
        let mapped = self.map(&plain).map_err(at("can't map the owner of", source))?;
        let has_sockets = !is_kernel_file_system(mapped.as_fd());
        if !has_sockets || !is_directory(mapped.as_fd()).map_err(at("can't look at", source))? {
            return Ok(mapped);
        }
        let drawer = self.drawer()?;
        let name = format!("empty{}", self.next());
        let failed = || at("can't show", source);
        rustix::fs::mkdirat(&drawer, name.as_str(), Mode::from_raw_mode(0o755)).map_err(failed())?;
        let empty = rustix::fs::openat(&drawer, name.as_str(), FOLDER, Mode::empty()).map_err(failed())?;
        let glass = format!("glass{}", self.next());
        rustix::fs::mkdirat(&drawer, glass.as_str(), Mode::from_raw_mode(0o755)).map_err(failed())?;
        let target = rustix::fs::openat(&drawer, glass.as_str(), FOLDER, Mode::empty()).map_err(failed())?;
        // An overlay without an upper layer takes two lower ones.
        let options = format!("lowerdir={}:{}", descriptor(empty.as_fd()), descriptor(mapped.as_fd()));
        let options = CString::new(options).map_err(|_| failed()(Errno::INVAL))?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        let place = descriptor(target.as_fd());
        rustix::mount::mount("agency", place.as_str(), "overlay", flags, Some(options.as_c_str()))
            .map_err(failed())?;
        self.clone_own(&Path::new(DRAWER).join(&glass), source)
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
        self.restrict(tree.as_fd(), DEVICE, false).map_err(at("can't restrict", &path))?;
        self.make_target(&path, false)?;
        self.attach_inside(tree.as_fd(), &path)
    }

    fn proc(&self) -> Result<()> {
        let path = Path::new("/proc");
        let private = self.policy.wants(Control::PrivateProc) && self.policy.wants(Control::PidNamespace);
        if !private {
            return self.bind(
                path,
                path,
                if self.policy.wants(Control::PrivateProc) { Access::Read } else { Access::Write },
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

    /// Covers a path with something empty that nobody can open.
    fn hide(&self, path: &Path) -> Result<()> {
        let Ok(target) = self.resolve(path) else {
            return Ok(());
        };
        let folder = is_directory(target.as_fd()).map_err(at("can't look at", path))?;
        let cover = self.cover(folder, path)?;
        self.restrict(cover.as_fd(), READ_ONLY, false).map_err(at("can't hide", path))?;
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

    fn drawer(&self) -> Result<OwnedFd> {
        self.make_folder(Path::new(DRAWER), 0o755)?;
        rustix::fs::openat(&self.root, DRAWER, FOLDER, Mode::empty())
            .map_err(at("can't open", Path::new(DRAWER)))
    }

    /// A number for the next thing in the drawer.
    fn next(&self) -> u32 {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        number
    }

    /// Closes the drawer: its layers are in use, so its names can't just be removed. Root's agent can't open
    /// what is root's alone; an ordinary user's agent is that user, so there it is covered.
    fn close_drawer(&self) -> Result<()> {
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

    fn pin(&self, path: &Path, access: Access) -> Result<()> {
        let target = self.resolve(path).map_err(at("can't protect", path))?;
        let tree = clone_tree(target.as_fd()).map_err(at("can't protect", path))?;
        let attributes = if access == Access::Write { WRITABLE } else { READ_ONLY };
        self.restrict(tree.as_fd(), attributes, true).map_err(at("can't protect", path))?;
        move_onto(tree.as_fd(), target.as_fd()).map_err(at("can't protect", path))
    }

    /// The workspace: the overlay as a whole read-only, the opened directories writable on top of it.
    /// Returns the upper layer of the workspace itself.
    pub(crate) fn add_workspace(&self, workspace: &Workspace, opening: &Opening) -> Result<Option<OwnedFd>> {
        let path = &workspace.path;
        let mut upper = None;
        for (number, overlay) in workspace.overlays.iter().enumerate() {
            let made = opening.make.iter().filter(|_| number == 0);
            let layers = self.overlay(overlay, number, made)?;
            upper = upper.or(Some(layers.upper));
        }
        let root = self.resolve(path).map_err(at("can't enter the workspace at", path))?;
        let open = |directory: &RelPath| {
            let shown = path.join(directory.as_path());
            open_beneath(root.as_fd(), directory).map_err(at("can't open the folder", &shown))
        };
        // Clones are taken while the overlay is still writable; each keeps its own attributes.
        let mut doors: Vec<(&RelPath, OwnedFd)> = Vec::new();
        for (directories, writable) in [(&opening.open, true), (&opening.close, false)] {
            for directory in directories.iter().filter(|directory| !directory.is_root()) {
                let shown = path.join(directory.as_path());
                let door =
                    clone_tree(open(directory)?.as_fd()).map_err(at("can't bind the folder", &shown))?;
                if !writable {
                    self.restrict(door.as_fd(), READ_ONLY, false)
                        .map_err(at("can't make read-only:", &shown))?;
                }
                doors.push((directory, door));
            }
        }
        if !opening.open.iter().any(RelPath::is_root) {
            self.restrict(root.as_fd(), READ_ONLY, false).map_err(at("can't make read-only:", path))?;
        }
        // Parents first: a mount made earlier would disappear under its parent's.
        doors.sort_by(|left, right| left.0.cmp(right.0));
        for (directory, door) in doors {
            let target = open(directory)?;
            move_onto(door.as_fd(), target.as_fd())
                .map_err(at("can't mount over", &path.join(directory.as_path())))?;
        }
        for (number, store) in
            workspace.stores.iter().enumerate().filter(|(_, store)| !self.denied(workspace, store))
        {
            self.store(store, workspace.overlays.len() + number)?;
        }
        for objects in &workspace.objects {
            self.bind(&objects.source, &objects.at, Access::ReadAsOwner)?;
        }
        for hidden in &workspace.hidden {
            self.hide(&path.join(hidden.as_path()))?;
        }
        Ok(upper)
    }

    /// Whether the scope denies what is in this store: then it stays as closed as the folder around it.
    fn denied(&self, workspace: &Workspace, store: &Overlay) -> bool {
        let inside = store.at.strip_prefix(&workspace.path).map(|path| path.as_os_str().as_encoded_bytes());
        inside.ok().and_then(|path| RelPath::parse(path).ok()).is_some_and(|path| {
            matches!(self.policy.scope.judge(&path.join(b"anything")), Judgement::Denied(_))
        })
    }

    /// Scratch with a layer of its own.
    fn store(&self, store: &Overlay, number: usize) -> Result<()> {
        match &store.layer {
            Layer::Disk { upper, .. } if store.lowers.is_empty() => {
                let tree = clone_of(upper).map_err(at("can't bind", upper))?;
                self.restrict(tree.as_fd(), WRITABLE, false).map_err(at("can't restrict", upper))?;
                self.attach_inside(tree.as_fd(), &store.at)
            }
            _ => self.overlay(store, number, std::iter::empty()).map(drop),
        }
    }

    /// One overlay. Its layers are named by descriptor: no path has to be escaped for the option string, and
    /// none can grow past its one page.
    fn overlay<'b>(
        &self,
        overlay: &Overlay,
        number: usize,
        made: impl Iterator<Item = &'b RelPath>,
    ) -> Result<Layers> {
        let layers = self.open_layers(overlay, number)?;
        let mut lowers: Vec<String> = layers.lowers.iter().map(|fd| descriptor(fd.as_fd())).collect();
        let added = self.add(overlay, &layers, number, made)?;
        if let Some(added) = &added {
            lowers.insert(0, descriptor(added.as_fd()));
        }
        // `volatile`: nothing in the upper layer has to survive a crash of the machine, so nothing is synced.
        // In memory there is nothing to sync.
        let volatile = if overlay.layer == Layer::Memory { "" } else { ",volatile" };
        let xattr = if overlay.user_xattr { ",userxattr" } else { "" };
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=nofollow,metacopy=off,index=off,uuid=off{volatile}{xattr}",
            lowers.join(":"),
            descriptor(layers.upper.as_fd()),
            descriptor(layers.work.as_fd()),
        );
        let failed = "can't mount the overlay at";
        let options = CString::new(options).map_err(|_| at(failed, &overlay.at)(Errno::INVAL))?;
        self.make_target(&overlay.at, true)?;
        let target = self.resolve(&overlay.at).map_err(at("can't find", &overlay.at))?;
        rustix::mount::mount(
            "agency",
            descriptor(target.as_fd()).as_str(),
            "overlay",
            MountFlags::NOSUID | MountFlags::NODEV,
            Some(options.as_c_str()),
        )
        .map_err(at(failed, &overlay.at))?;
        Ok(layers)
    }

    fn open_layers(&self, overlay: &Overlay, number: usize) -> Result<Layers> {
        let idmap = self.idmap.as_ref().map(AsFd::as_fd);
        let mapped = |lower: &Path| match idmap {
            None => open_folder(lower),
            Some(userns) => {
                let tree = clone_of(lower).map_err(at("can't bind", lower))?;
                let attributes = MountAttributes { set: READ_ONLY, recursive: false, idmap: Some(userns) };
                sys::mount_setattr(tree.as_fd(), attributes).map_err(at("can't map the owner of", lower))?;
                Ok(tree)
            }
        };
        let base = overlay.lowers.iter().map(|lower| open_folder(lower)).collect::<Result<_>>()?;
        let (upper, work) = match &overlay.layer {
            Layer::Disk { upper, work } => (open_folder(upper)?, open_folder(work)?),
            Layer::Memory => self.memory_layer(overlay, number)?,
        };
        Ok(Layers {
            lowers: overlay.lowers.iter().map(|lower| mapped(lower)).collect::<Result<_>>()?,
            upper,
            work,
            base: Base::new(base),
        })
    }

    /// An upper layer in the sandbox's memory. Its own folder is what the agent sees as the workspace: it is
    /// the agent's, with the mode of the folder it covers.
    fn memory_layer(&self, overlay: &Overlay, number: usize) -> Result<(OwnedFd, OwnedFd)> {
        let failed = || at("can't make a layer for", &overlay.at);
        let mode = overlay.lowers.first().and_then(|lower| rustix::fs::stat(lower).ok());
        let mode = mode.map_or(0o755, |stat| stat.st_mode & 0o7777);
        let drawer = self.drawer()?;
        let make = |name: String, mode: u32| -> rustix::io::Result<OwnedFd> {
            let path = RelPath::root().join(name.as_bytes());
            rustix::fs::mkdirat(&drawer, path.as_path(), Mode::RWXU)?;
            self.give(drawer.as_fd(), &path, mode)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::openat(&drawer, path.as_path(), flags, Mode::empty())
        };
        let upper = make(format!("upper{number}"), mode).map_err(failed())?;
        let work = make(format!("work{number}"), 0o700).map_err(failed())?;
        Ok((upper, work))
    }

    /// The layer in memory that lies over the lower ones: what a workspace adds, and the scope's missing
    /// directories. Nothing of it touches the disk.
    fn add<'b>(
        &self,
        overlay: &Overlay,
        layers: &Layers,
        number: usize,
        made: impl Iterator<Item = &'b RelPath>,
    ) -> Result<Option<OwnedFd>> {
        let made = made.cloned().map(Added::Directory);
        let all: Vec<Added> = overlay.added.iter().cloned().chain(made).collect();
        if all.is_empty() {
            return Ok(None);
        }
        let name = Path::new(DRAWER).join(format!("added{number}"));
        self.make_folder(Path::new(DRAWER), 0o755)?;
        self.make_folder(&name, 0o755)?;
        let failed = || at("can't add to the workspace at", &overlay.at);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(&self.root, &name, flags, Mode::empty()).map_err(failed())?;
        for one in &all {
            self.add_one(folder.as_fd(), one, layers).map_err(failed())?;
        }
        Ok(Some(folder))
    }

    fn add_one(&self, layer: BorrowedFd<'_>, added: &Added, layers: &Layers) -> rustix::io::Result<()> {
        let (Added::Directory(path) | Added::File(path, _) | Added::Absence(path)) = added;
        let mut above: Vec<RelPath> = path.ancestors().filter(|above| !above.is_root()).collect();
        above.reverse();
        if let Added::Directory(path) = added {
            above.push(path.clone());
        }
        for directory in &above {
            // A directory of an upper layer shows its own mode, so it takes the one it covers.
            let mode = layers.base.directory_mode(directory).unwrap_or(0o755);
            match rustix::fs::mkdirat(layer, directory.as_path(), Mode::RWXU) {
                Ok(()) => self.give(layer, directory, mode)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        match added {
            Added::Directory(_) => Ok(()),
            Added::File(path, contents) => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
                let file = rustix::fs::openat(layer, path.as_path(), flags, Mode::RUSR)?;
                let mut rest = contents.as_slice();
                while !rest.is_empty() {
                    rest = &rest[rustix::io::write(&file, rest)?..];
                }
                self.give(layer, path, 0o644)
            }
            // How overlayfs writes "deleted".
            Added::Absence(path) => {
                let kind = rustix::fs::FileType::CharacterDevice;
                rustix::fs::mknodat(layer, path.as_path(), kind, Mode::empty(), 0)
            }
        }
    }

    /// Makes something in a layer the agent's.
    fn give(&self, layer: BorrowedFd<'_>, path: &RelPath, mode: u32) -> rustix::io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
        rustix::fs::chownat(layer, path.as_path(), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        rustix::fs::chmodat(layer, path.as_path(), Mode::from_raw_mode(mode), AtFlags::empty())
    }

    // -- small steps ----------------------------------------------------------------------------------

    fn restrict(&self, mount: BorrowedFd<'_>, set: u64, recursive: bool) -> io::Result<()> {
        sys::mount_setattr(mount, MountAttributes { set, recursive, idmap: None })
    }

    fn clone_own(&self, relative: &Path, shown: &Path) -> Result<OwnedFd> {
        rustix::mount::open_tree(
            &self.root,
            relative,
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
        )
        .map_err(at("can't bind", shown))
    }

    fn resolve(&self, path: &Path) -> std::result::Result<OwnedFd, Errno> {
        rustix::fs::openat2(
            &self.root,
            relative(path),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        )
    }

    fn attach_inside(&self, tree: BorrowedFd<'_>, path: &Path) -> Result<()> {
        let target = self.resolve(path).map_err(at("can't find", path))?;
        move_onto(tree, target.as_fd()).map_err(at("can't mount over", path))
    }

    /// Makes sure there is something at `path` to mount over.
    fn make_target(&self, path: &Path, folder: bool) -> Result<()> {
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

    fn make_parents(&self, path: &Path) -> Result<()> {
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
    fn make_folder(&self, path: &Path, mode: u32) -> Result<()> {
        let failed = || at("can't make the folder", path);
        let parent = self.resolve_own(path.parent().unwrap_or(Path::new(""))).map_err(failed())?;
        match rustix::fs::mkdirat(&parent, path.file_name().unwrap_or_default(), Mode::from_raw_mode(mode)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(failed()(error)),
        }
    }

    /// A folder of the new root that lies in our own memory, not on anything of the host's.
    fn resolve_own(&self, path: &Path) -> std::result::Result<OwnedFd, Errno> {
        let path = if relative(path) == Path::new("") { Path::new(".") } else { relative(path) };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let folder = rustix::fs::openat2(&self.root, path, FOLDER, Mode::empty(), resolve)?;
        match rustix::fs::fstat(&folder)?.st_dev == rustix::fs::fstat(&self.root)?.st_dev {
            true => Ok(folder),
            false => Err(Errno::XDEV),
        }
    }
}

/// The layers of one overlay, open.
struct Layers {
    /// As they are mounted: with the owner seen as the agent, where that is needed.
    lowers: Vec<OwnedFd>,
    upper: OwnedFd,
    work: OwnedFd,
    /// As they are.
    base: Base,
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open_folder(path: &Path) -> Result<OwnedFd> {
    rustix::fs::open(path, FOLDER, Mode::empty()).map_err(at("can't open", path))
}

/// Opens a directory of the workspace; a symbolic link anywhere on the way is an error, not a way out.
fn open_beneath(root: BorrowedFd<'_>, path: &RelPath) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root, path.as_path(), flags, Mode::empty(), resolve)
}

fn mount_new(
    kind: &str,
    options: &[(&str, Option<&str>)],
    flags: FsMountFlags,
    attributes: u64,
) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match value {
            Some(value) => rustix::mount::fsconfig_set_string(&context, *key, *value)?,
            None => rustix::mount::fsconfig_set_flag(&context, *key)?,
        }
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::from_bits_retain(attributes as u32);
    Ok(rustix::mount::fsmount(&context, flags, attributes)?)
}

fn attach(tree: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", rustix::fs::CWD, path, flags).map_err(at("can't mount over", path))
}

fn move_onto(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", target, "", flags)
}

/// A host path as a mount of its own, without what is mounted below it.
fn clone_of(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(rustix::fs::CWD, path, flags)
}

/// File systems the kernel makes up: they hold no sockets, and no overlay can lie over them.
fn is_kernel_file_system(fd: BorrowedFd<'_>) -> bool {
    const PROC: u64 = 0x9fa0;
    const SYSFS: u64 = 0x6265_6572;
    const CGROUP: u64 = 0x0027_e0eb;
    const CGROUP2: u64 = 0x6367_7270;
    rustix::fs::fstatfs(fd).is_ok_and(|stat| [PROC, SYSFS, CGROUP, CGROUP2].contains(&(stat.f_type as u64)))
}

fn clone_tree(target: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(target, "", flags)
}

fn is_directory(fd: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    Ok(rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_dir())
}

fn descriptor(fd: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}
