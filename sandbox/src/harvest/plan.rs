//! Deciding what an apply will do, and preparing it.
//!
//! [`ApplyPlan::check`] compares every path with what the agent started from and changes nothing;
//! [`ApplyPlan::stage`] writes every new content beside the folder, with its final owner and mode, so that all
//! that is left to do are renames.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::apply::{
    ApplyConflict, ApplyError, ApplyRequest, ApplyStep, ApplyStepHook, ConflictReason, FileClockTime,
    conflict, report_step, slot_name,
};
use super::journal::{ApplyAction, ApplyOperation, InodeIdentity, failed};
use super::tree::{self, CHUNK, NodeKind};
use super::{HarvestChange, HarvestEntry, RepositoryShape};
use crate::path::RelPath;

/// One thing to do, decided before anything is done.
pub(super) struct PlannedChange<'a> {
    path: &'a RelPath,
    /// What is there now.
    live: Option<Stat>,
    after: Option<&'a HarvestEntry>,
    /// Who will own it, unless it takes over from something live.
    owner: (u32, u32),
}

pub(super) struct ApplyPlan<'a> {
    /// Deletions, then everything that is put in place.
    pub(super) steps: Vec<PlannedChange<'a>>,
    /// To be made, the outer ones first.
    directories: BTreeSet<RelPath>,
    /// Every path that is to go, also below a directory that goes as a whole.
    deleted: HashSet<&'a RelPath>,
    /// For each directory that is not there yet, the innermost one above it that is.
    missing: HashMap<RelPath, RelPath>,
    started: FileClockTime,
}

