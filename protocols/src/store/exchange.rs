//! Changes files that a person may be writing at the same moment.
//!
//! No lock keeps an editor out. A program that reads a file, decides, and renames a new file over it loses a save in
//! between. So the new version and the old one change places in one step, and the displaced version is read afterwards,
//! when its path names the new one. If it is the version on which the change was decided, the change stands. If a
//! person saved another version, both changes are merged line by line; where they touch, the person's version goes back
//! to its place, and the verb is called again.
//!
//! `echo >> FILE` opens the file before that step and writes after it. So a displaced file counts only when no process
//! has it open for writing; the kernel knows that ([`WriterCheck`]).
//!
//! While a version goes back, a person may have written into ours. Then there are two versions of theirs. One of them
//! is kept beside the other, and the error names it ([`BoardStoreError::Saved`]).

pub use super::displaced::WriterCheck;

use super::displaced::DisplacedFile;
use super::effects::FileChange;
use super::error::BoardStoreError;
use super::etag::ETag;
use super::journal::JournalChange;
use super::tree::{RepoTree, RepoTreeError};
use crate::text::merge::merge;

/// How many versions of a file are synced before they are in its place. With a program that saves faster than the disk
/// syncs, this would never end otherwise.
const SYNCED: u32 = 3;

/// A folder whose files are changed in this way.
#[derive(Debug, Clone, Copy)]
pub struct FileExchange<'t> {
    pub tree: &'t RepoTree,
    pub check: WriterCheck,
}

/// A change that was carried out, with what it takes to undo it.
#[derive(Debug)]
pub(super) enum AppliedChange<'c> {
    Created {
        path: &'c str,
        content: &'c str,
    },
    /// `now` is the merge of a person's changes and ours.
    Replaced {
        path: &'c str,
        before: &'c str,
        content: &'c str,
        now: String,
    },
    Moved {
        path: &'c str,
        to: &'c str,
        content: &'c str,
    },
}

