//! Where a container's first process calls.
//!
//! A socket in a folder of the run's, which is mounted into the container and into no other. Who called is what the
//! kernel says: the process at the other end must be one of that very container, and the user it was to be.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, accept_with, bind, listen, socket_with,
    sockopt,
};

/// The socket's name in its folder.
pub(crate) const SOCKET: &str = "socket";

/// A door that is open.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    pub(crate) folder: PathBuf,
    socket: OwnedFd,
}

impl Rendezvous {
    /// Opens one for a user: only it can go through.
    pub(crate) fn open(folder: PathBuf, (uid, gid): (u32, u32)) -> io::Result<Self> {
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        // The address of a socket is short, and a path may be long: the folder is named by its descriptor.
        let held = fs::File::open(&folder)?;
        let short = format!("/proc/self/fd/{}/{SOCKET}", std::os::fd::AsRawFd::as_raw_fd(&held));
        bind(&socket, &SocketAddrUnix::new(short)?)?;
        listen(&socket, 1)?;
        for path in [folder.join(SOCKET), folder.clone()] {
            std::os::unix::fs::chown(path, Some(uid), Some(gid))?;
        }
        Ok(Self { folder, socket })
    }

    /// Waits for a caller; checks now and then whether `anybody` still may call.
    pub(crate) fn wait(&self, mut anybody: impl FnMut() -> bool) -> io::Result<Option<(OwnedFd, UCred)>> {
        const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&LOOK_EVERY)) {
                Ok(0) if !anybody() => return Ok(None),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let channel = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        let caller = sockopt::socket_peercred(&channel)?;
        Ok(Some((channel, caller)))
    }

    /// Closes it for good: no other process will call, and the agent finds nothing there.
    pub(crate) fn close(self) -> io::Result<()> {
        fs::remove_file(self.folder.join(SOCKET))
    }
}

/// Whether the kernel says that a process belongs to a container.
pub(crate) fn is_in_container(pid: i32, container: &str) -> bool {
    let groups = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cgroup"));
    groups.is_ok_and(|groups| groups.lines().any(|line| line.contains(container)))
}
