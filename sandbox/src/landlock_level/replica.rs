//! The private copy an agent works on where nothing can be mounted.
//!
//! Everything the workspace's layers show is copied, block by block where the file system shares blocks; what
//! is out of sight is left out, and so are git's objects, which are borrowed from where they are. What the
//! copy looked like is kept ([`super::copy_to_upper`] compares with it when the agent is done).

#![allow(clippy::disallowed_methods, reason = "opens our own copy")]

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::copy_to_upper::ReplicaManifest;
use crate::harvest::{BaseLayers, tree};
use crate::path::RelPath;
use crate::tree_copy::{TreeCopy, open};
use crate::workspace::state::RunFolder;
use crate::workspace::{self, LayerAddition, Overlay, Workspace};
use crate::writable_directories::WritableDirectories;

/// The folders of one run. They go with the run's own.
#[derive(Debug)]
pub(crate) struct Replica {
    /// The workspace.
    pub(crate) tree: PathBuf,
    /// The repository of a linked worktree, which lies elsewhere.
    pub(crate) repository: Option<PathBuf>,
    /// Folders of git objects that are read where they are.
    pub(crate) objects: Vec<PathBuf>,
    pub(crate) home: PathBuf,
    pub(crate) tmp: PathBuf,
    /// What the tree looked like when the agent got it.
    pub(crate) manifest: ReplicaManifest,
    /// Where what it changed is collected.
    pub(crate) upper: PathBuf,
}

impl Replica {
    /// Copies a workspace. `agent` is whose the copy will be, where that is not the caller.
    pub(crate) fn make(
        workspace: &Workspace,
        opening: &WritableDirectories,
        hidden: &HashSet<RelPath>,
        run: &RunFolder,
        agent: Option<(u32, u32)>,
        seen: ReplicaLocation,
    ) -> io::Result<Self> {
        run.make()?;
        let place = |name: &str| run.path().join(name);
        let mut replica = Self {
            tree: place(workspace::TREE),
            repository: (workspace.overlays.len() > 1).then(|| place("repository")),
            objects: Vec::new(),
            home: place("home"),
            tmp: place("tmp"),
            manifest: ReplicaManifest::default(),
            upper: place("upper"),
        };
        let folders = [Some(&replica.tree), replica.repository.as_ref()];
        for (overlay, folder) in workspace.overlays.iter().zip(folders.into_iter().flatten()) {
            let sources = workspace.lent.clone();
            let left_out = hidden.iter().chain(&workspace.live).cloned().collect();
            let lent = BorrowedObjects { sources, before: replica.objects.len(), seen };
            let borrowed = copy_overlay(overlay, folder, &left_out, lent, agent)?;
            replica.objects.extend(borrowed);
        }
        for path in &workspace.live {
            copy_live(&workspace.path, path, &replica.tree, agent)?;
        }
        if let Some(outbox) = &workspace.outbox {
            folder(&outbox.source, 0o700, agent)?;
        }
        if let (Some(repository), Some(overlay), ReplicaLocation::AsItIs) =
            (&replica.repository, workspace.overlays.get(1), seen)
        {
            link_worktree(&replica.tree, repository, &overlay.at, agent)?;
        }
        for path in &opening.make {
            let path = replica.tree.join(path.as_path());
            if !path.is_dir() {
                folder(&path, 0o755, agent)?;
            }
        }
        folder(&replica.home, 0o700, agent)?;
        folder(&replica.tmp, 0o700, agent)?;
        folder(&replica.upper, 0o700, None)?;
        replica.manifest = ReplicaManifest::record(open(&replica.tree)?.as_fd())?;
        Ok(replica)
    }

    /// Whether there is a directory, with no link on the way: a mount follows links, to anywhere.
    pub(crate) fn has_directory(&self, inside: &Path) -> bool {
        let Ok(path) = RelPath::parse(inside.as_os_str().as_encoded_bytes()) else { return false };
        open(&self.tree).is_ok_and(|tree| tree::open_directory(tree.as_fd(), &path).is_ok())
    }

    /// Puts a small file into the agent's home.
    pub(crate) fn write_note(&self, name: &str, contents: &str) -> io::Result<()> {
        let path = self.home.join(name);
        fs::write(&path, contents)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))
    }

    /// The workspace as the agent sees it.
    pub(crate) fn seen(&self, workspace: &Workspace) -> Workspace {
        let mut seen = workspace.clone();
        seen.path.clone_from(&self.tree);
        let places = [Some(&self.tree), self.repository.as_ref()];
        for (overlay, place) in seen.overlays.iter_mut().zip(places.into_iter().flatten()) {
            overlay.at.clone_from(place);
        }
        seen
    }
}

