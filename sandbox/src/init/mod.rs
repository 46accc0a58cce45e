//! The first process of a sandbox, at each level.
//!
//! At the level `process` it builds the view, starts the agent and then waits. When the command ends, or the supervisor is
//! gone, it ends too, and the kernel kills every process that is left in its namespace, daemons included. `subreaper` is the
//! first process of the level `landlock`, [`container`] that of a container.

pub mod container;
pub(crate) mod subreaper;

use std::iter;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use rustix::fs::{Mode, OFlags};

use crate::agent::{self, AgentStart, AgentStreams, StartFailure, ViewInputs, failed};
use crate::agent_user::AgentUser;
use crate::channel::{self, InitHandover, ProcessExit, SandboxMessage};
use crate::control::Control;
use crate::egress::{self, HostAllowlist};
use crate::mount_plan::{self, MountPlan};
use crate::mounts::NewRoot;
use crate::policy::NetworkPolicy;
use crate::reap::{ReapResult, reap_all, reap_dead};
use crate::sys::{self, NamespaceJob};
use crate::user_limits;

/// What the first process of the level `process` starts with.
pub(crate) struct InitConfig<'a> {
    pub(crate) start: AgentStart<'a>,
    pub(crate) view: ViewInputs<'a>,
    /// An empty folder to build the new root on.
    pub(crate) staging: &'a Path,
    /// The namespaces it makes itself; others it is given.
    pub(crate) namespaces: CloneFlags,
    /// Pipes for the agent; `None` asks for a terminal.
    pub(crate) pipes: Option<[OwnedFd; 3]>,
}

/// Runs as the first process of the level `process` until the sandbox ends.
pub(crate) fn run(birth: InitConfig<'_>, channel: &OwnedFd) -> ! {
    let alone = birth.start.policy.requires(Control::PidNamespace);
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
            if alone {
                reap_all();
            }
            let _ = channel::send(channel, &SandboxMessage::Ended(ended), None);
            sys::exit_now(0)
        }
        Err(StartFailure { what, error }) => {
            let _ = channel::send(channel, &SandboxMessage::Failed { what, error }, None);
            sys::exit_now(1)
        }
    }
}

/// Makes the namespaces and the view, and starts the agent.
fn build(birth: InitConfig<'_>, channel: &OwnedFd) -> Result<(Pid, SigSet), StartFailure> {
    let InitConfig { start, view, staging, namespaces, pipes } = birth;
    die_with_supervisor()?;
    // The agent may be another user and must reach what is made here, even if the caller's umask is strict.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // The host's /proc, by descriptor: it outlives the move into the new root, says what the host calls us,
    // and is writable where ours is not.
    let host_proc = rustix::fs::open("/proc", folder, Mode::empty()).map_err(failed("can't open /proc"))?;
    if let AgentUser::Caller { uid, gid } = start.identity {
        agent::write_maps(host_proc.as_fd(), (*uid, *uid), (*gid, *gid))
            .map_err(failed("can't map the user"))?;
        if start.policy.requires(Control::UserLimits) {
            // In a container these files may be read-only. The gate reads back what the result was.
            let _ = user_limits::lower_in_namespace(host_proc.as_fd());
        }
    }
    // A network namespace takes longer to make than all mounts: it is made beside them.
    let networked = namespaces.contains(CloneFlags::CLONE_NEWNET);
    let errand = networked
        .then(|| NamespaceJob::start(false, true, host_proc.as_fd()))
        .transpose()
        .map_err(failed("can't send for a network namespace"))?;
    nix::sched::unshare(namespaces.difference(CloneFlags::CLONE_NEWNET))
        .map_err(failed("can't make namespaces"))?;
    if namespaces.contains(CloneFlags::CLONE_NEWUTS) {
        nix::unistd::sethostname("agency").map_err(failed("can't set the host name"))?;
    }
    let mut root = NewRoot::create(staging, start.policy, start.identity.host_ids()).map_err(failed(""))?;
    root.apply_step(&mount_plan::base_steps(start.policy, pipes.is_none())).map_err(failed(""))?;
    // From here on the layers must be there, and we in our cgroup.
    channel::spin_for_message(channel);
    let InitHandover { idmap, network, around } = channel::receive_handover(channel);
    let plan = MountPlan::new(
        start.policy,
        view.host,
        &around,
        start.identity.inner_ids(),
        &view.workspace.state_home,
    );
    root.map_owner(idmap);
    root.apply_step(&plan.folders).map_err(failed(""))?;
    let upper = root.add_workspace(view.workspace, view.opening).map_err(failed(""))?;
    root.add_fsmonitor(view.workspace, &upper, &plan.covers).map_err(failed(""))?;
    root.apply_step(&plan.covers).map_err(failed(""))?;
    let spent = root.enter().map_err(failed(""))?;
    channel::send(channel, &SandboxMessage::Layer, iter::once(&upper).chain(&spent))
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
    if let NetworkPolicy::Hosts(list) = &start.policy.network {
        open_egress_listeners(list, channel)?;
    }

    let streams = match pipes {
        Some([input, output, error]) => AgentStreams::Pipes { input, output, error },
        None => AgentStreams::Terminal(terminal(channel, start.identity)?),
    };
    let watched = block_signals(&[Signal::SIGCHLD, Signal::SIGTERM])?;
    // The agent borrows this process until its program starts, so this process gives up now all that it is to
    // give up.
    drop_privileges(start.identity)?;
    Ok((agent::spawn(&start, &streams, host_proc.as_fd(), channel.as_fd())?, watched))
}

