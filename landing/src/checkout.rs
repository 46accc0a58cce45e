//! A work tree that has the branch checked out: its state, and moving it along with the branch.
//!
//! Each path is compared with both sides of the move, so that the same code moves a checkout forward and back. A path
//! is as it was, as it will be, or changed by a person. Only paths as they were are written.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use agency_sandbox::harvest::HarvestChange;
use agency_sandbox::harvest::apply::{
    self, ApplyConflict, ApplyError, ApplyRequest, ConflictReason, FileClockTime,
};
use agency_sandbox::path::RelPath;

use super::checkout_staging::{CheckoutStaging, StagedPaths};
use super::error::{Error, files};
use super::file_access::remove_tree;
use super::file_stamp::FileStamp;
use super::index::{self, IndexAt, IndexListing, NextIndex};
use super::names::Oid;
use super::objects::ObjectReader;
use super::obstacle::{Obstacle, ObstacleKind};
use super::path_content::{self, PathContent};
use super::plan::{CheckoutCondition, CheckoutFacts, FileAt, PathFacts};
use super::repository::LandingRepository;
use super::steps::{LandStep, StepPoint, StepWatch};
use super::tree_diff::{ChangedPath, GitTreeEntryKind};
use super::worktree::{Worktree, WorktreeHead};

/// A work tree, its staging repository, and the comparison of its paths with both sides.
#[derive(Debug)]
pub(super) struct Checkout {
    pub(super) root: PathBuf,
    pub(super) worktree: Worktree,
    head: WorktreeHead,
    live: OwnedFd,
    bench: CheckoutStaging,
    stamp: FileStamp,
    started: FileClockTime,
    from: Oid,
    to: Oid,
    changed: Vec<ChangedPath>,
    paths: Vec<PathFacts>,
    left_out: HashSet<RelPath>,
}

/// The two trees between which a checkout moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckoutMove<'a> {
    pub(super) from: &'a Oid,
    pub(super) to: &'a Oid,
    /// Where the two differ.
    pub(super) changed: &'a [ChangedPath],
}

/// Observes a work tree. `None` when its folder is gone and the work tree is not locked.
pub(super) fn observe(
    repository: &LandingRepository,
    objects: &mut ObjectReader,
    worktree: &Worktree,
    way: &CheckoutMove<'_>,
) -> Result<Option<(CheckoutFacts, Option<Checkout>)>, Error> {
    let Some(root) = worktree.root.clone() else {
        let facts = CheckoutFacts { root: worktree.git.clone(), condition: CheckoutCondition::Homeless };
        return Ok(Some((facts, None)));
    };
    let condition = match worktree.operation() {
        _ if !worktree.is_there() && worktree.locked => CheckoutCondition::Away,
        _ if !worktree.is_there() => return Ok(None),
        Some(operation) => CheckoutCondition::Operation(operation),
        None if index::is_locked(&worktree.git) => CheckoutCondition::Locked,
        None => match Checkout::open(repository, objects, worktree, &root, way)? {
            Some(checkout) => {
                let condition = CheckoutCondition::Files(checkout.paths.clone());
                return Ok(Some((CheckoutFacts { root, condition }, Some(checkout))));
            }
            None => CheckoutCondition::Empty,
        },
    };
    Ok(Some((CheckoutFacts { root, condition }, None)))
}

impl Checkout {
    /// Compares every path that changes. `None` where nothing is checked out.
    pub(super) fn open(
        repository: &LandingRepository,
        objects: &mut ObjectReader,
        worktree: &Worktree,
        root: &Path,
        way: &CheckoutMove<'_>,
    ) -> Result<Option<Self>, Error> {
        let live = path_content::open_folder(root).map_err(files("open", root))?;
        // Taken before the first comparison: a file that is written later has a younger time, and is noticed when files
        // are placed.
        let started = FileClockTime::now(live.as_fd()).map_err(files("write in", root))?;
        let bench = CheckoutStaging::new(repository, worktree)?;
        let Some(stamp) = index::copy(&bench, &worktree.git)? else { return Ok(None) };
        let listing = IndexListing::read(&bench, way.changed)?;
        let mut checkout = Self {
            root: root.to_owned(),
            worktree: worktree.clone(),
            head: worktree.head(),
            live,
            bench,
            stamp,
            started,
            from: way.from.clone(),
            to: way.to.clone(),
            changed: way.changed.to_vec(),
            paths: Vec::new(),
            left_out: HashSet::new(),
        };
        checkout.look(objects, way, &listing)?;
        Ok(Some(checkout))
    }

