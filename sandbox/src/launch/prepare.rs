//! What is decided and made before a sandbox starts: who the agent is, what is open, which namespaces, which
//! layers, which cgroup.

use std::io;
use std::path::PathBuf;

use nix::sched::CloneFlags;
use rustix::fs::OFlags;

use super::{LaunchError, LaunchRequest, internal};
use crate::agent_user::AgentUser;
use crate::cgroup::Cgroup;
use crate::control::Control;
use crate::egress;
use crate::harvest::BaseLayers;
use crate::host::{HostPaths, HostUser};
use crate::mount_plan::{self, MountStep};
use crate::nonce::nonce;
use crate::path::RelPath;
use crate::policy::{IsolationLevel, MemoryLimit, NetworkPolicy, Policy};
use crate::workspace::state::RunFolder;
use crate::workspace::{Workspace, WriteLayer};
use crate::writable_directories::WritableDirectories;

/// Checks a list of hosts: it needs a network namespace to hold it, and its names need a program that looks them up.
pub(super) fn check_list(policy: &Policy) -> Result<(), LaunchError> {
    match &policy.network {
        NetworkPolicy::Hosts(_) if policy.level == IsolationLevel::Landlock => {
            Err(LaunchError::Unavailable {
                what: "a list of hosts can't be held without a network namespace".into(),
                hint: "use --net none or --net full, or --isolation process".into(),
            })
        }
        NetworkPolicy::Hosts(_) if !policy.requires(Control::Network) => Err(LaunchError::Unavailable {
            what: "a list of hosts can't be held without the control network".into(),
            hint: "leave the control on, or allow everything".into(),
        }),
        NetworkPolicy::Hosts(list) if list.needs_lookup() && egress::find_getent().is_none() => {
            Err(LaunchError::Unavailable {
                what: "host names can't be looked up here: there is no getent".into(),
                hint: "install it (Debian has it in libc-bin), or list addresses".into(),
            })
        }
        _ => Ok(()),
    }
}

pub(super) fn identify(policy: &Policy, host: &HostUser) -> Result<AgentUser, LaunchError> {
    let (uid, gid) = (host.uid, host.gid);
    if matches!(policy.level, IsolationLevel::Landlock | IsolationLevel::Container) {
        return match host.is_root() {
            true => AgentUser::allocate().map_err(internal("can't take a user for the agent")),
            false => Ok(AgentUser::caller(uid, gid)),
        };
    }
    match (policy.requires(Control::UserNamespace), host.is_root()) {
        (true, true) => AgentUser::allocate().map_err(internal("can't take a user for the agent")),
        (true, false) => Ok(AgentUser::caller(uid, gid)),
        (false, true) => Ok(AgentUser::Unmapped { uid, gid }),
        (false, false) => Err(LaunchError::Unavailable {
            what: "an ordinary user can't make any namespace without a user namespace".into(),
            hint: "leave the control user-namespace on, or run as root".into(),
        }),
    }
}

/// Which directories are opened, decided on the lower layers alone.
pub(super) fn opening(policy: &Policy, workspace: &Workspace) -> io::Result<WritableDirectories> {
    if !policy.requires(Control::Scope) {
        return Ok(WritableDirectories { open: vec![RelPath::root()], ..WritableDirectories::default() });
    }
    Ok(WritableDirectories::plan(&policy.scope, &workspace.scratch, &base(workspace)?))
}

/// The lower layers of the workspace itself.
fn base(workspace: &Workspace) -> io::Result<BaseLayers> {
    let lowers = workspace.overlays.first().map(|overlay| overlay.lowers.as_slice()).unwrap_or_default();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |lower: &PathBuf| rustix::fs::open(lower, flags, rustix::fs::Mode::empty());
    Ok(BaseLayers::new(lowers.iter().map(open).collect::<Result<_, _>>()?))
}

