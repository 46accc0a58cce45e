//! The workspace: what the agent works on, as layers.
//!
//! We never change the lower layers, which are not the agent's; what the agent writes lands in an upper
//! layer of its own, which is judged afterwards ([`crate::harvest`]) and thrown away. A [`folder`] workspace
//! lies over a live folder, a [`snapshot`] workspace over the tree of a commit; a [`prepare`] is either.

pub mod folder;
pub(crate) mod git_config;
pub mod ignore_rules;
pub mod ownership;
pub mod prepare;
pub mod private_git;
pub mod repository;
mod run_folder;
pub mod snapshot;
pub mod state;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::control::Control;
use crate::path::RelPath;
use crate::policy::{IsolationLevel, Policy};
use crate::scope::{Scope, ScopeVerdict};
use crate::workspace::snapshot::SetupLayer;
use crate::workspace::state::RunFolder;
use crate::writable_directories::WritableDirectories;
pub(crate) use run_folder::TREE;

/// The program of `core.fsmonitor` in a workspace: git starts this name. A shell reads it as one word.
pub(crate) const FSMONITOR_PROGRAM: &str = "/run/agency-git/changed";
/// The only token that git's question about changes has here: a snapshot never changes.
pub(crate) const FSMONITOR_TOKEN: &str = "agency:commit";

/// One overlay: layers, and where the agent sees them.
#[derive(Debug, Clone)]
pub struct Overlay {
    /// Topmost first.
    pub lowers: Vec<PathBuf>,
    pub layer: WriteLayer,
    pub at: PathBuf,
    /// What we put over the lower layers, in a layer in memory: the agent sees it, the host never does.
    pub added: Vec<LayerAddition>,
    /// Overlays an ordinary user mounts keep their marks in `user.*` attributes.
    pub user_xattr: bool,
}

/// Where what the agent writes is caught.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteLayer {
    /// In the sandbox's own memory, which has a size. Nothing to make, nothing to remove.
    Memory,
    /// In these folders, which are made with the sandbox and must be on one file system.
    Disk { upper: PathBuf, work: PathBuf },
}

/// One thing put over the lower layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerAddition {
    Directory(RelPath),
    File(RelPath, Vec<u8>),
    /// Hides all that the lower layers have there.
    Absence(RelPath),
}

/// A folder of the host that is seen somewhere else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderMount {
    /// The real one.
    pub source: PathBuf,
    /// Where the agent sees it.
    pub at: PathBuf,
}

/// What there is to know of a long index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongIndex {
    /// Bytes of an object's name.
    pub names: usize,
    /// It says of each folder of this very work tree that nothing else is in it.
    pub knows_the_place: bool,
    /// Of other repositories, about which this index says nothing.
    pub submodules: Vec<RelPath>,
}

/// Everything a sandbox needs to know of a workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    /// The root, as the agent sees it.
    pub path: PathBuf,
    /// The first is the workspace itself.
    pub overlays: Vec<Overlay>,
    /// Directories that are writable and never harvested.
    pub scratch: Vec<RelPath>,
    /// Scratch that is kept out of the workspace's layer, because it may grow large while that is in memory.
    /// One without lower layers is just its folder.
    pub stores: Vec<Overlay>,
    /// Paths that are out of sight.
    pub hidden: Vec<RelPath>,
    /// Folders of git objects that the private repository borrows from, bound read-only once the overlays are
    /// there, their owner seen as the agent like that of the lower layers. `at` is inside an overlay or
    /// outside the workspace, and is only there after it was made.
    pub objects: Vec<FolderMount>,
    /// The real folders of git objects, each of them judged, for levels that work on a copy and borrow from there.
    pub lent: Vec<PathBuf>,
    /// Folders of the real work tree that lie over those of the layers, read-only and as they are at any
    /// moment: what a commit does not have yet. Each is where `path` has it.
    pub live: Vec<RelPath>,
    /// A folder outside the tree that is the agent's own, and is read when it has ended.
    pub outbox: Option<FolderMount>,
    /// An index so long that git should not look at everything it names.
    pub index: Option<LongIndex>,
    /// The program that tells git what changed instead.
    pub answering: Option<PathBuf>,
    /// Where runs keep their files.
    pub state: PathBuf,
    /// Where all state of this user lies. It must not be visible.
    pub state_home: PathBuf,
    /// User and group the lower layers' files belong to.
    pub owner: (u32, u32),
}

/// Where an agent that has a view of its own finds its outbox.
const OUTBOX: &str = "/run/agency";

