//! Where two trees differ, path by path and byte by byte: no rename is guessed.
//!
//! Folders that are the same on both sides are not looked into, so it costs what has changed and not what there
//! is; and no git is started for it.

use agency_sandbox::harvest::Shape;
use agency_sandbox::harvest::links::Links;
use agency_sandbox::path::RelPath;

use super::error::Error;
use super::names::Oid;
use super::objects::Objects;
use super::repository::Repository;
use super::tree::{self, Folder, Item};

/// What a tree has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    pub object: Oid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Program,
    Link,
    /// A commit of another repository.
    Submodule,
}

impl Kind {
    /// As git takes the modes of old trees, too: the owner may execute it, or not.
    pub(super) fn parse(mode: &str) -> Option<Self> {
        let mode = u32::from_str_radix(mode, 8).ok()?;
        match mode & 0o170_000 {
            0o100_000 if mode & 0o100 != 0 => Some(Self::Program),
            0o100_000 => Some(Self::File),
            0o120_000 => Some(Self::Link),
            0o160_000 => Some(Self::Submodule),
            _ => None,
        }
    }

    pub(super) fn mode(self) -> &'static str {
        match self {
            Self::File => "100644",
            Self::Program => "100755",
            Self::Link => "120000",
            Self::Submodule => "160000",
        }
    }
}

/// One path in which two trees differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub path: RelPath,
    pub old: Option<Entry>,
    pub new: Option<Entry>,
    /// Where the new entry leads, if it is a link.
    pub target: Option<Vec<u8>>,
}

/// Where two trees differ, with everything else of them that decides whether that may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// Sorted.
    pub changed: Vec<Changed>,
    /// Folders that git takes for a repository, in either tree, with a difference in or below them.
    pub repositories: Vec<RelPath>,
    /// The links of each tree; `None` where there are more than anybody would make.
    pub links: Option<[Links; 2]>,
}

/// The paths in which two commits or trees differ, sorted.
pub fn between(repository: &Repository, old: &Oid, new: &Oid) -> Result<Vec<Changed>, Error> {
    repository.ask(|objects| compare(objects, old, new))
}

/// The same, with what it takes to judge them.
pub fn examine(repository: &Repository, old: &Oid, new: &Oid) -> Result<Difference, Error> {
    repository.ask(|objects| examined(objects, old, new))
}

pub(super) fn compare(objects: &mut Objects, old: &Oid, new: &Oid) -> Result<Vec<Changed>, Error> {
    walk(objects, old, new, |_, _| ())
}

pub(super) fn examined(objects: &mut Objects, old: &Oid, new: &Oid) -> Result<Difference, Error> {
    let mut repositories = Vec::new();
    let changed = walk(objects, old, new, |folder, sides| {
        let is_repository = |side: &Folder| Shape::of(side.keys().map(Vec::as_slice)).is_repository();
        if sides.into_iter().any(is_repository) {
            repositories.push(folder.clone());
        }
    })?;
    repositories.sort();
    let [before, after] =
        [old, new].map(|side| objects.tree_of(side).and_then(|tree| tree::links(objects, &tree)));
    let links = before?.zip(after?).map(|(before, after)| [before, after]);
    Ok(Difference { changed, repositories, links })
}

/// Every path that differs, showing both sides of each folder with a difference in it.
fn walk(
    objects: &mut Objects,
    old: &Oid,
    new: &Oid,
    mut folder_seen: impl FnMut(&RelPath, [&Folder; 2]),
) -> Result<Vec<Changed>, Error> {
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
            let folders = [one, other].map(|item| item.and_then(Item::folder).cloned());
            let [was, is] = [one, other].map(|item| item.and_then(Item::entry).cloned());
            if was.is_some() || is.is_some() {
                let target = match &is {
                    Some(Entry { kind: Kind::Link, object }) => Some(objects.target(object)?),
                    _ => None,
                };
                changed.push(Changed { path: path.clone(), old: was, new: is, target });
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