/// Makes the layers that are on disk. The upper one is what the agent sees: it must be the agent's, with the
/// mode of the folder it covers.
pub(super) fn make_layers(workspace: &Workspace, run: &RunFolder, identity: &AgentUser) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    if let Some(outbox) = &workspace.outbox {
        run.make()?;
        std::fs::DirBuilder::new().mode(0o700).create(&outbox.source)?;
        if let Some((uid, gid)) = identity.dedicated_ids() {
            std::os::unix::fs::chown(&outbox.source, Some(uid), Some(gid))?;
        }
    }
    for overlay in workspace.overlays.iter().chain(&workspace.stores) {
        let WriteLayer::Disk { upper, work } = &overlay.layer else { continue };
        run.make()?;
        std::fs::create_dir(upper)?;
        if let Some(lower) = overlay.lowers.first() {
            std::fs::create_dir(work)?;
            let mode = std::fs::metadata(lower)?.permissions().mode();
            std::fs::set_permissions(upper, std::fs::Permissions::from_mode(mode & 0o7777))?;
        }
        if let AgentUser::Nobody { .. } = identity {
            let (uid, gid) = identity.host_ids();
            std::os::unix::fs::chown(upper, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

/// Which namespaces the sandbox lives in, and which of them it makes after its birth.
pub(super) struct NamespacePlan {
    pub(super) at_birth: CloneFlags,
    pub(super) later: CloneFlags,
}

impl NamespacePlan {
    pub(super) fn of(policy: &Policy, host: &HostUser, identity: &AgentUser) -> Self {
        if policy.level == IsolationLevel::Landlock {
            return Self { at_birth: CloneFlags::empty(), later: CloneFlags::empty() };
        }
        // Root builds everything as root and enters a user namespace last: one that owns none of the others.
        let mut at_birth = CloneFlags::CLONE_NEWNS;
        if let AgentUser::Caller { .. } = identity {
            at_birth |= CloneFlags::CLONE_NEWUSER;
        }
        if policy.requires(Control::PidNamespace) {
            at_birth |= CloneFlags::CLONE_NEWPID;
        }
        // Root's network namespace was sent for ahead.
        let mut later = CloneFlags::empty();
        for (wanted, flag) in [
            (policy.requires(Control::IpcNamespace), CloneFlags::CLONE_NEWIPC),
            (policy.requires(Control::UtsNamespace), CloneFlags::CLONE_NEWUTS),
            (policy.requires(Control::CgroupNamespace), CloneFlags::CLONE_NEWCGROUP),
            (policy.closes_network() && !host.is_root(), CloneFlags::CLONE_NEWNET),
        ] {
            later.set(flag, wanted);
        }
        Self { at_birth, later }
    }
}

/// Every path that must be covered, as the agent would name it.
pub(super) fn hidden(request: &LaunchRequest<'_>, around: &HostPaths) -> Vec<PathBuf> {
    let covers = mount_plan::covers(request.policy, request.host, around, &request.workspace.state_home);
    let planned = covers.into_iter().filter_map(|step| match step {
        MountStep::Hide { at } | MountStep::File { at, .. } => Some(at),
        _ => None,
    });
    let workspace = request.workspace;
    let inside = workspace.hidden.iter().map(|path| workspace.path.join(path.as_path()));
    planned.chain(inside).chain([workspace.state_home.clone()]).collect()
}

pub(super) fn cgroup(request: &LaunchRequest<'_>) -> Result<Option<Cgroup>, LaunchError> {
    let policy = request.policy;
    // Only a cgroup holds a whole tree to a limit of memory; the other limits have another way. A default limit is
    // watched: it is not worth the time that a cgroup takes at every start.
    let MemoryLimit::Bytes(memory) = policy.limits.memory else { return Ok(None) };
    if !policy.requires(Control::Memory) {
        return Ok(None);
    }
    // Not named after the run, which every user could then read in /proc; named after us, for a person who looks.
    let name = format!("{}-{:x}", nonce(), std::process::id());
    let processes = policy.limits.processes.filter(|_| policy.requires(Control::Processes));
    Cgroup::create(&format!("agency-{name}"), Some(memory), processes)
        .map_err(internal("can't make a cgroup"))
}
