//! Removes a sandbox's cgroups when the supervisor was killed before it could.
//!
//! Everything else of a sandbox ends by itself: processes and mounts with the first process, locks with the
//! descriptors. A cgroup is a folder and stays. So a process of its own waits for the supervisor's end of a
//! pipe to close, which even `kill -9` does.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::cgroup;
use crate::sys::{self, ForkSide};

/// The waiting process, seen from the supervisor. Dropping it lets it go.
#[derive(Debug)]
pub(crate) struct Janitor {
    pid: Pid,
    lifeline: Option<OwnedFd>,
}

impl Janitor {
    pub(crate) fn spawn(paths: Vec<PathBuf>) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        match sys::fork()? {
            ForkSide::Parent(pid) => Ok(Self { pid, lifeline: Some(write) }),
            ForkSide::Child => {
                drop(write);
                wait_and_sweep(&read, &paths)
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.lifeline.take());
        let _ = waitpid(self.pid, None);
    }
}

fn wait_and_sweep(lifeline: &OwnedFd, paths: &[PathBuf]) -> ! {
    // A Ctrl-C at the terminal goes to the whole group, and a pipe of the caller's must not stay open.
    let _ = rustix::process::setsid();
    if let Ok(null) = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let mut byte = [0];
    while let Err(rustix::io::Errno::INTR) = rustix::io::read(lifeline, &mut byte) {}
    for path in paths {
        cgroup::remove(path);
    }
    sys::exit_now(0)
}
