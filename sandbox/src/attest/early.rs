//! What is final about the agent's process before the rest of it is: its view, its namespaces, its limits. It is read, and
//! judged, while the agent gives up everything else.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::AttestationRequest;
use super::proc::ProcDirectory;
use crate::backend::SandboxBackend;
use crate::cgroup::Cgroup;
use crate::control::{Control, ControlStatus};
use crate::egress::{EgressListener, HostAllowlist};
use crate::mountinfo::{self, MountEntry};
use crate::mounts::OVERLAY;
use crate::path::RelPath;
use crate::policy::{MemoryLimit, NetworkPolicy, Policy};

const NAMESPACES: &[(&str, Control)] = &[
    ("user", Control::UserNamespace),
    ("mnt", Control::MountNamespace),
    ("pid", Control::PidNamespace),
    ("ipc", Control::IpcNamespace),
    ("uts", Control::UtsNamespace),
    ("cgroup", Control::CgroupNamespace),
    ("net", Control::Network),
];

/// The namespaces of this process: what an agent must not share. They are looked up while there is nothing else to do.
pub(crate) struct OwnNamespaces(Vec<String>);

impl OwnNamespaces {
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self(namespaces(&ProcDirectory::own()?)?))
    }
}

fn namespaces(told: &ProcDirectory) -> io::Result<Vec<String>> {
    NAMESPACES.iter().map(|(name, _)| told.link(&format!("ns/{name}"))).collect()
}

/// A process as /proc tells it while it is being restricted.
pub(crate) struct EarlyProcess {
    pub(super) told: ProcDirectory,
    pid: i32,
    pub(super) mounts: Vec<MountEntry>,
    uid_map: String,
    limits: String,
    /// Namespaces that are not ours.
    foreign: Vec<(&'static str, String)>,
}

/// Where a limit of memory comes from, if the user did not ask for it.
pub(super) fn memory_limit_origin(policy: &Policy) -> &'static str {
    match policy.limits.memory {
        MemoryLimit::Share => ", by default three quarters of this machine's",
        MemoryLimit::Bytes(_) | MemoryLimit::Unlimited => "",
    }
}

