//! The record that lets an interrupted apply be undone or finished.
//!
//! One JSON file, replaced as a whole and durably each time. Its phase says what a crash may have left:
//!
//! ```text
//! (none)    the live folder is untouched
//! staging   there may be a stage directory; the live folder is untouched
//! applying  any of the operations may have happened: they are undone, and the phase is `staging` again
//! applied   all of them have; the stage is only to be cleared away
//! ```
//!
//! Which operations happened is not written down: it is seen, by the inode numbers recorded here, which a
//! rename keeps. A record of each step would itself have to be durable before and after the step.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::apply::ApplyError;
use super::tree::{self, NodeKind};
use crate::path::RelPath;

const VERSION: u32 = 1;
const NAME: &str = "apply.json";
const NEXT: &str = "apply.json.next";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ApplyJournal {
    pub(super) version: u32,
    pub(super) phase: ApplyPhase,
    /// The name of the stage, a directory at the top of the live folder.
    pub(super) stage: String,
    pub(super) operations: Vec<ApplyOperation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ApplyPhase {
    Staging,
    Applying,
    Applied,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ApplyOperation {
    #[serde(with = "raw")]
    pub(super) path: RelPath,
    pub(super) action: ApplyAction,
}

/// What is done to one path. A slot numbers the names `new-N` and `old-N` in the stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ApplyAction {
    /// The live entry moves to `old-N`.
    Delete {
        slot: usize,
        old: InodeIdentity,
    },
    MakeDirectory,
    /// `new-N` moves to a free path.
    Add {
        slot: usize,
        new: InodeIdentity,
    },
    /// `new-N` and the live entry change places; where that can't be done in one step, the live entry moves
    /// to `old-N` first.
    Replace {
        slot: usize,
        new: InodeIdentity,
        old: InodeIdentity,
    },
}

/// What tells one inode, unmodified, from every other. Device numbers are left out: they may differ after a
/// reboot, and everything here is on one file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InodeIdentity {
    inode: u64,
    directory: bool,
    modified: (i64, i64),
    size: u64,
}

impl InodeIdentity {
    pub(super) fn of(stat: &Stat) -> Self {
        let directory = tree::kind(stat) == NodeKind::Directory;
        let (modified, size) = match directory {
            // A directory's own change when what is in it does; that is looked at by itself.
            true => ((0, 0), 0),
            false => ((stat.st_mtime, stat.st_mtime_nsec as i64), tree::size(stat)),
        };
        Self { inode: stat.st_ino, directory, modified, size }
    }

    /// Whether it is the same inode, with no write since.
    pub(super) fn matches(&self, stat: &Stat) -> bool {
        *self == Self::of(stat)
    }

    pub(super) fn is_inode_of(&self, stat: &Stat) -> bool {
        self.inode == stat.st_ino
    }

    pub(super) fn is_directory(&self) -> bool {
        self.directory
    }
}

impl ApplyJournal {
    pub(super) fn new(stage: String) -> Self {
        Self { version: VERSION, phase: ApplyPhase::Staging, stage, operations: Vec::new() }
    }
}

/// The directory the journal lives in, held by one apply or recovery at a time.
#[derive(Debug)]
pub(super) struct JournalDirectory(OwnedFd);

