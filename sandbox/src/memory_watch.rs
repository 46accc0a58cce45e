//! A limit that no kernel control holds here, looked at instead.

#![allow(clippy::disallowed_methods, reason = "opens /proc")]

use std::fs;

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Looks at a process and everything that descends from it.
pub(crate) struct MemoryWatcher {
    root: Pid,
    /// Made when it is first needed, which for most it never is.
    system: Option<System>,
}

impl std::fmt::Debug for MemoryWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryWatcher").field("root", &self.root).finish_non_exhaustive()
    }
}

impl MemoryWatcher {
    pub(crate) fn new(root: i32) -> Self {
        Self { root: Pid::from_u32(root as u32), system: None }
    }

    /// Whether all of them use more than so many bytes of memory. They use no more than the whole machine does, and
    /// that is quicker to read. If the memory in use can't be read, it counts as too much.
    pub(crate) fn exceeds(&mut self, limit: u64) -> bool {
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        match in_use(&meminfo) {
            Some(used) if used <= limit => false,
            _ => self.memory().is_none_or(|used| used > limit),
        }
    }

    /// Bytes of memory in use by all of them. Orphans become children of the first process of their
    /// namespace, so none is missed.
    fn memory(&mut self) -> Option<u64> {
        if self.system.is_none() {
            self.system = System::new().ok();
        }
        let system = self.system.as_mut()?;
        let kind = ProcessRefreshKind::nothing().with_memory();
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        let processes = system.processes();
        let descends = |mut pid: Pid| loop {
            if pid == self.root {
                return true;
            }
            match processes.get(&pid).and_then(sysinfo::Process::parent) {
                Some(parent) if parent != pid => pid = parent,
                _ => return false,
            }
        };
        let memory = processes
            .iter()
            // Threads are listed too and share their process's memory.
            .filter(|(pid, process)| process.thread_kind().is_none() && descends(**pid))
            .map(|(_, process)| process.memory())
            .sum();
        Some(memory)
    }
}

/// Bytes that all processes of the machine use together, those that were swapped out among them.
fn in_use(meminfo: &str) -> Option<u64> {
    let kibibytes = |name: &str| -> Option<u64> {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    let held = kibibytes("MemTotal")?.checked_sub(kibibytes("MemAvailable")?)?;
    let swapped = kibibytes("SwapTotal")?.checked_sub(kibibytes("SwapFree")?)?;
    held.checked_add(swapped)?.checked_mul(1024)
}

/// Bytes of memory this machine has, or the container that we run in.
pub(crate) fn memory_of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    let whole = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let ours = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    ours.fold(whole, u64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_everybody_uses_is_read_and_nothing_is_made_up() {
        let text =
            "MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:    60 kB\nSwapTotal: 10 kB\nSwapFree: 3 kB\n";
        assert_eq!(in_use(text), Some(47 * 1024));
        assert_eq!(in_use(""), None);
        assert_eq!(in_use(&text.replace("kB", "pages")), None);
        assert!(memory_of_machine() > 1 << 20);
    }

    #[test]
    fn a_process_is_held_to_what_it_uses() {
        let mut watcher = MemoryWatcher::new(std::process::id() as i32);
        assert!(watcher.exceeds(1), "this test uses more than a byte");
        assert!(!watcher.exceeds(u64::MAX));
    }
}
