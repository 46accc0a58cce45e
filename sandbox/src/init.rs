//! The first process of a sandbox.
//!
//! It builds the view, starts the agent, and then only waits: when the command ends, or the supervisor is
//! gone, it ends too, and the kernel kills every process that is left in its namespace, daemons included.

use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags};

use crate::agent::{self, Failure, Start, Streams, View, failed};
use crate::channel::{self, Ended, FromSandbox, Handed};
use crate::control::Control;
use crate::egress::{self, List};
use crate::identity::Identity;
use crate::mounts::NewRoot;
use crate::policy::Network;
use crate::sys::{self, Errand};
use crate::user_limits;
use crate::view::{self, Plan};

/// What the first process is born with.
pub(crate) struct Birth<'a> {
    pub(crate) start: Start<'a>,
    pub(crate) view: View<'a>,
    /// An empty folder to build the new root on.
    pub(crate) staging: &'a Path,
    /// The namespaces it makes itself; others it is given.
    pub(crate) namespaces: CloneFlags,
    /// Pipes for the agent; `None` asks for a terminal.
    pub(crate) pipes: Option<[OwnedFd; 3]>,
}

/// The life of the first process.
pub(crate) fn live(birth: Birth<'_>, channel: &OwnedFd) -> ! {
    let alone = birth.start.policy.wants(Control::PidNamespace);
    match build(birth, channel) {
        Ok((agent, watched)) => {
            let everyone = Pid::from_raw(if alone { -1 } else { -agent.as_raw() });
            // SIGTERM from outside is passed on to every process inside.
            let ended = wait_for(agent, &watched, |signal| {
                if signal == Signal::SIGTERM {
                    let _ = nix::sys::signal::kill(everyone, signal);
                }
                None
            });
            // The kernel would do this when we end. Doing it first lets the supervisor go to work on what
            // was left behind while it takes our namespaces apart.
            let _ = nix::sys::signal::kill(everyone, Signal::SIGKILL);
            while alone && !matches!(waitpid(None, None), Err(nix::Error::ECHILD)) {}
            let _ = channel::send(channel, &FromSandbox::Ended(ended), None);
            sys::exit_now(0)
        }
        Err(Failure { what, error }) => {
            let _ = channel::send(channel, &FromSandbox::Failed { what, error }, None);
            sys::exit_now(1)
        }
    }
}

/// Makes the namespaces and the view, and starts the agent.
fn build(birth: Birth<'_>, channel: &OwnedFd) -> Result<(Pid, SigSet), Failure> {
    let Birth { start, view, staging, namespaces, pipes } = birth;
    die_with_supervisor()?;
    // What is made here is for the agent, who may be somebody else, whatever the caller keeps to themselves.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The host's /proc, by descriptor: it outlives the move into the new root, says what the host calls us,
    // and is writable where ours is not.
    let host_proc = rustix::fs::open("/proc", folder, Mode::empty()).map_err(failed("can't open /proc"))?;
    if let Identity::Caller { uid, gid } = start.identity {
        agent::write_maps(host_proc.as_fd(), (*uid, *uid), (*gid, *gid))
            .map_err(failed("can't map the user"))?;
        if start.policy.wants(Control::UserLimits) {
            // Whoever runs in a container may find them read-only. What came of it is read back at the gate.
            let _ = user_limits::lower_in_namespace(host_proc.as_fd());
        }
    }
    // A network namespace takes longer to make than all mounts: it is made beside them.
    let networked = namespaces.contains(CloneFlags::CLONE_NEWNET);
    let errand = networked
        .then(|| Errand::send(false, true, host_proc.as_fd()))
        .transpose()
        .map_err(failed("can't send for a network namespace"))?;
    nix::sched::unshare(namespaces.difference(CloneFlags::CLONE_NEWNET))
        .map_err(failed("can't make namespaces"))?;
    if namespaces.contains(CloneFlags::CLONE_NEWUTS) {
        nix::unistd::sethostname("agency").map_err(failed("can't set the host name"))?;
    }
    let mut root = NewRoot::create(staging, start.policy, start.identity.outside()).map_err(failed(""))?;
    root.perform(&view::ground(start.policy, pipes.is_none())).map_err(failed(""))?;
    // From here on the layers must be there, and we in our cgroup.
    channel::linger(channel);
    let Handed { idmap, network, around } = channel::take_over(channel);
    let plan =
        Plan::new(start.policy, view.host, &around, start.identity.inside(), &view.workspace.state_home);
    root.map_owner(idmap);
    root.perform(&plan.folders).map_err(failed(""))?;
    let upper = root.add_workspace(view.workspace, view.opening).map_err(failed(""))?;
    root.add_answers(view.workspace, &upper, &plan.covers).map_err(failed(""))?;
    root.perform(&plan.covers).map_err(failed(""))?;
    let spent = root.enter().map_err(failed(""))?;
    channel::send(channel, &FromSandbox::Layer, iter::once(&upper).chain(&spent))
        .map_err(failed("can't report to the supervisor"))?;
    drop((upper, spent));
    let network = match errand {
        Some(errand) => errand.finish().map_err(failed("can't make a network namespace"))?.network,
        None => network,
    };
    if let Some(network) = network {
        nix::sched::setns(network, CloneFlags::CLONE_NEWNET)
            .map_err(failed("can't enter the network namespace"))?;
    }
    if let Network::Hosts(list) = &start.policy.network {
        open_ways_out(list, channel)?;
    }

    let streams = match pipes {
        Some([input, output, error]) => Streams::Pipes { input, output, error },
        None => Streams::Terminal(terminal(channel, start.identity)?),
    };
    let watched = block(&[Signal::SIGCHLD, Signal::SIGTERM])?;
    // The agent borrows this process until its program starts, so whatever this process is to give up, it
    // gives up now.
    step_down(start.identity)?;
    Ok((agent::spawn(&start, &streams, host_proc.as_fd(), channel.as_fd())?, watched))
}

