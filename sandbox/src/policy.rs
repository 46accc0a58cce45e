//! What a sandbox is asked to hold.
//!
//! A policy says what, never how: it names no mount, no system call and no cgroup. A level compiles it to
//! what the kernel offers, and the attestation says, control by control, what the result was.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::control::{Control, ControlSet};
use crate::egress::HostAllowlist;
use crate::memory_watch;
use crate::scope::Scope;
use crate::secret::NamedSecret;

/// Everything that may be asked of a sandbox.
#[derive(Debug, Clone)]
pub struct Policy {
    pub level: IsolationLevel,
    /// What of the workspace may change.
    pub scope: Scope,
    /// Host paths that are readable although they would not be by default.
    pub read: Vec<PathBuf>,
    /// Paths, of the host or of the workspace, that are out of sight.
    pub hide: Vec<PathBuf>,
    /// Host folders that are writable for real, outside any overlay.
    pub folders: Vec<WritableFolder>,
    pub network: NetworkPolicy,
    pub limits: ResourceLimits,
    pub deadlines: Deadlines,
    /// The whole environment of the command.
    pub environment: Vec<(OsString, OsString)>,
    /// Values of it that must not come back, in the command's work or in its output.
    pub secrets: Vec<NamedSecret>,
    /// Controls that are switched off on purpose. The attestation says so.
    pub without: ControlSet,
    /// What a container is made of, where the level is that.
    pub container: Option<ContainerConfig>,
}

/// A host folder bound into the sandbox writable: what is written there is on the host at once.
#[derive(Debug, Clone)]
pub struct WritableFolder {
    pub source: PathBuf,
    /// Where the agent sees it.
    pub target: PathBuf,
    /// Paths below it that stay read-only. A bind alone would be escaped by renaming a parent, so every
    /// directory between the folder and a protected path is pinned.
    pub protect: Vec<crate::path::RelPath>,
}

/// What the agent may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkPolicy {
    /// Its own loopback, and nothing else.
    None,
    /// Everything this host can reach.
    Full,
    /// These hosts, through a proxy that checks each connection ([`crate::egress`]).
    Hosts(HostAllowlist),
}

/// How much the agent may use. `None` is "not limited".
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ResourceLimits {
    /// Memory, all processes together.
    pub memory: MemoryLimit,
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
pub enum MemoryLimit {
    /// Three quarters of this machine's, where no limit is set: one agent that goes wild ends before the machine
    /// does. Every agent has that share: a user who runs many at once says how much each may have.
    Share,
    Bytes(u64),
    Unlimited,
}

impl MemoryLimit {
    /// In bytes, on this machine.
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            MemoryLimit::Share => Some(memory_watch::memory_of_machine() / 4 * 3),
            MemoryLimit::Bytes(bytes) => Some(bytes),
            MemoryLimit::Unlimited => None,
        }
    }
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            memory: MemoryLimit::Share,
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
    /// After so long, even if it makes progress.
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
    pub fn deny_all() -> Self {
        Self {
            level: IsolationLevel::Process,
            scope: Scope::default(),
            read: Vec::new(),
            hide: Vec::new(),
            folders: Vec::new(),
            network: NetworkPolicy::None,
            limits: ResourceLimits::default(),
            deadlines: Deadlines::default(),
            environment: Vec::new(),
            secrets: Vec::new(),
            without: ControlSet::empty(),
            container: None,
        }
    }

    /// Whether the host's network is to be out of reach, but for a list.
    pub(crate) fn closes_network(&self) -> bool {
        self.requires(Control::Network) && self.network != NetworkPolicy::Full
    }

    /// Whether this control is asked for.
    pub fn requires(&self, control: Control) -> bool {
        let meaningful = match control {
            Control::Memory => self.limits.memory != MemoryLimit::Unlimited,
            Control::Processes => self.limits.processes.is_some(),
            Control::FileSize => self.limits.file_size.is_some(),
            // What is read-only keeps its attributes too; what is not does not.
            Control::Attributes => {
                self.level.promises(control) && !self.without.contains(Control::ReadOnlyHost)
            }
            // They are counted for the user that the agent is.
            Control::UserLimits => {
                self.level.promises(control) && !self.without.contains(Control::UserNamespace)
            }
            // Toolchains are part of a home that is bound as a whole.
            Control::ToolchainLocks => {
                self.level.promises(control) && !self.without.contains(Control::PrivateHome)
            }
            _ => self.level.promises(control),
        };
        meaningful && !self.without.contains(control)
    }
}

/// What a container is made of, beside what a policy says for every level.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ContainerConfig {
    /// By name, or by name and digest.
    pub image: String,
    /// The engine's socket, where it is not one of the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<PathBuf>,
    #[serde(default)]
    pub pull: PullPolicy,
    /// How much of the processors it may use, in thousandths of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milli_cpus: Option<u64>,
    /// Caches of package managers that it finds again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<String>,
    /// Labels of the container, which the engine lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<(String, String)>,
}

/// When an image is fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PullPolicy {
    /// When it is not there.
    #[default]
    Missing,
    Never,
}

/// How strongly a policy is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsolationLevel {
    /// Namespaces, mounts, an overlay, Landlock and seccomp.
    Process,
    /// Landlock and seccomp over a private clone, where namespaces are forbidden.
    Landlock,
    /// A container of an image.
    Container,
}

impl IsolationLevel {
    /// The level's name, as it is typed and written.
    pub const fn name(self) -> &'static str {
        match self {
            IsolationLevel::Process => "process",
            IsolationLevel::Landlock => "landlock",
            IsolationLevel::Container => "container",
        }
    }

    /// Whether an engine runs the agent, in a container of an image.
    pub const fn needs_image(self) -> bool {
        matches!(self, IsolationLevel::Container)
    }

    /// Whether the agent works on a private copy of the workspace. At the other levels it works in an overlay, whose upper
    /// layer may be in memory.
    pub const fn copies_workspace(self) -> bool {
        match self {
            IsolationLevel::Process => false,
            IsolationLevel::Landlock | IsolationLevel::Container => true,
        }
    }

    /// Whether the agent finds the workspace at another path than the caller: it uses the copy where it lies on the host.
    pub const fn moves_workspace(self) -> bool {
        matches!(self, IsolationLevel::Landlock)
    }

    /// Whether the network can be limited to a list of hosts. That takes a network namespace.
    pub const fn holds_host_lists(self) -> bool {
        !matches!(self, IsolationLevel::Landlock)
    }

    /// The checks of [`crate::doctor`] that a host must pass. An overlay module that is not loaded yet is loaded with the first
    /// mount, so it is not among them.
    pub const fn required_checks(self) -> &'static [&'static str] {
        match self {
            IsolationLevel::Process => &["kernel", "user-namespaces", "landlock"],
            IsolationLevel::Landlock | IsolationLevel::Container => &["landlock"],
        }
    }

    /// Whether a policy can do without a control at this level. An engine has no switch for some.
    pub const fn can_drop(self, control: Control) -> bool {
        let fixed = self.needs_image() && matches!(control, Control::MinimalDev | Control::Attributes);
        self.promises(control) && !fixed
    }

    /// Whether a level promises a control at all. One it does not promise may hold all the same: the
    /// attestation says what does.
    pub const fn promises(self, control: Control) -> bool {
        match self {
            IsolationLevel::Process => true,
            // An engine makes none, unless it is told to for every container.
            // Of toolchains it has those of its image.
            IsolationLevel::Container => {
                !matches!(control, Control::UserNamespace | Control::UserLimits | Control::ToolchainLocks)
            }
            IsolationLevel::Landlock => !matches!(
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
