//! Trees, as git keeps them: one object for each folder, read, changed and written without starting a git.

use std::collections::BTreeMap;

use agency_sandbox::harvest::links::Links;
use agency_sandbox::path::RelPath;

use super::difference::{Entry, Kind};
use super::error::Error;
use super::names::{Format, Oid};
use super::objects::{KnownLinks, ObjectKind, Objects};
use super::repository::Repository;

/// What is under a name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    Folder(Oid),
    Entry(Entry),
}

impl Item {
    pub(super) fn folder(&self) -> Option<&Oid> {
        match self {
            Self::Folder(object) => Some(object),
            Self::Entry(_) => None,
        }
    }

    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Folder(_) => None,
            Self::Entry(entry) => Some(entry),
        }
    }
}

pub(super) type Folder = BTreeMap<Vec<u8>, Item>;

/// What is in a folder; nothing, where there is none.
pub(super) fn read(objects: &mut Objects, tree: Option<&Oid>) -> Result<Folder, Error> {
    let Some(tree) = tree else { return Ok(Folder::new()) };
    let contents = objects.contents(tree, "tree")?;
    parse(&contents, objects.format())
        .ok_or_else(|| Error::Missing { kind: "sound tree".to_owned(), object: tree.to_string() })
}

/// `<mode> <name> NUL <object, in bytes> …`
fn parse(mut contents: &[u8], format: Format) -> Option<Folder> {
    let mut folder = Folder::new();
    while !contents.is_empty() {
        let end = contents.iter().position(|byte| *byte == 0)?;
        let (head, rest) = (&contents[..end], &contents[end + 1..]);
        let space = head.iter().position(|byte| *byte == b' ')?;
        let (mode, name) = (std::str::from_utf8(&head[..space]).ok()?, &head[space + 1..]);
        let (object, rest) = rest.split_at_checked(format.digits() / 2)?;
        let object = Oid::of_bytes(object).ok()?;
        let item = match mode {
            "40000" | "040000" => Item::Folder(object),
            _ => Item::Entry(Entry { kind: Kind::parse(mode)?, object }),
        };
        let one = RelPath::parse(name).is_ok_and(|path| path.components().count() == 1);
        if !one || folder.insert(name.to_vec(), item).is_some() {
            return None;
        }
        contents = rest;
    }
    Some(folder)
}

/// How deep links are looked for, and how many are kept: more is no tree that people made.
const DEEPEST: usize = 1024;
const MOST_LINKS: usize = 100_000;

/// Every link of a tree; `None` where there are too many, or too deep. What is known of a folder is kept: the next tree
/// has nearly all of them again.
pub(super) fn links(objects: &mut Objects, tree: &Oid) -> Result<Option<Links>, Error> {
    let Some(found) = links_below(objects, tree, DEEPEST)? else { return Ok(None) };
    let mut links = Links::default();
    found.iter().for_each(|(path, target)| links.insert(path.clone(), target.clone()));
    Ok(Some(links))
}

fn links_below(objects: &mut Objects, tree: &Oid, depth: usize) -> Result<Option<KnownLinks>, Error> {
    if let Some(known) = objects.known_links(tree) {
        return Ok(Some(known));
    }
    let mut found = Vec::new();
    for (name, item) in read(objects, Some(tree))? {
        let at = RelPath::root().join(&name);
        match item {
            Item::Folder(_) if depth == 0 => return Ok(None),
            Item::Folder(folder) => {
                let Some(below) = links_below(objects, &folder, depth - 1)? else { return Ok(None) };
                let inside = |(path, target): &(RelPath, Vec<u8>)| {
                    let path = path.components().fold(at.clone(), |path, name| path.join(name));
                    (path, target.clone())
                };
                found.extend(below.iter().map(inside));
            }
            Item::Entry(Entry { kind: Kind::Link, object }) => found.push((at, objects.target(&object)?)),
            Item::Entry(_) => {}
        }
        if found.len() > MOST_LINKS {
            return Ok(None);
        }
    }
    let found = KnownLinks::from(found);
    objects.keep_links(tree, &found);
    Ok(Some(found))
}

