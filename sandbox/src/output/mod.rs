//! What happens to an agent's output on its way to ours.
//!
//! ```text
//! agent ──▶ read ──▶ redact ──▶ cap ──▶ shown ──▶ write ──▶ our stream
//!                    secrets │  too much  only at a terminal
//!                            ╰─▶ the monitor of the run hears it
//! ```
//!
//! An agent may write anything: gigabytes without a newline, escapes that steer a terminal, the keys it was
//! given. Each step takes pieces of any size and keeps a bounded amount. Nothing waits: what our stream does not
//! take yet stays here, and as long as anything does, the agent is not read, so it waits as it would without us.

mod cap;
pub(crate) mod redact;
pub mod sanitize;
mod sink;
mod tokens;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;

use cap::OutputCap;
use redact::{RedactionPatterns, Redactor};
use sanitize::TerminalSanitizer;
use sink::StreamSink;

use crate::monitor::{OutputStream, RunMonitor};
use crate::secret::NamedSecret;

/// How much is read at once. A terminal shows less than that in the time it takes to read it.
const CHUNK: usize = 256 * 1024;
const CHUNK_FOR_TERMINALS: usize = 16 * 1024;

/// How much the agent can write before it has to wait, where the kernel lets us have it. More is no faster, and
/// a user has 64 MiB for all pipes before the kernel makes every new one tiny.
const PIPE: usize = 256 * 1024;

/// How long a user at a terminal waits for the end of a line that may be the beginning of a secret.
const WAIT: Duration = Duration::from_millis(20);

/// The totals of one stream.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct StreamTotals {
    /// How much the agent wrote.
    pub bytes: u64,
    /// How much of it was passed on, after redaction.
    pub passed: u64,
    /// How much of it was above the limit.
    pub left_out: u64,
    /// How many secrets were replaced.
    pub redacted: u64,
    /// Why the rest could not be written; a reader that went away is no reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it ended within a line on a terminal.
    #[serde(skip)]
    pub in_line: bool,
}

/// The totals of all streams.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
pub enum OutputTotals {
    Pipes { stdout: StreamTotals, stderr: StreamTotals },
    Terminal { terminal: StreamTotals },
}

impl OutputTotals {
    pub fn iter(&self) -> impl Iterator<Item = &StreamTotals> {
        let (one, other) = match self {
            Self::Pipes { stdout, stderr } => (stdout, Some(stderr)),
            Self::Terminal { terminal } => (terminal, None),
        };
        std::iter::once(one).chain(other)
    }
}

/// A text without its secrets, for reports.
pub fn redacted(secrets: &[NamedSecret], text: &[u8]) -> Vec<u8> {
    let (mut redactor, mut out) = (Redactor::new(Rc::new(RedactionPatterns::new(secrets))), Vec::new());
    redactor.push(text, &mut |clean| out.extend_from_slice(clean));
    redactor.finish(&mut |clean| out.extend_from_slice(clean));
    out
}

/// Who hears a stream, and as what.
#[derive(Clone, Copy)]
pub(crate) struct StreamListener<'a> {
    pub(crate) attendant: &'a dyn RunMonitor,
    pub(crate) from: OutputStream,
}

impl std::fmt::Debug for StreamListener<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamListener").field("from", &self.from).finish_non_exhaustive()
    }
}

/// One stream of an agent, and where it goes.
#[derive(Debug)]
pub(crate) struct StreamPipeline<'a> {
    /// Closed as soon as it is of no more use, so that the agent notices.
    from: Option<OwnedFd>,
    sink: StreamSink<'a>,
    listener: StreamListener<'a>,
    buffer: Box<[u8]>,
    redactor: Redactor,
    cap: OutputCap,
    /// Where a person looks at what was not made for a terminal of its own.
    shown: Option<TerminalSanitizer>,
    at_terminal: bool,
    /// What our stream has not taken yet, from `start` on.
    waiting: Vec<u8>,
    start: usize,
    held_since: Option<Instant>,
    bytes: u64,
    in_line: bool,
    error: Option<String>,
}

impl<'a> StreamPipeline<'a> {
    /// `raw` output comes from a terminal that the agent has for its own: only secrets are taken out of it.
    pub(crate) fn new(
        from: OwnedFd,
        to: BorrowedFd<'a>,
        listener: StreamListener<'a>,
        needles: &Rc<RedactionPatterns>,
        limit: u64,
        raw: bool,
    ) -> Self {
        let at_terminal = rustix::termios::isatty(to);
        Self {
            from: Some(from),
            sink: StreamSink::new(to),
            listener,
            buffer: Box::default(),
            redactor: Redactor::new(Rc::clone(needles)),
            cap: OutputCap::new(limit),
            shown: (at_terminal && !raw).then(TerminalSanitizer::default),
            at_terminal,
            waiting: Vec::new(),
            start: 0,
            held_since: None,
            bytes: 0,
            in_line: false,
            error: None,
        }
    }

