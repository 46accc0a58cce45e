//! The walk over an upper layer.
//!
//! Directories wait in a list, not on the stack, and each is opened, read and closed before the next: depth
//! costs neither stack nor descriptors. The base is looked at only under the names the upper layer holds,
//! and below directories that were replaced or removed; ten changes in a large repository cost ten look-ups.
//!
//! A file with several names in the upper layer is treated as one file per name. That is safe: a hard link
//! can't be made across mounts, so every other name of it lies in this same upper layer, contents are copied
//! and never linked from here on, and each name is judged by itself.

use std::collections::HashSet;
use std::fs::File;
use std::io::Seek;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::Stat;
use rustix::io::Errno;

use super::base::{Directory, Lower};
use super::secret::Search;
use super::tree::{self, Kind, PATH_MAX};
use super::violation::{Reason, Violation};
use super::{Base, Change, Entry, Harvest, Rules, control, names};
use crate::path::RelPath;
use crate::scope::Judgement;

/// A limit was reached: it is recorded, and nothing more is looked at.
struct Full;

/// A directory that waits for its turn.
enum Waiting {
    /// One of the upper layer, the layers of the base below it, and whether it stands in their place
    /// completely instead of being merged with them.
    Upper { path: RelPath, layers: Vec<usize>, replaces: bool },
    /// One of the base, of which nothing is left.
    Gone { path: RelPath, layers: Vec<usize> },
}

pub(super) fn walk(upper: BorrowedFd<'_>, base: &Base, rules: &Rules<'_>) -> Harvest {
    let mut walker = Walker {
        upper,
        base,
        rules,
        search: Search::new(rules.secrets),
        waiting: vec![Waiting::Upper { path: RelPath::root(), layers: base.all(), replaces: false }],
        harvest: Harvest::default(),
        names: 0,
        bytes: 0,
    };
    while let Some(next) = walker.waiting.pop() {
        let outcome = match next {
            Waiting::Upper { path, layers, replaces } => walker.upper_directory(path, &layers, replaces),
            Waiting::Gone { path, layers } => walker.gone_directory(&path, &layers),
        };
        if let Err(Full) = outcome {
            break;
        }
    }
    walker.harvest
}

struct Walker<'a> {
    upper: BorrowedFd<'a>,
    base: &'a Base,
    rules: &'a Rules<'a>,
    search: Search<'a>,
    waiting: Vec<Waiting>,
    harvest: Harvest,
    names: usize,
    bytes: u64,
}

/// The directory of the upper layer being read.
struct Here {
    path: RelPath,
    held: OwnedFd,
    lower: Directory,
    replaces: bool,
}

