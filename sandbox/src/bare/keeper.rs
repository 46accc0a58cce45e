//! The first process of a sandbox without namespaces.
//!
//! It starts the agent and keeps everything that descends from it: orphans come to it, and when the command
//! ends, it ends them all and says so. A supervisor that is killed does not take it along, as it would the
//! first process of a namespace; it is told, and ends the sandbox before itself.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::Pid;

use super::everyone::Everyone;
use crate::agent::{self, Failure, Start, Streams, failed};
use crate::channel::{self, Ended, FromSandbox};
use crate::control::Control;
use crate::init;
use crate::sys;

/// Ends the sandbox: sent by the supervisor, and by the kernel when the supervisor is gone.
pub(crate) const END_ALL: Signal = Signal::SIGHUP;

/// What the keeper is born with.
pub(crate) struct Birth<'a> {
    pub(crate) start: Start<'a>,
    /// Pipes for the agent; `None` asks for a terminal.
    pub(crate) pipes: Option<[OwnedFd; 3]>,
}

/// The life of the keeper.
pub(crate) fn live(birth: Birth<'_>, channel: &OwnedFd) -> ! {
    let everyone = match birth.start.identity.own() {
        Some(_) => Everyone::OfThisUser,
        None => Everyone::BelowThisProcess,
    };
    match begin(birth, channel) {
        Ok((agent, watched)) => {
            let ended = init::wait_for(agent, &watched, |signal| match signal {
                Signal::SIGTERM => {
                    everyone.signal(signal);
                    None
                }
                END_ALL => Some(Ended::Signaled(Signal::SIGKILL as i32)),
                _ => None,
            });
            everyone.end();
            let _ = channel::send(channel, &FromSandbox::Ended(ended), None);
            sys::exit_now(0)
        }
        Err(Failure { what, error }) => {
            let _ = channel::send(channel, &FromSandbox::Failed { what, error }, None);
            sys::exit_now(1)
        }
    }
}

fn begin(birth: Birth<'_>, channel: &OwnedFd) -> Result<(Pid, SigSet), Failure> {
    let Birth { start, pipes } = birth;
    let watched = init::block(&[Signal::SIGCHLD, Signal::SIGTERM, END_ALL])?;
    // What is done to the supervisor's whole group is not done to us: we are needed then.
    rustix::process::setsid().map_err(failed("can't start a session"))?;
    nix::sys::prctl::set_child_subreaper(true).map_err(failed("can't keep what the agent leaves behind"))?;
    let streams = match pipes {
        Some([input, output, error]) => Streams::Pipes { input, output, error },
        None => Streams::Terminal(init::terminal(channel, start.identity)?),
    };
    // From here on we must be in our cgroup.
    channel::wait_for_go(channel);
    if start.policy.wants(Control::Capabilities) && start.identity.own().is_some() {
        agent::forget_capabilities().map_err(failed("can't drop capabilities"))?;
    }
    init::step_down(start.identity)?;
    nix::sys::prctl::set_pdeathsig(Some(END_ALL)).map_err(failed("can't follow the supervisor"))?;
    let folder = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let proc =
        rustix::fs::open("/proc", folder, rustix::fs::Mode::empty()).map_err(failed("can't open /proc"))?;
    Ok((agent::spawn(&start, &streams, proc.as_fd(), channel.as_fd())?, watched))
}
