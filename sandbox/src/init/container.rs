//! The first process of a container: our own program, beside those of the image.
//!
//! It calls the supervisor, which it can't have been cloned from, and is handed an order: everything that the first
//! process of another level was born with. Then it starts the agent and waits. When the command ends, or no process is
//! at the other end any more, it ends everyone, and the container with itself.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};

use crate::agent::{self, AgentIsolation, AgentStart, AgentStreams, StartFailure, failed};
use crate::agent_user::AgentUser;
use crate::channel::{self, ProcessExit, SandboxMessage};
use crate::container::rendezvous::SOCKET;
use crate::container::rendezvous_folder;
use crate::control::ControlSet;
use crate::egress::HostAllowlist;
use crate::landlock_rules::LandlockRules;
use crate::policy::{IsolationLevel, Policy, ResourceLimits};
use crate::reap::reap_all;
use crate::seccomp::AttackSurface;
use crate::sys;

/// Everything a first process is born with at other levels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ContainerOrder {
    pub(crate) folder: PathBuf,
    pub(crate) command: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) user: (u32, u32),
    pub(crate) rules: LandlockRules,
    /// Whether folders of the host are mounted as they are, with the sockets in them.
    pub(crate) folders: bool,
    pub(crate) limits: ResourceLimits,
    pub(crate) without: ControlSet,
    /// The list of hosts there are ways out to.
    pub(crate) hosts: Option<String>,
    /// Small files of the agent's own.
    pub(crate) notes: Vec<(PathBuf, String)>,
}

/// Runs as a container's first process until the sandbox ends.
pub fn run() -> ! {
    let Ok(channel) = call() else { sys::exit_now(1) };
    let (order, streams) = channel::wait_for_order(&channel);
    match begin(order, streams, &channel) {
        Ok((agent, signals)) => {
            let ended = wait(agent, &signals, &channel);
            let _ = kill(everyone(agent), Signal::SIGKILL);
            // Without a namespace the engine ends a process that left the agent's group, with its group of processes.
            if is_first() {
                reap_all();
            }
            let _ = channel::send(&channel, &SandboxMessage::Ended(ended), None);
            // What is known of us only while we live is read first.
            until_closed(&channel);
            sys::exit_now(0)
        }
        Err(StartFailure { what, error }) => {
            let _ = channel::send(&channel, &SandboxMessage::Failed { what, error }, None);
            sys::exit_now(1)
        }
    }
}

/// Whether this is the first process of a namespace. With that control off it is one of the host's, like any other.
fn is_first() -> bool {
    Pid::this().as_raw() == 1
}

/// Everyone but us: a first process is not reached by its own signal. Where it is not the first, the same signal would end
/// every process of this user on the host, so that it goes to the agent's own group.
fn everyone(agent: Pid) -> Pid {
    if is_first() { Pid::from_raw(-1) } else { Pid::from_raw(-agent.as_raw()) }
}

fn call() -> rustix::io::Result<OwnedFd> {
    let channel = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&channel, &SocketAddrUnix::new(rendezvous_folder().join(SOCKET))?)?;
    Ok(channel)
}

fn begin(
    order: OwnedFd,
    streams: Option<[OwnedFd; 3]>,
    channel: &OwnedFd,
) -> Result<(Pid, SignalFd), StartFailure> {
    let mut text = Vec::new();
    File::from(order).read_to_end(&mut text).map_err(failed("can't read what is to be done"))?;
    let order: ContainerOrder =
        serde_json::from_slice(&text).map_err(failed("can't understand what is to be done"))?;
    for (path, contents) in &order.notes {
        std::fs::write(path, contents).map_err(failed("can't write into its home"))?;
    }
    if let Some(hosts) = &order.hosts {
        let list = HostAllowlist::parse(hosts).map_err(failed("can't understand the list of hosts"))?;
        super::open_egress_listeners(&list, channel)?;
    }
    let (uid, gid) = order.user;
    let identity = AgentUser::caller(uid, gid);
    let streams = match streams {
        Some([input, output, error]) => AgentStreams::Pipes { input, output, error },
        None => AgentStreams::Terminal(super::terminal(channel, &identity)?),
    };
    let policy = Policy {
        level: IsolationLevel::Container,
        limits: order.limits,
        environment: order.environment,
        without: order.without,
        ..Policy::deny_all()
    };
    let watched = super::block_signals(&[Signal::SIGCHLD, Signal::SIGTERM])?;
    let signals = signals(&watched)?;
    let start = AgentStart {
        policy: &policy,
        identity: &identity,
        folder: order.folder,
        command: &order.command,
        around: AgentIsolation::Container(
            &order.rules,
            if order.folders { AttackSurface::Folders } else { AttackSurface::Kernel },
        ),
    };
    let folder = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let proc =
        rustix::fs::open("/proc", folder, rustix::fs::Mode::empty()).map_err(failed("can't open /proc"))?;
    Ok((agent::spawn(&start, &streams, proc.as_fd(), channel.as_fd())?, signals))
}

fn signals(watched: &SigSet) -> Result<SignalFd, StartFailure> {
    SignalFd::with_flags(watched, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(failed("can't watch for signals"))
}

/// Reaps dead children until the agent ends, or until the supervisor is gone.
fn wait(agent: Pid, signals: &SignalFd, channel: &OwnedFd) -> ProcessExit {
    loop {
        if let Some(ended) = super::reap_until_agent(agent) {
            return ended;
        }
        // The agent's messages are not ours to read: of the channel, only its end is waited for.
        let mut fds = [
            PollFd::new(signals, PollFlags::IN),
            PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty()),
        ];
        let _ = poll(&mut fds, None);
        if !fds[1].revents().is_empty() {
            return ProcessExit::Signaled(Signal::SIGKILL as i32);
        }
        while let Ok(Some(info)) = signals.read_signal() {
            if info.ssi_signo == Signal::SIGTERM as u32 {
                // A sender outside the namespace has no number in it. A signal of one of the agent's own processes does
                // not count: an agent that could make it look like an engine's would never have failed.
                if info.ssi_pid == 0 {
                    let _ = channel::send(channel, &SandboxMessage::Terminated, None);
                }
                let _ = kill(everyone(agent), Signal::SIGTERM);
            }
        }
    }
}

fn until_closed(channel: &OwnedFd) {
    let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::empty())];
    while matches!(poll(&mut fds, None), Err(rustix::io::Errno::INTR)) {}
}
