//! The private copy of the levels without an overlay: made before, collected after.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::OFlags;

use super::{LaunchError, Request, internal};
use crate::access;
use crate::bare::replica::{Replica, Seen};
use crate::bare::{Bare, clear_shared_memory, everyone};
use crate::control::Control;
use crate::host;
use crate::identity::Identity;
use crate::janitor::Janitor;
use crate::opening::Opening;
use crate::workspace::Workspace;

/// The private copy, and what the agent may do with it and around it.
pub(super) fn bare(
    request: &Request<'_>,
    opening: &Opening,
    identity: &Identity,
) -> Result<Bare, LaunchError> {
    let (policy, host, workspace) = (request.policy, request.host, request.workspace);
    if policy.wants(Control::Landlock) && access::abi().is_none() {
        return Err(LaunchError::Unavailable {
            what: "this kernel has no Landlock".into(),
            hint: "boot with `lsm=landlock,…`, on Linux 5.13 or newer".into(),
        });
    }
    let agent = identity.own();
    if let Some((user, _)) = agent {
        clear_shared_memory(user).map_err(internal("can't remove what an earlier run left in memory"))?;
    }
    // Whatever the keeper can't end, because it was killed itself, comes to us.
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(internal("can't keep what the agent leaves behind"))?;
    let replica = replica(request, opening, identity, Seen::AsItIs)?;
    if let Some(profile) = host::profile(&policy.environment) {
        replica.note(host::PROFILE, &profile).map_err(internal("can't write into its home"))?;
    }
    Bare::new(policy, host, workspace, opening, replica).map_err(internal("can't write into its home"))
}

/// A private copy of the workspace, without what is out of sight in it.
pub(super) fn replica(
    request: &Request<'_>,
    opening: &Opening,
    identity: &Identity,
    seen: Seen,
) -> Result<Replica, LaunchError> {
    let (workspace, run) = (request.workspace, request.run);
    let hidden = workspace.out_of_sight(&request.policy.hide).collect();
    Replica::make(workspace, opening, &hidden, run, identity.own(), seen)
        .map_err(internal("can't copy the workspace"))
}

/// Ends whoever a keeper left behind.
pub(super) fn clear(identity: &Identity, janitor: Option<&Janitor>) -> io::Result<()> {
    let user = identity.own().map(|(user, _)| user);
    everyone::sweep(user, &janitor.map(Janitor::pid).into_iter().collect::<Vec<_>>());
    user.map_or(Ok(()), clear_shared_memory)
}

/// When everybody is dead: what changed in the copy becomes the upper layer.
pub(super) fn collect(replica: &Replica, workspace: &Workspace, upper: &OwnedFd) -> io::Result<()> {
    let tree = open_folder(&replica.tree)?;
    replica.manifest.distil(tree.as_fd(), upper.as_fd(), &workspace.scratch)
}

pub(super) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}
