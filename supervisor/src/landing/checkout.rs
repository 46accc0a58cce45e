//! A work tree that has the branch checked out: what is in it, and bringing it along.
//!
//! It is looked at from both ends at once, so that the same code takes it forward and back. A path is where it
//! was, where it goes, or a person's; only those of the first kind are touched.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use agency_sandbox::harvest::Change;
use agency_sandbox::harvest::apply::{self, Apply, ApplyError, Conflict, ConflictReason, Mark};
use agency_sandbox::path::RelPath;

use super::bench::{Bench, Entries};
use super::compare::{self, Found};
use super::difference::{Changed, Kind};
use super::error::{Error, files};
use super::index::{self, IndexAt, Listing, Next};
use super::names::Oid;
use super::objects::Objects;
use super::obstacle::{Obstacle, What};
use super::plan::{CheckoutFacts, Condition, FileAt, PathFacts};
use super::repository::{Repository, erase};
use super::stamp::Stamp;
use super::steps::{Step, Watch, When};
use super::worktree::{Head, Worktree};

/// A work tree, everything it needs, and what was seen in it.
#[derive(Debug)]
pub(super) struct Checkout {
    pub(super) root: PathBuf,
    pub(super) worktree: Worktree,
    head: Head,
    live: OwnedFd,
    bench: Bench,
    stamp: Stamp,
    started: Mark,
    from: Oid,
    to: Oid,
    changed: Vec<Changed>,
    paths: Vec<PathFacts>,
    left_out: HashSet<RelPath>,
}

/// The way a checkout goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) from: &'a Oid,
    pub(super) to: &'a Oid,
    /// Where the two differ.
    pub(super) changed: &'a [Changed],
}

/// Looks at a work tree. `None` when it is not there, and nobody said that it would come back.
pub(super) fn observe(
    repository: &Repository,
    objects: &mut Objects,
    worktree: &Worktree,
    way: &Way<'_>,
) -> Result<Option<(CheckoutFacts, Option<Checkout>)>, Error> {
    let Some(root) = worktree.root.clone() else {
        let facts = CheckoutFacts { root: worktree.git.clone(), condition: Condition::Homeless };
        return Ok(Some((facts, None)));
    };
    let condition = match worktree.operation() {
        _ if !worktree.is_there() && worktree.locked => Condition::Away,
        _ if !worktree.is_there() => return Ok(None),
        Some(operation) => Condition::Operation(operation),
        None if index::is_locked(&worktree.git) => Condition::Locked,
        None => match Checkout::open(repository, objects, worktree, &root, way)? {
            Some(checkout) => {
                let condition = Condition::Files(checkout.paths.clone());
                return Ok(Some((CheckoutFacts { root, condition }, Some(checkout))));
            }
            None => Condition::Empty,
        },
    };
    Ok(Some((CheckoutFacts { root, condition }, None)))
}

impl Checkout {
    /// Looks at every path that changes. `None` where nothing is checked out.
    pub(super) fn open(
        repository: &Repository,
        objects: &mut Objects,
        worktree: &Worktree,
        root: &Path,
        way: &Way<'_>,
    ) -> Result<Option<Self>, Error> {
        let live = compare::open_folder(root).map_err(files("open", root))?;
        // Taken before anything is compared: what is written later is younger, and seen when files are placed.
        let started = Mark::now(live.as_fd()).map_err(files("write in", root))?;
        let bench = Bench::new(repository, worktree)?;
        let Some(stamp) = index::copy(&bench, &worktree.git)? else { return Ok(None) };
        let listing = Listing::read(&bench, way.changed)?;
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

    fn look(&mut self, objects: &mut Objects, way: &Way<'_>, listing: &Listing) -> Result<(), Error> {
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
            compare::open_folder(&path).map_err(files("open", &path))
        });
        let [made_old, made_new] = made;
        let sight = Sight { checkout: self, old: made_old?, new: made_new?, left_out: &left_out };
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

