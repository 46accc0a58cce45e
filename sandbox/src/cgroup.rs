//! Limits the kernel enforces on a whole tree of processes.
//!
//! Version 2 where an ancestor of our own cgroup is delegated to us; version 1 controllers where that is what
//! the host has and we may write to them. Where neither is so, there is no [`Cgroup`], and the limit is
//! watched instead.

#![allow(clippy::disallowed_methods, reason = "opens the kernel's")]

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::nonce::is_nonce;

const MOUNT: &str = "/sys/fs/cgroup";
/// The age from which a group is no longer used.
const LEFT: Duration = Duration::from_secs(10 * 60);

/// The groups one sandbox lives in.
#[derive(Debug)]
pub(crate) struct Cgroup {
    kind: CgroupHierarchy,
    /// Another process made it, and removes it.
    foreign: bool,
}

#[derive(Debug)]
enum CgroupHierarchy {
    Unified(PathBuf),
    /// One group for each controller.
    Separate {
        memory: Option<PathBuf>,
        processes: Option<PathBuf>,
    },
}

impl Cgroup {
    /// Makes a group with these limits, or says that there can be none here.
    pub(crate) fn create(
        name: &str,
        memory: Option<u64>,
        processes: Option<u64>,
    ) -> io::Result<Option<Self>> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        if Path::new(MOUNT).join("cgroup.controllers").exists() {
            return unified(&own, name, memory, processes);
        }
        let group = |controller: &str| -> Option<PathBuf> {
            let parent = separate(&own, controller)?;
            sweep(&parent);
            let group = parent.join(name);
            fs::create_dir(&group).ok().map(|()| group)
        };
        let memory_group = memory.and_then(|_| group("memory"));
        let processes_group = processes.and_then(|_| group("pids"));
        if memory_group.is_none() && processes_group.is_none() {
            return Ok(None);
        }
        let kind = CgroupHierarchy::Separate { memory: memory_group, processes: processes_group };
        let made = Self { kind, foreign: false };
        made.set_separate(memory, processes)?;
        Ok(Some(made))
    }

    /// The groups a process is in already, made by any process.
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        let theirs = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let unified = Path::new(MOUNT).join("cgroup.controllers").exists();
        let kind = match theirs.lines().find_map(|line| line.strip_prefix("0::")).filter(|_| unified) {
            Some(path) => CgroupHierarchy::Unified(Path::new(MOUNT).join(path.trim_start_matches('/'))),
            None => CgroupHierarchy::Separate {
                memory: separate(&theirs, "memory"),
                processes: separate(&theirs, "pids"),
            },
        };
        Ok(Self { kind, foreign: true })
    }

    fn set_separate(&self, memory: Option<u64>, processes: Option<u64>) -> io::Result<()> {
        let CgroupHierarchy::Separate { memory: memory_group, processes: processes_group } = &self.kind
        else {
            return Ok(());
        };
        if let (Some(group), Some(limit)) = (memory_group, memory) {
            fs::write(group.join("memory.limit_in_bytes"), limit.to_string())?;
            // Swap would only move the problem; a kernel without swap accounting has no such file.
            let _ = fs::write(group.join("memory.memsw.limit_in_bytes"), limit.to_string());
        }
        if let (Some(group), Some(limit)) = (processes_group, processes) {
            fs::write(group.join("pids.max"), limit.to_string())?;
        }
        Ok(())
    }

    /// For a child to be born into: version 2 only.
    pub(crate) fn clone_target(&self) -> io::Result<Option<OwnedFd>> {
        match &self.kind {
            CgroupHierarchy::Unified(path) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Ok(Some(rustix::fs::open(path, flags, Mode::empty())?))
            }
            CgroupHierarchy::Separate { .. } => Ok(None),
        }
    }

    /// Moves a process in.
    pub(crate) fn enter(&self, pid: i32) -> io::Result<()> {
        for group in self.paths() {
            fs::write(group.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// The memory limit as the kernel tells it, and how it is held.
    pub(crate) fn memory(&self) -> Option<(u64, &'static str)> {
        let (file, how) = match &self.kind {
            CgroupHierarchy::Unified(path) => (path.join("memory.max"), "cgroup v2 memory.max"),
            CgroupHierarchy::Separate { memory, .. } => {
                (memory.as_ref()?.join("memory.limit_in_bytes"), "cgroup v1 memory.limit_in_bytes")
            }
        };
        Some((fs::read_to_string(file).ok()?.trim().parse().ok()?, how))
    }

    /// Whether the kernel killed a process in it for lack of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let file = match &self.kind {
            CgroupHierarchy::Unified(path) => path.join("memory.events"),
            CgroupHierarchy::Separate { memory: Some(memory), .. } => memory.join("memory.oom_control"),
            CgroupHierarchy::Separate { memory: None, .. } => return false,
        };
        let counted = fs::read_to_string(file).unwrap_or_default();
        counted.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }

    pub(crate) fn processes(&self) -> Option<(u64, &'static str)> {
        let (file, how) = match &self.kind {
            CgroupHierarchy::Unified(path) => (path.join("pids.max"), "cgroup v2 pids.max"),
            CgroupHierarchy::Separate { processes, .. } => {
                (processes.as_ref()?.join("pids.max"), "cgroup v1 pids.max")
            }
        };
        Some((fs::read_to_string(file).ok()?.trim().parse().ok()?, how))
    }

    /// Whether a process is in it: asked of the kernel, not remembered.
    pub(crate) fn contains(&self, pid: i32) -> bool {
        let pid = pid.to_string();
        self.paths().all(|group| {
            fs::read_to_string(group.join("cgroup.procs"))
                .is_ok_and(|processes| processes.lines().any(|line| line == pid))
        })
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let (one, two) = match &self.kind {
            CgroupHierarchy::Unified(path) => (Some(path), None),
            CgroupHierarchy::Separate { memory, processes } => (memory.as_ref(), processes.as_ref()),
        };
        one.into_iter().chain(two)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for path in self.paths().filter(|_| !self.foreign) {
            remove(path);
        }
    }
}

