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
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use super::body::Body;
use super::wait::{Cut, Interest, Stop};

/// What one splice may move. A pipe this large is asked for, and a smaller one used where it is refused.
const PIPE: usize = 256 * 1024;
const BUFFER: usize = 16 * 1024;

/// One direction.
#[derive(Debug)]
pub(crate) struct Way<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    load: Load,
    moved: u64,
    over: bool,
}

/// What is under way.
#[derive(Debug)]
enum Load {
    Pipe { read: OwnedFd, write: OwnedFd, held: usize },
    Buffer { body: Body, bytes: Vec<u8>, start: usize },
}

impl<'a> Way<'a> {
    /// Everything, until `from` has no more.
    pub(crate) fn whole(from: &'a TcpStream, to: &'a TcpStream) -> Self {
        let load = match pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) {
            Ok((read, write)) => {
                let _ = fcntl_setpipe_size(&write, PIPE);
                Load::Pipe { read, write, held: 0 }
            }
            Err(_) => Load::Buffer { body: Body::Endless, bytes: Vec::new(), start: 0 },
        };
        Self { from, to, load, moved: 0, over: false }
    }

    /// First `bytes`, then what is left of a body.
    pub(crate) fn body(from: &'a TcpStream, to: &'a TcpStream, bytes: Vec<u8>, body: Body) -> Self {
        Self { from, to, load: Load::Buffer { body, bytes, start: 0 }, moved: 0, over: false }
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    fn interest(&self) -> Option<Interest<'_>> {
        let waiting = match &self.load {
            Load::Pipe { held, .. } => *held > 0,
            Load::Buffer { bytes, start, .. } => *start < bytes.len(),
        };
        match waiting {
            _ if self.over => None,
            true => Some((self.to.as_fd(), PollFlags::OUT)),
            false => Some((self.from.as_fd(), PollFlags::IN)),
        }
    }

    /// Moves what can be moved now.
    fn advance(&mut self) -> Result<(), Cut> {
        match &mut self.load {
            Load::Pipe { read, write, held } => {
                if *held == 0 {
                    match splice(self.from, None, &*write, None, PIPE, SpliceFlags::NONBLOCK) {
                        Ok(0) => return self.end(),
                        Ok(length) => *held = length,
                        Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                        Err(error) => return Err(error.into()),
                    }
                }
                match splice(&*read, None, self.to, None, *held, SpliceFlags::NONBLOCK) {
                    Ok(length) => {
                        *held -= length;
                        self.moved += length as u64;
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(_) => self.give_up(),
                }
                Ok(())
            }
            Load::Buffer { body, bytes, start } => {
                if *start == bytes.len() {
                    let mut piece = [0; BUFFER];
                    let length = match self.from.read(&mut piece) {
                        Ok(0) if matches!(body, Body::Endless) => return self.end(),
                        Ok(0) => return Err(Cut::Broken),
                        Ok(length) => length,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                        Err(error) => return Err(error.into()),
                    };
                    bytes.clear();
                    *start = 0;
                    body.pass(&piece[..length], bytes).map_err(|_| Cut::Broken)?;
                }
                match self.to.write(&bytes[*start..]) {
                    Ok(length) => {
                        *start += length;
                        self.moved += length as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(_) => {
                        return {
                            self.give_up();
                            Ok(())
                        };
                    }
                }
                // The connection stays open for the answer.
                self.over = *start == bytes.len() && body.is_over();
                Ok(())
            }
        }
    }

    /// Passes the end on.
    fn end(&mut self) -> Result<(), Cut> {
        self.over = true;
        let _ = self.to.shutdown(Shutdown::Write);
        Ok(())
    }

    /// Nobody listens any more. The other direction learns for itself what became of them.
    fn give_up(&mut self) {
        self.over = true;
        let _ = self.from.shutdown(Shutdown::Read);
    }
}

/// When a conversation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    BothEnd,
    /// An answer may come before the question is over.
    Answered,
}

/// Carries on until both sides are done, one breaks, or the run is over.
pub(crate) fn relay(up: &mut Way<'_>, down: &mut Way<'_>, until: Until, stop: &Stop) -> Result<(), Cut> {
    let carried = carry(up, down, until, stop);
    if carried.is_err() {
        for stream in [up.from, up.to] {
            reset(stream);
        }
    }
    carried
}

fn carry(up: &mut Way<'_>, down: &mut Way<'_>, until: Until, stop: &Stop) -> Result<(), Cut> {
    while !down.over || (until == Until::BothEnd && !up.over) {
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
