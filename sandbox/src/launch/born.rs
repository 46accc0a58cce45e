//! A first process that is born to us: cloned into namespaces, or beside us where there are none.

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use super::copy::bare;
use super::prepare::{Namespaces, cgroup, make_layers};
use super::sandbox::{Sandbox, too_early};
use super::streams::{Pipes, watch_signals};
use super::{Begun, LaunchError, Place, Request, internal, unavailable};
use crate::agent::{Around, Start, View};
use crate::ahead::Ahead;
use crate::bare::keeper;
use crate::cgroup::Cgroup;
use crate::channel::{self, Handed};
use crate::host::Surroundings;
use crate::identity::Identity;
use crate::init;
use crate::janitor::Janitor;
use crate::opening::Opening;
use crate::policy::Level;
use crate::sys::{self, Brought, Clone};

pub(super) fn begin(
    request: &Request<'_>,
    ahead: Option<Ahead>,
    opening: &Opening,
    identity: &Identity,
) -> Result<Begun, LaunchError> {
    let policy = request.policy;
    let send = || Ahead::send(request.host, policy.level, &policy.without, &policy.network);
    let ahead = ahead.unwrap_or_else(send);
    let place = match policy.level {
        Level::Landlock => Place::Bare(Box::new(bare(request, opening, identity)?)),
        Level::Process | Level::Container => Place::View,
    };
    let cgroup = cgroup(request)?;
    let janitor = cgroup
        .as_ref()
        .map(|cgroup| Janitor::employ(cgroup.paths().cloned().collect()))
        .transpose()
        .map_err(internal("can't start the process that cleans up"))?;
    let signals = watch_signals().map_err(internal("can't watch for signals"))?;
    let (ours, theirs) = channel::pair().map_err(internal("can't talk to the sandbox"))?;
    let pipes = Pipes::make(request.terminal).map_err(internal("can't make pipes"))?;

    let birthplace = cgroup
        .as_ref()
        .map(Cgroup::birthplace)
        .transpose()
        .map_err(internal("can't open the cgroup"))?
        .flatten();
    let must_enter = cgroup.is_some() && birthplace.is_none();
    let namespaces = Namespaces::of(policy, request.host, identity);
    let clone =
        sys::clone_into(namespaces.at_birth, birthplace.as_ref().map(AsFd::as_fd)).map_err(no_namespaces)?;
    let started = Instant::now();
    let (pid, pidfd) = match clone {
        Clone::Parent { pid, pidfd } => (pid.as_raw(), pidfd),
        Clone::Child => {
            drop((ours, signals, pipes.ours));
            let view = View { host: request.host, workspace: request.workspace, opening };
            let (root, around) = match &place {
                Place::Bare(bare) => (&bare.replica.tree, Around::Bare(bare)),
                Place::View | Place::Container(_) => (&request.workspace.path, Around::View(view)),
            };
            let folder = root.join(request.start.as_path());
            let start = Start { policy, identity, folder, command: request.command, around };
            let (staging, pipes) = (request.staging, pipes.theirs);
            match around {
                Around::Bare(_) => keeper::live(keeper::Birth { start, pipes }, &theirs),
                Around::View(_) | Around::Container(..) => {
                    let birth = init::Birth { start, view, staging, namespaces: namespaces.later, pipes };
                    init::live(birth, &theirs)
                }
            }
        }
    };
    let aside = sys::step_aside();
    drop(theirs);
    // A first process of a namespace takes everyone along; a keeper has to be asked.
    let killer = match place {
        Place::Bare(_) => rustix::process::Signal::HUP,
        Place::View | Place::Container(_) => rustix::process::Signal::KILL,
    };
    let sandbox = Sandbox { pidfd, pid, channel: ours, killer };
    pipes.give(identity).map_err(internal("can't give the agent its pipes"))?;
    drop(pipes.theirs);

    // While the first process makes its namespaces and the ground of the view, its layers are made here, and what there is on
    // the host is looked up.
    let around = match place {
        Place::View => {
            make_layers(request.workspace, request.run, identity)
                .map_err(internal("can't make the agent's layer"))?;
            Some(Surroundings::observe(request.host))
        }
        Place::Bare(_) | Place::Container(_) => None,
    };
    let Brought { user, network } =
        ahead.finish(request.workspace.owner, identity.outside()).map_err(no_namespaces)?;
    if must_enter && let Some(cgroup) = &cgroup {
        unless_gone(cgroup.enter(pid)).map_err(internal("can't move the sandbox into its cgroup"))?;
    }
    let told = match around {
        Some(around) => channel::hand_over(&sandbox.channel, &Handed { idmap: user, network, around }),
        None => channel::say_go(&sandbox.channel),
    };
    unless_gone(told).map_err(internal("can't talk to the sandbox"))?;
    Ok(Begun { sandbox, place, pipes: pipes.ours, signals, cgroup, janitor, started, aside })
}

fn no_namespaces(error: io::Error) -> LaunchError {
    // The process that was sent for them was killed.
    if error.raw_os_error() == Some(libc::ECHILD) {
        return too_early("can't make namespaces");
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
