//! A workspace over a snapshot: its cost does not grow with the repository.
//!
//! The tree of a commit is checked out once, complete with a repository of the agent's own, and every attempt
//! is an overlay on it. When the base moves on, the difference to the snapshot becomes one layer more; when
//! that difference is large, the new tree is checked out in turn.
//!
//! ```text
//! upper       what the agent writes                          one run
//! head        HEAD, branches, configuration                  one run       [head]
//! setup       what a setup left in scratch, where there is one   many bases  [setup]
//! delta       what turns the snapshot into another tree      one base      [delta]
//! snapshot    files, index, an empty repository              many bases    [checkout]
//! ```
//!
//! Layers never change. A process that uses one holds it ([`SnapshotLayers`]), and garbage collection removes only
//! layers that no process holds (`store`).

mod checkout;
mod delta;
mod error;
mod index;
mod index_extensions;
mod layer;
mod manifest;
mod objects;
mod run_layer;
mod setup;
mod store;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use self::error::SnapshotResult;
use self::manifest::ReusableDelta;
use self::objects::SnapshotObjects;
use self::store::{LockedLayer, SnapshotStore};
use crate::harvest::BaseLayers;
use crate::path::RelPath;
use crate::workspace::folder::RepositoryPaths;
use crate::workspace::ignore_rules::IgnoreRules;
use crate::workspace::state::{RunFolder, StateFolder};
use crate::workspace::{LongIndex, Overlay, Workspace, WriteLayer};

pub use self::error::SnapshotError;
pub use self::index::IndexError;
pub use self::setup::{SetupKey, SetupLayer, SetupLayers, SetupLock, SetupRecipe};

/// When a moved base becomes a new snapshot, and how many layers are kept for later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotTuning {
    /// A delta has at most so many paths ...
    pub delta_paths: usize,
    /// ... and at most this part of the snapshot's files, in percent, ...
    pub delta_percent: usize,
    /// ... but may always have so many: a small repository is not worth a snapshot for each commit.
    pub delta_always: usize,
    /// Snapshots that stay when no run uses them, those used last.
    pub keep_snapshots: usize,
    /// Deltas of one snapshot that stay when no run uses them.
    pub keep_deltas: usize,
}

impl Default for SnapshotTuning {
    fn default() -> Self {
        // Every landing makes a delta longer, whose files later ones have to name again, until it is a snapshot, whose
        // files are written. Writing costs several times as much as naming, and far more where many files were just
        // removed, so the snapshot comes late: after about five times the root of the files.
        Self { delta_paths: 2000, delta_percent: 12, delta_always: 200, keep_snapshots: 2, keep_deltas: 4 }
    }
}

impl SnapshotTuning {
    fn largest_delta(&self, files: usize) -> usize {
        self.delta_paths.min(files.saturating_mul(self.delta_percent) / 100).max(self.delta_always)
    }
}

/// The snapshots of a repository.
#[derive(Debug)]
pub struct Snapshots {
    store: SnapshotStore,
    objects: SnapshotObjects,
    tuning: SnapshotTuning,
    state: StateFolder,
}

/// The tree of a commit, as layers. They stay as they are for as long as this lives.
#[derive(Debug)]
pub struct SnapshotLayers {
    /// Topmost first.
    pub lowers: Vec<PathBuf>,
    pub commit: String,
    pub tree: String,
    /// Submodules, each an empty folder. What they hold is another repository's.
    pub submodules: Vec<RelPath>,
    /// What had to be made for it.
    pub made: SnapshotCost,
    /// How many files, about.
    files: usize,
    /// The work tree that its index speaks of, where it says what git need not look at.
    place: Option<PathBuf>,
    /// Shared locks; garbage collection needs them for itself.
    _held: Vec<File>,
}

/// How much work a request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotCost {
    /// All of it was there.
    Nothing,
    Delta,
    Snapshot,
}

