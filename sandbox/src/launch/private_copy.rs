//! The private copy of the levels without an overlay: made before, collected after.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::OFlags;

use super::{LaunchError, LaunchRequest, internal};
use crate::agent_user::AgentUser;
use crate::control::Control;
use crate::host;
use crate::janitor::Janitor;
use crate::landlock_level::replica::{Replica, ReplicaLocation};
use crate::landlock_level::{LandlockSetup, clear_shared_memory, process_set};
use crate::landlock_rules;
use crate::workspace::Workspace;
use crate::writable_directories::WritableDirectories;

/// The private copy, and what the agent may do with it and around it.
pub(super) fn landlock_setup(
    request: &LaunchRequest<'_>,
    opening: &WritableDirectories,
    identity: &AgentUser,
) -> Result<LandlockSetup, LaunchError> {
    let (policy, host, workspace) = (request.policy, request.host, request.workspace);
    if policy.requires(Control::Landlock) && landlock_rules::abi().is_none() {
        return Err(LaunchError::Unavailable {
            what: "this kernel has no Landlock".into(),
            hint: "boot with `lsm=landlock,…`, on Linux 5.13 or newer".into(),
        });
    }
    let agent = identity.dedicated_ids();
    if let Some((user, _)) = agent {
        clear_shared_memory(user).map_err(internal("can't remove what an earlier run left in memory"))?;
    }
    // A process that the keeper can't end, because the keeper was killed itself, comes to us.
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(internal("can't keep what the agent leaves behind"))?;
    let replica = replica(request, opening, identity, ReplicaLocation::AsItIs)?;
    if let Some(profile) = host::profile(&policy.environment) {
        replica.write_note(host::PROFILE, &profile).map_err(internal("can't write into its home"))?;
    }
    LandlockSetup::new(policy, host, workspace, opening, replica)
        .map_err(internal("can't write into its home"))
}

/// A private copy of the workspace, without what is out of sight in it.
pub(super) fn replica(
    request: &LaunchRequest<'_>,
    opening: &WritableDirectories,
    identity: &AgentUser,
    seen: ReplicaLocation,
) -> Result<Replica, LaunchError> {
    let (workspace, run) = (request.workspace, request.run);
    let hidden = workspace.hidden_paths(&request.policy.hide).collect();
    Replica::make(workspace, opening, &hidden, run, identity.dedicated_ids(), seen)
        .map_err(internal("can't copy the workspace"))
}

/// Ends the processes a keeper left behind.
pub(super) fn kill_leftovers(identity: &AgentUser, janitor: Option<&Janitor>) -> io::Result<()> {
    let user = identity.dedicated_ids().map(|(user, _)| user);
    process_set::kill_leftovers(user, &janitor.map(Janitor::pid).into_iter().collect::<Vec<_>>());
    user.map_or(Ok(()), clear_shared_memory)
}

/// Makes the upper layer of what changed in the copy, when every process is dead.
pub(super) fn collect(replica: &Replica, workspace: &Workspace, upper: &OwnedFd) -> io::Result<()> {
    let tree = open_folder(&replica.tree)?;
    replica.manifest.move_changes(tree.as_fd(), upper.as_fd(), &workspace.scratch)
}

pub(super) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}
