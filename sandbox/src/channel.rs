//! What the processes of a start-up say to each other.
//!
//! One socket pair with message boundaries: the supervisor holds one end; the sandbox's first process and the
//! agent-to-be share the other until the agent's program starts, which closes it there.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};

use crate::bare::tried::Tried;
use crate::sys;

/// From the sandbox to its supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromSandbox {
    /// The process that will be the agent, as the host numbers it. Its view, its user and its limits are
    /// final; it goes on to give up everything else.
    Born { pid: i32 },
    /// The upper layer of the workspace comes with this message.
    Layer,
    /// The supervisor's end of the terminal comes with this message.
    Terminal,
    /// A socket that listens inside at this address comes with this message.
    Listener { address: SocketAddr },
    /// Everything is in place; the agent-to-be waits for the word to go.
    Ready(Ready),
    /// Something could not be set up. Nothing was started.
    Failed { what: String, error: i32 },
    /// The program could not be started.
    NotStarted { error: i32 },
    /// The command ended.
    Ended(Ended),
}

/// What can only be known inside.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// What came of trying something only Landlock forbids.
    pub(crate) landlock: Result<(), i32>,
    /// What else was tried, where there is no view to read back.
    pub(crate) tried: Option<Tried>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ended {
    Exited(i32),
    Signaled(i32),
}

/// What the supervisor hands to the first process.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    /// The user namespace that maps the owner of the workspace's files.
    pub(crate) idmap: Option<OwnedFd>,
    pub(crate) network: Option<OwnedFd>,
}

/// From the supervisor to the sandbox: go on. Which descriptors come with it follows, a byte for each.
const GO: &[u8] = b"go";

const LARGEST: usize = 16 * 1024;
/// Descriptors that come with one message.
const MOST: usize = 2;

/// Both ends.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Says something, with a descriptor if there is one to hand over.
pub(crate) fn send(
    channel: impl AsFd,
    message: &FromSandbox,
    descriptor: Option<&OwnedFd>,
) -> io::Result<()> {
    let descriptors: Vec<_> = descriptor.map(AsFd::as_fd).into_iter().collect();
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

/// Hears one message; `None` when every other end is closed.
pub(crate) fn receive(channel: impl AsFd) -> io::Result<Option<(FromSandbox, Option<OwnedFd>)>> {
    let mut bytes = vec![0; LARGEST];
    let (length, descriptors) = receive_bytes(channel, &mut bytes)?;
    if length == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&bytes[..length])?, descriptors.into_iter().next())))
}

fn receive_bytes(channel: impl AsFd, bytes: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = loop {
        match rustix::net::recvmsg(&channel, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    let mut received = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.extend(descriptors);
        }
    }
    Ok((message.bytes, received))
}

/// The supervisor's word, with what it hands over.
pub(crate) fn say_go(channel: impl AsFd, handed: &Handed) -> io::Result<()> {
    let all = [&handed.idmap, &handed.network];
    let mut bytes = GO.to_vec();
    bytes.extend(all.map(|one| u8::from(one.is_some())));
    let descriptors: Vec<_> = all.into_iter().flatten().map(AsFd::as_fd).collect();
    Ok(send_bytes(channel, &bytes, &descriptors)?)
}

/// Waits for the supervisor's word. Does not return when the supervisor is gone.
pub(crate) fn wait_for_go(channel: impl AsFd) -> Handed {
    let mut bytes = [0; GO.len() + MOST];
    match receive_bytes(channel, &mut bytes) {
        Ok((length, descriptors)) if length == bytes.len() && bytes.starts_with(GO) => {
            let mut descriptors = descriptors.into_iter();
            let mut next = |there: u8| if there == 1 { descriptors.next() } else { None };
            Handed { idmap: next(bytes[GO.len()]), network: next(bytes[GO.len() + 1]) }
        }
        _ => sys::exit_now(1),
    }
}
