//! What a walk has found so far, and how much more it may look at.
//!
//! Every bound of a harvest is held here: if an agent makes something too deep, too many or too long, the walk ends
//! with a violation that says so.

use std::collections::HashSet;

use super::secret_search::SecretSearch;
use super::violation::{HarvestWarning, Violation, ViolationReason};
use super::{Harvest, HarvestChange, HarvestLimits, HarvestRules};
use crate::path::RelPath;

/// A limit was reached: it is recorded, and nothing more is looked at.
pub(super) struct LimitReached;

/// What was found, and what it took.
pub(super) struct HarvestRecord<'a> {
    pub(super) harvest: Harvest,
    pub(super) search: SecretSearch<'a>,
    /// Directories that git takes for a repository, before or after.
    pub(super) repositories: HashSet<RelPath>,
    limits: HarvestLimits,
    names: usize,
    name_bytes: usize,
    path_bytes: usize,
    bytes: u64,
}

impl<'a> HarvestRecord<'a> {
    pub(super) fn new(rules: &HarvestRules<'a>) -> Self {
        Self {
            harvest: Harvest::default(),
            search: SecretSearch::new(rules.secrets),
            repositories: HashSet::new(),
            limits: rules.limits,
            names: 0,
            name_bytes: 0,
            path_bytes: 0,
            bytes: 0,
        }
    }

    /// Counts a name that was listed. Says whether there is room for more.
    pub(super) fn count_name(&mut self, name: &[u8]) -> bool {
        self.names += 1;
        self.name_bytes += name.len();
        self.names <= self.limits.names && self.name_bytes <= self.limits.path_bytes
    }

    /// Ends the walk where there were too many names.
    pub(super) fn check_names(&mut self) -> Result<(), LimitReached> {
        if self.names > self.limits.names {
            return self.give_up(ViolationReason::TooMany { limit: self.limits.names });
        }
        if self.name_bytes > self.limits.path_bytes {
            return self.too_many_bytes();
        }
        Ok(())
    }

    /// Counts the bytes of a changed file; with too many, the walk ends.
    pub(super) fn count_content(&mut self, path: &RelPath, size: u64) -> Result<(), LimitReached> {
        self.bytes = self.bytes.saturating_add(size);
        let limit = self.limits.total_size;
        if self.bytes > limit {
            self.add_violation(path, ViolationReason::TooMuch { limit })?;
            return Err(LimitReached);
        }
        Ok(())
    }

    /// The cache of a tool is no part of the work: it is left out, and a person is told.
    pub(super) fn drop_cache(&mut self, path: RelPath) -> Result<(), LimitReached> {
        self.count_path_bytes(&path)?;
        let path =
            if self.search.bytes(path.as_bytes()).is_some() { self.without_secret(&path) } else { path };
        self.harvest.warnings.push(HarvestWarning::Dropped { path });
        Ok(())
    }

    /// The innermost directory above a path whose own path holds no secret: reports are read by others.
    fn without_secret(&self, path: &RelPath) -> RelPath {
        let bytes = path.as_bytes();
        let ends: Vec<usize> = (0..bytes.len()).filter(|end| bytes[*end] == b'/').collect();
        // A path below one with a secret in it has that secret, too.
        let free = ends.partition_point(|end| self.search.bytes(&bytes[..*end]).is_none());
        let end = free.checked_sub(1).map_or(0, |last| ends[last]);
        RelPath::parse(&bytes[..end]).unwrap_or_default()
    }

    pub(super) fn change(&mut self, change: HarvestChange) -> Result<(), LimitReached> {
        if change.after.is_some() && self.search.bytes(change.path.as_bytes()).is_some() {
            // `violate` finds the name of the secret again, and a path that may be shown.
            return self.add_violation(&change.path, ViolationReason::OutOfScope);
        }
        self.count_path_bytes(&change.path)?;
        self.harvest.changes.push(change);
        self.count()
    }

    /// Records a violation, but no name that holds a secret.
    pub(super) fn add_violation(
        &mut self,
        path: &RelPath,
        reason: ViolationReason,
    ) -> Result<(), LimitReached> {
        let violation = match self.search.bytes(path.as_bytes()) {
            None => Violation { path: path.clone(), reason },
            Some(name) => Violation {
                path: self.without_secret(path),
                reason: ViolationReason::SecretInName { name: name.to_owned() },
            },
        };
        self.harvest.refuse(violation, self.limits.listed);
        self.count()
    }

    /// Refuses every change in a directory that git takes for a repository, once for each such directory.
    pub(super) fn refuse_repositories(&mut self) {
        if self.repositories.is_empty() {
            return;
        }
        let mut refused = HashSet::new();
        self.harvest.changes.retain(|change| {
            let around = change.path.ancestors().find(|above| self.repositories.contains(above));
            let is_free = around.is_none();
            refused.extend(around);
            is_free
        });
        for path in refused {
            let _ = self.add_violation(&path, ViolationReason::Repository);
        }
    }

    pub(super) fn unreadable(
        &mut self,
        path: &RelPath,
        error: impl Into<std::io::Error>,
    ) -> Result<(), LimitReached> {
        self.add_violation(path, ViolationReason::Unreadable { error: error.into().to_string() })
    }

    /// Counts the bytes of a path that is kept or put together.
    pub(super) fn count_path_bytes(&mut self, path: &RelPath) -> Result<(), LimitReached> {
        self.path_bytes += path.as_bytes().len();
        match self.path_bytes > self.limits.path_bytes {
            true => self.too_many_bytes(),
            false => Ok(()),
        }
    }

    fn count(&mut self) -> Result<(), LimitReached> {
        let limit = self.limits.changes;
        let Harvest { changes, violations, violations_left_out, .. } = &self.harvest;
        match changes.len() + violations.len() + violations_left_out > limit {
            true => self.give_up(ViolationReason::TooMany { limit }),
            false => Ok(()),
        }
    }

    fn too_many_bytes(&mut self) -> Result<(), LimitReached> {
        self.give_up(ViolationReason::TooManyBytes { limit: self.limits.path_bytes })
    }

    /// About the whole, so the first that is listed.
    fn give_up(&mut self, reason: ViolationReason) -> Result<(), LimitReached> {
        let violation = Violation { path: RelPath::root(), reason };
        self.harvest.refuse(violation, self.limits.listed);
        Err(LimitReached)
    }
}