/// The group that one controller of version 1 has a process in, from what /proc says of it.
fn separate(groups: &str, controller: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|known| known == controller).then_some(path)
    })?;
    Some(Path::new(MOUNT).join(controller).join(path.trim_start_matches('/')))
}

/// Removes a group whose processes are dead, or about to be: the last of them leaves it a moment after it is
/// reaped, and nothing tells when.
pub(crate) fn remove(path: &Path) {
    for _ in 0..200 {
        match fs::remove_dir(path) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(Duration::from_millis(2));
            }
            _ => return,
        }
    }
}

/// Removes the empty groups of sandboxes that were killed together with their janitors. A process in another namespace
/// may look dead from here, so nothing is touched that is young: between its making and its first process, a group is
/// empty for a moment.
fn sweep(parent: &Path) {
    let Ok(groups) = fs::read_dir(parent) else { return };
    for group in groups.flatten() {
        let name = group.file_name();
        let Some(maker) = name.to_str().and_then(maker) else { continue };
        let age =
            group.metadata().and_then(|stat| stat.modified()).map(|at| at.elapsed().unwrap_or_default());
        if age.is_ok_and(|age| age > LEFT) && !Path::new("/proc").join(maker.to_string()).exists() {
            // A group that holds a process can't be removed.
            let _ = fs::remove_dir(group.path());
        }
    }
}

/// The process that made a group of ours.
fn maker(name: &str) -> Option<u32> {
    let (nonce, pid) = name.strip_prefix("agency-")?.split_once('-')?;
    u32::from_str_radix(pid, 16).ok().filter(|_| is_nonce(nonce))
}

/// A group below the nearest ancestor that lets us, with the controllers we need switched on for its
/// children. Our own group has us in it, and a group with processes can't have such children.
fn unified(own: &str, name: &str, memory: Option<u64>, processes: Option<u64>) -> io::Result<Option<Cgroup>> {
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::")) else { return Ok(None) };
    let own = Path::new(MOUNT).join(path.trim_start_matches('/'));
    let wanted: Vec<&str> =
        [memory.map(|_| "memory"), processes.map(|_| "pids")].into_iter().flatten().collect();
    for parent in own.ancestors().take_while(|path| path.starts_with(MOUNT)) {
        let enabled = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
        if !wanted.iter().all(|controller| enabled.split_whitespace().any(|on| on == *controller)) {
            continue;
        }
        let group = parent.join(name);
        if fs::create_dir(&group).is_err() {
            continue;
        }
        sweep(parent);
        let made = Cgroup { kind: CgroupHierarchy::Unified(group.clone()), foreign: false };
        let set = || -> io::Result<()> {
            if let Some(limit) = memory {
                fs::write(group.join("memory.max"), limit.to_string())?;
                let _ = fs::write(group.join("memory.swap.max"), "0");
                // All or nothing: a tree that lost one process to the limit is not worth going on with.
                let _ = fs::write(group.join("memory.oom.group"), "1");
            }
            if let Some(limit) = processes {
                fs::write(group.join("pids.max"), limit.to_string())?;
            }
            Ok(())
        };
        if set().is_ok() {
            return Ok(Some(made));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nonce::nonce;

    #[test]
    fn old_groups_of_dead_processes_go_and_no_others() {
        let parent = tempfile::tempdir().expect("a folder");
        let mut ended = std::process::Command::new("true").spawn().expect("started");
        let (dead, alive) = (ended.id(), std::process::id());
        ended.wait().expect("ended");
        let group = |name: String, age: Duration| {
            let path = parent.path().join(name);
            fs::create_dir(&path).expect("made");
            let folder = fs::File::open(&path).expect("opened");
            folder.set_modified(std::time::SystemTime::now() - age).expect("set");
            path
        };
        let old = LEFT * 2;
        let left = group(format!("agency-{}-{dead:x}", nonce()), old);
        let others = [
            group(format!("agency-{}-{alive:x}", nonce()), old),
            group(format!("agency-{}-{dead:x}", nonce()), Duration::ZERO),
            group(format!("agency-mine-{dead:x}"), old),
            group(format!("docker-{}-{dead:x}", nonce()), old),
        ];
        sweep(parent.path());
        assert!(!left.exists());
        others.iter().for_each(|other| assert!(other.exists(), "{}", other.display()));
    }
}
