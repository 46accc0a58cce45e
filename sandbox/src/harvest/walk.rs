//! The walk over an upper layer.
//!
//! Directories wait in a list, not on the stack, and each is opened, read and closed before the next: depth
//! costs neither stack nor descriptors. One that waits is its name and the path it shares with its siblings, so
//! that memory grows with names and not with paths. The base is looked at only under the names the upper layer
//! holds, and below directories that were replaced or removed; ten changes in a large repository cost ten look-ups.
//!
//! A file with several names in the upper layer is treated as one file per name. That is safe: a hard link
//! can't be made across mounts, so every other name of it lies in this same upper layer, contents are copied
//! and never linked from here on, and each name is judged by itself.

use std::collections::HashSet;
use std::fs::File;
use std::io::Seek;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::Stat;
use rustix::io::Errno;

use super::base::{Directory, Lower};
use super::secret::Search;
use super::tree::{self, Kind, PATH_MAX};
use super::violation::{Reason, Violation, Warning};
use super::{Base, Change, Entry, Harvest, Rules, Shape, control, judge, names};
use crate::path::RelPath;

/// A limit was reached: it is recorded, and nothing more is looked at.
struct Full;

/// A directory that waits for its turn.
struct Waiting {
    parent: Rc<RelPath>,
    /// Empty for the root.
    name: Box<[u8]>,
    /// The layers of the base that are seen in it.
    layers: Vec<usize>,
    what: What,
}

enum What {
    /// One of the upper layer; whether it stands in the place of the base's completely, instead of being merged.
    Upper { replaces: bool },
    /// One of the base, of which nothing is left.
    Gone,
}

impl Waiting {
    fn path(&self) -> RelPath {
        if self.name.is_empty() { RelPath::clone(&self.parent) } else { self.parent.join(&self.name) }
    }
}

pub(super) fn walk(upper: BorrowedFd<'_>, base: &Base, rules: &Rules<'_>) -> Harvest {
    let root = Waiting {
        parent: Rc::default(),
        name: Box::default(),
        layers: base.all(),
        what: What::Upper { replaces: false },
    };
    let mut walker = Walker {
        upper,
        base,
        rules,
        search: Search::new(rules.secrets),
        waiting: vec![root],
        harvest: Harvest::default(),
        repositories: HashSet::new(),
        names: 0,
        name_bytes: 0,
        path_bytes: 0,
        bytes: 0,
    };
    while let Some(next) = walker.waiting.pop() {
        let path = Rc::new(next.path());
        let outcome = walker.path_bytes(&path).and_then(|()| match next.what {
            What::Upper { replaces } => walker.upper_directory(path, &next.layers, replaces),
            What::Gone => walker.gone_directory(&path, &next.layers),
        });
        if let Err(Full) = outcome {
            break;
        }
    }
    walker.refuse_repositories();
    walker.harvest
}

struct Walker<'a> {
    upper: BorrowedFd<'a>,
    base: &'a Base,
    rules: &'a Rules<'a>,
    search: Search<'a>,
    waiting: Vec<Waiting>,
    harvest: Harvest,
    /// Directories that git takes for a repository, before or after.
    repositories: HashSet<RelPath>,
    names: usize,
    name_bytes: usize,
    path_bytes: usize,
    bytes: u64,
}

/// The directory of the upper layer being read.
struct Here {
    path: Rc<RelPath>,
    held: OwnedFd,
    lower: Directory,
    replaces: bool,
}

