//! The subject of a proof, and whether it changed during the proof.

use std::os::unix::ffi::OsStrExt;

use agency_sandbox::path::RelPath;
use agency_sandbox::workspace::prepare::PreparedWorkspace;
use agency_sandbox::workspace::state::{RunFolder, StateFolder};

use super::request::{ProofCandidate, ProofFolders, ProofRequest, ProveError};
use crate::git_head::GitHead;
use crate::git_tree::{CommittedTree, FolderListing};

/// The subject of a proof, as it was at the beginning.
pub(super) struct ProofSubject {
    pub(super) commit: Option<String>,
    pub(super) tree: Option<String>,
    pub(super) dirty: bool,
    pub(super) notes: Vec<String>,
    held: SubjectState,
}

enum SubjectState {
    /// A commit can't change; its layers are kept until the end.
    Commit(Box<PreparedWorkspace>),
    Folder(FolderListing, CommittedTree, GitHead),
    /// A folder in no repository: it has no tree id.
    Nameless,
}

impl ProofSubject {
    pub(super) fn observe(order: &ProofRequest<'_>, site: &ProofFolders) -> Result<Self, ProveError> {
        match (order.candidate, &order.folder.repository) {
            (ProofCandidate::Commit(rev), _) => {
                let session = site
                    .sessions
                    .begin(|run, state| PreparedWorkspace::from_commit(order.folder, rev, run, state))?;
                let ground = session.ground;
                let layers = ground.layers();
                let submodules = layers.map(|layers| layers.submodules.clone()).unwrap_or_default();
                let note =
                    |path: &RelPath| format!("the submodule {path} is an empty folder in a commit's tree");
                Ok(Self {
                    commit: layers.map(|layers| layers.commit.clone()),
                    tree: layers.map(|layers| layers.tree.clone()),
                    dirty: false,
                    notes: submodules.iter().map(note).collect(),
                    held: SubjectState::Commit(Box::new(ground)),
                })
            }
            (ProofCandidate::Live, Some(repository)) => {
                let head = GitHead::read(repository);
                let run = order.state.run();
                let failed = |source| ProveError::State { path: run.path().to_owned(), source };
                run.make().map_err(failed)?;
                let recorded =
                    CommittedTree::read(&head, &repository.common.join("objects"), &run.path().join("git"))?;
                let listing = FolderListing::read(order.folder, head.format, &recorded)?;
                let tree = listing.id();
                let note = |path: &RelPath| {
                    format!(
                        "{path} is a repository of its own: the tree names the commit that was recorded for it, not what it holds"
                    )
                };
                Ok(Self {
                    dirty: recorded.tree.as_ref() != Some(&tree),
                    commit: head.commit.clone(),
                    tree: Some(tree),
                    notes: listing.nested.iter().map(note).collect(),
                    held: SubjectState::Folder(listing, recorded, head),
                })
            }
            (ProofCandidate::Live, None) => Ok(Self {
                commit: None,
                tree: None,
                dirty: false,
                notes: Vec::new(),
                held: SubjectState::Nameless,
            }),
        }
    }

    /// Prepares the candidate for a command, with a layer of its own. The layer is on disk, where a build has room.
    pub(super) fn prepare_ground(
        &self,
        order: &ProofRequest<'_>,
        run: &RunFolder,
        state: &StateFolder,
    ) -> Result<PreparedWorkspace, ProveError> {
        let layers = match &self.held {
            SubjectState::Commit(ground) => ground.layers(),
            SubjectState::Folder(..) | SubjectState::Nameless => None,
        };
        Ok(match layers {
            // By its id: a branch may move meanwhile.
            Some(layers) => {
                let mut ground = PreparedWorkspace::from_commit(order.folder, &layers.commit, run, state)?;
                if let Some(prepared) = order.prepared {
                    ground.workspace = ground.workspace.with_setup(prepared);
                }
                ground
            }
            None => PreparedWorkspace::from_folder(order.folder, false, run, state)?,
        })
    }

    /// The paths that were changed since and that are part of the work.
    pub(super) fn changed_paths(&self, order: &ProofRequest<'_>) -> Result<Vec<RelPath>, ProveError> {
        let SubjectState::Folder(listing, recorded, head) = &self.held else { return Ok(Vec::new()) };
        let logs = order.logs.canonicalize().ok();
        let logs = logs.as_deref().and_then(|logs| logs.strip_prefix(&order.folder.root).ok());
        let logs = logs.and_then(|logs| RelPath::parse(logs.as_os_str().as_bytes()).ok());
        let later = FolderListing::read(order.folder, head.format, recorded)?;
        let mut changed = listing.differences(&later);
        changed.retain(|path| !order.aside.iter().chain(&logs).any(|aside| path.is_within(aside)));
        Ok(changed)
    }
}
