//! What a delta holds, file by file, written beside it: the next one takes over what both have.
//!
//! Every delta is the whole difference to its snapshot, so of two that follow each other the second has nearly all
//! that the first has. Making a file costs far more than naming it once more, above all where many were just removed,
//! so it is not made again.

#![allow(clippy::disallowed_methods, reason = "opens our own layers")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::objects::LINK;
use super::store::LockedLayer;

const NAME: &str = "files";

/// A file, or a link, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ManifestEntry {
    pub(super) mode: u32,
    /// Hexadecimal.
    pub(super) object: String,
    /// Bytes of the file, or of the link's target.
    pub(super) size: u64,
    /// When it says it was changed, in seconds.
    pub(super) time: u32,
}

/// By path.
pub(super) type DeltaManifest = BTreeMap<Vec<u8>, ManifestEntry>;

/// `<mode> <object> <size> <time> <path>`, each ended by a NUL.
fn write(manifest: &DeltaManifest) -> Vec<u8> {
    let mut text = Vec::new();
    for (path, kept) in manifest {
        let ManifestEntry { mode, object, size, time } = kept;
        text.extend_from_slice(format!("{mode:o} {object} {size} {time} ").as_bytes());
        text.extend_from_slice(path);
        text.push(0);
    }
    text
}

/// Reads a manifest; `None` for text that does not have its form.
fn read(text: &[u8]) -> Option<DeltaManifest> {
    let records = text.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    records
        .map(|record| {
            let mut fields = record.splitn(5, |byte| *byte == b' ');
            let mut field = || std::str::from_utf8(fields.next()?).ok();
            let mode = u32::from_str_radix(field()?, 8).ok()?;
            let object = field()?.to_owned();
            let (size, time) = (field()?.parse().ok()?, field()?.parse().ok()?);
            Some((fields.next()?.to_vec(), ManifestEntry { mode, object, size, time }))
        })
        .collect()
}

/// A delta whose files can be taken over.
#[derive(Debug)]
pub(super) struct ReusableDelta {
    pub(super) layer: PathBuf,
    pub(super) time: u32,
    manifest: DeltaManifest,
}

impl ReusableDelta {
    pub(super) fn of(delta: &LockedLayer) -> Option<Self> {
        let manifest = read(&fs::read(delta.path.join(NAME)).ok()?)?;
        Some(Self { layer: delta.layer(), time: delta.facts.time, manifest })
    }

    /// What it has at a path, if that is just this, and still as it was written.
    pub(super) fn reusable_entry(&self, path: &[u8], mode: u32, object: &str) -> Option<&ManifestEntry> {
        let kept = self.manifest.get(path).filter(|kept| kept.mode == mode && kept.object == object)?;
        let found = fs::symlink_metadata(self.layer.join(Path::new(OsStr::from_bytes(path)))).ok()?;
        let same_kind = if mode == LINK { found.is_symlink() } else { found.is_file() };
        let same = same_kind && found.size() == kept.size && found.mtime() == i64::from(kept.time);
        same.then_some(kept)
    }
}

/// Where the manifest of a delta under construction is written, and its text.
pub(super) fn file(folder: &Path, manifest: &DeltaManifest) -> (PathBuf, Vec<u8>) {
    (folder.join(NAME), write(manifest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_anything_else_is_nothing() {
        let kept = |mode, size| ManifestEntry { mode, object: "0a".repeat(20), size, time: 1_700_000_000 };
        let manifest = DeltaManifest::from([
            (b"a b/\xff\n c".to_vec(), kept(0o100755, 0)),
            (b"link".to_vec(), kept(LINK, u64::MAX)),
        ]);
        let text = write(&manifest);
        assert_eq!(read(&text), Some(manifest));
        for cut in 0..text.len() {
            assert_ne!(read(&text[..cut]).map(|read| read.len()), Some(2), "{cut}");
        }
        assert_eq!(read(b"100644 0a 1 late path\0"), None);
    }
}
