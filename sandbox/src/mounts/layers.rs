//! The workspace in the new root: its overlays, what is added to them, and which directories are open.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::handles::{clone_of, clone_tree, descriptor, move_onto, open_folder, restrict};
use super::{DRAWER, NewRoot, OVERLAY, READ_ONLY, Result, WRITABLE, at};
use crate::harvest::BaseLayers;
use crate::mount_plan::BindAccess;
use crate::path::RelPath;
use crate::sys::{self, MountAttributes};
use crate::workspace::{LayerAddition, Overlay, Workspace, WriteLayer};
use crate::writable_directories::WritableDirectories;

/// The layers of one overlay, open.
struct OverlayLayers {
    /// As they are mounted: with the owner seen as the agent, where that is needed.
    lowers: Vec<OwnedFd>,
    upper: OwnedFd,
    work: OwnedFd,
    /// As they are.
    base: BaseLayers,
}

impl NewRoot<'_> {
    /// The workspace: the overlay as a whole read-only, the opened directories writable on top of it.
    /// Returns the upper layer of the workspace itself.
    pub(crate) fn add_workspace(
        &self,
        workspace: &Workspace,
        opening: &WritableDirectories,
    ) -> Result<OwnedFd> {
        let path = &workspace.path;
        let mut upper = None;
        for (number, overlay) in workspace.overlays.iter().enumerate() {
            let made = opening.make.iter().filter(|_| number == 0);
            let layers = self.overlay(overlay, number, made)?;
            upper = upper.or(Some(layers.upper));
        }
        let upper = upper.ok_or_else(|| at("nothing lies under", path)(Errno::NOENT))?;
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
                    restrict(door.as_fd(), READ_ONLY, false).map_err(at("can't make read-only:", &shown))?;
                }
                doors.push((directory, door));
            }
        }
        if !opening.open.iter().any(RelPath::is_root) {
            restrict(root.as_fd(), READ_ONLY, false).map_err(at("can't make read-only:", path))?;
        }
        // Parents first: a mount made earlier would disappear under its parent's.
        doors.sort_by(|left, right| left.0.cmp(right.0));
        for (directory, door) in doors {
            let target = open(directory)?;
            move_onto(door.as_fd(), target.as_fd())
                .map_err(at("can't mount over", &path.join(directory.as_path())))?;
        }
        for (number, store) in workspace.open_stores(&self.policy.scope).enumerate() {
            self.store(store, workspace.overlays.len() + number)?;
        }
        for objects in &workspace.objects {
            self.bind(&objects.source, &objects.at, BindAccess::ReadAsOwner)?;
        }
        for folder in &workspace.live {
            self.show_live(path, folder)?;
        }
        if let Some(outbox) = &workspace.outbox {
            self.make_target(&outbox.at, true)?;
            self.put_folder(&outbox.source, &outbox.at)?;
        }
        for hidden in &workspace.hidden {
            self.hide(&path.join(hidden.as_path()))?;
        }
        Ok(upper)
    }

    /// Scratch with a layer of its own.
    fn store(&self, store: &Overlay, number: usize) -> Result<()> {
        match &store.layer {
            WriteLayer::Disk { upper, .. } if store.lowers.is_empty() => self.put_folder(upper, &store.at),
            _ => self.overlay(store, number, std::iter::empty()).map(drop),
        }
    }

    /// A folder of the run's, writable.
    fn put_folder(&self, source: &Path, path: &Path) -> Result<()> {
        let tree = clone_of(source).map_err(at("can't bind", source))?;
        restrict(tree.as_fd(), WRITABLE, false).map_err(at("can't restrict", source))?;
        self.attach_inside(tree.as_fd(), path)
    }

    /// A folder of the real work tree over the one of the layers. A repository could have a link there, to
    /// anywhere on the host; that is an error.
    fn show_live(&self, root: &Path, folder: &RelPath) -> Result<()> {
        let shown = root.join(folder.as_path());
        let real = open_beneath(open_folder(root)?.as_fd(), folder).map_err(at("can't show", &shown))?;
        self.bind(Path::new(&descriptor(real.as_fd())), &shown, BindAccess::ReadAsOwner)
    }

    /// One overlay. Its layers are named by descriptor: no path has to be escaped for the option string, and
    /// none can grow past its one page.
    fn overlay<'b>(
        &self,
        overlay: &Overlay,
        number: usize,
        made: impl Iterator<Item = &'b RelPath>,
    ) -> Result<OverlayLayers> {
        let mut layers = self.open_layers(overlay, number)?;
        let mut lowers: Vec<String> = layers.lowers.iter().map(|fd| descriptor(fd.as_fd())).collect();
        let added = self.add(overlay, &layers, number, made)?;
        if let Some(added) = &added {
            lowers.insert(0, descriptor(added.as_fd()));
        }
        // `volatile`: nothing in the upper layer has to survive a crash of the machine, so nothing is synced.
        // In memory there is nothing to sync.
        let volatile = if overlay.layer == WriteLayer::Memory { "" } else { ",volatile" };
        let xattr = if overlay.user_xattr { ",userxattr" } else { "" };
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=nofollow,metacopy=off,index=off,uuid=off{volatile}{xattr}",
            lowers.join(":"),
            descriptor(layers.upper.as_fd()),
            descriptor(layers.work.as_fd()),
        );
        let failed = || at("can't mount the overlay at", &overlay.at);
        let options = CString::new(options).map_err(|_| failed()(Errno::INVAL))?;
        self.make_target(&overlay.at, true)?;
        let target = self.resolve(&overlay.at).map_err(at("can't find", &overlay.at))?;
        rustix::mount::mount(
            OVERLAY,
            descriptor(target.as_fd()).as_str(),
            "overlay",
            MountFlags::NOSUID | MountFlags::NODEV,
            Some(options.as_c_str()),
        )
        .map_err(failed())?;
        // Without a map they are folders, and not mounts.
        if self.idmap.is_some() {
            layers.lowers.drain(..).for_each(|tree| self.spend(tree));
        }
        let mounted = self.resolve(&overlay.at).map_err(at("can't find", &overlay.at))?;
        let stat = rustix::fs::fstatvfs(&mounted).map_err(failed())?;
        match stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
            true => Err(failed()(why_read_only(layers.work.as_fd()))),
            false => Ok(layers),
        }
    }

    fn open_layers(&self, overlay: &Overlay, number: usize) -> Result<OverlayLayers> {
        let idmap = self.idmap.as_ref().map(AsFd::as_fd);
        let mapped = |lower: &Path| match idmap {
            None => open_folder(lower),
            Some(userns) => {
                let tree = clone_of(lower).map_err(at("can't bind", lower))?;
                let attributes = MountAttributes { set: READ_ONLY, recursive: false, idmap: Some(userns) };
                sys::mount_setattr(tree.as_fd(), attributes).map_err(at("can't map the owner of", lower))?;
                self.hold_mount(tree.as_fd())?;
                Ok(tree)
            }
        };
        let base = overlay.lowers.iter().map(|lower| open_folder(lower)).collect::<Result<_>>()?;
        let (upper, work) = match &overlay.layer {
            WriteLayer::Disk { upper, work } => (open_folder(upper)?, open_folder(work)?),
            WriteLayer::Memory => self.memory_layer(overlay, number)?,
        };
        Ok(OverlayLayers {
            lowers: overlay.lowers.iter().map(|lower| mapped(lower)).collect::<Result<_>>()?,
            upper,
            work,
            base: BaseLayers::new(base),
        })
    }

    /// An upper layer in the sandbox's memory. Its own folder is what the agent sees as the workspace: it is
    /// the agent's, with the mode of the folder it covers.
    fn memory_layer(&self, overlay: &Overlay, number: usize) -> Result<(OwnedFd, OwnedFd)> {
        let failed = || at("can't make a layer for", &overlay.at);
        let mode = overlay.lowers.first().and_then(|lower| rustix::fs::stat(lower).ok());
        let mode = mode.map_or(0o755, |stat| stat.st_mode & 0o7777);
        let drawer = self.holding_folder()?;
        let make = |name: String, mode: u32| -> rustix::io::Result<OwnedFd> {
            let path = RelPath::root().join(name.as_bytes());
            rustix::fs::mkdirat(&drawer, path.as_path(), Mode::RWXU)?;
            self.set_owner(drawer.as_fd(), path.as_path(), mode)?;
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
        layers: &OverlayLayers,
        number: usize,
        made: impl Iterator<Item = &'b RelPath>,
    ) -> Result<Option<OwnedFd>> {
        let made = made.cloned().map(LayerAddition::Directory);
        let all: Vec<LayerAddition> = overlay.added.iter().cloned().chain(made).collect();
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

    fn add_one(
        &self,
        layer: BorrowedFd<'_>,
        added: &LayerAddition,
        layers: &OverlayLayers,
    ) -> rustix::io::Result<()> {
        let (LayerAddition::Directory(path) | LayerAddition::File(path, _) | LayerAddition::Absence(path)) =
            added;
        let mut above: Vec<RelPath> = path.ancestors().filter(|above| !above.is_root()).collect();
        above.reverse();
        if let LayerAddition::Directory(path) = added {
            above.push(path.clone());
        }
        for directory in &above {
            // A directory of an upper layer shows its own mode, so it takes the one it covers.
            let mode = layers.base.directory_mode(directory).unwrap_or(0o755);
            match rustix::fs::mkdirat(layer, directory.as_path(), Mode::RWXU) {
                Ok(()) => self.set_owner(layer, directory.as_path(), mode)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        match added {
            LayerAddition::Directory(_) => Ok(()),
            LayerAddition::File(path, contents) => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
                let file = rustix::fs::openat(layer, path.as_path(), flags, Mode::RUSR)?;
                let mut rest = contents.as_slice();
                while !rest.is_empty() {
                    rest = &rest[rustix::io::write(&file, rest)?..];
                }
                self.set_owner(layer, path.as_path(), 0o644)
            }
            // How overlayfs writes "deleted".
            LayerAddition::Absence(path) => {
                let kind = rustix::fs::FileType::CharacterDevice;
                rustix::fs::mknodat(layer, path.as_path(), kind, Mode::empty(), 0)
            }
        }
    }
}

/// Opens a directory of the workspace; a symbolic link anywhere on the way is an error, not a way out.
fn open_beneath(root: BorrowedFd<'_>, path: &RelPath) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(root, path.as_path(), flags, Mode::empty(), resolve)
}

/// Why an overlay came to be read-only: the kernel needs a folder of its own beside the upper layer, and where it can't
/// make one, for want of room mostly, it mounts without a word what nothing can be written to.
fn why_read_only(work: BorrowedFd<'_>) -> Errno {
    let made = rustix::fs::mkdirat(work, "room", Mode::RWXU);
    let _ = rustix::fs::unlinkat(work, "room", AtFlags::REMOVEDIR);
    match made {
        Err(error) => error,
        // There is some by now, which may be gone with the next file.
        Ok(()) => Errno::NOSPC,
    }
}