impl Walker<'_> {
    fn upper_directory(&mut self, path: RelPath, layers: &[usize], replaces: bool) -> Result<(), Full> {
        let room = self.rules.limits.names.saturating_sub(self.names);
        let opened = tree::unlock_directory(self.upper, &path).and_then(|held| {
            let marks = tree::marks(held.as_fd())?;
            let names = tree::names(held.as_fd(), room)?;
            Ok((held, marks, names, self.base.at(&path, layers)?))
        });
        let (held, marks, names, lower) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.unreadable(&path, error),
        };
        if marks.elsewhere {
            return self.violate(&path, Reason::Overlay);
        }
        self.names += names.len();
        if names.len() > room {
            return self.too_many(self.rules.limits.names);
        }
        let here = Here { path, held, lower, replaces: replaces || marks.opaque };
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

    /// A directory of the base that is not there any more, with all it held.
    fn gone_directory(&mut self, path: &RelPath, layers: &[usize]) -> Result<(), Full> {
        let opened = self.base.at(path, layers).and_then(|lower| Ok((lower.names()?, lower)));
        match opened {
            Ok((names, lower)) => names.iter().try_for_each(|name| self.gone(path, &lower, name)),
            Err(error) => self.unreadable(path, error),
        }
    }

    /// Whatever the base has under a name is gone.
    fn gone(&mut self, parent: &RelPath, lower: &Directory, name: &[u8]) -> Result<(), Full> {
        if is_own_git(self.rules, parent, name) {
            return Ok(());
        }
        let path = parent.join(name);
        match lower.child(name) {
            Ok(Lower::Nothing) => Ok(()),
            Ok(Lower::Directory(layers)) => self.gone_below(path, layers),
            Ok(Lower::Leaf { layer, stat }) => self.gone_leaf(path, lower, layer, &stat),
            Err(error) => self.unreadable(&path, error),
        }
    }

    fn gone_below(&mut self, path: RelPath, layers: Vec<usize>) -> Result<(), Full> {
        if self.is_scratch(&path, true) {
            return Ok(());
        }
        if names::is_dot_git(path.name()) {
            return self.violate(&path, Reason::NestedGit);
        }
        self.waiting.push(Waiting::Gone { path, layers });
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
                self.gone_below(path.clone(), layers.clone())?;
            }
            _ => {}
        }
        if self.is_scratch(&path, kind == Kind::Directory) {
            return Ok(());
        }
        if names::is_dot_git(name) {
            return self.violate(&path, Reason::NestedGit);
        }
        match kind {
            Kind::Directory => {
                let layers = match lower {
                    Lower::Directory(layers) => layers,
                    Lower::Leaf { .. } | Lower::Nothing => Vec::new(),
                };
                self.waiting.push(Waiting::Upper { path, layers, replaces: here.replaces });
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
        if !stays_in_tree(&path, &target) {
            return self.violate(&path, Reason::LinkLeavesTree { target });
        }
        self.change(Change { path, before, after })
    }

    /// Why a changed path may not change, by its name alone.
    fn judge(&self, path: &RelPath) -> Option<Reason> {
        if self.rules.hidden.iter().any(|hidden| path.is_within(hidden)) {
            return Some(Reason::Hidden);
        }
        match self.rules.scope.judge(path) {
            Judgement::Denied(glob) => Some(Reason::Denied { glob: glob.as_str().to_owned() }),
            Judgement::Outside => Some(Reason::OutOfScope),
            Judgement::InScope => control::forbids(self.rules.scope, path)
                .map(|control| Reason::ControlFile { name: control.path, reader: control.reader }),
        }
    }

    fn is_scratch(&mut self, path: &RelPath, directory: bool) -> bool {
        let scratch = (self.rules.scratch)(path, directory);
        self.harvest.scratch += u64::from(scratch);
        scratch
    }

    fn change(&mut self, change: Change) -> Result<(), Full> {
        if change.after.is_some() && self.search.bytes(change.path.as_bytes()).is_some() {
            // `violate` finds the name of the secret again, and a path that may be shown.
            return self.violate(&change.path, Reason::OutOfScope);
        }
        self.harvest.changes.push(change);
        self.count()
    }

    /// Records a violation, but no name that holds a secret: reports are read by others.
    fn violate(&mut self, path: &RelPath, reason: Reason) -> Result<(), Full> {
        let violation = match self.search.bytes(path.as_bytes()) {
            None => Violation { path: path.clone(), reason },
            Some(name) => Violation {
                path: path
                    .ancestors()
                    .find(|above| self.search.bytes(above.as_bytes()).is_none())
                    .unwrap_or_default(),
                reason: Reason::SecretInName { name: name.to_owned() },
            },
        };
        self.harvest.violations.push(violation);
        self.count()
    }

    fn unreadable(&mut self, path: &RelPath, error: impl Into<std::io::Error>) -> Result<(), Full> {
        self.violate(path, Reason::Unreadable { error: error.into().to_string() })
    }

    fn count(&mut self) -> Result<(), Full> {
        let limit = self.rules.limits.changes;
        match self.harvest.changes.len() + self.harvest.violations.len() > limit {
            true => self.too_many(limit),
            false => Ok(()),
        }
    }

    fn too_many(&mut self, limit: usize) -> Result<(), Full> {
        let violation = Violation { path: RelPath::root(), reason: Reason::TooMany { limit } };
        self.harvest.violations.push(violation);
        Err(Full)
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

/// Whether a link certainly leads to something in the workspace that is not git's. Its own directory is a
/// real one, so leading `..` are counted exactly; a `..` after a name may follow another link first
/// (`d -> .`, then `d/../x` is outside), so it is never believed.
fn stays_in_tree(path: &RelPath, target: &[u8]) -> bool {
    if target.first() == Some(&b'/') {
        return false;
    }
    let mut depth = path.components().count().saturating_sub(1);
    let mut named = false;
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." if named || depth == 0 => return false,
            b".." => depth -= 1,
            name if names::is_dot_git(name) => return false,
            _ => named = true,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_only_when_nothing_can_lead_it_out() {
        let stays = |path: &str, target: &str| {
            stays_in_tree(&RelPath::parse(path.as_bytes()).expect("parses"), target.as_bytes())
        };
        assert!(stays("a", "b"));
        assert!(stays("a/b/c", "../../d/e"));
        assert!(stays("a", "."));
        assert!(stays("a/b", "..//./c"));
        for (path, target) in [
            ("a", "/etc/passwd"),
            ("a", ".."),
            ("a/b", "../../x"),
            ("a", "d/../x"),
            ("a", ".git/config"),
            ("a/b", "../.GIT"),
            ("a", "vendor/.git/hooks"),
        ] {
            assert!(!stays(path, target), "{path} -> {target}");
        }
    }
}
