//! A sandbox that was started, as its supervisor holds it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{LaunchError, internal, unavailable};
use crate::attest::{self, EarlyProcess, OwnNamespaces};
use crate::cgroup::Cgroup;
use crate::channel::{self, ReadyReport, SandboxMessage};
use crate::container::running::RunningContainer;
use crate::egress::EgressListener;
use crate::janitor::Janitor;

/// What the kernel, or an engine, is still taking apart when every process of a sandbox is dead. Dropping it waits until
/// that is over: then no process, mount, cgroup or container is left.
#[derive(Debug, Default)]
pub struct SandboxRemains {
    // In this order: a cgroup can be removed when its last process is gone.
    pub(super) _sandbox: Option<SandboxProcess>,
    pub(super) _contained: Option<Box<RunningContainer>>,
    pub(super) _cgroup: Option<Cgroup>,
    pub(super) _janitor: Option<Janitor>,
}

/// A started sandbox. It is killed and reaped when it goes out of scope, in any case.
#[derive(Debug)]
pub(super) struct SandboxProcess {
    pub(super) pidfd: OwnedFd,
    pub(super) pid: i32,
    pub(super) channel: OwnedFd,
    /// What ends all of it.
    pub(super) killer: rustix::process::Signal,
}

/// What a sandbox has said of itself when its view is final.
pub(super) struct BirthReport {
    pub(super) early: EarlyProcess,
    pub(super) upper: Option<OwnedFd>,
    /// What is only left to be closed, by a caller with time.
    pub(super) spent: Vec<OwnedFd>,
    pub(super) master: Option<OwnedFd>,
    pub(super) listeners: Vec<EgressListener>,
}

impl SandboxProcess {
    /// Waits until the view is made and the agent's process is there; it goes on to give up everything else.
    pub(super) fn wait_for_birth(&self, ours: &OwnNamespaces) -> Result<BirthReport, LaunchError> {
        let (mut upper, mut spent, mut master, mut listeners) = (None, Vec::new(), None, Vec::new());
        loop {
            match self.hear()? {
                (SandboxMessage::Layer, descriptors) => {
                    let mut descriptors = descriptors.into_iter();
                    upper = descriptors.next();
                    spent.extend(descriptors);
                    channel::spin_for_message(&self.channel);
                }
                (SandboxMessage::Terminal, terminal) => master = terminal.into_iter().next(),
                (SandboxMessage::Listener { address }, socket) => {
                    listeners
                        .extend(socket.into_iter().next().map(|socket| EgressListener { address, socket }));
                }
                (SandboxMessage::Born { pid: Some(pid) }, _) => {
                    let early = match EarlyProcess::read(pid, ours) {
                        Ok(early) => early,
                        // It may be gone already, and have said why.
                        Err(error) => {
                            // One that is about to go may have said something else before: its last word is waited for.
                            while attest::is_ending(pid) {
                                self.hear()?;
                            }
                            return Err(internal("can't read the agent's process")(error));
                        }
                    };
                    return Ok(BirthReport { early, upper, spent, master, listeners });
                }
                _ => {}
            }
        }
    }

    /// Waits until the agent stands at the gate.
    pub(super) fn wait_until_ready(&self) -> Result<ReadyReport, LaunchError> {
        channel::spin_for_message(&self.channel);
        loop {
            if let (SandboxMessage::Ready(ready), _) = self.hear()? {
                return Ok(ready);
            }
        }
    }

    fn hear(&self) -> Result<(SandboxMessage, Vec<OwnedFd>), LaunchError> {
        match channel::receive(&self.channel).map_err(internal("can't hear the sandbox"))? {
            // It sent a process for its namespaces, and that was killed.
            Some((SandboxMessage::Failed { error: libc::ECHILD, .. }, _)) => {
                Err(ended_before_ready("can't make namespaces"))
            }
            Some((SandboxMessage::Failed { what, error }, _)) => Err(unavailable(&what, error)),
            Some(heard) => Ok(heard),
            None => Err(ended_before_ready("the sandbox did not start")),
        }
    }
}

pub(super) fn ended_before_ready(what: &'static str) -> LaunchError {
    LaunchError::Internal { what, source: attest::ended_early() }
}

impl Drop for SandboxProcess {
    fn drop(&mut self) {
        // An agent that still stands at the gate goes by itself, and with it what its first process waits for.
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, self.killer);
        let waited = rustix::process::waitid(
            rustix::process::WaitId::PidFd(self.pidfd.as_fd()),
            rustix::process::WaitIdOptions::EXITED,
        );
        // A container's first process is another process's child: we see its end all the same, and with it that of
        // every process in its namespace. If we are not allowed to end it, we do not wait for ever.
        if matches!(waited, Err(rustix::io::Errno::CHILD)) {
            const LONGEST: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&LONGEST));
        }
    }
}
