//! Spare copies of the objects that this program writes, against `git gc --prune=now`.
//!
//! Pruning removes every object that no reference reached when git listed them. An object is in danger from the moment it
//! is written until a reference names it, and beyond: a garbage collection that made its list before the reference moved
//! removes the object afterwards. Git has no lock against this, and warns of it (`git help gc`, NOTES). So each object has
//! a spare copy in the state folder:
//!
//! - an object that is missing when a reference is to name it, or when a record is read, is written again;
//! - after a garbage collection has ended, the objects of references that moved meanwhile are checked (`recheck_after_gc`).
//!
//! `git gc` holds `gc.pid` while it works, so we see it. `git prune` by itself holds no file, so we do not see it; objects that it
//! removes are written again when they are missed. Only the supervisor removes old copies
//! ([`sweep`]), and never before it has checked the objects that a garbage collection may have removed.

#![allow(clippy::disallowed_methods, reason = "opens files of /proc")]

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::error::Error;
use super::file_access::read_file;
use super::file_stamp::FileIdentity;
use super::landed_format;
use super::names::{Oid, TaskRefKind};
use super::objects::ObjectReader;
use super::own_refs;
use super::repository::LandingRepository;
use super::spare_store::UncheckedObjects;
use super::tree_diff::{self, GitTreeEntryKind};
use agency_sandbox::error_chain;

/// How often the supervisor removes old copies.
pub const BETWEEN_SWEEPS: Duration = Duration::from_secs(300);
/// How long to wait for a garbage collection. `gc.pid` may have come with the repository and name any process.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Writes objects again that references of ours name and a garbage collection removed. Called at the beginning and the
/// end of a run: a process that was killed could not check the objects that it had named.
pub fn restore_named(repository: &LandingRepository) -> Result<(), Error> {
    restore_unseen(repository, &mut repository.spares.unseen())
}

/// Removes old copies; the supervisor in charge calls it. It first checks the objects that references came to name
/// during a garbage collection. While one runs, all copies stay.
pub fn sweep(repository: &LandingRepository) -> Result<(), Error> {
    let mut unseen = repository.spares.unseen();
    if let Some(collector) = running_gc(repository) {
        unseen.outwaited.get_or_insert(collector);
        return Ok(());
    }
    if !unseen.is_nothing() {
        restore_unseen(repository, &mut unseen)?;
    }
    repository.spares.remove_old();
    Ok(())
}

/// Asks for objects. A missing object is written again, if it has a spare copy.
pub(super) fn restoring<T>(
    repository: &LandingRepository,
    mut ask: impl FnMut(&mut ObjectReader) -> Result<T, Error>,
) -> Result<T, Error> {
    match repository.ask(&mut ask) {
        Err(Error::Missing { .. }) => restoring_anew(repository, ask),
        answer => answer,
    }
}

/// The same with a new git: one that has run for a while remembers packs that are gone.
fn restoring_anew<T>(
    repository: &LandingRepository,
    mut ask: impl FnMut(&mut ObjectReader) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut restored = HashSet::new();
    loop {
        let answer = ObjectReader::start(&repository.objects, repository.format)
            .and_then(|mut objects| ask(&mut objects));
        let Err(Error::Missing { object, .. }) = &answer else { return answer };
        let object = Oid::parse(object)?;
        if !restore(repository, &object)? || !restored.insert(object) {
            return answer;
        }
    }
}

/// Writes an object again from its spare copy; `false` if there is no complete copy. After an error of the machine, the
/// copy stays.
fn restore(repository: &LandingRepository, object: &Oid) -> Result<bool, Error> {
    let Some((kind, contents)) = repository.spares.read(object) else { return Ok(false) };
    Ok(repository.write_object(kind, &contents)? == *object)
}

/// Writes those of these objects again that are missing, and the missing objects that the commits among them changed.
/// An object without a spare copy stays as it is. Returns whether it wrote any.
///
/// One git checks all of them, and a new one those that were written.
pub(super) fn restore_missing<'a>(
    repository: &LandingRepository,
    objects: impl IntoIterator<Item = &'a Oid>,
) -> Result<bool, Error> {
    let mut waiting: Vec<&Oid> = objects.into_iter().filter(|object| repository.spares.has(object)).collect();
    let mut restored = HashSet::new();
    while !waiting.is_empty() {
        let mut git = ObjectReader::start(&repository.objects, repository.format)?;
        let (mut again, mut now) = (Vec::new(), HashSet::new());
        for object in waiting {
            let gone = match look_at(&mut git, repository, object) {
                Err(Error::Missing { object, .. }) => Oid::parse(&object)?,
                found => {
                    found?;
                    continue;
                }
            };
            if !restored.contains(&gone) && (now.contains(&gone) || restore(repository, &gone)?) {
                now.insert(gone);
                again.push(object);
            }
        }
        restored.extend(now);
        waiting = again;
    }
    Ok(!restored.is_empty())
}

