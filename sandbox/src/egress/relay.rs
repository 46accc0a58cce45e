//! Bytes between two connections, both ways, until both sides are done.
//!
//! A tunnel's bytes go through a pipe by splice(2) and are never copied here. Where there is no pipe to be had,
//! and for the bodies of plain requests, which must be looked at, they go through a buffer.
//!
//! An end is passed on as an end: when one side has no more to say, the other hears it, and may still answer.
//! A connection that breaks is not made to look like one that ended: what is left of it is reset.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::body::RequestBody;
use super::wait::{PollInterest, StopSignal, WaitError, is_transient};

/// What a pipe holds when it is made. A way that has carried much gets a larger one, where the kernel lets it:
/// an ordinary user may have only so much in all pipes together, and most connections carry little.
const PIPE: usize = 64 * 1024;
const LARGER_PIPE: usize = 256 * 1024;
const MUCH: u64 = 1 << 20;
const BUFFER: usize = 16 * 1024;

/// One direction.
#[derive(Debug)]
pub(crate) struct RelayDirection<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    load: RelayBuffer,
    moved: u64,
    over: bool,
}

impl<'a> RelayDirection<'a> {
    /// Everything, until `from` has no more.
    pub(crate) fn tunnel(from: &'a TcpStream, to: &'a TcpStream) -> Self {
        let load = match pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) {
            Ok((read, write)) => RelayBuffer::Pipe { read, write, size: PIPE, held: 0 },
            Err(_) => RelayBuffer::Buffer { body: RequestBody::Endless, bytes: Vec::new(), start: 0 },
        };
        Self { from, to, load, moved: 0, over: false }
    }

    /// First `bytes`, then what is left of a body.
    pub(crate) fn body(from: &'a TcpStream, to: &'a TcpStream, bytes: Vec<u8>, body: RequestBody) -> Self {
        Self { from, to, load: RelayBuffer::Buffer { body, bytes, start: 0 }, moved: 0, over: false }
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    fn interest(&self) -> Option<PollInterest<'_>> {
        match self.load.is_empty() {
            _ if self.over => None,
            true => Some((self.from.as_fd(), PollFlags::IN)),
            false => Some((self.to.as_fd(), PollFlags::OUT)),
        }
    }

    /// Moves what can be moved now.
    fn advance(&mut self) -> Result<(), WaitError> {
        if self.load.is_empty() {
            match self.load.fill(self.from) {
                Ok(0) if self.load.may_end() => {
                    self.over = true;
                    let _ = self.to.shutdown(Shutdown::Write);
                    return Ok(());
                }
                Ok(0) => return Err(WaitError::Broken),
                Ok(_) => {}
                Err(error) if is_transient(&error) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        match self.load.drain(self.to) {
            Ok(length) => self.moved += length as u64,
            Err(error) if is_transient(&error) => {}
            // The reader is gone. The other direction finds that out for itself.
            Err(_) => self.over = true,
        }
        if self.moved > MUCH {
            self.load.grow();
        }
        // A connection whose request is complete stays open for the answer.
        self.over |= self.load.is_complete();
        Ok(())
    }
}

/// What is under way.
#[derive(Debug)]
enum RelayBuffer {
    Pipe { read: OwnedFd, write: OwnedFd, size: usize, held: usize },
    Buffer { body: RequestBody, bytes: Vec<u8>, start: usize },
}

impl RelayBuffer {
    fn is_empty(&self) -> bool {
        match self {
            Self::Pipe { held, .. } => *held == 0,
            Self::Buffer { bytes, start, .. } => *start == bytes.len(),
        }
    }

    /// Takes a piece; zero at the end.
    fn fill(&mut self, mut from: &TcpStream) -> io::Result<usize> {
        match self {
            Self::Pipe { write, size, held, .. } => {
                *held = splice(from, None, &*write, None, *size, SpliceFlags::NONBLOCK)?;
                Ok(*held)
            }
            Self::Buffer { body, bytes, start } => {
                let mut piece = [0; BUFFER];
                let length = from.read(&mut piece)?;
                (*start, *bytes) = (0, Vec::new());
                body.pass(&piece[..length], bytes).map_err(|_| io::ErrorKind::InvalidData)?;
                Ok(length)
            }
        }
    }

    fn drain(&mut self, mut to: &TcpStream) -> io::Result<usize> {
        match self {
            Self::Pipe { read, held, .. } => {
                let length = splice(&*read, None, to, None, *held, SpliceFlags::NONBLOCK)?;
                *held -= length;
                Ok(length)
            }
            Self::Buffer { bytes, start, .. } => {
                let length = to.write(&bytes[*start..])?;
                *start += length;
                Ok(length)
            }
        }
    }

    fn grow(&mut self) {
        if let Self::Pipe { write, size, .. } = self
            && *size == PIPE
        {
            // Asked once: where it is refused, the pipe stays as it is, and a splice moves what fits.
            *size = LARGER_PIPE;
            let _ = fcntl_setpipe_size(&*write, LARGER_PIPE);
        }
    }

    /// Whether the sender may stop here. A body that stops before its end is a broken one.
    fn may_end(&self) -> bool {
        matches!(self, Self::Pipe { .. } | Self::Buffer { body: RequestBody::Endless, .. })
    }

    /// Whether all that belongs to it has come and gone.
    fn is_complete(&self) -> bool {
        matches!(self, Self::Buffer { body, .. } if self.is_empty() && body.is_over())
    }
}

/// When a conversation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayEnd {
    BothEnd,
    /// An answer may come before the question is over.
    Answered,
}

