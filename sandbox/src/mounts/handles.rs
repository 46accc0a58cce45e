//! Mounts by descriptor: making, cloning and moving them.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use super::{Result, at};
use crate::sys::{self, MountAttributes};

pub(super) const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

pub(super) fn open_folder(path: &Path) -> Result<OwnedFd> {
    rustix::fs::open(path, FOLDER, Mode::empty()).map_err(at("can't open", path))
}

pub(super) fn mount_new(
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

pub(super) fn attach(tree: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", rustix::fs::CWD, path, flags).map_err(at("can't mount over", path))
}

pub(super) fn restrict(mount: BorrowedFd<'_>, set: u64, recursive: bool) -> io::Result<()> {
    sys::mount_setattr(mount, MountAttributes { set, recursive, idmap: None })
}

pub(super) fn move_onto(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", target, "", flags)
}

/// Mounts over a path below a folder; a link at its end is not followed.
pub(super) fn move_below(
    tree: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    path: &Path,
) -> rustix::io::Result<()> {
    rustix::mount::move_mount(tree, "", folder, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// A host path as a mount of its own, without what is mounted below it.
pub(super) fn clone_of(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    rustix::mount::open_tree(rustix::fs::CWD, path, flags)
}

/// File systems the kernel makes up: they hold no sockets, and no overlay can lie over them.
pub(super) fn is_kernel_file_system(fd: BorrowedFd<'_>) -> bool {
    const PROC: u64 = 0x9fa0;
    const SYSFS: u64 = 0x6265_6572;
    const CGROUP: u64 = 0x0027_e0eb;
    const CGROUP2: u64 = 0x6367_7270;
    rustix::fs::fstatfs(fd).is_ok_and(|stat| [PROC, SYSFS, CGROUP, CGROUP2].contains(&(stat.f_type as u64)))
}

pub(super) fn clone_tree(target: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(target, "", flags)
}

pub(super) fn is_directory(fd: BorrowedFd<'_>) -> rustix::io::Result<bool> {
    Ok(rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode).is_dir())
}

pub(super) fn descriptor(fd: BorrowedFd<'_>) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

pub(super) fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}
