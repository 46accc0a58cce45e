//! Git trees: one object for each folder, read, changed and written without starting a git.

use std::collections::BTreeMap;

use agency_sandbox::harvest::links::SymlinkMap;
use agency_sandbox::path::RelPath;

use super::error::Error;
use super::names::{Oid, OidFormat};
use super::objects::{ObjectKind, ObjectReader, TreeLinks};
use super::repository::LandingRepository;

/// A file, link or submodule in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitTreeEntry {
    pub kind: GitTreeEntryKind,
    pub object: Oid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitTreeEntryKind {
    File,
    Program,
    Link,
    /// A commit of another repository.
    Submodule,
}

impl GitTreeEntryKind {
    /// Parses a mode as git does, modes of old trees included: only the owner's executable bit counts.
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

/// An item of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FolderItem {
    Folder(Oid),
    Entry(GitTreeEntry),
}

impl FolderItem {
    pub(super) fn folder(&self) -> Option<&Oid> {
        match self {
            Self::Folder(object) => Some(object),
            Self::Entry(_) => None,
        }
    }

    pub(super) fn entry(&self) -> Option<&GitTreeEntry> {
        match self {
            Self::Folder(_) => None,
            Self::Entry(entry) => Some(entry),
        }
    }
}

pub(super) type GitFolder = BTreeMap<Vec<u8>, FolderItem>;

/// Reads a folder; empty where there is none.
pub(super) fn read(objects: &mut ObjectReader, tree: Option<&Oid>) -> Result<GitFolder, Error> {
    let Some(tree) = tree else { return Ok(GitFolder::new()) };
    let contents = objects.contents(tree, "tree")?;
    parse(&contents, objects.format())
        .ok_or_else(|| Error::Missing { kind: "sound tree".to_owned(), object: tree.to_string() })
}

/// `<mode> <name> NUL <object, in bytes> …`
fn parse(mut contents: &[u8], format: OidFormat) -> Option<GitFolder> {
    let mut folder = GitFolder::new();
    while !contents.is_empty() {
        let end = contents.iter().position(|byte| *byte == 0)?;
        let (head, rest) = (&contents[..end], &contents[end + 1..]);
        let space = head.iter().position(|byte| *byte == b' ')?;
        let (mode, name) = (std::str::from_utf8(&head[..space]).ok()?, &head[space + 1..]);
        let (object, rest) = rest.split_at_checked(format.digits() / 2)?;
        let object = Oid::of_bytes(object).ok()?;
        let item = match mode {
            "40000" | "040000" => FolderItem::Folder(object),
            _ => FolderItem::Entry(GitTreeEntry { kind: GitTreeEntryKind::parse(mode)?, object }),
        };
        let one = RelPath::parse(name).is_ok_and(|path| path.components().count() == 1);
        if !one || folder.insert(name.to_vec(), item).is_some() {
            return None;
        }
        contents = rest;
    }
    Some(folder)
}

/// How deep we look for links, and how many we keep. No tree that people made has more.
const DEEPEST: usize = 1024;
const MOST_LINKS: usize = 100_000;

/// Every link of a tree; `None` where there are too many, or too deep. The links of each folder are kept in memory: the
/// next tree has nearly all of them again.
pub(super) fn links(objects: &mut ObjectReader, tree: &Oid) -> Result<Option<SymlinkMap>, Error> {
    let Some(found) = links_below(objects, tree, DEEPEST)? else { return Ok(None) };
    let mut links = SymlinkMap::default();
    found.iter().for_each(|(path, target)| links.insert(path.clone(), target.clone()));
    Ok(Some(links))
}

fn links_below(objects: &mut ObjectReader, tree: &Oid, depth: usize) -> Result<Option<TreeLinks>, Error> {
    if let Some(known) = objects.known_links(tree) {
        return Ok(Some(known));
    }
    let mut found = Vec::new();
    for (name, item) in read(objects, Some(tree))? {
        let at = RelPath::root().join(&name);
        match item {
            FolderItem::Folder(_) if depth == 0 => return Ok(None),
            FolderItem::Folder(folder) => {
                let Some(below) = links_below(objects, &folder, depth - 1)? else { return Ok(None) };
                let inside = |(path, target): &(RelPath, Vec<u8>)| {
                    let path = path.components().fold(at.clone(), |path, name| path.join(name));
                    (path, target.clone())
                };
                found.extend(below.iter().map(inside));
            }
            FolderItem::Entry(GitTreeEntry { kind: GitTreeEntryKind::Link, object }) => {
                found.push((at, objects.target(&object)?));
            }
            FolderItem::Entry(_) => {}
        }
        if found.len() > MOST_LINKS {
            return Ok(None);
        }
    }
    let found = TreeLinks::from(found);
    objects.keep_links(tree, &found);
    Ok(Some(found))
}

fn text(folder: &GitFolder) -> Vec<u8> {
    let mut items: Vec<_> = folder.iter().collect();
    // Git sorts as if the name of a folder ended in a slash.
    let ended =
        |name: &[u8], item: &FolderItem| [name, if item.folder().is_some() { b"/" } else { b"" }].concat();
    items.sort_by_cached_key(|(name, item)| ended(name, item));
    let mut text = Vec::new();
    for (name, item) in items {
        let (mode, object) = match item {
            FolderItem::Folder(object) => ("40000", object),
            FolderItem::Entry(entry) => (entry.kind.mode(), &entry.object),
        };
        text.extend_from_slice(&[mode.as_bytes(), b" ", name, b"\0", &object.bytes()].concat());
    }
    text
}

