//! Reaping: takes the exit status of dead children, so that none stays a zombie.

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};

/// Where reaping stopped.
pub(crate) enum ReapResult<T> {
    /// At the child that was looked for.
    Found(T),
    /// Every child that is left runs.
    ChildrenRun,
    NoChildren,
}

/// Reaps children that are dead, without waiting for others, until `wanted` takes one of them.
pub(crate) fn reap_dead<T>(wanted: impl Fn(WaitStatus) -> Option<T>) -> ReapResult<T> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return ReapResult::ChildrenRun,
            Err(Errno::ECHILD) => return ReapResult::NoChildren,
            Err(_) => {}
            Ok(status) => {
                if let Some(found) = wanted(status) {
                    return ReapResult::Found(found);
                }
            }
        }
    }
}

/// Waits until every child is dead and reaped.
pub(crate) fn reap_all() {
    while !matches!(waitpid(None, None), Err(Errno::ECHILD)) {}
}
