//! What the kernel says about a container, where that is not what it says about a view of our own making.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::early::memory_limit_origin;
use super::{AgentProcess, AttestationRequest};
use crate::container::running::RunningContainer;
use crate::container::spec;
use crate::control::{Control, ControlStatus};
use crate::mountinfo::MountEntry;
use crate::path::RelPath;
use crate::policy::{MemoryLimit, NetworkPolicy};
use crate::seccomp;

/// Whether a mount is one that an engine makes for each container: of a kind that holds nothing of the host's, and where
/// such a one belongs. Elsewhere, the same kind came along with a folder of the host.
fn is_of_its_own(mount: &MountEntry, contained: &RunningContainer) -> bool {
    let at = |places: &[&str]| places.iter().any(|place| mount.point == Path::new(place));
    match mount.kind.as_str() {
        // What is masked in /proc is covered by one of its own devices.
        "tmpfs" => {
            contained.in_memory.contains(&mount.point)
                || at(&["/dev", "/dev/shm", "/sys/fs/cgroup"])
                || mount.point.starts_with("/proc")
        }
        "proc" => mount.point.starts_with("/proc"),
        "devpts" => at(&["/dev/pts", "/dev/console"]),
        "mqueue" => at(&["/dev/mqueue"]),
        _ => false,
    }
}

/// Devices that hold nothing and do nothing, and terminals.
const HARMLESS: &[&str] = &[
    "null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "stdin", "stdout", "stderr", "fd",
];

impl AgentProcess {
    /// `None` for a control that is observed as at every level.
    pub(super) fn observe_contained(
        &self,
        control: Control,
        asked: &AttestationRequest<'_>,
        contained: &RunningContainer,
    ) -> Option<(ControlStatus, String)> {
        let policy = asked.policy;
        Some(match control {
            Control::UserNamespace => {
                let how = match asked.root {
                    true => "not at this level; a host user of its own",
                    false => "not at this level; the caller's user",
                };
                (ControlStatus::No, how.into())
            }
            Control::Network if policy.network == NetworkPolicy::Full => (
                self.early.is_foreign("net").into(),
                format!("{}, the engine's bridge, as asked", self.early.namespace("net")),
            ),
            Control::ReadOnlyHost | Control::Attributes => self.early.read_only_but(asked, |mount| {
                is_of_its_own(mount, contained)
                    || contained.caches.iter().any(|cache| mount.point == cache.target)
            }),
            Control::Scope => self.scope_of_copy(asked),
            Control::PrivateProc => {
                let settings = self.early.mount_at(Path::new("/proc/sys"));
                let fresh = self.early.is_foreign("pid")
                    && self.early.mount_at(Path::new("/proc")).is_some_and(|mount| mount.kind == "proc")
                    && settings.is_some_and(|mount| mount.read_only);
                let how = if settings.is_some() { "its settings read-only" } else { "its settings writable" };
                (fresh.into(), format!("proc, {how}"))
            }
            Control::ToolchainLocks => (ControlStatus::No, "its toolchains are those of its image".into()),
            Control::MinimalDev => self.few_devices(),
            Control::HiddenPaths => self.out_of_sight(asked),
            Control::Seccomp => {
                // The engine's, and ours on top.
                let filters = self.number("Seccomp_filters");
                let on = self.status("Seccomp") == "2" && filters > seccomp::FILTERS;
                (on.into(), format!("seccomp mode {}, {filters} filters", self.status("Seccomp")))
            }
            Control::TmpSize => {
                let size = |path: &str| {
                    let mount = self.early.mount_of(Path::new(path)).filter(|mount| mount.kind == "tmpfs")?;
                    mount.options.split(',').find(|option| option.starts_with("size=")).map(str::to_owned)
                };
                let sizes = ["/tmp", "/var/tmp", "/dev/shm"].map(size);
                let how = sizes[0].clone().unwrap_or("without size".into());
                (sizes.iter().all(Option::is_some).into(), format!("tmpfs {how}, each"))
            }
            Control::Memory | Control::Processes => return self.by_its_group(control, asked, contained),
            _ => return None,
        })
    }

