//! A limit that no kernel control holds here, looked at instead.

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Looks at a process and everything that descends from it.
pub(crate) struct Watcher {
    system: System,
    root: Pid,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Watcher {
    pub(crate) fn new(root: i32) -> Result<Self, sysinfo::Error> {
        Ok(Self { system: System::new()?, root: Pid::from_u32(root as u32) })
    }

    /// Bytes of memory in use by all of them. Orphans become children of the first process of their
    /// namespace, so none is missed.
    pub(crate) fn memory(&mut self) -> u64 {
        let kind = ProcessRefreshKind::nothing().with_memory();
        self.system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        let processes = self.system.processes();
        let descends = |mut pid: Pid| loop {
            if pid == self.root {
                return true;
            }
            match processes.get(&pid).and_then(sysinfo::Process::parent) {
                Some(parent) if parent != pid => pid = parent,
                _ => return false,
            }
        };
        processes
            .iter()
            // Threads are listed too and share their process's memory.
            .filter(|(pid, process)| process.thread_kind().is_none() && descends(**pid))
            .map(|(_, process)| process.memory())
            .sum()
    }
}
