//! Every process of a sandbox that has no namespace of its own to hold them together.
//!
//! Root's agent is a host user of its own: each process that runs as that user belongs to the sandbox. An
//! ordinary user's agent is that user, so there descent decides: the kernel hands orphans to the nearest
//! process above that asked for them (`PR_SET_CHILD_SUBREAPER`), which is ours, so nothing an agent starts
//! can leave its tree.

#![allow(clippy::disallowed_methods, reason = "opens /proc")]

use std::collections::{HashMap, HashSet};
use std::fs;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::reap::reap_dead;

/// How the processes of a sandbox are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessSet {
    /// By their user, which is also the user of the process that asks.
    OfThisUser,
    /// By descent from the process that asks.
    BelowThisProcess,
}

impl ProcessSet {
    pub(crate) fn signal(self, signal: Signal) {
        match self {
            // Every process it may signal, except itself: no other process has this user.
            ProcessSet::OfThisUser => {
                let _ = kill(Pid::from_raw(-1), signal);
            }
            ProcessSet::BelowThisProcess => {
                for pid in below(Pid::this()) {
                    let _ = kill(pid, signal);
                }
            }
        }
    }

    /// Kills and reaps until no process is left. All are stopped first: a stopped process does not fork.
    pub(crate) fn kill_all(self) {
        loop {
            if self == ProcessSet::BelowThisProcess {
                let mut stopped = HashSet::new();
                loop {
                    let new: Vec<Pid> =
                        below(Pid::this()).into_iter().filter(|pid| stopped.insert(*pid)).collect();
                    if new.is_empty() {
                        break;
                    }
                    for pid in new {
                        let _ = kill(pid, Signal::SIGSTOP);
                    }
                }
            }
            self.signal(Signal::SIGKILL);
            // One is waited for, the rest are taken as they come; an orphan may still be on its way to us.
            match waitpid(None, None) {
                Err(Errno::ECHILD) => return,
                _ => drop(reap_dead(|_| None::<()>)),
            }
        }
    }
}

/// Ends what is left of a sandbox whose keeper was killed. The supervisor finds it by the agent's user where it
/// has one of its own, otherwise by descent from us, except the processes we started for ourselves.
pub(crate) fn kill_leftovers(user: Option<u32>, ours: &[Pid]) {
    loop {
        let left: Vec<Pid> = match user {
            Some(user) => all().into_iter().filter(|pid| user_of(*pid) == Some(user)).collect(),
            None => below(Pid::this()).into_iter().filter(|pid| !ours.contains(pid)).collect(),
        };
        if left.is_empty() {
            return;
        }
        for pid in left {
            let _ = kill(pid, Signal::SIGKILL);
            // One that is not our child yet becomes it when those above it are gone.
            let _ = waitpid(pid, None);
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// How many processes and threads a user has.
pub(crate) fn count_of(user: u32) -> u64 {
    let of_user = all().into_iter().filter(|pid| user_of(*pid) == Some(user));
    of_user.map(|pid| fs::read_dir(format!("/proc/{pid}/task")).map_or(1, |tasks| tasks.count() as u64)).sum()
}

fn all() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw)).collect()
}

/// The real user of a process that is still running.
fn user_of(pid: Pid) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    if line("State:")?.starts_with('Z') {
        return None;
    }
    line("Uid:")?.split_whitespace().next()?.parse().ok()
}

/// Every process below one, as the host's process table has it now.
fn below(top: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in all() {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some(parent) = parent(&stat) {
            children.entry(parent).or_default().push(pid.as_raw());
        }
    }
    let mut found = Vec::new();
    let mut waiting = vec![top.as_raw()];
    while let Some(pid) = waiting.pop() {
        for child in children.remove(&pid).unwrap_or_default() {
            found.push(Pid::from_raw(child));
            waiting.push(child);
        }
    }
    found
}

/// The parent in a line of /proc/PID/stat. The name comes before it, in parentheses, and may hold anything.
fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent("7 (sh) S 3 7 7 0"), Some(3));
        assert_eq!(parent("7 (a) R 1 (b) S 42 7 7 0"), Some(42));
        assert_eq!(parent("nonsense"), None);
    }
}
