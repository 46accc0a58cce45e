//! A base that moved: what turns a snapshot into another tree, as one layer on top of it.
//!
//! It is always the whole difference between the two trees, never a difference to another delta: a stack of
//! them would grow with every commit, and the kernel bounds how deep it may be. What it holds is decided by
//! [`plan`], without touching a file. What the delta before it has as well is not written again ([`ReusableDelta`]).
//!
//! In overlayfs a name in an upper layer hides all that the lower layers have by that name, except that
//! folders are merged. So a file needs nothing more where it replaces a folder, nor a folder where it
//! replaces a file. What went is covered by a whiteout, and a folder that went by one whiteout for all of it.
//! Only a submodule, an empty folder, that replaces a folder has to cover each name in it. An opaque mark,
//! which would do the same, is kept in an attribute whose name depends on who mounts the overlay.

#![allow(clippy::disallowed_methods, reason = "opens our own layers")]

use std::collections::{BTreeMap, HashMap, HashSet};

use super::checkout::{self, recent_second};
use super::error::{SnapshotError, SnapshotResult, at};
use super::index::{GitIndex, IndexReplacement};
use super::layer::LayerWriter;
use super::manifest::{self, DeltaManifest, ManifestEntry, ReusableDelta};
use super::objects::{LINK, SUBMODULE, SnapshotObjects, TREE, TreeDiffEntry};
use super::store::{LayerFacts, LayerFolderLock, LockedLayer, make_file, make_folder};

/// One thing a delta holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeltaEntry {
    path: Vec<u8>,
    what: DeltaContent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum DeltaContent {
    /// A file or a link, with its mode and object.
    Blob {
        mode: u32,
        object: String,
    },
    /// The place of a submodule.
    Folder,
    Whiteout,
}

impl DeltaEntry {
    fn is_blob(&self) -> bool {
        matches!(self.what, DeltaContent::Blob { .. })
    }
}

/// What a delta must hold, in the order of its paths.
fn plan(differences: &[TreeDiffEntry]) -> Vec<DeltaEntry> {
    let gone: HashSet<&[u8]> = differences
        .iter()
        .filter(|one| one.old_mode == TREE && one.new_mode == 0)
        .map(|one| one.path.as_slice())
        .collect();
    let new: HashMap<&[u8], u32> = differences
        .iter()
        .filter(|one| one.new_mode != 0)
        .map(|one| (one.path.as_slice(), one.new_mode))
        .collect();
    let is_folder = |path: &[u8]| !gone.contains(path) || new.get(path) == Some(&SUBMODULE);
    let mut pieces: BTreeMap<&[u8], DeltaContent> = BTreeMap::new();
    for one in differences {
        let path = one.path.as_slice();
        match one.new_mode {
            0 if new.contains_key(path) => {}
            0 => {
                let parent = path.iter().rposition(|byte| *byte == b'/').map(|slash| &path[..slash]);
                if parent.is_none_or(is_folder) {
                    pieces.insert(path, DeltaContent::Whiteout);
                }
            }
            TREE => {}
            SUBMODULE if one.old_mode == SUBMODULE => {}
            SUBMODULE => drop(pieces.insert(path, DeltaContent::Folder)),
            mode => drop(pieces.insert(path, DeltaContent::Blob { mode, object: one.object.clone() })),
        }
    }
    // Whiteouts inside a submodule's folder make that folder.
    let covered: Vec<Vec<u8>> = pieces
        .iter()
        .filter(|(_, what)| **what == DeltaContent::Whiteout)
        .filter_map(|(path, _)| {
            path.iter().rposition(|byte| *byte == b'/').map(|slash| path[..slash].to_vec())
        })
        .collect();
    for folder in covered {
        if pieces.get(folder.as_slice()) == Some(&DeltaContent::Folder) {
            pieces.remove(folder.as_slice());
        }
    }
    pieces.into_iter().map(|(path, what)| DeltaEntry { path: path.to_vec(), what }).collect()
}

