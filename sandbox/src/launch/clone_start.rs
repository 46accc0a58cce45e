//! A first process that is born to us: cloned into namespaces, or beside us where there are none.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::sched::CloneFlags;

use super::prepare::{NamespacePlan, cgroup, make_layers};
use super::private_copy::landlock_setup;
use super::sandbox::{SandboxProcess, ended_before_ready};
use super::streams::{StandardPipes, watch_signals};
use super::{LaunchError, LaunchRequest, StartedSandbox, internal, unavailable};
use crate::agent::{AgentIsolation, AgentStart, ViewInputs};
use crate::agent_user::AgentUser;
use crate::backend::SandboxBackend;
use crate::cgroup::Cgroup;
use crate::channel::{self, InitHandover};
use crate::host::HostPaths;
use crate::init::{self, subreaper};
use crate::janitor::Janitor;
use crate::namespace_prefetch::NamespacePrefetch;
use crate::policy::IsolationLevel;
use crate::sys::{self, CloneSide, MadeNamespaces};
use crate::writable_directories::WritableDirectories;

pub(super) fn begin(
    request: &LaunchRequest<'_>,
    ahead: Option<NamespacePrefetch>,
    opening: &WritableDirectories,
    identity: &AgentUser,
) -> Result<StartedSandbox, LaunchError> {
    let policy = request.policy;
    let send = || NamespacePrefetch::start(request.host, policy.level, &policy.without, &policy.network);
    let ahead = ahead.unwrap_or_else(send);
    let place = match policy.level {
        IsolationLevel::Landlock => {
            SandboxBackend::Bare(Box::new(landlock_setup(request, opening, identity)?))
        }
        IsolationLevel::Process | IsolationLevel::Container => SandboxBackend::View,
    };
    let cgroup = cgroup(request)?;
    let janitor = cgroup
        .as_ref()
        .map(|cgroup| Janitor::spawn(cgroup.paths().cloned().collect()))
        .transpose()
        .map_err(internal("can't start the process that cleans up"))?;
    let signals = watch_signals().map_err(internal("can't watch for signals"))?;
    let (ours, theirs) = channel::pair().map_err(internal("can't talk to the sandbox"))?;
    let pipes = StandardPipes::make(request.terminal).map_err(internal("can't make pipes"))?;

    let birthplace = cgroup
        .as_ref()
        .map(Cgroup::clone_target)
        .transpose()
        .map_err(internal("can't open the cgroup"))?
        .flatten();
    let must_enter = cgroup.is_some() && birthplace.is_none();
    let namespaces = NamespacePlan::of(policy, request.host, identity);
    let clone =
        sys::clone_into(namespaces.at_birth, birthplace.as_ref().map(AsFd::as_fd)).map_err(no_namespaces)?;
    let started = Instant::now();
    let (pid, pidfd) = match clone {
        CloneSide::Parent { pid, pidfd } => (pid.as_raw(), pidfd),
        CloneSide::Child => {
            drop((ours, signals, pipes.ours));
            let view = ViewInputs { host: request.host, workspace: request.workspace, opening };
            be_first_process(request, &place, identity, view, (namespaces.later, pipes.theirs), &theirs)
        }
    };
    let aside = sys::yield_processor();
    drop(theirs);
    // A first process of a namespace takes everyone along; a keeper has to be asked.
    let killer = match place {
        SandboxBackend::Bare(_) => rustix::process::Signal::HUP,
        SandboxBackend::View | SandboxBackend::Container(_) => rustix::process::Signal::KILL,
    };
    let sandbox = SandboxProcess { pidfd, pid, channel: ours, killer };
    pipes.set_owner(identity).map_err(internal("can't give the agent its pipes"))?;
    drop(pipes.theirs);

    // While the first process makes its namespaces and the ground of the view, its layers are made here, and what there is on
    // the host is looked up.
    let around = match place {
        SandboxBackend::View => {
            make_layers(request.workspace, request.run, identity)
                .map_err(internal("can't make the agent's layer"))?;
            Some(HostPaths::observe(request.host))
        }
        SandboxBackend::Bare(_) | SandboxBackend::Container(_) => None,
    };
    let MadeNamespaces { user, network } =
        ahead.finish(request.workspace.owner, identity.host_ids()).map_err(no_namespaces)?;
    if must_enter && let Some(cgroup) = &cgroup {
        unless_gone(cgroup.enter(pid)).map_err(internal("can't move the sandbox into its cgroup"))?;
    }
    let told = match around {
        Some(around) => {
            channel::send_handover(&sandbox.channel, &InitHandover { idmap: user, network, around })
        }
        None => channel::send_go(&sandbox.channel),
    };
    unless_gone(told).map_err(internal("can't talk to the sandbox"))?;
    Ok(StartedSandbox { sandbox, place, pipes: pipes.ours, signals, cgroup, janitor, started, aside })
}

/// What the cloned process does: it is the first one of the sandbox, until its end.
fn be_first_process(
    request: &LaunchRequest<'_>,
    place: &SandboxBackend,
    identity: &AgentUser,
    view: ViewInputs<'_>,
    (namespaces, pipes): (CloneFlags, Option<[OwnedFd; 3]>),
    channel: &OwnedFd,
) -> ! {
    let (root, around) = match place {
        SandboxBackend::Bare(bare) => (&bare.replica.tree, AgentIsolation::Bare(bare)),
        SandboxBackend::View | SandboxBackend::Container(_) => {
            (&request.workspace.path, AgentIsolation::View(view))
        }
    };
    let folder = root.join(request.start.as_path());
    let start = AgentStart { policy: request.policy, identity, folder, command: request.command, around };
    match around {
        AgentIsolation::Bare(_) => subreaper::run(subreaper::SubreaperConfig { start, pipes }, channel),
        AgentIsolation::View(_) | AgentIsolation::Container(..) => {
            let config = init::InitConfig { start, view, staging: request.staging, namespaces, pipes };
            init::run(config, channel)
        }
    }
}

fn no_namespaces(error: io::Error) -> LaunchError {
    // The process that was sent for them was killed.
    if error.raw_os_error() == Some(libc::ECHILD) {
        return ended_before_ready("can't make namespaces");
    }
    unavailable(&format!("can't make namespaces: {error}"), error.raw_os_error().unwrap_or(0))
}

/// A first process that is gone has said why: that is heard next.
fn unless_gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if channel::is_gone(&error) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_killed_while_it_makes_namespaces_is_no_fault_of_the_host() {
        assert!(no_namespaces(io::Error::from_raw_os_error(libc::ECHILD)).is_early_end());
        let refused = no_namespaces(io::Error::from_raw_os_error(libc::EPERM));
        assert!(!refused.is_early_end() && refused.is_unavailable());
    }
}