impl Walker<'_> {
    fn upper_directory(&mut self, path: Rc<RelPath>, layers: &[usize], replaces: bool) -> Result<(), Full> {
        let limits = self.rules.limits;
        let opened = tree::unlock_directory(self.upper, &path).and_then(|held| {
            let marks = tree::marks(held.as_fd())?;
            let names = self.list(held.as_fd())?;
            Ok((held, marks, names, self.base.at(&path, layers)?))
        });
        let (held, marks, names, lower) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.unreadable(&path, error),
        };
        if marks.elsewhere {
            return self.violate(&path, Reason::Overlay);
        }
        if self.names > limits.names {
            return self.too_many(limits.names);
        }
        if self.name_bytes > limits.path_bytes {
            return self.too_many_bytes();
        }
        let here = Here { path, held, lower, replaces: replaces || marks.opaque };
        match here.is_repository(&names) {
            Ok(true) => drop(self.repositories.insert(RelPath::clone(&here.path))),
            Ok(false) => {}
            Err(error) => return self.unreadable(&here.path, error),
        }
        for name in &names {
            if here.path.as_bytes().len() + 1 + name.len() > PATH_MAX {
                return self.violate(&here.path, Reason::TooLong { limit: PATH_MAX });
            }
            self.child(&here, name)?;
        }
        if here.replaces && !layers.is_empty() {
            let kept: HashSet<&[u8]> = names.iter().map(|name| &**name).collect();
            match here.lower.names() {
                Ok(names) => {
                    for name in names.iter().filter(|name| !kept.contains(&***name)) {
                        self.gone(&here.path, &here.lower, name)?;
                    }
                }
                Err(error) => return self.unreadable(&here.path, error),
            }
        }
        Ok(())
    }

    /// The names in a directory, as many as there is room for and one more.
    fn list(&mut self, held: BorrowedFd<'_>) -> Result<Vec<Box<[u8]>>, Errno> {
        let limits = self.rules.limits;
        let mut names = Vec::new();
        tree::each_name(held, |name, _| {
            self.names += 1;
            self.name_bytes += name.len();
            names.push(name.into());
            match self.names > limits.names || self.name_bytes > limits.path_bytes {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        Ok(names)
    }

    /// A directory of the base that is not there any more, with all it held.
    fn gone_directory(&mut self, path: &Rc<RelPath>, layers: &[usize]) -> Result<(), Full> {
        let opened = self
            .base
            .at(path, layers)
            .and_then(|lower| Ok((lower.names()?, lower.shape(|_| false)?.is_repository(), lower)));
        let (names, is_repository, lower) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.unreadable(path, error),
        };
        if is_repository {
            self.repositories.insert(RelPath::clone(path));
        }
        names.iter().try_for_each(|name| self.gone(path, &lower, name))
    }

    /// Whatever the base has under a name is gone.
    fn gone(&mut self, parent: &Rc<RelPath>, lower: &Directory, name: &[u8]) -> Result<(), Full> {
        if is_own_git(self.rules, parent, name) {
            return Ok(());
        }
        let path = parent.join(name);
        match lower.child(name) {
            Ok(Lower::Nothing) => Ok(()),
            Ok(Lower::Directory(layers)) => self.gone_below(parent, path, layers),
            Ok(Lower::Leaf { layer, stat }) => self.gone_leaf(path, lower, layer, &stat),
            Err(error) => self.unreadable(&path, error),
        }
    }

    fn gone_below(&mut self, parent: &Rc<RelPath>, path: RelPath, layers: Vec<usize>) -> Result<(), Full> {
        if self.is_scratch(&path, true) {
            return Ok(());
        }
        if names::is_dot_git(path.name()) {
            return self.violate(&path, Reason::NestedGit);
        }
        let name = path.name().into();
        self.waiting.push(Waiting { parent: Rc::clone(parent), name, layers, what: What::Gone });
        Ok(())
    }

    fn gone_leaf(&mut self, path: RelPath, lower: &Directory, layer: usize, stat: &Stat) -> Result<(), Full> {
        if self.is_scratch(&path, false) {
            return Ok(());
        }
        if names::is_dot_git(path.name()) {
            return self.violate(&path, Reason::NestedGit);
        }
        match lower.entry(path.name(), layer, stat) {
            Ok(None) => Ok(()),
            Ok(before) => match self.judge(&path) {
                Some(reason) => self.violate(&path, reason),
                None => self.change(Change { path, before, after: None }),
            },
            Err(error) => self.unreadable(&path, error),
        }
    }

    /// One name of the upper layer.
    fn child(&mut self, here: &Here, name: &[u8]) -> Result<(), Full> {
        if is_own_git(self.rules, &here.path, name) {
            return Ok(());
        }
        let path = here.path.join(name);
        let looked = tree::look(here.held.as_fd(), name)
            .and_then(|stat| Ok((stat.ok_or(Errno::NOENT)?, here.lower.child(name)?)));
        let (stat, lower) = match looked {
            Ok(looked) => looked,
            Err(error) => return self.unreadable(&path, error),
        };
        let kind = tree::kind(&stat);
        if kind == Kind::Whiteout {
            return self.gone(&here.path, &here.lower, name);
        }
        // What the base has here in another shape is gone, whether the new shape counts or not.
        match &lower {
            Lower::Leaf { layer, stat } if kind == Kind::Directory => {
                self.gone_leaf(path.clone(), &here.lower, *layer, stat)?;
            }
            Lower::Directory(layers) if kind != Kind::Directory => {
                self.gone_below(&here.path, path.clone(), layers.clone())?;
            }
            _ => {}
        }
        if self.is_scratch(&path, kind == Kind::Directory) {
            return Ok(());
        }
        if names::is_dot_git(name) {
            return self.violate(&path, Reason::NestedGit);
        }
        let is_cache = matches!(kind, Kind::Directory | Kind::File)
            && matches!(lower, Lower::Nothing)
            && control::is_cache(name, kind == Kind::Directory)
            && !control::is_spelled(self.rules.scope, &path);
        if is_cache {
            return self.drop_cache(path);
        }
        match kind {
            Kind::Directory => {
                let limit = self.rules.limits.depth;
                if path.components().count() > limit {
                    return self.violate(&path, Reason::TooDeep { limit });
                }
                let layers = match lower {
                    Lower::Directory(layers) => layers,
                    Lower::Leaf { .. } | Lower::Nothing => Vec::new(),
                };
                let what = What::Upper { replaces: here.replaces };
                self.waiting.push(Waiting { parent: Rc::clone(&here.path), name: name.into(), layers, what });
                Ok(())
            }
            Kind::File => self.file(here, path, &lower),
            Kind::Symlink => self.link(here, path, &lower),
            Kind::Fifo => self.violate(&path, Reason::Fifo),
            Kind::Socket => self.violate(&path, Reason::Socket),
            Kind::Device | Kind::Whiteout => self.violate(&path, Reason::Device),
        }
    }

    fn file(&mut self, here: &Here, path: RelPath, lower: &Lower) -> Result<(), Full> {
        let opened = tree::unlock_file(here.held.as_fd(), &RelPath::root().join(path.name()))
            .and_then(|(file, stat)| Ok((tree::marks(file.as_fd())?, file, stat)));
        let (marks, mut file, stat) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.unreadable(&path, error),
        };
        if marks.whiteout && stat.st_size == 0 {
            return match lower {
                Lower::Leaf { layer, stat } => self.gone_leaf(path, &here.lower, *layer, stat),
                Lower::Nothing | Lower::Directory(_) => Ok(()),
            };
        }
        if marks.elsewhere {
            return self.violate(&path, Reason::Overlay);
        }
        let compared = compare(here, &path, lower, &file, &stat);
        let Compared { before, base_mode, base_capability, same } = match compared {
            Ok(compared) => compared,
            Err(error) => return self.unreadable(&path, error),
        };
        // Git keeps neither, but the file may be used from where it lies. What the base had is not the agent's.
        if stat.st_mode & 0o6000 & !base_mode != 0 {
            return self.violate(&path, Reason::SetId);
        }
        if marks.capability && !base_capability {
            return self.violate(&path, Reason::Capabilities);
        }
        if same {
            return Ok(());
        }
        if let Some(reason) = self.judge(&path) {
            return self.violate(&path, reason);
        }
        let size = tree::size(&stat);
        let limits = self.rules.limits;
        if size > limits.file_size {
            return self.violate(&path, Reason::TooLarge { size, limit: limits.file_size });
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > limits.total_size {
            self.violate(&path, Reason::TooMuch { limit: limits.total_size })?;
            return Err(Full);
        }
        match file.rewind().and_then(|()| self.search.file(&mut file, size)) {
            Ok(None) => {}
            Ok(Some(name)) => return self.violate(&path, Reason::Secret { name: name.to_owned() }),
            Err(error) => return self.unreadable(&path, error),
        }
        let after = Some(Entry::File { executable: tree::is_executable(&stat), size });
        self.change(Change { path, before, after })
    }

    fn link(&mut self, here: &Here, path: RelPath, lower: &Lower) -> Result<(), Full> {
        let read = tree::read_link(here.held.as_fd(), path.name()).and_then(|target| {
            let before = match lower {
                Lower::Leaf { layer, stat } => here.lower.entry(path.name(), *layer, stat)?,
                Lower::Nothing | Lower::Directory(_) => None,
            };
            Ok((target, before))
        });
        let (target, before) = match read {
            Ok(read) => read,
            Err(error) => return self.unreadable(&path, error),
        };
        let after = Some(Entry::Symlink { target: target.clone() });
        if before == after {
            return Ok(());
        }
        if let Some(name) = self.search.bytes(&target) {
            return self.violate(&path, Reason::Secret { name: name.to_owned() });
        }
        if let Some(reason) = self.judge(&path) {
            return self.violate(&path, reason);
        }
        if let Some(reason) = judge::target(&path, &target) {
            return self.violate(&path, reason);
        }
        self.change(Change { path, before, after })
    }

    /// Why a changed path may not change, by its name alone.
    fn judge(&self, path: &RelPath) -> Option<Reason> {
        if self.rules.hidden.iter().any(|hidden| path.is_within(hidden)) {
            return Some(Reason::Hidden);
        }
        judge::path(self.rules.scope, path)
    }

    fn is_scratch(&mut self, path: &RelPath, directory: bool) -> bool {
        let scratch = (self.rules.scratch)(path, directory);
        self.harvest.scratch += u64::from(scratch);
        scratch
    }

    /// The cache of a tool is nobody's work: it is left out, and a person is told.
    fn drop_cache(&mut self, path: RelPath) -> Result<(), Full> {
        self.path_bytes(&path)?;
        let path =
            if self.search.bytes(path.as_bytes()).is_some() { self.without_secret(&path) } else { path };
        self.harvest.warnings.push(Warning::Dropped { path });
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

    fn change(&mut self, change: Change) -> Result<(), Full> {
        if change.after.is_some() && self.search.bytes(change.path.as_bytes()).is_some() {
            // `violate` finds the name of the secret again, and a path that may be shown.
            return self.violate(&change.path, Reason::OutOfScope);
        }
        self.path_bytes(&change.path)?;
        self.harvest.changes.push(change);
        self.count()
    }

    /// Records a violation, but no name that holds a secret.
    fn violate(&mut self, path: &RelPath, reason: Reason) -> Result<(), Full> {
        let violation = match self.search.bytes(path.as_bytes()) {
            None => Violation { path: path.clone(), reason },
            Some(name) => Violation {
                path: self.without_secret(path),
                reason: Reason::SecretInName { name: name.to_owned() },
            },
        };
        self.harvest.refuse(violation, self.rules.limits.listed);
        self.count()
    }

    /// Refuses every change in a directory that git takes for a repository, once for each such directory.
    fn refuse_repositories(&mut self) {
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
            let _ = self.violate(&path, Reason::Repository);
        }
    }

    fn unreadable(&mut self, path: &RelPath, error: impl Into<std::io::Error>) -> Result<(), Full> {
        self.violate(path, Reason::Unreadable { error: error.into().to_string() })
    }

    /// Counts the bytes of a path that is kept or put together.
    fn path_bytes(&mut self, path: &RelPath) -> Result<(), Full> {
        self.path_bytes += path.as_bytes().len();
        match self.path_bytes > self.rules.limits.path_bytes {
            true => self.too_many_bytes(),
            false => Ok(()),
        }
    }

    fn count(&mut self) -> Result<(), Full> {
        let limit = self.rules.limits.changes;
        let Harvest { changes, violations, violations_left_out, .. } = &self.harvest;
        match changes.len() + violations.len() + violations_left_out > limit {
            true => self.too_many(limit),
            false => Ok(()),
        }
    }

    fn too_many(&mut self, limit: usize) -> Result<(), Full> {
        self.give_up(Reason::TooMany { limit })
    }

    fn too_many_bytes(&mut self) -> Result<(), Full> {
        self.give_up(Reason::TooManyBytes { limit: self.rules.limits.path_bytes })
    }

    /// About the whole, so the first that is listed.
    fn give_up(&mut self, reason: Reason) -> Result<(), Full> {
        let violation = Violation { path: RelPath::root(), reason };
        self.harvest.refuse(violation, self.rules.limits.listed);
        Err(Full)
    }
}

impl Here {
    /// Whether git took this directory for a repository before, or would after. What is in it does not matter: that
    /// may come later.
    fn is_repository(&self, names: &[Box<[u8]>]) -> Result<bool, Errno> {
        if self.lower.shape(|_| false)?.is_repository() {
            return Ok(true);
        }
        let parts: Vec<&[u8]> =
            names.iter().map(|name| &**name).filter(|name| Shape::has_part(name)).collect();
        let mut shape = match self.replaces {
            true => Shape::default(),
            false => self.lower.shape(|name| parts.contains(&name))?,
        };
        for name in parts {
            let stat = tree::look(self.held.as_fd(), name)?;
            if stat.is_some_and(|stat| tree::kind(&stat) != Kind::Whiteout) {
                shape.add(name);
            }
        }
        Ok(shape.is_repository())
    }
}

/// The workspace's own `.git` is private to the attempt and thrown away with it.
fn is_own_git(rules: &Rules<'_>, parent: &RelPath, name: &[u8]) -> bool {
    rules.repository && parent.is_root() && name == b".git"
}

/// What the base has where the upper layer has a file.
struct Compared {
    before: Option<Entry>,
    base_mode: u32,
    base_capability: bool,
    same: bool,
}

fn compare(
    here: &Here,
    path: &RelPath,
    lower: &Lower,
    file: &File,
    stat: &Stat,
) -> std::io::Result<Compared> {
    let mut compared = Compared { before: None, base_mode: 0, base_capability: false, same: false };
    let Lower::Leaf { layer, stat: base } = lower else { return Ok(compared) };
    compared.before = here.lower.entry(path.name(), *layer, base)?;
    if tree::kind(base) != Kind::File {
        return Ok(compared);
    }
    compared.base_mode = base.st_mode;
    let opened = here.lower.open(path.name(), *layer)?;
    compared.base_capability = tree::marks(opened.0.as_fd())?.capability;
    let same_mode = tree::is_executable(base) == tree::is_executable(stat);
    compared.same = same_mode && tree::same_content((file.try_clone()?, *stat), opened)?;
    Ok(compared)
}
