//! Where boards keep their files: one lock, one way to write, nothing half done.
//!
//! A verb of a board looks at the files and says what it wants as [`Effects`]: each file with the bytes it
//! was decided over. [`Store::update`] takes the lock, lets the verb look, and carries out what it wants: all
//! of it or nothing. If a person changed a file under the verb (an editor knows no lock), their lines are kept;
//! where they touch what is to change, nothing is written and the verb looks again.
//!
//! What a person saves while a change is carried out is not lost either: see [`exchange`].
//!
//! Several files can't be renamed in one step. So what is to be done is first written down in a journal,
//! outside the work tree; whoever takes the lock next and finds one finishes it. A `kill -9` before the
//! journal is durable leaves nothing, after it everything.

mod etag;
pub mod exchange;
mod journal;
pub mod lock;
pub mod log;
pub mod memory;
pub mod tree;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use etag::ETag;
use exchange::{Exchange, WriterCheck};
use lock::{Lock, LockError};
use memory::Memory;
use tree::{Tree, TreeError};

use crate::text::merge::merge;

/// What a verb wants done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    pub changes: Vec<Change>,
    /// What of it is to be a commit. The store writes files; whoever has a git makes this.
    pub commit: Option<Commit>,
}

/// A commit of a board's own: these bytes of its files, and nothing else of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commit {
    /// One line.
    pub message: String,
    pub edits: Vec<Edit>,
    /// Without it nothing may be done: it is how others are told.
    pub is_needed: bool,
}

/// A piece of a file that becomes another. Where `before` is empty, there was no such file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub path: String,
    pub before: String,
    pub after: String,
}

/// One file, as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A file that must not exist yet.
    Create { path: String, content: String },
    /// A file whose text was `before` when this was decided. What a person changed since is kept where it lies apart.
    Replace { path: String, before: String, content: String },
    /// A file that goes elsewhere, perhaps changed on the way, if it still is what it was.
    Move { path: String, expected: String, to: String, content: String },
}

