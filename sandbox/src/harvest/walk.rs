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

use super::base::{BaseDirectory, BaseEntry};
use super::record::{HarvestRecord, LimitReached};
use super::tree::{self, NodeKind, PATH_MAX};
use super::{
    BaseLayers, Harvest, HarvestChange, HarvestEntry, HarvestRules, RepositoryShape, ViolationReason, judge,
    name_folding, protected,
};
use crate::path::RelPath;

/// A directory that waits for its turn.
struct PendingDirectory {
    parent: Rc<RelPath>,
    /// Empty for the root.
    name: Box<[u8]>,
    /// The layers of the base that are seen in it.
    layers: Vec<usize>,
    what: DirectoryOrigin,
}

enum DirectoryOrigin {
    /// One of the upper layer; whether it stands in the place of the base's completely, instead of being merged.
    Upper { replaces: bool },
    /// One of the base, of which nothing is left.
    Gone,
}

impl PendingDirectory {
    fn path(&self) -> RelPath {
        if self.name.is_empty() { RelPath::clone(&self.parent) } else { self.parent.join(&self.name) }
    }
}

pub(super) fn walk(upper: BorrowedFd<'_>, base: &BaseLayers, rules: &HarvestRules<'_>) -> Harvest {
    let root = PendingDirectory {
        parent: Rc::default(),
        name: Box::default(),
        layers: base.all(),
        what: DirectoryOrigin::Upper { replaces: false },
    };
    let mut walker =
        UpperWalker { upper, base, rules, waiting: vec![root], record: HarvestRecord::new(rules) };
    while let Some(next) = walker.waiting.pop() {
        let path = Rc::new(next.path());
        let outcome = walker.record.count_path_bytes(&path).and_then(|()| match next.what {
            DirectoryOrigin::Upper { replaces } => walker.upper_directory(path, &next.layers, replaces),
            DirectoryOrigin::Gone => walker.gone_directory(&path, &next.layers),
        });
        if let Err(LimitReached) = outcome {
            break;
        }
    }
    walker.record.refuse_repositories();
    walker.record.harvest
}

struct UpperWalker<'a> {
    upper: BorrowedFd<'a>,
    base: &'a BaseLayers,
    rules: &'a HarvestRules<'a>,
    waiting: Vec<PendingDirectory>,
    record: HarvestRecord<'a>,
}

/// The directory of the upper layer being read.
struct CurrentDirectory {
    path: Rc<RelPath>,
    held: OwnedFd,
    lower: BaseDirectory,
    replaces: bool,
}