    /// The directories of the copy that can be written must be exactly the opened ones.
    fn scope_of_copy(&self, asked: &AttestationRequest<'_>) -> (ControlStatus, String) {
        let root = &asked.workspace.path;
        let writable = asked.workspace.writable(asked.opening, &asked.policy.scope);
        let inside = || self.early.mounts.iter().filter(|mount| mount.point.starts_with(root));
        // A directory that leads to a closed one is mounted over itself, so that it can't be renamed.
        let is_pinned = |point: &Path| {
            let leads = |close: &RelPath| root.join(close.as_path()).starts_with(point);
            writable.iter().any(|open| point.starts_with(open)) && asked.opening.close.iter().any(leads)
        };
        let stray = inside()
            .find(|mount| !mount.read_only && !writable.contains(&mount.point) && !is_pinned(&mount.point));
        let is_closed = |path: &RelPath| {
            self.early.mount_of(&root.join(path.as_path())).is_some_and(|mount| mount.read_only)
        };
        let held = self.early.mount_at(root).is_some()
            && stray.is_none()
            && asked.opening.close.iter().all(is_closed)
            && asked.policy.requires(Control::Scope);
        let list: Vec<String> = asked.opening.open.iter().map(RelPath::to_string).collect();
        let list = if list.is_empty() { "nothing".to_owned() } else { list.join(", ") };
        (held.into(), format!("a private copy, mounted writable: {list}; single files are judged at harvest"))
    }

    fn few_devices(&self) -> (ControlStatus, String) {
        let dev = self.early.told.inside(Path::new("/dev"));
        let Ok(entries) = fs::read_dir(&dev) else { return (ControlStatus::No, "/dev can't be read".into()) };
        let mut count = 0;
        for entry in entries.flatten() {
            let device = entry.file_type().is_ok_and(|kind| kind.is_char_device() || kind.is_block_device());
            let name = entry.file_name();
            if device && !HARMLESS.iter().any(|known| name == **known) {
                return (ControlStatus::No, format!("/dev/{} is there", name.to_string_lossy()));
            }
            count += usize::from(device);
        }
        let own = self.early.mount_at(Path::new("/dev")).is_some_and(|mount| mount.kind == "tmpfs");
        (own.into(), format!("{count} devices"))
    }

    /// Of the host there is only what was mounted: what is hidden must not be below that, nor an engine's socket.
    fn out_of_sight(&self, asked: &AttestationRequest<'_>) -> (ControlStatus, String) {
        let (policy, workspace) = (asked.policy, asked.workspace);
        let in_workspace = workspace.hidden.iter().map(|path| workspace.path.join(path.as_path()));
        let hidden: Vec<PathBuf> =
            policy.hide.iter().cloned().chain(in_workspace).chain([workspace.state_home.clone()]).collect();
        // What can't be looked at is not known to be absent.
        let absent = |path: &&PathBuf| {
            let found = self.early.told.inside(path).symlink_metadata();
            found.is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
        };
        let seen = hidden.iter().find(|path| !absent(path));
        let socket = self.early.mounts.iter().find(|mount| {
            let file = self.early.told.inside(&mount.point);
            file.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
        });
        let sockets = match (spec::shows_folders(policy), policy.requires(Control::Seccomp)) {
            (false, _) => "",
            (true, true) => ", and no socket on a path can be made or reached",
            (true, false) => "; not held: sockets in folders that may be read",
        };
        match (seen, socket) {
            (Some(path), _) => (ControlStatus::No, format!("{} is in sight", path.display())),
            (None, Some(mount)) => {
                (ControlStatus::No, format!("the socket {} is in sight", mount.point.display()))
            }
            (None, None) => (
                policy.requires(Control::HiddenPaths).into(),
                format!("{} paths absent; of the host only what is mounted is there{sockets}", hidden.len()),
            ),
        }
    }

    fn by_its_group(
        &self,
        control: Control,
        asked: &AttestationRequest<'_>,
        contained: &RunningContainer,
    ) -> Option<(ControlStatus, String)> {
        let group = asked.cgroup?;
        let limits = &asked.policy.limits;
        let (found, wanted) = match control {
            Control::Memory => (group.memory(), limits.memory.bytes()),
            _ => (group.processes(), limits.processes),
        };
        let (limit, how) = found?;
        // A limit that the user did not ask for is watched where the engine has none.
        if control == Control::Memory
            && limits.memory == MemoryLimit::Share
            && wanted.is_some_and(|wanted| limit > wanted)
        {
            return None;
        }
        let held = wanted.is_some_and(|wanted| limit <= wanted)
            && group.contains(self.early.pid())
            && group.paths().all(|path| path.to_string_lossy().contains(&contained.id));
        let share = if control == Control::Memory { memory_limit_origin(asked.policy) } else { "" };
        Some((held.into(), format!("{how} {limit}{share}")))
    }
}
