//! The store of board files: one lock, one way to write, and all of a change or nothing.
//!
//! A verb of a board reads the files and returns [`Effects`]: each file's change with the bytes on which the verb
//! decided. [`BoardStore::update`] takes the lock, calls the verb, and carries out its effects: all of them or none. If
//! a person changed a file meanwhile (an editor knows no lock), their lines are kept; where they touch the lines to
//! change, nothing is written and the verb is called again. It is also called again when it refuses something while a
//! file that it read is being written.
//!
//! A person's save while a change is carried out is not lost either: see [`exchange`].
//!
//! Several files can't be renamed in one step. So the changes are first written into a journal, outside the work tree;
//! the next process that takes the lock and finds a journal finishes it. A `kill -9` before the journal is durable
//! leaves nothing, after it everything.

mod displaced;
mod effects;
mod error;
mod etag;
pub mod exchange;
pub mod folder_cache;
mod journal;
pub mod jsonl;
pub mod lock;
mod read_files;
pub mod tree;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use displaced::WriterCheck;
pub use effects::{BoardCommit, Effects, FileChange, FileEdit};
pub use error::BoardStoreError;
pub use etag::ETag;
use exchange::FileExchange;
use folder_cache::FolderCache;
use lock::FileLock;
use tree::{RepoTree, RepoTreeError};

use crate::text::merge::merge;

/// A repository's board files, and where their lock, journal and log are kept.
#[derive(Debug)]
pub struct BoardStore {
    tree: RepoTree,
    state: PathBuf,
    check: WriterCheck,
}

/// The file of the folder cache, which processes share.
const MEMORY: &str = "folders";

/// How long a verb is called again while another program keeps changing its files.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a file that a verb could not use, and that another program is writing, is waited for, and how long between.
const WRITTEN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(2);

impl BoardStore {
    /// The board files below `root`. `state` is a folder of ours outside the work tree.
    pub fn open(root: &Path, state: &Path, check: WriterCheck) -> Result<Self, BoardStoreError> {
        let mut tree = RepoTree::open(root)?;
        tree.memory = FolderCache::load(&state.join(MEMORY));
        Ok(Self { tree, state: state.to_owned(), check })
    }

    /// The files, for reading only. Another process's commit may be half visible: each file is whole, but two files may
    /// be of different times.
    pub fn tree(&self) -> &RepoTree {
        &self.tree
    }

    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Calls a verb under the lock, and carries out its effects.
    pub fn update<T, E: From<BoardStoreError>>(
        &self,
        mut verb: impl FnMut(&RepoTree) -> Result<(T, Effects), E>,
    ) -> Result<T, E> {
        let held = self.lock_for_update()?;
        let until = Instant::now() + PATIENCE;
        loop {
            let (answer, effects) = held.ask(&mut verb)?;
            match held.commit(&effects) {
                Ok(()) => return Ok(answer),
                Err(BoardStoreError::Conflict { .. }) if Instant::now() < until => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the lock, for a caller that reads and writes in steps of its own.
    pub fn lock_for_update(&self) -> Result<BoardStoreGuard<'_>, BoardStoreError> {
        Ok(BoardStoreGuard { _lock: self.lock()?, store: self })
    }

    /// Takes the lock, and finishes the commit of a holder that was killed.
    fn lock(&self) -> Result<FileLock, BoardStoreError> {
        std::fs::create_dir_all(&self.state)
            .map_err(|source| BoardStoreError::Journal { path: self.state.clone(), source })?;
        let lock = FileLock::take(&self.state.join("board.lock"))?;
        if let Some((tree, entries)) = journal::read_pending(&self.state)? {
            let exchange = FileExchange { tree: &tree, check: self.check };
            let mut saved = None;
            for entry in &entries {
                match exchange.recover(entry) {
                    Err(error @ BoardStoreError::Saved { .. }) => saved = Some(error),
                    other => other?,
                }
            }
            journal::remove(&self.state)?;
            // Reported once: the next caller finds nothing to recover.
            if let Some(saved) = saved {
                return Err(saved);
            }
        }
        Ok(lock)
    }

    fn commit(&self, effects: &Effects) -> Result<(), BoardStoreError> {
        if effects.is_empty() {
            return Ok(());
        }
        let exchange = FileExchange { tree: &self.tree, check: self.check };
        effects.changes.iter().try_for_each(|change| exchange.clear_staging(change.path()))?;
        let changes = effects.changes.iter().map(|change| rebase(&self.tree, change));
        let changes = changes.collect::<Result<Vec<FileChange>, BoardStoreError>>()?;
        journal::write(&self.state, &self.tree, &changes)?;
        let mut done = Vec::new();
        for change in &changes {
            match exchange.apply(change) {
                Ok(one) => done.push(one),
                // The next process that finds the journal sees how much of it is on the disk.
                Err(BoardStoreError::Tree(error)) if !matches!(error, RepoTreeError::Exists { .. }) => {
                    return Err(error.into());
                }
                Err(error) => {
                    // A person's change takes precedence. The verb is called again, with the files as they were.
                    done.iter().rev().try_for_each(|one| exchange.undo(one))?;
                    journal::remove(&self.state)?;
                    return Err(match error {
                        BoardStoreError::Tree(RepoTreeError::Exists { .. }) => {
                            BoardStoreError::Conflict { path: change.path().to_owned() }
                        }
                        other => other,
                    });
                }
            }
        }
        exchange.remove_displaced(&changes)?;
        journal::remove(&self.state)
    }
}

/// A locked store: no other process writes in it.
#[derive(Debug)]
pub struct BoardStoreGuard<'s> {
    store: &'s BoardStore,
    _lock: FileLock,
}

impl BoardStoreGuard<'_> {
    pub fn tree(&self) -> &RepoTree {
        &self.store.tree
    }

