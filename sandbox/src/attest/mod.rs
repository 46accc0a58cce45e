//! What was asked and what holds, control by control, read back from the kernel.
//!
//! The agent's process stands at the gate, fully restricted, its program not yet started. Everything here is
//! read about that process from outside, through /proc, or was tried by it and answered by the kernel.
//! Nothing is copied from what we meant to do.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

mod contained;

use crate::access;
use crate::cgroup::Cgroup;
use crate::channel::Ready;
use crate::control::Control;
use crate::egress::{List, Listener};
use crate::launch::Place;
use crate::opening::Opening;
use crate::path::RelPath;
use crate::policy::{Level, Network, Policy};
use crate::syscalls;
use crate::workspace::Workspace;

/// The format of an attestation.
pub const VERSION: u32 = 1;

/// What a sandbox was asked to hold and what it does.
#[derive(Debug, Clone, Serialize)]
pub struct Attestation {
    pub version: u32,
    pub level: Level,
    pub kernel: String,
    /// What a container was made by and of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Made>,
    pub controls: Vec<Statement>,
}

/// Where a container comes from.
#[derive(Debug, Clone, Serialize)]
pub struct Made {
    pub engine: String,
    /// As it was asked for.
    pub image: String,
    /// The digest of what that was.
    pub digest: String,
}

/// One control's line.
#[derive(Debug, Clone, Serialize)]
pub struct Statement {
    pub control: Control,
    pub requested: bool,
    pub enforced: Enforced,
    /// By what, as the kernel tells it.
    pub how: String,
}

/// How well a control is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforced {
    /// The kernel refuses.
    Enforced,
    /// We look, and stop the agent.
    Watched,
    /// Nobody asked for it, and nothing holds it.
    Off,
    /// It was asked for, and nothing holds it.
    Missing,
}

impl Attestation {
    /// What was asked for and is not held. A sandbox with such a control is not started.
    pub fn missing(&self) -> impl Iterator<Item = &Statement> {
        self.controls.iter().filter(|statement| statement.enforced == Enforced::Missing)
    }

    pub fn statement(&self, control: Control) -> Option<&Statement> {
        self.controls.iter().find(|statement| statement.control == control)
    }
}

/// What else is needed to read the agent's process right.
pub(crate) struct Asked<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) workspace: &'a Workspace,
    pub(crate) opening: &'a Opening,
    pub(crate) home: &'a Path,
    pub(crate) hidden: Vec<PathBuf>,
    pub(crate) cgroup: Option<&'a Cgroup>,
    pub(crate) root: bool,
    pub(crate) place: &'a Place,
    /// Sockets that lead out of the network namespace.
    pub(crate) listeners: &'a [Listener],
}

/// Reads the agent's process, which waits at the gate.
pub(crate) fn read(asked: &Asked<'_>, ready: &Ready, early: Early) -> io::Result<Attestation> {
    let process = Process::read(early)?;
    let controls = Control::ALL
        .iter()
        .map(|control| {
            let requested = asked.policy.wants(*control);
            let (held, how) = process.observe(*control, asked, ready);
            let enforced = match (requested, held) {
                (_, Held::Yes) => Enforced::Enforced,
                (true, Held::Watched) => Enforced::Watched,
                (true, Held::No) => Enforced::Missing,
                (false, _) => Enforced::Off,
            };
            Statement { control: *control, requested, enforced, how }
        })
        .collect();
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let container = match (asked.place, &asked.policy.container) {
        (Place::Container(contained), Some(container)) => Some(Made {
            engine: contained.engine.version.clone(),
            image: container.image.clone(),
            digest: contained.image.id.clone(),
        }),
        _ => None,
    };
    Ok(Attestation { version: VERSION, level: asked.policy.level, kernel, container, controls })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Yes,
    Watched,
    No,
}

impl From<bool> for Held {
    fn from(held: bool) -> Self {
        if held { Held::Yes } else { Held::No }
    }
}

/// What is final about the agent's process before the rest of it is: its view, its namespaces, its limits.
/// Read while it gives up everything else.
pub(crate) struct Early {
    pid: i32,
    mounts: Vec<Mount>,
    uid_map: String,
    limits: String,
    /// Namespaces that are not ours.
    foreign: Vec<(&'static str, String)>,
}

impl Early {
    /// The agent's process, as we number it.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn read(pid: i32) -> io::Result<Self> {
        let file = |name: &str| read_proc(&format!("/proc/{pid}/{name}"));
        let mut foreign = Vec::new();
        for (name, _) in NAMESPACES {
            let theirs = fs::read_link(format!("/proc/{pid}/ns/{name}"))?;
            let ours = fs::read_link(format!("/proc/self/ns/{name}"))?;
            if theirs != ours {
                foreign.push((*name, theirs.display().to_string()));
            }
        }
        Ok(Self {
            pid,
            mounts: file("mountinfo")?.lines().filter_map(parse_mount).collect(),
            uid_map: file("uid_map")?.split_whitespace().collect::<Vec<_>>().join(" "),
            limits: file("limits")?,
            foreign,
        })
    }
}

