//! A run monitor: what the caller of a sandbox hears and decides while its command runs.

use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Hears a running command's output, and can stop it.
pub trait RunMonitor {
    /// A descriptor to poll: when it can be read, [`attend`](Self::attend) is called.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// When [`attend`](Self::attend) is called next, in any case.
    fn due(&self) -> Option<Instant>;

    /// Called when the descriptor can be read, or at the due time.
    fn attend(&self, now: Instant) -> MonitorDecision;

    /// Says what takes a while before the command can start.
    fn progress(&self, what: &str) {
        let _ = what;
    }

    /// A piece of what the command wrote, without the secrets that were in it, and before any of it is left out.
    fn observe_output(&self, from: OutputStream, piece: &[u8], now: Instant) {
        let _ = (from, piece, now);
    }
}

/// Where a piece of output comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output, or a terminal.
    Output,
    Errors,
}

/// What a monitor decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonitorDecision {
    GoOn,
    /// Every process is to end, after SIGTERM and the grace. A second time: at once.
    Stop,
}

/// The monitor of a command that runs by itself.
#[derive(Debug, Clone, Copy)]
pub struct NoMonitor;

impl RunMonitor for NoMonitor {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn due(&self) -> Option<Instant> {
        None
    }

    fn attend(&self, _: Instant) -> MonitorDecision {
        MonitorDecision::GoOn
    }
}