impl UpperWalker<'_> {
    fn upper_directory(
        &mut self,
        path: Rc<RelPath>,
        layers: &[usize],
        replaces: bool,
    ) -> Result<(), LimitReached> {
        let opened = tree::unlock_directory(self.upper, &path).and_then(|held| {
            let marks = tree::marks(held.as_fd())?;
            let names = self.list(held.as_fd())?;
            Ok((held, marks, names, self.base.at(&path, layers)?))
        });
        let (held, marks, names, lower) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.record.unreadable(&path, error),
        };
        if marks.elsewhere {
            return self.record.add_violation(&path, ViolationReason::Overlay);
        }
        self.record.check_names()?;
        let here = CurrentDirectory { path, held, lower, replaces: replaces || marks.opaque };
        match here.is_repository(&names) {
            Ok(true) => drop(self.record.repositories.insert(RelPath::clone(&here.path))),
            Ok(false) => {}
            Err(error) => return self.record.unreadable(&here.path, error),
        }
        for name in &names {
            if here.path.as_bytes().len() + 1 + name.len() > PATH_MAX {
                return self.record.add_violation(&here.path, ViolationReason::TooLong { limit: PATH_MAX });
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
                Err(error) => return self.record.unreadable(&here.path, error),
            }
        }
        Ok(())
    }

    /// The names in a directory, as many as there is room for and one more.
    fn list(&mut self, held: BorrowedFd<'_>) -> Result<Vec<Box<[u8]>>, Errno> {
        let mut names = Vec::new();
        tree::each_name(held, |name, _| {
            names.push(name.into());
            if self.record.count_name(name) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(names)
    }

    /// A directory of the base that is not there any more, with all it held.
    fn gone_directory(&mut self, path: &Rc<RelPath>, layers: &[usize]) -> Result<(), LimitReached> {
        let opened = self
            .base
            .at(path, layers)
            .and_then(|lower| Ok((lower.names()?, lower.shape(|_| false)?.is_repository(), lower)));
        let (names, is_repository, lower) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.record.unreadable(path, error),
        };
        if is_repository {
            self.record.repositories.insert(RelPath::clone(path));
        }
        names.iter().try_for_each(|name| self.gone(path, &lower, name))
    }

    /// Records that all the base has under a name is gone.
    fn gone(&mut self, parent: &Rc<RelPath>, lower: &BaseDirectory, name: &[u8]) -> Result<(), LimitReached> {
        if is_own_git(self.rules, parent, name) {
            return Ok(());
        }
        let path = parent.join(name);
        match lower.child(name) {
            Ok(BaseEntry::Nothing) => Ok(()),
            Ok(BaseEntry::Directory(layers)) => self.gone_below(parent, path, layers),
            Ok(BaseEntry::Leaf { layer, stat }) => self.gone_leaf(path, lower, layer, &stat),
            Err(error) => self.record.unreadable(&path, error),
        }
    }

    fn gone_below(
        &mut self,
        parent: &Rc<RelPath>,
        path: RelPath,
        layers: Vec<usize>,
    ) -> Result<(), LimitReached> {
        if self.is_scratch(&path, true) {
            return Ok(());
        }
        if name_folding::is_dot_git(path.name()) {
            return self.record.add_violation(&path, ViolationReason::NestedGit);
        }
        let name = path.name().into();
        self.waiting.push(PendingDirectory {
            parent: Rc::clone(parent),
            name,
            layers,
            what: DirectoryOrigin::Gone,
        });
        Ok(())
    }

    fn gone_leaf(
        &mut self,
        path: RelPath,
        lower: &BaseDirectory,
        layer: usize,
        stat: &Stat,
    ) -> Result<(), LimitReached> {
        if self.is_scratch(&path, false) {
            return Ok(());
        }
        if name_folding::is_dot_git(path.name()) {
            return self.record.add_violation(&path, ViolationReason::NestedGit);
        }
        match lower.entry(path.name(), layer, stat) {
            Ok(None) => Ok(()),
            Ok(before) => match self.judge(&path) {
                Some(reason) => self.record.add_violation(&path, reason),
                None => self.record.change(HarvestChange { path, before, after: None }),
            },
            Err(error) => self.record.unreadable(&path, error),
        }
    }

    /// One name of the upper layer.
    fn child(&mut self, here: &CurrentDirectory, name: &[u8]) -> Result<(), LimitReached> {
        if is_own_git(self.rules, &here.path, name) {
            return Ok(());
        }
        let path = here.path.join(name);
        let looked = tree::inspect(here.held.as_fd(), name)
            .and_then(|stat| Ok((stat.ok_or(Errno::NOENT)?, here.lower.child(name)?)));
        let (stat, lower) = match looked {
            Ok(looked) => looked,
            Err(error) => return self.record.unreadable(&path, error),
        };
        let kind = tree::kind(&stat);
        if kind == NodeKind::Whiteout {
            return self.gone(&here.path, &here.lower, name);
        }
        // What the base has here in another shape is gone, whether the new shape counts or not.
        match &lower {
            BaseEntry::Leaf { layer, stat } if kind == NodeKind::Directory => {
                self.gone_leaf(path.clone(), &here.lower, *layer, stat)?;
            }
            BaseEntry::Directory(layers) if kind != NodeKind::Directory => {
                self.gone_below(&here.path, path.clone(), layers.clone())?;
            }
            _ => {}
        }
        if self.is_scratch(&path, kind == NodeKind::Directory) {
            return Ok(());
        }
        if name_folding::is_dot_git(name) {
            return self.record.add_violation(&path, ViolationReason::NestedGit);
        }
        let is_cache = matches!(kind, NodeKind::Directory | NodeKind::File)
            && matches!(lower, BaseEntry::Nothing)
            && protected::is_cache(name, kind == NodeKind::Directory)
            && !protected::is_named_explicitly(self.rules.scope, &path);
        if is_cache {
            return self.record.drop_cache(path);
        }
        match kind {
            NodeKind::Directory => {
                let limit = self.rules.limits.depth;
                if path.components().count() > limit {
                    return self.record.add_violation(&path, ViolationReason::TooDeep { limit });
                }
                let layers = match lower {
                    BaseEntry::Directory(layers) => layers,
                    BaseEntry::Leaf { .. } | BaseEntry::Nothing => Vec::new(),
                };
                let what = DirectoryOrigin::Upper { replaces: here.replaces };
                self.waiting.push(PendingDirectory {
                    parent: Rc::clone(&here.path),
                    name: name.into(),
                    layers,
                    what,
                });
                Ok(())
            }
            NodeKind::File => self.file(here, path, &lower),
            NodeKind::Symlink => self.link(here, path, &lower),
            NodeKind::Fifo => self.record.add_violation(&path, ViolationReason::Fifo),
            NodeKind::Socket => self.record.add_violation(&path, ViolationReason::Socket),
            NodeKind::Device | NodeKind::Whiteout => {
                self.record.add_violation(&path, ViolationReason::Device)
            }
        }
    }

    fn file(
        &mut self,
        here: &CurrentDirectory,
        path: RelPath,
        lower: &BaseEntry,
    ) -> Result<(), LimitReached> {
        let opened = tree::unlock_file(here.held.as_fd(), &RelPath::root().join(path.name()))
            .and_then(|(file, stat)| Ok((tree::marks(file.as_fd())?, file, stat)));
        let (marks, mut file, stat) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.record.unreadable(&path, error),
        };
        if marks.whiteout && stat.st_size == 0 {
            return match lower {
                BaseEntry::Leaf { layer, stat } => self.gone_leaf(path, &here.lower, *layer, stat),
                BaseEntry::Nothing | BaseEntry::Directory(_) => Ok(()),
            };
        }
        if marks.elsewhere {
            return self.record.add_violation(&path, ViolationReason::Overlay);
        }
        let compared = compare(here, &path, lower, &file, &stat);
        let BaseComparison { before, base_mode, base_capability, same } = match compared {
            Ok(compared) => compared,
            Err(error) => return self.record.unreadable(&path, error),
        };
        // Git keeps neither, but the file may be used from where it lies. What the base had is not the agent's.
        if stat.st_mode & 0o6000 & !base_mode != 0 {
            return self.record.add_violation(&path, ViolationReason::SetId);
        }
        if marks.capability && !base_capability {
            return self.record.add_violation(&path, ViolationReason::Capabilities);
        }
        if same {
            return Ok(());
        }
        if let Some(reason) = self.judge(&path) {
            return self.record.add_violation(&path, reason);
        }
        let size = tree::size(&stat);
        let limit = self.rules.limits.file_size;
        if size > limit {
            return self.record.add_violation(&path, ViolationReason::TooLarge { size, limit });
        }
        self.record.count_content(&path, size)?;
        match file.rewind().and_then(|()| self.record.search.file(&mut file, size)) {
            Ok(None) => {}
            Ok(Some(name)) => {
                return self.record.add_violation(&path, ViolationReason::Secret { name: name.to_owned() });
            }
            Err(error) => return self.record.unreadable(&path, error),
        }
        let after = Some(HarvestEntry::File { executable: tree::is_executable(&stat), size });
        self.record.change(HarvestChange { path, before, after })
    }

    fn link(
        &mut self,
        here: &CurrentDirectory,
        path: RelPath,
        lower: &BaseEntry,
    ) -> Result<(), LimitReached> {
        let read = tree::read_link(here.held.as_fd(), path.name()).and_then(|target| {
            let before = match lower {
                BaseEntry::Leaf { layer, stat } => here.lower.entry(path.name(), *layer, stat)?,
                BaseEntry::Nothing | BaseEntry::Directory(_) => None,
            };
            Ok((target, before))
        });
        let (target, before) = match read {
            Ok(read) => read,
            Err(error) => return self.record.unreadable(&path, error),
        };
        let after = Some(HarvestEntry::Symlink { target: target.clone() });
        if before == after {
            return Ok(());
        }
        if let Some(name) = self.record.search.bytes(&target) {
            return self.record.add_violation(&path, ViolationReason::Secret { name: name.to_owned() });
        }
        if let Some(reason) = self.judge(&path) {
            return self.record.add_violation(&path, reason);
        }
        if let Some(reason) = judge::target(&path, &target) {
            return self.record.add_violation(&path, reason);
        }
        self.record.change(HarvestChange { path, before, after })
    }

    /// Why a changed path may not change, by its name alone.
    fn judge(&self, path: &RelPath) -> Option<ViolationReason> {
        if self.rules.hidden.iter().any(|hidden| path.is_within(hidden)) {
            return Some(ViolationReason::Hidden);
        }
        judge::path(self.rules.scope, path)
    }

    fn is_scratch(&mut self, path: &RelPath, directory: bool) -> bool {
        let scratch = (self.rules.scratch)(path, directory);
        self.record.harvest.scratch += u64::from(scratch);
        scratch
    }
}