    fn look(
        &mut self,
        objects: &mut ObjectReader,
        way: &CheckoutMove<'_>,
        listing: &IndexListing,
    ) -> Result<(), Error> {
        let (old, new) = (side(way.changed, |one| &one.old), side(way.changed, |one| &one.new));
        let filters = self.bench.make(objects, "old", way.from, &old)?;
        let mut filters: HashMap<RelPath, String> = filters.into_iter().collect();
        filters.extend(self.bench.make(objects, "new", way.to, &new)?);
        let added = way.changed.iter().filter(|one| one.old.is_none());
        let added = added.filter_map(|one| Some((&one.path, one.new.as_ref()?))).collect();
        let mut left_out = self.bench.left_out(&added)?;
        left_out
            .extend(way.changed.iter().map(|one| one.path.clone()).filter(|path| listing.is_skipped(path)));
        let made = ["old", "new"].map(|name| {
            let path = self.bench.path(name);
            path_content::open_folder(&path).map_err(files("open", &path))
        });
        let [made_old, made_new] = made;
        let sight =
            CheckoutComparison { checkout: self, old: made_old?, new: made_new?, left_out: &left_out };
        let mut paths = Vec::new();
        for one in way.changed {
            let filter = filters.remove(&one.path);
            let file = sight.file(one).unwrap_or_else(|error| FileAt::Unreadable(error.to_string()));
            paths.push(PathFacts { path: one.path.clone(), index: listing.at(one), file, filter });
        }
        self.paths = paths;
        self.left_out = left_out;
        Ok(())
    }

    pub(super) fn checkout_move(&self) -> CheckoutMove<'_> {
        CheckoutMove { from: &self.from, to: &self.to, changed: &self.changed }
    }

    /// The files that already have their new content.
    pub(super) fn already_in_place(&self) -> Vec<RelPath> {
        let there = self.paths.iter().filter(|facts| facts.file == FileAt::To);
        there.map(|facts| facts.path.clone()).collect()
    }

    /// The paths whose staged entry is already the new one.
    pub(super) fn already_staged(&self) -> Vec<RelPath> {
        let there = self.paths.iter().filter(|facts| facts.index == IndexAt::To);
        there.map(|facts| facts.path.clone()).collect()
    }

    /// The files that have neither their old nor their new content.
    pub(super) fn changed_by_person(&self) -> Vec<RelPath> {
        let edited = |facts: &&PathFacts| !matches!(facts.file, FileAt::From | FileAt::To | FileAt::LeftOut);
        self.paths.iter().filter(edited).map(|facts| facts.path.clone()).collect()
    }

    /// Writes the next index beside the present one. Every path whose entry is the old one gets the new one, except
    /// some.
    pub(super) fn next_index(&self, except: &HashSet<RelPath>) -> Result<NextIndex, Error> {
        let wanted = |facts: &PathFacts| facts.index == IndexAt::From && !except.contains(&facts.path);
        let moves: Vec<&ChangedPath> = self.at_start(wanted).collect();
        let bytes = index::rewrite(&self.bench, &moves, &self.left_out)?;
        NextIndex::write(&self.worktree.git, &bytes)
    }

    /// Whether the work tree is still on the same branch, and its index is still the one that was copied.
    pub(super) fn is_unchanged(&self) -> Result<bool, Error> {
        Ok(self.worktree.head() == self.head
            && FileStamp::of(&self.worktree.git.join("index"))? == Some(self.stamp))
    }

    pub(super) fn is_on_its_branch(&self) -> bool {
        self.worktree.head() == self.head
    }

    /// Writes every file that has its old content, except some. All of them, or none; then it says why.
    pub(super) fn place(
        &self,
        repository: &LandingRepository,
        except: &HashSet<RelPath>,
        watch: &mut StepWatch<'_>,
    ) -> Result<Vec<Obstacle>, Error> {
        let failed = |source| Error::Apply { root: self.root.clone(), source };
        let upper = self.bench.path("new");
        let upper = path_content::open_folder(&upper).map_err(files("open", &upper))?;
        let mut changes = Vec::new();
        for one in self.at_start(|facts| facts.file == FileAt::From && !except.contains(&facts.path)) {
            let look = |root: &OwnedFd| {
                path_content::look(root.as_fd(), &one.path)
                    .map_err(|error| failed(apply_error(&one.path, error)))
            };
            let after = match one.new {
                Some(_) => look(&upper)?.entry(),
                None => None,
            };
            changes.push(HarvestChange { path: one.path.clone(), before: look(&self.live)?.entry(), after });
        }
        let desk = apply_folder(repository)?;
        let work = ApplyRequest {
            changes: &changes,
            upper: upper.as_fd(),
            live: self.live.as_fd(),
            started: self.started,
            journal: desk.as_fd(),
        };
        let applied = apply::apply_observed(&work, &mut |step| match watch
            .notify(LandStep::PlaceFiles, StepPoint::Within(step))
        {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        });
        match applied {
            Ok(()) => self.remove_empty_folders(&changes),
            Err(ApplyError::Stopped) => return Err(Error::Stopped),
            Err(ApplyError::Conflicts(conflicts)) => {
                return Ok(conflicts.into_iter().map(|conflict| self.obstacle(conflict)).collect());
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(Vec::new())
    }

    /// Removes folders that have lost their last file, as git does.
    fn remove_empty_folders(&self, changes: &[HarvestChange]) {
        let gone = changes.iter().filter(|change| change.after.is_none());
        for change in gone {
            let folders = change.path.ancestors().filter(|above| !above.is_root());
            for folder in folders {
                if path_content::remove_folder(self.live.as_fd(), &folder).is_err() {
                    break;
                }
            }
        }
    }

    fn at_start(&self, wanted: impl Fn(&PathFacts) -> bool) -> impl Iterator<Item = &ChangedPath> {
        self.changed.iter().zip(&self.paths).filter(move |(_, facts)| wanted(facts)).map(|(one, _)| one)
    }

    fn obstacle(&self, conflict: ApplyConflict) -> Obstacle {
        let path = conflict.path;
        let what = match conflict.reason {
            ConflictReason::Changed => ObstacleKind::Edited { path },
            ConflictReason::Gone => ObstacleKind::Deleted { path },
            ConflictReason::Appeared | ConflictReason::ParentReplaced | ConflictReason::DirectoryInUse => {
                ObstacleKind::Untracked { path }
            }
            ConflictReason::Repository => ObstacleKind::Repository { path },
            ConflictReason::Unreadable { error } => ObstacleKind::Unreadable { path, error },
        };
        Obstacle { root: self.root.clone(), what }
    }
}

/// The folder of ours from which files are moved into place, durably.
pub(super) fn apply_folder(repository: &LandingRepository) -> Result<OwnedFd, Error> {
    let path = repository.place.join("desk");
    repository.create_folder(&path)?;
    path_content::open_folder(&path).map_err(files("open", &path))
}

/// Empties the folder from which files are moved into place.
pub(super) fn clear_apply_folder(repository: &LandingRepository) -> Result<(), Error> {
    remove_tree(&repository.place.join("desk"))
}

fn apply_error(path: &RelPath, source: io::Error) -> ApplyError {
    ApplyError::Path { path: path.clone(), source }
}

/// The files and links of one side.
fn side<'a>(
    changed: &'a [ChangedPath],
    entry: impl Fn(&'a ChangedPath) -> &'a Option<super::tree_diff::GitTreeEntry>,
) -> StagedPaths<'a> {
    let all = changed.iter().filter_map(|one| Some((&one.path, entry(one).as_ref()?)));
    all.filter(|(_, entry)| entry.kind != GitTreeEntryKind::Submodule).collect()
}

