//! The journal of the board store: changes that were decided and are not carried out yet.
//!
//! A replaced file is recorded by its difference: a list of ten thousand tasks that gets one more name takes a few
//! bytes here.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::effects::FileChange;
use super::error::BoardStoreError;
use super::etag::ETag;
use super::tree::RepoTree;

const NAME: &str = "board-journal.json";
const VERSION: u32 = 1;

/// An unfinished commit.
#[derive(Debug, Serialize, Deserialize)]
struct StoreJournal {
    version: u32,
    /// The work tree it belongs to: several may share one state folder.
    root: String,
    entries: Vec<JournalChange>,
}

/// A change, as the journal records it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum JournalChange {
    Create {
        path: String,
        content: String,
    },
    /// Between the first `start` and the last `end` bytes of a file stands `middle` now.
    Replace {
        path: String,
        expected: String,
        start: usize,
        end: usize,
        middle: String,
        result: String,
    },
    Move {
        path: String,
        expected: String,
        to: String,
        content: String,
    },
}

pub(super) fn write(state: &Path, tree: &RepoTree, changes: &[FileChange]) -> Result<(), BoardStoreError> {
    let root = tree.path().to_string_lossy().into_owned();
    let entries = changes.iter().map(entry).collect();
    let text = serde_json::to_vec(&StoreJournal { version: VERSION, root, entries })
        .map_err(|error| BoardStoreError::Journal { path: state.join(NAME), source: error.into() })?;
    Ok(RepoTree::open(state)?.replace(NAME, &text)?)
}

fn entry(change: &FileChange) -> JournalChange {
    match change.clone() {
        FileChange::Create { path, content } => JournalChange::Create { path, content },
        FileChange::Move { path, expected, to, content } => {
            JournalChange::Move { path, expected, to, content }
        }
        FileChange::Replace { path, before, content } => {
            let old = before.as_bytes();
            let same = |(a, b): &(&u8, &u8)| a == b;
            let start = old.iter().zip(content.as_bytes()).take_while(same).count();
            let start = (0..=start).rev().find(|at| content.is_char_boundary(*at)).unwrap_or(0);
            let rest = old.len().min(content.len()) - start;
            let end =
                old.iter().rev().zip(content.as_bytes().iter().rev()).take(rest).take_while(same).count();
            let end = (0..=end).rev().find(|at| content.is_char_boundary(content.len() - at)).unwrap_or(0);
            let middle = content[start..content.len() - end].to_owned();
            let (expected, result) = (ETag::of(old).to_string(), ETag::of(content.as_bytes()).to_string());
            JournalChange::Replace { path, expected, start, end, middle, result }
        }
    }
}

/// Reads an unfinished commit: the work tree, and the changes as they were decided.
pub(super) fn read_pending(state: &Path) -> Result<Option<(RepoTree, Vec<JournalChange>)>, BoardStoreError> {
    let Some(bytes) = RepoTree::open(state)?.read(NAME)? else { return Ok(None) };
    let odd = |reason: String| BoardStoreError::OddJournal { path: state.join(NAME), reason };
    let journal: StoreJournal = serde_json::from_slice(&bytes).map_err(|error| odd(error.to_string()))?;
    if journal.version != VERSION {
        return Err(odd(format!("it is of version {}, and this is {VERSION}", journal.version)));
    }
    // A linked work tree that was removed had its board with it.
    if !Path::new(&journal.root).is_dir() {
        remove(state)?;
        return Ok(None);
    }
    Ok(Some((RepoTree::open(Path::new(&journal.root))?, journal.entries)))
}

impl JournalChange {
    /// The file that it changes, and the tags of our versions of it.
    pub(super) fn versions(&self) -> (&str, Vec<String>) {
        let tag = |content: &str| ETag::of(content.as_bytes()).to_string();
        match self {
            Self::Create { path, content } => (path, vec![tag(content)]),
            Self::Replace { path, expected, result, .. } => (path, vec![expected.clone(), result.clone()]),
            Self::Move { path, expected, .. } => (path, vec![expected.clone()]),
        }
    }

    /// The change, unless it is done or another program has changed the file since.
    pub(super) fn remaining_change(&self, tree: &RepoTree) -> Result<Option<FileChange>, BoardStoreError> {
        let now = tree.read(self.versions().0)?;
        let is = |tag: &str| now.as_deref().is_some_and(|now| ETag::of(now).to_string() == tag);
        Ok(match self {
            Self::Create { path, content } => {
                now.is_none().then(|| FileChange::Create { path: path.clone(), content: content.clone() })
            }
            Self::Move { path, expected, to, content } if is(expected) => {
                let (path, expected, to, content) =
                    (path.clone(), expected.clone(), to.clone(), content.clone());
                Some(FileChange::Move { path, expected, to, content })
            }
            Self::Replace { path, expected, start, end, middle, result } if is(expected) => {
                let now = String::from_utf8(now.unwrap_or_default()).unwrap_or_default();
                let kept =
                    now.get(..*start).zip(now.len().checked_sub(*end).and_then(|from| now.get(from..)));
                let content = kept.map(|(start, end)| [start, middle, end].concat());
                content
                    .filter(|content| ETag::of(content.as_bytes()).to_string() == *result)
                    .map(|content| FileChange::Replace { path: path.clone(), before: now.clone(), content })
            }
            Self::Move { .. } | Self::Replace { .. } => None,
        })
    }
}

pub(super) fn remove(state: &Path) -> Result<(), BoardStoreError> {
    Ok(RepoTree::open(state)?.remove(NAME)?)
}
