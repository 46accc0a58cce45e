//! What an agent changed in its private copy, as an upper layer.
//!
//! The harvest reads overlays. So what differs from the copy as it was handed over is moved into a folder of
//! its own, in overlayfs's own format: changed and new names as they are, a whiteout for each that is gone.
//! The change time tells whether an entry differs: no process without the right to set the clock can set it
//! back. The harvest says whether the difference means anything: it compares contents.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::harvest::tree::{self, NodeKind};
use crate::path::RelPath;

/// The most names looked at in a copy: the harvest's own bound.
const MOST_NAMES: usize = 4_000_000;

/// A tree as it was at one moment.
#[derive(Debug, Default)]
pub(crate) struct ReplicaManifest {
    directories: HashMap<RelPath, HashMap<Box<[u8]>, ReplicaEntry>>,
}

/// One name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplicaEntry {
    Directory,
    Other { inode: u64, changed: (i64, i64), size: i64, mode: u32 },
}

impl ReplicaEntry {
    fn new(stat: &Stat) -> Self {
        match tree::kind(stat) {
            NodeKind::Directory => ReplicaEntry::Directory,
            _ => ReplicaEntry::Other {
                inode: stat.st_ino,
                changed: (stat.st_ctime as _, stat.st_ctime_nsec as _),
                size: stat.st_size,
                mode: stat.st_mode,
            },
        }
    }
}

