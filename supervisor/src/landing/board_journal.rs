//! What a board's commit is about to do to a person's checkout, so that whoever comes after a crash can take it back.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use agency_protocols::store::Edit;
use agency_sandbox::path::RelPath;
use serde::{Deserialize, Serialize};

use super::error::{Error, files};
use super::names::{Oid, RefName};
use super::repository::Repository;
use super::stamp::Identity;

const NAME: &str = "board.json";
const VERSION: u32 = 1;

/// Paths of the index, with what each has before and after.
pub(super) type Entries = Vec<(RelPath, Option<Oid>, Option<Oid>)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) target: RefName,
    /// Where the branch is until it is done, and then.
    pub(super) parent: Oid,
    pub(super) commit: Oid,
    pub(super) root: PathBuf,
    /// The git directory of the work tree, and its next index, where the branch is checked out.
    pub(super) git: Option<PathBuf>,
    pub(super) index: Option<Identity>,
    pub(super) edits: Vec<Edit>,
    pub(super) entries: Entries,
}

#[derive(Serialize, Deserialize)]
struct Written {
    version: u32,
    target: String,
    parent: String,
    commit: String,
    root: PathBuf,
    git: Option<PathBuf>,
    index: Option<Identity>,
    /// Path, before, after.
    edits: Vec<(String, String, String)>,
    entries: Vec<(String, Option<String>, Option<String>)>,
}

impl Pending {
    pub(super) fn write(&self, repository: &Repository) -> Result<(), Error> {
        let (path, next) = (repository.place.join(NAME), repository.place.join("board.json.next"));
        let failed = files("write", &path);
        let text = self.to_json().map_err(|reason| Error::Journal { path: path.clone(), reason })?;
        let mut file = File::create(&next).map_err(&failed)?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(&failed)?;
        fs::rename(&next, &path).map_err(&failed)?;
        sync(repository)
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
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(files("remove", &path)(error)),
            Ok(()) => sync(repository),
        }
    }

    fn to_json(&self) -> Result<Vec<u8>, String> {
        let text = |oid: &Option<Oid>| oid.as_ref().map(Oid::to_string);
        let written = Written {
            version: VERSION,
            target: self.target.as_str().to_owned(),
            parent: self.parent.to_string(),
            commit: self.commit.to_string(),
            root: self.root.clone(),
            git: self.git.clone(),
            index: self.index,
            edits: self
                .edits
                .iter()
                .map(|edit| (edit.path.clone(), edit.before.clone(), edit.after.clone()))
                .collect(),
            entries: self
                .entries
                .iter()
                .map(|(path, old, new)| (path.to_string(), text(old), text(new)))
                .collect(),
        };
        serde_json::to_vec(&written).map_err(|error| error.to_string())
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
        let maybe = |text: Option<String>| text.as_deref().map(oid).transpose();
        let entry = |(path, old, new): (String, Option<String>, Option<String>)| {
            let path = RelPath::parse(path.as_bytes()).map_err(|error| error.to_string())?;
            Ok::<_, String>((path, maybe(old)?, maybe(new)?))
        };
        Ok(Self {
            target: RefName::parse(&written.target).map_err(|error| error.to_string())?,
            parent: oid(&written.parent)?,
            commit: oid(&written.commit)?,
            root: written.root,
            git: written.git,
            index: written.index,
            edits: written
                .edits
                .into_iter()
                .map(|(path, before, after)| Edit { path, before, after })
                .collect(),
            entries: written.entries.into_iter().map(entry).collect::<Result<_, _>>()?,
        })
    }
}

fn sync(repository: &Repository) -> Result<(), Error> {
    let folder = &repository.place;
    File::open(folder).and_then(|open| open.sync_all()).map_err(files("sync", folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = r#"{"version":1,"target":"refs/heads/main","parent":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","commit":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","root":"/home/a/r","git":"/home/a/r/.git","index":{"inode":3,"size":7,"modified":[1,2]},"edits":[["work.md","- id: A\n","- id: B\n"]],"entries":[["work.md","cccccccccccccccccccccccccccccccccccccccc",null]]}"#;

    #[test]
    fn a_journal_of_version_1_is_read_and_written_as_it_is() {
        let pending = Pending::from_json(VERSION_1.as_bytes()).expect("parses");
        assert_eq!(String::from_utf8(pending.to_json().expect("writes")).expect("text"), VERSION_1);
    }

    #[test]
    fn another_version_and_nonsense_are_refused() {
        let other = VERSION_1.replace("\"version\":1", "\"version\":2");
        assert_eq!(Pending::from_json(other.as_bytes()), Err("it has version 2".to_owned()));
        for wrong in ["", "{}", &VERSION_1.replace("refs/heads/main", "main")] {
            assert!(Pending::from_json(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
