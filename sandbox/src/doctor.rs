//! What this host offers, and what a person can change where it does not.

#![allow(clippy::disallowed_methods, reason = "opens the kernel's")]

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::container::engine::ContainerEngine;
use crate::git::IsolatedGit;
use crate::landlock_rules;
use crate::workspace::state::{StateHome, VARIABLE};

/// One thing a sandbox needs, and whether it is here.
#[derive(Debug, Clone, Serialize)]
pub struct HostCheck {
    pub name: &'static str,
    pub ok: bool,
    pub detail: String,
    /// What to do, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Switches by which hosts forbid user namespaces, with the value that forbids.
const SWITCHES: &[(&str, &str, &str)] = &[
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor keeps ordinary users from user namespaces: as root, `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or install a profile for agency alone: `agency doctor --apparmor-profile > /etc/apparmor.d/agency && apparmor_parser -r /etc/apparmor.d/agency`",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "this kernel keeps ordinary users from user namespaces: as root, `sysctl kernel.unprivileged_userns_clone=1`",
    ),
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "user namespaces are switched off: as root, `sysctl user.max_user_namespaces=10000`",
    ),
];

fn forbidden() -> Option<&'static str> {
    SWITCHES
        .iter()
        .find(|(path, forbids, _)| fs::read_to_string(path).is_ok_and(|value| value.trim() == *forbids))
        .map(|(_, _, advice)| *advice)
}

/// What to do about an error of the kernel while a sandbox was being built.
pub(crate) fn advice(errno: i32) -> String {
    match errno {
        libc::EPERM | libc::EACCES | libc::ENOSPC | libc::EUSERS => forbidden()
            .unwrap_or("this host forbids namespaces or mounts to this user; inside a container, allow user namespaces or use --isolation landlock")
            .to_owned(),
        libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP => {
            "the kernel or the file system lacks something: Linux 5.19 or newer is needed, and a state folder that is not on an overlay or network file system; `agency doctor` tells more".to_owned()
        }
        libc::ENODEV => "the kernel has no overlay file system: load the module `overlay`".to_owned(),
        _ => "`agency doctor` tells what this host offers".to_owned(),
    }
}

/// Whether git is here, and new enough: boards and runs need it.
pub fn git() -> HostCheck {
    let found = IsolatedGit::open(Path::new("git"), Path::new("/")).check_version();
    let (ok, detail) = match &found {
        Ok(()) => (true, "new enough".to_owned()),
        Err(error) => (false, crate::error_chain::on_one_line(error)),
    };
    let hint = (!ok).then(|| "install git 2.38 or newer, for example `apt-get install git`".to_owned());
    HostCheck { name: "git", ok, detail, hint }
}

/// A profile for AppArmor that gives this program alone user namespaces, where the host keeps them from ordinary users.
pub fn apparmor_profile(program: &Path) -> String {
    // A quoted path of AppArmor's: these characters mean something in it.
    let path: String = program
        .to_string_lossy()
        .chars()
        .flat_map(|c| if "\"*?[]{}^\\".contains(c) { vec!['\\', c] } else { vec![c] })
        .collect();
    format!(
        "abi <abi/4.0>,\ninclude <tunables/global>\n\nprofile agency \"{path}\" flags=(unconfined) {{\n  userns,\n\n  \
         include if exists <local/agency>\n}}\n"
    )
}

/// Whether an overlay's upper layer can be in memory here.
pub fn memory_layers() -> bool {
    rustix::process::geteuid().is_root() || kernel() >= (6, 6)
}

pub(crate) fn kernel() -> (u32, u32) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Asks whether there is an engine that makes containers, and whether it may be used.
pub fn containers() -> HostCheck {
    let (detail, hint) = match ContainerEngine::find(None) {
        Ok(engine) => (format!("{} at {}", engine.version, engine.socket.display()), None),
        Err(error) => (error.to_string(), Some(error.hint())),
    };
    HostCheck { name: "containers", ok: hint.is_none(), detail, hint }
}

/// File systems that can't hold the upper layer of an overlay, by what `statfs` says.
const NO_UPPER_LAYERS: &[(i64, &str)] = &[
    (0x794c_7630, "an overlay"),
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9p"),
    (0x4d44, "FAT"),
];

/// Where state lies, and whether what agents change can be caught there.
pub fn state_folder() -> HostCheck {
    let finding = |ok, detail, hint| HostCheck { name: "state-folder", ok, detail, hint };
    let home = match StateHome::find() {
        Ok(home) => home,
        Err(error) => return finding(false, error.to_string(), error.remedy()),
    };
    let there = home.path().ancestors().find(|path| path.is_dir()).unwrap_or(home.path());
    let kind = rustix::fs::statfs(there).map(|stat| stat.f_type).unwrap_or_default();
    let shown = home.path().display();
    match NO_UPPER_LAYERS.iter().find(|(known, _)| *known == kind) {
        None => finding(true, shown.to_string(), None),
        Some((_, name)) => {
            let hint =
                format!("set {VARIABLE} to a folder on a local file system; runs need one for their layers");
            finding(false, format!("{shown} is on {name}, which can't hold the layers of runs"), Some(hint))
        }
    }
}

/// Looks at everything that can be looked at without starting anything.
pub fn findings() -> Vec<HostCheck> {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let recent = self::kernel() >= (5, 19);
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let overlay = filesystems.lines().any(|line| line.ends_with("\toverlay"));
    let landlock = landlock_rules::abi();
    let root = rustix::process::geteuid().is_root();
    let userns = if root { None } else { forbidden() };
    let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let memory = Path::new("/sys/fs/cgroup/memory/cgroup.procs").exists();
    vec![
        HostCheck {
            name: "kernel",
            ok: recent,
            detail: format!("Linux {kernel}"),
            hint: (!recent).then(|| "Linux 5.19 or newer is needed".to_owned()),
        },
        HostCheck {
            name: "user-namespaces",
            ok: userns.is_none(),
            detail: if root { "running as root".into() } else { "for ordinary users".into() },
            hint: userns.map(str::to_owned),
        },
        HostCheck {
            name: "overlay",
            ok: overlay,
            detail: if overlay { "available".into() } else { "not loaded".into() },
            hint: (!overlay).then(|| "as root, `modprobe overlay`".to_owned()),
        },
        HostCheck {
            name: "landlock",
            ok: landlock.is_some(),
            detail: landlock.map_or("not available".into(), |(abi, _)| format!("abi {abi}")),
            hint: landlock.is_none().then(|| "boot with `lsm=landlock,…`, on Linux 5.13 or newer".to_owned()),
        },
        HostCheck {
            name: "cgroups",
            ok: unified || (memory && root),
            detail: match (unified, memory) {
                (true, _) => "version 2".into(),
                (false, true) => "version 1".into(),
                (false, false) => "none".into(),
            },
            hint: (!(unified || memory && root))
                .then(|| "memory limits will be watched, not enforced".to_owned()),
        },
    ]
}
