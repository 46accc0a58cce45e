//! Bytes on their way from one descriptor to another, a piece at a time, never blocking the loop for long.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::PollFlags;
use rustix::fs::FileType;
use rustix::io::Errno;

/// A pipe takes this much at once without blocking when it says it is ready.
const CAREFUL: usize = 4096;
const GENEROUS: usize = 64 * 1024;

/// One direction of a conversation. It closes each end as soon as the end is of no more use, so that the process
/// at the other side notices.
#[derive(Debug)]
pub(crate) struct ByteFlow<F, T> {
    from: Option<F>,
    to: Option<T>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<F: AsFd, T: AsFd> ByteFlow<F, T> {
    pub(crate) fn new(from: F, to: T) -> Self {
        let regular =
            rustix::fs::fstat(&to).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        let size = if regular { GENEROUS } else { CAREFUL };
        Self { from: Some(from), to: Some(to), buffer: vec![0; size].into(), start: 0, end: 0 }
    }

    /// What to wait for, if anything.
    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let to = self.to.as_ref()?;
        if self.start < self.end {
            return Some((to.as_fd(), PollFlags::OUT));
        }
        Some((self.from.as_ref()?.as_fd(), PollFlags::IN))
    }

    /// Nothing more will come, and all that came has gone on.
    pub(crate) fn is_over(&self) -> bool {
        self.interest().is_none()
    }

    /// Moves one piece after [`interest`](Self::interest) was met; how many bytes were read.
    pub(crate) fn advance(&mut self) -> usize {
        if self.start < self.end {
            self.write();
            return 0;
        }
        let Some(from) = &self.from else { return 0 };
        match rustix::io::read(from, &mut *self.buffer) {
            Ok(0) => self.finish(),
            Ok(length) => {
                (self.start, self.end) = (0, length);
                return length;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // A terminal whose other side is gone answers EIO; after any other error too, nothing more comes.
            Err(_) => self.finish(),
        }
        0
    }

    fn write(&mut self) {
        let Some(to) = &self.to else { return };
        match rustix::io::write(to, &self.buffer[self.start..self.end]) {
            Ok(length) => self.start += length,
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The reader is gone: stop reading too, and the writer learns it the usual way.
            Err(_) => {
                self.from = None;
                self.to = None;
            }
        }
        if self.start == self.end && self.from.is_none() {
            self.to = None;
        }
    }

    fn finish(&mut self) {
        self.from = None;
        self.to = None;
    }
}
