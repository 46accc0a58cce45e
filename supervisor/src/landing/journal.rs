//! What a landing is about to do to a person's checkout, so that whoever comes after a crash can take it back.
//!
//! One file in the state folder, durable before the first change. It does not say how far the landing got:
//! that is seen in the references, the index and the files.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agency_sandbox::path::RelPath;
use serde::{Deserialize, Serialize};

use super::error::{Error, files};
use super::names::{Oid, RefName};
use super::repository::Repository;
use super::stamp::Identity;

const NAME: &str = "landing.json";
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
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
    pub(super) index: Identity,
    /// Files that are as they will be already, by a person's hand. They are not ours to take back.
    pub(super) left: Vec<RelPath>,
    /// The same of what is staged.
    pub(super) staged: Vec<RelPath>,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    landed: String,
    record: String,
    target: String,
    target_at: Option<String>,
    from: String,
    to: String,
    root: Raw,
    git: Raw,
    index: Identity,
    left: Vec<Raw>,
    // Journals of before do not have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    staged: Vec<Raw>,
}

/// Bytes in JSON without loss: text where they are text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Raw {
    Text(String),
    Bytes(Vec<u8>),
}

impl Raw {
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

impl Pending {
    pub(super) fn write(&self, repository: &Repository) -> Result<(), Error> {
        let (path, next) = (repository.place.join(NAME), repository.place.join("landing.json.next"));
        let failed = files("write", &path);
        let mut file = File::create(&next).map_err(&failed)?;
        file.write_all(&self.to_json()?).map_err(&failed)?;
        file.sync_all().map_err(&failed)?;
        fs::rename(&next, &path).map_err(&failed)?;
        sync(&repository.place)
    }

    pub(super) fn read(repository: &Repository) -> Result<Option<Self>, Error> {
        let path = repository.place.join(NAME);
        match fs::read(&path) {
            Ok(text) => Self::from_json(&text)
                .map(Some)
                .map_err(|reason| Error::Journal { path: path.clone(), reason }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(files("read", &path)(error)),
        }
    }

    pub(super) fn forget(repository: &Repository) -> Result<(), Error> {
        let path = repository.place.join(NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(files("remove", &path)(error)),
            _ => sync(&repository.place),
        }
    }

    fn to_json(&self) -> Result<Vec<u8>, Error> {
        let raw = |paths: &[RelPath]| paths.iter().map(|path| Raw::of(path.as_bytes())).collect();
        let written = Written {
            version: VERSION,
            landed: self.landed.as_str().to_owned(),
            record: self.record.to_string(),
            target: self.target.as_str().to_owned(),
            target_at: self.target_at.as_ref().map(Oid::to_string),
            from: self.from.to_string(),
            to: self.to.to_string(),
            root: Raw::of(self.root.as_os_str().as_bytes()),
            git: Raw::of(self.git.as_os_str().as_bytes()),
            index: self.index,
            left: raw(&self.left),
            staged: raw(&self.staged),
        };
        let reason = |error: serde_json::Error| error.to_string();
        serde_json::to_vec_pretty(&written)
            .map_err(|error| Error::Journal { path: NAME.into(), reason: reason(error) })
    }

    fn from_json(text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let reason = |error: serde_json::Error| error.to_string();
        let Version { version } = serde_json::from_slice(text).map_err(reason)?;
        if version != VERSION {
            return Err(format!("it has version {version}"));
        }
        let written: Written = serde_json::from_slice(text).map_err(reason)?;
        let oid = |text: &str| Oid::parse(text).map_err(|error| error.to_string());
        let name = |text: &str| RefName::parse(text).map_err(|error| error.to_string());
        let path = |raw: Raw| RelPath::parse(&raw.bytes()).map_err(|error| error.to_string());
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

fn sync(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(files("sync", folder))
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
        let pending = Pending::from_json(VERSION_1.as_bytes()).expect("parses");
        assert_eq!(pending.git.as_os_str().as_bytes(), b"/\xff");
        assert_eq!(pending.left, [RelPath::parse(b"a/b").expect("a path")]);
        assert_eq!(String::from_utf8(pending.to_json().expect("writes")).expect("text"), VERSION_1);
    }

    #[test]
    fn what_a_person_had_staged_is_read_back() {
        let mut pending = Pending::from_json(VERSION_1.as_bytes()).expect("parses");
        assert!(pending.staged.is_empty());
        pending.staged = vec![RelPath::parse(b"\xffa").expect("a path")];
        assert_eq!(Pending::from_json(&pending.to_json().expect("writes")), Ok(pending));
    }

    #[test]
    fn another_version_and_nonsense_are_refused() {
        let other = VERSION_1.replace("\"version\": 1", "\"version\": 2");
        assert_eq!(Pending::from_json(other.as_bytes()), Err("it has version 2".to_owned()));
        for wrong in
            ["", "{}", &VERSION_1.replace("refs/heads/main", "main"), &VERSION_1.replace("a/b", "../b")]
        {
            assert!(Pending::from_json(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
