//! The journal of a landing: what it is about to do to a person's checkout. After a crash, the next landing takes it
//! back with this journal.
//!
//! One file in the state folder, durable before the first change. It does not record how far the landing got: the
//! references, the index and the files show that.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use agency_sandbox::path::RelPath;
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::file_stamp::FileIdentity;
use super::journal_file;
use super::names::{Oid, RefName};
use super::repository::LandingRepository;

const NAME: &str = "landing.json";
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingLanding {
    /// The reference that names `record` once the landing is done.
    pub(super) landed: RefName,
    pub(super) record: Oid,
    pub(super) target: RefName,
    /// Where the branch is until then.
    pub(super) target_at: Option<Oid>,
    /// The trees, or commits with them, that the checkout goes from and to.
    pub(super) from: Oid,
    pub(super) to: Oid,
    pub(super) root: PathBuf,
    pub(super) git: PathBuf,
    /// The next index.
    pub(super) index: FileIdentity,
    /// Files to which a person has already given their new content. An undo leaves them.
    pub(super) left: Vec<RelPath>,
    /// The same for entries of the index.
    pub(super) staged: Vec<RelPath>,
}

#[derive(Serialize, Deserialize)]
struct LandingJournalFile {
    version: u32,
    landed: String,
    record: String,
    target: String,
    target_at: Option<String>,
    from: String,
    to: String,
    root: JournalBytes,
    git: JournalBytes,
    index: FileIdentity,
    left: Vec<JournalBytes>,
    // Journals of older versions do not have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    staged: Vec<JournalBytes>,
}

/// Bytes in JSON without loss: text where they are text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum JournalBytes {
    Text(String),
    Bytes(Vec<u8>),
}

impl JournalBytes {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_vec()),
        }
    }

    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    fn path(self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.bytes()))
    }
}

impl PendingLanding {
    pub(super) fn write(&self, repository: &LandingRepository) -> Result<(), Error> {
        journal_file::write(&repository.place, NAME, &self.to_json()?)
    }

    pub(super) fn read(repository: &LandingRepository) -> Result<Option<Self>, Error> {
        journal_file::read(&repository.place, NAME, Self::from_json)
    }

    pub(super) fn forget(repository: &LandingRepository) -> Result<(), Error> {
        journal_file::remove(&repository.place, NAME)
    }

    fn to_json(&self) -> Result<Vec<u8>, Error> {
        let raw = |paths: &[RelPath]| paths.iter().map(|path| JournalBytes::of(path.as_bytes())).collect();
        let written = LandingJournalFile {
            version: VERSION,
            landed: self.landed.as_str().to_owned(),
            record: self.record.to_string(),
            target: self.target.as_str().to_owned(),
            target_at: self.target_at.as_ref().map(Oid::to_string),
            from: self.from.to_string(),
            to: self.to.to_string(),
            root: JournalBytes::of(self.root.as_os_str().as_bytes()),
            git: JournalBytes::of(self.git.as_os_str().as_bytes()),
            index: self.index,
            left: raw(&self.left),
            staged: raw(&self.staged),
        };
        let reason = |error: serde_json::Error| error.to_string();
        serde_json::to_vec_pretty(&written)
            .map_err(|error| Error::Journal { path: NAME.into(), reason: reason(error) })
    }

    fn from_json(text: &[u8]) -> Result<Self, String> {
        let written: LandingJournalFile = journal_file::parse(text, VERSION)?;
        let oid = |text: &str| Oid::parse(text).map_err(|error| error.to_string());
        let name = |text: &str| RefName::parse(text).map_err(|error| error.to_string());
        let path = |raw: JournalBytes| RelPath::parse(&raw.bytes()).map_err(|error| error.to_string());
        Ok(Self {
            landed: name(&written.landed)?,
            record: oid(&written.record)?,
            target: name(&written.target)?,
            target_at: written.target_at.as_deref().map(oid).transpose()?,
            from: oid(&written.from)?,
            to: oid(&written.to)?,
            root: written.root.path(),
            git: written.git.path(),
            index: written.index,
            left: written.left.into_iter().map(path).collect::<Result<_, _>>()?,
            staged: written.staged.into_iter().map(path).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = r#"{
  "version": 1,
  "landed": "refs/agency/landed/kodingx/T1",
  "record": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
  "target": "refs/heads/main",
  "target_at": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
  "from": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
  "to": "cccccccccccccccccccccccccccccccccccccccc",
  "root": "/home/a/r",
  "git": [
    47,
    255
  ],
  "index": {
    "inode": 18446744073709551615,
    "size": 7,
    "modified": [
      -1,
      999999999
    ]
  },
  "left": [
    "a/b"
  ]
}"#;

    #[test]
    fn a_journal_of_version_1_is_read_and_written_as_it_is() {
        let pending = PendingLanding::from_json(VERSION_1.as_bytes()).expect("parses");
        assert_eq!(pending.git.as_os_str().as_bytes(), b"/\xff");
        assert_eq!(pending.left, [RelPath::parse(b"a/b").expect("a path")]);
        assert_eq!(String::from_utf8(pending.to_json().expect("writes")).expect("text"), VERSION_1);
    }

    #[test]
    fn what_a_person_had_staged_is_read_back() {
        let mut pending = PendingLanding::from_json(VERSION_1.as_bytes()).expect("parses");
        assert!(pending.staged.is_empty());
        pending.staged = vec![RelPath::parse(b"\xffa").expect("a path")];
        assert_eq!(PendingLanding::from_json(&pending.to_json().expect("writes")), Ok(pending));
    }

    #[test]
    fn another_version_and_nonsense_are_refused() {
        let other = VERSION_1.replace("\"version\": 1", "\"version\": 2");
        assert_eq!(PendingLanding::from_json(other.as_bytes()), Err("it has version 2".to_owned()));
        for wrong in
            ["", "{}", &VERSION_1.replace("refs/heads/main", "main"), &VERSION_1.replace("a/b", "../b")]
        {
            assert!(PendingLanding::from_json(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