impl ReplicaManifest {
    /// Reads a tree that no process writes to yet. When it returns, everything written from now on has a later time.
    pub(crate) fn record(root: BorrowedFd<'_>) -> io::Result<Self> {
        let mut directories = HashMap::new();
        let mut waiting = vec![RelPath::root()];
        let mut latest = (0, 0);
        while let Some(path) = waiting.pop() {
            let held = tree::unlock_directory(root, &path)?;
            let mut entries = HashMap::new();
            for name in tree::names(held.as_fd(), usize::MAX - 1)? {
                let Some(stat) = tree::inspect(held.as_fd(), &name)? else { continue };
                let seen = ReplicaEntry::new(&stat);
                match seen {
                    ReplicaEntry::Directory => waiting.push(path.join(&name)),
                    ReplicaEntry::Other { changed, .. } => latest = latest.max(changed),
                }
                entries.insert(name, seen);
            }
            directories.insert(path, entries);
        }
        // Files are stamped with a clock that ticks every few milliseconds.
        loop {
            let now = clock_gettime(ClockId::RealtimeCoarse);
            if (now.tv_sec, now.tv_nsec as i64) > latest {
                return Ok(Self { directories });
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// Moves what differs from `tree` to `upper`. Nothing below a `passed` path is looked at.
    pub(crate) fn move_changes(
        &self,
        tree: BorrowedFd<'_>,
        upper: BorrowedFd<'_>,
        passed: &[RelPath],
    ) -> io::Result<()> {
        let mut names_left = MOST_NAMES;
        let mut waiting = vec![RelPath::root()];
        while let Some(path) = waiting.pop() {
            let held = tree::unlock_directory(tree, &path)?;
            let names = tree::names(held.as_fd(), names_left)?;
            names_left = names_left
                .checked_sub(names.len())
                .ok_or_else(|| io::Error::other("the copy has more names than anybody would look at"))?;
            let before = self.directories.get(&path);
            for name in &names {
                let child = path.join(name);
                if passed.contains(&child) {
                    continue;
                }
                let Some(stat) = tree::inspect(held.as_fd(), name)? else { continue };
                match (before.and_then(|entries| entries.get(name)), ReplicaEntry::new(&stat)) {
                    (Some(ReplicaEntry::Directory), ReplicaEntry::Directory) => waiting.push(child),
                    (Some(seen), now) if *seen == now => {}
                    _ => move_to(held.as_fd(), upper, &child, &stat)?,
                }
            }
            for name in before.into_iter().flat_map(HashMap::keys) {
                let child = path.join(name);
                if !passed.contains(&child) && tree::inspect(held.as_fd(), name)?.is_none() {
                    mark_gone(upper, &child)?;
                }
            }
        }
        Ok(())
    }
}

/// Moves one name, with all that is below it.
fn move_to(from: BorrowedFd<'_>, upper: BorrowedFd<'_>, path: &RelPath, stat: &Stat) -> io::Result<()> {
    if tree::kind(stat) == NodeKind::Directory {
        // Moving a directory writes its `..`, which takes write permission on it.
        tree::unlock_fully(from, path.name())?;
    }
    let parent = parent_in(upper, path)?;
    rustix::fs::renameat_with(from, path.name(), &parent, path.name(), RenameFlags::NOREPLACE)?;
    Ok(())
}

/// A name that was moved away is not gone: what has its place in the upper layer already stays.
fn mark_gone(upper: BorrowedFd<'_>, path: &RelPath) -> io::Result<()> {
    let parent = parent_in(upper, path)?;
    let made = rustix::fs::mknodat(&parent, path.name(), FileType::CharacterDevice, Mode::empty(), 0);
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The directory of the upper layer a path goes to, made where it is missing. It is nearly always there: its siblings
/// came before it.
fn parent_in(upper: BorrowedFd<'_>, path: &RelPath) -> io::Result<OwnedFd> {
    let parent = path.parent().unwrap_or_default();
    match tree::open_directory(upper, &parent) {
        Err(Errno::NOENT) => {}
        other => return Ok(other?),
    }
    let mut above: Vec<RelPath> = parent.ancestors().collect();
    above.reverse();
    above.push(parent.clone());
    for directory in above.iter().filter(|directory| !directory.is_root()) {
        match rustix::fs::mkdirat(upper, directory.as_path(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(tree::open_directory(upper, &parent)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        rustix::fs::open(path, rustix::fs::OFlags::RDONLY, Mode::empty()).expect("opens")
    }

    /// Every name in an upper layer, with a sign for what it is.
    fn listed(upper: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut waiting = vec![RelPath::root()];
        let root = open(upper);
        while let Some(path) = waiting.pop() {
            let held = tree::unlock_directory(root.as_fd(), &path).expect("opens");
            for name in tree::names(held.as_fd(), 100).expect("lists") {
                let stat = tree::inspect(held.as_fd(), &name).expect("looks").expect("is there");
                let child = path.join(&name);
                let sign = match tree::kind(&stat) {
                    NodeKind::Directory => "d",
                    NodeKind::File => "f",
                    NodeKind::Symlink => "l",
                    NodeKind::Whiteout => "x",
                    _ => "?",
                };
                found.push(format!("{sign} {child}"));
                if tree::kind(&stat) == NodeKind::Directory {
                    waiting.push(child);
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn only_what_was_touched_is_collected_and_what_went_is_marked() {
        let folder = tempfile::tempdir().expect("a folder");
        let (tree, upper) = (folder.path().join("tree"), folder.path().join("upper"));
        for name in ["src/deep", "gone/below", "target", "shape", "kept"] {
            fs::create_dir_all(tree.join(name)).expect("a folder");
        }
        fs::create_dir(&upper).expect("a folder");
        for name in [
            "src/a",
            "src/b",
            "src/deep/c",
            "gone/below/d",
            "target/t",
            "shape/s",
            "kept/k",
            "swapped",
            "mode",
        ] {
            fs::write(tree.join(name), name).expect("a file");
        }
        let manifest = ReplicaManifest::record(open(&tree).as_fd()).expect("records");

        // The same content at the same time is still a touch; the harvest says that it means nothing.
        fs::write(tree.join("src/a"), "src/a").expect("a file");
        fs::remove_file(tree.join("src/b")).expect("removes");
        fs::write(tree.join("src/deep/new"), "").expect("a file");
        fs::remove_dir_all(tree.join("gone")).expect("removes");
        fs::write(tree.join("target/u"), "").expect("a file");
        fs::remove_dir_all(tree.join("shape")).expect("removes");
        fs::write(tree.join("shape"), "now a file").expect("a file");
        fs::remove_file(tree.join("swapped")).expect("removes");
        symlink("src/a", tree.join("swapped")).expect("a link");
        fs::set_permissions(tree.join("mode"), fs::Permissions::from_mode(0o755)).expect("a mode");
        fs::create_dir_all(tree.join("locked/inner")).expect("a folder");
        fs::set_permissions(tree.join("locked"), fs::Permissions::from_mode(0o000)).expect("a mode");
        let passed = [RelPath::parse(b"target").expect("a path")];
        manifest.move_changes(open(&tree).as_fd(), open(&upper).as_fd(), &passed).expect("distils");
        assert_eq!(
            listed(&upper),
            [
                "d locked",
                "d locked/inner",
                "d src",
                "d src/deep",
                "f mode",
                "f shape",
                "f src/a",
                "f src/deep/new",
                "l swapped",
                "x gone",
                "x src/b"
            ]
        );
        assert!(tree.join("kept/k").exists() && tree.join("target/u").exists());
    }

    #[test]
    fn a_time_that_was_set_back_hides_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (tree, upper) = (folder.path().join("tree"), folder.path().join("upper"));
        fs::create_dir(&tree).and_then(|()| fs::create_dir(&upper)).expect("folders");
        fs::write(tree.join("a"), "one").expect("a file");
        let before = fs::metadata(tree.join("a")).and_then(|meta| meta.modified()).expect("a time");
        let manifest = ReplicaManifest::record(open(&tree).as_fd()).expect("records");
        fs::write(tree.join("a"), "two").expect("a file");
        fs::File::open(tree.join("a")).and_then(|file| file.set_modified(before)).expect("sets the time");
        manifest.move_changes(open(&tree).as_fd(), open(&upper).as_fd(), &[]).expect("distils");
        assert_eq!(listed(&upper), ["f a"]);
    }
}
