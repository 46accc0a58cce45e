//! What a supervisor hears and sees of a running agent: signals, standard streams, and files that change.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{Gid, Uid};
use rustix::pipe::{PipeFlags, pipe_with};

use super::LaunchRequest;
use crate::agent_user::AgentUser;
use crate::flow::ByteFlow;
use crate::monitor::OutputStream;
use crate::output::redact::RedactionPatterns;
use crate::output::{StreamListener, StreamPipeline};
use crate::supervise::SupervisorStreams;
use crate::workspace::{Workspace, WriteLayer};

pub(super) fn watch_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Three pipes, or none where a terminal takes their place.
pub(super) struct StandardPipes {
    pub(super) theirs: Option<[OwnedFd; 3]>,
    pub(super) ours: Option<[OwnedFd; 3]>,
}

impl StandardPipes {
    pub(super) fn make(terminal: bool) -> io::Result<Self> {
        if terminal {
            return Ok(Self { theirs: None, ours: None });
        }
        let (input, their_input) = {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&write, true)?;
            (write, read)
        };
        let (output, their_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let (error, their_error) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self {
            theirs: Some([their_input, their_output, their_error]),
            ours: Some([input, output, error]),
        })
    }

    /// Makes them the agent's. Programs open them again, as /dev/stdout; then it matters whose they are.
    pub(super) fn set_owner(&self, identity: &AgentUser) -> io::Result<()> {
        if let AgentUser::Nobody { .. } = identity {
            let (uid, gid) = identity.host_ids();
            for pipe in self.theirs.iter().flatten() {
                rustix::fs::fchown(pipe, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
        }
        Ok(())
    }
}

pub(super) fn connect_streams<'a>(
    request: &LaunchRequest<'a>,
    pipes: Option<[OwnedFd; 3]>,
    master: Option<OwnedFd>,
) -> io::Result<SupervisorStreams<'a>> {
    let [input, output, error] = request.streams;
    let needles = Rc::new(RedactionPatterns::new(&request.policy.secrets));
    let limit = request.policy.limits.output;
    let listener = |from| StreamListener { attendant: request.attendant, from };
    let stream =
        |from, to, source, raw| StreamPipeline::new(from, to, listener(source), &needles, limit, raw);
    match (pipes, master) {
        (Some([to_agent, from_agent, errors]), _) => Ok(SupervisorStreams {
            input: Some(ByteFlow::new(input, to_agent)),
            output: vec![
                stream(from_agent, output, OutputStream::Output, false),
                stream(errors, error, OutputStream::Errors, false),
            ],
            terminal: None,
        }),
        (None, Some(master)) => Ok(SupervisorStreams {
            input: Some(ByteFlow::new(input, master.try_clone()?)),
            output: vec![stream(master.try_clone()?, output, OutputStream::Output, true)],
            terminal: Some(master),
        }),
        (None, None) => Err(io::Error::other("the sandbox handed over no terminal")),
    }
}

/// Every folder that shows a sign of life when the agent writes something.
pub(super) fn uppers(workspace: &Workspace, upper: &OwnedFd) -> Vec<PathBuf> {
    use std::os::fd::AsRawFd;
    let outbox = workspace.outbox.iter().map(|outbox| outbox.source.clone());
    let stores = workspace.stores.iter().filter_map(|store| match &store.layer {
        WriteLayer::Disk { upper, .. } => Some(upper.clone()),
        WriteLayer::Memory => None,
    });
    std::iter::once(PathBuf::from(format!("/proc/self/fd/{}/", upper.as_raw_fd())))
        .chain(stores)
        .chain(outbox)
        .collect()
}

/// Whether anything below changed after `since`: only asked when nothing else was heard for long.
pub(super) fn changed_since(folder: &Path, since: SystemTime) -> bool {
    let newer = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        let at = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        path.symlink_metadata().is_ok_and(|meta| {
            (meta.ctime(), meta.ctime_nsec()) >= (at.as_secs() as i64, i64::from(at.subsec_nanos()))
        })
    };
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        if newer(&folder) {
            return true;
        }
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            } else if newer(&entry.path()) {
                return true;
            }
        }
    }
    false
}
