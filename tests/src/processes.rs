//! Is anything still alive, and waiting for it with a deadline instead of a guess.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// How often a condition is looked at. Tests wait for conditions, never for time.
const INTERVAL: Duration = Duration::from_millis(5);

/// How many times slower than a real machine this one is: `scripts/test-vm` emulates its processor, and says so here.
/// Promises about seconds are promises about real ones.
pub fn emulated(promise: Duration) -> Duration {
    let slower = std::env::var("AGENCY_TEST_SLOWER").ok().and_then(|times| times.parse().ok());
    promise * slower.unwrap_or(1)
}

/// The variable by which a test knows its processes again. It is inherited, so that it also finds those
/// that left their parent, their session and their namespaces.
pub const VARIABLE: &str = "AGENCY_TEST_MARKER";

/// A word that occurs nowhere else on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker(String);

impl Marker {
    /// A new one: the boot-wide clock and the process id make it unique, a counter within a process.
    pub fn new() -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(format!("marker-{}-{}-{}-{count}", std::process::id(), since_boot.tv_sec, since_boot.tv_nsec))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Processes of this marker, by environment or command line, the calling one left out. A zombie has
    /// neither and does not count: it runs nothing any more.
    pub fn alive(&self) -> Vec<Alive> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if pid == std::process::id() {
                continue;
            }
            // A process may end at any moment, and some are not ours to look into.
            let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            if contains(&command, self.0.as_bytes()) || contains(&environment, self.0.as_bytes()) {
                let command = std::ffi::OsStr::from_bytes(&command).to_string_lossy().replace('\0', " ");
                found.push(Alive { pid, command });
            }
        }
        found
    }

    /// Waits until no process of this marker is alive, or says which still are.
    pub fn gone_within(&self, deadline: Duration) -> Result<(), Vec<Alive>> {
        if wait_until(deadline, || self.alive().is_empty()) { Ok(()) } else { Err(self.alive()) }
    }
}

impl Default for Marker {
    fn default() -> Self {
        Self::new()
    }
}

/// A process that a [`Marker`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alive {
    pub pid: u32,
    pub command: String,
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Looks at a condition until it holds or the deadline has passed; whether it holds.
pub fn wait_until(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + deadline;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_found_by_its_environment_until_it_is_gone() {
        let marker = Marker::new();
        let mut child = Command::new("cat")
            .env(VARIABLE, marker.as_str())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("cat starts");
        let alive = || marker.alive().iter().map(|alive| alive.pid).collect::<Vec<_>>();
        // A process that has just been started has no environment yet.
        wait_until(Duration::from_secs(20), || !alive().is_empty());
        assert_eq!(alive(), [child.id()]);
        drop(child.stdin.take());
        assert_eq!(marker.gone_within(Duration::from_secs(20)), Ok(()));
        child.wait().expect("cat ends");
    }
}
