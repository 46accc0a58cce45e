//! A container that was started: what it was made of, and its removal.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::caches::CacheVolume;
use super::cleanup::ContainerRecord;
use super::engine::{ContainerEngine, ContainerImage, EngineError};
use crate::landlock_level::replica::Replica;

/// A container and its private copy of the workspace. Dropping it removes the container.
#[derive(Debug)]
pub(crate) struct RunningContainer {
    pub(crate) replica: Replica,
    pub(crate) image: ContainerImage,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) caches: Vec<CacheVolume>,
    /// Folders that were asked for in memory.
    pub(crate) in_memory: Vec<PathBuf>,
    pub(crate) id: String,
    pub(crate) engine: ContainerEngine,
    /// Its first process, once it called.
    pub(crate) first: Option<OwnedFd>,
    pub(crate) gone: bool,
    pub(crate) record: ContainerRecord,
}

impl RunningContainer {
    /// Whether its first process is dead. Where that had a namespace, every other process in it is: a first process is
    /// not dead before the last of the others.
    pub(crate) fn has_ended(&self) -> bool {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.first.as_ref().is_some_and(|first| {
            poll(&mut [PollFd::from_borrowed_fd(first.as_fd(), PollFlags::IN)], Some(&AT_ONCE)) == Ok(1)
        })
    }

    /// Removes it; returns when nothing of it is left. One that ended goes by itself; any other is ended. What an
    /// engine keeps of one that runs no more blocks nothing, and the next process removes it.
    pub(crate) fn remove(&mut self) -> Result<(), EngineError> {
        if std::mem::replace(&mut self.gone, true) {
            return Ok(());
        }
        let gone = match self.has_ended() {
            true => self.engine.wait_removed(&self.id),
            false => self.engine.remove(&self.id),
        };
        match gone {
            Ok(()) => {
                self.record.delete();
                Ok(())
            }
            Err(error) if self.engine.is_running(&self.id) => Err(error),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for RunningContainer {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}
