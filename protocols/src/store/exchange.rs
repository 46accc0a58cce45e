//! Changing files that a person may be writing at the same moment.
//!
//! No lock keeps an editor out. A file that is read, judged and then renamed over loses what was saved in between. So the
//! new version and the old one change places in one step, and the displaced one is looked at afterwards, when its path
//! leads elsewhere. If it is what the change was decided over, the change stands. If a person saved something else, both
//! changes are merged line by line; where they touch, the person's version goes back to its place, and the verb looks
//! again.
//!
//! `echo >> FILE` opens the file before that step and writes after it. So a displaced file is believed only when no
//! process has it open for writing; the kernel knows that ([`WriterCheck`]).
//!
//! While a version goes back, a person may have written into ours. Then there are two versions of theirs, and one of them
//! is kept beside the other, under a name that is told ([`StoreError::Saved`]).

use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use super::journal::Entry;
use super::tree::{Tree, TreeError};
use super::{Change, ETag, StoreError};
use crate::text::merge::merge;

/// Whether a process has a file, opened to read, open for writing.
pub type WriterCheck = fn(BorrowedFd<'_>) -> std::io::Result<bool>;

/// How long a program that has a displaced file open is waited for: it saves, and closes it.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

/// So many versions of a file are on the disk before they are in its place. Whoever saves faster than a disk syncs would
/// otherwise be followed for ever.
const SYNCED: u32 = 3;

/// A folder whose files are changed in this way.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'t> {
    pub tree: &'t Tree,
    pub check: WriterCheck,
}

/// What was found beside a file after an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Displaced {
    Nothing,
    /// These bytes, and nobody writes to them.
    File(Vec<u8>),
    /// No regular file that can be read, so none of ours.
    Odd,
    /// A program has it open for writing, and does not close it.
    Open,
}

impl Displaced {
    fn text(&self) -> Option<&str> {
        match self {
            Self::File(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    fn is(&self, expected: &str) -> bool {
        matches!(self, Self::File(bytes) if ETag::of(bytes).to_string() == expected)
    }
}

/// A change that was carried out, with what it takes to undo it.
#[derive(Debug)]
pub(super) enum Done<'c> {
    Created {
        path: &'c str,
        content: &'c str,
    },
    /// `now` is what a person's changes and ours came to.
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

impl Exchange<'_> {
    /// A file that holds `before` holds `after`, for whoever takes back what was interrupted; `None` stands for no file. Where
    /// a person changed the same, theirs stays.
    pub fn put(&self, path: &str, before: &str, after: Option<&str>) -> Result<(), StoreError> {
        self.clear(path)?;
        let put = match after {
            Some(after) => self.replace(path, before, after).map(drop),
            None => self.uncreate(path, before),
        };
        match put {
            Ok(()) | Err(StoreError::Conflict { .. } | StoreError::Open { .. }) => {}
            Err(error) => return Err(error),
        }
        self.tree.unstage(path)?;
        Ok(self.tree.sync_parent(path)?)
    }

    /// Makes the place beside a file free. What lies there before anything has begun was left by a crash that nobody
    /// wrote down, or came with the repository: it is never overwritten, and never believed.
    pub(super) fn clear(&self, path: &str) -> Result<(), StoreError> {
        match self.displaced(path)? {
            Displaced::Nothing => Ok(()),
            Displaced::File(bytes) if self.tree.read(path)?.as_ref() == Some(&bytes) => {
                Ok(self.tree.unstage(path)?)
            }
            _ => self.save(path),
        }
    }

    /// Carries a change out, or leaves everything as a person has it. What it displaced stays beside its place until
    /// [`Self::tidy`], so that it can be undone.
    pub(super) fn perform<'c>(&self, change: &'c Change) -> Result<Done<'c>, StoreError> {
        match change {
            Change::Create { path, content } => {
                self.tree.create(path, content.as_bytes())?;
                Ok(Done::Created { path, content })
            }
            Change::Replace { path, before, content } => {
                let now = self.replace(path, before, content)?;
                Ok(Done::Replaced { path, before, content, now })
            }
            Change::Move { path, expected, to, content } => {
                match self.tree.create(to, content.as_bytes()) {
                    // Before a crash, this is as far as it came.
                    Err(TreeError::Exists { .. })
                        if self.tree.read(to)?.as_deref() == Some(content.as_bytes()) => {}
                    made => made?,
                }
                let displaced = match self.tree.displace(path)? {
                    true => self.displaced(path)?,
                    false => Displaced::Nothing,
                };
                if displaced.is(expected) {
                    return Ok(Done::Moved { path, to, content });
                }
                // What lay beside a file that is gone was not ours to begin with.
                if displaced != Displaced::Nothing {
                    self.put_back(path)?;
                }
                self.uncreate(to, content)?;
                Err(refused(path, &displaced))
            }
        }
    }