    /// Calls a verb. What it refuses does not count while another program writes a file that it read: it is called again.
    pub fn ask<T, E>(&self, mut verb: impl FnMut(&RepoTree) -> Result<T, E>) -> Result<T, E> {
        let until = Instant::now() + WRITTEN;
        let BoardStore { tree, check, .. } = self.store;
        loop {
            tree.reads.begin();
            let answer = verb(tree);
            let read = tree.reads.end();
            if answer.is_ok() || Instant::now() >= until || !read.are_being_written(tree, *check) {
                return answer;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Carries out all effects, or none. A file that has changed is a conflict.
    pub fn commit(&self, effects: &Effects) -> Result<(), BoardStoreError> {
        self.store.commit(effects)?;
        self.store.tree.memory.save();
        Ok(())
    }
}

/// Adapts a change to the file as it is now.
fn rebase(tree: &RepoTree, change: &FileChange) -> Result<FileChange, BoardStoreError> {
    let conflict = || BoardStoreError::Conflict { path: change.path().to_owned() };
    match change {
        FileChange::Create { path, .. } if tree.exists(path) => Err(conflict()),
        FileChange::Create { .. } => Ok(change.clone()),
        FileChange::Replace { path, before, content } => {
            let now = tree.read_text(path)?.ok_or_else(conflict)?;
            let content = merge(before, content, &now).ok_or_else(conflict)?;
            Ok(FileChange::Replace { path: path.clone(), before: now, content })
        }
        FileChange::Move { path, expected, .. } => {
            let now = tree.read(path)?.map(|bytes| ETag::of(&bytes).to_string());
            (now.as_ref() == Some(expected)).then(|| change.clone()).ok_or_else(conflict)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, BoardStore) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("tree")).expect("a tree");
        let store =
            BoardStore::open(&folder.path().join("tree"), &folder.path().join("state"), |_| Ok(false))
                .expect("a store");
        (folder, store)
    }

    fn exchange(store: &BoardStore) -> FileExchange<'_> {
        FileExchange { tree: store.tree(), check: store.check }
    }

    fn text(store: &BoardStore, name: &str) -> Option<String> {
        store.tree().read_text(name).expect("readable")
    }

    fn three() -> Effects {
        let mut effects = Effects::none();
        effects.create("new/deep.md", "made");
        effects.replace("old.md", "before", "after");
        effects.rename("from.md", "moved", "archive/to.md", "moved on");
        effects
    }

    fn ready() -> (tempfile::TempDir, BoardStore) {
        let (folder, store) = store();
        store.tree().create("old.md", b"before").expect("made");
        store.tree().create("from.md", b"moved").expect("made");
        (folder, store)
    }

    fn done(store: &BoardStore) -> [Option<String>; 4] {
        ["new/deep.md", "old.md", "from.md", "archive/to.md"].map(|name| text(store, name))
    }

    fn all() -> [Option<String>; 4] {
        [Some("made".into()), Some("after".into()), None, Some("moved on".into())]
    }

    #[test]
    fn what_a_verb_wants_is_done_and_no_journal_stays() {
        let (_folder, store) = ready();
        store.update(|_| Ok::<_, BoardStoreError>(((), three()))).expect("done");
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
                .for_each(|change| drop(exchange(&store).apply(change).expect("done")));
            if performed >= 3 {
                store.tree().create("archive/to.md", b"moved on").expect("half a move");
            }
            if performed == 4 {
                store.tree().remove("from.md").expect("the other half");
            }
            store.update(|_| Ok::<_, BoardStoreError>(((), Effects::none()))).expect("recovered");
            assert_eq!(done(&store), all(), "after {performed} steps");
        }
    }

