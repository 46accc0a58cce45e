//! What a sandbox is asked to hold.
//!
//! A policy says what, never how: it names no mount, no system call and no cgroup. A level compiles it to
//! whatever the kernel offers, and the attestation says, control by control, what came of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::container::Container;
use crate::control::{Control, ControlSet};
use crate::egress::List;
use crate::scope::Scope;
use crate::secret::Secret;
use crate::watch;

/// Everything that may be asked of a sandbox.
#[derive(Debug, Clone)]
pub struct Policy {
    pub level: Level,
    /// What of the workspace may change.
    pub scope: Scope,
    /// Host paths that are readable although they would not be by default.
    pub read: Vec<PathBuf>,
    /// Paths, of the host or of the workspace, that are out of sight.
    pub hide: Vec<PathBuf>,
    /// Host folders that are writable for real, outside any overlay.
    pub folders: Vec<Folder>,
    pub network: Network,
    pub limits: Limits,
    pub deadlines: Deadlines,
    /// The whole environment of the command.
    pub environment: Vec<(OsString, OsString)>,
    /// Values of it that must not come back, in the command's work or in its output.
    pub secrets: Vec<Secret>,
    /// Controls that are switched off on purpose. The attestation says so.
    pub without: ControlSet,
    /// What a container is made of, where the level is that.
    pub container: Option<Container>,
}

/// A host folder bound into the sandbox writable: what is written there is on the host at once.
#[derive(Debug, Clone)]
pub struct Folder {
    pub source: PathBuf,
    /// Where the agent sees it.
    pub target: PathBuf,
    /// Paths below it that stay read-only. A bind alone would be escaped by renaming a parent, so every
    /// directory between the folder and a protected path is pinned.
    pub protect: Vec<crate::path::RelPath>,
}

/// What the agent may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    /// Its own loopback, and nothing else.
    None,
    /// Everything this host can reach.
    Full,
    /// These hosts, through a proxy that checks each connection ([`crate::egress`]).
    Hosts(List),
}

/// How much the agent may use. `None` is "not limited".
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Memory, all processes together.
    pub memory: Memory,
    /// Processes and threads at once.
    pub processes: Option<u64>,
    /// Bytes of the largest file.
    pub file_size: Option<u64>,
    /// Bytes in HOME, /tmp, /var/tmp, /dev/shm and layers in memory, together.
    pub tmp_size: u64,
    /// Bytes of each stream of its output that are passed on.
    pub output: u64,
}

/// How much memory an agent may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Memory {
    /// Three quarters of this machine's, where nobody said anything: one agent that goes wild ends before the machine
    /// does. Every agent has that share: who runs many at once says how much each may have.
    Share,
    Bytes(u64),
    Unlimited,
}

impl Memory {
    /// In bytes, on this machine.
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            Memory::Share => Some(watch::memory_of_machine() / 4 * 3),
            Memory::Bytes(bytes) => Some(bytes),
            Memory::Unlimited => None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: Memory::Share,
            processes: Some(4096),
            file_size: Some(8 << 30),
            tmp_size: 4 << 30,
            output: 1 << 30,
        }
    }
}

/// When the agent is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlines {
    /// After so long, whatever it does.
    pub wall: Option<Duration>,
    /// After so long without output and without a change to a file.
    pub stall: Option<Duration>,
    /// Between the polite signal and the one that can't be ignored.
    pub grace: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { wall: None, stall: None, grace: Duration::from_secs(5) }
    }
}

impl Policy {
    /// A policy under which nothing but scratch is writable and nothing is reachable.
    pub fn closed() -> Self {
        Self {
            level: Level::Process,
            scope: Scope::default(),
            read: Vec::new(),
            hide: Vec::new(),
            folders: Vec::new(),
            network: Network::None,
            limits: Limits::default(),
            deadlines: Deadlines::default(),
            environment: Vec::new(),
            secrets: Vec::new(),
            without: ControlSet::empty(),
            container: None,
        }
    }

    /// Whether the host's network is to be out of reach, but for a list.
    pub(crate) fn closes_network(&self) -> bool {
        self.wants(Control::Network) && self.network != Network::Full
    }

    /// Whether this control is asked for.
    pub fn wants(&self, control: Control) -> bool {
        let meaningful = match control {
            Control::Memory => self.limits.memory != Memory::Unlimited,
            Control::Processes => self.limits.processes.is_some(),
            Control::FileSize => self.limits.file_size.is_some(),
            // What is read-only keeps its attributes too; what is not does not.
            Control::Attributes => {
                self.level.claims(control) && !self.without.contains(Control::ReadOnlyHost)
            }
            // They are counted for the user that the agent is.
            Control::UserLimits => {
                self.level.claims(control) && !self.without.contains(Control::UserNamespace)
            }
            // Toolchains are part of a home that is bound as a whole.
            Control::ToolchainLocks => {
                self.level.claims(control) && !self.without.contains(Control::PrivateHome)
            }
            _ => self.level.claims(control),
        };
        meaningful && !self.without.contains(control)
    }
}

/// How strongly a policy is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Namespaces, mounts, an overlay, Landlock and seccomp.
    Process,
    /// Landlock and seccomp over a private clone, where namespaces are forbidden.
    Landlock,
    /// A container of an image.
    Container,
}

impl Level {
    /// Whether a level promises a control at all. One it does not promise may hold all the same: the
    /// attestation says what does.
    pub const fn claims(self, control: Control) -> bool {
        match self {
            Level::Process => true,
            // An engine makes none, unless it is told to for every container.
            // Of toolchains it has those of its image.
            Level::Container => {
                !matches!(control, Control::UserNamespace | Control::UserLimits | Control::ToolchainLocks)
            }
            Level::Landlock => !matches!(
                control,
                Control::UserNamespace
                    | Control::MountNamespace
                    | Control::PidNamespace
                    | Control::IpcNamespace
                    | Control::UtsNamespace
                    | Control::CgroupNamespace
                    | Control::PrivateProc
                    | Control::Attributes
                    | Control::TmpSize
                    | Control::ToolchainLocks
            ),
        }
    }
}
