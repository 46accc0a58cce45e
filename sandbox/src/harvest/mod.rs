//! What an agent did, read from the upper layer of its overlay once every process of the attempt is dead.
//!
//! An agent that may mean harm wrote the upper layer: its names are arbitrary bytes, its directories
//! may be locked, deep or countless, and where a file is expected there may be a pipe that never answers. So
//! it is walked by descriptor (`tree`), compared with the [`BaseLayers`] by content, and every difference is
//! judged before any code acts on it (`walk`). What comes out is git's view of the work: files, their
//! executable bit, and links. A file that was only touched, a new empty directory, a changed owner are no
//! difference.
//!
//! ```text
//! upper + base  --harvest-->  changes, renames, violations, warnings
//!                             changes  --patch-->  a text `git apply` accepts
//!                             changes  --apply-->  the live folder, all of it or nothing
//! ```
//!
//! A harvest fails closed: anything that can't be read, understood or bounded is a [`Violation`], and with one of
//! those nothing of the attempt lands. [`Harvest::changes`] holds only what is in scope and harmless.

pub mod apply;
mod base;
mod journal;
pub mod judge;
pub mod links;
mod name_folding;
mod name_lists;
pub mod patch;
mod plan;
pub mod protected;
mod record;
mod recover;
mod rename;
mod repository_shape;
mod secret_search;
pub(crate) mod tree;
mod violation;
mod walk;

use std::collections::HashSet;
use std::fmt;
use std::os::fd::BorrowedFd;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

pub(crate) use base::BaseEntry;
pub use base::BaseLayers;
pub(crate) use name_folding::is_dot_git;
pub use repository_shape::RepositoryShape;
pub use violation::{HarvestWarning, Violation, ViolationReason};

use crate::path::{RelPath, escape};
use crate::scope::Scope;
use crate::secret::NamedSecret;

/// What decides which changes are harvested, and which refused.
#[derive(Clone, Copy)]
pub struct HarvestRules<'a> {
    pub scope: &'a Scope,
    /// Whether a path, which is a directory or not, is scratch: never harvested, and nothing below it looked
    /// at.
    pub scratch: &'a dyn Fn(&RelPath, bool) -> bool,
    /// Whether the workspace is the root of a repository: its `.git` is private to the agent, and none of its
    /// work. Elsewhere a `.git` is a repository the agent made.
    pub repository: bool,
    /// Paths the agent was not to see: a change at or below one is refused.
    pub hidden: &'a [RelPath],
    pub secrets: &'a [NamedSecret],
    pub limits: HarvestLimits,
}

impl fmt::Debug for HarvestRules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HarvestRules")
            .field("scope", self.scope)
            .field("hidden", &self.hidden)
            .field("secrets", &self.secrets)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// How much is looked at. Time and memory of a harvest are bounded by these, not by the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HarvestLimits {
    /// Bytes of one changed file.
    pub file_size: u64,
    /// Bytes of all changed files together. Hard links and holes make files large for nothing.
    pub total_size: u64,
    /// Changes and violations.
    pub changes: usize,
    /// Names seen in the upper layer, changed or not, outside scratch.
    pub names: usize,
    /// Bytes of those names, and of the paths of changed files and of folders, each together: a path is kept whole.
    pub path_bytes: usize,
    /// Folders in folders. Git stops at 2,048 (`core.maxTreeDepth`), and build tools long before; what people keep
    /// is a few dozen deep.
    pub depth: usize,
    /// Violations and warnings that are listed; more are only counted.
    pub listed: usize,
}

impl Default for HarvestLimits {
    fn default() -> Self {
        Self {
            file_size: 100 << 20,
            total_size: 4 << 30,
            changes: 100_000,
            names: 2_000_000,
            path_bytes: 16 << 20,
            depth: 256,
            listed: 300,
        }
    }
}

/// The outcome, each list sorted by path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Harvest {
    /// In scope and harmless.
    pub changes: Vec<HarvestChange>,
    /// Deleted and added paths with the same content, from and to. Both ends are among the changes, and each
    /// was judged by itself.
    pub renames: Vec<(RelPath, RelPath)>,
    pub violations: Vec<Violation>,
    /// Violations that were counted and not listed.
    pub violations_left_out: usize,
    pub warnings: Vec<HarvestWarning>,
    /// How many scratch paths were passed over; a directory counts once.
    pub scratch: u64,
}

impl Harvest {
    /// Whether the work may go on to be landed.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.violations_left_out == 0
    }

    /// Lists a violation. Of too many, the first by their paths stay listed, and the rest is counted.
    fn refuse(&mut self, violation: Violation, listed: usize) {
        self.violations.push(violation);
        if self.violations.len() >= 2 * listed.max(1) {
            self.shorten(listed);
        }
    }

    fn shorten(&mut self, listed: usize) {
        self.violations.sort_by(|one, other| one.path.cmp(&other.path));
        self.violations_left_out += self.violations.len().saturating_sub(listed);
        self.violations.truncate(listed);
    }
}

