//! What a repository's setup leaves behind, as one layer more.
//!
//! A setup is a command that fills what the tree ignores: packages, a virtual environment, built dependencies. It
//! runs once; what it left in scratch lies above the snapshot and below what each run writes.
//!
//! ```text
//! <state>/setup/
//!   building          locked by the process that names or removes a layer, for moments
//!   making-<key>      locked by the process that runs the setup of a key
//!   new-*, old-*      under construction, or on its way out
//!   <key>/            one layer, complete and never changed: lock, facts.json, layer/
//! ```
//!
//! The key names all that the layer is meant to depend on ([`SetupLayers::key`]), and what it must not contradict: which
//! folders are scratch, and what the tree itself has in them. Two trees of one key can therefore share a layer, and
//! no layer ever covers a file of a tree.
//!
//! A process that is killed while a setup runs leaves a lock that the kernel has released; one that is killed while it
//! copies a layer leaves a name that no process looks for. The next process finds both.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::checkout::{hexadecimal, recent_second};
use super::error::{SnapshotResult, at};
use super::store::{LayerFacts, SnapshotStore, make_folder, open_lock};
use super::{SnapshotLayers, Snapshots};
use crate::harvest::BaseLayers;
use crate::harvest::tree::{self, NodeKind};
use crate::path::RelPath;
use crate::tree_copy::copy_folder;

/// Of everything that a key is made of.
const VERSION: &str = "1";
/// Layers that stay when no run uses them, those used last.
const KEEP: usize = 4;

/// What prepares a workspace.
#[derive(Debug, Clone)]
pub struct SetupRecipe<'a> {
    pub command: &'a str,
    /// The files whose contents say whether it has to be run again.
    pub keyed_by: &'a [RelPath],
    /// What it can reach, in words.
    pub network: &'a str,
    /// Where it sees the workspace, in words: what it installs may have that path in it.
    pub place: &'a str,
}

/// What a layer is called by: everything it depends on, as a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupKey(String);

impl SetupKey {
    /// Each part with its length, so that no two lists of parts are the same text.
    fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(hexadecimal(&digest.finalize()))
    }

    /// The key of a layer that is good for one tree only.
    pub fn for_tree(&self, tree: &str) -> Self {
        Self::of([b"tree", self.0.as_bytes(), tree.as_bytes()])
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The layers that setups left.
#[derive(Debug)]
pub struct SetupLayers<'a> {
    snapshots: &'a Snapshots,
    store: SnapshotStore,
}

/// A layer that is complete, and stays for as long as this does.
#[derive(Debug)]
pub struct SetupLayer {
    path: PathBuf,
    _lock: File,
}

impl SetupLayer {
    pub fn layer(&self) -> &Path {
        &self.path
    }
}

/// The right to run the setup of one key. It ends with the process that has it.
#[derive(Debug)]
pub struct SetupLock {
    key: SetupKey,
    path: PathBuf,
    _lock: File,
}

impl Drop for SetupLock {
    fn drop(&mut self) {
        // While it is still locked: a process that waits for this one looks its name up again.
        let _ = fs::remove_file(&self.path);
    }
}

impl Snapshots {
    pub fn setups(&self) -> SnapshotResult<SetupLayers<'_>> {
        let store = SnapshotStore::open(self.state.path().join("setup"))?;
        Ok(SetupLayers { snapshots: self, store })
    }
}