impl CurrentDirectory {
    /// Whether git took this directory for a repository before, or would after. What is in it does not matter: that
    /// may come later.
    fn is_repository(&self, names: &[Box<[u8]>]) -> Result<bool, Errno> {
        if self.lower.shape(|_| false)?.is_repository() {
            return Ok(true);
        }
        let parts: Vec<&[u8]> =
            names.iter().map(|name| &**name).filter(|name| RepositoryShape::has_part(name)).collect();
        let mut shape = match self.replaces {
            true => RepositoryShape::default(),
            false => self.lower.shape(|name| parts.contains(&name))?,
        };
        for name in parts {
            let stat = tree::inspect(self.held.as_fd(), name)?;
            if stat.is_some_and(|stat| tree::kind(&stat) != NodeKind::Whiteout) {
                shape.add(name);
            }
        }
        Ok(shape.is_repository())
    }
}

/// The workspace's own `.git` is private to the attempt and thrown away with it.
fn is_own_git(rules: &HarvestRules<'_>, parent: &RelPath, name: &[u8]) -> bool {
    rules.repository && parent.is_root() && name == b".git"
}

/// What the base has where the upper layer has a file.
struct BaseComparison {
    before: Option<HarvestEntry>,
    base_mode: u32,
    base_capability: bool,
    same: bool,
}

fn compare(
    here: &CurrentDirectory,
    path: &RelPath,
    lower: &BaseEntry,
    file: &File,
    stat: &Stat,
) -> std::io::Result<BaseComparison> {
    let mut compared = BaseComparison { before: None, base_mode: 0, base_capability: false, same: false };
    let BaseEntry::Leaf { layer, stat: base } = lower else { return Ok(compared) };
    compared.before = here.lower.entry(path.name(), *layer, base)?;
    if tree::kind(base) != NodeKind::File {
        return Ok(compared);
    }
    compared.base_mode = base.st_mode;
    let opened = here.lower.open(path.name(), *layer)?;
    compared.base_capability = tree::marks(opened.0.as_fd())?.capability;
    let same_mode = tree::is_executable(base) == tree::is_executable(stat);
    compared.same = same_mode && tree::same_content((file.try_clone()?, *stat), opened)?;
    Ok(compared)
}