fn folder(path: &Path, mode: u32, agent: Option<(u32, u32)>) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    match agent {
        Some((uid, gid)) => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

/// Where the agent sees the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplicaLocation {
    /// Where it is.
    AsItIs,
    /// Mounted where the workspace is. What it borrows lies in this folder, by number.
    InPlace { objects: &'static str },
}

/// Folders of git objects that a copy may borrow from.
struct BorrowedObjects {
    sources: Vec<PathBuf>,
    /// How many others were lent before.
    before: usize,
    seen: ReplicaLocation,
}

/// One overlay's layers as a plain folder. Returns the folders of git objects it borrows.
fn copy_overlay(
    overlay: &Overlay,
    into: &Path,
    hidden: &HashSet<RelPath>,
    lent: BorrowedObjects,
    agent: Option<(u32, u32)>,
) -> io::Result<Vec<PathBuf>> {
    let lowers: Vec<OwnedFd> = overlay.lowers.iter().map(|lower| open(lower)).collect::<Result<_, _>>()?;
    let base = BaseLayers::new(lowers);
    folder(into, 0o700, agent)?;
    let target = open(into)?;
    let mut left_out = hidden.clone();
    left_out.extend(overlay.added.iter().filter_map(|added| match added {
        LayerAddition::Absence(path) => Some(path.clone()),
        LayerAddition::Directory(_) | LayerAddition::File(..) => None,
    }));
    // A repository: the workspace's own, or the folder as a whole.
    let git = [RelPath::root().join(b".git"), RelPath::root()]
        .into_iter()
        .find(|git| base.directory_exists(&git.join(b"objects")) && base.leaf_exists(&git.join(b"HEAD")));
    let objects = git.map(|git| git.join(b"objects"));
    let mut sources = lent.sources;
    // To borrow, the agent must be able to read there; root's agent has no rights on the host, and may not.
    let readable = agent.is_none() || sources.iter().all(|source| is_readable_by_others(source));
    let borrows = objects.is_some() && !sources.is_empty() && readable;
    if let (true, Some(objects)) = (borrows, &objects) {
        left_out.insert(objects.clone());
    } else {
        sources.clear();
    }
    let copy = TreeCopy { base: &base, target: target.as_fd(), left_out, agent };
    copy.everything()?;
    if let (true, Some(objects)) = (borrows, &objects) {
        for name in ["", "info", "pack"] {
            folder(&into.join(objects.as_path()).join(name), 0o755, agent)?;
        }
        let list: Vec<u8> = sources.iter().enumerate().fold(Vec::new(), |mut list, (index, source)| {
            let source = match lent.seen {
                ReplicaLocation::InPlace { objects } => {
                    Path::new(objects).join((lent.before + index).to_string())
                }
                ReplicaLocation::AsItIs => source.clone(),
            };
            list.extend_from_slice(source.as_os_str().as_encoded_bytes());
            list.push(b'\n');
            list
        });
        copy.write(&objects.join(b"info").join(b"alternates"), &list)?;
    }
    for added in &overlay.added {
        match added {
            LayerAddition::Directory(path) => copy.directories_to(path)?,
            LayerAddition::File(path, contents) => {
                if let Some(parent) = path.parent() {
                    copy.directories_to(&parent)?;
                }
                // What lends the private repository its objects was decided above.
                if !path.as_bytes().ends_with(b"objects/info/alternates") {
                    copy.write(path, contents)?;
                }
            }
            LayerAddition::Absence(_) => {}
        }
    }
    Ok(sources)
}

/// A folder of the real work tree, as it is now. There may be a link on the way, to anywhere on the host;
/// that is an error.
fn copy_live(root: &Path, path: &RelPath, tree: &Path, agent: Option<(u32, u32)>) -> io::Result<()> {
    let real = tree::open_directory(open(root)?.as_fd(), path)?;
    let (base, target) = (BaseLayers::new(vec![real]), open(&tree.join(path.as_path()))?);
    TreeCopy { base: &base, target: target.as_fd(), left_out: HashSet::new(), agent }.everything()
}

/// Whether a user without any rights can read a folder: every one above it must let that user pass.
fn is_readable_by_others(path: &Path) -> bool {
    let mode = |path: &Path| path.metadata().map_or(0, |meta| meta.permissions().mode());
    mode(path) & 0o005 == 0o005 && path.ancestors().skip(1).all(|above| mode(above) & 0o001 != 0)
}

/// A linked worktree and its repository name each other by path: here by the paths of the copies.
fn link_worktree(tree: &Path, repository: &Path, real: &Path, agent: Option<(u32, u32)>) -> io::Result<()> {
    let file = tree.join(".git");
    let text = fs::read_to_string(&file)?;
    let named = PathBuf::from(text.trim().strip_prefix("gitdir:").unwrap_or_default().trim());
    let named = named.canonicalize().unwrap_or(named);
    let Ok(inside) = named.strip_prefix(real) else { return Ok(()) };
    let own = repository.join(inside);
    for (path, contents) in [
        (file.clone(), format!("gitdir: {}\n", own.display())),
        (own.join("gitdir"), format!("{}\n", file.display())),
        (own.join("commondir"), format!("{}\n", repository.display())),
    ] {
        // What was copied there may be a link.
        fs::remove_file(&path)?;
        let mut file = fs::File::options().write(true).create_new(true).mode(0o644).open(&path)?;
        file.write_all(contents.as_bytes())?;
        if let Some((uid, gid)) = agent {
            std::os::unix::fs::fchown(&file, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}