/// Ends this process with the supervisor's. A supervisor that is gone already closed the channel, which is
/// noticed at the next word to or from it.
fn die_with_supervisor() -> Result<(), Failure> {
    nix::sys::prctl::set_pdeathsig(Some(Signal::SIGKILL)).map_err(failed("can't follow the supervisor"))
}

/// Listens where a list leads out of the network namespace. The supervisor accepts what comes.
pub(crate) fn open_ways_out(list: &List, channel: &OwnedFd) -> Result<(), Failure> {
    let listeners = egress::listen(list)
        .map_err(|(address, error)| failed(&format!("can't listen at {address} inside"))(error))?;
    for egress::Listener { address, socket } in listeners {
        channel::send(channel, &FromSandbox::Listener { address }, Some(&socket))
            .map_err(failed("can't hand over a socket"))?;
    }
    Ok(())
}

/// A terminal in the agent's own /dev/pts. The supervisor gets the other end.
pub(crate) fn terminal(channel: &OwnedFd, identity: &Identity) -> Result<OwnedFd, Failure> {
    use rustix::pty::{OpenptFlags, grantpt, ptsname, unlockpt};
    let failed = || failed("can't open a terminal");
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).map_err(failed())?;
    grantpt(&master).map_err(failed())?;
    unlockpt(&master).map_err(failed())?;
    let name = ptsname(&master, Vec::new()).map_err(failed())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).map_err(failed())?;
    let (uid, gid) = identity.outside();
    let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    rustix::fs::fchown(&terminal, Some(uid), Some(gid)).map_err(failed())?;
    channel::send(channel, &FromSandbox::Terminal, Some(&master))
        .map_err(agent::failed("can't hand over the terminal"))?;
    Ok(terminal)
}

/// From here on this process only waits, so it keeps no power over the host: it is the agent's user.
pub(crate) fn step_down(identity: &Identity) -> Result<(), Failure> {
    let Identity::Nobody { .. } = identity else { return Ok(()) };
    let failed = || failed("can't give up privileges");
    let (uid, gid) = identity.outside();
    nix::unistd::setgroups(&[]).map_err(failed())?;
    let gid = nix::unistd::Gid::from_raw(gid);
    nix::unistd::setresgid(gid, gid, gid).map_err(failed())?;
    let uid = nix::unistd::Uid::from_raw(uid);
    nix::unistd::setresuid(uid, uid, uid).map_err(failed())?;
    // Changing users cleared it, and made the process unreadable even to itself. The latter is undone until
    // the agent's program starts: nothing hostile runs yet.
    die_with_supervisor()?;
    nix::sys::prctl::set_dumpable(true).map_err(failed())
}

/// Reaps whatever ends, until the agent does or a signal says how it ends.
pub(crate) fn wait_for(
    agent: Pid,
    watched: &SigSet,
    mut heard: impl FnMut(Signal) -> Option<Ended>,
) -> Ended {
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == agent => return Ended::Exited(code),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == agent => {
                    return Ended::Signaled(signal as i32);
                }
                Ok(WaitStatus::StillAlive) => break,
                Err(nix::Error::ECHILD) => return Ended::Exited(125),
                _ => {}
            }
        }
        if let Ok(signal) = watched.wait()
            && let Some(ended) = heard(signal)
        {
            return ended;
        }
    }
}

/// Signals that are waited for, not delivered. The agent sets its own mask.
pub(crate) fn block(signals: &[Signal]) -> Result<SigSet, Failure> {
    let watched: SigSet = signals.iter().copied().collect();
    watched.thread_block().map_err(failed("can't block signals"))?;
    Ok(watched)
}
