//! The outer end of the ways out: threads that accept what the agent connects to, for as long as its run lasts.
//!
//! One thread accepts; each connection has a thread of its own, which waits for one thing at a time and reads
//! from top to bottom (`client`). There are at most so many at once; who comes later waits in the kernel's
//! queue. When the run is over, every one of them is told, and joined.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::net::SocketFlags;

use super::HostAllowlist;
use super::client;
use super::event::{ConnectionLog, NetworkTraffic};
use super::listeners::EgressListener;
use super::lookup::{NameLookups, find_getent};
use super::wait::{StopSignal, WaitError};

/// Connections at once.
const MOST: u64 = 256;
/// What one of them may have open: two sockets, two pipes, a pipe from a look-up.
const DESCRIPTORS: u64 = 7;
/// What everything else in this process may have open.
const OTHERS: u64 = 128;
/// What a connection's thread has for its stack: buffers are the most of it.
const STACK: usize = 256 * 1024;
/// How long nothing is accepted after the kernel could not.
const PAUSE: Duration = Duration::from_millis(20);

/// The way out of one sandbox.
#[derive(Debug)]
pub(crate) struct EgressProxy {
    shared: Arc<ProxyContext>,
    thread: Option<JoinHandle<()>>,
}

/// What every connection's thread looks at.
#[derive(Debug)]
pub(super) struct ProxyContext {
    pub(super) list: HostAllowlist,
    pub(super) lookups: Option<NameLookups>,
    pub(super) stop: StopSignal,
    pub(super) log: ConnectionLog,
    /// Counts the connections there is room for.
    room: OwnedFd,
}

/// What is behind a listener.
#[derive(Debug, Clone, Copy)]
pub(super) enum ListenerTarget {
    Proxy,
    /// The same address, outside.
    Address(SocketAddr),
}

impl EgressProxy {
    /// Starts to accept. Only now may this process have more than one thread.
    pub(crate) fn start(
        list: &HostAllowlist,
        listeners: Vec<EgressListener>,
        started: Instant,
    ) -> io::Result<Self> {
        let most = make_room().unwrap_or(MOST / 4);
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let shared = Arc::new(ProxyContext {
            lookups: find_getent().map(|program| NameLookups::new(program, list.destinations().len())),
            list: list.clone(),
            stop: StopSignal::new()?,
            log: ConnectionLog::new(started),
            room: eventfd(most as u32, flags)?,
        });
        let all = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("egress".into()).spawn(move || accept_all(&all, &listeners))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Ends every connection at once; returns what all of them did.
    pub(crate) fn stop(mut self) -> NetworkTraffic {
        self.end();
        self.shared.log.take()
    }

    fn end(&mut self) {
        self.shared.stop.raise();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        self.end();
    }
}

/// How many connections there are descriptors for, after asking for enough.
fn make_room() -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = (MOST * DESCRIPTORS + OTHERS).min(hard);
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    }
    Ok((soft.max(wanted).saturating_sub(OTHERS) / DESCRIPTORS).clamp(1, MOST))
}

/// Accepts until the run is over, then waits for the threads that are still at work.
fn accept_all(shared: &ProxyContext, listeners: &[EgressListener]) {
    thread::scope(|scope| {
        while let Ok(place) = ConnectionSlot::take(shared) {
            match accept(shared, listeners) {
                Ok((stream, behind)) => {
                    let event = shared.log.begin();
                    // Where there is no thread to be had, the connection is closed and its place is free again.
                    let _ = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || {
                        client::serve(shared, stream, behind, event);
                        drop(place);
                    });
                }
                Err(WaitError::Stopped) => return,
                // The client was gone again, or too much is open in the whole system.
                Err(_) => drop(shared.stop.wait(&[], Some(Instant::now() + PAUSE))),
            }
        }
    });
}

fn accept(
    shared: &ProxyContext,
    listeners: &[EgressListener],
) -> Result<(TcpStream, ListenerTarget), WaitError> {
    let interests: Vec<_> =
        listeners.iter().map(|listener| Some((listener.socket.as_fd(), PollFlags::IN))).collect();
    let ready = shared.stop.wait(&interests, None)?;
    let ready = listeners.iter().zip(ready).find(|(_, ready)| *ready).map(|(listener, _)| listener);
    let listener = ready.ok_or_else(|| io::Error::from(io::ErrorKind::WouldBlock))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = TcpStream::from(rustix::net::accept_with(&listener.socket, flags)?);
    let behind = if listener.address == shared.list.proxy() {
        ListenerTarget::Proxy
    } else {
        ListenerTarget::Address(listener.address)
    };
    Ok((stream, behind))
}

/// A place among the connections that may be served at once.
#[derive(Debug)]
struct ConnectionSlot<'a>(&'a OwnedFd);

impl<'a> ConnectionSlot<'a> {
    fn take(shared: &'a ProxyContext) -> Result<Self, WaitError> {
        shared.stop.wait_for(&shared.room, PollFlags::IN, None)?;
        rustix::io::read(&shared.room, &mut [0; 8])?;
        Ok(Self(&shared.room))
    }
}

impl Drop for ConnectionSlot<'_> {
    fn drop(&mut self) {
        let _ = rustix::io::write(self.0, &1u64.to_ne_bytes());
    }
}
