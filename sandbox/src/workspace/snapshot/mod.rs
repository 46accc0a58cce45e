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
//! Layers never change. Who uses one holds it ([`Layers`]), and garbage collection removes only what nobody
//! holds (`store`).

mod checkout;
mod delta;
mod error;
mod head;
mod index;
mod known;
mod layer;
mod manifest;
mod objects;
mod setup;
mod store;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use self::error::Result;
use self::manifest::Source;
use self::objects::Objects;
use self::store::{Held, Store};
use crate::harvest::Base;
use crate::path::RelPath;
use crate::workspace::folder::Repository;
use crate::workspace::ignored::Ignored;
use crate::workspace::state::{Run, State};
use crate::workspace::{Layer, LongIndex, Overlay, Workspace};

pub use self::error::SnapshotError;
pub use self::index::IndexError;
pub use self::setup::{Key, Prepared, Recipe, Setups, Turn};

/// When a moved base becomes a new snapshot, and how many layers are kept for later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// A delta has at most so many paths ...
    pub delta_paths: usize,
    /// ... and at most this part of the snapshot's files, in percent, ...
    pub delta_percent: usize,
    /// ... but may always have so many: a small repository is not worth a snapshot for each commit.
    pub delta_always: usize,
    /// Snapshots that stay when nobody uses them, those used last.
    pub keep_snapshots: usize,
    /// Deltas of one snapshot that stay when nobody uses them.
    pub keep_deltas: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        // Every landing makes a delta longer, whose files later ones have to name again, until it is a snapshot, whose
        // files are written. Writing costs several times as much as naming, and far more where many files were just
        // removed, so the snapshot comes late: after about five times the root of the files.
        Self { delta_paths: 2000, delta_percent: 12, delta_always: 200, keep_snapshots: 2, keep_deltas: 4 }
    }
}

impl Tuning {
    fn largest_delta(&self, files: usize) -> usize {
        self.delta_paths.min(files.saturating_mul(self.delta_percent) / 100).max(self.delta_always)
    }
}

/// The snapshots of a repository.
#[derive(Debug)]
pub struct Snapshots {
    store: Store,
    objects: Objects,
    tuning: Tuning,
    state: State,
}

/// The tree of a commit, as layers. They stay as they are for as long as this lives.
#[derive(Debug)]
pub struct Layers {
    /// Topmost first.
    pub lowers: Vec<PathBuf>,
    pub commit: String,
    pub tree: String,
    /// Submodules, each an empty folder. What they hold is another repository's.
    pub submodules: Vec<RelPath>,
    /// What had to be made for it.
    pub made: Made,
    /// How many files, about.
    files: usize,
    /// The work tree that its index speaks of, where it says what git need not look at.
    place: Option<PathBuf>,
    /// Shared locks; garbage collection needs them for itself.
    _held: Vec<File>,
}

/// How much work a request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// All of it was there.
    Nothing,
    Delta,
    Snapshot,
}

impl Snapshots {
    /// `git` is a program's path or its name.
    pub fn open(state: &State, repository: &Repository, git: &Path) -> Result<Self> {
        repository.check_objects()?;
        let store = Store::open(state.path().join("snapshots"))?;
        let objects = Objects::open(git, &store.git(), repository)?;
        if !objects.is_created() {
            objects.create(git, &store.building()?)?;
        }
        Ok(Self { store, objects, tuning: Tuning::default(), state: state.clone() })
    }

