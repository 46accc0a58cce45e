//! What was decided and is not done yet.
//!
//! A replaced file is written down as what differs: the list of ten thousand tasks that gets one more name is a
//! few bytes here.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::tree::Tree;
use super::{Change, ETag, StoreError};

const NAME: &str = "board-journal.json";
const VERSION: u32 = 1;

/// A commit that did not come to its end.
#[derive(Debug, Serialize, Deserialize)]
struct Journal {
    version: u32,
    /// The work tree it belongs to: several may share one state folder.
    root: String,
    entries: Vec<Entry>,
}

/// A change, as it is written down.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
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

pub(super) fn write(state: &Path, tree: &Tree, changes: &[Change]) -> Result<(), StoreError> {
    let root = tree.path().to_string_lossy().into_owned();
    let entries = changes.iter().map(entry).collect();
    let text = serde_json::to_vec(&Journal { version: VERSION, root, entries })
        .map_err(|error| StoreError::Journal { path: state.join(NAME), source: error.into() })?;
    Ok(Tree::open(state)?.replace(NAME, &text)?)
}

fn entry(change: &Change) -> Entry {
    match change.clone() {
        Change::Create { path, content } => Entry::Create { path, content },
        Change::Move { path, expected, to, content } => Entry::Move { path, expected, to, content },
        Change::Replace { path, before, content } => {
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
            Entry::Replace { path, expected, start, end, middle, result }
        }
    }
}

/// What a crash left to be done: the work tree, and the changes as they were decided.
pub(super) fn left(state: &Path) -> Result<Option<(Tree, Vec<Entry>)>, StoreError> {
    let Some(bytes) = Tree::open(state)?.read(NAME)? else { return Ok(None) };
    let odd = |reason: String| StoreError::OddJournal { path: state.join(NAME), reason };
    let journal: Journal = serde_json::from_slice(&bytes).map_err(|error| odd(error.to_string()))?;
    if journal.version != VERSION {
        return Err(odd(format!("it is of version {}, and this is {VERSION}", journal.version)));
    }
    // A linked work tree that is gone took its board with it.
    if !Path::new(&journal.root).is_dir() {
        remove(state)?;
        return Ok(None);
    }
    Ok(Some((Tree::open(Path::new(&journal.root))?, journal.entries)))
}

impl Entry {
    /// The file it changes, and the tags of the versions of it that are not a person's.
    pub(super) fn versions(&self) -> (&str, Vec<String>) {
        let tag = |content: &str| ETag::of(content.as_bytes()).to_string();
        match self {
            Self::Create { path, content } => (path, vec![tag(content)]),
            Self::Replace { path, expected, result, .. } => (path, vec![expected.clone(), result.clone()]),
            Self::Move { path, expected, .. } => (path, vec![expected.clone()]),
        }
    }

    /// The change, if it is not done and nobody else has changed the file since.
    pub(super) fn left_to_do(&self, tree: &Tree) -> Result<Option<Change>, StoreError> {
        let now = tree.read(self.versions().0)?;
        let is = |tag: &str| now.as_deref().is_some_and(|now| ETag::of(now).to_string() == tag);
        Ok(match self {
            Self::Create { path, content } => {
                now.is_none().then(|| Change::Create { path: path.clone(), content: content.clone() })
            }
            Self::Move { path, expected, to, content } if is(expected) => {
                let (path, expected, to, content) =
                    (path.clone(), expected.clone(), to.clone(), content.clone());
                Some(Change::Move { path, expected, to, content })
            }
            Self::Replace { path, expected, start, end, middle, result } if is(expected) => {
                let now = String::from_utf8(now.unwrap_or_default()).unwrap_or_default();
                let kept =
                    now.get(..*start).zip(now.len().checked_sub(*end).and_then(|from| now.get(from..)));
                let content = kept.map(|(start, end)| [start, middle, end].concat());
                content
                    .filter(|content| ETag::of(content.as_bytes()).to_string() == *result)
                    .map(|content| Change::Replace { path: path.clone(), before: now.clone(), content })
            }
            Self::Move { .. } | Self::Replace { .. } => None,
        })
    }
}

pub(super) fn remove(state: &Path) -> Result<(), StoreError> {
    Ok(Tree::open(state)?.remove(NAME)?)
}
