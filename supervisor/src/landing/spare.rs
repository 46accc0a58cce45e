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
//! it takes away is written again when it is missed. Copies are removed when they are old, by the supervisor alone
//! ([`tend`]), and never before what a garbage collection may have taken was looked at.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::difference::{self, Kind};
use super::error::Error;
use super::landed;
use super::names::{Oid, Says};
use super::objects::{ObjectKind, Objects};
use super::refs;
use super::repository::{Repository, read_file, unique};
use super::stamp::Identity;
use crate::{causes, durable};

/// How long a copy is kept. An object has its name after milliseconds, or its attempt is tried again.
const LIFETIME: Duration = Duration::from_secs(600);
/// How often the supervisor looks after the copies.
pub const BETWEEN_SWEEPS: Duration = Duration::from_secs(300);
/// How long a garbage collection is waited for. `gc.pid` may have come with the repository and name any process.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// The folder of copies: one file for each object, with its kind and the digest of what follows on the first line.
#[derive(Debug)]
pub(super) struct Spares {
    folder: PathBuf,
    unseen: Mutex<Unseen>,
}

/// What a garbage collection may have taken away since anybody looked.
#[derive(Debug, Default)]
struct Unseen {
    /// One that was waited for in vain. Nothing waits for it again, and when it is gone, everything is looked at.
    outwaited: Option<Identity>,
    /// What came to be named while one ran.
    named: HashSet<Oid>,
}

impl Unseen {
    fn is_nothing(&self) -> bool {
        self.outwaited.is_none() && self.named.is_empty()
    }
}

