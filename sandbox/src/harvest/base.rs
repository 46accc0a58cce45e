//! What the agent started from: a stack of directories, the topmost first.
//!
//! The lowest is a plain tree. One above it is a difference in overlayfs's own format: a name it marks as
//! deleted hides the ones below, and so does an opaque directory. Looking something up here gives what the
//! agent saw before it changed anything.

use std::collections::HashSet;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::links::SymlinkMap;
use super::name_folding::is_dot_git;
use super::tree::{self, NodeKind};
use super::{HarvestEntry, RepositoryShape};
use crate::path::RelPath;

/// The lower layers of an overlay, top first.
#[derive(Debug)]
pub struct BaseLayers {
    layers: Vec<OwnedFd>,
}

/// What the base has under one name.
#[derive(Debug, Clone)]
pub(crate) enum BaseEntry {
    Nothing,
    /// A file, link or special file, and the layer it comes from.
    Leaf {
        layer: usize,
        stat: Stat,
    },
    /// A directory, and the layers whose contents are seen in it.
    Directory(Vec<usize>),
}

impl BaseLayers {
    /// The layers of the stack, topmost first, each an open directory.
    pub fn new(layers: Vec<OwnedFd>) -> Self {
        Self { layers }
    }

    /// The file or link at a path; `None` when there is nothing, or something git does not know, such as a
    /// directory.
    pub fn lookup(&self, path: &RelPath) -> std::io::Result<Option<HarvestEntry>> {
        let Some(parent) = path.parent() else { return Ok(None) };
        let Some(directory) = self.directory(&parent)? else { return Ok(None) };
        match directory.child(path.name())? {
            BaseEntry::Leaf { layer, stat } => Ok(directory.entry(path.name(), layer, &stat)?),
            BaseEntry::Nothing | BaseEntry::Directory(_) => Ok(None),
        }
    }

    /// A regular file of the base, to be read.
    pub fn open(&self, path: &RelPath) -> std::io::Result<File> {
        let missing = || std::io::Error::from(std::io::ErrorKind::NotFound);
        let parent = path.parent().ok_or_else(missing)?;
        let directory = self.directory(&parent)?.ok_or_else(missing)?;
        match directory.child(path.name())? {
            BaseEntry::Leaf { layer, .. } => Ok(directory.open(path.name(), layer)?.0),
            BaseEntry::Nothing | BaseEntry::Directory(_) => Err(missing()),
        }
    }

    /// Whether the stack shows a directory here.
    pub(crate) fn directory_exists(&self, path: &RelPath) -> bool {
        path.is_root() || matches!(self.show(path), Ok(BaseEntry::Directory(_)))
    }

    /// Whether the stack shows something here that is not a directory.
    pub(crate) fn leaf_exists(&self, path: &RelPath) -> bool {
        matches!(self.show(path), Ok(BaseEntry::Leaf { .. }))
    }

    /// The names of the directories the stack shows in this one.
    pub(crate) fn directories_in(&self, path: &RelPath) -> Vec<Vec<u8>> {
        let Ok(Some(directory)) = self.directory(path) else { return Vec::new() };
        let names = directory.names().unwrap_or_default();
        names
            .into_iter()
            .filter(|name| matches!(directory.child(name), Ok(BaseEntry::Directory(_))))
            .map(Vec::from)
            .collect()
    }