    /// Puts `content` in the place of `before`, with everything that a person saves there meanwhile; what came of it.
    fn replace(&self, path: &str, before: &str, content: &str) -> Result<String, StoreError> {
        let (mut base, mut ours) = (before.to_owned(), content.to_owned());
        for round in 0.. {
            self.tree.stage(path, ours.as_bytes(), round < SYNCED)?;
            let mut theirs = self.tree.read_text(path)?;
            // Ours is not shown where it is known to lack something: an editor that reads it now would save it without.
            if theirs.as_ref() == Some(&base) {
                if !self.tree.exchange(path)? {
                    continue;
                }
                let displaced = self.displaced(path)?;
                if displaced.is(&tag(&base)) {
                    if round >= SYNCED {
                        self.tree.sync(path)?;
                    }
                    return Ok(ours);
                }
                self.take_back(path, &ours)?;
                if displaced == Displaced::Open {
                    return Err(StoreError::Open { path: path.to_owned() });
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

    /// Undoes a change. What a person has made of it since stays.
    pub(super) fn undo(&self, done: &Done<'_>) -> Result<(), StoreError> {
        match done {
            Done::Created { path, content } => self.uncreate(path, content),
            Done::Replaced { path, before, content, now } => {
                let undone = match merge(content, before, now) {
                    Some(back) => self.replace(path, now, &back).map(drop),
                    None => Ok(()),
                };
                match undone {
                    Ok(()) | Err(StoreError::Conflict { .. } | StoreError::Open { .. }) => {}
                    Err(error) => return Err(error),
                }
                Ok(self.tree.unstage(path)?)
            }
            Done::Moved { path, to, content } => {
                self.put_back(path)?;
                self.uncreate(to, content)
            }
        }
    }

    /// Removes what the changes displaced, and makes them durable.
    pub(super) fn tidy(&self, changes: &[Change]) -> Result<(), StoreError> {
        for change in changes {
            if !matches!(change, Change::Create { .. }) {
                self.tree.unstage(change.path())?;
            }
        }
        let mut synced: Vec<&str> = Vec::new();
        for change in changes {
            let folder = change.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            if !synced.contains(&folder) && !matches!(change, Change::Create { .. }) {
                self.tree.sync_parent(change.path())?;
                synced.push(folder);
            }
        }
        Ok(())
    }

    /// Finishes what a crash interrupted. Where a person wrote meanwhile, theirs stays.
    pub(super) fn recover(&self, entry: &Entry) -> Result<(), StoreError> {
        let (path, ours) = entry.versions();
        let displaced = self.displaced(path)?;
        if displaced != Displaced::Nothing {
            match ours.iter().any(|tag| displaced.is(tag)) {
                true => self.tree.unstage(path)?,
                false => return self.restore(path, entry),
            }
        }
        let Some(change) = entry.left_to_do(self.tree)? else { return self.unmove(entry) };
        match self.perform(&change) {
            Ok(_) => self.tidy(std::slice::from_ref(&change)),
            Err(StoreError::Conflict { .. } | StoreError::Open { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A person's version was displaced before a crash: it goes back, if what is there now is ours.
    fn restore(&self, path: &str, entry: &Entry) -> Result<(), StoreError> {
        let now = self.tree.read_text(path)?;
        match (now, entry) {
            (Some(now), Entry::Replace { result, .. }) if tag(&now) == *result => self.take_back(path, &now),
            _ => self.put_back(path).and_then(|()| self.unmove(entry)),
        }
    }

    /// A file that stays where it was is in no second place.
    fn unmove(&self, entry: &Entry) -> Result<(), StoreError> {
        match entry {
            Entry::Move { path, to, content, .. } if self.tree.exists(path) => self.uncreate(to, content),
            _ => Ok(()),
        }
    }

    /// Puts what was displaced back in the place of our version. What a person wrote into ours meanwhile goes along.
    fn take_back(&self, path: &str, ours: &str) -> Result<(), StoreError> {
        let mut given_up = ours.to_owned();
        for round in 0.. {
            if !self.tree.exchange(path)? {
                // Somebody removed our version meanwhile.
                return self.put_back(path);
            }
            let displaced = self.displaced(path)?;
            if displaced.is(&tag(&given_up)) {
                if round > 0 {
                    self.tree.sync(path)?;
                }
                break;
            }
            // Two versions of theirs: what they have in common is what they were both made from.
            let now = self.tree.read_text(path).ok().flatten().unwrap_or_default();
            match displaced.text().and_then(|theirs| merge(&given_up, &now, theirs)) {
                Some(both) => self.tree.stage(path, both.as_bytes(), false)?,
                None => return self.save(path),
            }
            given_up = now;
        }
        Ok(self.tree.unstage(path)?)
    }

    /// Puts what was displaced back where nothing should be; what is there by now keeps its place.
    fn put_back(&self, path: &str) -> Result<(), StoreError> {
        match self.tree.put_back(path)? {
            true => Ok(()),
            false => self.save(path),
        }
    }

    /// Removes a file we made, unless a person has changed it.
    fn uncreate(&self, path: &str, content: &str) -> Result<(), StoreError> {
        if !self.tree.displace(path)? {
            return Ok(());
        }
        match self.displaced(path)?.is(&tag(content)) {
            true => Ok(self.tree.unstage(path)?),
            false => self.put_back(path),
        }
    }

    fn save(&self, path: &str) -> Result<(), StoreError> {
        match self.tree.save(path)? {
            Some(saved) => Err(StoreError::Saved { path: path.to_owned(), saved }),
            None => Ok(()),
        }
    }

    /// What lies beside a file, once nobody writes to it any more.
    fn displaced(&self, path: &str) -> Result<Displaced, StoreError> {
        let until = Instant::now() + PATIENCE;
        loop {
            let file = match self.tree.open_staged(path) {
                Ok(Some(file)) => file,
                Ok(None) => return Ok(Displaced::Nothing),
                Err(TreeError::Link { .. } | TreeError::Irregular { .. }) => return Ok(Displaced::Odd),
                Err(error) => return Err(error.into()),
            };
            // Where the kernel can't say, nobody is assumed to write.
            match (self.check)(file.as_fd()) {
                Ok(true) if Instant::now() >= until => return Ok(Displaced::Open),
                Ok(true) => thread::sleep(PAUSE),
                Ok(false) | Err(_) => break,
            }
        }
        match self.tree.staged(path) {
            Ok(Some(bytes)) => Ok(Displaced::File(bytes)),
            Ok(None) => Ok(Displaced::Nothing),
            Err(TreeError::Large { .. }) => Ok(Displaced::Odd),
            Err(error) => Err(error.into()),
        }
    }
}

fn tag(content: &str) -> String {
    ETag::of(content.as_bytes()).to_string()
}

fn conflict(path: &str) -> StoreError {
    StoreError::Conflict { path: path.to_owned() }
}

fn refused(path: &str, displaced: &Displaced) -> StoreError {
    match displaced {
        Displaced::Open => StoreError::Open { path: path.to_owned() },
        _ => conflict(path),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs::{self, File};
    use std::io::Write as _;
    use std::path::PathBuf;

    use super::super::{Effects, Store, journal};
    use super::*;

    thread_local! {
        /// What a person's program does with the files once, just after an exchange.
        static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    /// Says that somebody writes until they have.
    fn writer(_: BorrowedFd<'_>) -> std::io::Result<bool> {
        let meanwhile = MEANWHILE.take();
        Ok(meanwhile.map(|act| act()).is_some())
    }

    struct Board {
        folder: tempfile::TempDir,
        store: Store,
    }

    impl Board {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            fs::create_dir(folder.path().join("tree")).expect("a tree");
            fs::create_dir(folder.path().join("state")).expect("a state");
            let store = Store::open(&folder.path().join("tree"), &folder.path().join("state"), writer);
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

        fn exchange(&self) -> Exchange<'_> {
            Exchange { tree: self.store.tree(), check: writer }
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
        let board = Board::new();
        board.write("a.md", "mine\n");
        let replaced = board.exchange().replace("a.md", "old\n", "new\n");
        assert!(matches!(replaced, Err(StoreError::Conflict { .. })));
        let change = &moved().changes[0];
        assert!(matches!(board.exchange().perform(change), Err(StoreError::Conflict { .. })));
        board.assert_files(&[("a.md", "mine\n"), ("b.md", "old\n")]);
        fs::remove_file(board.path("a.md")).expect("removed");
        let replaced = board.exchange().replace("a.md", "old\n", "new\n");
        assert!(matches!(replaced, Err(StoreError::Conflict { .. })));
        assert!(matches!(board.exchange().perform(change), Err(StoreError::Conflict { .. })));
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
        let board = Board::new();
        board.write("a.md", "old\nlast\n");
        board.append_later("a.md");
        let mut effects = Effects::none();
        effects.replace("a.md", "old\nlast\n", "new\nlast\n");
        let done = board.exchange().perform(&effects.changes[0]).expect("done");
        assert_eq!(fs::read_to_string(board.path("a.md")).expect("read"), "new\nlast\nappended\n");
        board.exchange().undo(&done).expect("undone");
        board.assert_files(&[("a.md", "old\nlast\nappended\n"), ("b.md", "old\n")]);
    }

    /// A person saves the second file while the first one is changed.
    #[test]
    fn a_change_that_meets_a_persons_takes_the_others_along_and_the_verb_looks_again() {
        let board = Board::new();
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
            Ok::<_, StoreError>(((), effects))
        });
        updated.expect("done");
        assert_eq!(seen, ["old\nold\n", "old\nmine\n"]);
        board.assert_files(&[("a.md", "new old\n"), ("b.md", "new mine\n")]);
    }

    fn is_old(file: BorrowedFd<'_>) -> std::io::Result<bool> {
        let mut start = [0; 3];
        rustix::io::pread(file, &mut start, 0)?;
        Ok(start == *b"old")
    }

    #[test]
    fn a_file_that_a_program_keeps_open_is_named_and_nothing_is_changed() {
        let board = Board::new();
        let exchange = Exchange { tree: board.store.tree(), check: is_old };
        let refused = exchange.perform(&both().changes[0]).expect_err("refused").to_string();
        assert!(refused.contains("has a.md open for writing"), "{refused}");
        board.assert_files(&[("a.md", "old\n"), ("b.md", "old\n")]);
    }

    /// A program has our version open by the time it is taken back: what it writes there is not lost either.
    #[test]
    fn of_two_versions_of_a_persons_one_is_kept_beside_the_other() {
        let board = Board::new();
        let exchange = Exchange { tree: board.store.tree(), check: |_| Ok(true) };
        let refused = exchange.perform(&both().changes[0]).expect_err("refused").to_string();
        assert!(refused.contains("kept in a.md.saved-1"), "{refused}");
        board.assert_files(&[("a.md", "old\n"), ("a.md.saved-1", "new\n"), ("b.md", "old\n")]);
    }

    /// A crash at every moment of an exchange, with and without a person who saved just before it.
    #[test]
    fn a_crash_at_any_moment_of_an_exchange_loses_no_version_of_a_persons() {
        for saved in [false, true] {
            for steps in 0..=4 {
                let board = Board::new();
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
                board.store.update(|_| Ok::<_, StoreError>(((), Effects::none()))).expect("recovered");
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
                let board = Board::new();
                let changes = both().changes;
                journal::write(board.store.state(), board.store.tree(), &changes).expect("a journal");
                board.exchange().perform(&changes[0]).expect("done");
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
                let recovered = board.store.update(|_| Ok::<_, StoreError>(((), Effects::none())));
                let text: String = board.files().into_iter().map(|(_, text)| text).collect();
                assert_eq!(text.contains("mine"), edited, "{edited} {steps}: {:?}", board.files());
                match recovered {
                    Err(StoreError::Saved { saved, .. }) => assert!(board.path(&saved).is_file()),
                    other => other.expect("recovered"),
                }
                board.store.update(|_| Ok::<_, StoreError>(((), Effects::none()))).expect("once");
            }
        }
    }

    /// What lies beside a file before anything has begun is a crash's that nobody wrote down, or came along.
    #[test]
    fn what_lies_beside_a_file_is_never_overwritten_nor_believed() {
        let board = Board::new();
        board.write(".a.md.agency-swap", "a person's\n");
        let update = || board.store.update(|_| Ok::<_, StoreError>(((), both())));
        let told = update().expect_err("told once").to_string();
        assert!(told.contains("a.md.saved-1"), "{told}");
        update().expect("done");
        // A second name of the same file would keep it where it is.
        fs::hard_link(board.path("a.md"), board.path(".a.md.agency-swap")).expect("linked");
        let mut effects = Effects::none();
        effects.rename("a.md", "new\n", "c.md", "moved\n");
        board.store.update(|_| Ok::<_, StoreError>(((), effects.clone()))).expect("moved");
        let files = [("a.md.saved-1", "a person's\n"), ("b.md", "new\n"), ("c.md", "moved\n")];
        board.assert_files(&files);
    }

    #[test]
    fn a_move_that_met_a_person_leaves_the_file_in_one_place() {
        for steps in 0..=2 {
            let board = Board::new();
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
            board.store.update(|_| Ok::<_, StoreError>(((), Effects::none()))).expect("recovered");
            board.assert_files(&[("a.md", "mine\n"), ("b.md", "old\n")]);
        }
    }
}
