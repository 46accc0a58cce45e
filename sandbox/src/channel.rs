//! What the processes of a start-up say to each other.
//!
//! One socket pair with message boundaries: the supervisor holds one end; the sandbox's first process and the
//! agent-to-be share the other until the agent's program starts, which closes it there.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};

use crate::host::HostPaths;
use crate::landlock_level::probes::ProbeResults;
use crate::sys;
use crate::user_limits::InotifyLimits;

/// From the sandbox to its supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SandboxMessage {
    /// The process that will be the agent, as the host numbers it, where it can know that. Its view, its user
    /// and its limits are final; it goes on to give up everything else.
    Born { pid: Option<i32> },
    /// This message carries the upper layer of the workspace, and after it descriptors that are no longer needed.
    Layer,
    /// The supervisor's end of the terminal comes with this message.
    Terminal,
    /// A socket that listens inside at this address comes with this message.
    Listener { address: SocketAddr },
    /// Everything is in place; the agent-to-be waits for the word to go.
    Ready(ReadyReport),
    /// Something could not be set up. Nothing was started.
    Failed { what: String, error: i32 },
    /// The program could not be started.
    NotStarted { error: i32 },
    /// A container was asked to end; it can't tell whether we asked.
    Terminated,
    /// The command ended.
    Ended(ProcessExit),
}

/// What can only be known inside.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyReport {
    /// The result of trying something only Landlock forbids.
    pub(crate) landlock: Result<(), i32>,
    /// The limits of its user namespace, where its user is the caller.
    pub(crate) inotify: Option<InotifyLimits>,
    /// What else was tried, where there is no view to read back.
    pub(crate) tried: Option<ProbeResults>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ProcessExit {
    Exited(i32),
    Signaled(i32),
}

/// What the supervisor hands to a first process that makes a view.
#[derive(Debug)]
pub(crate) struct InitHandover {
    /// The user namespace that maps the owner of the workspace's files.
    pub(crate) idmap: Option<OwnedFd>,
    pub(crate) network: Option<OwnedFd>,
    pub(crate) around: HostPaths,
}

/// From the supervisor to the sandbox: go on.
const GO: &[u8] = b"go";

/// From the supervisor to a first process: take this, and go on. Which descriptors come with it follows, a byte for each,
/// and what there is on the host.
const TAKE: &[u8] = b"take";

/// From the supervisor to a first process that it could not clone: what it is to do comes with this, and the
/// agent's streams.
const ORDER: &[u8] = b"order";

/// What the sandbox says is short; what it is handed has paths in it.
const LARGEST: usize = 16 * 1024;
const LARGEST_TAKEN: usize = 64 * 1024;
/// Descriptors that come with one message.
pub(crate) const MOST: usize = 8;

/// Both ends.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Says something, with the descriptors there are to hand over: at most [`MOST`].
pub(crate) fn send<'a>(
    channel: impl AsFd,
    message: &SandboxMessage,
    descriptors: impl IntoIterator<Item = &'a OwnedFd>,
) -> io::Result<()> {
    let descriptors: Vec<_> = descriptors.into_iter().map(AsFd::as_fd).collect();
    Ok(send_bytes(channel, &serde_json::to_vec(message)?, &descriptors)?)
}

fn send_bytes(channel: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    rustix::net::sendmsg(channel, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

/// Hears one message, with the descriptors that came with it; `None` when every other end is closed.
pub(crate) fn receive(channel: impl AsFd) -> io::Result<Option<(SandboxMessage, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; LARGEST];
    let ReceivedMessage { length, descriptors, sender } = receive_bytes(channel, &mut bytes)?;
    if length == 0 {
        return Ok(None);
    }
    let message = match serde_json::from_slice(&bytes[..length])? {
        SandboxMessage::Born { pid } => SandboxMessage::Born { pid: pid.or(sender) },
        message => message,
    };
    Ok(Some((message, descriptors)))
}

/// Waits a moment for a word that is about to come, without going to sleep; who listens afterwards sleeps until it does.
/// A processor that fell asleep takes longer to wake than most of what is waited for at a start.
pub(crate) fn spin_for_message(channel: impl AsFd) {
    const MOMENT: Duration = Duration::from_micros(300);
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let until = Instant::now() + MOMENT;
    let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
    while poll(&mut fds, Some(&AT_ONCE)) == Ok(0) && Instant::now() < until {
        rustix::thread::sched_yield();
    }
}

/// What came with a message.
struct ReceivedMessage {
    length: usize,
    descriptors: Vec<OwnedFd>,
    /// Who sent it, as we number processes, where [`name_senders`] asked for that.
    sender: Option<i32>,
}

/// Lets the kernel say with each message who sent it: a process elsewhere does not know what we call it.
pub(crate) fn name_senders(channel: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_passcred(channel, true)?)
}

fn receive_bytes(channel: impl AsFd, bytes: &mut [u8]) -> rustix::io::Result<ReceivedMessage> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST), ScmCredentials(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = loop {
        match rustix::net::recvmsg(&channel, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags) {
            // Who went without having read our last word may have said something before. It is told once.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    let mut received = ReceivedMessage { length: message.bytes, descriptors: Vec::new(), sender: None };
    for message in ancillary.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(descriptors) => received.descriptors.extend(descriptors),
            RecvAncillaryMessage::ScmCredentials(sender) => {
                received.sender = Some(sender.pid.as_raw_nonzero().get());
            }
            _ => {}
        }
    }
    Ok(received)
}

