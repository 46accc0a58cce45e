//! Where snapshots lie, and which process may touch them when.
//!
//! ```text
//! <state>/snapshots/
//!   building                   locked by the process that builds or removes a snapshot
//!   git/                       our own repository, to read objects with
//!   new-*, old-*               under construction, or on its way out
//!   <tree>/                    one snapshot, complete and never changed
//!     lock                     locked shared by each process that uses it
//!     facts.json
//!     submodules
//!     layer/                   the tree, with a `.git`
//!     deltas/building          locked by the process that builds or removes a delta of it
//!     deltas/<other tree>/     what turns it into another tree
//!       lock, facts.json, submodules, layer/
//!       files                  what it holds, for the next one
//! ```
//!
//! A layer is made under a name that no process looks for and renamed when it is complete, so a layer with a tree's
//! name is whole, however its builder ended. Leftovers are made and removed only under `building`: its holder
//! may sweep them all. Locks are `flock`s, which the kernel releases when a process ends. The lock of a
//! layer that was removed is still a lock, on a file that is gone; so after it is taken, it is looked up
//! again.
//!
//! Surviving a crash of the machine is another matter: a name may reach the disk before the contents do. No run
//! waits for a sync, so a new layer names the boot it is good for, and after the next one it is as good as
//! none. Layers are worth keeping; [`SnapshotStore::sync_layers`] syncs them later, when no run waits. A file system
//! may lose power while the machine goes on, so a run that begins alone trusts no layer that was never synced
//! ([`SnapshotStore::remove_unsynced`]).
//!
//! Every file of a layer belongs to the user who runs this: mounts map exactly one user and group to the agent.

#![allow(clippy::disallowed_methods, reason = "opens our own layers")]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::error::{SnapshotResult, at};
use crate::boot;
use crate::erase;

/// Of everything written here. A layer of another version is as good as none.
const VERSION: u32 = 1;

const LOCK: &str = "lock";
const BUILDING: &str = "building";
const FACTS: &str = "facts.json";
const LAYER: &str = "layer";
const DELTAS: &str = "deltas";

/// Makes a folder of just this mode, with any umask.
pub(super) fn make_folder(path: &Path, mode: u32) -> SnapshotResult<()> {
    let made = DirBuilder::new().mode(mode).create(path);
    made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(at("can't make the folder", path))
}

/// Makes a file of just this mode, which must not be there.
pub(super) fn make_file(path: &Path, mode: u32, contents: &[u8]) -> SnapshotResult<()> {
    let make = || {
        let mut file = OpenOptions::new().create_new(true).write(true).mode(mode).open(path)?;
        file.write_all(contents)?;
        file.set_permissions(fs::Permissions::from_mode(mode))
    };
    make().map_err(at("can't write", path))
}

/// What is known of a layer. It is written last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerFacts {
    version: u32,
    /// Entries of its index.
    pub(super) files: usize,
    /// When its files were changed, as they and the index say: a whole second.
    pub(super) time: u32,
    /// The boot of the machine it is good for, unless it was synced.
    boot: Option<String>,
}

impl LayerFacts {
    pub(super) fn new(files: usize, time: u32) -> Self {
        Self { version: VERSION, files, time, boot: Some(boot::id().unwrap_or_default()) }
    }

    fn text(&self, path: &Path) -> SnapshotResult<Vec<u8>> {
        serde_json::to_vec(self).map_err(io::Error::from).map_err(at("can't write", path))
    }
}

/// The folder of all snapshots.
#[derive(Debug)]
pub(super) struct SnapshotStore {
    path: PathBuf,
}

/// A complete layer that stays as long as this does.
#[derive(Debug)]
pub(super) struct LockedLayer {
    pub(super) path: PathBuf,
    pub(super) facts: LayerFacts,
    pub(super) submodules: Vec<Vec<u8>>,
    pub(super) lock: File,
}

impl LockedLayer {
    pub(super) fn layer(&self) -> PathBuf {
        self.path.join(LAYER)
    }

