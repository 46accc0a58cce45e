//! What is final about the agent's process before the rest of it is: its view, its namespaces, its limits. It is read, and
//! judged, while the agent gives up everything else.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::proc::Proc;
use super::{Asked, Held};
use crate::cgroup::Cgroup;
use crate::control::Control;
use crate::egress::{List, Listener};
use crate::launch::Place;
use crate::mountinfo::{self, Mount};
use crate::mounts::OVERLAY;
use crate::path::RelPath;
use crate::policy::{Memory, Network, Policy};

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
pub(crate) struct Ours(Vec<String>);

impl Ours {
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self(namespaces(&Proc::own()?)?))
    }
}

fn namespaces(told: &Proc) -> io::Result<Vec<String>> {
    NAMESPACES.iter().map(|(name, _)| told.link(&format!("ns/{name}"))).collect()
}

/// A process as /proc tells it while it is being restricted.
pub(crate) struct Early {
    pub(super) told: Proc,
    pid: i32,
    pub(super) mounts: Vec<Mount>,
    uid_map: String,
    limits: String,
    /// Namespaces that are not ours.
    foreign: Vec<(&'static str, String)>,
}

/// Where a limit of memory comes from, if nobody asked for it.
pub(super) fn share(policy: &Policy) -> &'static str {
    match policy.limits.memory {
        Memory::Share => ", by default three quarters of this machine's",
        Memory::Bytes(_) | Memory::Unlimited => "",
    }
}

impl Early {
    /// The agent's process, as we number it.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn read(pid: i32, ours: &Ours) -> io::Result<Self> {
        let told = Proc::of(pid)?;
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
    pub(super) fn observe(&self, control: Control, asked: &Asked<'_>) -> Option<(Held, String)> {
        let policy = asked.policy;
        let bare = asked.place.bare();
        Some(match control {
            Control::UserNamespace => {
                let own = self.is_foreign("user");
                let host = self.uid_map.split(' ').nth(1).unwrap_or_default();
                // As root, a map that leads back to root would be no protection at all.
                let nobody = !asked.root || (host != "0" && !host.is_empty());
                ((own && nobody).into(), format!("uid_map {}", self.uid_map))
            }
            Control::Network if policy.network == Network::Full => {
                (Held::Yes, "host network, as asked".into())
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
                    Network::Hosts(list) if name == "net" => self.ways_out(list, asked.listeners),
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
                (fresh.into(), mount.map_or("no mount at /proc".into(), Mount::describe))
            }
            Control::MinimalDev => {
                let whole = self.mount_at(Path::new("/dev")).is_some();
                let count = self.mounts.iter().filter(|mount| mount.point.starts_with("/dev")).count();
                ((!whole).into(), format!("{count} mounts below /dev"))
            }
            Control::HiddenPaths => {
                let uncovered: Vec<_> = asked.hidden.iter().filter(|path| !self.covered(path)).collect();
                let whole = ["/run", "/home", "/root", "/var"]
                    .iter()
                    .any(|path| self.mount_at(Path::new(path)).is_some_and(|mount| mount.kind != "tmpfs"));
                let how = match uncovered.first() {
                    Some(path) => format!("{} is in sight", path.display()),
                    None => format!("{} paths covered, the rest absent", asked.hidden.len()),
                };
                // A hidden path is hidden as it is now. What commits hold of it is in the private repository.
                let tracked = policy.hide.iter().find(|path| path.starts_with(&asked.workspace.path));
                let how = match tracked.filter(|_| asked.workspace.path.join(".git").exists()) {
                    Some(path) => format!("{how}; not held: what the history has of {}", path.display()),
                    None => how,
                };
                ((uncovered.is_empty() && !whole).into(), how)
            }
            Control::ToolchainLocks => self.toolchain_locks(asked),
            // What a program is started with can't be read before it is started; this is what execve gets.
            Control::Environment => {
                let variables = match asked.place {
                    Place::View => &policy.environment,
                    Place::Bare(bare) => &bare.environment,
                    Place::Container(contained) => &contained.environment,
                };
                let names: Vec<_> = variables.iter().map(|(name, _)| name.to_string_lossy()).collect();
                (policy.wants(control).into(), format!("passed on: {}", names.join(" ")))
            }
            Control::Memory => match asked.cgroup.and_then(|cgroup| Some((cgroup, cgroup.memory()?))) {
                Some((cgroup, (limit, how)))
                    if policy.limits.memory.bytes().is_some_and(|asked| limit <= asked) =>
                {
                    (cgroup.holds(self.pid).into(), format!("{how} {limit}"))
                }
                _ => match policy.limits.memory.bytes() {
                    None => (Held::No, "not limited".into()),
                    Some(limit) => {
                        (Held::Watched, format!("{limit}{}, looked at every half second", share(policy)))
                    }
                },
            },
            Control::Processes => {
                let limit = self.limit("Max processes");
                let cgroup = asked.cgroup.and_then(Cgroup::processes);
                let how = match cgroup {
                    Some((limit, how)) => format!("{how} {limit}"),
                    None => format!("RLIMIT_NPROC {limit}"),
                };
                let others = bare.map_or(0, |bare| bare.others);
                let how =
                    if others > 0 { format!("{how}, {others} of them this user's others") } else { how };
                let small = policy
                    .limits
                    .processes
                    .is_some_and(|asked| limit.parse().is_ok_and(|limit: u64| limit <= asked + others));
                // The limit is counted per user and namespace; root itself is not held to it.
                let counted = asked.cgroup.is_some_and(|cgroup| cgroup.holds(self.pid));
                let by_cgroup = counted
                    && policy
                        .limits
                        .processes
                        .is_some_and(|asked| cgroup.is_some_and(|(limit, _)| limit <= asked));
                let mortal = self.is_foreign("user") || bare.is_some();
                (((small && mortal) || by_cgroup).into(), how)
            }
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
            Control::Harvest => (policy.wants(control).into(), "judged when the command has ended".into()),
            Control::Landlock
            | Control::Seccomp
            | Control::NoNewPrivileges
            | Control::Capabilities
            | Control::CoreDumps
            | Control::UserLimits
            | Control::Descriptors => return None,
        })
    }