impl EarlyProcess {
    /// The agent's process, as we number it.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn read(pid: i32, ours: &OwnNamespaces) -> io::Result<Self> {
        let told = ProcDirectory::of(pid)?;
        let names = NAMESPACES.iter().map(|(name, _)| *name);
        let theirs = names.zip(namespaces(&told)?).zip(&ours.0);
        Ok(Self {
            mounts: told.read("mountinfo")?.lines().filter_map(mountinfo::parse).collect(),
            uid_map: told.read("uid_map")?.split_whitespace().collect::<Vec<_>>().join(" "),
            limits: told.read("limits")?,
            foreign: theirs.filter(|((_, theirs), ours)| theirs != *ours).map(|(theirs, _)| theirs).collect(),
            told,
            pid,
        })
    }

    /// `None` for what is known only when the agent stands at the gate.
    pub(super) fn observe(
        &self,
        control: Control,
        asked: &AttestationRequest<'_>,
    ) -> Option<(ControlStatus, String)> {
        let policy = asked.policy;
        Some(match control {
            Control::UserNamespace => self.user_namespace(asked),
            Control::Network if policy.network == NetworkPolicy::Full => {
                (ControlStatus::Yes, "host network, as asked".into())
            }
            Control::MountNamespace
            | Control::PidNamespace
            | Control::IpcNamespace
            | Control::UtsNamespace
            | Control::CgroupNamespace
            | Control::Network => {
                let name =
                    NAMESPACES.iter().find(|(_, known)| *known == control).map_or("", |(name, _)| *name);
                match &policy.network {
                    NetworkPolicy::Hosts(list) if name == "net" => self.ways_out(list, asked.listeners),
                    _ => (self.is_foreign(name).into(), self.namespace(name)),
                }
            }
            // A mount that can't be written keeps everything about its files.
            Control::ReadOnlyHost | Control::Attributes => self.read_only_but(asked, |mount| {
                mount.point.starts_with("/dev") || (mount.point == Path::new("/") && mount.kind == "tmpfs")
            }),
            Control::Scope => self.scope(asked),
            Control::PrivateHome => self.private(&[asked.home]),
            Control::PrivateTmp => self.private(&["/tmp", "/var/tmp", "/dev/shm"].map(Path::new)),
            Control::PrivateProc => {
                let mount = self.mount_at(Path::new("/proc"));
                let fresh = self.is_foreign("pid")
                    && mount.is_some_and(|mount| mount.kind == "proc" && mount.read_only);
                (fresh.into(), mount.map_or("no mount at /proc".into(), MountEntry::describe))
            }
            Control::MinimalDev => {
                let whole = self.mount_at(Path::new("/dev")).is_some();
                let count = self.mounts.iter().filter(|mount| mount.point.starts_with("/dev")).count();
                ((!whole).into(), format!("{count} mounts below /dev"))
            }
            Control::HiddenPaths => self.hidden_paths(asked),
            Control::ToolchainLocks => self.toolchain_locks(asked),
            // What a program is started with can't be read before it is started; this is what execve gets.
            Control::Environment => {
                let variables = match asked.place {
                    SandboxBackend::View => &policy.environment,
                    SandboxBackend::Bare(bare) => &bare.environment,
                    SandboxBackend::Container(contained) => &contained.environment,
                };
                let names: Vec<_> = variables.iter().map(|(name, _)| name.to_string_lossy()).collect();
                (policy.requires(control).into(), format!("passed on: {}", names.join(" ")))
            }
            Control::Memory => self.memory(asked),
            Control::Processes => self.processes(asked),
            Control::FileSize => {
                let limit = self.limit("Max file size");
                let small = policy
                    .limits
                    .file_size
                    .is_some_and(|asked| limit.parse().is_ok_and(|limit: u64| limit <= asked));
                (small.into(), format!("RLIMIT_FSIZE {limit}"))
            }
            Control::TmpSize => {
                let options = self.mount_of(Path::new("/tmp")).map_or("", |mount| &mount.options);
                let size = options.split(',').find(|option| option.starts_with("size="));
                (size.is_some().into(), format!("tmpfs {}", size.unwrap_or("without size")))
            }
            Control::Harvest => (policy.requires(control).into(), "judged when the command has ended".into()),
            Control::Landlock
            | Control::Seccomp
            | Control::NoNewPrivileges
            | Control::Capabilities
            | Control::CoreDumps
            | Control::UserLimits
            | Control::Descriptors => return None,
        })
    }

    fn user_namespace(&self, asked: &AttestationRequest<'_>) -> (ControlStatus, String) {
        let own = self.is_foreign("user");
        let host = self.uid_map.split(' ').nth(1).unwrap_or_default();
        // As root, a map that leads back to root would be no protection at all.
        let nobody = !asked.root || (host != "0" && !host.is_empty());
        ((own && nobody).into(), format!("uid_map {}", self.uid_map))
    }

    fn hidden_paths(&self, asked: &AttestationRequest<'_>) -> (ControlStatus, String) {
        let uncovered: Vec<_> = asked.hidden.iter().filter(|path| !self.covered(path)).collect();
        let whole = ["/run", "/home", "/root", "/var"]
            .iter()
            .any(|path| self.mount_at(Path::new(path)).is_some_and(|mount| mount.kind != "tmpfs"));
        let how = match uncovered.first() {
            Some(path) => format!("{} is in sight", path.display()),
            None => format!("{} paths covered, the rest absent", asked.hidden.len()),
        };
        // A hidden path is hidden as it is now. What commits hold of it is in the private repository.
        let tracked = asked.policy.hide.iter().find(|path| path.starts_with(&asked.workspace.path));
        let how = match tracked.filter(|_| asked.workspace.path.join(".git").exists()) {
            Some(path) => format!("{how}; not held: what the history has of {}", path.display()),
            None => how,
        };
        ((uncovered.is_empty() && !whole).into(), how)
    }

    fn memory(&self, asked: &AttestationRequest<'_>) -> (ControlStatus, String) {
        let policy = asked.policy;
        match asked.cgroup.and_then(|cgroup| Some((cgroup, cgroup.memory()?))) {
            Some((cgroup, (limit, how)))
                if policy.limits.memory.bytes().is_some_and(|asked| limit <= asked) =>
            {
                (cgroup.contains(self.pid).into(), format!("{how} {limit}"))
            }
            _ => match policy.limits.memory.bytes() {
                None => (ControlStatus::No, "not limited".into()),
                Some(limit) => (
                    ControlStatus::Watched,
                    format!("{limit}{}, looked at every half second", memory_limit_origin(policy)),
                ),
            },
        }
    }

    fn processes(&self, asked: &AttestationRequest<'_>) -> (ControlStatus, String) {
        let (policy, bare) = (asked.policy, asked.place.landlock_setup());
        let limit = self.limit("Max processes");
        let cgroup = asked.cgroup.and_then(Cgroup::processes);
        let how = match cgroup {
            Some((limit, how)) => format!("{how} {limit}"),
            None => format!("RLIMIT_NPROC {limit}"),
        };
        let others = bare.map_or(0, |bare| bare.others);
        let how = if others > 0 { format!("{how}, {others} of them this user's others") } else { how };
        let small = policy
            .limits
            .processes
            .is_some_and(|asked| limit.parse().is_ok_and(|limit: u64| limit <= asked + others));
        // The limit is counted per user and namespace; root itself is not held to it.
        let counted = asked.cgroup.is_some_and(|cgroup| cgroup.contains(self.pid));
        let by_cgroup = counted
            && policy.limits.processes.is_some_and(|asked| cgroup.is_some_and(|(limit, _)| limit <= asked));
        let mortal = self.is_foreign("user") || bare.is_some();
        (((small && mortal) || by_cgroup).into(), how)
    }

    pub(super) fn is_foreign(&self, name: &str) -> bool {
        self.foreign.iter().any(|(known, _)| *known == name)
    }

    /// A namespace of its own, and sockets that lead out of this very one, at the addresses of the list.
    fn ways_out(&self, list: &HostAllowlist, listeners: &[EgressListener]) -> (ControlStatus, String) {
        let namespace = self.namespace("net");
        let mut found = BTreeSet::new();
        for listener in listeners {
            let here = match listener.network() {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.is_foreign("net") && listener.is_listed_for(self.pid).unwrap_or(false)
                }
                named => named.is_ok_and(|network| network == namespace),
            };
            match listener.listens_at() {
                Ok(Some(address)) if here => drop(found.insert(address)),
                _ => {
                    return (ControlStatus::No, format!("{namespace}, {} leads elsewhere", listener.address));
                }
            }
        }
        let as_asked = self.is_foreign("net") && found == list.listeners();
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        (as_asked.into(), format!("{namespace}, out through {}: {list}", found.join(" and ")))
    }

    pub(super) fn namespace(&self, name: &str) -> String {
        let foreign = self.foreign.iter().find(|(known, _)| *known == name);
        foreign.map_or_else(|| format!("{name}: the host's"), |(_, link)| link.clone())
    }

    pub(super) fn limit(&self, name: &str) -> &str {
        let line = self.limits.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()).unwrap_or("unknown")
    }

    /// The mount one sees at a path: the last one made there.
    pub(super) fn mount_at(&self, path: &Path) -> Option<&MountEntry> {
        // The kernel writes them all in one way. Comparing parts, as paths are, would take longer than reading them.
        let path: PathBuf = path.components().collect();
        self.mounts.iter().rev().find(|mount| mount.point.as_os_str() == path.as_os_str())
    }

    /// The mount a path lies on.
    pub(super) fn mount_of(&self, path: &Path) -> Option<&MountEntry> {
        path.ancestors().find_map(|above| self.mount_at(above))
    }

    /// Whether something of ours lies over the path, or nothing visible is there at all.
    fn covered(&self, path: &Path) -> bool {
        match self.mount_at(path) {
            Some(mount) => mount.kind == "tmpfs" && mount.read_only,
            None => !self.told.inside(path).exists(),
        }
    }

    fn private(&self, paths: &[&Path]) -> (ControlStatus, String) {
        let open = paths.iter().find(|path| self.mount_of(path).is_none_or(|mount| mount.kind != "tmpfs"));
        match open {
            Some(path) => (ControlStatus::No, format!("{} is not private", path.display())),
            None => (ControlStatus::Yes, "tmpfs".into()),
        }
    }

    /// Every toolchain must be seen through an overlay of ours; any other mount is the host's own file system.
    fn toolchain_locks(&self, asked: &AttestationRequest<'_>) -> (ControlStatus, String) {
        if !asked.policy.requires(Control::ToolchainLocks) {
            return (ControlStatus::No, "toolchains are the host's own files".into());
        }
        let is_ours = |mount: &MountEntry| mount.kind == "overlay" && mount.source == OVERLAY;
        let shared = asked.toolchains.iter().find(|path| !self.mount_at(path).is_some_and(is_ours));
        match shared {
            None => (
                ControlStatus::Yes,
                format!("{} toolchains, each through an overlay", asked.toolchains.len()),
            ),
            Some(path) => {
                (ControlStatus::NotHere, format!("not held: {} takes no overlay over it", path.display()))
            }
        }
    }

    /// Every mount that can be written must be one that was asked for, or the sandbox's own.
    pub(super) fn read_only_but(
        &self,
        asked: &AttestationRequest<'_>,
        is_own: impl Fn(&MountEntry) -> bool,
    ) -> (ControlStatus, String) {
        let known = |mount: &&MountEntry| {
            let point = &mount.point;
            mount.read_only
                || is_own(mount)
                || point.starts_with(&asked.workspace.path)
                || asked.policy.folders.iter().any(|folder| point.starts_with(&folder.target))
                || asked.workspace.overlays.iter().any(|overlay| *point == overlay.at)
                || asked.workspace.outbox.as_ref().is_some_and(|outbox| *point == outbox.at)
        };
        match self.mounts.iter().find(|mount| !known(mount)) {
            Some(mount) => (ControlStatus::No, format!("{} can be written", mount.point.display())),
            None => {
                let count = self.mounts.iter().filter(|mount| mount.read_only).count();
                (ControlStatus::Yes, format!("{count} of {} mounts read-only", self.mounts.len()))
            }
        }
    }

    /// The writable directories of the workspace must be exactly the opened ones.
    fn scope(&self, asked: &AttestationRequest<'_>) -> (ControlStatus, String) {
        let root = &asked.workspace.path;
        let writable = asked.workspace.writable(asked.opening, &asked.policy.scope);
        let overlay = self.mount_at(root).filter(|mount| mount.kind == "overlay");
        let stray = self.mounts.iter().find(|mount| {
            mount.kind == "overlay"
                && mount.point.starts_with(root)
                && !mount.read_only
                && !writable.contains(&mount.point)
        });
        let is_closed =
            |path: &RelPath| self.mount_at(&root.join(path.as_path())).is_some_and(|mount| mount.read_only);
        let held = overlay.is_some()
            && stray.is_none()
            && asked.opening.close.iter().all(is_closed)
            && asked.policy.requires(Control::Scope);
        let list: Vec<String> = asked.opening.open.iter().map(RelPath::to_string).collect();
        let list = if list.is_empty() { "nothing".to_owned() } else { list.join(", ") };
        (held.into(), format!("overlay, writable: {list}; single files are judged at harvest"))
    }
}