    /// The tree it shows.
    pub(super) fn tree(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn deltas(&self) -> PathBuf {
        self.path.join(DELTAS)
    }

    /// The delta that turns this snapshot into another tree, if there is one.
    pub(super) fn delta(&self, tree: &str) -> SnapshotResult<Option<LockedLayer>> {
        hold(&self.deltas().join(tree))
    }
}

impl SnapshotStore {
    pub(super) fn open(path: PathBuf) -> SnapshotResult<Self> {
        if !path.is_dir() {
            match make_folder(&path, 0o700) {
                Err(_) if path.is_dir() => {}
                other => other?,
            }
        }
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn git(&self) -> PathBuf {
        self.path.join("git")
    }

    pub(super) fn snapshot(&self, tree: &str) -> SnapshotResult<Option<LockedLayer>> {
        hold(&self.path.join(tree))
    }

    /// The same, without counting as a use.
    pub(super) fn snapshot_without_use(&self, tree: &str) -> SnapshotResult<Option<LockedLayer>> {
        hold_quietly(&self.path.join(tree))
    }

    /// The trees there are snapshots of, the one used last first.
    pub(super) fn recent(&self) -> Vec<String> {
        recent(&self.path)
    }

    /// Waits until no other process builds or removes a snapshot, and sweeps what they left.
    pub(super) fn lock_for_build(&self) -> SnapshotResult<LayerFolderLock<'_>> {
        LayerFolderLock::enter(self.path.clone(), true)
    }

    /// The same where layers have no deltas.
    pub(super) fn lock_for_plain_build(&self) -> SnapshotResult<LayerFolderLock<'_>> {
        LayerFolderLock::enter(self.path.clone(), false)
    }

    /// The same for the deltas of one snapshot.
    pub(super) fn lock_for_delta_build<'a>(
        &'a self,
        snapshot: &'a LockedLayer,
    ) -> SnapshotResult<LayerFolderLock<'a>> {
        LayerFolderLock::enter(snapshot.deltas(), false)
    }

    /// The delta of a snapshot that was used last.
    pub(super) fn last_delta(&self, snapshot: &LockedLayer) -> SnapshotResult<Option<LockedLayer>> {
        let last = recent(&snapshot.deltas()).into_iter().next();
        last.map_or(Ok(None), |tree| hold_quietly(&snapshot.deltas().join(tree)))
    }

    /// Removes the snapshots and deltas that were never synced and that no process uses.
    ///
    /// Nothing tells whether a file system lost power and came back while the machine went on: a disk may have been
    /// unplugged. A process that uses a layer has had the file system all the time.
    pub(super) fn remove_unsynced(&self, site: &LayerFolderLock<'_>) -> SnapshotResult<()> {
        site.remove_unsynced()?;
        for tree in self.recent() {
            if let Some(snapshot) = self.snapshot_without_use(&tree)?.filter(|one| one.deltas().is_dir()) {
                self.lock_for_delta_build(&snapshot)?.remove_unsynced()?;
            }
        }
        Ok(())
    }

    /// Makes the snapshots of this boot, and their deltas, survive a crash of the machine.
    pub(super) fn sync_layers(&self, _site: &LayerFolderLock<'_>) -> SnapshotResult<()> {
        let mut fresh = Vec::new();
        for tree in self.recent() {
            let Some(snapshot) = self.snapshot_without_use(&tree)? else { continue };
            for tree in recent(&snapshot.deltas()) {
                fresh.extend(hold_quietly(&snapshot.deltas().join(tree))?);
            }
            fresh.push(snapshot);
        }
        fresh.retain(|layer| layer.facts.boot.is_some());
        if fresh.is_empty() {
            return Ok(());
        }
        File::open(&self.path)
            .and_then(|folder| Ok(rustix::fs::syncfs(&folder)?))
            .map_err(at("can't sync", &self.path))?;
        for snapshot in fresh {
            let facts = LayerFacts { boot: None, ..snapshot.facts.clone() };
            let (path, new) = (snapshot.path.join(FACTS), snapshot.path.join("facts.new"));
            let _ = fs::remove_file(&new);
            make_file(&new, 0o600, &facts.text(&new)?)?;
            sync(&new).map_err(at("can't sync", &new))?;
            fs::rename(&new, &path).map_err(at("can't name", &path))?;
        }
        Ok(())
    }
}

