//! Waiting that ends with the run.
//!
//! Every thread of the proxy waits here and nowhere else: for a descriptor, until a deadline, and never longer
//! than the run lasts.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// The end of a run: raised once, seen by every thread.
#[derive(Debug)]
pub(crate) struct StopSignal(OwnedFd);

/// Why a wait was in vain.
#[derive(Debug)]
pub(crate) enum WaitError {
    /// The run is over.
    Stopped,
    /// The deadline has passed.
    TooLate,
    /// The connection is broken, or something it takes is not to be had.
    Broken,
}

impl From<io::Error> for WaitError {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

impl From<Errno> for WaitError {
    fn from(_: Errno) -> Self {
        Self::Broken
    }
}

/// A descriptor and what it is waited for.
pub(crate) type PollInterest<'a> = (BorrowedFd<'a>, PollFlags);

impl StopSignal {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn raise(&self) {
        // It fails only where it has been raised more often than can be counted.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// An error if the run is over.
    pub(crate) fn check(&self) -> Result<(), WaitError> {
        match self.wait(&[], Some(Instant::now())) {
            Err(WaitError::TooLate) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Waits for any of them; which of them have something to say, an error included.
    pub(crate) fn wait(
        &self,
        interests: &[Option<PollInterest<'_>>],
        deadline: Option<Instant>,
    ) -> Result<Vec<bool>, WaitError> {
        let mut fds = vec![PollFd::new(&self.0, PollFlags::IN)];
        fds.extend(interests.iter().flatten().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let timeout = left.map(|left| Timespec {
                tv_sec: left.as_secs().min(i32::MAX as u64) as i64,
                tv_nsec: left.subsec_nanos().into(),
            });
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => return Err(WaitError::TooLate),
                Ok(_) if !fds[0].revents().is_empty() => return Err(WaitError::Stopped),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut ready = fds[1..].iter().map(|fd| !fd.revents().is_empty());
        Ok(interests.iter().map(|one| one.is_some() && ready.next().unwrap_or(false)).collect())
    }

    /// Waits for one.
    pub(crate) fn wait_for(
        &self,
        fd: impl AsFd,
        flags: PollFlags,
        deadline: Option<Instant>,
    ) -> Result<(), WaitError> {
        self.wait(&[Some((fd.as_fd(), flags))], deadline).map(drop)
    }

    /// Reads what there is, once there is something; zero at the end.
    pub(crate) fn read(
        &self,
        mut stream: &TcpStream,
        bytes: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<usize, WaitError> {
        loop {
            self.wait_for(stream, PollFlags::IN, deadline)?;
            match stream.read(bytes) {
                Err(error) if is_transient(&error) => {}
                other => return Ok(other?),
            }
        }
    }

    pub(crate) fn write_all(
        &self,
        mut stream: &TcpStream,
        mut bytes: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), WaitError> {
        while !bytes.is_empty() {
            self.wait_for(stream, PollFlags::OUT, deadline)?;
            match stream.write(bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Errors that only mean "again".
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