/// Carries on until both sides are done, one breaks, or the run is over.
pub(crate) fn relay(
    up: &mut RelayDirection<'_>,
    down: &mut RelayDirection<'_>,
    until: RelayEnd,
    stop: &StopSignal,
) -> Result<(), WaitError> {
    let carried = carry(up, down, until, stop);
    if carried.is_err() {
        for stream in [up.from, up.to] {
            reset(stream);
        }
    }
    carried
}

fn carry(
    up: &mut RelayDirection<'_>,
    down: &mut RelayDirection<'_>,
    until: RelayEnd,
    stop: &StopSignal,
) -> Result<(), WaitError> {
    while !down.over || (until == RelayEnd::BothEnd && !up.over) {
        let ready = stop.wait(&[up.interest(), down.interest()], None)?;
        if ready[0] {
            up.advance()?;
        }
        if ready[1] {
            down.advance()?;
        }
    }
    Ok(())
}

/// Closing it will tell the other side that something went wrong.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A connection, and the end of it that a relay would hold.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let theirs = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (ours, _) = listener.accept().expect("accepted");
        ours.set_nonblocking(true).expect("set");
        theirs.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        (theirs, ours)
    }

    fn buffered<'a>(from: &'a TcpStream, to: &'a TcpStream) -> RelayDirection<'a> {
        RelayDirection::body(from, to, Vec::new(), RequestBody::Endless)
    }

    #[test]
    fn everything_arrives_and_an_end_is_passed_on_by_pipe_and_by_buffer() {
        for by_pipe in [true, false] {
            let ((mut client, inner), (mut host, outer)) = (pair(), pair());
            let stop = StopSignal::new().expect("made");
            let sent: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 7) as u8).collect();
            thread::scope(|scope| {
                let relay = scope.spawn(|| {
                    let (mut up, mut down) = if by_pipe {
                        (RelayDirection::tunnel(&inner, &outer), RelayDirection::tunnel(&outer, &inner))
                    } else {
                        (buffered(&inner, &outer), buffered(&outer, &inner))
                    };
                    let carried = relay(&mut up, &mut down, RelayEnd::BothEnd, &stop);
                    (carried.is_ok(), up.moved(), down.moved())
                });
                let heard = scope.spawn(move || {
                    let mut heard = Vec::new();
                    host.read_to_end(&mut heard).expect("read to the end");
                    // The other side has ended; this one has not.
                    host.write_all(b"answer").expect("written");
                    heard
                });
                client.write_all(&sent).expect("written");
                client.shutdown(Shutdown::Write).expect("ended");
                let mut answer = String::new();
                client.read_to_string(&mut answer).expect("read to the end");
                assert_eq!(answer, "answer");
                assert!(heard.join().expect("heard") == sent);
                assert_eq!(relay.join().expect("relayed"), (true, 3 << 20, 6));
            });
        }
    }

    #[test]
    fn what_breaks_is_not_made_to_look_like_an_end() {
        let ((client, inner), (mut host, outer)) = (pair(), pair());
        let stop = StopSignal::new().expect("made");
        reset(&client);
        drop(client);
        let (mut up, mut down) =
            (RelayDirection::tunnel(&inner, &outer), RelayDirection::tunnel(&outer, &inner));
        assert!(relay(&mut up, &mut down, RelayEnd::BothEnd, &stop).is_err());
        drop((inner, outer));
        let error = host.read(&mut [0]).expect_err("not an end");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn a_body_that_stops_short_is_broken_and_what_comes_after_one_is_not_read() {
        let (one, other) = (pair(), pair());
        let stop = StopSignal::new().expect("made");
        let mut client = &one.0;
        client.write_all(b"bo").expect("written");
        client.shutdown(Shutdown::Write).expect("ended");
        let mut up = RelayDirection::body(&one.1, &other.1, b"head".to_vec(), RequestBody::Length(4));
        let mut down = RelayDirection::tunnel(&other.1, &one.1);
        assert!(relay(&mut up, &mut down, RelayEnd::Answered, &stop).is_err());

        let (one, other) = (pair(), pair());
        let (mut client, mut host) = (&one.0, &other.0);
        client.write_all(b"body and more").expect("written");
        host.shutdown(Shutdown::Write).expect("ended");
        let mut up = RelayDirection::body(&one.1, &other.1, b"head ".to_vec(), RequestBody::Length(4));
        let mut down = RelayDirection::tunnel(&other.1, &one.1);
        assert!(relay(&mut up, &mut down, RelayEnd::BothEnd, &stop).is_ok());
        drop((up, down));
        drop(other.1);
        let mut heard = String::new();
        host.read_to_string(&mut heard).expect("read to the end");
        assert_eq!(heard, "head body");
    }

    #[test]
    fn the_end_of_a_run_ends_a_conversation() {
        let (one, other) = (pair(), pair());
        let stop = StopSignal::new().expect("made");
        stop.raise();
        let (mut up, mut down) =
            (RelayDirection::tunnel(&one.1, &other.1), RelayDirection::tunnel(&other.1, &one.1));
        assert!(matches!(relay(&mut up, &mut down, RelayEnd::BothEnd, &stop), Err(WaitError::Stopped)));
    }
}