/// The right to add and remove layers in one folder.
#[derive(Debug)]
pub(super) struct LayerFolderLock<'a> {
    folder: PathBuf,
    of_snapshots: bool,
    _lock: File,
    _store: std::marker::PhantomData<&'a SnapshotStore>,
}

impl LayerFolderLock<'_> {
    fn enter(folder: PathBuf, of_snapshots: bool) -> SnapshotResult<Self> {
        let path = folder.join(BUILDING);
        let lock = open_lock(&path).map_err(at("can't open", &path))?;
        wait(&lock).map_err(at("can't lock", &path))?;
        let site = Self { folder, of_snapshots, _lock: lock, _store: std::marker::PhantomData };
        site.sweep();
        Ok(site)
    }

    /// Everything that is neither complete nor ours to keep.
    pub(super) fn sweep(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b"new-") || name.as_encoded_bytes().starts_with(b"old-") {
                // Best effort: the next builder tries again if this fails.
                let _ = erase::tree(&entry.path());
            }
        }
    }

    /// A name that is never taken for complete, and that no other builder has. The git of a builder that was killed
    /// lives a moment longer, and may write into its folder while that is swept.
    pub(super) fn new_path(&self, name: &str) -> PathBuf {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let own = format!("{}-{}{:09}", std::process::id(), now.tv_sec, now.tv_nsec);
        self.folder.join(format!("new-{name}.{own}"))
    }

    /// A place to make a layer in.
    pub(super) fn start(&self, tree: &str) -> SnapshotResult<PathBuf> {
        let path = self.new_path(tree);
        make_folder(&path, 0o700)?;
        make_folder(&path.join(LAYER), 0o755)?;
        Ok(path)
    }

    /// Gives a complete layer its name.
    pub(super) fn finish(
        &self,
        path: &Path,
        tree: &str,
        facts: &LayerFacts,
        submodules: &[Vec<u8>],
    ) -> SnapshotResult<LockedLayer> {
        make_file(&path.join("submodules"), 0o600, &submodules.join(&0))?;
        make_file(&path.join(LOCK), 0o600, b"")?;
        make_file(&path.join(FACTS), 0o600, &facts.text(path)?)?;
        if self.of_snapshots {
            make_folder(&path.join(DELTAS), 0o700)?;
        }
        let lock = File::open(path.join(LOCK)).map_err(at("can't open", path))?;
        // Held before it can be seen: no process removes what has never been used.
        flock(&lock, FlockOperation::NonBlockingLockShared).map_err(at("can't lock", path))?;
        let target = self.folder.join(tree);
        if target.symlink_metadata().is_ok() {
            self.remove_useless(&target)?;
        }
        fs::rename(path, &target).map_err(at("can't name", &target))?;
        Ok(LockedLayer { path: target, facts: facts.clone(), submodules: submodules.to_vec(), lock })
    }

    /// Gives a small folder its name, in place of one that is no good. It is on the disk before that.
    pub(super) fn replace(&self, path: &Path, target: &Path) -> SnapshotResult<()> {
        sync_tree(path).map_err(at("can't sync", path))?;
        if target.symlink_metadata().is_ok() {
            self.remove(target)?;
        }
        fs::rename(path, target).map_err(at("can't name", target))?;
        sync(&self.folder).map_err(at("can't sync", &self.folder))
    }

    /// Removes the layers that were never synced and that no process uses, with those that can't be read.
    fn remove_unsynced(&self) -> SnapshotResult<()> {
        for tree in recent(&self.folder) {
            let path = self.folder.join(&tree);
            if read_facts(&path).is_some_and(|facts| facts.boot.is_none()) {
                continue;
            }
            let lock = File::open(path.join(LOCK));
            let held = lock
                .as_ref()
                .is_ok_and(|lock| flock(lock, FlockOperation::NonBlockingLockExclusive).is_err());
            if !held {
                self.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Removes all but the `keep` layers used last, except those in use. Returns how many it removed.
    pub(super) fn collect(&self, keep: usize) -> SnapshotResult<usize> {
        let mut removed = 0;
        for tree in recent(&self.folder).into_iter().skip(keep) {
            let path = self.folder.join(&tree);
            let Ok(lock) = File::open(path.join(LOCK)) else { continue };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                self.remove(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes a layer of another boot, which no process can use any more, or of another version, which another
    /// version of this program may.
    fn remove_useless(&self, path: &Path) -> SnapshotResult<()> {
        let lock = File::open(path.join(LOCK));
        let free = lock.as_ref().map_or(Ok(()), |lock| flock(lock, FlockOperation::NonBlockingLockExclusive));
        free.map_err(at("another version of this program uses", path))?;
        self.remove(path)
    }

    fn remove(&self, path: &Path) -> SnapshotResult<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let away = self.folder.join(format!("old-{name}"));
        fs::rename(path, &away).map_err(at("can't move away", path))?;
        erase::tree(&away).map_err(at("can't remove", &away))
    }
}

pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

fn wait(lock: &File) -> io::Result<()> {
    loop {
        match flock(lock, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Holds a layer that is complete and good. Its lock is only ever taken exclusively to remove it, so one
/// that can't be had is as good as gone.
fn hold(path: &Path) -> SnapshotResult<Option<LockedLayer>> {
    let held = hold_quietly(path)?;
    if let Some(held) = &held {
        // When it was used last is when its lock was written last; nothing else is ever written there.
        let _ = held.lock.set_modified(SystemTime::now());
    }
    Ok(held)
}

fn hold_quietly(path: &Path) -> SnapshotResult<Option<LockedLayer>> {
    let lock_path = path.join(LOCK);
    let lock = match OpenOptions::new().write(true).open(&lock_path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at("can't open", lock_path)(error)),
    };
    match flock(&lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(at("can't lock", lock_path)(error)),
    }
    let held = lock.metadata().map_err(at("can't look at", &lock_path))?;
    match fs::metadata(&lock_path) {
        Ok(now) if (now.dev(), now.ino()) == (held.dev(), held.ino()) => {}
        _ => return Ok(None),
    }
    let Some(facts) = read_facts(path)
        .filter(|facts| facts.version == VERSION && facts.boot.as_deref().is_none_or(boot::is))
    else {
        return Ok(None);
    };
    let list = path.join("submodules");
    let list = fs::read(&list).map_err(at("can't read", list))?;
    let submodules = list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec);
    Ok(Some(LockedLayer { path: path.to_owned(), facts, submodules: submodules.collect(), lock }))
}

fn read_facts(path: &Path) -> Option<LayerFacts> {
    serde_json::from_slice(&fs::read(path.join(FACTS)).ok()?).ok()
}

/// Makes the names in a folder, or the contents of a file, survive a crash of the machine.
fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The same for a folder and all that is in it, where that is little.
fn sync_tree(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => sync_tree(&entry.path())?,
            kind if kind.is_file() => sync(&entry.path())?,
            _ => {}
        }
    }
    sync(folder)
}

/// The names of layers, the one used last first.
fn recent(folder: &Path) -> Vec<String> {
    let mut found: Vec<(SystemTime, String)> = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        let used = fs::metadata(entry.path().join(LOCK)).and_then(|lock| lock.modified());
        found.push((used.unwrap_or(SystemTime::UNIX_EPOCH), name));
    }
    found.sort();
    found.into_iter().rev().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What version 1 wrote must be read for as long as it may lie in a user's repository.
    #[test]
    fn the_facts_of_version_1_are_understood() {
        let snapshot = br#"{"version":1,"files":3,"time":1700000000,"boot":null}"#;
        let facts: LayerFacts = serde_json::from_slice(snapshot).expect("facts");
        assert_eq!(facts, LayerFacts { version: 1, files: 3, time: 1_700_000_000, boot: None });
        assert_eq!(serde_json::to_vec(&facts).expect("text"), snapshot);
    }

    #[test]
    fn what_a_killed_builder_left_is_in_nobodys_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SnapshotStore::open(folder.path().join("snapshots")).expect("a store");
        let site = store.lock_for_build().expect("a site");
        let left = site.start("abc").expect("begun");
        // As if its git had written there after it was swept.
        fs::write(left.join("index"), "x").expect("written");
        let again = site.start("abc").expect("begun again");
        assert!(!again.join("index").exists());
        site.sweep();
        assert!(!left.exists() && !again.exists());
    }
}
