//! The file system an agent sees, as a plan.
//!
//! A fresh, empty tree is filled from the top: the operating system's folders read-only, a private HOME with
//! the toolchains in it, private temporary folders, a few devices, and the workspace at its usual path. What
//! is not put there is not there; hiding is only needed for paths inside something visible. The plan is pure;
//! [`crate::mounts`] carries it out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::control::Control;
use crate::host::{self, HostPaths, HostUser, SystemFolder};
use crate::policy::Policy;

/// One step of the plan. Targets are absolute paths as the agent sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MountStep {
    /// Empty, and the agent can't change that.
    Folder {
        at: PathBuf,
    },
    Link {
        at: PathBuf,
        to: PathBuf,
    },
    File {
        at: PathBuf,
        contents: String,
    },
    /// An empty writable folder of the agent's own. All of them share one size.
    Private {
        at: PathBuf,
        mode: u32,
    },
    /// A small file of the agent's own, in a folder of its own.
    Note {
        at: PathBuf,
        contents: String,
    },
    /// Something of the host, with everything mounted below it.
    Bind {
        source: PathBuf,
        at: PathBuf,
        access: BindAccess,
    },
    Device {
        name: &'static str,
    },
    Proc,
    Terminals,
    /// Nothing readable is left at this path.
    Hide {
        at: PathBuf,
    },
    /// The path below a writable bind can be neither written nor moved away.
    Pin {
        at: PathBuf,
        access: BindAccess,
    },
}

/// What a bind allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BindAccess {
    Read,
    /// Read, with the owner of the workspace's files seen as the agent.
    ReadAsOwner,
    /// Read, through a layer of our own: locks and leases on what is seen stay inside.
    ReadApart,
    Write,
}

/// Devices that hold nothing and do nothing. /dev/random is the same as /dev/urandom once the kernel has started.
const DEVICES: &[&str] = &["null", "zero", "full", "urandom"];

/// Folders that are private: with what mode, and what they cost a policy that does without.
const TEMPORARY: &[(&str, u32)] = &[("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/dev/shm", 0o1777)];

/// Top-level folders that are only bound when nothing is to be hidden.
const HIDDEN_BY_ABSENCE: &[&str] = &["/run", "/var", "/srv", "/mnt", "/media", "/home", "/root", "/boot"];

/// The plan for a policy on a host, but for its [`base_steps`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountPlan {
    /// Before the workspace, which may lie in it.
    pub(crate) folders: Vec<MountStep>,
    /// After everything, over what is there.
    pub(crate) covers: Vec<MountStep>,
}

impl MountPlan {
    /// `inside` is the agent's user and group as it sees them.
    pub(crate) fn new(
        policy: &Policy,
        host: &HostUser,
        around: &HostPaths,
        inside: (u32, u32),
        state: &Path,
    ) -> Self {
        let mut folders = system(policy, host, around, inside);
        folders.extend(named(policy));
        Self { folders, covers: covers(policy, host, around, state) }
    }
}

/// How what is the host's own is bound.
fn host_access(policy: &Policy) -> BindAccess {
    if policy.requires(Control::ReadOnlyHost) { BindAccess::Read } else { BindAccess::Write }
}

/// The part of a plan that needs no look at the host, except for folders that are not to be hidden. It is carried
/// out while another process looks. `terminal` says whether the agent gets a terminal.
pub(crate) fn base_steps(policy: &Policy, terminal: bool) -> Vec<MountStep> {
    let mut steps = Vec::new();
    let hides = policy.requires(Control::HiddenPaths);
    if !hides {
        for path in HIDDEN_BY_ABSENCE.iter().map(PathBuf::from).filter(|path| path.is_dir()) {
            steps.push(MountStep::Bind { source: path.clone(), at: path, access: host_access(policy) });
        }
    } else {
        steps.push(MountStep::Folder { at: "/run".into() });
        steps.push(MountStep::Link { at: "/var/run".into(), to: "/run".into() });
    }

    if policy.requires(Control::MinimalDev) {
        steps.extend(DEVICES.iter().map(|name| MountStep::Device { name }));
        if terminal {
            steps.push(MountStep::Device { name: "tty" });
        }
        for (at, to) in [
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
            ("/dev/ptmx", "pts/ptmx"),
            ("/dev/random", "urandom"),
        ] {
            steps.push(MountStep::Link { at: at.into(), to: to.into() });
        }
        steps.push(MountStep::Terminals);
    } else {
        steps.push(MountStep::Bind { source: "/dev".into(), at: "/dev".into(), access: BindAccess::Write });
    }
    steps.push(MountStep::Proc);

    for (path, mode) in TEMPORARY {
        let path = PathBuf::from(path);
        if policy.requires(Control::PrivateTmp) {
            steps.push(MountStep::Private { at: path, mode: *mode });
        } else if hides || !path.starts_with("/var") {
            steps.push(MountStep::Bind { source: path.clone(), at: path, access: BindAccess::Write });
        }
    }
    steps
}