impl JournalDirectory {
    pub(super) fn lock(directory: BorrowedFd<'_>) -> Result<Self, ApplyError> {
        // Opened anew: a lock belongs to the open file, and the caller's may be shared.
        let held = tree::open_directory(directory, &RelPath::root())
            .map_err(failed("open the journal's directory"))?;
        match fs::flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(held)),
            Err(Errno::WOULDBLOCK) => Err(ApplyError::Busy),
            Err(error) => Err(failed("lock the journal's directory")(error)),
        }
    }

    pub(super) fn read(&self) -> Result<Option<ApplyJournal>, ApplyError> {
        #[derive(Deserialize)]
        struct JournalVersion {
            version: u32,
        }
        let file = match tree::open_file(self.0.as_fd(), &RelPath::root().join(NAME.as_bytes())) {
            Ok((file, _)) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed("open the journal")(error)),
        };
        let text = io::read_to_string(file).map_err(failed("read the journal"))?;
        let JournalVersion { version } = serde_json::from_str(&text).map_err(ApplyError::Journal)?;
        if version != VERSION {
            return Err(ApplyError::Version { found: version });
        }
        serde_json::from_str(&text).map(Some).map_err(ApplyError::Journal)
    }

    pub(super) fn write(&self, journal: &ApplyJournal) -> Result<(), ApplyError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.0, NEXT, flags, Mode::from_raw_mode(0o600))
            .map_err(failed("make the journal"))?;
        let mut out = io::BufWriter::new(std::fs::File::from(file));
        serde_json::to_writer(&mut out, journal).map_err(ApplyError::Journal)?;
        let file = out.into_inner().map_err(|error| failed("write the journal")(error.into_error()))?;
        file.sync_all().map_err(failed("write the journal"))?;
        fs::renameat(&self.0, NEXT, &self.0, NAME).map_err(failed("put the journal in place"))?;
        fs::fsync(&self.0).map_err(failed("make the journal durable"))
    }

    pub(super) fn remove(&self) -> Result<(), ApplyError> {
        match fs::unlinkat(&self.0, NAME, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed("remove the journal")(error)),
        }
        fs::fsync(&self.0).map_err(failed("make the journal's removal durable"))
    }
}

/// Names what failed.
pub(super) fn failed<E: Into<io::Error>>(what: &'static str) -> impl Fn(E) -> ApplyError {
    move |error| ApplyError::Io { what, source: error.into() }
}

/// A path in JSON without loss: text where it is text, else a list of bytes.
mod raw {
    use super::{Deserialize, RelPath, Serialize};
    use serde::{Deserializer, Serializer, de::Error};

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum JournalPath {
        Text(String),
        Bytes(Vec<u8>),
    }

    pub(super) fn serialize<S: Serializer>(path: &RelPath, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(path.as_bytes()) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => JournalPath::Bytes(path.as_bytes().to_vec()).serialize(serializer),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RelPath, D::Error> {
        let bytes = match JournalPath::deserialize(deserializer)? {
            JournalPath::Text(text) => text.into_bytes(),
            JournalPath::Bytes(bytes) => bytes,
        };
        RelPath::parse(&bytes).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_read_back_as_it_was_written_whatever_the_names_are() {
        let identity =
            InodeIdentity { inode: u64::MAX, directory: false, modified: (-1, 999_999_999), size: 3 };
        let operation =
            |path: &[u8], action| ApplyOperation { path: RelPath::parse(path).expect("parses"), action };
        let journal = ApplyJournal {
            operations: vec![
                operation(b"a\xff\n", ApplyAction::Delete { slot: 1, old: identity }),
                operation(b"d\"\\", ApplyAction::MakeDirectory),
                operation("d/ü".as_bytes(), ApplyAction::Add { slot: 2, new: identity }),
                operation(b"e", ApplyAction::Replace { slot: 3, new: identity, old: identity }),
            ],
            ..ApplyJournal::new(".stage".into())
        };
        let text = serde_json::to_string(&journal).expect("serializes");
        assert_eq!(serde_json::from_str::<ApplyJournal>(&text).expect("parses"), journal);
    }

    #[test]
    fn a_journal_of_another_version_is_refused_by_number() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join(NAME), r#"{"version":7,"other":true}"#).expect("written");
        let held = std::fs::File::open(directory.path()).expect("opens");
        let desk = JournalDirectory::lock(held.as_fd()).expect("free");
        assert!(matches!(desk.read(), Err(ApplyError::Version { found: 7 })));
        assert!(matches!(JournalDirectory::lock(held.as_fd()), Err(ApplyError::Busy)));
    }
}
