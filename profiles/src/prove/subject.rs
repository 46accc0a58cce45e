//! What is proved, and whether it stayed what it was.

use std::os::unix::ffi::OsStrExt;

use agency_sandbox::path::RelPath;
use agency_sandbox::workspace::ground::Ground;
use agency_sandbox::workspace::state::Run;

use super::{Candidate, Order, ProveError, Site};
use crate::head::Head;
use crate::tree::{Listing, Recorded};

/// What is proved, as it was when the proof began.
pub(super) struct Subject {
    pub(super) commit: Option<String>,
    pub(super) tree: Option<String>,
    pub(super) dirty: bool,
    pub(super) notes: Vec<String>,
    held: Held,
}

enum Held {
    /// Nobody can change a commit; its layers are kept until the end.
    Commit(Box<Ground>),
    Folder(Listing, Recorded, Head),
    /// In no repository: nothing names it.
    Nameless,
}

impl Subject {
    pub(super) fn observe(order: &Order<'_>, site: &Site) -> Result<Self, ProveError> {
        match (order.candidate, &order.folder.repository) {
            (Candidate::Commit(rev), _) => {
                let ground = Ground::commit(order.folder, rev, &site.runs.run(), order.state)?;
                let layers = ground.layers();
                let submodules = layers.map(|layers| layers.submodules.clone()).unwrap_or_default();
                let note =
                    |path: &RelPath| format!("the submodule {path} is an empty folder in a commit's tree");
                Ok(Self {
                    commit: layers.map(|layers| layers.commit.clone()),
                    tree: layers.map(|layers| layers.tree.clone()),
                    dirty: false,
                    notes: submodules.iter().map(note).collect(),
                    held: Held::Commit(Box::new(ground)),
                })
            }
            (Candidate::Live, Some(repository)) => {
                let head = Head::read(repository);
                let run = order.state.run();
                let failed = |source| ProveError::State { path: run.path().to_owned(), source };
                run.make().map_err(failed)?;
                let recorded =
                    Recorded::read(&head, &repository.common.join("objects"), &run.path().join("git"))?;
                let listing = Listing::read(order.folder, head.format, &recorded)?;
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
                    held: Held::Folder(listing, recorded, head),
                })
            }
            (Candidate::Live, None) => {
                Ok(Self { commit: None, tree: None, dirty: false, notes: Vec::new(), held: Held::Nameless })
            }
        }
    }

    /// The candidate once more, with a layer of its own. On disk, where a build has room.
    pub(super) fn ground(&self, order: &Order<'_>, run: &Run) -> Result<Ground, ProveError> {
        let layers = match &self.held {
            Held::Commit(ground) => ground.layers(),
            Held::Folder(..) | Held::Nameless => None,
        };
        Ok(match layers {
            // By its id: a branch may move meanwhile.
            Some(layers) => {
                let mut ground = Ground::commit(order.folder, &layers.commit, run, order.state)?;
                if let Some(prepared) = order.prepared {
                    ground.workspace = ground.workspace.prepared(prepared);
                }
                ground
            }
            None => Ground::live(order.folder, false, run, order.state)?,
        })
    }

    /// What somebody changed since, of what matters.
    pub(super) fn changed(&self, order: &Order<'_>) -> Result<Vec<RelPath>, ProveError> {
        let Held::Folder(listing, recorded, head) = &self.held else { return Ok(Vec::new()) };
        let logs = order.logs.canonicalize().ok();
        let logs = logs.as_deref().and_then(|logs| logs.strip_prefix(&order.folder.root).ok());
        let logs = logs.and_then(|logs| RelPath::parse(logs.as_os_str().as_bytes()).ok());
        let later = Listing::read(order.folder, head.format, recorded)?;
        let mut changed = listing.differences(&later);
        changed.retain(|path| !order.aside.iter().chain(&logs).any(|aside| path.is_within(aside)));
        Ok(changed)
    }
}
