//! Spare copies of the objects that this program writes, against `git gc --prune=now`.
//!
//! Pruning removes every object that no reference reached when git listed them. An object is in danger from the moment it
//! is written until a reference names it, and beyond: a garbage collection that made its list before the reference moved
//! removes the object afterwards. Git has no lock against this, and warns of it (`git help gc`, NOTES). So each object has
//! a spare copy in the state folder:
//!
//! - an object that is missing when a reference is to name it, or when a record is read, is written again;
//! - a reference that was moved while a garbage collection ran is looked at once that has ended (`outlast`).
//!
//! `git gc` holds `gc.pid` while it works, and by that it is seen. `git prune` by itself holds nothing and is not seen; what
//! it takes away is written again when it is missed. Copies are removed when they are old, and never while a garbage
//! collection runs.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::difference::{self, Kind};
use super::error::Error;
use super::landed;
use super::names::Oid;
use super::objects::{ObjectKind, Objects};
use super::repository::{Repository, read_file};
use super::settled;
use super::stamp::Identity;

/// How long a copy is kept. An object has its name after milliseconds, or its attempt is tried again.
const LIFETIME: Duration = Duration::from_secs(600);
/// So many copies are written before old ones are looked for.
const BETWEEN_SWEEPS: usize = 1024;
/// How long a garbage collection is waited for. `gc.pid` may have come with the repository and name any process.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// The folder of copies: one file for each object, with its kind on the first line.
#[derive(Debug)]
pub(super) struct Spares {
    folder: PathBuf,
    written: AtomicUsize,
    /// A garbage collection that was waited for in vain. Nothing waits for it again, and when it is gone, everything that
    /// was named meanwhile is looked at.
    outwaited: Mutex<Option<Identity>>,
}

impl Spares {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, written: AtomicUsize::new(0), outwaited: Mutex::new(None) }
    }

    /// Keeps a copy. Not synced, and nothing is said when it fails: a spare copy is a second chance, not a promise.
    fn keep(&self, object: &Oid, kind: ObjectKind, contents: &[u8]) {
        let text = [kind.name().as_bytes(), b"\n", contents].concat();
        let path = self.folder.join(object.as_str());
        if fs::write(&path, &text).is_err() {
            let _ = fs::create_dir(&self.folder);
            let _ = fs::write(&path, &text);
        }
    }

    fn read(&self, object: &Oid) -> Option<(ObjectKind, Vec<u8>)> {
        let text = fs::read(self.folder.join(object.as_str())).ok()?;
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let kinds = [ObjectKind::Blob, ObjectKind::Tree, ObjectKind::Commit];
        let kind = kinds.into_iter().find(|kind| kind.name().as_bytes() == &text[..end])?;
        Some((kind, text[end + 1..].to_vec()))
    }

    fn has(&self, object: &Oid) -> bool {
        self.folder.join(object.as_str()).exists()
    }

    fn has_any(&self) -> bool {
        fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_some())
    }

    fn remove_old(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let written = entry.metadata().and_then(|stat| stat.modified());
            if written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LIFETIME)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Writes again what references of ours name and a garbage collection took away. For the beginning and the end of a run:
/// one that was killed could not look at what it had named.
pub fn restore_named(repository: &Repository) -> Result<(), Error> {
    if !repository.spares.has_any() {
        return Ok(());
    }
    let named = settled::named(repository)?;
    let objects = named.iter().flat_map(|task| {
        let records = [&task.lease, &task.landed, &task.pin];
        records.into_iter().flatten().chain(task.candidates.values())
    });
    let objects: Vec<&Oid> = objects.filter(|object| repository.spares.has(object)).collect();
    repository.restore_missing(&objects)?;
    // A branch has these. Most landed long ago, and have no copy any more.
    for task in named.iter().filter(|task| task.landed.as_ref().is_some_and(|it| objects.contains(&it))) {
        if let Some(landed) = landed::read(repository, &task.task)? {
            repository.restore_missing(&[&landed.commit])?;
        }
    }
    Ok(())
}

impl Repository {
    /// Keeps a spare copy of an object that was just written.
    pub(super) fn spare(&self, object: &Oid, kind: ObjectKind, contents: &[u8]) {
        self.spares.keep(object, kind, contents);
        let written = self.spares.written.fetch_add(1, Ordering::Relaxed);
        if written.is_multiple_of(BETWEEN_SWEEPS) && self.collector().is_none() {
            self.spares.remove_old();
        }
    }

    /// Asks for objects. An object that is missing is written again, if it has a spare copy.
    pub(super) fn restoring<T>(
        &self,
        mut ask: impl FnMut(&mut Objects) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.ask(&mut ask) {
            Err(Error::Missing { .. }) => self.restoring_anew(ask),
            answer => answer,
        }
    }