/// The operating system, and the home with the toolchains in it.
fn system(policy: &Policy, host: &HostUser, around: &HostPaths, inside: (u32, u32)) -> Vec<MountStep> {
    let mut steps = Vec::new();
    for system in &around.system {
        steps.push(match system {
            SystemFolder::Folder(path) => {
                MountStep::Bind { source: path.clone(), at: path.clone(), access: host_access(policy) }
            }
            SystemFolder::Link(path, target) => MountStep::Link { at: path.clone(), to: target.clone() },
        });
    }
    if policy.requires(Control::PrivateHome) {
        steps.push(MountStep::Private { at: host.home.clone(), mode: 0o700 });
        let profile = host::profile(&policy.environment);
        steps.extend(profile.map(|contents| MountStep::Note { at: host.home.join(host::PROFILE), contents }));
        // Before the toolchains, which may lie in them: they are folders of the HOME, and no mounts. A mount would cover
        // the toolchains, and could be written without being one that the policy names.
        let own = leading_to_read(policy, host, &around.toolchains);
        steps.extend(own.into_iter().map(|at| MountStep::Private { at, mode: 0o700 }));
        let apart = policy.requires(Control::ToolchainLocks);
        steps.extend(around.toolchains.iter().map(|path| MountStep::Bind {
            source: path.clone(),
            at: path.clone(),
            access: if apart { BindAccess::ReadApart } else { BindAccess::Read },
        }));
    } else {
        steps.push(MountStep::Bind {
            source: host.home.clone(),
            at: host.home.clone(),
            access: host_access(policy),
        });
    }
    // Root's agent is a stranger to the host's accounts; an ordinary user's is among them.
    if host.is_root() {
        steps.push(MountStep::File { at: "/etc/passwd".into(), contents: accounts(host, inside) });
    }
    steps
}

/// The folders of a private HOME that lead to something the agent may read there. They are its own: a program that
/// reads its credentials keeps its other files beside them.
pub(crate) fn leading_to_read(policy: &Policy, host: &HostUser, toolchains: &[PathBuf]) -> BTreeSet<PathBuf> {
    let shown = || policy.read.iter().chain(toolchains);
    let leads = |folder: &&Path| {
        folder.starts_with(&host.home)
            && **folder != host.home
            && !shown().any(|path| folder.starts_with(path))
    };
    let above = policy.read.iter().flat_map(|path| path.ancestors().skip(1).filter(leads));
    above.map(Path::to_owned).collect()
}

/// What the policy names.
fn named(policy: &Policy) -> Vec<MountStep> {
    let mut steps = Vec::new();
    steps.extend(policy.read.iter().map(|path| MountStep::Bind {
        source: path.clone(),
        at: path.clone(),
        access: BindAccess::ReadAsOwner,
    }));
    for folder in &policy.folders {
        steps.push(MountStep::Bind {
            source: folder.source.clone(),
            at: folder.target.clone(),
            access: BindAccess::Write,
        });
        for path in &folder.protect {
            // Renaming a directory carries a mount inside it along and leaves the name free to be rebuilt; a
            // directory that is itself a mount point can't be renamed. So each one above is made one.
            let mut above: Vec<_> = path.ancestors().filter(|path| !path.is_root()).collect();
            above.reverse();
            for pinned in above {
                steps.push(MountStep::Pin {
                    at: folder.target.join(pinned.as_path()),
                    access: BindAccess::Write,
                });
            }
            steps.push(MountStep::Pin { at: folder.target.join(path.as_path()), access: BindAccess::Read });
        }
    }
    steps
}

/// What is put over secrets, over what a policy hides, and over our own state.
pub(crate) fn covers(policy: &Policy, host: &HostUser, around: &HostPaths, state: &Path) -> Vec<MountStep> {
    let mut steps = Vec::new();
    if policy.requires(Control::HiddenPaths) {
        let visible =
            |path: &&PathBuf| !path.starts_with(&host.home) || policy.requires(Control::PrivateHome);
        steps.extend(around.secrets.iter().filter(visible).map(|path| MountStep::Hide { at: path.clone() }));
        let replaced = around.replaced.iter().filter(|(path, _)| visible(&path));
        steps.extend(
            replaced.map(|(path, text)| MountStep::File { at: path.clone(), contents: text.clone() }),
        );
        steps.extend(policy.hide.iter().map(|path| MountStep::Hide { at: path.clone() }));
        steps.push(MountStep::Hide { at: state.to_owned() });
    }
    steps
}

/// An account list with the agent in it, so that programs that ask for a name get one, and no one else's.
fn accounts(host: &HostUser, (uid, gid): (u32, u32)) -> String {
    let home = host.home.display();
    format!(
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n\
         agent:x:{uid}:{gid}:agent:{home}:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    )
}