    pub fn with_tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning;
        self
    }

    /// The layers that show the tree of a commit, made if need be. When two want the same at once, one makes
    /// it and the other waits.
    pub fn layers(&self, rev: &str) -> Result<Layers> {
        let (commit, tree) = self.objects.resolve(rev)?;
        if let Some(layers) = self.reuse(&commit, &tree)? {
            return Ok(layers);
        }
        let site = self.store.building()?;
        // Whoever had the lock before may have made just this, or something near.
        if let Some(layers) = self.reuse(&commit, &tree)? {
            return Ok(layers);
        }
        let snapshot = checkout::build(&site, &self.objects, &commit, &tree)?;
        site.collect(self.tuning.keep_snapshots)?;
        Ok(self.stack(commit, snapshot, None, Made::Snapshot))
    }

    /// Layers on a snapshot that is there: the tree's own, or one that differs little.
    fn reuse(&self, commit: &str, tree: &str) -> Result<Option<Layers>> {
        if let Some(snapshot) = self.store.snapshot(tree)? {
            return Ok(Some(self.stack(commit.to_owned(), snapshot, None, Made::Nothing)));
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
    fn delta(&self, snapshot: &Held, commit: &str, tree: &str) -> Result<Option<(Held, Made)>> {
        if let Some(delta) = snapshot.delta(tree)? {
            return Ok(Some((delta, Made::Nothing)));
        }
        let limit = self.tuning.largest_delta(snapshot.facts.files);
        let Some(differences) = self.objects.differences(&snapshot.tree(), tree, limit)? else {
            return Ok(None);
        };
        let site = self.store.building_delta(snapshot)?;
        if let Some(delta) = snapshot.delta(tree)? {
            return Ok(Some((delta, Made::Nothing)));
        }
        let build = |before: Option<&Source>| {
            delta::build(&site, &self.objects, (snapshot, before), (commit, tree), &differences)
        };
        let delta = match self.store.last_delta(snapshot)?.as_ref().and_then(Source::of) {
            // Not every filesystem lets a file have two names.
            Some(before) => build(Some(&before)).or_else(|_| {
                site.sweep();
                build(None)
            })?,
            None => build(None)?,
        };
        site.collect(self.tuning.keep_deltas)?;
        Ok(Some((delta, Made::Delta)))
    }

    fn stack(&self, commit: String, snapshot: Held, delta: Option<Held>, made: Made) -> Layers {
        let top = delta.as_ref().unwrap_or(&snapshot);
        // Git checked these names, and so did we when the layer was written.
        let submodules = top.submodules.iter().filter_map(|path| RelPath::parse(path).ok()).collect();
        let tree = top.tree();
        let (files, place) = (top.facts.files, known::place_of(&top.path));
        let lowers = delta.iter().chain([&snapshot]).map(Held::layer).collect();
        let held = [Some(snapshot.lock), delta.map(|delta| delta.lock)].into_iter().flatten().collect();
        Layers { lowers, commit, tree, submodules, made, files, place, _held: held }
    }

    /// Removes what nobody uses, except what was used last, and makes what stays survive a crash of the
    /// machine. Says how many snapshots and deltas went. Both may take long; no attempt has to wait for it.
    pub fn collect(&self) -> Result<usize> {
        let site = self.store.building()?;
        let mut removed = site.collect(self.tuning.keep_snapshots)?;
        for tree in self.store.recent() {
            if let Some(snapshot) = self.store.snapshot_quietly(&tree)? {
                removed += self.store.building_delta(&snapshot)?.collect(self.tuning.keep_deltas)?;
            }
        }
        self.store.settle(&site)?;
        Ok(removed)
    }

    /// Removes what a loss of power may have spoilt: layers that were never synced and that nobody uses, of snapshots and
    /// of setups. For whoever begins to work in a state folder alone.
    pub fn distrust(state: &State) -> Result<()> {
        for name in ["snapshots", "setup"] {
            let path = state.path().join(name);
            if path.is_dir() {
                let store = Store::open(path)?;
                store.remove_unsynced(&store.building_plain()?)?;
            }
        }
        Ok(())
    }

    /// Makes the layers that are there survive a crash of the machine.
    pub fn settle(state: &State) -> Result<()> {
        let path = state.path().join("snapshots");
        if !path.is_dir() {
            return Ok(());
        }
        let store = Store::open(path)?;
        store.settle(&store.building_plain()?)
    }

    /// The workspace of one run over these layers, which must outlive it. `root` is the work tree's real
    /// path: the agent sees its workspace there, so that absolute paths mean the same to it as to a person.
    pub fn workspace(&self, layers: &Layers, root: &Path, run: &Run) -> Result<Workspace> {
        let long = known::is_worth_it(layers.files);
        let (added, objects) = head::additions(root, &self.objects, &layers.commit, long)?;
        let overlay = Overlay {
            lowers: layers.lowers.clone(),
            // On disk: what an agent did must outlive whoever started it.
            layer: Layer::Disk { upper: run.path().join("upper"), work: run.path().join("work") },
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
    pub fn ignored(&self, layers: &Layers) -> Ignored {
        let exclude = self.objects.repository.common.join("info/exclude");
        Ignored::new(layers.lowers.clone(), Some(exclude))
    }
}

impl Layers {
    /// The layers as the one tree they show.
    fn open(&self) -> io::Result<Base> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |lower: &PathBuf| rustix::fs::open(lower, flags, Mode::empty());
        Ok(Base::new(self.lowers.iter().map(open).collect::<std::result::Result<_, _>>()?))
    }

    /// Whether a path of the tree is a submodule's.
    pub fn is_submodule(&self, path: &RelPath) -> bool {
        self.submodules.binary_search(path).is_ok()
    }
}
