//! The folder of spare copies of objects (`spare_objects` says what they are for).

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agency_sandbox::durable;
use sha2::{Digest, Sha256};

use super::file_access::unique_name;
use super::file_stamp::FileIdentity;
use super::names::Oid;
use super::objects::ObjectKind;

/// How long a copy is kept. A reference names an object after milliseconds, or the attempt is tried again.
const LIFETIME: Duration = Duration::from_secs(600);
/// The folder of copies: one file for each object, with its kind and the digest of what follows on the first line.
#[derive(Debug)]
pub(super) struct SpareObjects {
    folder: PathBuf,
    unseen: Mutex<UncheckedObjects>,
}

/// Objects that a garbage collection may have removed and that were not checked since.
#[derive(Debug, Default)]
pub(super) struct UncheckedObjects {
    /// A garbage collection that ran for longer than we waited. We do not wait for it again; when it is gone, all
    /// objects are checked.
    pub(super) outwaited: Option<FileIdentity>,
    /// Objects that references came to name while one ran.
    pub(super) named: HashSet<Oid>,
}

impl UncheckedObjects {
    pub(super) fn is_nothing(&self) -> bool {
        self.outwaited.is_none() && self.named.is_empty()
    }
}

impl SpareObjects {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, unseen: Mutex::default() }
    }

    fn path(&self, object: &Oid) -> PathBuf {
        self.folder.join(object.as_str())
    }

    pub(super) fn unseen(&self) -> MutexGuard<'_, UncheckedObjects> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a copy. It is not synced, and an error is ignored: a spare copy is a second chance, not a promise.
    pub(super) fn keep(&self, object: &Oid, kind: ObjectKind, contents: &[u8]) {
        let text = [head(kind, contents).as_bytes(), contents].concat();
        let write = || durable::write_unsynced(&self.path(object), &unique_name(), &text);
        if write().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let _ = fs::create_dir(&self.folder);
            let _ = write();
        }
    }

    /// Reads a complete copy. A copy that a crash of the machine truncated or emptied is removed.
    pub(super) fn read(&self, object: &Oid) -> Option<(ObjectKind, Vec<u8>)> {
        let text = fs::read(self.path(object)).ok()?;
        let whole = parse(&text);
        if whole.is_none() {
            let _ = fs::remove_file(self.path(object));
        }
        whole
    }

    pub(super) fn has(&self, object: &Oid) -> bool {
        self.path(object).exists()
    }

    pub(super) fn has_any(&self) -> bool {
        fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Removes old copies, and what writers left that were killed.
    pub(super) fn remove_old(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let written = entry.metadata().and_then(|stat| stat.modified());
            if written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LIFETIME)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn head(kind: ObjectKind, contents: &[u8]) -> String {
    let digest: String = Sha256::digest(contents).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} {digest}\n", kind.name())
}

fn parse(text: &[u8]) -> Option<(ObjectKind, Vec<u8>)> {
    let end = text.iter().position(|byte| *byte == b'\n')? + 1;
    let (said, contents) = text.split_at(end);
    let kinds = [ObjectKind::Blob, ObjectKind::Tree, ObjectKind::Commit];
    let kind = kinds.into_iter().find(|kind| said.starts_with(kind.name().as_bytes()))?;
    (head(kind, contents).as_bytes() == said).then(|| (kind, contents.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_read_as_it_was_written_and_one_that_was_cut_off_anywhere_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let spares = SpareObjects::new(folder.path().join("spares"));
        let object = Oid::parse(&"a1".repeat(20)).expect("a name");
        assert!(spares.read(&object).is_none());
        let tree = b"100644 a\0\x01\x02\n\x04".to_vec();
        for kind in [ObjectKind::Blob, ObjectKind::Tree, ObjectKind::Commit] {
            spares.keep(&object, kind, &tree);
            assert_eq!(spares.read(&object), Some((kind, tree.clone())));
            let whole = fs::read(spares.path(&object)).expect("read");
            for length in 0..whole.len() {
                fs::write(spares.path(&object), &whole[..length]).expect("written");
                assert_eq!(spares.read(&object), None, "{length}");
                assert!(!spares.has(&object), "{length}");
            }
            // As some file systems leave it: long enough, and empty.
            fs::write(spares.path(&object), vec![0; whole.len()]).expect("written");
            assert_eq!(spares.read(&object), None);
        }
        assert!(!spares.has_any(), "nothing is left beside them");
    }

    #[test]
    fn a_copy_that_can_not_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let spares = SpareObjects::new(folder.path().to_owned());
        let object = Oid::parse(&"a1".repeat(20)).expect("a name");
        // A folder is in its way, so it can be filled and not be renamed.
        fs::create_dir(spares.path(&object)).expect("made");
        spares.keep(&object, ObjectKind::Blob, b"x");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }
}