    /// The same with a git of its own: one that has run for a while remembers packs that are gone.
    fn restoring_anew<T>(&self, mut ask: impl FnMut(&mut Objects) -> Result<T, Error>) -> Result<T, Error> {
        let mut restored = HashSet::new();
        loop {
            let missing = match Objects::start(self).and_then(|mut objects| ask(&mut objects)) {
                Err(error @ Error::Missing { .. }) => error,
                answer => return answer,
            };
            let Error::Missing { object, .. } = &missing else { return Err(missing) };
            let object = Oid::parse(object)?;
            if !self.restore(&object)? || !restored.insert(object) {
                return Err(missing);
            }
        }
    }

    /// Writes an object again from its spare copy; `false` if there is none.
    fn restore(&self, object: &Oid) -> Result<bool, Error> {
        let Some((kind, contents)) = self.spares.read(object) else { return Ok(false) };
        // A copy that was cut off by a crash is another object.
        Ok(self.write_object(kind, &contents)? == *object)
    }

    /// Writes again what is missing of these objects, and of what the commits among them changed. An object without a
    /// spare copy stays missing. Says whether any was missing.
    pub(super) fn restore_missing(&self, objects: &[&Oid]) -> Result<bool, Error> {
        let mut missing = false;
        for object in objects {
            let found = self.restoring_anew(|git| look_at(git, self, object).inspect_err(|_| missing = true));
            match found {
                Err(Error::Missing { .. }) => {}
                found => found?,
            }
        }
        Ok(missing)
    }

    /// Makes sure that a commit is there with everything that is new in it.
    pub(super) fn make_whole(&self, commit: &Oid) -> Result<(), Error> {
        self.restoring(|objects| look_at(objects, self, commit))
    }

    /// Looks at objects once more that a reference has just come to name, if a garbage collection runs that may have listed
    /// the references before. Waits for its end first.
    pub(super) fn outlast(&self, named: &[&Oid]) -> Result<(), Error> {
        let mut outwaited = self.spares.outwaited.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut collector) = self.collector() else {
            return match outwaited.take() {
                Some(_) => restore_named(self),
                None => Ok(()),
            };
        };
        let until = Instant::now() + LONGEST_WAIT;
        while *outwaited != Some(collector) {
            if Instant::now() >= until {
                *outwaited = Some(collector);
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            match self.collector() {
                Some(found) => collector = found,
                None => break,
            }
        }
        self.restore_missing(named).map(drop)
    }

    /// The `gc.pid` of a `git gc` that runs and may remove new objects.
    fn collector(&self) -> Option<Identity> {
        let path = self.real.common.join("gc.pid");
        let found = Identity::of(&fs::symlink_metadata(&path).ok()?);
        let text = read_file(&path, 4096).ok()??;
        let prunes_by_setting = self.settings.text("gc.pruneexpire").is_some();
        is_dangerous(&String::from_utf8_lossy(&text), prunes_by_setting).then_some(found)
    }
}

/// Whether the process that `gc.pid` names (`<pid> <host>`) runs and was told to remove new objects. By default git keeps
/// those of the last two weeks.
fn is_dangerous(pid_file: &str, prunes_by_setting: bool) -> bool {
    let Some(pid) = pid_file.split_whitespace().next().and_then(|pid| pid.parse::<u32>().ok()) else {
        return false;
    };
    match fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")) {
        Ok(command) => {
            prunes_by_setting || String::from_utf8_lossy(&command).to_lowercase().contains("prune")
        }
        Err(_) => false,
    }
}

/// An object is there. A commit is there with its tree and everything that is new in it.
fn look_at(objects: &mut Objects, repository: &Repository, object: &Oid) -> Result<(), Error> {
    let kind = objects.kind_of(object)?;
    if kind != "commit" {
        return Ok(());
    }
    let tree = objects.tree_named_by(object)?;
    objects.kind_of(&tree)?;
    let base = objects.parents(object)?.into_iter().next();
    let base = base.unwrap_or_else(|| repository.format.empty_tree());
    for changed in difference::compare(objects, &base, object)? {
        if let Some(entry) = changed.new.filter(|entry| entry.kind != Kind::Submodule) {
            objects.kind_of(&entry.object)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_read_as_it_was_written_and_a_torn_one_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let spares = Spares::new(folder.path().join("spares"));
        let object = Oid::parse(&"a1".repeat(20)).expect("a name");
        assert!(spares.read(&object).is_none());
        spares.keep(&object, ObjectKind::Tree, b"x\ny");
        assert_eq!(spares.read(&object), Some((ObjectKind::Tree, b"x\ny".to_vec())));
        fs::write(spares.folder.join(object.as_str()), "tre").expect("written");
        assert!(spares.read(&object).is_none());
    }

    #[test]
    fn only_a_collection_that_runs_and_prunes_is_dangerous() {
        let own = std::process::id();
        assert!(is_dangerous(&format!("{own} host"), true));
        assert!(!is_dangerous("", true));
        assert!(!is_dangerous("x host", true));
        // No process has this number.
        assert!(!is_dangerous("4294967295 host", true));
    }
}
