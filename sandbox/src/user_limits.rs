//! What the kernel counts for a user as a whole.
//!
//! An ordinary user's agent is that user: what it uses up of such a count is missing to the user's other programs. A
//! user namespace has counts of its own below those of its user, with limits that its first process may lower while it
//! still has the right; limits of a process that are counted per user are lowered as any other. Each sandbox gets an
//! eighth. Root's agent is a user of its own and takes nothing away from other users.
//!
//! Not everything can be lowered: what epoll watches, the room in pipes and descriptors that are under way in sockets are
//! counted for the user on the whole host, in any namespace. The attestation says so.

use std::io;
use std::os::fd::BorrowedFd;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// What one sandbox gets: one part of so many.
pub(crate) const PARTS: u64 = 8;

/// Limits of a process that are counted for its user, as nix and as /proc/PID/limits call them.
pub(crate) const COUNTED: &[(Resource, &str)] =
    &[(Resource::RLIMIT_SIGPENDING, "Max pending signals"), (Resource::RLIMIT_MSGQUEUE, "Max msgqueue size")];

/// How many of inotify's instances there may be, and how much they may watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InotifyLimits {
    pub(crate) instances: u64,
    pub(crate) watches: u64,
}

/// Where the kernel tells the limits of all users, and where those of the reader's own namespace.
const OF_USERS: [&str; 2] = ["sys/fs/inotify/max_user_instances", "sys/fs/inotify/max_user_watches"];
const OF_NAMESPACE: [&str; 2] = ["sys/user/max_inotify_instances", "sys/user/max_inotify_watches"];

impl InotifyLimits {
    /// What every user of the host may have.
    pub(crate) fn of_users(proc: BorrowedFd<'_>) -> io::Result<Self> {
        Self::read(proc, OF_USERS)
    }

    /// What the current user namespace may have.
    pub(crate) fn of_namespace(proc: BorrowedFd<'_>) -> io::Result<Self> {
        Self::read(proc, OF_NAMESPACE)
    }

    fn read(proc: BorrowedFd<'_>, names: [&str; 2]) -> io::Result<Self> {
        let number = |name: &str| -> io::Result<u64> {
            let file = rustix::fs::openat(proc, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let mut text = [0; 32];
            let length = rustix::io::read(&file, &mut text)?;
            let text = std::str::from_utf8(&text[..length]).map_err(io::Error::other)?;
            text.trim().parse().map_err(io::Error::other)
        };
        Ok(Self { instances: number(names[0])?, watches: number(names[1])? })
    }

    /// One sandbox's part.
    pub(crate) fn share(self) -> Self {
        Self { instances: (self.instances / PARTS).max(1), watches: (self.watches / PARTS).max(1) }
    }

    pub(crate) fn is_within(self, other: Self) -> bool {
        self.instances <= other.instances && self.watches <= other.watches
    }
}

/// Lowers the limits of the current user namespace, in which this process must have every right. `proc` is a proc file
/// system that can be written.
pub(crate) fn lower_in_namespace(proc: BorrowedFd<'_>) -> io::Result<()> {
    let part = InotifyLimits::of_users(proc)?.share();
    for (name, limit) in OF_NAMESPACE.iter().zip([part.instances, part.watches]) {
        let file = rustix::fs::openat(proc, *name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, limit.to_string().as_bytes())?;
    }
    Ok(())
}

/// Lowers the limits of this process, for good.
pub(crate) fn lower_in_process() -> nix::Result<()> {
    for (resource, _) in COUNTED {
        let (_, most) = getrlimit(*resource)?;
        let part = share_of(most);
        setrlimit(*resource, part, part)?;
    }
    Ok(())
}

/// One sandbox's part of a limit.
pub(crate) fn share_of(most: u64) -> u64 {
    (most / PARTS).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_an_eighth_and_never_nothing() {
        let users = InotifyLimits { instances: 128, watches: 3 };
        let part = users.share();
        assert_eq!(part, InotifyLimits { instances: 16, watches: 1 });
        assert!(part.is_within(users) && !users.is_within(part));
        assert!(!InotifyLimits { watches: 4, ..part }.is_within(users));
        assert_eq!((share_of(819_200), share_of(0)), (102_400, 1));
    }
}