/// Builds the delta that turns a snapshot into the tree of a commit.
pub(super) fn build(
    site: &LayerFolderLock<'_>,
    objects: &SnapshotObjects,
    (snapshot, before): (&LockedLayer, Option<&ReusableDelta>),
    (commit, tree): (&str, &str),
    differences: &[TreeDiffEntry],
) -> SnapshotResult<LockedLayer> {
    let folder = site.start(tree)?;
    let layer = folder.join("layer");
    // Never older than what it stands on, also if the clock was set back meanwhile.
    let oldest = before.map_or(0, |before| before.time).max(snapshot.facts.time);
    let time = recent_second().max(oldest);
    let mut writer = LayerWriter::new(&layer, time)?;
    let pieces = plan(differences);
    let mut manifest = DeltaManifest::new();
    for piece in &pieces {
        if let (DeltaContent::Blob { mode, object }, Some(before)) = (&piece.what, before)
            && let Some(kept) = before.reusable_entry(&piece.path, *mode, object)
        {
            manifest.insert(piece.path.clone(), kept.clone());
        }
    }
    let (new, others): (Vec<&DeltaEntry>, Vec<&DeltaEntry>) =
        pieces.iter().partition(|piece| piece.is_blob() && !manifest.contains_key(&piece.path));
    let mut others = others.into_iter().peekable();
    let mut make_before = |writer: &mut LayerWriter, path: Option<&[u8]>| -> SnapshotResult<()> {
        while let Some(piece) = others.next_if(|piece| path.is_none_or(|path| piece.path.as_slice() < path)) {
            match (&piece.what, before) {
                (DeltaContent::Blob { .. }, Some(before)) => {
                    writer.link_existing(&piece.path, &before.layer)?;
                }
                (DeltaContent::Blob { .. }, None) => {}
                (DeltaContent::Folder, _) => writer.directory(&piece.path)?,
                (DeltaContent::Whiteout, _) => writer.whiteout(&piece.path)?,
            }
        }
        Ok(())
    };
    objects.blobs(
        &new,
        |piece| match &piece.what {
            DeltaContent::Blob { object, .. } => (object.clone(), piece.path.as_slice()),
            DeltaContent::Folder | DeltaContent::Whiteout => (String::new(), piece.path.as_slice()),
        },
        |piece, size, content| {
            make_before(&mut writer, Some(&piece.path))?;
            let DeltaContent::Blob { mode, object } = &piece.what else { return Ok(()) };
            let kept = ManifestEntry { mode: *mode, object: object.clone(), size, time };
            manifest.insert(piece.path.clone(), kept);
            match *mode {
                LINK => writer.link(&piece.path, size, content),
                mode => writer.file(&piece.path, mode & 0o100 != 0, content),
            }
        },
    )?;
    make_before(&mut writer, None)?;

    let changes = replacements(differences, &manifest, time)?;
    let path = snapshot.layer().join(".git/index");
    let old = std::fs::read(&path).map_err(at("can't read", &path))?;
    let old = GitIndex::parse(objects.format, old).map_err(|reason| SnapshotError::Index { path, reason })?;
    let git = layer.join(".git");
    make_folder(&git, 0o755)?;
    let (index, replaced) = old.with_replacements(&changes);
    // A tree that names a path twice is seen here as one that adds what was there already.
    let changed = differences.iter().filter(|one| one.old_mode != 0 && one.old_mode != TREE).count();
    if replaced != changed {
        return Err(twice(b"."));
    }
    checkout::write_index(&folder, objects, index, time)?;
    make_file(&git.join("HEAD"), 0o644, format!("{commit}\n").as_bytes())?;

    let mut submodules: Vec<Vec<u8>> =
        snapshot.submodules.iter().filter(|path| !changes.contains_key(*path)).cloned().collect();
    submodules.extend(differences.iter().filter(|one| one.new_mode == SUBMODULE).map(|one| one.path.clone()));
    submodules.sort();
    let (path, text) = manifest::file(&folder, &manifest);
    make_file(&path, 0o600, &text)?;
    site.finish(&folder, tree, &LayerFacts::new(old.len(), time), &submodules)
}

