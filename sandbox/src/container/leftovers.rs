//! Containers whose owner is gone.
//!
//! A container ends with its owner, and an engine removes one that ended. Killed between making a container and
//! starting it, or together with the engine, an owner leaves one behind all the same. Each carries who owns it; whoever
//! comes next removes those of the dead.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::engine::{Engine, EngineError};

/// The label that says whose a container is.
pub(crate) const OWNER: &str = "io.agency.owner";

/// This process, as nobody else is called until the host is started again, nor after.
pub(crate) fn me() -> String {
    owner(std::process::id()).unwrap_or_default()
}

fn owner(pid: u32) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?.ino();
    // Times begin after the name, which may hold anything.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    Some(format!("{}/{namespace}/{pid}/{started}", boot.trim()))
}

/// Whether an owner is dead. Of one whose processes we can't see nobody knows, and it is left alone.
fn is_gone(named: &str) -> bool {
    let parts: Vec<&str> = named.split('/').collect();
    let [boot, namespace, pid, _] = parts[..] else { return false };
    let (me, Ok(pid)) = (me(), pid.parse()) else { return false };
    let mine: Vec<&str> = me.split('/').collect();
    let here = |index: usize, theirs: &str| mine.get(index).is_some_and(|mine| *mine == theirs);
    match (here(0, boot), here(1, namespace)) {
        (false, _) => true,
        (true, false) => false,
        // Where other users' processes are out of sight, theirs looks like none: the kernel still knows of it.
        (true, true) => owner(pid).map_or_else(|| !exists(pid), |found| found != named),
    }
}

/// Whether there is a process of this number, of whomever.
fn exists(pid: u32) -> bool {
    let process = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let found = process.map(rustix::process::test_kill_process);
    matches!(found, Some(Ok(()) | Err(rustix::io::Errno::PERM)))
}

/// Removes what the dead left. How many there were.
pub(crate) fn sweep(engine: &Engine) -> Result<usize, EngineError> {
    let mut swept = 0;
    for container in engine.labelled(OWNER)? {
        let labels = container.labels.unwrap_or_default();
        let gone = labels.get(OWNER).is_some_and(|owner| is_gone(owner));
        // One that can't be removed is in nobody's way, and there is a next time.
        if let (true, Some(id)) = (gone, container.id) {
            swept += usize::from(engine.remove(&id).is_ok());
        }
    }
    Ok(swept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_living_are_told_from_the_dead() {
        let me = me();
        assert!(!is_gone(&me), "{me}");
        let (rest, _) = me.rsplit_once('/').expect("four parts");
        assert!(is_gone(&format!("{rest}/1")), "the same number at another time is somebody else");
        assert!(is_gone("0b6a0ee8-0000-0000-0000-000000000000/1/1/5"), "before the host was started");
        let boot = me.split('/').next().expect("a part");
        assert!(!is_gone(&format!("{boot}/1/1/5")), "nobody here can know");
        assert!(!is_gone("whatever this is"));
    }
}