impl Spares {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, unseen: Mutex::default() }
    }

    fn path(&self, object: &Oid) -> PathBuf {
        self.folder.join(object.as_str())
    }

    fn unseen(&self) -> MutexGuard<'_, Unseen> {
        self.unseen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a copy. Not synced, and nothing is said when it fails: a spare copy is a second chance, not a promise.
    fn keep(&self, object: &Oid, kind: ObjectKind, contents: &[u8]) {
        let text = [head(kind, contents).as_bytes(), contents].concat();
        let write = || durable::write_unsynced(&self.path(object), &unique(), &text);
        if write().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let _ = fs::create_dir(&self.folder);
            let _ = write();
        }
    }

    /// A copy that is whole. One that a crash of the machine cut off or emptied is none, and goes.
    fn read(&self, object: &Oid) -> Option<(ObjectKind, Vec<u8>)> {
        let text = fs::read(self.path(object)).ok()?;
        let whole = parse(&text);
        if whole.is_none() {
            let _ = fs::remove_file(self.path(object));
        }
        whole
    }

    fn has(&self, object: &Oid) -> bool {
        self.path(object).exists()
    }

    fn has_any(&self) -> bool {
        fs::read_dir(&self.folder).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Also removes what writers that were killed have left.
    fn remove_old(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let written = entry.metadata().and_then(|stat| stat.modified());
            if written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LIFETIME)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn head(kind: ObjectKind, contents: &[u8]) -> String {
    let digest: String = Sha256::digest(contents).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{} {digest}\n", kind.name())
}

fn parse(text: &[u8]) -> Option<(ObjectKind, Vec<u8>)> {
    let end = text.iter().position(|byte| *byte == b'\n')? + 1;
    let (said, contents) = text.split_at(end);
    let kinds = [ObjectKind::Blob, ObjectKind::Tree, ObjectKind::Commit];
    let kind = kinds.into_iter().find(|kind| said.starts_with(kind.name().as_bytes()))?;
    (head(kind, contents).as_bytes() == said).then(|| (kind, contents.to_vec()))
}

/// Writes again what references of ours name and a garbage collection took away. For the beginning and the end of a run:
/// one that was killed could not look at what it had named.
pub fn restore_named(repository: &Repository) -> Result<(), Error> {
    repository.restore_unseen(&mut repository.spares.unseen())
}

/// Removes old copies, for whoever is in charge. Before, looks at what was named while a garbage collection ran; while one
/// runs, everything stays.
pub fn tend(repository: &Repository) -> Result<(), Error> {
    let mut unseen = repository.spares.unseen();
    if let Some(collector) = repository.collector() {
        unseen.outwaited.get_or_insert(collector);
        return Ok(());
    }
    if !unseen.is_nothing() {
        repository.restore_unseen(&mut unseen)?;
    }
    repository.spares.remove_old();
    Ok(())
}

impl Repository {
    /// Keeps a spare copy of an object that was just written.
    pub(super) fn spare(&self, object: &Oid, kind: ObjectKind, contents: &[u8]) {
        self.spares.keep(object, kind, contents);
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
            let answer = Objects::start(self).and_then(|mut objects| ask(&mut objects));
            let Err(Error::Missing { object, .. }) = &answer else { return answer };
            let object = Oid::parse(object)?;
            if !self.restore(&object)? || !restored.insert(object) {
                return answer;
            }
        }
    }

    /// Writes an object again from its spare copy; `false` if there is none that is whole. An error is the machine's: the
    /// copy stays.
    fn restore(&self, object: &Oid) -> Result<bool, Error> {
        let Some((kind, contents)) = self.spares.read(object) else { return Ok(false) };
        Ok(self.write_object(kind, &contents)? == *object)
    }

    /// Writes again what is missing of these objects, and of what the commits among them changed. An object without a
    /// spare copy stays as it is. Says whether any was written.
    ///
    /// One git looks at all of them, and another one after some were written.
    pub(super) fn restore_missing<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Oid>,
    ) -> Result<bool, Error> {
        let mut waiting: Vec<&Oid> = objects.into_iter().filter(|object| self.spares.has(object)).collect();
        let mut restored = HashSet::new();
        while !waiting.is_empty() {
            let mut git = Objects::start(self)?;
            let (mut again, mut now) = (Vec::new(), HashSet::new());
            for object in waiting {
                let gone = match look_at(&mut git, self, object) {
                    Err(Error::Missing { object, .. }) => Oid::parse(&object)?,
                    found => {
                        found?;
                        continue;
                    }
                };
                if !restored.contains(&gone) && (now.contains(&gone) || self.restore(&gone)?) {
                    now.insert(gone);
                    again.push(object);
                }
            }
            restored.extend(now);
            waiting = again;
        }
        Ok(!restored.is_empty())
    }

    /// Looks at everything that references of ours name, and at what came to be named while a garbage collection ran.
    fn restore_unseen(&self, unseen: &mut Unseen) -> Result<(), Error> {
        let collector = self.collector();
        if self.spares.has_any() {
            let ours = refs::ours(self)?;
            self.restore_missing(ours.values().chain(&unseen.named))?;
            // A branch has these. Most landed long ago, and have no copy any more.
            let landed = ours.iter().filter(|(name, object)| {
                self.spares.has(object) && matches!(Says::read(name), Some((_, Says::Landed)))
            });
            let commits: Vec<Oid> = landed.filter_map(|(_, object)| self.landed_as(object)).collect();
            self.restore_missing(&commits)?;
        }
        if collector.is_none() {
            *unseen = Unseen::default();
        }
        Ok(())
    }

    /// The commit of a landing; `None` if its record is gone, or none of ours.
    fn landed_as(&self, record: &Oid) -> Option<Oid> {
        self.restoring(|objects| landed::parse(objects, record.clone())).ok().map(|landed| landed.commit)
    }

    /// Makes sure that a commit is there with everything that is new in it.
    pub(super) fn make_whole(&self, commit: &Oid) -> Result<(), Error> {
        self.restoring(|objects| look_at(objects, self, commit))
    }

    /// Looks at objects once more that a reference has just come to name, if a garbage collection runs that may have listed
    /// the references before, or one ran `before` they were moved. Waits for its end first. The references were moved,
    /// whatever becomes of this: what can't be looked at now is looked at later.
    pub(super) fn outlast(&self, before: Option<Identity>, named: &[&Oid]) {
        let mut unseen = self.spares.unseen();
        let collector = self.collector();
        if before.or(collector).is_some() {
            unseen.named.extend(named.iter().copied().cloned());
        }
        let is_over = collector.is_none_or(|collector| self.outwait(collector, &mut unseen));
        if is_over
            && !unseen.is_nothing()
            && let Err(error) = self.restore_unseen(&mut unseen)
        {
            tracing::warn!(error = %causes::on_one_line(&error), "what a garbage collection took is not looked at yet");
        }
    }

    /// Waits for the end of a garbage collection, once; `false` if it goes on.
    fn outwait(&self, mut collector: Identity, unseen: &mut Unseen) -> bool {
        let until = Instant::now() + LONGEST_WAIT;
        while unseen.outwaited != Some(collector) {
            if Instant::now() >= until {
                unseen.outwaited = Some(collector);
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            match self.collector() {
                Some(found) => collector = found,
                None => return true,
            }
        }
        false
    }

    /// The `gc.pid` of a `git gc` that runs and may remove new objects.
    pub(super) fn collector(&self) -> Option<Identity> {
        let path = self.real.common.join("gc.pid");
        let found = Identity::of(&fs::symlink_metadata(&path).ok()?);
        let text = read_file(&path, 4096).ok()??;
        let command = command_of(&String::from_utf8_lossy(&text))?;
        prunes(&command, self.settings.text("gc.pruneexpire")).then_some(found)
    }
}