/// Compares a work tree with the files that git would check out.
struct CheckoutComparison<'a> {
    checkout: &'a Checkout,
    old: OwnedFd,
    new: OwnedFd,
    left_out: &'a HashSet<RelPath>,
}

impl CheckoutComparison<'_> {
    fn file(&self, one: &ChangedPath) -> io::Result<FileAt> {
        let found = path_content::look(self.checkout.live.as_fd(), &one.path)?;
        if self.left_out.contains(&one.path) {
            return Ok(match (&found, &one.old) {
                (PathContent::Nothing, _) => FileAt::LeftOut,
                (_, None) => FileAt::Untracked,
                _ => FileAt::Hidden,
            });
        }
        if self.is(one, &found, one.new.is_some(), &self.new, |other| other.new.is_some())? {
            return Ok(FileAt::To);
        }
        if self.is(one, &found, one.old.is_some(), &self.old, |other| other.old.is_some())? {
            return Ok(FileAt::From);
        }
        Ok(match (&found, &one.old) {
            (PathContent::Nothing, _) => FileAt::Deleted,
            (_, None) | (PathContent::Blocked(_), _) => FileAt::Untracked,
            _ => FileAt::Edited,
        })
    }

    /// Whether a path is as one side has it. Where that side has no entry, the work tree may have a folder, or a file
    /// above the path that this side has: then a file replaces a folder, or a folder a file.
    fn is(
        &self,
        one: &ChangedPath,
        found: &PathContent,
        expected: bool,
        made: &OwnedFd,
        has: impl Fn(&ChangedPath) -> bool,
    ) -> io::Result<bool> {
        if expected {
            let modes = !self.checkout.bench.settings.is_off("core.filemode");
            return path_content::is_same(
                &one.path,
                (self.checkout.live.as_fd(), found),
                made.as_fd(),
                modes,
            );
        }
        Ok(match found {
            PathContent::Nothing | PathContent::Folder => true,
            PathContent::Blocked(above) => {
                self.checkout.changed.iter().any(|other| other.path == *above && has(other))
            }
            PathContent::File { .. } | PathContent::Link(_) | PathContent::Special => false,
        })
    }
}
