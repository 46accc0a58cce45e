//! The journal of a board's commit: what it is about to do to a person's checkout. After a crash, the next commit takes
//! it back with this journal.

use std::path::PathBuf;

use agency_sandbox::path::RelPath;
use serde::{Deserialize, Serialize};

use super::board_edit::CommitEdit;
use super::error::Error;
use super::file_stamp::FileIdentity;
use super::journal_file;
use super::names::{Oid, RefName};
use super::repository::LandingRepository;

const NAME: &str = "board.json";
const VERSION: u32 = 1;

/// Paths of the index, each with its object before and after.
pub(super) type IndexChanges = Vec<(RelPath, Option<Oid>, Option<Oid>)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PendingBoardCommit {
    pub(super) target: RefName,
    /// The commit of the branch before.
    pub(super) parent: Oid,
    pub(super) commit: Oid,
    pub(super) root: PathBuf,
    /// The git directory of the work tree, and its next index, where the branch is checked out.
    pub(super) git: Option<PathBuf>,
    pub(super) index: Option<FileIdentity>,
    pub(super) edits: Vec<CommitEdit>,
    pub(super) entries: IndexChanges,
}

#[derive(Serialize, Deserialize)]
struct BoardJournalFile {
    version: u32,
    target: String,
    parent: String,
    commit: String,
    root: PathBuf,
    git: Option<PathBuf>,
    index: Option<FileIdentity>,
    /// Path, before, after.
    edits: Vec<(String, String, String)>,
    entries: Vec<(String, Option<String>, Option<String>)>,
}

impl PendingBoardCommit {
    pub(super) fn write(&self, repository: &LandingRepository) -> Result<(), Error> {
        let text =
            self.to_json().map_err(|reason| Error::Journal { path: repository.place.join(NAME), reason })?;
        journal_file::write(&repository.place, NAME, &text)
    }

    pub(super) fn read(repository: &LandingRepository) -> Result<Option<Self>, Error> {
        journal_file::read(&repository.place, NAME, Self::from_json)
    }

    pub(super) fn forget(repository: &LandingRepository) -> Result<(), Error> {
        journal_file::remove(&repository.place, NAME)
    }

    fn to_json(&self) -> Result<Vec<u8>, String> {
        let text = |oid: &Option<Oid>| oid.as_ref().map(Oid::to_string);
        let written = BoardJournalFile {
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
        let written: BoardJournalFile = journal_file::parse(text, VERSION)?;
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
                .map(|(path, before, after)| CommitEdit { path, before, after })
                .collect(),
            entries: written.entries.into_iter().map(entry).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = r#"{"version":1,"target":"refs/heads/main","parent":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","commit":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","root":"/home/a/r","git":"/home/a/r/.git","index":{"inode":3,"size":7,"modified":[1,2]},"edits":[["work.md","- id: A\n","- id: B\n"]],"entries":[["work.md","cccccccccccccccccccccccccccccccccccccccc",null]]}"#;

    #[test]
    fn a_journal_of_version_1_is_read_and_written_as_it_is() {
        let pending = PendingBoardCommit::from_json(VERSION_1.as_bytes()).expect("parses");
        assert_eq!(String::from_utf8(pending.to_json().expect("writes")).expect("text"), VERSION_1);
    }

    #[test]
    fn another_version_and_nonsense_are_refused() {
        let other = VERSION_1.replace("\"version\":1", "\"version\":2");
        assert_eq!(PendingBoardCommit::from_json(other.as_bytes()), Err("it has version 2".to_owned()));
        for wrong in ["", "{}", &VERSION_1.replace("refs/heads/main", "main")] {
            assert!(PendingBoardCommit::from_json(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