    #[test]
    fn a_crash_before_the_journal_is_whole_leaves_nothing() {
        let (_folder, store) = ready();
        std::fs::create_dir_all(store.state()).expect("state");
        std::fs::write(store.state().join(".board-journal.json.agency-new"), "{\"version\":").expect("torn");
        store.update(|_| Ok::<_, BoardStoreError>(((), Effects::none()))).expect("nothing to do");
        assert_eq!(done(&store), [None, Some("before".into()), Some("moved".into()), None]);
    }

    #[test]
    fn what_somebody_wrote_after_a_crash_stays() {
        let (_folder, store) = ready();
        std::fs::create_dir_all(store.state()).expect("state");
        journal::write(store.state(), store.tree(), &three().changes).expect("journal");
        store.tree().replace("old.md", b"a person's").expect("written");
        store.update(|_| Ok::<_, BoardStoreError>(((), Effects::none()))).expect("recovered");
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
                let old = tree.read_text("old.md").map_err(BoardStoreError::from)?.expect("there");
                if looks == 1 {
                    tree.replace("old.md", b"a person's").map_err(BoardStoreError::from)?;
                }
                let mut effects = Effects::none();
                effects.replace("old.md", &old, format!("{old} and ours"));
                Ok::<_, BoardStoreError>(((), effects))
            })
            .expect("done");
        assert_eq!((looks, text(&store, "old.md").as_deref()), (2, Some("a person's and ours")));
    }

    /// Git makes a file anew: it is not there, then empty, then whole.
    #[test]
    fn what_a_verb_refuses_while_a_file_is_written_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("tree");
        std::fs::create_dir(&root).expect("a tree");
        thread_local! { static OPEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) } }
        let store =
            BoardStore::open(&root, &folder.path().join("state"), |_| Ok(OPEN.get())).expect("opened");
        let mut seen = Vec::new();
        let asked = store.update(|tree| {
            let text = tree.read_text("a.md").map_err(BoardStoreError::from)?;
            let conflict = || Err(BoardStoreError::Conflict { path: "a.md".to_owned() });
            seen.push(text.clone());
            match (seen.len(), text.as_deref()) {
                (1, None) => std::fs::write(root.join("a.md"), "").expect("made"),
                // Nothing has changed since it was read, and a program has it open.
                (2, Some("")) => OPEN.set(true),
                (3, Some("")) => {
                    OPEN.set(false);
                    std::fs::write(root.join("a.md"), "whole").expect("written");
                }
                (4, Some("whole")) => return Ok(((), Effects::none())),
                _ => {}
            }
            conflict()
        });
        asked.expect("done");
        assert_eq!(seen, [None, Some(String::new()), Some(String::new()), Some("whole".to_owned())]);
        let mut asked = 0;
        let refused = store.update(|tree| {
            asked += 1;
            tree.read_text("a.md").map_err(BoardStoreError::from)?;
            Err::<((), Effects), _>(BoardStoreError::Conflict { path: "a.md".to_owned() })
        });
        assert!(refused.is_err() && asked == 1, "a file that is whole is not read again: {asked}");
    }

    #[test]
    fn a_file_that_always_changes_is_a_conflict_and_nothing_is_written() {
        let (_folder, store) = ready();
        let mut effects = three();
        effects.replace("old.md", "never this", "x");
        let refused = store.update(|_| Ok::<_, BoardStoreError>(((), effects.clone())));
        assert!(matches!(refused, Err(BoardStoreError::Conflict { path }) if path == "old.md"));
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
        assert!(matches!(store.tree().read("inbox/secret"), Err(RepoTreeError::Link { .. })));
        assert!(matches!(store.tree().read("link"), Err(RepoTreeError::Link { .. })));
        assert!(matches!(store.tree().list("inbox"), Err(RepoTreeError::Link { .. })));
        assert!(matches!(store.tree().create("inbox/new", b"x"), Err(RepoTreeError::Link { .. })));
        assert!(matches!(store.tree().replace("link", b"x"), Err(RepoTreeError::Link { .. })));
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
        assert!(matches!(store.tree().read("pipe"), Err(RepoTreeError::Irregular { .. })));
    }
}