impl FileExchange<'_> {
    /// Replaces `before` by `after` in a file, to take back an interrupted change; `None` stands for no file. Where a
    /// person changed the same lines, theirs stay.
    pub fn put(&self, path: &str, before: &str, after: Option<&str>) -> Result<(), BoardStoreError> {
        self.clear_staging(path)?;
        let put = match after {
            Some(after) => self.replace(path, before, after).map(drop),
            None => self.uncreate(path, before),
        };
        match put {
            Ok(()) | Err(BoardStoreError::Conflict { .. } | BoardStoreError::Open { .. }) => {}
            Err(error) => return Err(error),
        }
        self.tree.unstage(path)?;
        Ok(self.tree.sync_parent(path)?)
    }

    /// Frees the place beside a file. A file there before a change was left by a crash without a journal, or came with
    /// the repository: it is never overwritten, and never trusted.
    pub(super) fn clear_staging(&self, path: &str) -> Result<(), BoardStoreError> {
        match DisplacedFile::read(self.tree, path, self.check)? {
            DisplacedFile::Nothing => Ok(()),
            DisplacedFile::File(bytes) if self.tree.read(path)?.as_ref() == Some(&bytes) => {
                Ok(self.tree.unstage(path)?)
            }
            _ => self.save(path),
        }
    }

    /// Carries out a change, or leaves everything as a person has it. The displaced version stays beside its place
    /// until [`Self::remove_displaced`], so that the change can be undone.
    pub(super) fn apply<'c>(&self, change: &'c FileChange) -> Result<AppliedChange<'c>, BoardStoreError> {
        match change {
            FileChange::Create { path, content } => {
                self.tree.create(path, content.as_bytes())?;
                Ok(AppliedChange::Created { path, content })
            }
            FileChange::Replace { path, before, content } => {
                let now = self.replace(path, before, content)?;
                Ok(AppliedChange::Replaced { path, before, content, now })
            }
            FileChange::Move { path, expected, to, content } => {
                match self.tree.create(to, content.as_bytes()) {
                    // A crash interrupted the change here.
                    Err(RepoTreeError::Exists { .. })
                        if self.tree.read(to)?.as_deref() == Some(content.as_bytes()) => {}
                    made => made?,
                }
                let displaced = match self.tree.displace(path)? {
                    true => DisplacedFile::read(self.tree, path, self.check)?,
                    false => DisplacedFile::Nothing,
                };
                if displaced.is(expected) {
                    return Ok(AppliedChange::Moved { path, to, content });
                }
                // A version beside a file that is gone was never ours.
                if displaced != DisplacedFile::Nothing {
                    self.put_back(path)?;
                }
                self.uncreate(to, content)?;
                Err(displaced.refusal(path))
            }
        }
    }

    /// Replaces `before` by `content`, merged with everything that a person saves meanwhile. Returns the merged text.
    fn replace(&self, path: &str, before: &str, content: &str) -> Result<String, BoardStoreError> {
        let (mut base, mut ours) = (before.to_owned(), content.to_owned());
        for round in 0.. {
            self.tree.stage(path, ours.as_bytes(), round < SYNCED)?;
            let mut theirs = self.tree.read_text(path)?;
            // Our version must not be visible while it lacks a person's change: an editor that reads it now would save
            // it without that change.
            if theirs.as_ref() == Some(&base) {
                if !self.tree.exchange(path)? {
                    continue;
                }
                let displaced = DisplacedFile::read(self.tree, path, self.check)?;
                if displaced.is(&tag(&base)) {
                    if round >= SYNCED {
                        self.tree.sync(path)?;
                    }
                    return Ok(ours);
                }
                self.take_back(path, &ours)?;
                if displaced == DisplacedFile::Open {
                    return Err(BoardStoreError::Open { path: path.to_owned() });
                }
                theirs = self.tree.read_text(path)?;
            }
            let merged = theirs.as_ref().and_then(|theirs| merge(&base, &ours, theirs));
            let (Some(theirs), Some(merged)) = (theirs, merged) else { break };
            (base, ours) = (theirs, merged);
        }
        self.tree.unstage(path)?;
        Err(conflict(path))
    }

    /// Undoes a change. A person's later changes stay.
    pub(super) fn undo(&self, done: &AppliedChange<'_>) -> Result<(), BoardStoreError> {
        match done {
            AppliedChange::Created { path, content } => self.uncreate(path, content),
            AppliedChange::Replaced { path, before, content, now } => {
                let undone = match merge(content, before, now) {
                    Some(back) => self.replace(path, now, &back).map(drop),
                    None => Ok(()),
                };
                match undone {
                    Ok(()) | Err(BoardStoreError::Conflict { .. } | BoardStoreError::Open { .. }) => {}
                    Err(error) => return Err(error),
                }
                Ok(self.tree.unstage(path)?)
            }
            AppliedChange::Moved { path, to, content } => {
                self.put_back(path)?;
                self.uncreate(to, content)
            }
        }
    }

    /// Removes the displaced versions, and makes the changes durable.
    pub(super) fn remove_displaced(&self, changes: &[FileChange]) -> Result<(), BoardStoreError> {
        for change in changes {
            if !matches!(change, FileChange::Create { .. }) {
                self.tree.unstage(change.path())?;
            }
        }
        let mut synced: Vec<&str> = Vec::new();
        for change in changes {
            let folder = change.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            if !synced.contains(&folder) && !matches!(change, FileChange::Create { .. }) {
                self.tree.sync_parent(change.path())?;
                synced.push(folder);
            }
        }
        Ok(())
    }

    /// Finishes an interrupted change. Where a person wrote meanwhile, theirs stays.
    pub(super) fn recover(&self, entry: &JournalChange) -> Result<(), BoardStoreError> {
        let (path, ours) = entry.versions();
        let displaced = DisplacedFile::read(self.tree, path, self.check)?;
        if displaced != DisplacedFile::Nothing {
            match ours.iter().any(|tag| displaced.is(tag)) {
                true => self.tree.unstage(path)?,
                false => return self.restore(path, entry),
            }
        }
        let Some(change) = entry.remaining_change(self.tree)? else { return self.unmove(entry) };
        match self.apply(&change) {
            Ok(_) => self.remove_displaced(std::slice::from_ref(&change)),
            Err(BoardStoreError::Conflict { .. } | BoardStoreError::Open { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Puts a person's version back that was displaced before a crash, if the file in its place is ours.
    fn restore(&self, path: &str, entry: &JournalChange) -> Result<(), BoardStoreError> {
        let now = self.tree.read_text(path)?;
        match (now, entry) {
            (Some(now), JournalChange::Replace { result, .. }) if tag(&now) == *result => {
                self.take_back(path, &now)
            }
            _ => self.put_back(path).and_then(|()| self.unmove(entry)),
        }
    }

    /// Removes the copy of a file that was not moved after all.
    fn unmove(&self, entry: &JournalChange) -> Result<(), BoardStoreError> {
        match entry {
            JournalChange::Move { path, to, content, .. } if self.tree.exists(path) => {
                self.uncreate(to, content)
            }
            _ => Ok(()),
        }
    }

    /// Puts the displaced version back in the place of ours. Lines that a person wrote into ours meanwhile are merged
    /// into it.
    fn take_back(&self, path: &str, ours: &str) -> Result<(), BoardStoreError> {
        let mut given_up = ours.to_owned();
        for round in 0.. {
            if !self.tree.exchange(path)? {
                // Another program removed our version meanwhile.
                return self.put_back(path);
            }
            let displaced = DisplacedFile::read(self.tree, path, self.check)?;
            if displaced.is(&tag(&given_up)) {
                if round > 0 {
                    self.tree.sync(path)?;
                }
                break;
            }
            // Two versions of a person's; our version is their common base.
            let now = self.tree.read_text(path).ok().flatten().unwrap_or_default();
            match displaced.text().and_then(|theirs| merge(&given_up, &now, theirs)) {
                Some(both) => self.tree.stage(path, both.as_bytes(), false)?,
                None => return self.save(path),
            }
            given_up = now;
        }
        Ok(self.tree.unstage(path)?)
    }

    /// Puts the displaced version back where no file should be; a file that is there by now stays.
    fn put_back(&self, path: &str) -> Result<(), BoardStoreError> {
        match self.tree.put_back(path)? {
            true => Ok(()),
            false => self.save(path),
        }
    }

    /// Removes a file we made, unless a person has changed it.
    fn uncreate(&self, path: &str, content: &str) -> Result<(), BoardStoreError> {
        if !self.tree.displace(path)? {
            return Ok(());
        }
        match DisplacedFile::read(self.tree, path, self.check)?.is(&tag(content)) {
            true => Ok(self.tree.unstage(path)?),
            false => self.put_back(path),
        }
    }

    fn save(&self, path: &str) -> Result<(), BoardStoreError> {
        match self.tree.save(path)? {
            Some(saved) => Err(BoardStoreError::Saved { path: path.to_owned(), saved }),
            None => Ok(()),
        }
    }
}

fn tag(content: &str) -> String {
    ETag::of(content.as_bytes()).to_string()
}

fn conflict(path: &str) -> BoardStoreError {
    BoardStoreError::Conflict { path: path.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::os::fd::BorrowedFd;
    use std::path::PathBuf;

    use super::super::{BoardStore, Effects, journal};
    use super::*;

    thread_local! {
        /// What a person's program does with the files once, just after an exchange.
        static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// Says that a program writes until it has written.
    fn writer(_: BorrowedFd<'_>) -> std::io::Result<bool> {
        let meanwhile = MEANWHILE.take();
        Ok(meanwhile.map(|act| act()).is_some())
    }

    struct ExchangeFixture {
        folder: tempfile::TempDir,
        store: BoardStore,
    }

    impl ExchangeFixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            fs::create_dir(folder.path().join("tree")).expect("a tree");
            fs::create_dir(folder.path().join("state")).expect("a state");
            let store = BoardStore::open(&folder.path().join("tree"), &folder.path().join("state"), writer);
            let board = Self { store: store.expect("a store"), folder };
            board.write("a.md", "old\n");
            board.write("b.md", "old\n");
            board
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join("tree").join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).expect("written");
        }

        /// A program has the file open, and appends a line after the next exchange.
        fn append_later(&self, name: &str) {
            let mut open = File::options().append(true).open(self.path(name)).expect("opened");
            MEANWHILE.set(Some(Box::new(move || open.write_all(b"appended\n").expect("written"))));
        }

        fn exchange(&self) -> FileExchange<'_> {
            FileExchange { tree: self.store.tree(), check: writer }
        }

        /// Every file with its text, in the order of names.
        fn files(&self) -> Vec<(String, String)> {
            let entries = self.store.tree().list("").expect("listed");
            let read = |name: &str| fs::read_to_string(self.path(name)).expect("read");
            entries.into_iter().map(|entry| (entry.name.clone(), read(&entry.name))).collect()
        }

        #[track_caller]
        fn assert_files(&self, expected: &[(&str, &str)]) {
            let owned: Vec<(String, String)> =
                expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            assert_eq!(self.files(), owned);
        }
    }

    fn both() -> Effects {
        let mut effects = Effects::none();
        effects.replace("a.md", "old\n", "new\n");
        effects.replace("b.md", "old\n", "new\n");
        effects
    }

    /// A save between the verb's look and the exchange.
    #[test]
    fn what_was_saved_meanwhile_goes_back_to_its_place() {
        let board = ExchangeFixture::new();
        board.write("a.md", "mine\n");
        let replaced = board.exchange().replace("a.md", "old\n", "new\n");
        assert!(matches!(replaced, Err(BoardStoreError::Conflict { .. })));
        let change = &moved().changes[0];
        assert!(matches!(board.exchange().apply(change), Err(BoardStoreError::Conflict { .. })));
        board.assert_files(&[("a.md", "mine\n"), ("b.md", "old\n")]);
        fs::remove_file(board.path("a.md")).expect("removed");
        let replaced = board.exchange().replace("a.md", "old\n", "new\n");
        assert!(matches!(replaced, Err(BoardStoreError::Conflict { .. })));
        assert!(matches!(board.exchange().apply(change), Err(BoardStoreError::Conflict { .. })));
        board.assert_files(&[("b.md", "old\n")]);
    }

    fn moved() -> Effects {
        let mut effects = Effects::none();
        effects.rename("a.md", "old\n", "c.md", "moved\n");
        effects
    }

    /// `echo >> FILE` opened it before the exchange and writes after it.
    #[test]
    fn what_is_appended_after_the_exchange_is_merged_and_outlives_an_undo() {
        let board = ExchangeFixture::new();
        board.write("a.md", "old\nlast\n");
        board.append_later("a.md");
        let mut effects = Effects::none();
        effects.replace("a.md", "old\nlast\n", "new\nlast\n");
        let done = board.exchange().apply(&effects.changes[0]).expect("done");
        assert_eq!(fs::read_to_string(board.path("a.md")).expect("read"), "new\nlast\nappended\n");
        board.exchange().undo(&done).expect("undone");
        board.assert_files(&[("a.md", "old\nlast\nappended\n"), ("b.md", "old\n")]);
    }

    /// A person saves the second file while the first one is changed.
    #[test]
    fn a_change_that_meets_a_persons_takes_the_others_along_and_the_verb_looks_again() {
        let board = ExchangeFixture::new();
        let b = board.path("b.md");
        MEANWHILE.set(Some(Box::new(move || fs::write(b, "mine\n").expect("written"))));
        let mut seen = Vec::new();
        let updated = board.store.update(|tree| {
            let texts = ["a.md", "b.md"].map(|name| tree.read_text(name).expect("read").unwrap_or_default());
            let mut effects = Effects::none();
            for (name, text) in ["a.md", "b.md"].iter().zip(&texts) {
                effects.replace(*name, text, format!("new {text}"));
            }
            seen.push(texts.concat());
            Ok::<_, BoardStoreError>(((), effects))
        });
        updated.expect("done");
        assert_eq!(seen, ["old\nold\n", "old\nmine\n"]);
        board.assert_files(&[("a.md", "new old\n"), ("b.md", "new mine\n")]);
    }

    /// Git makes a file anew, and a verb reads it while it is empty.
    #[test]
    fn a_file_that_is_being_written_is_read_again_when_it_is_whole() {
        let board = ExchangeFixture::new();
        board.write("a.md", "");
        let mut open = File::options().append(true).open(board.path("a.md")).expect("opened");
        MEANWHILE.set(Some(Box::new(move || open.write_all(b"head\n[board]\nold\n").expect("written"))));
        let mut seen = Vec::new();
        let updated = board.store.update(|tree| {
            let text = tree.read_text("a.md").expect("read").unwrap_or_default();
            let head = text.split("[board]\n").next().unwrap_or_default();
            let mut effects = Effects::none();
            effects.replace("a.md", &text, format!("{head}[board]\nnew\n"));
            seen.push(text);
            Ok::<_, BoardStoreError>(((), effects))
        });
        updated.expect("done");
        assert_eq!(seen, ["", "head\n[board]\nold\n"]);
        board.assert_files(&[("a.md", "head\n[board]\nnew\n"), ("b.md", "old\n")]);
    }

    fn is_old(file: BorrowedFd<'_>) -> std::io::Result<bool> {
        let mut start = [0; 3];
        rustix::io::pread(file, &mut start, 0)?;
        Ok(start == *b"old")
    }

    #[test]
    fn a_file_that_a_program_keeps_open_is_named_and_nothing_is_changed() {
        let board = ExchangeFixture::new();
        let exchange = FileExchange { tree: board.store.tree(), check: is_old };
        let refused = exchange.apply(&both().changes[0]).expect_err("refused").to_string();
        assert!(refused.contains("has a.md open for writing"), "{refused}");
        board.assert_files(&[("a.md", "old\n"), ("b.md", "old\n")]);
    }

    /// A program has our version open by the time it is taken back: what it writes there is not lost either.
    #[test]
    fn of_two_versions_of_a_persons_one_is_kept_beside_the_other() {
        let board = ExchangeFixture::new();
        let exchange = FileExchange { tree: board.store.tree(), check: |_| Ok(true) };
        let refused = exchange.apply(&both().changes[0]).expect_err("refused").to_string();
        assert!(
            refused.contains(
                "a.md was changed twice while it was written; one version of it is kept in a.md.saved-1"
            ),
            "{refused}"
        );
        board.assert_files(&[("a.md", "old\n"), ("a.md.saved-1", "new\n"), ("b.md", "old\n")]);
    }

    /// A crash at every moment of an exchange, with and without a person who saved just before it.
    #[test]
    fn a_crash_at_any_moment_of_an_exchange_loses_no_version_of_a_persons() {
        for saved in [false, true] {
            for steps in 0..=4 {
                let board = ExchangeFixture::new();
                let changes = both().changes;
                journal::write(board.store.state(), board.store.tree(), &changes).expect("a journal");
                if saved {
                    board.write("a.md", "mine\n");
                }
                let tree = board.store.tree();
                if steps >= 1 {
                    tree.stage("a.md", b"new\n", true).expect("staged");
                }
                if steps >= 2 {
                    tree.exchange("a.md").expect("exchanged");
                }
                if steps >= 3 && saved {
                    tree.exchange("a.md").expect("taken back");
                }
                if steps >= 4 {
                    tree.unstage("a.md").expect("removed");
                }
                board.store.update(|_| Ok::<_, BoardStoreError>(((), Effects::none()))).expect("recovered");
                let a = if saved { "mine\n" } else { "new\n" };
                board.assert_files(&[("a.md", a), ("b.md", "new\n")]);
            }
        }
    }

    /// The same in the middle of undoing the first of two changes, because the second met a person's.
    #[test]
    fn a_crash_while_a_change_is_undone_loses_no_version_of_a_persons() {
        for edited in [false, true] {
            for steps in 0..=2 {
                let board = ExchangeFixture::new();
                let changes = both().changes;
                journal::write(board.store.state(), board.store.tree(), &changes).expect("a journal");
                board.exchange().apply(&changes[0]).expect("done");
                if edited {
                    board.write("a.md", "new\nmine\n");
                }
                let tree = board.store.tree();
                for _ in 0..steps.min(if edited { 2 } else { 1 }) {
                    tree.exchange("a.md").expect("exchanged");
                }
                if steps == 2 {
                    tree.unstage("a.md").expect("removed");
                }
                let recovered = board.store.update(|_| Ok::<_, BoardStoreError>(((), Effects::none())));
                let text: String = board.files().into_iter().map(|(_, text)| text).collect();
                assert_eq!(text.contains("mine"), edited, "{edited} {steps}: {:?}", board.files());
                match recovered {
                    Err(BoardStoreError::Saved { saved, .. }) => assert!(board.path(&saved).is_file()),
                    other => other.expect("recovered"),
                }
                board.store.update(|_| Ok::<_, BoardStoreError>(((), Effects::none()))).expect("once");
            }
        }
    }

    /// What lies beside a file before anything has begun is left by a crash without a record, or came along.
    #[test]
    fn what_lies_beside_a_file_is_never_overwritten_nor_believed() {
        let board = ExchangeFixture::new();
        board.write(".a.md.agency-swap", "a person's\n");
        let update = || board.store.update(|_| Ok::<_, BoardStoreError>(((), both())));
        let told = update().expect_err("told once").to_string();
        assert!(told.contains("a.md.saved-1"), "{told}");
        update().expect("done");
        // A second name of the same file would keep it where it is.
        fs::hard_link(board.path("a.md"), board.path(".a.md.agency-swap")).expect("linked");
        let mut effects = Effects::none();
        effects.rename("a.md", "new\n", "c.md", "moved\n");
        board.store.update(|_| Ok::<_, BoardStoreError>(((), effects.clone()))).expect("moved");
        let files = [("a.md.saved-1", "a person's\n"), ("b.md", "new\n"), ("c.md", "moved\n")];
        board.assert_files(&files);
    }

    #[test]
    fn a_move_that_met_a_person_leaves_the_file_in_one_place() {
        for steps in 0..=2 {
            let board = ExchangeFixture::new();
            let changes = moved().changes;
            journal::write(board.store.state(), board.store.tree(), &changes).expect("a journal");
            board.write("a.md", "mine\n");
            let tree = board.store.tree();
            if steps >= 1 {
                tree.create("c.md", b"moved\n").expect("made");
            }
            if steps >= 2 {
                tree.displace("a.md").expect("displaced");
            }
            board.store.update(|_| Ok::<_, BoardStoreError>(((), Effects::none()))).expect("recovered");
            board.assert_files(&[("a.md", "mine\n"), ("b.md", "old\n")]);
        }
    }
}