/// How the process was called that `gc.pid` names (`<pid> <host>`), if it runs.
fn command_of(pid_file: &str) -> Option<String> {
    let pid: u32 = pid_file.split_whitespace().next()?.parse().ok()?;
    let command = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).ok()?;
    Some(String::from_utf8_lossy(&command).into_owned())
}

/// Whether a garbage collection may remove new objects. By default git keeps those of the last two weeks. Which ones another
/// date spares is git's to know, so every date may be now.
fn prunes(command: &str, setting: Option<&str>) -> bool {
    setting.is_some_and(|date| !["never", "false"].contains(&date))
        || command.to_lowercase().contains("prune")
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
    fn a_copy_is_read_as_it_was_written_and_one_that_was_cut_off_anywhere_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let spares = Spares::new(folder.path().join("spares"));
        let object = Oid::parse(&"a1".repeat(20)).expect("a name");
        assert!(spares.read(&object).is_none());
        let tree = b"100644 a\0\x01\x02\n\x04".to_vec();
        for kind in [ObjectKind::Blob, ObjectKind::Tree, ObjectKind::Commit] {
            spares.keep(&object, kind, &tree);
            assert_eq!(spares.read(&object), Some((kind, tree.clone())));
            let whole = fs::read(spares.path(&object)).expect("read");
            for length in 0..whole.len() {
                fs::write(spares.path(&object), &whole[..length]).expect("written");
                assert_eq!(spares.read(&object), None, "{length}");
                assert!(!spares.has(&object), "{length}");
            }
            // As some file systems leave it: long enough, and empty.
            fs::write(spares.path(&object), vec![0; whole.len()]).expect("written");
            assert_eq!(spares.read(&object), None);
        }
        assert!(!spares.has_any(), "nothing is left beside them");
    }

    #[test]
    fn a_copy_that_can_not_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let spares = Spares::new(folder.path().to_owned());
        let object = Oid::parse(&"a1".repeat(20)).expect("a name");
        // A folder is in its way, so it can be filled and not be renamed.
        fs::create_dir(spares.path(&object)).expect("made");
        spares.keep(&object, ObjectKind::Blob, b"x");
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
    }

    #[test]
    fn only_a_process_that_runs_has_a_command() {
        let own = std::process::id();
        assert!(command_of(&format!("{own} host")).is_some());
        // No process has the last number.
        for text in ["", "x host", "4294967295 host"] {
            assert_eq!(command_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_collection_is_dangerous_when_it_was_told_to_prune_or_the_setting_has_a_date() {
        for (command, setting, expected) in [
            ("git\0gc\0", None, false),
            ("git\0gc\0--auto\0", Some("never"), false),
            ("git\0gc\0", Some("false"), false),
            ("git\0gc\0", Some("now"), true),
            ("git\0gc\0", Some("2.weeks.ago"), true),
            ("git\0gc\0--prune=now\0", None, true),
            ("git\0gc\0--prune=now\0", Some("never"), true),
            ("git\0-c\0gc.pruneExpire=now\0gc\0", None, true),
        ] {
            assert_eq!(prunes(command, setting), expected, "{command:?} {setting:?}");
        }
    }
}
