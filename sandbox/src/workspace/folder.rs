//! A workspace over a live folder.
//!
//! The folder itself is the lower layer. That makes starting cheap and shows the agent what the person sees,
//! uncommitted work included; the price is that the person may change a file meanwhile, so applying refuses
//! every path whose own copy changed since the start.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::path::RelPath;
use crate::workspace::ignored::Ignored;
use crate::workspace::state::{Run, State};
use crate::workspace::{Added, Layer, Overlay, Workspace, private_git};

/// A folder somebody wants a command to run in.
#[derive(Debug)]
pub struct Folder {
    /// The repository's root, or the folder itself where there is none.
    pub root: PathBuf,
    /// Where in it the command runs.
    pub start: RelPath,
    pub repository: Option<Repository>,
}

/// A repository, as far as a sandbox cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// `.git`, or what it points at.
    pub git: PathBuf,
    /// Where objects and branches are; for a linked worktree, the main repository's.
    pub common: PathBuf,
}

/// Why a folder can't be worked on.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("can't find the folder {}", path.display())]
    Missing { path: PathBuf, source: io::Error },
    #[error("the whole file system can't be a workspace; change to a folder first")]
    Root,
    #[error("the name of {} can't be used: {reason}", path.display())]
    Name { path: PathBuf, reason: crate::path::PathError },
    #[error("can't write the state of this run in {}", path.display())]
    State { path: PathBuf, source: io::Error },
}

impl Folder {
    /// The workspace around `current`.
    pub fn around(current: &Path) -> Result<Self, FolderError> {
        let missing = |source| FolderError::Missing { path: current.to_owned(), source };
        let current = current.canonicalize().map_err(missing)?;
        if current == Path::new("/") {
            return Err(FolderError::Root);
        }
        let found = current.ancestors().find_map(|folder| Some((folder, repository_of(folder)?)));
        let (root, repository) = match found {
            Some((root, repository)) => (root.to_owned(), Some(repository)),
            None => (current.clone(), None),
        };
        let start = current.strip_prefix(&root).unwrap_or(Path::new(""));
        let start = RelPath::parse(start.as_os_str().as_bytes())
            .map_err(|reason| FolderError::Name { path: current.clone(), reason })?;
        Ok(Self { root, start, repository })
    }

    /// Where its runs keep their files.
    pub fn state(&self, user_state: &Path) -> Result<State, FolderError> {
        let (state, path) = match &self.repository {
            Some(repository) => (State::in_repository(&repository.common), repository.common.clone()),
            None => (State::for_folder(user_state, &self.root), user_state.to_owned()),
        };
        state.map_err(|source| FolderError::State { path, source })
    }

    pub fn ignored(&self) -> Ignored {
        let exclude = self.repository.as_ref().map(|repository| repository.common.join("info/exclude"));
        Ignored::new(vec![self.root.clone()], exclude)
    }

    /// The layers of one run. With `in_memory`, what the agent changes is caught there, and only scratch is
    /// put on disk.
    pub fn workspace(
        &self,
        run: &Run,
        ignored: &Ignored,
        state: &State,
        in_memory: bool,
    ) -> Result<Workspace, FolderError> {
        let failed = |source| FolderError::State { path: self.root.clone(), source };
        let owner = fs::metadata(&self.root).map_err(failed)?;
        let user_xattr = !rustix::process::geteuid().is_root();
        let on_disk = |name: &str| Layer::Disk {
            upper: run.path().join(format!("{name}-upper")),
            work: run.path().join(format!("{name}-work")),
        };
        let overlay = |name: &str, lower: &Path| Overlay {
            lowers: vec![lower.to_owned()],
            layer: if in_memory { Layer::Memory } else { on_disk(name) },
            at: lower.to_owned(),
            added: Vec::new(),
            user_xattr,
        };
        let mut overlays = vec![overlay("folder", &self.root)];
        let (mut scratch, mut stores) = (ignored.directories(), Vec::new());
        if in_memory {
            for (number, path) in scratch.drain(..).enumerate() {
                let at = self.root.join(path.as_path());
                let exists = at.is_dir();
                stores.push(Overlay {
                    lowers: exists.then(|| at.clone()).into_iter().collect(),
                    layer: on_disk(&format!("scratch{number}")),
                    at,
                    added: Vec::new(),
                    user_xattr,
                });
                if !exists {
                    overlays[0].added.push(Added::Directory(path));
                }
            }
        }
        if let Some(repository) = &self.repository {
            let common = &repository.common;
            let inside = common.strip_prefix(&self.root).ok();
            match inside.and_then(|path| RelPath::parse(path.as_os_str().as_bytes()).ok()) {
                Some(inside) => {
                    overlays[0].added.extend(private_git::additions(common, &inside));
                    scratch.push(inside);
                }
                // A linked worktree's repository lies elsewhere.
                None => {
                    let mut private = overlay("git", common);
                    private.added = private_git::additions(common, &RelPath::root());
                    overlays.push(private);
                }
            }
        }
        Ok(Workspace {
            path: self.root.clone(),
            overlays,
            scratch,
            stores,
            hidden: ignored.secrets(),
            objects: Vec::new(),
            live: Vec::new(),
            outbox: None,
            index: None,
            answering: None,
            state: state.path().to_owned(),
            owner: (owner.uid(), owner.gid()),
        })
    }
}

/// The repository whose root this folder is.
fn repository_of(folder: &Path) -> Option<Repository> {
    let entry = folder.join(".git");
    let kind = entry.symlink_metadata().ok()?.file_type();
    let git = if kind.is_dir() {
        entry
    } else if kind.is_file() {
        let text = fs::read_to_string(&entry).ok()?;
        folder.join(text.trim().strip_prefix("gitdir:")?.trim()).canonicalize().ok()?
    } else {
        return None;
    };
    if git.join("HEAD").symlink_metadata().is_err() {
        return None;
    }
    let common = match fs::read_to_string(git.join("commondir")) {
        Ok(text) => git.join(text.trim()).canonicalize().ok()?,
        Err(_) => git.clone(),
    };
    Some(Repository { git, common })
}