impl Change {
    pub fn path(&self) -> &str {
        match self {
            Change::Create { path, .. } | Change::Replace { path, .. } | Change::Move { path, .. } => path,
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
        self.changes.push(Change::Create { path: path.into(), content: content.into() });
    }

    /// A file whose text was `old` becomes `new`. The same text is no change.
    pub fn replace(&mut self, path: impl Into<String>, old: &str, new: impl Into<String>) {
        let (before, content) = (old.to_owned(), new.into());
        if content != before {
            self.changes.push(Change::Replace { path: path.into(), before, content });
        }
    }

    /// A file that may or may not exist: `old` is its text, if it does.
    pub fn put(&mut self, path: impl Into<String>, old: Option<&str>, new: impl Into<String>) {
        match old {
            Some(old) => self.replace(path, old, new),
            None => self.create(path, new),
        }
    }

    /// A file whose text was `old` goes elsewhere, as `new`.
    pub fn rename(
        &mut self,
        path: impl Into<String>,
        old: &str,
        to: impl Into<String>,
        new: impl Into<String>,
    ) {
        let (expected, content) = (ETag::of(old.as_bytes()).to_string(), new.into());
        self.changes.push(Change::Move { path: path.into(), expected, to: to.into(), content });
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

/// A repository's board files, and where their lock, journal and log are kept.
#[derive(Debug)]
pub struct Store {
    tree: Tree,
    state: PathBuf,
    check: WriterCheck,
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Tree(#[from] TreeError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{path} was changed by somebody else meanwhile; nothing was written")]
    Conflict { path: String },
    #[error("another program has {path} open for writing and does not close it; close it there")]
    Open { path: String },
    #[error("{path} was changed twice while it was written; one version of it is kept in {saved}")]
    Saved { path: String, saved: String },
    #[error("can't keep a journal in {}", path.display())]
    Journal { path: PathBuf, source: io::Error },
    #[error("the journal {} can't be read: {reason}; nothing is written until a person has looked at it", path.display())]
    OddJournal { path: PathBuf, reason: String },
}

/// What is remembered of folders between processes.
const MEMORY: &str = "folders";

/// How long a verb looks again when somebody changes files under it all the time.
const PATIENCE: Duration = Duration::from_secs(5);

impl Store {
    /// The board files below `root`. `state` is a folder of ours outside the work tree.
    pub fn open(root: &Path, state: &Path, check: WriterCheck) -> Result<Self, StoreError> {
        let mut tree = Tree::open(root)?;
        tree.memory = Memory::load(&state.join(MEMORY));
        Ok(Self { tree, state: state.to_owned(), check })
    }

    /// To look without writing. A commit of somebody else may be half seen: each file is whole, but two
    /// files may be of two moments.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Lets a verb look at the files under the lock, and does what it wants.
    pub fn update<T, E: From<StoreError>>(
        &self,
        mut verb: impl FnMut(&Tree) -> Result<(T, Effects), E>,
    ) -> Result<T, E> {
        let held = self.hold()?;
        let until = Instant::now() + PATIENCE;
        loop {
            let (answer, effects) = verb(held.tree())?;
            match held.commit(&effects) {
                Ok(()) => return Ok(answer),
                Err(StoreError::Conflict { .. }) if Instant::now() < until => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Keeps everybody else out, for somebody who looks and writes in steps of their own.
    pub fn hold(&self) -> Result<Held<'_>, StoreError> {
        Ok(Held { _lock: self.lock()?, store: self })
    }

    /// Takes the lock, and finishes what its last holder could not.
    fn lock(&self) -> Result<Lock, StoreError> {
        std::fs::create_dir_all(&self.state)
            .map_err(|source| StoreError::Journal { path: self.state.clone(), source })?;
        let lock = Lock::take(&self.state.join("board.lock"))?;
        if let Some((tree, entries)) = journal::left(&self.state)? {
            let exchange = Exchange { tree: &tree, check: self.check };
            let mut saved = None;
            for entry in &entries {
                match exchange.recover(entry) {
                    Err(error @ StoreError::Saved { .. }) => saved = Some(error),
                    other => other?,
                }
            }
            journal::remove(&self.state)?;
            // Told once: the next one finds nothing to recover.
            if let Some(saved) = saved {
                return Err(saved);
            }
        }
        Ok(lock)
    }

    fn commit(&self, effects: &Effects) -> Result<(), StoreError> {
        if effects.is_empty() {
            return Ok(());
        }
        let exchange = Exchange { tree: &self.tree, check: self.check };
        effects.changes.iter().try_for_each(|change| exchange.clear(change.path()))?;
        let changes = effects.changes.iter().map(|change| on_what_is_there(&self.tree, change));
        let changes = changes.collect::<Result<Vec<Change>, StoreError>>()?;
        journal::write(&self.state, &self.tree, &changes)?;
        let mut done = Vec::new();
        for change in &changes {
            match exchange.perform(change) {
                Ok(one) => done.push(one),
                // What the disk made of it is seen by whoever finds the journal.
                Err(StoreError::Tree(error)) if !matches!(error, TreeError::Exists { .. }) => {
                    return Err(error.into());
                }
                Err(error) => {
                    // What a person did comes first. The verb looks at it, and at files as they were.
                    done.iter().rev().try_for_each(|one| exchange.undo(one))?;
                    journal::remove(&self.state)?;
                    return Err(match error {
                        StoreError::Tree(TreeError::Exists { .. }) => {
                            StoreError::Conflict { path: change.path().to_owned() }
                        }
                        other => other,
                    });
                }
            }
        }
        exchange.tidy(&changes)?;
        journal::remove(&self.state)
    }
}

/// A store nobody else writes in.
#[derive(Debug)]
pub struct Held<'s> {
    store: &'s Store,
    _lock: Lock,
}

impl Held<'_> {
    pub fn tree(&self) -> &Tree {
        &self.store.tree
    }

    /// Does all of it, or nothing. A file that is not what it was is a conflict.
    pub fn commit(&self, effects: &Effects) -> Result<(), StoreError> {
        self.store.commit(effects)?;
        self.store.tree.memory.keep();
        Ok(())
    }
}

/// A change that was decided a moment ago, to the file as it is now.
fn on_what_is_there(tree: &Tree, change: &Change) -> Result<Change, StoreError> {
    let conflict = || StoreError::Conflict { path: change.path().to_owned() };
    match change {
        Change::Create { path, .. } if tree.exists(path) => Err(conflict()),
        Change::Create { .. } => Ok(change.clone()),
        Change::Replace { path, before, content } => {
            let now = tree.read_text(path)?.ok_or_else(conflict)?;
            let content = merge(before, content, &now).ok_or_else(conflict)?;
            Ok(Change::Replace { path: path.clone(), before: now, content })
        }
        Change::Move { path, expected, .. } => {
            let now = tree.read(path)?.map(|bytes| ETag::of(&bytes).to_string());
            (now.as_ref() == Some(expected)).then(|| change.clone()).ok_or_else(conflict)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("tree")).expect("a tree");
        let store = Store::open(&folder.path().join("tree"), &folder.path().join("state"), |_| Ok(false))
            .expect("a store");
        (folder, store)
    }

    fn exchange(store: &Store) -> Exchange<'_> {
        Exchange { tree: store.tree(), check: store.check }
    }

    fn text(store: &Store, name: &str) -> Option<String> {
        store.tree().read_text(name).expect("readable")
    }

    fn three() -> Effects {
        let mut effects = Effects::none();
        effects.create("new/deep.md", "made");
        effects.replace("old.md", "before", "after");
        effects.rename("from.md", "moved", "archive/to.md", "moved on");
        effects
    }

    fn ready() -> (tempfile::TempDir, Store) {
        let (folder, store) = store();
        store.tree().create("old.md", b"before").expect("made");
        store.tree().create("from.md", b"moved").expect("made");
        (folder, store)
    }

    fn done(store: &Store) -> [Option<String>; 4] {
        ["new/deep.md", "old.md", "from.md", "archive/to.md"].map(|name| text(store, name))
    }

    fn all() -> [Option<String>; 4] {
        [Some("made".into()), Some("after".into()), None, Some("moved on".into())]
    }

    #[test]
    fn what_a_verb_wants_is_done_and_no_journal_stays() {
        let (_folder, store) = ready();
        store.update(|_| Ok::<_, StoreError>(((), three()))).expect("done");
        assert_eq!(done(&store), all());
        assert_eq!(std::fs::read_dir(store.state()).expect("state").count(), 1, "the lock alone");
    }

    /// A crash after the journal and after any number of its changes, half of a move included.
    #[test]
    fn the_next_writer_finishes_what_a_crash_interrupted_at_any_step() {
        for performed in 0..=4 {
            let (_folder, store) = ready();
            std::fs::create_dir_all(store.state()).expect("state");
            let changes = three().changes;
            journal::write(store.state(), store.tree(), &changes).expect("journal");
            changes
                .iter()
                .take(performed.min(2))
                .for_each(|change| drop(exchange(&store).perform(change).expect("done")));
            if performed >= 3 {
                store.tree().create("archive/to.md", b"moved on").expect("half a move");
            }
            if performed == 4 {
                store.tree().remove("from.md").expect("the other half");
            }
            store.update(|_| Ok::<_, StoreError>(((), Effects::none()))).expect("recovered");
            assert_eq!(done(&store), all(), "after {performed} steps");
        }
    }

    #[test]
    fn a_crash_before_the_journal_is_whole_leaves_nothing() {
        let (_folder, store) = ready();
        std::fs::create_dir_all(store.state()).expect("state");
        std::fs::write(store.state().join(".board-journal.json.agency-new"), "{\"version\":").expect("torn");
        store.update(|_| Ok::<_, StoreError>(((), Effects::none()))).expect("nothing to do");
        assert_eq!(done(&store), [None, Some("before".into()), Some("moved".into()), None]);
    }

    #[test]
    fn what_somebody_wrote_after_a_crash_stays() {
        let (_folder, store) = ready();
        std::fs::create_dir_all(store.state()).expect("state");
        journal::write(store.state(), store.tree(), &three().changes).expect("journal");
        store.tree().replace("old.md", b"a person's").expect("written");
        store.update(|_| Ok::<_, StoreError>(((), Effects::none()))).expect("recovered");
        assert_eq!(text(&store, "old.md").as_deref(), Some("a person's"));
        assert_eq!(text(&store, "new/deep.md").as_deref(), Some("made"));
    }

    #[test]
    fn a_file_that_changed_under_a_verb_makes_it_look_again() {
        let (_folder, store) = ready();
        let mut looks = 0;
        store
            .update(|tree| {
                looks += 1;
                let old = tree.read_text("old.md").map_err(StoreError::from)?.expect("there");
                if looks == 1 {
                    tree.replace("old.md", b"a person's").map_err(StoreError::from)?;
                }
                let mut effects = Effects::none();
                effects.replace("old.md", &old, format!("{old} and ours"));
                Ok::<_, StoreError>(((), effects))
            })
            .expect("done");
        assert_eq!((looks, text(&store, "old.md").as_deref()), (2, Some("a person's and ours")));
    }

    #[test]
    fn a_file_that_always_changes_is_a_conflict_and_nothing_is_written() {
        let (_folder, store) = ready();
        let mut effects = three();
        effects.replace("old.md", "never this", "x");
        let refused = store.update(|_| Ok::<_, StoreError>(((), effects.clone())));
        assert!(matches!(refused, Err(StoreError::Conflict { path }) if path == "old.md"));
        assert_eq!(text(&store, "new/deep.md"), None);
    }

    #[test]
    fn nothing_is_read_or_written_through_a_link() {
        let (folder, store) = store();
        let outside = folder.path().join("outside");
        std::fs::create_dir(&outside).expect("a folder");
        std::fs::write(outside.join("secret"), "secret").expect("a file");
        std::os::unix::fs::symlink(&outside, store.tree().path().join("inbox")).expect("a link");
        std::os::unix::fs::symlink(outside.join("secret"), store.tree().path().join("link")).expect("a link");
        assert!(matches!(store.tree().read("inbox/secret"), Err(TreeError::Link { .. })));
        assert!(matches!(store.tree().read("link"), Err(TreeError::Link { .. })));
        assert!(matches!(store.tree().list("inbox"), Err(TreeError::Link { .. })));
        assert!(matches!(store.tree().create("inbox/new", b"x"), Err(TreeError::Link { .. })));
        assert!(matches!(store.tree().replace("link", b"x"), Err(TreeError::Link { .. })));
        assert!(store.tree().read("../outside/secret").is_err());
        assert!(store.tree().replace("../outside/secret", b"x").is_err());
        assert_eq!(std::fs::read_to_string(outside.join("secret")).expect("readable"), "secret");
    }

    #[test]
    fn a_pipe_in_place_of_a_file_blocks_nobody() {
        let (_folder, store) = store();
        let path = store.tree().path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("a pipe");
        assert!(matches!(store.tree().read("pipe"), Err(TreeError::Irregular { .. })));
    }
}