/// Hands an order over, and the agent's streams unless it is to have a terminal.
pub(crate) fn send_order(
    channel: impl AsFd,
    order: &OwnedFd,
    streams: Option<&[OwnedFd; 3]>,
) -> io::Result<()> {
    let mut descriptors = vec![order.as_fd()];
    descriptors.extend(streams.into_iter().flatten().map(AsFd::as_fd));
    Ok(send_bytes(channel, ORDER, &descriptors)?)
}

/// Waits for an order. Does not return if no order comes.
pub(crate) fn wait_for_order(channel: impl AsFd) -> (OwnedFd, Option<[OwnedFd; 3]>) {
    let mut bytes = [0; ORDER.len()];
    match receive_bytes(channel, &mut bytes) {
        Ok(ReceivedMessage { length, mut descriptors, .. }) if bytes[..length] == *ORDER => {
            match (descriptors.pop(), descriptors.pop(), descriptors.pop(), descriptors.pop()) {
                (Some(order), None, None, None) => (order, None),
                (Some(errors), Some(output), Some(input), Some(order)) => {
                    (order, Some([input, output, errors]))
                }
                _ => sys::exit_now(1),
            }
        }
        _ => sys::exit_now(1),
    }
}

/// The supervisor's word.
pub(crate) fn send_go(channel: impl AsFd) -> io::Result<()> {
    Ok(send_bytes(channel, GO, &[])?)
}

/// Waits for the supervisor's word. Does not return when the supervisor is gone.
pub(crate) fn wait_for_go(channel: impl AsFd) {
    let mut bytes = [0; GO.len()];
    match receive_bytes(channel, &mut bytes) {
        Ok(ReceivedMessage { length, .. }) if bytes[..length] == *GO => {}
        _ => sys::exit_now(1),
    }
}

/// The supervisor's word to a first process, with what it hands over.
pub(crate) fn send_handover(channel: impl AsFd, handed: &InitHandover) -> io::Result<()> {
    let all = [&handed.idmap, &handed.network];
    let mut bytes = TAKE.to_vec();
    bytes.extend(all.map(|one| u8::from(one.is_some())));
    bytes.extend(handed.around.to_bytes());
    if bytes.len() > LARGEST_TAKEN {
        return Err(rustix::io::Errno::NAMETOOLONG.into());
    }
    let descriptors: Vec<_> = all.into_iter().flatten().map(AsFd::as_fd).collect();
    Ok(send_bytes(channel, &bytes, &descriptors)?)
}

/// Whether an operation failed because its receiver is gone. The messages it sent before can still be read.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET | libc::ESRCH))
}

/// Waits for what the supervisor hands over. Does not return when the supervisor is gone.
pub(crate) fn receive_handover(channel: impl AsFd) -> InitHandover {
    let mut bytes = vec![0; LARGEST_TAKEN];
    let Ok(ReceivedMessage { length, descriptors, .. }) = receive_bytes(channel, &mut bytes) else {
        sys::exit_now(1)
    };
    let Some([idmap, network, around @ ..]) = bytes[..length].strip_prefix(TAKE) else { sys::exit_now(1) };
    let Some(around) = HostPaths::from_bytes(around) else { sys::exit_now(1) };
    let mut descriptors = descriptors.into_iter();
    let mut next = |there: &u8| if *there == 1 { descriptors.next() } else { None };
    InitHandover { idmap: next(idmap), network: next(network), around }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed() -> InitHandover {
        let around = HostPaths { toolchains: vec!["/go".into()], ..HostPaths::default() };
        InitHandover { idmap: None, network: None, around }
    }

    #[test]
    fn what_is_handed_over_is_what_is_taken() {
        let (ours, theirs) = pair().expect("a pair");
        let network = std::fs::File::open("/dev/null").expect("opens").into();
        send_handover(&ours, &InitHandover { network: Some(network), ..handed() }).expect("sent");
        let taken = receive_handover(&theirs);
        assert!(taken.idmap.is_none() && taken.network.is_some());
        assert_eq!(taken.around, handed().around);
    }

    #[test]
    fn more_than_can_be_taken_is_not_handed_over() {
        let (ours, _theirs) = pair().expect("a pair");
        let mut much = handed();
        much.around.toolchains = vec!["x".repeat(4000).into(); 20];
        let error = send_handover(&ours, &much).expect_err("too much");
        assert_eq!(error.raw_os_error(), Some(libc::ENAMETOOLONG));
    }

    #[test]
    fn whoever_went_is_heard_whatever_they_were_told_meanwhile() {
        let failed = |what: &str| SandboxMessage::Failed { what: what.into(), error: 1 };
        let heard = |channel: &OwnedFd| match receive(channel).expect("heard") {
            Some((SandboxMessage::Failed { what, .. }, _)) => Some(what),
            Some(other) => panic!("{other:?}"),
            None => None,
        };
        for told_before in [true, false] {
            let (ours, theirs) = pair().expect("a pair");
            send(&theirs, &failed("no mounts"), None).expect("sent");
            if told_before {
                send_handover(&ours, &handed()).expect("sent");
            }
            drop(theirs);
            if !told_before {
                assert!(is_gone(&send_handover(&ours, &handed()).expect_err("nobody is there")));
            }
            assert_eq!(heard(&ours).as_deref(), Some("no mounts"), "told before: {told_before}");
            assert_eq!(heard(&ours), None);
        }
    }
}