/// A process as /proc tells it.
struct Process {
    early: Early,
    status: String,
    descriptors: Vec<i32>,
}

/// One line of mountinfo.
#[derive(Debug)]
struct Mount {
    point: PathBuf,
    read_only: bool,
    kind: String,
    options: String,
}

const NAMESPACES: &[(&str, Control)] = &[
    ("user", Control::UserNamespace),
    ("mnt", Control::MountNamespace),
    ("pid", Control::PidNamespace),
    ("ipc", Control::IpcNamespace),
    ("uts", Control::UtsNamespace),
    ("cgroup", Control::CgroupNamespace),
    ("net", Control::Network),
];

impl Process {
    fn read(early: Early) -> io::Result<Self> {
        let pid = early.pid;
        let mut descriptors = Vec::new();
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
            let number: i32 = entry?.file_name().to_string_lossy().parse().unwrap_or(-1);
            // The three standard ones are passed on. Of others, what is closed when the program starts does
            // not count: the flags are octal, as open(2) takes them.
            let passed = (0..3).contains(&number) || {
                let info = read_proc(&format!("/proc/{pid}/fdinfo/{number}"))?;
                let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("0").trim();
                i64::from_str_radix(flags, 8).unwrap_or(0) & i64::from(libc::O_CLOEXEC) == 0
            };
            if passed {
                descriptors.push(number);
            }
        }
        descriptors.sort_unstable();
        Ok(Self { status: read_proc(&format!("/proc/{pid}/status"))?, early, descriptors })
    }

    fn is_foreign(&self, name: &str) -> bool {
        self.early.foreign.iter().any(|(known, _)| *known == name)
    }

    fn observe(&self, control: Control, asked: &Asked<'_>, ready: &Ready) -> (Held, String) {
        let policy = asked.policy;
        let special = match (asked.place, &ready.tried) {
            (Place::Bare(bare), Some(tried)) => tried.observe(control, policy, bare, asked.root),
            (Place::Container(contained), _) => self.observe_contained(control, asked, contained),
            _ => None,
        };
        if let Some(observed) = special {
            return observed;
        }
        let bare = asked.place.bare();
        match control {
            Control::UserNamespace => {
                let own = self.is_foreign("user");
                let host = self.early.uid_map.split(' ').nth(1).unwrap_or_default();
                // As root, a map that leads back to root would be no protection at all.
                let nobody = !asked.root || (host != "0" && !host.is_empty());
                ((own && nobody).into(), format!("uid_map {}", self.early.uid_map))
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
            Control::ReadOnlyHost | Control::Attributes => self.read_only_host(asked),
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
                let count = self.early.mounts.iter().filter(|mount| mount.point.starts_with("/dev")).count();
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
            Control::Landlock => {
                let abi =
                    access::abi().map_or("no landlock".into(), |(abi, _)| format!("landlock abi {abi}"));
                let tried = match ready.landlock {
                    Ok(()) => "a probe was refused".to_owned(),
                    Err(0) => "a probe was not refused".to_owned(),
                    Err(error) => format!("a probe failed: {}", io::Error::from_raw_os_error(error)),
                };
                (ready.landlock.is_ok().into(), format!("{abi}, {tried}"))
            }
            Control::Seccomp => {
                let filters: u64 = self.number("Seccomp_filters");
                let on = self.status("Seccomp") == "2" && filters >= syscalls::FILTERS;
                (on.into(), format!("seccomp mode {}, {filters} filters", self.status("Seccomp")))
            }
            Control::NoNewPrivileges => (
                Held::from(self.status("NoNewPrivs") == "1"),
                format!("NoNewPrivs {}", self.status("NoNewPrivs")),
            ),
            Control::Capabilities => {
                // What could ever be gained is full for an ordinary user without a namespace, and means nothing:
                // no new privileges are.
                let bound = bare.is_some() && !asked.root && self.status("NoNewPrivs") == "1";
                let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"];
                let sets = if bound { &sets[..4] } else { &sets[..] };
                let held = sets.iter().find(|set| !self.status(set).trim_start_matches('0').is_empty());
                let how = held.map_or(format!("{} sets empty", sets.len()), |set| {
                    format!("{set} {}", self.status(set))
                });
                (held.is_none().into(), how)
            }
            Control::Descriptors => {
                (Held::from(self.descriptors == [0, 1, 2]), format!("passed on: {:?}", self.descriptors))
            }
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
                Some((cgroup, (limit, how))) if policy.limits.memory.is_some_and(|asked| limit <= asked) => {
                    (cgroup.holds(self.early.pid).into(), format!("{how} {limit}"))
                }
                _ => (Held::Watched, "no memory controller to use: looked at every half second".into()),
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
                let counted = asked.cgroup.is_some_and(|cgroup| cgroup.holds(self.early.pid));
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
        }
    }

    /// A namespace of its own, and sockets that lead out of this very one, at the addresses of the list.
    fn ways_out(&self, list: &List, listeners: &[Listener]) -> (Held, String) {
        let namespace = self.namespace("net");
        let mut found = BTreeSet::new();
        for listener in listeners {
            let here = match listener.network() {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.is_foreign("net") && listener.is_listed_for(self.early.pid).unwrap_or(false)
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

    fn status(&self, key: &str) -> &str {
        let line = self.status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_default().trim()
    }

    fn number(&self, key: &str) -> u64 {
        self.status(key).parse().unwrap_or(0)
    }

    fn namespace(&self, name: &str) -> String {
        let foreign = self.early.foreign.iter().find(|(known, _)| *known == name);
        foreign.map_or_else(|| format!("{name}: the host's"), |(_, link)| link.clone())
    }

    fn limit(&self, name: &str) -> &str {
        let line = self.early.limits.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()).unwrap_or("unknown")
    }

    /// The mount one sees at a path: the last one made there.
    fn mount_at(&self, path: &Path) -> Option<&Mount> {
        self.early.mounts.iter().rev().find(|mount| mount.point == path)
    }

    /// The mount a path lies on.
    fn mount_of(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|above| self.mount_at(above))
    }

    /// Whether something of ours lies over the path, or nothing visible is there at all.
    fn covered(&self, path: &Path) -> bool {
        match self.mount_at(path) {
            Some(mount) => mount.kind == "tmpfs" && mount.read_only,
            None => !Path::new(&format!("/proc/{}/root{}", self.early.pid, path.display())).exists(),
        }
    }

    fn private(&self, paths: &[&Path]) -> (Held, String) {
        let open = paths.iter().find(|path| self.mount_of(path).is_none_or(|mount| mount.kind != "tmpfs"));
        match open {
            Some(path) => (Held::No, format!("{} is not private", path.display())),
            None => (Held::Yes, "tmpfs".into()),
        }
    }

    /// Every mount that can be written must be one we know of.
    fn read_only_host(&self, asked: &Asked<'_>) -> (Held, String) {
        let policy = asked.policy;
        let known = |mount: &&Mount| {
            let point = &mount.point;
            mount.read_only
                || point.starts_with(&asked.workspace.path)
                || point.starts_with("/dev")
                || (point == Path::new("/") && mount.kind == "tmpfs")
                || policy.folders.iter().any(|folder| point.starts_with(&folder.target))
                || asked.workspace.overlays.iter().any(|overlay| *point == overlay.at)
                || asked.workspace.outbox.as_ref().is_some_and(|outbox| *point == outbox.at)
        };
        match self.early.mounts.iter().find(|mount| !known(mount)) {
            Some(mount) => (Held::No, format!("{} can be written", mount.point.display())),
            None => {
                let count = self.early.mounts.iter().filter(|mount| mount.read_only).count();
                (Held::Yes, format!("{count} of {} mounts read-only", self.early.mounts.len()))
            }
        }
    }

    /// The writable directories of the workspace must be exactly the opened ones.
    fn scope(&self, asked: &Asked<'_>) -> (Held, String) {
        let root = &asked.workspace.path;
        let writable = asked.workspace.writable(asked.opening, &asked.policy.scope);
        let overlay = self.mount_at(root).filter(|mount| mount.kind == "overlay");
        let stray = self.early.mounts.iter().find(|mount| {
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

/// A file of /proc, with a buffer most of them fit into: growing one costs more calls than the reading.
fn read_proc(path: &str) -> io::Result<String> {
    use std::io::Read;
    let mut bytes = Vec::with_capacity(16 * 1024);
    fs::File::open(path)?.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Mount {
    fn describe(&self) -> String {
        format!("{} {}", self.kind, if self.read_only { "read-only" } else { "writable" })
    }
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw,errors=continue`
fn parse_mount(line: &str) -> Option<Mount> {
    let (first, second) = line.split_once(" - ")?;
    let fields: Vec<&str> = first.split(' ').collect();
    let (point, flags) = (fields.get(4)?, fields.get(5)?);
    let mut rest = second.split(' ');
    let kind = rest.next()?.to_owned();
    let options = rest.nth(1).unwrap_or_default().to_owned();
    Some(Mount {
        point: PathBuf::from(unescape(point)),
        read_only: flags.split(',').any(|flag| flag == "ro"),
        kind,
        options,
    })
}

/// Blanks and backslashes in mountinfo are written in octal.
fn unescape(text: &str) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt;
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        match octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
        {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    std::ffi::OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read_with_its_escapes() {
        let line = "36 35 98:0 /r /a\\040b rw,nosuid,ro shared:1 master:2 - tmpfs none rw,size=4k";
        let mount = parse_mount(line).expect("parses");
        assert_eq!(mount.point, Path::new("/a b"));
        assert!(mount.read_only);
        assert_eq!((mount.kind.as_str(), mount.options.as_str()), ("tmpfs", "rw,size=4k"));
    }
}