impl<'a> ApplyPlan<'a> {
    /// Compares every path with what the agent started from.
    pub(super) fn check(work: &ApplyRequest<'a>) -> Result<Self, ApplyError> {
        let deleted = work.changes.iter().filter(|change| change.after.is_none()).map(|change| &change.path);
        let mut plan = Self {
            steps: Vec::new(),
            directories: BTreeSet::new(),
            deleted: deleted.collect(),
            missing: HashMap::new(),
            started: work.started,
        };
        let mut conflicts = repositories(work);
        for change in work.changes {
            if let Err(reason) = plan.check_one(work, change) {
                conflicts.push(ApplyConflict { path: change.path.clone(), reason });
            }
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        // A directory that gives way to a file goes as a whole, so what is in it needs no step of its own.
        let displaced: HashSet<RelPath> = plan
            .steps
            .iter()
            .filter(|step| step.displaces_directory())
            .map(|step| step.path.clone())
            .collect();
        plan.steps.retain(|step| {
            step.after.is_some()
                || displaced.is_empty()
                || !step.path.ancestors().any(|above| displaced.contains(&above))
        });
        plan.steps.sort_by_key(|step| step.after.is_some());
        Ok(plan)
    }

    fn check_one(
        &mut self,
        work: &ApplyRequest<'a>,
        change: &'a HarvestChange,
    ) -> Result<(), ConflictReason> {
        let (above, is_there) = self.nearest_directory(work.live, &change.path)?;
        let directory = tree::open_directory(work.live, &above).map_err(unreadable)?;
        let parent = fs::fstat(&directory).map_err(unreadable)?;
        let live = match is_there {
            true => tree::inspect(directory.as_fd(), change.path.name()).map_err(unreadable)?,
            false => None,
        };
        match (&change.before, &live) {
            (None, None) => {
                // A copy of an entry that was here: then another process deleted that, if names here changed at all.
                // A file the agent moved in from elsewhere is a copy too, of another path.
                if FileClockTime::of(&parent) >= work.started && is_copied_up(work.upper, change) {
                    return Err(ConflictReason::Gone);
                }
            }
            (None, Some(stat)) if tree::kind(stat) == NodeKind::Directory => {
                if !self.holds_only_deleted(directory.as_fd(), change.path.name(), &change.path)? {
                    return Err(ConflictReason::DirectoryInUse);
                }
            }
            (None, Some(_)) => return Err(ConflictReason::Appeared),
            (Some(_), None) => return Err(ConflictReason::Gone),
            (Some(before), Some(stat)) => {
                let target = || tree::read_link(directory.as_fd(), change.path.name()).ok();
                let same = match (before, tree::kind(stat)) {
                    (HarvestEntry::File { executable, size }, NodeKind::File) => {
                        *executable == tree::is_executable(stat) && *size == tree::size(stat)
                    }
                    (HarvestEntry::Symlink { target: was }, NodeKind::Symlink) => {
                        target().as_ref() == Some(was)
                    }
                    _ => false,
                };
                if !same || FileClockTime::of(stat) >= work.started {
                    return Err(ConflictReason::Changed);
                }
            }
        }
        let owner = (parent.st_uid, parent.st_gid);
        if change.after.is_some() && !is_there {
            let made = change.path.ancestors().take_while(|directory| self.missing.contains_key(directory));
            for directory in made {
                // Those above one that is to be made are to be made already.
                if !self.directories.insert(directory) {
                    break;
                }
            }
        }
        self.steps.push(PlannedChange { path: &change.path, live, after: change.after.as_ref(), owner });
        Ok(())
    }

    /// The innermost directory above a path that is there and stays, and whether that is the path's own. Those between
    /// are remembered as missing, so that each is looked for once.
    fn nearest_directory(
        &mut self,
        live: BorrowedFd<'_>,
        path: &RelPath,
    ) -> Result<(RelPath, bool), ConflictReason> {
        let mut missing = Vec::new();
        let mut nearest = Err(ConflictReason::ParentReplaced);
        for above in path.ancestors() {
            if let Some(known) = self.missing.get(&above) {
                nearest = Ok((known.clone(), false));
                break;
            }
            match tree::open_directory(live, &above) {
                Ok(_) => {
                    nearest = Ok((above, missing.is_empty()));
                    break;
                }
                Err(Errno::NOENT) => missing.push(above),
                // A file or link that the work deletes makes room for a directory.
                Err(Errno::NOTDIR | Errno::LOOP) if self.deleted.contains(&above) => missing.push(above),
                Err(Errno::NOTDIR | Errno::LOOP)
                    if above.ancestors().any(|further| self.deleted.contains(&further)) =>
                {
                    missing.push(above);
                }
                Err(Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => break,
                Err(error) => return Err(unreadable(error)),
            }
        }
        let (above, is_there) = nearest?;
        for directory in missing {
            self.missing.insert(directory, above.clone());
        }
        Ok((above, is_there))
    }

    /// Whether a directory holds nothing but directories and what the work deletes, as it was at the start.
    /// Moving the directory does not change the change times in it.
    fn holds_only_deleted(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        path: &RelPath,
    ) -> Result<bool, ConflictReason> {
        let mut waiting = vec![RelPath::root().join(name)];
        while let Some(inner) = waiting.pop() {
            let directory = tree::open_directory(parent, &inner).map_err(unreadable)?;
            for name in tree::names(directory.as_fd(), usize::MAX - 1).map_err(unreadable)? {
                let Some(stat) = tree::inspect(directory.as_fd(), &name).map_err(unreadable)? else {
                    continue;
                };
                let inner = inner.join(&name);
                if tree::kind(&stat) == NodeKind::Directory {
                    waiting.push(inner);
                    continue;
                }
                let below = inner.components().skip(1).fold(path.clone(), |path, name| path.join(name));
                if !self.deleted.contains(&below) || FileClockTime::of(&stat) >= self.started {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Writes every new content into the stage, and gives the operations that will put it in place.
    pub(super) fn stage(
        &self,
        work: &ApplyRequest<'_>,
        stage: BorrowedFd<'_>,
        observer: ApplyStepHook<'_>,
    ) -> Result<Vec<ApplyOperation>, ApplyError> {
        // Syncing one by one is the cheaper way for a few files, and far the dearer for thousands.
        let one_by_one = self.steps.len() <= 64;
        let mut puts = Vec::new();
        let mut operations = Vec::new();
        for (slot, step) in self.steps.iter().enumerate() {
            let old = step.live.as_ref().map(InodeIdentity::of);
            let action = match (step.after, old) {
                (None, Some(old)) => {
                    let action = ApplyAction::Delete { slot, old };
                    operations.push(ApplyOperation { path: step.path.clone(), action });
                    continue;
                }
                (None, None) => continue,
                (Some(after), old) => {
                    let new = step
                        .write(work.upper, stage, &slot_name("new", slot), after, one_by_one)
                        .map_err(|source| ApplyError::Path { path: step.path.clone(), source })?;
                    report_step(observer, ApplyStep::Staged)?;
                    match old {
                        None => ApplyAction::Add { slot, new },
                        Some(old) => ApplyAction::Replace { slot, new, old },
                    }
                }
            };
            puts.push(ApplyOperation { path: step.path.clone(), action });
        }
        match one_by_one {
            true => fs::fsync(stage),
            false => fs::syncfs(stage),
        }
        .map_err(failed("make the stage durable"))?;
        let directories = self.directories.iter();
        operations.extend(
            directories.map(|path| ApplyOperation { path: path.clone(), action: ApplyAction::MakeDirectory }),
        );
        operations.extend(puts);
        Ok(operations)
    }

    /// What moved into the stage must be what was checked: a person may have saved a file in between.
    pub(super) fn verify_displaced(
        &self,
        stage: BorrowedFd<'_>,
        operations: &[ApplyOperation],
    ) -> Result<(), ApplyError> {
        for operation in operations {
            let (slot, old) = match operation.action {
                ApplyAction::Delete { slot, old } | ApplyAction::Replace { slot, old, .. } => (slot, old),
                ApplyAction::Add { .. } | ApplyAction::MakeDirectory => continue,
            };
            let in_path =
                |source: Errno| ApplyError::Path { path: operation.path.clone(), source: source.into() };
            let mut name = slot_name("old", slot);
            let mut found = tree::inspect(stage, name.as_bytes()).map_err(in_path)?;
            if found.is_none() {
                name = slot_name("new", slot);
                found = tree::inspect(stage, name.as_bytes()).map_err(in_path)?;
            }
            let mut same = found.is_some_and(|stat| old.matches(&stat));
            if same && old.is_directory() {
                same = self.holds_only_deleted(stage, name.as_bytes(), &operation.path).unwrap_or(false);
            }
            if !same {
                return Err(conflict(&operation.path, ConflictReason::Changed));
            }
        }
        Ok(())
    }
}

/// Directories that git takes for a repository, with a change in or below them: the live folder is judged as it is
/// now, which is not quite what was harvested, with what the work adds to it.
fn repositories(work: &ApplyRequest<'_>) -> Vec<ApplyConflict> {
    let mut added: HashMap<RelPath, RepositoryShape> = HashMap::new();
    let (puts, rest): (Vec<_>, Vec<_>) = work.changes.iter().partition(|change| change.after.is_some());
    for (change, adds) in
        puts.into_iter().map(|put| (put, true)).chain(rest.into_iter().map(|one| (one, false)))
    {
        let mut path = change.path.clone();
        while let Some(above) = path.parent() {
            let known = added.contains_key(&above);
            let shape = added.entry(above.clone()).or_default();
            if adds {
                shape.add(path.name());
            }
            // The first entry added to it has been to the directories above.
            if known {
                break;
            }
            path = above;
        }
    }
    let is_repository = |(path, mut shape): (RelPath, RepositoryShape)| {
        if let Ok(live) = tree::open_directory(work.live, &path) {
            let listed = tree::each_name(live.as_fd(), |name, _| {
                shape.add(name);
                ControlFlow::Continue(())
            });
            if let Err(error) = listed {
                return Some(ApplyConflict { path, reason: unreadable(error) });
            }
        }
        shape.is_repository().then_some(ApplyConflict { path, reason: ConflictReason::Repository })
    };
    added.into_iter().filter_map(is_repository).collect()
}

fn unreadable(error: Errno) -> ConflictReason {
    ConflictReason::Unreadable { error: io::Error::from(error).to_string() }
}

/// Overlayfs marks what it copied up from the lower layer.
fn is_copied_up(upper: BorrowedFd<'_>, change: &HarvestChange) -> bool {
    matches!(change.after, Some(HarvestEntry::File { .. }))
        && tree::unlock_file(upper, &change.path)
            .and_then(|(file, _)| tree::marks(file.as_fd()))
            .is_ok_and(|marks| marks.origin)
}

impl PlannedChange<'_> {
    fn displaces_directory(&self) -> bool {
        self.live.as_ref().is_some_and(|stat| tree::kind(stat) == NodeKind::Directory)
    }

    /// One new content in the stage, with its final owner and mode.
    fn write(
        &self,
        upper: BorrowedFd<'_>,
        stage: BorrowedFd<'_>,
        name: &str,
        after: &HarvestEntry,
        durably: bool,
    ) -> io::Result<InodeIdentity> {
        let leaf = self.live.as_ref().filter(|stat| tree::kind(stat) != NodeKind::Directory);
        let owner = leaf.map_or(self.owner, |stat| (stat.st_uid, stat.st_gid));
        match after {
            HarvestEntry::Symlink { target } => {
                fs::symlinkat(target.as_slice(), stage, name)?;
                if rustix::process::geteuid().is_root() {
                    let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
                    fs::chownat(stage, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
                }
            }
            HarvestEntry::File { executable, size } => {
                let (mut source, _) = tree::unlock_file(upper, self.path)?;
                let flags =
                    OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = fs::openat(stage, name, flags, Mode::from_raw_mode(0o600))?;
                let mut file = std::fs::File::from(file);
                let mut left = *size;
                let mut buffer =
                    vec![0; CHUNK.min(usize::try_from(*size).unwrap_or(CHUNK).saturating_add(1))];
                loop {
                    let length = tree::fill(&mut source, &mut buffer)?;
                    left = left.checked_sub(length as u64).ok_or(io::ErrorKind::InvalidData)?;
                    file.write_all(&buffer[..length])?;
                    if length < buffer.len() {
                        break;
                    }
                }
                if left > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                if rustix::process::geteuid().is_root() {
                    fs::fchown(&file, Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)))?;
                }
                let live = leaf.filter(|stat| tree::kind(stat) == NodeKind::File);
                fs::fchmod(&file, Mode::from_raw_mode(mode(live, *executable)))?;
                if durably {
                    file.sync_all()?;
                }
            }
        }
        let stat = tree::inspect(stage, name.as_bytes())?.ok_or(Errno::NOENT)?;
        Ok(InodeIdentity::of(&stat))
    }
}

/// Nothing of the agent's mode counts but the executable bit. A file that was there keeps its other bits,
/// except those that would give new content another's rights.
fn mode(live: Option<&Stat>, executable: bool) -> u32 {
    match (live, executable) {
        (Some(stat), _) if tree::is_executable(stat) == executable => stat.st_mode & 0o777,
        // A user who may read it may execute it, as git does.
        (Some(stat), true) => stat.st_mode & 0o777 | (stat.st_mode & 0o444) >> 2 | 0o100,
        (Some(stat), false) => stat.st_mode & 0o666,
        (None, true) => 0o755,
        (None, false) => 0o644,
    }
}
