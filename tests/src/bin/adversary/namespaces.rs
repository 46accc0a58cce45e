//! Namespaces and mounts: a new world in which the fences of the old one are not.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, chdir, chroot, pivot_root};

use crate::attack::{Args, Attack, Attempt, Failure, Step, attack};
use crate::kernel::GROUP;
use crate::sys::{self, Arg, call, call_fd, words};

const NESTED: &str = "nested user namespaces and remounts";

pub(crate) const ATTACKS: &[Attack] = &[
    attack(GROUP, "userns", &[], NESTED, userns),
    attack(GROUP, "userns-clone", &[], NESTED, userns_clone),
    attack(GROUP, "userns-clone3", &[], NESTED, userns_clone3),
    attack(GROUP, "userns-mount", &["dir"], NESTED, userns_mount),
    attack(GROUP, "mount", &["dir"], NESTED, mount_tmpfs).needs_root(),
    attack(GROUP, "mount-proc", &["dir"], NESTED, mount_proc).needs_root(),
    attack(GROUP, "bind-mount-over", &["source", "path"], NESTED, bind_mount_over).needs_root(),
    // A mount that came with the namespace is locked, and EINVAL is how the kernel says so.
    attack(GROUP, "remount-rw", &["path"], NESTED, remount_rw).needs_root().denied_by(&[Errno::EINVAL]),
    attack(GROUP, "mount-setattr-rw", &["path"], NESTED, mount_setattr_rw)
        .needs_root()
        .denied_by(&[Errno::EINVAL]),
    attack(GROUP, "umount", &["path"], NESTED, umount).needs_root().denied_by(&[Errno::EINVAL]),
    attack(GROUP, "pivot", &["dir"], NESTED, pivot).needs_root(),
    attack(GROUP, "chroot", &["dir"], NESTED, change_root).needs_root(),
    attack(GROUP, "setns", &["path"], NESTED, setns).needs_root(),
    attack(GROUP, "setns-pid", &["pid"], NESTED, setns_pid).needs_root(),
    attack(GROUP, "fsopen", &[], NESTED, fsopen).needs_root(),
    attack(GROUP, "fsmount", &["dir"], NESTED, fsmount).needs_root(),
    attack(GROUP, "open-tree", &["path"], NESTED, open_tree).needs_root(),
    attack(GROUP, "move-mount", &["from", "to"], NESTED, move_mount).needs_root(),
];

fn userns(_: &Args) -> Attempt {
    unshare(CloneFlags::CLONE_NEWUSER).step("unshare")?;
    Ok("a user namespace".to_owned())
}

fn waited(child: Result<Pid, Errno>) -> Attempt {
    match waitpid(child.step("clone")?, None).step("wait")? {
        WaitStatus::Exited(_, 0) => Ok("a process in a user namespace".to_owned()),
        status => Err(Failure::Held(format!("{status:?}"))),
    }
}

fn userns_clone(_: &Args) -> Attempt {
    waited(sys::clone_with(libc::CLONE_NEWUSER, || 0))
}

fn userns_clone3(_: &Args) -> Attempt {
    waited(sys::clone3_with(libc::CLONE_NEWUSER as u64, || 0))
}

/// What a user namespace is wanted for: every capability over a mount table of one's own.
fn userns_mount(args: &Args) -> Attempt {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).step("unshare")?;
    mount_tmpfs(args)
}

fn mount_tmpfs(args: &Args) -> Attempt {
    mount(Some("tmpfs"), args.path(0), Some("tmpfs"), MsFlags::empty(), None::<&str>)
        .step("mount a tmpfs")?;
    Ok("mounted".to_owned())
}

/// A fresh `/proc` has none of the masks that were put over the old one.
fn mount_proc(args: &Args) -> Attempt {
    mount(Some("proc"), args.path(0), Some("proc"), MsFlags::empty(), None::<&str>).step("mount a proc")?;
    Ok("mounted".to_owned())
}

fn bind_mount_over(args: &Args) -> Attempt {
    mount(Some(args.path(0)), args.path(1), None::<&str>, MsFlags::MS_BIND, None::<&str>).step("bind")?;
    Ok("mounted over".to_owned())
}

fn writable_now(path: &Path) -> Attempt {
    if statvfs(path).step("look at the mount")?.flags().contains(FsFlags::ST_RDONLY) {
        return Err(Failure::Held("it is still read-only".to_owned()));
    }
    Ok("writable".to_owned())
}

