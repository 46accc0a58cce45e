//! Effects: the changes that a verb of a board wants.

use super::etag::ETag;

/// The changes that a verb wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    pub changes: Vec<FileChange>,
    /// The commit, where the board wants one. The store writes files only; the caller with a git makes the commit.
    pub commit: Option<BoardCommit>,
}

/// A board's commit: these edits of its files, and nothing else in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoardCommit {
    /// One line.
    pub message: String,
    pub edits: Vec<FileEdit>,
    /// Whether the files may only change together with the commit, because it tells the other clones.
    pub is_needed: bool,
}

/// A piece of a file that becomes another. Where `before` is empty, there was no such file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdit {
    pub path: String,
    pub before: String,
    pub after: String,
}

/// One change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChange {
    /// A file that must not exist yet.
    Create { path: String, content: String },
    /// A file whose text was `before` when this was decided. A person's later changes to other lines are kept.
    Replace { path: String, before: String, content: String },
    /// A file that is moved, perhaps with a change, if its text is still the expected one.
    Move { path: String, expected: String, to: String, content: String },
}

impl FileChange {
    pub fn path(&self) -> &str {
        match self {
            FileChange::Create { path, .. }
            | FileChange::Replace { path, .. }
            | FileChange::Move { path, .. } => path,
        }
    }
}

impl Effects {
    pub fn none() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub fn create(&mut self, path: impl Into<String>, content: impl Into<String>) {
        self.changes.push(FileChange::Create { path: path.into(), content: content.into() });
    }

    /// Replaces a file whose text was `old`. The same text is no change.
    pub fn replace(&mut self, path: impl Into<String>, old: &str, new: impl Into<String>) {
        let (before, content) = (old.to_owned(), new.into());
        if content != before {
            self.changes.push(FileChange::Replace { path: path.into(), before, content });
        }
    }

    /// Writes a file that may or may not exist: `old` is its text, if it does.
    pub fn put(&mut self, path: impl Into<String>, old: Option<&str>, new: impl Into<String>) {
        match old {
            Some(old) => self.replace(path, old, new),
            None => self.create(path, new),
        }
    }

    /// Moves a file whose text was `old`, with the text `new`.
    pub fn rename(
        &mut self,
        path: impl Into<String>,
        old: &str,
        to: impl Into<String>,
        new: impl Into<String>,
    ) {
        let (expected, content) = (ETag::of(old.as_bytes()).to_string(), new.into());
        self.changes.push(FileChange::Move { path: path.into(), expected, to: to.into(), content });
    }

    pub fn and(mut self, more: Effects) -> Self {
        self.changes.extend(more.changes);
        self.commit = match (self.commit, more.commit) {
            (Some(mut commit), Some(more)) => {
                commit.edits.extend(more.edits);
                commit.is_needed |= more.is_needed;
                Some(commit)
            }
            (commit, more) => commit.or(more),
        };
        self
    }
}
