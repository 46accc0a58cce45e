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
use crate::untrusted::UntrustedError;
use crate::workspace::ignore_rules::IgnoreRules;
use crate::workspace::ownership::{self, RepositoryOwnership};
use crate::workspace::repository::RepositoryError;
use crate::workspace::state::{LEGACY, RunFolder, StateError, StateFolder, StateHome};
use crate::workspace::{FolderMount, LayerAddition, Overlay, Workspace, WriteLayer, private_git};

pub use crate::workspace::repository::RepositoryPaths;

/// A folder in which a user wants to run a command.
#[derive(Debug)]
pub struct WorkspaceFolder {
    /// The repository's root, or the folder itself where there is none.
    pub root: PathBuf,
    /// Where in it the command runs.
    pub start: RelPath,
    pub repository: Option<RepositoryPaths>,
    /// How the repository is owned.
    pub custody: RepositoryOwnership,
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
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error(transparent)]
    File(#[from] UntrustedError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error("can't look at {}", path.display())]
    Unseen { path: PathBuf, source: io::Error },
}

impl FolderError {
    /// What a person can do about it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Repository(error) => error.remedy(),
            Self::State(error) => error.remedy(),
            Self::Missing { .. } | Self::Root | Self::Name { .. } | Self::File(_) | Self::Unseen { .. } => {
                None
            }
        }
    }
}

impl WorkspaceFolder {
    /// The workspace around `current`.
    pub fn discover(current: &Path) -> Result<Self, FolderError> {
        let missing = |source| FolderError::Missing { path: current.to_owned(), source };
        let current = current.canonicalize().map_err(missing)?;
        if current == Path::new("/") {
            return Err(FolderError::Root);
        }
        let mut found = None;
        for folder in current.ancestors() {
            if let Some((repository, custody)) = RepositoryPaths::discover(folder)? {
                found = Some((folder.to_owned(), Some(repository), custody));
                break;
            }
        }
        let (root, repository, custody) =
            found.unwrap_or_else(|| (current.clone(), None, RepositoryOwnership::default()));
        let start = current.strip_prefix(&root).unwrap_or(Path::new(""));
        let start = RelPath::parse(start.as_os_str().as_bytes())
            .map_err(|reason| FolderError::Name { path: current.clone(), reason })?;
        Ok(Self { root, start, repository, custody })
    }

    /// Where its runs keep their files.
    pub fn state(&self, home: &StateHome) -> Result<StateFolder, FolderError> {
        // An overlay would contain itself, and `git clean` would delete it.
        if home.is_in(&self.root) {
            return Err(StateError::Inside { state: home.path().to_owned(), root: self.root.clone() }.into());
        }
        match &self.repository {
            Some(repository) => Ok(home.repository(&repository.common)?),
            None => Ok(home.folder(&self.root)?),
        }
    }

    /// Judges the owner of a folder that is in no repository, and of something in it that decides what is done there.
    pub fn check_owner(&self, part: &Path) -> Result<(), FolderError> {
        let checked = ownership::check(&self.root, &[part]);
        checked.map(drop).map_err(|error| RepositoryError::from(error).into())
    }

    /// What an older version of this program, or another program, left where state once lay. It is never read.
    pub fn legacy_state(&self) -> Option<PathBuf> {
        let path = self.repository.as_ref()?.common.join(LEGACY);
        path.symlink_metadata().is_ok().then_some(path)
    }

    pub fn ignored(&self) -> IgnoreRules {
        let exclude = self.repository.as_ref().map(|repository| repository.common.join("info/exclude"));
        IgnoreRules::new(vec![self.root.clone()], exclude)
    }

    /// The layers of one run. With `in_memory`, what the agent changes is caught there, and only scratch is
    /// put on disk.
    pub fn workspace(
        &self,
        run: &RunFolder,
        ignored: &IgnoreRules,
        state: &StateFolder,
        in_memory: bool,
    ) -> Result<Workspace, FolderError> {
        let failed = |source| FolderError::Unseen { path: self.root.clone(), source };
        let owner = fs::metadata(&self.root).map_err(failed)?;
        let user_xattr = !rustix::process::geteuid().is_root();
        let on_disk = |name: &str| WriteLayer::Disk {
            upper: run.path().join(format!("{name}-upper")),
            work: run.path().join(format!("{name}-work")),
        };
        let overlay = |name: &str, lower: &Path| Overlay {
            lowers: vec![lower.to_owned()],
            layer: if in_memory { WriteLayer::Memory } else { on_disk(name) },
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
                    overlays[0].added.push(LayerAddition::Directory(path));
                }
            }
        }
        if let Some(repository) = &self.repository {
            let common = &repository.common;
            let inside = common.strip_prefix(&self.root).ok();
            match inside.and_then(|path| RelPath::parse(path.as_os_str().as_bytes()).ok()) {
                Some(inside) => {
                    overlays[0].added.extend(private_git::additions(common, &inside)?);
                    scratch.push(inside);
                }
                // A linked worktree's repository lies elsewhere.
                None => {
                    let mut private = overlay("git", common);
                    private.added = private_git::additions(common, &RelPath::root())?;
                    overlays.push(private);
                }
            }
        }
        let folders = self.repository.as_ref().map(RepositoryPaths::object_folders).transpose()?;
        let lent: Vec<PathBuf> = folders.into_iter().flatten().map(|folder| folder.path).collect();
        // Its own objects lie in the repository, which is a layer; what it borrows is seen where it names it.
        let borrowed = lent.iter().skip(1).filter(|folder| !folder.starts_with(&self.root));
        let objects =
            borrowed.map(|folder| FolderMount { source: folder.clone(), at: folder.clone() }).collect();
        Ok(Workspace {
            path: self.root.clone(),
            overlays,
            scratch,
            stores,
            hidden: ignored.secrets(),
            objects,
            lent,
            live: Vec::new(),
            outbox: None,
            index: None,
            answering: None,
            state: state.path().to_owned(),
            state_home: state.home().to_owned(),
            owner: (owner.uid(), owner.gid()),
        })
    }
}
