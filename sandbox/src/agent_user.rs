//! Who the agent is, inside and on the host.
//!
//! An ordinary user's agent is that user: the kernel lets them map no other user. Root's agent is a host user
//! of its own, without an account, without groups, owning nothing: a range of numbers no distribution hands
//! out, one number for each sandbox that runs at the same time, held by a lock that ends with the process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// The first number. Above what systemd assigns to containers and foreign users, below 2³¹.
const BASE: u32 = 1_900_000_000;
const SLOTS: u32 = 4096;
const LOCKS: &str = "/run/agency/users";

/// What a process inside calls itself when it is not the caller.
const INSIDE: u32 = 1000;

/// The agent's user and group.
#[derive(Debug)]
pub(crate) enum AgentUser {
    /// The caller itself.
    Caller { uid: u32, gid: u32 },
    /// A host user of its own.
    Nobody { id: u32, _slot: File },
    /// The caller, without a user namespace: only when that control is switched off.
    Unmapped { uid: u32, gid: u32 },
}

impl AgentUser {
    pub(crate) fn caller(uid: u32, gid: u32) -> Self {
        Self::Caller { uid, gid }
    }

    /// Takes the first free number.
    pub(crate) fn allocate() -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(LOCKS)?;
        for slot in 0..SLOTS {
            let path = Path::new(LOCKS).join(slot.to_string());
            let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(Self::Nobody { id: BASE + slot, _slot: file });
            }
        }
        Err(io::Error::other(format!("all {SLOTS} sandbox users are in use")))
    }

    /// User and group as the agent sees them.
    pub(crate) fn inner_ids(&self) -> (u32, u32) {
        match self {
            Self::Caller { uid, gid } | Self::Unmapped { uid, gid } => (*uid, *gid),
            Self::Nobody { .. } => (INSIDE, INSIDE),
        }
    }

    /// User and group on the host, where they are the agent's alone.
    pub(crate) fn dedicated_ids(&self) -> Option<(u32, u32)> {
        match self {
            Self::Nobody { .. } => Some(self.host_ids()),
            Self::Caller { .. } | Self::Unmapped { .. } => None,
        }
    }

    /// User and group as the host sees them.
    pub(crate) fn host_ids(&self) -> (u32, u32) {
        match self {
            Self::Caller { uid, gid } | Self::Unmapped { uid, gid } => (*uid, *gid),
            Self::Nobody { id, .. } => (*id, *id),
        }
    }
}