fn remount_rw(args: &Args) -> Attempt {
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND;
    mount(None::<&str>, args.path(0), None::<&str>, flags, None::<&str>).step("remount")?;
    writable_now(args.path(0))
}

/// The same through the newer call, which a filter for `mount` does not know.
fn mount_setattr_rw(args: &Args) -> Attempt {
    const MOUNT_ATTR_RDONLY: u64 = 1;
    let path = args.c_path(0)?;
    // struct mount_attr: attr_set, attr_clr, propagation, userns_fd
    let attributes = words([0, MOUNT_ATTR_RDONLY, 0, 0]);
    call!(
        libc::SYS_mount_setattr,
        libc::AT_FDCWD,
        path.as_c_str(),
        0,
        attributes.as_slice(),
        attributes.len()
    )
    .step("mount_setattr")?;
    writable_now(args.path(0))
}

fn umount(args: &Args) -> Attempt {
    umount2(args.path(0), MntFlags::MNT_DETACH).step("umount")?;
    Ok("what was under it is bare".to_owned())
}

/// `dir` becomes the root, and the old root lies on top of it.
fn pivot(args: &Args) -> Attempt {
    let directory = args.path(0);
    mount(Some(directory), directory, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .step("bind onto itself")?;
    chdir(directory).step("enter it")?;
    pivot_root(".", ".").step("pivot_root")?;
    Ok("another root".to_owned())
}

fn change_root(args: &Args) -> Attempt {
    chroot(args.path(0)).step("chroot")?;
    Ok("another root".to_owned())
}

fn setns(args: &Args) -> Attempt {
    let namespace = File::open(args.path(0)).step("open")?;
    call!(libc::SYS_setns, &namespace, 0).step("setns")?;
    Ok("entered".to_owned())
}

/// All that matter at once, by the process that is in them.
fn setns_pid(args: &Args) -> Attempt {
    let process =
        call_fd(libc::SYS_pidfd_open, &mut [args.number::<i32>(0)?.into(), 0.into()]).step("pidfd_open")?;
    let kinds = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWUTS;
    call!(libc::SYS_setns, &process, kinds).step("setns")?;
    Ok("entered its mounts and its network".to_owned())
}

fn new_filesystem() -> Result<OwnedFd, Failure> {
    call_fd(libc::SYS_fsopen, &mut [c"tmpfs".into(), 0.into()]).step("fsopen")
}

fn fsopen(_: &Args) -> Attempt {
    new_filesystem()?;
    Ok("a filesystem in the making".to_owned())
}

fn attach(tree: &OwnedFd, args: &Args, index: usize) -> Result<(), Failure> {
    const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;
    let path = args.c_path(index)?;
    call!(libc::SYS_move_mount, tree, c"", libc::AT_FDCWD, path.as_c_str(), MOVE_MOUNT_F_EMPTY_PATH)
        .map(drop)
        .step("move_mount")
}

/// A mount without `mount`.
fn fsmount(args: &Args) -> Attempt {
    const FSCONFIG_CMD_CREATE: u32 = 6;
    let filesystem = new_filesystem()?;
    call!(libc::SYS_fsconfig, &filesystem, FSCONFIG_CMD_CREATE, Arg::Null, Arg::Null, 0).step("fsconfig")?;
    let tree = call_fd(libc::SYS_fsmount, &mut [(&filesystem).into(), 0.into(), 0.into()]).step("fsmount")?;
    attach(&tree, args, 0)?;
    Ok("mounted".to_owned())
}

fn cloned_tree(args: &Args) -> Result<OwnedFd, Failure> {
    const OPEN_TREE_CLONE: i32 = 1;
    let path = args.c_path(0)?;
    call_fd(
        libc::SYS_open_tree,
        &mut [libc::AT_FDCWD.into(), path.as_c_str().into(), (OPEN_TREE_CLONE | libc::O_CLOEXEC).into()],
    )
    .step("open_tree")
}

/// A copy of a mount that is nowhere, and over which nothing is mounted.
fn open_tree(args: &Args) -> Attempt {
    let tree = cloned_tree(args)?;
    let link = format!("/proc/self/fd/{}/.", std::os::fd::AsRawFd::as_raw_fd(&tree));
    let entries = fs::read_dir(link).step("list it")?.count();
    Ok(format!("{entries} entries"))
}

fn move_mount(args: &Args) -> Attempt {
    attach(&cloned_tree(args)?, args, 1)?;
    Ok("mounted".to_owned())
}