    pub(super) fn is_foreign(&self, name: &str) -> bool {
        self.foreign.iter().any(|(known, _)| *known == name)
    }

    /// A namespace of its own, and sockets that lead out of this very one, at the addresses of the list.
    fn ways_out(&self, list: &List, listeners: &[Listener]) -> (Held, String) {
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
                _ => return (Held::No, format!("{namespace}, {} leads elsewhere", listener.address)),
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
    pub(super) fn mount_at(&self, path: &Path) -> Option<&Mount> {
        // The kernel writes them all in one way. Comparing parts, as paths are, would take longer than reading them.
        let path: PathBuf = path.components().collect();
        self.mounts.iter().rev().find(|mount| mount.point.as_os_str() == path.as_os_str())
    }

    /// The mount a path lies on.
    pub(super) fn mount_of(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|above| self.mount_at(above))
    }

    /// Whether something of ours lies over the path, or nothing visible is there at all.
    fn covered(&self, path: &Path) -> bool {
        match self.mount_at(path) {
            Some(mount) => mount.kind == "tmpfs" && mount.read_only,
            None => !self.told.inside(path).exists(),
        }
    }

    fn private(&self, paths: &[&Path]) -> (Held, String) {
        let open = paths.iter().find(|path| self.mount_of(path).is_none_or(|mount| mount.kind != "tmpfs"));
        match open {
            Some(path) => (Held::No, format!("{} is not private", path.display())),
            None => (Held::Yes, "tmpfs".into()),
        }
    }

    /// Every toolchain must be seen through an overlay of ours; any other mount is the host's own file system.
    fn toolchain_locks(&self, asked: &Asked<'_>) -> (Held, String) {
        if !asked.policy.wants(Control::ToolchainLocks) {
            return (Held::No, "toolchains are the host's own files".into());
        }
        let is_ours = |mount: &Mount| mount.kind == "overlay" && mount.source == OVERLAY;
        let shared = asked.toolchains.iter().find(|path| !self.mount_at(path).is_some_and(is_ours));
        match shared {
            None => (Held::Yes, format!("{} toolchains, each through an overlay", asked.toolchains.len())),
            Some(path) => (Held::NotHere, format!("not held: {} takes no overlay over it", path.display())),
        }
    }

    /// Every mount that can be written must be one that was asked for, or the sandbox's own.
    pub(super) fn read_only_but(&self, asked: &Asked<'_>, is_own: impl Fn(&Mount) -> bool) -> (Held, String) {
        let known = |mount: &&Mount| {
            let point = &mount.point;
            mount.read_only
                || is_own(mount)
                || point.starts_with(&asked.workspace.path)
                || asked.policy.folders.iter().any(|folder| point.starts_with(&folder.target))
                || asked.workspace.overlays.iter().any(|overlay| *point == overlay.at)
                || asked.workspace.outbox.as_ref().is_some_and(|outbox| *point == outbox.at)
        };
        match self.mounts.iter().find(|mount| !known(mount)) {
            Some(mount) => (Held::No, format!("{} can be written", mount.point.display())),
            None => {
                let count = self.mounts.iter().filter(|mount| mount.read_only).count();
                (Held::Yes, format!("{count} of {} mounts read-only", self.mounts.len()))
            }
        }
    }

    /// The writable directories of the workspace must be exactly the opened ones.
    fn scope(&self, asked: &Asked<'_>) -> (Held, String) {
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
            && asked.policy.wants(Control::Scope);
        let list: Vec<String> = asked.opening.open.iter().map(RelPath::to_string).collect();
        let list = if list.is_empty() { "nothing".to_owned() } else { list.join(", ") };
        (held.into(), format!("overlay, writable: {list}; single files are judged at harvest"))
    }
}