/// One path that differs from the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarvestChange {
    pub path: RelPath,
    /// `None` when it was not there.
    pub before: Option<HarvestEntry>,
    /// `None` when it is gone.
    pub after: Option<HarvestEntry>,
}

/// What git keeps of a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HarvestEntry {
    File {
        executable: bool,
        size: u64,
    },
    Symlink {
        #[serde(serialize_with = "escaped")]
        target: Vec<u8>,
    },
}

fn escaped<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&escape(bytes))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Added,
    /// Its content, its executable bit, or the target of a link.
    Modified,
    Deleted,
    /// A file became a link, or a link a file.
    TypeChanged,
}

impl HarvestChange {
    pub fn kind(&self) -> ChangeKind {
        match (&self.before, &self.after) {
            (None, _) => ChangeKind::Added,
            (Some(_), None) => ChangeKind::Deleted,
            (Some(HarvestEntry::File { .. }), Some(HarvestEntry::File { .. }))
            | (Some(HarvestEntry::Symlink { .. }), Some(HarvestEntry::Symlink { .. })) => {
                ChangeKind::Modified
            }
            (Some(_), Some(_)) => ChangeKind::TypeChanged,
        }
    }
}

impl Serialize for HarvestChange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Change", 4)?;
        fields.serialize_field("path", &self.path)?;
        fields.serialize_field("kind", &self.kind())?;
        fields.serialize_field("before", &self.before)?;
        fields.serialize_field("after", &self.after)?;
        fields.end()
    }
}

/// Compares an upper layer with its base. No process of the attempt may be alive any more. Permission bits
/// are added in the upper layer where the agent had taken ours away; nothing else is changed.
pub fn harvest(upper: BorrowedFd<'_>, base: &BaseLayers, rules: &HarvestRules<'_>) -> Harvest {
    let mut harvest = walk::walk(upper, base, rules);
    harvest.changes.sort_by(|one, other| one.path.cmp(&other.path));
    refuse_led_to(&mut harvest, base, rules);
    harvest.shorten(rules.limits.listed);
    harvest.renames = rename::find(&harvest.changes, upper, base);
    harvest.warnings.extend(collisions(&harvest.changes));
    if let Some(more @ 1..) = harvest.warnings.len().checked_sub(rules.limits.listed) {
        harvest.warnings.truncate(rules.limits.listed);
        harvest.warnings.push(HarvestWarning::More { count: more });
    }
    harvest
}

/// Judges what changed once more, by every protected name that leads to it through links.
fn refuse_led_to(harvest: &mut Harvest, base: &BaseLayers, rules: &HarvestRules<'_>) {
    if harvest.changes.is_empty() {
        return;
    }
    let refuse = |path: &RelPath, reason| Violation { path: path.clone(), reason };
    let before = match base.links(rules.limits.names, rules.scratch) {
        Ok(links) => links,
        Err(error) => {
            let reason =
                ViolationReason::Unreadable { error: format!("its links: {}", std::io::Error::from(error)) };
            return harvest.refuse(refuse(&RelPath::root(), reason), rules.limits.listed);
        }
    };
    let mut after = before.clone();
    for change in &harvest.changes {
        match &change.after {
            Some(HarvestEntry::Symlink { target }) => after.insert(change.path.clone(), target.clone()),
            _ => after.remove(&change.path),
        }
    }
    let judged = links::ProtectedAliases::find(rules.scope, &before, &after).and_then(|mut aliases| {
        let mut found = Vec::new();
        for change in &harvest.changes {
            let is_link = matches!(change.after, Some(HarvestEntry::Symlink { .. }));
            let led = if is_link { aliases.judge_link(&change.path)? } else { None };
            found.extend(
                led.or_else(|| aliases.judge(&change.path)).map(|reason| refuse(&change.path, reason)),
            );
        }
        Ok(found)
    });
    let found =
        judged.unwrap_or_else(|links::TooManyLinks| vec![refuse(&RelPath::root(), ViolationReason::Tangled)]);
    if !found.is_empty() {
        let refused: HashSet<&RelPath> = found.iter().map(|violation| &violation.path).collect();
        harvest.changes.retain(|change| !refused.contains(&change.path));
    }
    for violation in found {
        harvest.refuse(violation, rules.limits.listed);
    }
}

/// Only among the changed paths: a base that has such a pair already is not the agent's doing.
fn collisions(changes: &[HarvestChange]) -> Vec<HarvestWarning> {
    let mut keyed: Vec<_> = changes
        .iter()
        .filter(|change| change.after.is_some())
        .map(|change| (name_folding::collision_key(change.path.as_bytes()), &change.path))
        .collect();
    keyed.sort();
    let pairs = keyed.windows(2).filter(|pair| pair[0].0 == pair[1].0);
    pairs.map(|pair| HarvestWarning::Collision { one: pair[0].1.clone(), other: pair[1].1.clone() }).collect()
}
