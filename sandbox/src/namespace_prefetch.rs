//! Namespaces that are made ahead of everything else.
//!
//! Making a network namespace takes the kernel longer than all mounts together, and depends on nothing but
//! whether one is wanted. Root's sandbox owns none of its namespaces, so this one is sent for before the
//! workspace is even looked at, together with the user namespace by which the owner's files are seen as the
//! agent's. What an ordinary user's sandbox has belongs to its own user namespace: its first process sends
//! for it (`init`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use crate::agent::own_pid;
use crate::control::{Control, ControlSet};
use crate::host::HostUser;
use crate::policy::{IsolationLevel, NetworkPolicy};
use crate::sys::{MadeNamespaces, NamespaceJob};

/// Namespaces on their way.
#[derive(Debug)]
pub struct NamespacePrefetch {
    sent: Option<io::Result<PendingPrefetch>>,
}

#[derive(Debug)]
struct PendingPrefetch {
    errand: NamespaceJob,
    /// Where the user namespace's users and groups are written.
    maps: Option<[File; 2]>,
    /// The errand uses it.
    _proc: OwnedFd,
}

impl NamespacePrefetch {
    /// Sends for what a sandbox with these parts of a policy will want. The calling process must have a
    /// single thread.
    pub fn start(
        host: &HostUser,
        level: IsolationLevel,
        without: &ControlSet,
        network: &NetworkPolicy,
    ) -> Self {
        let user = !without.contains(Control::UserNamespace);
        let network = !without.contains(Control::Network) && *network != NetworkPolicy::Full;
        let wanted = level == IsolationLevel::Process && host.is_root() && (user || network);
        Self { sent: wanted.then(|| PendingPrefetch::new(user, network)) }
    }

    /// Waits for what was sent for. Files that belong to `owner` will be seen as the agent's.
    pub(crate) fn finish(self, owner: (u32, u32), agent: (u32, u32)) -> io::Result<MadeNamespaces> {
        let Some(sent) = self.sent else { return Ok(MadeNamespaces { user: None, network: None }) };
        let PendingPrefetch { errand, maps, _proc } = sent?;
        if let Some([mut users, mut groups]) = maps {
            users.write_all(format!("{} {} 1", owner.0, agent.0).as_bytes())?;
            groups.write_all(format!("{} {} 1", owner.1, agent.1).as_bytes())?;
        }
        errand.finish()
    }
}

impl PendingPrefetch {
    fn new(user: bool, network: bool) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty())?;
        // Below, the errand is named by its number, which is another process's in the /proc of another namespace.
        if own_pid(proc.as_fd())? != rustix::process::getpid().as_raw_pid() {
            return Err(io::Error::other("/proc is that of another namespace of processes; mount a new one"));
        }
        let errand = NamespaceJob::start(user, network, proc.as_fd())?;
        // Opened now, by a process with rights over the outer namespace, and good for as long as the namespace.
        let map = |name| OpenOptions::new().write(true).open(format!("/proc/{}/{name}", errand.pid()));
        let maps = if user { Some([map("uid_map")?, map("gid_map")?]) } else { None };
        Ok(Self { errand, maps, _proc: proc })
    }
}