    /// Every path the stack shows below a directory, relative to it, and whether it is a directory itself.
    pub(crate) fn paths_below(&self, path: &RelPath) -> Result<Vec<(RelPath, bool)>, Errno> {
        let mut found = Vec::new();
        let BaseEntry::Directory(layers) = self.show(path)? else { return Ok(found) };
        let mut waiting = vec![(RelPath::root(), path.clone(), layers)];
        while let Some((inside, path, layers)) = waiting.pop() {
            let here = self.at(&path, &layers)?;
            for name in here.names()? {
                match here.child(&name)? {
                    BaseEntry::Nothing => {}
                    BaseEntry::Leaf { .. } => found.push((inside.join(&name), false)),
                    BaseEntry::Directory(layers) => {
                        found.push((inside.join(&name), true));
                        waiting.push((inside.join(&name), path.join(&name), layers));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Every link the stack shows, but for those in directories that are scratch or that we can't read: there the
    /// agent could not change anything either. At most `limit` names are looked at.
    pub(crate) fn links(
        &self,
        limit: usize,
        scratch: &dyn Fn(&RelPath, bool) -> bool,
    ) -> Result<SymlinkMap, Errno> {
        let mut links = SymlinkMap::default();
        let mut left = limit;
        let mut waiting = vec![(RelPath::root(), self.all())];
        while let Some((path, layers)) = waiting.pop() {
            let here = match self.at(&path, &layers) {
                // Mounted, locked or gone meanwhile.
                Err(Errno::ACCESS | Errno::XDEV | Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                other => other?,
            };
            for name in here.links_and_directories(&mut left)? {
                let child = path.join(&name);
                match here.child(&name)? {
                    BaseEntry::Directory(_) if is_dot_git(&name) || scratch(&child, true) => {}
                    BaseEntry::Directory(layers) => waiting.push((child, layers)),
                    BaseEntry::Leaf { layer, stat } if tree::kind(&stat) == NodeKind::Symlink => {
                        links.insert(child, here.link(&name, layer)?);
                    }
                    BaseEntry::Leaf { .. } | BaseEntry::Nothing => {}
                }
            }
        }
        Ok(links)
    }

    /// The permission bits of a directory the stack shows.
    pub(crate) fn directory_mode(&self, path: &RelPath) -> Option<u32> {
        let layer = match self.show(path) {
            Ok(BaseEntry::Directory(layers)) => *layers.first()?,
            _ => return None,
        };
        let held = tree::open_directory(self.layers[layer].as_fd(), path).ok()?;
        Some(rustix::fs::fstat(held).ok()?.st_mode & 0o7777)
    }

    fn show(&self, path: &RelPath) -> Result<BaseEntry, Errno> {
        let Some(parent) = path.parent() else { return Ok(BaseEntry::Directory(self.all())) };
        match self.directory(&parent)? {
            Some(directory) => directory.child(path.name()),
            None => Ok(BaseEntry::Nothing),
        }
    }

    pub(crate) fn all(&self) -> Vec<usize> {
        (0..self.layers.len()).collect()
    }

    fn directory(&self, path: &RelPath) -> Result<Option<BaseDirectory>, Errno> {
        let mut here = self.at(&RelPath::root(), &self.all())?;
        let mut prefix = RelPath::root();
        for name in path.components() {
            prefix = prefix.join(name);
            match here.child(name)? {
                BaseEntry::Directory(layers) => here = self.at(&prefix, &layers)?,
                BaseEntry::Nothing | BaseEntry::Leaf { .. } => return Ok(None),
            }
        }
        Ok(Some(here))
    }

    /// The directory at a path, made of the layers that [`BaseDirectory::child`] named.
    pub(crate) fn at(&self, path: &RelPath, layers: &[usize]) -> Result<BaseDirectory, Errno> {
        let lowest = self.layers.len().saturating_sub(1);
        let mut open = Vec::with_capacity(layers.len());
        for &layer in layers {
            let held = tree::open_directory(self.layers[layer].as_fd(), path)?;
            open.push(OpenLayer { layer, held, plain: layer == lowest });
        }
        Ok(BaseDirectory { open })
    }
}

/// One directory of the base, as the stack shows it.
#[derive(Debug)]
pub(crate) struct BaseDirectory {
    open: Vec<OpenLayer>,
}

#[derive(Debug)]
struct OpenLayer {
    layer: usize,
    held: OwnedFd,
    /// The lowest layer has nothing to hide, so its attributes are not asked for.
    plain: bool,
}

impl BaseDirectory {
    /// What the stack shows under a name.
    pub(crate) fn child(&self, name: &[u8]) -> Result<BaseEntry, Errno> {
        let mut merged = Vec::new();
        for opened in &self.open {
            let directory = opened.held.as_fd();
            let Some(stat) = tree::inspect(directory, name)? else { continue };
            match tree::kind(&stat) {
                NodeKind::Directory => {
                    merged.push(opened.layer);
                    if !opened.plain && self.marks(opened, name, true)?.opaque {
                        break;
                    }
                }
                // What a directory or a deleted name hides below it stays hidden.
                _ if !merged.is_empty() => break,
                NodeKind::Whiteout => return Ok(BaseEntry::Nothing),
                NodeKind::File
                    if !opened.plain && stat.st_size == 0 && self.marks(opened, name, false)?.whiteout =>
                {
                    return Ok(BaseEntry::Nothing);
                }
                _ => return Ok(BaseEntry::Leaf { layer: opened.layer, stat }),
            }
        }
        Ok(if merged.is_empty() { BaseEntry::Nothing } else { BaseEntry::Directory(merged) })
    }

    fn marks(&self, opened: &OpenLayer, name: &[u8], directory: bool) -> Result<tree::OverlayMarks, Errno> {
        let name = RelPath::root().join(name);
        match directory {
            true => tree::marks(tree::open_directory(opened.held.as_fd(), &name)?.as_fd()),
            false => tree::marks(tree::open_file(opened.held.as_fd(), &name)?.0.as_fd()),
        }
    }

    /// Every name any layer has here; some of them may be hidden, which [`Self::child`] says.
    pub(crate) fn names(&self) -> Result<Vec<Box<[u8]>>, Errno> {
        let mut seen = HashSet::new();
        for opened in &self.open {
            seen.extend(tree::names(opened.held.as_fd(), usize::MAX - 1)?);
        }
        Ok(seen.into_iter().collect())
    }

    /// Every name that may be a link or a directory, by what the listings say. Only so many names are `left` to look at.
    fn links_and_directories(&self, left: &mut usize) -> Result<HashSet<Box<[u8]>>, Errno> {
        let mut names = HashSet::new();
        for opened in &self.open {
            tree::each_name(opened.held.as_fd(), |name, kind| {
                if matches!(kind, FileType::Directory | FileType::Symlink | FileType::Unknown) {
                    names.insert(name.into());
                }
                *left = left.saturating_sub(1);
                if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        if *left == 0 { Err(Errno::TOOBIG) } else { Ok(names) }
    }

    /// Which parts of a repository the stack shows here, but for names that something above it replaces.
    pub(crate) fn shape(&self, replaced: impl Fn(&[u8]) -> bool) -> Result<RepositoryShape, Errno> {
        let mut parts = HashSet::new();
        for opened in &self.open {
            tree::each_name(opened.held.as_fd(), |name, _| {
                if RepositoryShape::has_part(name) && !replaced(name) {
                    parts.insert(Box::<[u8]>::from(name));
                }
                ControlFlow::Continue(())
            })?;
        }
        let mut shape = RepositoryShape::default();
        for name in parts {
            if !matches!(self.child(&name)?, BaseEntry::Nothing) {
                shape.add(&name);
            }
        }
        Ok(shape)
    }

    fn held(&self, layer: usize) -> Result<BorrowedFd<'_>, Errno> {
        self.open
            .iter()
            .find(|opened| opened.layer == layer)
            .map(|opened| opened.held.as_fd())
            .ok_or(Errno::NOENT)
    }

    pub(crate) fn open(&self, name: &[u8], layer: usize) -> Result<(File, Stat), Errno> {
        tree::open_file(self.held(layer)?, &RelPath::root().join(name))
    }

    /// Where a link of a layer leads.
    pub(crate) fn link(&self, name: &[u8], layer: usize) -> Result<Vec<u8>, Errno> {
        tree::read_link(self.held(layer)?, name)
    }

    /// A leaf as git sees it; `None` for a special file, which git does not.
    pub(crate) fn entry(
        &self,
        name: &[u8],
        layer: usize,
        stat: &Stat,
    ) -> Result<Option<HarvestEntry>, Errno> {
        Ok(match tree::kind(stat) {
            NodeKind::File => {
                Some(HarvestEntry::File { executable: tree::is_executable(stat), size: tree::size(stat) })
            }
            NodeKind::Symlink => Some(HarvestEntry::Symlink { target: self.link(name, layer)? }),
            _ => None,
        })
    }
}