/// What changes in the index. A path that is there twice is refused.
fn replacements(
    differences: &[TreeDiffEntry],
    manifest: &DeltaManifest,
    time: u32,
) -> SnapshotResult<BTreeMap<Vec<u8>, Option<IndexReplacement>>> {
    let mut changes: BTreeMap<Vec<u8>, Option<IndexReplacement>> = BTreeMap::new();
    for one in differences.iter().filter(|one| one.new_mode == 0 && one.old_mode != TREE) {
        changes.insert(one.path.clone(), None);
    }
    for one in differences.iter().filter(|one| one.new_mode != 0 && one.new_mode != TREE) {
        // Of a submodule nothing is written.
        let (size, time) = manifest.get(&one.path).map_or((0, time), |kept| (kept.size, kept.time));
        let object = binary(&one.object);
        let new = IndexReplacement { mode: one.new_mode, object, size, time };
        if changes.insert(one.path.clone(), Some(new)).flatten().is_some() {
            return Err(twice(&one.path));
        }
    }
    Ok(changes)
}

fn twice(path: &[u8]) -> SnapshotError {
    SnapshotError::Hostile { path: path.to_vec(), reason: "is there twice" }
}

fn binary(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks_exact(2);
    digits
        .map(|pair| {
            let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
            digit(pair[0]) << 4 | digit(pair[1])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(path: &str, old_mode: u32, new_mode: u32) -> TreeDiffEntry {
        TreeDiffEntry { path: path.into(), old_mode, new_mode, object: "00".into() }
    }

    /// `+` a blob, `/` a folder, `-` a whiteout.
    fn shown(differences: &[TreeDiffEntry]) -> Vec<String> {
        let sign = |what: &DeltaContent| match what {
            DeltaContent::Blob { .. } => '+',
            DeltaContent::Folder => '/',
            DeltaContent::Whiteout => '-',
        };
        let pieces = plan(differences);
        pieces
            .iter()
            .map(|piece| format!("{}{}", sign(&piece.what), String::from_utf8_lossy(&piece.path)))
            .collect()
    }

    const FILE: u32 = 0o100644;

    #[test]
    fn a_folder_that_went_is_one_whiteout() {
        let differences = [
            difference("a", TREE, TREE),
            difference("a/b", TREE, 0),
            difference("a/b/c", TREE, 0),
            difference("a/b/c/d", FILE, 0),
            difference("a/b/e", FILE, 0),
            difference("a/f", FILE, 0),
        ];
        assert_eq!(shown(&differences), ["-a/b", "-a/f"]);
    }

    #[test]
    fn a_file_for_a_folder_and_a_folder_for_a_file_need_no_whiteout() {
        let differences = [
            difference("a", TREE, 0),
            difference("a/b", FILE, 0),
            difference("a", 0, FILE),
            difference("c", FILE, 0),
            difference("c", 0, TREE),
            difference("c/d", 0, FILE),
        ];
        assert_eq!(shown(&differences), ["+a", "+c/d"]);
    }

    #[test]
    fn a_submodule_covers_each_name_of_the_folder_it_replaces() {
        let differences = [
            difference("a", TREE, 0),
            difference("a/b", TREE, 0),
            difference("a/b/c", FILE, 0),
            difference("a/d", FILE, 0),
            difference("a", 0, SUBMODULE),
            difference("e", 0, SUBMODULE),
            difference("f", SUBMODULE, SUBMODULE),
        ];
        assert_eq!(shown(&differences), ["-a/b", "-a/d", "/e"]);
    }
}
