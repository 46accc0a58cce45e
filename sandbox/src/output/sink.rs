//! Writing without waiting. Our streams are shared with the process that started us, so a flag on them would be its
//! too: each kind of stream has another way to be asked for no more than it takes at once.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::SendFlags;

/// A pipe that is ready takes this much, if no other process writes to it.
const CAREFUL: usize = 4096;

/// What the kernel calls the kind of device that /dev/null is.
const MEMORY: u32 = 1;

/// Where a stream goes.
#[derive(Debug)]
pub(super) struct StreamSink<'a> {
    to: BorrowedFd<'a>,
    manner: WriteMode,
}

#[derive(Debug)]
enum WriteMode {
    /// A write to a file never waits, nor does one to /dev/null.
    Plain,
    /// A pipe is told so with each write, since Linux 6.4.
    NoWait,
    Socket,
    /// A terminal, opened once more for ourselves.
    Own(OwnedFd),
    /// Every other kind: a little at a time, and only when it is ready.
    Careful,
}

impl<'a> StreamSink<'a> {
    pub(super) fn new(to: BorrowedFd<'a>) -> Self {
        let manner = rustix::fs::fstat(to).map_or(WriteMode::Careful, |stat| {
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => WriteMode::Plain,
                FileType::CharacterDevice if rustix::fs::major(stat.st_rdev) == MEMORY => WriteMode::Plain,
                FileType::CharacterDevice if rustix::termios::isatty(to) => {
                    open_again(to).map_or(WriteMode::Careful, WriteMode::Own)
                }
                FileType::Fifo => WriteMode::NoWait,
                FileType::Socket => WriteMode::Socket,
                _ => WriteMode::Careful,
            }
        });
        Self { to, manner }
    }

    /// What to wait at until it is ready.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.manner {
            WriteMode::Own(own) => own.as_fd(),
            _ => self.to,
        }
    }

    /// Whether it can be tried without waiting until it is ready.
    pub(super) fn can_be_tried(&self) -> bool {
        !matches!(self.manner, WriteMode::Careful)
    }

    /// Writes as much as goes at once.
    pub(super) fn write(&mut self, bytes: &[u8]) -> rustix::io::Result<usize> {
        let written = match &self.manner {
            WriteMode::Plain => rustix::io::write(self.to, bytes),
            WriteMode::Own(own) => rustix::io::write(own, bytes),
            WriteMode::Socket => rustix::net::send(self.to, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            WriteMode::NoWait => {
                rustix::io::pwritev2(self.to, &[IoSlice::new(bytes)], u64::MAX, ReadWriteFlags::NOWAIT)
            }
            WriteMode::Careful => return rustix::io::write(self.to, &bytes[..bytes.len().min(CAREFUL)]),
        };
        match (&self.manner, written) {
            // An older kernel, or a pipe with a name.
            (WriteMode::NoWait, Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)) => {
                self.manner = WriteMode::Careful;
                Err(Errno::AGAIN)
            }
            (_, written) => written,
        }
    }
}

fn open_again(to: BorrowedFd<'_>) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", to.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path.as_str(), flags, Mode::empty()).ok()
}