/// A path and its new entry; `None` removes it.
pub(super) type TreeEdit<'a> = (&'a [u8], Option<GitTreeEntry>);

/// Writes a tree that differs from another in some paths. Removals come first, so that a file can replace a folder, and
/// a folder a file.
pub(super) fn write(
    repository: &LandingRepository,
    objects: &mut ObjectReader,
    tree: &Oid,
    puts: Vec<TreeEdit<'_>>,
) -> Result<Oid, Error> {
    let folder = changed(repository, objects, Some(tree), puts)?;
    repository.write_object(ObjectKind::Tree, &text(&folder))
}

fn changed(
    repository: &LandingRepository,
    objects: &mut ObjectReader,
    tree: Option<&Oid>,
    puts: Vec<TreeEdit<'_>>,
) -> Result<GitFolder, Error> {
    let mut folder = read(objects, tree)?;
    let mut below: BTreeMap<&[u8], Vec<TreeEdit<'_>>> = BTreeMap::new();
    let mut here = Vec::new();
    for (path, entry) in puts {
        match path.iter().position(|byte| *byte == b'/') {
            Some(end) => below.entry(&path[..end]).or_default().push((&path[end + 1..], entry)),
            None => here.push((path, entry)),
        }
    }
    for (name, _) in here.iter().filter(|(_, entry)| entry.is_none()) {
        if folder.get(*name).is_some_and(|item| item.entry().is_some()) {
            folder.remove(*name);
        }
    }
    for (name, puts) in below {
        let before = folder.get(name).and_then(FolderItem::folder).cloned();
        let inner = changed(repository, objects, before.as_ref(), puts)?;
        if !inner.is_empty() {
            let object = repository.write_object(ObjectKind::Tree, &text(&inner))?;
            folder.insert(name.to_vec(), FolderItem::Folder(object));
        } else if before.is_some() {
            // Git keeps no folder without a file.
            folder.remove(name);
        }
    }
    let entries =
        here.into_iter().filter_map(|(name, entry)| Some((name.to_vec(), FolderItem::Entry(entry?))));
    folder.extend(entries);
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tree(entries: &[(&str, &[u8], u8)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (mode, name, byte) in entries {
            bytes.extend_from_slice(&[mode.as_bytes(), b" ", name, b"\0", &[*byte; 20]].concat());
        }
        bytes
    }

    #[test]
    fn names_are_bytes_and_modes_are_what_git_makes_of_them() {
        let bytes = tree(&[
            ("100664", b"a\n\xff", 0xab),
            ("40000", b"d", 1),
            ("120000", b"l", 3),
            ("100775", b"p", 2),
        ]);
        let folder = parse(&bytes, OidFormat::Sha1).expect("parses");
        let kinds: Vec<_> = folder.values().map(|item| item.entry().map(|entry| entry.kind)).collect();
        assert_eq!(
            kinds,
            [
                Some(GitTreeEntryKind::File),
                None,
                Some(GitTreeEntryKind::Link),
                Some(GitTreeEntryKind::Program)
            ]
        );
        let first = folder[&b"a\n\xff"[..]].entry().expect("a file");
        assert_eq!(first.object.as_str(), "ab".repeat(20));
        assert!(parse(b"", OidFormat::Sha256).is_some_and(|folder| folder.is_empty()));
    }

    #[test]
    fn what_no_git_would_write_is_no_tree() {
        let names: [&[u8]; 4] = [b"..", b"a/b", b"", b"."];
        for name in names {
            assert!(parse(&tree(&[("100644", name, 1)]), OidFormat::Sha1).is_none(), "{name:?}");
        }
        assert!(parse(&tree(&[("7", b"a", 1)]), OidFormat::Sha1).is_none(), "no such mode");
        assert!(parse(&tree(&[("100644", b"a", 1), ("40000", b"a", 2)]), OidFormat::Sha1).is_none(), "twice");
        let whole = tree(&[("100644", b"a", 1)]);
        for cut in 1..whole.len() {
            assert!(parse(&whole[..cut], OidFormat::Sha1).is_none(), "{cut}");
        }
    }

    #[test]
    fn a_folder_is_sorted_as_if_its_name_ended_in_a_slash() {
        let sorted = tree(&[("100644", b"a.b", 1), ("40000", b"a", 2), ("100644", b"a0", 3)]);
        assert_eq!(text(&parse(&sorted, OidFormat::Sha1).expect("parses")), sorted);
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_it_was(
            items in prop::collection::btree_map("[a-c.]{3}", (any::<bool>(), 1..255u8), 0..6)
        ) {
            let folder: GitFolder = items.into_iter().map(|(name, (folder, byte))| {
                let object = Oid::of_bytes(&[byte; 32]).expect("a name");
                let item = match folder {
                    true => FolderItem::Folder(object),
                    false => FolderItem::Entry(GitTreeEntry { kind: GitTreeEntryKind::File, object }),
                };
                (name.into_bytes(), item)
            }).filter(|(name, _)| name != b"...").collect();
            prop_assert_eq!(parse(&text(&folder), OidFormat::Sha256), Some(folder));
        }
    }
}