impl SetupLayers<'_> {
    /// What a recipe comes to on a tree. A file that the tree does not have counts as missing.
    pub fn key(&self, layers: &SnapshotLayers, recipe: &SetupRecipe<'_>) -> SnapshotResult<SetupKey> {
        let scratch = self.snapshots.ignored(layers).directories();
        let asked: Vec<&RelPath> = recipe.keyed_by.iter().chain(&scratch).collect();
        let objects = self.snapshots.objects.objects_at(&layers.tree, &asked)?;
        let count = recipe.keyed_by.len().to_string();
        let fixed = [VERSION, recipe.command, recipe.network, recipe.place, count.as_str()];
        let named = asked
            .iter()
            .zip(&objects)
            .flat_map(|(path, object)| [path.as_bytes(), object.as_deref().unwrap_or("missing").as_bytes()]);
        Ok(SetupKey::of(fixed.into_iter().map(str::as_bytes).chain(named)))
    }

    pub fn find(&self, key: &SetupKey) -> SnapshotResult<Option<SetupLayer>> {
        let held = self.store.snapshot(&key.0)?;
        Ok(held.map(|held| SetupLayer { path: held.layer(), _lock: held.lock }))
    }

    /// The right to make a layer; `None` while another process has it.
    pub fn lock(&self, key: &SetupKey) -> SnapshotResult<Option<SetupLock>> {
        let path = self.store.path().join(format!("making-{}", key.0));
        let lock = open_lock(&path).map_err(at("can't open", &path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(at("can't lock", path)(error)),
        }
        let ours = lock.metadata().map_err(at("can't look at", &path))?;
        match fs::symlink_metadata(&path) {
            Ok(now) if (now.dev(), now.ino()) == (ours.dev(), ours.ino()) => {
                Ok(Some(SetupLock { key: key.clone(), path, _lock: lock }))
            }
            // It was let go of between the two.
            _ => Ok(None),
        }
    }

    /// Keeps what a setup left in scratch as the layer of its key. `made` is the upper layer, or the private copy, of
    /// a run on these layers whose last process is dead. Files of the tree itself are left out, however they look now.
    pub fn publish(
        &self,
        turn: &SetupLock,
        layers: &SnapshotLayers,
        made: &Path,
    ) -> SnapshotResult<SetupLayer> {
        let site = self.store.lock_for_plain_build()?;
        let folder = site.start(&turn.key.0)?;
        let failed = || at("can't keep what the setup left in", made);
        let base = layers.open().map_err(failed())?;
        let source = open(made).map_err(failed())?;
        for scratch in self.snapshots.ignored(layers).directories() {
            let held = match tree::unlock_directory(source.as_fd(), &scratch) {
                Ok(held) => held,
                // It left nothing there.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(failed()(error.into())),
            };
            let left_out = tracked(&base, &scratch, &held).map_err(failed())?;
            let mut above: Vec<RelPath> = scratch.ancestors().filter(|above| !above.is_root()).collect();
            above.reverse();
            for directory in above.iter().chain([&scratch]) {
                let path = folder.join("layer").join(directory.as_path());
                if !path.is_dir() {
                    make_folder(&path, base.directory_mode(directory).unwrap_or(0o755) & 0o777)?;
                }
            }
            let target = folder.join("layer").join(scratch.as_path());
            copy_folder(held, &target, left_out, None).map_err(failed())?;
        }
        let held = site.finish(&folder, &turn.key.0, &LayerFacts::new(0, recent_second()), &[])?;
        site.collect(KEEP)?;
        // It may have taken half an hour to make; a few seconds more, and it outlives a crash of the machine.
        self.store.sync_layers(&site)?;
        Ok(SetupLayer { path: held.layer(), _lock: held.lock })
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// What may not be taken over from a folder, because the tree has something there: its files, and every other entry
/// that stands where it has a folder. Relative to that folder.
fn tracked(base: &BaseLayers, folder: &RelPath, made: &OwnedFd) -> io::Result<HashSet<RelPath>> {
    let mut found = HashSet::new();
    for (path, is_directory) in base.paths_below(folder)? {
        let kind = match tree::inspect(made.as_fd(), path.as_bytes()) {
            Ok(stat) => stat.map(|stat| tree::kind(&stat)),
            Err(Errno::NOTDIR) => None,
            Err(error) => return Err(error.into()),
        };
        if kind.is_some_and(|kind| !is_directory || kind != NodeKind::Directory) {
            found.insert(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_of_its_parts_and_of_where_they_end() {
        let key = |parts: &[&str]| SetupKey::of(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        for other in [&["ab"][..], &["a", "b", ""], &["", "a", "b"], &["b", "a"], &["a", "c"]] {
            assert_ne!(key(&["a", "b"]), key(other), "{other:?}");
        }
        let one = key(&["a"]);
        assert_ne!(one.for_tree("1"), one.for_tree("2"));
        assert_ne!(one.for_tree("1"), one);
        assert!(one.as_str().len() == 64 && one.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