/// Ends this process with the supervisor's. A supervisor that is gone already closed the channel, which is
/// noticed at the next word to or from it.
fn die_with_supervisor() -> Result<(), StartFailure> {
    nix::sys::prctl::set_pdeathsig(Some(Signal::SIGKILL)).map_err(failed("can't follow the supervisor"))
}

/// Listens where a list leads out of the network namespace. The supervisor accepts what comes.
pub(crate) fn open_egress_listeners(list: &HostAllowlist, channel: &OwnedFd) -> Result<(), StartFailure> {
    let listeners = egress::listen(list)
        .map_err(|(address, error)| failed(&format!("can't listen at {address} inside"))(error))?;
    for egress::EgressListener { address, socket } in listeners {
        channel::send(channel, &SandboxMessage::Listener { address }, Some(&socket))
            .map_err(failed("can't hand over a socket"))?;
    }
    Ok(())
}

/// A terminal in the agent's own /dev/pts. The supervisor gets the other end.
pub(crate) fn terminal(channel: &OwnedFd, identity: &AgentUser) -> Result<OwnedFd, StartFailure> {
    use rustix::pty::{OpenptFlags, grantpt, ptsname, unlockpt};
    let failed = || failed("can't open a terminal");
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = rustix::pty::openpt(flags).map_err(failed())?;
    grantpt(&master).map_err(failed())?;
    unlockpt(&master).map_err(failed())?;
    let name = ptsname(&master, Vec::new()).map_err(failed())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).map_err(failed())?;
    let (uid, gid) = identity.host_ids();
    let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    rustix::fs::fchown(&terminal, Some(uid), Some(gid)).map_err(failed())?;
    channel::send(channel, &SandboxMessage::Terminal, Some(&master))
        .map_err(agent::failed("can't hand over the terminal"))?;
    Ok(terminal)
}

/// From here on this process only waits, so it keeps no power over the host: it is the agent's user.
pub(crate) fn drop_privileges(identity: &AgentUser) -> Result<(), StartFailure> {
    let AgentUser::Nobody { .. } = identity else { return Ok(()) };
    let failed = || failed("can't give up privileges");
    let (uid, gid) = identity.host_ids();
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

/// Reaps dead children until the agent ends, or until a signal says how it ends.
pub(crate) fn wait_for(
    agent: Pid,
    watched: &SigSet,
    mut heard: impl FnMut(Signal) -> Option<ProcessExit>,
) -> ProcessExit {
    loop {
        if let Some(ended) = reap_until_agent(agent) {
            return ended;
        }
        if let Ok(signal) = watched.wait()
            && let Some(ended) = heard(signal)
        {
            return ended;
        }
    }
}

/// Reaps dead children until the agent is among them. How the agent ended; `None` while it runs. An agent that is no child
/// of this process any more counts as one that failed.
fn reap_until_agent(agent: Pid) -> Option<ProcessExit> {
    let of_agent = |status| match status {
        WaitStatus::Exited(pid, code) if pid == agent => Some(ProcessExit::Exited(code)),
        WaitStatus::Signaled(pid, signal, _) if pid == agent => Some(ProcessExit::Signaled(signal as i32)),
        _ => None,
    };
    match reap_dead(of_agent) {
        ReapResult::Found(ended) => Some(ended),
        ReapResult::ChildrenRun => None,
        ReapResult::NoChildren => Some(ProcessExit::Exited(125)),
    }
}

/// Signals that are waited for, not delivered. The agent sets its own mask.
pub(crate) fn block_signals(signals: &[Signal]) -> Result<SigSet, StartFailure> {
    let watched: SigSet = signals.iter().copied().collect();
    watched.thread_block().map_err(failed("can't block signals"))?;
    Ok(watched)
}