impl Snapshots {
    /// `git` is a program's path or its name.
    pub fn open(state: &StateFolder, repository: &RepositoryPaths, git: &Path) -> SnapshotResult<Self> {
        repository.check_objects()?;
        let store = SnapshotStore::open(state.path().join("snapshots"))?;
        let objects = SnapshotObjects::open(git, &store.git(), repository)?;
        if !objects.is_created() {
            objects.create(git, &store.lock_for_build()?)?;
        }
        Ok(Self { store, objects, tuning: SnapshotTuning::default(), state: state.clone() })
    }

    pub fn with_tuning(mut self, tuning: SnapshotTuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// The layers that show the tree of a commit, made if need be. When two want the same at once, one makes
    /// it and the other waits.
    pub fn layers(&self, rev: &str) -> SnapshotResult<SnapshotLayers> {
        let (commit, tree) = self.objects.resolve(rev)?;
        if let Some(layers) = self.reuse(&commit, &tree)? {
            return Ok(layers);
        }
        let site = self.store.lock_for_build()?;
        // The process that had the lock before may have made just this, or something near.
        if let Some(layers) = self.reuse(&commit, &tree)? {
            return Ok(layers);
        }
        let snapshot = checkout::build(&site, &self.objects, &commit, &tree)?;
        site.collect(self.tuning.keep_snapshots)?;
        Ok(self.stack(commit, snapshot, None, SnapshotCost::Snapshot))
    }

    /// Layers on a snapshot that is there: the tree's own, or one that differs little.
    fn reuse(&self, commit: &str, tree: &str) -> SnapshotResult<Option<SnapshotLayers>> {
        if let Some(snapshot) = self.store.snapshot(tree)? {
            return Ok(Some(self.stack(commit.to_owned(), snapshot, None, SnapshotCost::Nothing)));
        }
        for candidate in self.store.recent() {
            let Some(snapshot) = self.store.snapshot(&candidate)? else { continue };
            if let Some((delta, made)) = self.delta(&snapshot, commit, tree)? {
                return Ok(Some(self.stack(commit.to_owned(), snapshot, Some(delta), made)));
            }
        }
        Ok(None)
    }

    /// The delta from a snapshot to a tree, unless it would be too large.
    fn delta(
        &self,
        snapshot: &LockedLayer,
        commit: &str,
        tree: &str,
    ) -> SnapshotResult<Option<(LockedLayer, SnapshotCost)>> {
        if let Some(delta) = snapshot.delta(tree)? {
            return Ok(Some((delta, SnapshotCost::Nothing)));
        }
        let limit = self.tuning.largest_delta(snapshot.facts.files);
        let Some(differences) = self.objects.differences(&snapshot.tree(), tree, limit)? else {
            return Ok(None);
        };
        let site = self.store.lock_for_delta_build(snapshot)?;
        if let Some(delta) = snapshot.delta(tree)? {
            return Ok(Some((delta, SnapshotCost::Nothing)));
        }
        let build = |before: Option<&ReusableDelta>| {
            delta::build(&site, &self.objects, (snapshot, before), (commit, tree), &differences)
        };
        let delta = match self.store.last_delta(snapshot)?.as_ref().and_then(ReusableDelta::of) {
            // Not every filesystem lets a file have two names.
            Some(before) => build(Some(&before)).or_else(|_| {
                site.sweep();
                build(None)
            })?,
            None => build(None)?,
        };
        site.collect(self.tuning.keep_deltas)?;
        Ok(Some((delta, SnapshotCost::Delta)))
    }

    fn stack(
        &self,
        commit: String,
        snapshot: LockedLayer,
        delta: Option<LockedLayer>,
        made: SnapshotCost,
    ) -> SnapshotLayers {
        let top = delta.as_ref().unwrap_or(&snapshot);
        // Git checked these names, and so did we when the layer was written.
        let submodules = top.submodules.iter().filter_map(|path| RelPath::parse(path).ok()).collect();
        let tree = top.tree();
        let (files, place) = (top.facts.files, index_extensions::place_of(&top.path));
        let lowers = delta.iter().chain([&snapshot]).map(LockedLayer::layer).collect();
        let held = [Some(snapshot.lock), delta.map(|delta| delta.lock)].into_iter().flatten().collect();
        SnapshotLayers { lowers, commit, tree, submodules, made, files, place, _held: held }
    }

    /// Removes unused layers, except those used last, and makes the others survive a crash of the
    /// machine. Returns how many snapshots and deltas it removed. Both may take long; no attempt has to wait for it.
    pub fn collect(&self) -> SnapshotResult<usize> {
        let site = self.store.lock_for_build()?;
        let mut removed = site.collect(self.tuning.keep_snapshots)?;
        for tree in self.store.recent() {
            if let Some(snapshot) = self.store.snapshot_without_use(&tree)? {
                removed += self.store.lock_for_delta_build(&snapshot)?.collect(self.tuning.keep_deltas)?;
            }
        }
        self.store.sync_layers(&site)?;
        Ok(removed)
    }

    /// Removes what a loss of power may have spoilt: layers of snapshots and of setups that were never synced and that
    /// no process uses. For a process that begins to work in a state folder alone.
    pub fn remove_unsynced(state: &StateFolder) -> SnapshotResult<()> {
        for name in ["snapshots", "setup"] {
            let path = state.path().join(name);
            if path.is_dir() {
                let store = SnapshotStore::open(path)?;
                store.remove_unsynced(&store.lock_for_plain_build()?)?;
            }
        }
        Ok(())
    }

    /// Makes the layers that are there survive a crash of the machine.
    pub fn sync_layers(state: &StateFolder) -> SnapshotResult<()> {
        let path = state.path().join("snapshots");
        if !path.is_dir() {
            return Ok(());
        }
        let store = SnapshotStore::open(path)?;
        store.sync_layers(&store.lock_for_plain_build()?)
    }

    /// The workspace of one run over these layers, which must outlive it. `root` is the work tree's real
    /// path: the agent sees its workspace there, so that absolute paths mean the same to it as to a person.
    pub fn workspace(
        &self,
        layers: &SnapshotLayers,
        root: &Path,
        run: &RunFolder,
    ) -> SnapshotResult<Workspace> {
        let long = index_extensions::is_large_enough(layers.files);
        let (added, objects) = run_layer::additions(root, &self.objects, &layers.commit, long)?;
        let overlay = Overlay {
            lowers: layers.lowers.clone(),
            // On disk: what an agent did must outlive the process that started it.
            layer: WriteLayer::Disk { upper: run.path().join("upper"), work: run.path().join("work") },
            at: root.to_owned(),
            added,
            user_xattr: !rustix::process::geteuid().is_root(),
        };
        let mut scratch = self.ignored(layers).directories();
        scratch.push(RelPath::root().join(b".git"));
        Ok(Workspace {
            path: root.to_owned(),
            overlays: vec![overlay],
            scratch,
            stores: Vec::new(),
            // Nothing is there that is not in the tree, and so in its history.
            hidden: Vec::new(),
            lent: objects.iter().map(|shown| shown.source.clone()).collect(),
            objects,
            live: Vec::new(),
            outbox: None,
            index: long.then(|| LongIndex {
                names: self.objects.format.bytes(),
                knows_the_place: layers.place.as_deref() == Some(root),
                submodules: layers.submodules.clone(),
            }),
            answering: None,
            state: self.state.path().to_owned(),
            state_home: self.state.home().to_owned(),
            owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
        })
    }

    /// What the tree's own rules call scratch.
    pub fn ignored(&self, layers: &SnapshotLayers) -> IgnoreRules {
        let exclude = self.objects.repository.common.join("info/exclude");
        IgnoreRules::new(layers.lowers.clone(), Some(exclude))
    }
}

impl SnapshotLayers {
    /// The layers as the one tree they show.
    fn open(&self) -> io::Result<BaseLayers> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |lower: &PathBuf| rustix::fs::open(lower, flags, Mode::empty());
        Ok(BaseLayers::new(self.lowers.iter().map(open).collect::<Result<_, _>>()?))
    }

    /// Whether a path of the tree is a submodule's.
    pub fn is_submodule(&self, path: &RelPath) -> bool {
        self.submodules.binary_search(path).is_ok()
    }
}