    /// What to wait for, if anything.
    pub(crate) fn interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        if self.start < self.waiting.len() {
            return Some((self.sink.descriptor(), PollFlags::OUT));
        }
        Some((self.from.as_ref()?.as_fd(), PollFlags::IN))
    }

    /// Nothing more will come, and all that came has gone on.
    pub(crate) fn is_over(&self) -> bool {
        self.interest().is_none()
    }

    /// Moves one piece after [`interest`](Self::interest) was met; how many bytes were read.
    pub(crate) fn advance(&mut self) -> usize {
        if self.start < self.waiting.len() {
            self.write();
            return 0;
        }
        let Some(from) = &self.from else { return 0 };
        if self.buffer.is_empty() {
            // Only now: a command that writes nothing costs nothing.
            let _ = rustix::pipe::fcntl_setpipe_size(from, PIPE);
            let size = if self.at_terminal { CHUNK_FOR_TERMINALS } else { CHUNK };
            self.buffer = vec![0; size].into();
        }
        let length = match rustix::io::read(from, &mut *self.buffer) {
            Err(Errno::AGAIN | Errno::INTR) => return 0,
            Ok(length) => length,
            // A terminal whose other side is gone answers EIO; after any other error too, nothing more comes.
            Err(_) => 0,
        };
        if length == 0 {
            self.from = None;
            self.pass(|redactor, _, emit| redactor.finish(emit));
            self.finish();
        } else {
            self.bytes += length as u64;
            self.pass(|redactor, buffer, emit| redactor.push(&buffer[..length], emit));
        }
        if self.sink.can_be_tried() {
            self.write();
        }
        length
    }

    /// When [`Self::flush_partial`] has something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.held_since.map(|since| since + WAIT)
    }

    /// Shows the last few bytes of a line to a user who waits for it to go on.
    pub(crate) fn flush_partial(&mut self, now: Instant) {
        if self.due().is_some_and(|due| now >= due) {
            self.pass(|redactor, _, emit| redactor.flush_partial(emit));
            self.held_since = None;
            if self.sink.can_be_tried() {
                self.write();
            }
        }
    }

    /// Gives up what our stream has not taken.
    pub(crate) fn discard_pending(&mut self) {
        self.from = None;
        self.waiting = Vec::new();
        self.start = 0;
    }

    pub(crate) fn totals(&self) -> StreamTotals {
        StreamTotals {
            bytes: self.bytes,
            passed: self.cap.passed(),
            left_out: self.cap.left_out(),
            redacted: self.redactor.count(),
            error: self.error.clone(),
            in_line: self.in_line && self.at_terminal,
        }
    }

    /// Takes what the first step lets go through the others.
    fn pass(&mut self, step: impl FnOnce(&mut Redactor, &[u8], &mut dyn FnMut(&[u8]))) {
        let (cap, shown, waiting) = (&mut self.cap, &mut self.shown, &mut self.waiting);
        let StreamListener { attendant, from } = self.listener;
        step(&mut self.redactor, &self.buffer, &mut |clean| {
            attendant.observe_output(from, clean, Instant::now());
            cap.push(clean, &mut |kept| match shown {
                Some(shown) => shown.push(kept, &mut |seen| waiting.extend_from_slice(seen)),
                None => waiting.extend_from_slice(kept),
            });
        });
        self.note();
    }

    fn finish(&mut self) {
        let (shown, waiting) = (&mut self.shown, &mut self.waiting);
        self.cap.finish(&mut |kept| match shown {
            Some(shown) => shown.push(kept, &mut |seen| waiting.extend_from_slice(seen)),
            None => waiting.extend_from_slice(kept),
        });
        if let Some(shown) = shown {
            shown.finish(&mut |seen| waiting.extend_from_slice(seen));
        }
        self.note();
        self.held_since = None;
    }

    fn note(&mut self) {
        match (&self.shown, self.waiting.last()) {
            (Some(shown), _) => self.in_line = shown.in_line(),
            (None, Some(last)) => self.in_line = *last != b'\n',
            (None, None) => {}
        }
        let held = self.at_terminal && self.redactor.can_flush_partial();
        self.held_since = held.then(|| self.held_since.unwrap_or_else(Instant::now));
    }

    fn write(&mut self) {
        while self.start < self.waiting.len() {
            match self.sink.write(&self.waiting[self.start..]) {
                Ok(length) => self.start += length,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                // Our stream takes no more: stop reading too, and the agent learns it the usual way.
                Err(error) => {
                    let gone = matches!(error, Errno::PIPE | Errno::CONNRESET)
                        || (self.at_terminal && error == Errno::IO);
                    self.error = (!gone).then(|| io::Error::from(error).to_string());
                    return self.discard_pending();
                }
            }
            if !self.sink.can_be_tried() {
                break;
            }
        }
        if self.start == self.waiting.len() {
            self.waiting.clear();
            self.start = 0;
        }
    }
}
