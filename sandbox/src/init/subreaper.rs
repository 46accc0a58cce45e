//! The first process of a sandbox without namespaces.
//!
//! It starts the agent and keeps everything that descends from it: orphans come to it, and when the command
//! ends, it ends them all and says so. A supervisor that is killed does not take it along, as it would the
//! first process of a namespace; it is told, and ends the sandbox before itself.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use crate::agent::{self, AgentStart, AgentStreams, StartFailure, failed};
use crate::channel::{self, ProcessExit, SandboxMessage};
use crate::control::Control;
use crate::landlock_level::process_set::ProcessSet;
use crate::sys;

/// Ends the sandbox: sent by the supervisor, and by the kernel when the supervisor is gone.
pub(crate) const END_ALL: Signal = Signal::SIGHUP;

/// What the subreaper starts with.
pub(crate) struct SubreaperConfig<'a> {
    pub(crate) start: AgentStart<'a>,
    /// Pipes for the agent; `None` asks for a terminal.
    pub(crate) pipes: Option<[OwnedFd; 3]>,
}

/// Runs the subreaper until every process of the sandbox is dead.
pub(crate) fn run(birth: SubreaperConfig<'_>, channel: &OwnedFd) -> ! {
    let everyone = match birth.start.identity.dedicated_ids() {
        Some(_) => ProcessSet::OfThisUser,
        None => ProcessSet::BelowThisProcess,
    };
    match begin(birth, channel) {
        Ok((agent, watched)) => {
            let ended = super::wait_for(agent, &watched, |signal| match signal {
                Signal::SIGTERM => {
                    everyone.signal(signal);
                    None
                }
                END_ALL => Some(ProcessExit::Signaled(Signal::SIGKILL as i32)),
                _ => None,
            });
            everyone.kill_all();
            let _ = channel::send(channel, &SandboxMessage::Ended(ended), None);
            sys::exit_now(0)
        }
        Err(StartFailure { what, error }) => {
            let _ = channel::send(channel, &SandboxMessage::Failed { what, error }, None);
            sys::exit_now(1)
        }
    }
}

fn begin(birth: SubreaperConfig<'_>, channel: &OwnedFd) -> Result<(Pid, SigSet), StartFailure> {
    let SubreaperConfig { start, pipes } = birth;
    let watched = super::block_signals(&[Signal::SIGCHLD, Signal::SIGTERM, END_ALL])?;
    // What is done to the supervisor's whole group is not done to us: we are needed then.
    rustix::process::setsid().map_err(failed("can't start a session"))?;
    nix::sys::prctl::set_child_subreaper(true).map_err(failed("can't keep what the agent leaves behind"))?;
    let streams = match pipes {
        Some([input, output, error]) => AgentStreams::Pipes { input, output, error },
        None => AgentStreams::Terminal(super::terminal(channel, start.identity)?),
    };
    // From here on we must be in our cgroup.
    channel::wait_for_go(channel);
    if start.policy.requires(Control::Capabilities) && start.identity.dedicated_ids().is_some() {
        agent::clear_bounding_set().map_err(failed("can't drop capabilities"))?;
    }
    super::drop_privileges(start.identity)?;
    nix::sys::prctl::set_pdeathsig(Some(END_ALL)).map_err(failed("can't follow the supervisor"))?;
    let folder = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let proc =
        rustix::fs::open("/proc", folder, rustix::fs::Mode::empty()).map_err(failed("can't open /proc"))?;
    Ok((agent::spawn(&start, &streams, proc.as_fd(), channel.as_fd())?, watched))
}