fn text(folder: &Folder) -> Vec<u8> {
    let mut items: Vec<_> = folder.iter().collect();
    // Git sorts as if the name of a folder ended in a slash.
    let ended = |name: &[u8], item: &Item| [name, if item.folder().is_some() { b"/" } else { b"" }].concat();
    items.sort_by_cached_key(|(name, item)| ended(name, item));
    let mut text = Vec::new();
    for (name, item) in items {
        let (mode, object) = match item {
            Item::Folder(object) => ("40000", object),
            Item::Entry(entry) => (entry.kind.mode(), &entry.object),
        };
        text.extend_from_slice(&[mode.as_bytes(), b" ", name, b"\0", &object.bytes()].concat());
    }
    text
}

/// One path, and what is to be there.
pub(super) type Put<'a> = (&'a [u8], Option<Entry>);

/// Writes a tree with some paths of another changed. A path that is to be nothing makes room first, so that a
/// file may take the place of a folder, and a folder that of a file.
pub(super) fn write(
    repository: &Repository,
    objects: &mut Objects,
    tree: &Oid,
    puts: Vec<Put<'_>>,
) -> Result<Oid, Error> {
    let folder = changed(repository, objects, Some(tree), puts)?;
    repository.write_object(ObjectKind::Tree, &text(&folder))
}

fn changed(
    repository: &Repository,
    objects: &mut Objects,
    tree: Option<&Oid>,
    puts: Vec<Put<'_>>,
) -> Result<Folder, Error> {
    let mut folder = read(objects, tree)?;
    let mut below: BTreeMap<&[u8], Vec<Put<'_>>> = BTreeMap::new();
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
        let before = folder.get(name).and_then(Item::folder).cloned();
        let inner = changed(repository, objects, before.as_ref(), puts)?;
        if !inner.is_empty() {
            let object = repository.write_object(ObjectKind::Tree, &text(&inner))?;
            folder.insert(name.to_vec(), Item::Folder(object));
        } else if before.is_some() {
            // Git keeps no folder without a file.
            folder.remove(name);
        }
    }
    let entries = here.into_iter().filter_map(|(name, entry)| Some((name.to_vec(), Item::Entry(entry?))));
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
        let folder = parse(&bytes, Format::Sha1).expect("parses");
        let kinds: Vec<_> = folder.values().map(|item| item.entry().map(|entry| entry.kind)).collect();
        assert_eq!(kinds, [Some(Kind::File), None, Some(Kind::Link), Some(Kind::Program)]);
        let first = folder[&b"a\n\xff"[..]].entry().expect("a file");
        assert_eq!(first.object.as_str(), "ab".repeat(20));
        assert!(parse(b"", Format::Sha256).is_some_and(|folder| folder.is_empty()));
    }

    #[test]
    fn what_no_git_would_write_is_no_tree() {
        let names: [&[u8]; 4] = [b"..", b"a/b", b"", b"."];
        for name in names {
            assert!(parse(&tree(&[("100644", name, 1)]), Format::Sha1).is_none(), "{name:?}");
        }
        assert!(parse(&tree(&[("7", b"a", 1)]), Format::Sha1).is_none(), "no such mode");
        assert!(parse(&tree(&[("100644", b"a", 1), ("40000", b"a", 2)]), Format::Sha1).is_none(), "twice");
        let whole = tree(&[("100644", b"a", 1)]);
        for cut in 1..whole.len() {
            assert!(parse(&whole[..cut], Format::Sha1).is_none(), "{cut}");
        }
    }

    #[test]
    fn a_folder_is_sorted_as_if_its_name_ended_in_a_slash() {
        let sorted = tree(&[("100644", b"a.b", 1), ("40000", b"a", 2), ("100644", b"a0", 3)]);
        assert_eq!(text(&parse(&sorted, Format::Sha1).expect("parses")), sorted);
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_as_it_was(
            items in prop::collection::btree_map("[a-c.]{3}", (any::<bool>(), 1..255u8), 0..6)
        ) {
            let folder: Folder = items.into_iter().map(|(name, (folder, byte))| {
                let object = Oid::of_bytes(&[byte; 32]).expect("a name");
                let item = match folder {
                    true => Item::Folder(object),
                    false => Item::Entry(Entry { kind: Kind::File, object }),
                };
                (name.into_bytes(), item)
            }).filter(|(name, _)| name != b"...").collect();
            prop_assert_eq!(parse(&text(&folder), Format::Sha256), Some(folder));
        }
    }
}
