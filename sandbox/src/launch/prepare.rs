//! What is decided and made before a sandbox starts: who the agent is, what is open, which namespaces, which
//! layers, which cgroup.

use std::io;
use std::path::PathBuf;

use nix::sched::CloneFlags;
use rustix::fs::OFlags;

use super::{LaunchError, Request, internal};
use crate::cgroup::Cgroup;
use crate::control::Control;
use crate::egress;
use crate::harvest::Base;
use crate::host::{Host, Surroundings};
use crate::identity::Identity;
use crate::nonce::nonce;
use crate::opening::Opening;
use crate::path::RelPath;
use crate::policy::{Level, Memory, Network, Policy};
use crate::view::{self, Step};
use crate::workspace::state::Run;
use crate::workspace::{Layer, Workspace};

/// A list of hosts takes a network namespace to hold it, and names take somebody to look them up.
pub(super) fn check_list(policy: &Policy) -> Result<(), LaunchError> {
    match &policy.network {
        Network::Hosts(_) if policy.level == Level::Landlock => Err(LaunchError::Unavailable {
            what: "a list of hosts can't be held without a network namespace".into(),
            hint: "use --net none or --net full, or --isolation process".into(),
        }),
        Network::Hosts(_) if !policy.wants(Control::Network) => Err(LaunchError::Unavailable {
            what: "a list of hosts can't be held without the control network".into(),
            hint: "leave the control on, or allow everything".into(),
        }),
        Network::Hosts(list) if list.needs_lookup() && egress::find_getent().is_none() => {
            Err(LaunchError::Unavailable {
                what: "host names can't be looked up here: there is no getent".into(),
                hint: "install it (Debian has it in libc-bin), or list addresses".into(),
            })
        }
        _ => Ok(()),
    }
}

pub(super) fn identify(policy: &Policy, host: &Host) -> Result<Identity, LaunchError> {
    let (uid, gid) = (host.uid, host.gid);
    if matches!(policy.level, Level::Landlock | Level::Container) {
        return match host.is_root() {
            true => Identity::nobody().map_err(internal("can't take a user for the agent")),
            false => Ok(Identity::caller(uid, gid)),
        };
    }
    match (policy.wants(Control::UserNamespace), host.is_root()) {
        (true, true) => Identity::nobody().map_err(internal("can't take a user for the agent")),
        (true, false) => Ok(Identity::caller(uid, gid)),
        (false, true) => Ok(Identity::Unmapped { uid, gid }),
        (false, false) => Err(LaunchError::Unavailable {
            what: "an ordinary user can't make any namespace without a user namespace".into(),
            hint: "leave the control user-namespace on, or run as root".into(),
        }),
    }
}

/// Which directories are opened, decided on the lower layers alone.
pub(super) fn opening(policy: &Policy, workspace: &Workspace) -> io::Result<Opening> {
    if !policy.wants(Control::Scope) {
        return Ok(Opening { open: vec![RelPath::root()], ..Opening::default() });
    }
    Ok(Opening::plan(&policy.scope, &workspace.scratch, &base(workspace)?))
}

/// The lower layers of the workspace itself.
fn base(workspace: &Workspace) -> io::Result<Base> {
    let lowers = workspace.overlays.first().map(|overlay| overlay.lowers.as_slice()).unwrap_or_default();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |lower: &PathBuf| rustix::fs::open(lower, flags, rustix::fs::Mode::empty());
    Ok(Base::new(lowers.iter().map(open).collect::<Result<_, _>>()?))
}

/// Makes the layers that are on disk. The upper one is what the agent sees: it must be the agent's, with the
/// mode of the folder it covers.
pub(super) fn make_layers(workspace: &Workspace, run: &Run, identity: &Identity) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    if let Some(outbox) = &workspace.outbox {
        run.make()?;
        std::fs::DirBuilder::new().mode(0o700).create(&outbox.source)?;
        if let Some((uid, gid)) = identity.own() {
            std::os::unix::fs::chown(&outbox.source, Some(uid), Some(gid))?;
        }
    }
    for overlay in workspace.overlays.iter().chain(&workspace.stores) {
        let Layer::Disk { upper, work } = &overlay.layer else { continue };
        run.make()?;
        std::fs::create_dir(upper)?;
        if let Some(lower) = overlay.lowers.first() {
            std::fs::create_dir(work)?;
            let mode = std::fs::metadata(lower)?.permissions().mode();
            std::fs::set_permissions(upper, std::fs::Permissions::from_mode(mode & 0o7777))?;
        }
        if let Identity::Nobody { .. } = identity {
            let (uid, gid) = identity.outside();
            std::os::unix::fs::chown(upper, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

/// Which namespaces the sandbox lives in, and which of them it makes after its birth.
pub(super) struct Namespaces {
    pub(super) at_birth: CloneFlags,
    pub(super) later: CloneFlags,
}

impl Namespaces {
    pub(super) fn of(policy: &Policy, host: &Host, identity: &Identity) -> Self {
        if policy.level == Level::Landlock {
            return Self { at_birth: CloneFlags::empty(), later: CloneFlags::empty() };
        }
        // Root builds everything as root and enters a user namespace last: one that owns none of the others.
        let mut at_birth = CloneFlags::CLONE_NEWNS;
        if let Identity::Caller { .. } = identity {
            at_birth |= CloneFlags::CLONE_NEWUSER;
        }
        if policy.wants(Control::PidNamespace) {
            at_birth |= CloneFlags::CLONE_NEWPID;
        }
        // Root's network namespace was sent for ahead.
        let mut later = CloneFlags::empty();
        for (wanted, flag) in [
            (policy.wants(Control::IpcNamespace), CloneFlags::CLONE_NEWIPC),
            (policy.wants(Control::UtsNamespace), CloneFlags::CLONE_NEWUTS),
            (policy.wants(Control::CgroupNamespace), CloneFlags::CLONE_NEWCGROUP),
            (policy.closes_network() && !host.is_root(), CloneFlags::CLONE_NEWNET),
        ] {
            later.set(flag, wanted);
        }
        Self { at_birth, later }
    }
}

/// Every path that must be covered, as the agent would name it.
pub(super) fn hidden(request: &Request<'_>, around: &Surroundings) -> Vec<PathBuf> {
    let covers = view::covers(request.policy, request.host, around, &request.workspace.state_home);
    let planned = covers.into_iter().filter_map(|step| match step {
        Step::Hide { at } | Step::File { at, .. } => Some(at),
        _ => None,
    });
    let workspace = request.workspace;
    let inside = workspace.hidden.iter().map(|path| workspace.path.join(path.as_path()));
    planned.chain(inside).chain([workspace.state_home.clone()]).collect()
}

pub(super) fn cgroup(request: &Request<'_>) -> Result<Option<Cgroup>, LaunchError> {
    let policy = request.policy;
    // Nothing but a cgroup holds a whole tree to a limit of memory; the others have another way. A limit that nobody asked
    // for is worth looking at, and not the time that a cgroup takes at every start.
    let Memory::Bytes(memory) = policy.limits.memory else { return Ok(None) };
    if !policy.wants(Control::Memory) {
        return Ok(None);
    }
    // Not by the run's own name, which everybody could then read in /proc; by ours, for whoever looks.
    let name = format!("{}-{:x}", nonce(), std::process::id());
    let processes = policy.limits.processes.filter(|_| policy.wants(Control::Processes));
    Cgroup::create(&format!("agency-{name}"), Some(memory), processes)
        .map_err(internal("can't make a cgroup"))
}