impl Workspace {
    /// Puts what a setup left over the tree, and under everything else. It must be held for as long as this is used.
    pub fn with_setup(mut self, setup: &SetupLayer) -> Self {
        if let Some(overlay) = self.overlays.first_mut() {
            overlay.lowers.insert(0, setup.layer().to_owned());
        }
        self
    }

    /// Shows a folder of the real work tree as it is at any moment.
    pub fn with_live(mut self, folder: RelPath) -> Self {
        // It is mounted over this, which a commit need not have.
        if let Some(overlay) = self.overlays.first_mut() {
            overlay.added.push(LayerAddition::Directory(folder.clone()));
        }
        self.live.push(folder);
        self
    }

    /// Gives the agent a folder for what it has to say. It lies in the run's own, and goes with it.
    pub fn with_outbox(mut self, level: IsolationLevel, run: &RunFolder) -> Self {
        let source = run.path().join("outbox");
        let at = if level.moves_workspace() { source.clone() } else { PathBuf::from(OUTBOX) };
        self.outbox = Some(FolderMount { source, at });
        self
    }

    /// Lets git ask which files changed, if there are so many that looking takes long. This very program answers when it is
    /// started by the name of `FSMONITOR_PROGRAM`.
    pub fn with_fsmonitor(mut self, policy: &Policy) -> Self {
        // A copy has no layers to tell from, and with the host's /run there is no place for it.
        let possible = policy.level == IsolationLevel::Process && policy.requires(Control::HiddenPaths);
        let Some(index) = self.index.as_ref().filter(|_| possible) else { return self };
        let program = std::env::current_exe().ok().filter(|program| anybody_can_run(program));
        let Some(program) = program else { return self };
        let mut settings =
            format!("[core]\n\tfsmonitor = {}\n\tfsmonitorHookVersion = 2\n", FSMONITOR_PROGRAM);
        if index.knows_the_place {
            // Written again only when git writes the index anyway.
            settings.push_str("\tuntrackedCache = keep\n");
        }
        let config = RelPath::root().join(b".git").join(b"config");
        let added = self.overlays.first_mut().map(|overlay| overlay.added.iter_mut()).into_iter().flatten();
        for one in added {
            if let LayerAddition::File(path, contents) = one
                && *path == config
            {
                contents.extend_from_slice(settings.as_bytes());
                self.answering = Some(program.clone());
            }
        }
        self
    }

    /// Where the agent finds the workspace.
    pub fn path_in_sandbox(&self, level: IsolationLevel, run: &RunFolder) -> PathBuf {
        if level.moves_workspace() { run.path().join(TREE) } else { self.path.clone() }
    }

    /// Where what was left in scratch is found: an overlay has it in its upper layer, a copy where it is.
    pub fn scratch_upper(level: IsolationLevel, run: &RunFolder) -> PathBuf {
        run.path().join(if level.copies_workspace() { TREE } else { "upper" })
    }

    /// What the agent is not to see of it: its own hidden paths, and those of a policy's that lie in it.
    pub fn hidden_paths<'a>(&'a self, hide: &'a [PathBuf]) -> impl Iterator<Item = RelPath> + 'a {
        let named = hide.iter().filter_map(|path| {
            let inside = path.strip_prefix(&self.path).ok()?;
            RelPath::parse(inside.as_os_str().as_encoded_bytes()).ok()
        });
        named.chain(self.hidden.iter().cloned())
    }

    /// The stores a scope leaves open: one whose content it denies stays as closed as the folder around it.
    pub(crate) fn open_stores<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a Overlay> {
        self.stores.iter().filter(|store| {
            let inside = store.at.strip_prefix(&self.path).map(|path| path.as_os_str().as_encoded_bytes());
            let inside = inside.ok().and_then(|path| RelPath::parse(path).ok());
            !inside
                .is_some_and(|path| matches!(scope.judge(&path.join(b"anything")), ScopeVerdict::Denied(_)))
        })
    }

    /// Every place the agent may write: the opened directories, the repository of a linked worktree, scratch.
    pub(crate) fn writable(&self, opening: &WritableDirectories, scope: &Scope) -> Vec<PathBuf> {
        let opened = opening.open.iter().map(|path| match path.is_root() {
            true => self.path.clone(),
            false => self.path.join(path.as_path()),
        });
        let others = self.overlays.iter().skip(1).chain(self.open_stores(scope));
        let outbox = self.outbox.iter().map(|outbox| outbox.at.clone());
        opened.chain(others.map(|overlay| overlay.at.clone())).chain(outbox).collect()
    }
}

/// Whether the agent, which is another user, can run a program.
fn anybody_can_run(program: &Path) -> bool {
    program.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o005 == 0o005)
}
