//! Compares two trees, path by path and byte by byte: no rename is guessed.
//!
//! Equal folders are not read, so the cost depends on the changes and not on the size of the tree. No git is started.

use agency_sandbox::harvest::RepositoryShape;
use agency_sandbox::harvest::links::SymlinkMap;
use agency_sandbox::path::RelPath;
use agency_sandbox::scope::{Scope, ScopeVerdict};

pub use super::tree::{GitTreeEntry, GitTreeEntryKind};

use super::error::Error;
use super::names::Oid;
use super::objects::ObjectReader;
use super::repository::LandingRepository;
use super::tree::{self, FolderItem, GitFolder};

/// One path in which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPath {
    pub path: RelPath,
    pub old: Option<GitTreeEntry>,
    pub new: Option<GitTreeEntry>,
    /// The target of the new entry, if it is a link.
    pub target: Option<Vec<u8>>,
}

/// The difference of two trees, with everything else that decides whether it is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeDiff {
    /// Sorted.
    pub changed: Vec<ChangedPath>,
    /// Folders that git takes for a repository, in either tree, with a difference in or below them.
    pub repositories: Vec<RelPath>,
    /// The links of each tree; `None` where there are too many.
    pub links: Option<[SymlinkMap; 2]>,
}

/// The paths in which two commits or trees differ, sorted.
pub fn between(repository: &LandingRepository, old: &Oid, new: &Oid) -> Result<Vec<ChangedPath>, Error> {
    repository.ask(|objects| compare(objects, old, new))
}

/// Whether two commits or trees differ in files of a scope at most, such as a board's own files.
pub fn differs_only_in(
    repository: &LandingRepository,
    scope: &Scope,
    old: &Oid,
    new: &Oid,
) -> Result<bool, Error> {
    let changed = between(repository, old, new)?;
    Ok(changed.iter().all(|one| scope.judge(&one.path) == ScopeVerdict::InScope))
}

/// Compares two commits or trees, with the facts that are needed to judge the difference.
pub fn examine(repository: &LandingRepository, old: &Oid, new: &Oid) -> Result<TreeDiff, Error> {
    repository.ask(|objects| examined(objects, old, new))
}

pub(super) fn compare(objects: &mut ObjectReader, old: &Oid, new: &Oid) -> Result<Vec<ChangedPath>, Error> {
    walk(objects, old, new, |_, _| ())
}

pub(super) fn examined(objects: &mut ObjectReader, old: &Oid, new: &Oid) -> Result<TreeDiff, Error> {
    let mut repositories = Vec::new();
    let changed = walk(objects, old, new, |folder, sides| {
        let is_repository =
            |side: &GitFolder| RepositoryShape::of(side.keys().map(Vec::as_slice)).is_repository();
        if sides.into_iter().any(is_repository) {
            repositories.push(folder.clone());
        }
    })?;
    repositories.sort();
    let [before, after] =
        [old, new].map(|side| objects.tree_of(side).and_then(|tree| tree::links(objects, &tree)));
    let links = before?.zip(after?).map(|(before, after)| [before, after]);
    Ok(TreeDiff { changed, repositories, links })
}

/// Finds every path that differs. `folder_seen` gets both sides of each folder with a difference in it.
fn walk(
    objects: &mut ObjectReader,
    old: &Oid,
    new: &Oid,
    mut folder_seen: impl FnMut(&RelPath, [&GitFolder; 2]),
) -> Result<Vec<ChangedPath>, Error> {
    let mut changed = Vec::new();
    let mut waiting = match old == new {
        true => Vec::new(),
        false => vec![(RelPath::root(), Some(objects.tree_of(old)?), Some(objects.tree_of(new)?))],
    };
    while let Some((folder, old, new)) = waiting.pop().filter(|(_, old, new)| old != new) {
        let [old, new] = [tree::read(objects, old.as_ref())?, tree::read(objects, new.as_ref())?];
        folder_seen(&folder, [&old, &new]);
        let added = new.keys().filter(|name| !old.contains_key(*name));
        for name in old.keys().chain(added) {
            let (one, other) = (old.get(name), new.get(name));
            if one == other {
                continue;
            }
            let path = folder.join(name);
            let folders = [one, other].map(|item| item.and_then(FolderItem::folder).cloned());
            let [was, is] = [one, other].map(|item| item.and_then(FolderItem::entry).cloned());
            if was.is_some() || is.is_some() {
                let target = match &is {
                    Some(GitTreeEntry { kind: GitTreeEntryKind::Link, object }) => {
                        Some(objects.target(object)?)
                    }
                    _ => None,
                };
                changed.push(ChangedPath { path: path.clone(), old: was, new: is, target });
            }
            if let [None, None] = folders {
                continue;
            }
            let [old, new] = folders;
            waiting.push((path, old, new));
        }
    }
    changed.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(changed)
}
