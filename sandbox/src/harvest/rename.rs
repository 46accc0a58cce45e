//! Files that were only moved.
//!
//! A deleted and an added file with the same content are shown as one move, because that is what a person
//! did or wants to read. It decides nothing: both ends were judged already.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::BorrowedFd;

use super::tree::{self, CHUNK};
use super::{BaseLayers, HarvestChange, HarvestEntry};
use crate::path::RelPath;

/// Pairs of a deleted and an added path with equal content. Contents are read only where the sizes of both
/// sides allow a pair, once each; a file that can't be read is in no pair.
pub(super) fn find(
    changes: &[HarvestChange],
    upper: BorrowedFd<'_>,
    base: &BaseLayers,
) -> Vec<(RelPath, RelPath)> {
    let sized = |entry: &Option<HarvestEntry>, other: &Option<HarvestEntry>| match (entry, other) {
        (Some(HarvestEntry::File { size, .. }), None) if *size > 0 => Some(*size),
        _ => None,
    };
    let deleted_size = |change: &HarvestChange| sized(&change.before, &change.after);
    let added_size = |change: &HarvestChange| sized(&change.after, &change.before);
    let added_sizes: HashSet<u64> = changes.iter().filter_map(added_size).collect();
    let deleted: Vec<_> = changes
        .iter()
        .filter_map(|change| {
            deleted_size(change).filter(|size| added_sizes.contains(size)).map(|size| (size, &change.path))
        })
        .collect();
    let deleted_sizes: HashSet<u64> = deleted.iter().map(|(size, _)| *size).collect();

    // Keyed by a random key, so the agent can't make two contents collide.
    let state = RandomState::new();
    let mut gone: HashMap<(u64, u64), Vec<&RelPath>> = HashMap::new();
    for (size, path) in deleted {
        if let Ok(digest) = base.open(path).and_then(|file| digest(&state, file)) {
            gone.entry((size, digest)).or_default().push(path);
        }
    }
    let mut renames = Vec::new();
    for change in changes {
        let Some(size) = added_size(change).filter(|size| deleted_sizes.contains(size)) else { continue };
        let Ok(digest) = tree::unlock_file(upper, &change.path)
            .map_err(std::io::Error::from)
            .and_then(|(file, _)| digest(&state, file))
        else {
            continue;
        };
        let Some(sources) = gone.get_mut(&(size, digest)).filter(|sources| !sources.is_empty()) else {
            continue;
        };
        // Of several equal files, the one that kept its name is the likeliest. Only a few are asked: the agent
        // may have made a million equal ones.
        let same_name = sources.iter().take(64).position(|source| source.name() == change.path.name());
        let source = sources.remove(same_name.unwrap_or(0).min(sources.len() - 1));
        renames.push((source.clone(), change.path.clone()));
    }
    renames.sort();
    renames
}

fn digest(state: &RandomState, mut file: File) -> std::io::Result<u64> {
    let mut hasher = state.build_hasher();
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = tree::fill(&mut file, &mut buffer)?;
        hasher.write(&buffer[..read]);
        if read < buffer.len() {
            return Ok(hasher.finish());
        }
    }
}
