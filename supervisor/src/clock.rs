//! The time by which leases are held.
//!
//! It goes on while the machine sleeps and is never set back (`CLOCK_BOOTTIME`), and it means nothing after the
//! next boot; then every process that held a lease is dead too.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Milliseconds of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootInstant(pub u64);

impl BootInstant {
    /// How long it is from an earlier instant; nothing if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync + std::fmt::Debug {
    fn now(&self) -> BootInstant;
}

/// The machine's.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> BootInstant {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        BootInstant(seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000)
    }
}

/// Seconds since 1970, by the machine: for people, and never to decide whose something is.
pub fn wall_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The same in microseconds, to put things beside each other.
pub fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// One that stands still until it is told to go on.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn at(now: BootInstant) -> Self {
        Self(AtomicU64::new(now.0))
    }

    pub fn advance(&self, duration: Duration) {
        self.0.fetch_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> BootInstant {
        BootInstant(self.0.load(Ordering::SeqCst))
    }
}