/// Checks all objects that references of ours name, and those that references came to name during a garbage collection.
fn restore_unseen(repository: &LandingRepository, unseen: &mut UncheckedObjects) -> Result<(), Error> {
    let collector = running_gc(repository);
    if repository.spares.has_any() {
        let ours = own_refs::read(&repository.real.common)?;
        restore_missing(repository, ours.values().chain(&unseen.named))?;
        // A branch has these commits. Most landed long ago, and have no copy any more.
        let landed = ours.iter().filter(|(name, object)| {
            repository.spares.has(object) && matches!(TaskRefKind::read(name), Some((_, TaskRefKind::Landed)))
        });
        let commits: Vec<Oid> = landed.filter_map(|(_, object)| landed_commit(repository, object)).collect();
        restore_missing(repository, &commits)?;
    }
    if collector.is_none() {
        *unseen = UncheckedObjects::default();
    }
    Ok(())
}

/// The commit of a landing; `None` if its record is missing, or is not one of ours.
fn landed_commit(repository: &LandingRepository, record: &Oid) -> Option<Oid> {
    restoring(repository, |objects| landed_format::parse(objects, record.clone()))
        .ok()
        .map(|landed| landed.commit)
}

/// Makes sure that a commit exists, with every object that is new in it.
pub(super) fn ensure_complete(repository: &LandingRepository, commit: &Oid) -> Result<(), Error> {
    restoring(repository, |objects| look_at(objects, repository, commit))
}

/// Checks objects once more that references have just come to name, if a garbage collection runs that may have listed
/// the references before, or one ran `before` they moved. Waits for its end first. An error does not undo the move of
/// the references: objects that can't be checked now are checked later.
pub(super) fn recheck_after_gc(repository: &LandingRepository, before: Option<FileIdentity>, named: &[&Oid]) {
    let mut unseen = repository.spares.unseen();
    let collector = running_gc(repository);
    if before.or(collector).is_some() {
        unseen.named.extend(named.iter().copied().cloned());
    }
    let is_over = collector.is_none_or(|collector| wait_for_gc(repository, collector, &mut unseen));
    if is_over
        && !unseen.is_nothing()
        && let Err(error) = restore_unseen(repository, &mut unseen)
    {
        tracing::warn!(error = %error_chain::on_one_line(&error), "what a garbage collection took is not looked at yet");
    }
}

/// Waits for the end of a garbage collection, once; `false` if it runs longer.
fn wait_for_gc(
    repository: &LandingRepository,
    mut collector: FileIdentity,
    unseen: &mut UncheckedObjects,
) -> bool {
    let until = Instant::now() + LONGEST_WAIT;
    while unseen.outwaited != Some(collector) {
        if Instant::now() >= until {
            unseen.outwaited = Some(collector);
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        match running_gc(repository) {
            Some(found) => collector = found,
            None => return true,
        }
    }
    false
}

/// The `gc.pid` of a `git gc` that runs and may remove new objects.
pub(super) fn running_gc(repository: &LandingRepository) -> Option<FileIdentity> {
    let path = repository.real.common.join("gc.pid");
    let found = FileIdentity::of(&fs::symlink_metadata(&path).ok()?);
    let text = read_file(&path, 4096).ok()??;
    let command = command_of(&String::from_utf8_lossy(&text))?;
    prunes(&command, repository.settings.text("gc.pruneexpire")).then_some(found)
}

/// The command line of the process that `gc.pid` names (`<pid> <host>`), if it runs.
fn command_of(pid_file: &str) -> Option<String> {
    let pid: u32 = pid_file.split_whitespace().next()?.parse().ok()?;
    let command = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).ok()?;
    Some(String::from_utf8_lossy(&command).into_owned())
}

/// Whether a garbage collection may remove new objects. By default git keeps those of the last two weeks. Only git
/// knows which objects another date spares, so every date counts as now.
fn prunes(command: &str, setting: Option<&str>) -> bool {
    setting.is_some_and(|date| !["never", "false"].contains(&date))
        || command.to_lowercase().contains("prune")
}

/// Fails if an object is missing; for a commit, also if its tree or an object that is new in it is missing.
fn look_at(objects: &mut ObjectReader, repository: &LandingRepository, object: &Oid) -> Result<(), Error> {
    let kind = objects.kind_of(object)?;
    if kind != "commit" {
        return Ok(());
    }
    let tree = objects.tree_named_by(object)?;
    objects.kind_of(&tree)?;
    let base = objects.parents(object)?.into_iter().next();
    let base = base.unwrap_or_else(|| repository.format.empty_tree());
    for changed in tree_diff::compare(objects, &base, object)? {
        if let Some(entry) = changed.new.filter(|entry| entry.kind != GitTreeEntryKind::Submodule) {
            objects.kind_of(&entry.object)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