    pub(super) fn way(&self) -> Way<'_> {
        Way { from: &self.from, to: &self.to, changed: &self.changed }
    }

    /// The files that are as they will be already.
    pub(super) fn left(&self) -> Vec<RelPath> {
        let there = self.paths.iter().filter(|facts| facts.file == FileAt::To);
        there.map(|facts| facts.path.clone()).collect()
    }

    /// What is staged as it will be already.
    pub(super) fn staged(&self) -> Vec<RelPath> {
        let there = self.paths.iter().filter(|facts| facts.index == IndexAt::To);
        there.map(|facts| facts.path.clone()).collect()
    }

    /// The files that are neither as they were nor as they will be.
    pub(super) fn theirs(&self) -> Vec<RelPath> {
        let edited = |facts: &&PathFacts| !matches!(facts.file, FileAt::From | FileAt::To | FileAt::LeftOut);
        self.paths.iter().filter(edited).map(|facts| facts.path.clone()).collect()
    }

    /// Writes the next index beside the one there is: every path that is where it was goes, except some.
    pub(super) fn next_index(&self, except: &HashSet<RelPath>) -> Result<Next, Error> {
        let wanted = |facts: &PathFacts| facts.index == IndexAt::From && !except.contains(&facts.path);
        let moves: Vec<&Changed> = self.at_start(wanted).collect();
        let bytes = index::rewrite(&self.bench, &moves, &self.left_out)?;
        Next::write(&self.worktree.git, &bytes)
    }

    /// Whether the work tree is on the same branch, and its index is the one that was copied.
    pub(super) fn is_as_seen(&self) -> Result<bool, Error> {
        Ok(self.worktree.head() == self.head
            && Stamp::of(&self.worktree.git.join("index"))? == Some(self.stamp))
    }

    pub(super) fn is_on_its_branch(&self) -> bool {
        self.worktree.head() == self.head
    }

    /// Puts every file in place that is where it was, except some. All of them, or none and why.
    pub(super) fn place(
        &self,
        repository: &Repository,
        except: &HashSet<RelPath>,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Obstacle>, Error> {
        let failed = |source| Error::Apply { root: self.root.clone(), source };
        let upper = self.bench.path("new");
        let upper = compare::open_folder(&upper).map_err(files("open", &upper))?;
        let mut changes = Vec::new();
        for one in self.at_start(|facts| facts.file == FileAt::From && !except.contains(&facts.path)) {
            let look = |root: &OwnedFd| {
                compare::look(root.as_fd(), &one.path).map_err(|error| failed(apply_error(&one.path, error)))
            };
            let after = match one.new {
                Some(_) => look(&upper)?.entry(),
                None => None,
            };
            changes.push(Change { path: one.path.clone(), before: look(&self.live)?.entry(), after });
        }
        let desk = desk(repository)?;
        let work = Apply {
            changes: &changes,
            upper: upper.as_fd(),
            live: self.live.as_fd(),
            started: self.started,
            journal: desk.as_fd(),
        };
        let applied = apply::apply_observed(&work, &mut |step| match watch
            .tell(Step::PlaceFiles, When::Within(step))
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

    /// A folder is not something git keeps: one that the last file left goes, as it does with git.
    fn remove_empty_folders(&self, changes: &[Change]) {
        let gone = changes.iter().filter(|change| change.after.is_none());
        for change in gone {
            let folders = change.path.ancestors().filter(|above| !above.is_root());
            for folder in folders {
                if compare::remove_folder(self.live.as_fd(), &folder).is_err() {
                    break;
                }
            }
        }
    }

    fn at_start(&self, wanted: impl Fn(&PathFacts) -> bool) -> impl Iterator<Item = &Changed> {
        self.changed.iter().zip(&self.paths).filter(move |(_, facts)| wanted(facts)).map(|(one, _)| one)
    }

    fn obstacle(&self, conflict: Conflict) -> Obstacle {
        let path = conflict.path;
        let what = match conflict.reason {
            ConflictReason::Changed => What::Edited { path },
            ConflictReason::Gone => What::Deleted { path },
            ConflictReason::Appeared | ConflictReason::ParentReplaced | ConflictReason::DirectoryInUse => {
                What::Untracked { path }
            }
            ConflictReason::Repository => What::Repository { path },
            ConflictReason::Unreadable { error } => What::Unreadable { path, error },
        };
        Obstacle { root: self.root.clone(), what }
    }
}

/// Where files are put in place from, durably.
pub(super) fn desk(repository: &Repository) -> Result<OwnedFd, Error> {
    let path = repository.place.join("desk");
    repository.folder(&path)?;
    compare::open_folder(&path).map_err(files("open", &path))
}

/// Forgets what was to be put in place.
pub(super) fn clear_desk(repository: &Repository) -> Result<(), Error> {
    erase(&repository.place.join("desk"))
}

fn apply_error(path: &RelPath, source: io::Error) -> ApplyError {
    ApplyError::Path { path: path.clone(), source }
}

/// The files and links of one side.
fn side<'a>(
    changed: &'a [Changed],
    entry: impl Fn(&'a Changed) -> &'a Option<super::difference::Entry>,
) -> Entries<'a> {
    let all = changed.iter().filter_map(|one| Some((&one.path, entry(one).as_ref()?)));
    all.filter(|(_, entry)| entry.kind != Kind::Submodule).collect()
}

/// A work tree beside what git would have put into it.
struct Sight<'a> {
    checkout: &'a Checkout,
    old: OwnedFd,
    new: OwnedFd,
    left_out: &'a HashSet<RelPath>,
}

impl Sight<'_> {
    fn file(&self, one: &Changed) -> io::Result<FileAt> {
        let found = compare::look(self.checkout.live.as_fd(), &one.path)?;
        if self.left_out.contains(&one.path) {
            return Ok(match (&found, &one.old) {
                (Found::Nothing, _) => FileAt::LeftOut,
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
            (Found::Nothing, _) => FileAt::Deleted,
            (_, None) | (Found::Blocked(_), _) => FileAt::Untracked,
            _ => FileAt::Edited,
        })
    }

    /// Whether a path is as one side has it. Where that has nothing, a folder may be, or a file above it that
    /// this side has: then a file takes the place of a folder, or a folder that of a file.
    fn is(
        &self,
        one: &Changed,
        found: &Found,
        expected: bool,
        made: &OwnedFd,
        has: impl Fn(&Changed) -> bool,
    ) -> io::Result<bool> {
        if expected {
            let modes = !self.checkout.bench.settings.is_off("core.filemode");
            return compare::is_same(&one.path, (self.checkout.live.as_fd(), found), made.as_fd(), modes);
        }
        Ok(match found {
            Found::Nothing | Found::Folder => true,
            Found::Blocked(above) => {
                self.checkout.changed.iter().any(|other| other.path == *above && has(other))
            }
            Found::File { .. } | Found::Link(_) | Found::Special => false,
        })
    }
}
