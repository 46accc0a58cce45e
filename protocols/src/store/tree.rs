//! A folder whose files are read and written by name, and never a file outside of it.
//!
//! The repository is hostile: `.kodingx/inbox` may be a link to `/etc`, a task a FIFO that never answers or
//! a file of four gigabytes. So every name is resolved beneath the folder without following a link, only
//! regular files are read, and only so much of them.
//!
//! There is one way to write a file: whole, beside its place, synced, put into it by a rename, the folder synced. A
//! crash leaves the old bytes or the new ones, and perhaps a file beside them that the next writer removes.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::folder_cache::{FolderCache, FolderStamp};
use super::read_files::ReadLog;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// The largest file of a protocol that is read. A board of 100,000 tasks stays well below it.
pub const LARGEST_FILE: u64 = 64 << 20;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// An open folder.
#[derive(Debug)]
pub struct RepoTree {
    root: OwnedFd,
    path: PathBuf,
    /// Shortcuts past folders that have not changed.
    pub memory: FolderCache,
    /// What a verb reads.
    pub(super) reads: ReadLog,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FolderEntry {
    pub name: String,
    pub is_folder: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum RepoTreeError {
    #[error("can't open {}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is a link, or lies behind one; it must be a real file in the repository", path.display())]
    Link { path: PathBuf },
    #[error("{} is not a regular file", path.display())]
    Irregular { path: PathBuf },
    #[error("{} is larger than {} MiB", path.display(), LARGEST_FILE >> 20)]
    Large { path: PathBuf },
    #[error("{} is not UTF-8: byte {offset} on line {line} is not text", path.display())]
    NotText { path: PathBuf, line: usize, offset: usize },
    #[error("can't write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
}

impl RepoTree {
    pub fn open(path: &Path) -> Result<Self, RepoTreeError> {
        let failed = |source: Errno| RepoTreeError::Open { path: path.to_owned(), source: source.into() };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        Ok(Self { root, path: path.to_owned(), memory: FolderCache::default(), reads: ReadLog::default() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A regular file, opened to read, or `None` where there is no such file.
    pub(super) fn open_file(&self, name: &str) -> Result<Option<File>, RepoTreeError> {
        let path = || self.path.join(name);
        // A FIFO would block an open for reading until another process writes.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = match rustix::fs::openat2(&self.root, name, flags, Mode::empty(), BENEATH) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP | Errno::XDEV) => return Err(RepoTreeError::Link { path: path() }),
            Err(error) => return Err(RepoTreeError::Open { path: path(), source: error.into() }),
        };
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(Some(file)),
            Ok(_) => Err(RepoTreeError::Irregular { path: path() }),
            Err(source) => Err(RepoTreeError::Open { path: path(), source }),
        }
    }

    /// The bytes of a file, or `None` where there is no such file.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, RepoTreeError> {
        let path = || self.path.join(name);
        let Some(file) = self.open_file(name)? else {
            self.reads.note(name, None);
            return Ok(None);
        };
        let failed = |source| RepoTreeError::Open { path: path(), source };
        let metadata = file.metadata().map_err(failed)?;
        self.reads.note(name, Some(&metadata));
        let length = metadata.len();
        if length > LARGEST_FILE {
            return Err(RepoTreeError::Large { path: path() });
        }
        let mut bytes = Vec::with_capacity(length as usize + 1);
        file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > LARGEST_FILE {
            return Err(RepoTreeError::Large { path: path() });
        }
        Ok(Some(bytes))
    }

    /// The text of a file, or `None` where there is no such file.
    pub fn read_text(&self, name: &str) -> Result<Option<String>, RepoTreeError> {
        let Some(bytes) = self.read(name)? else { return Ok(None) };
        String::from_utf8(bytes).map(Some).map_err(|error| {
            let offset = error.utf8_error().valid_up_to();
            let line = 1 + error.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count();
            RepoTreeError::NotText { path: self.path.join(name), line, offset }
        })
    }

    pub fn exists(&self, name: &str) -> bool {
        self.reach(name, OFlags::PATH).is_ok()
    }

    /// The name that a name leads to: its own, or that of the file in this folder to which it is a link. Links that lead
    /// elsewhere are an error.
    ///
    /// The answer is a name and no open file: another process may put a link there since. Every later open resolves the
    /// name anew and follows no link, so nothing outside of the folder is read or written.
    pub fn follow(&self, name: &str) -> Result<String, RepoTreeError> {
        let leads_out = || RepoTreeError::Link { path: self.path.join(name) };
        let mut current = name.to_owned();
        for _ in 0..MOST_LINKS {
            let read = self
                .parent(&current)
                .and_then(|(folder, last)| rustix::fs::readlinkat(&folder, last, Vec::new()));
            let target = match read {
                Ok(target) => target,
                // No link, or nothing is there.
                Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => return Ok(current),
                Err(error) => return Err(self.refused(name, error)),
            };
            let target = target.to_str().map_err(|_| leads_out())?;
            current = resolved(&current, target).ok_or_else(leads_out)?;
        }
        Err(leads_out())
    }

    pub fn is_file(&self, name: &str) -> bool {
        let stat = self.reach(name, OFlags::PATH | OFlags::NOFOLLOW).and_then(rustix::fs::fstat);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    fn is_folder(&self, name: &str) -> bool {
        self.reach(name, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW).is_ok()
    }

    /// The entries of a folder, in the order of names; none where there is no such folder. Names that are not text
    /// belong to no protocol and are left out.
    pub fn list(&self, top: &str) -> Result<Vec<FolderEntry>, RepoTreeError> {
        let failed = |error: Errno| RepoTreeError::Open { path: self.path.join(top), source: error.into() };
        let folder = match self.reach(top, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
            Err(Errno::LOOP | Errno::XDEV) => return Err(RepoTreeError::Link { path: self.path.join(top) }),
            Err(error) => return Err(failed(error)),
        };
        let mut entries = Vec::new();
        for entry in Dir::new(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let is_folder = match entry.file_type() {
                FileType::Directory => true,
                // Some file systems don't say.
                FileType::Unknown => {
                    self.reach(&format!("{top}/{name}"), OFlags::PATH | OFlags::DIRECTORY).is_ok()
                }
                // Links and pipes are reported when they are read.
                _ => false,
            };
            if name != "." && name != ".." {
                entries.push(FolderEntry { name: name.to_owned(), is_folder });
            }
        }
        entries.sort_unstable();
        Ok(entries)
    }

    /// A number for the state of these paths: whether each exists, and when it last changed, combined with a text of
    /// the caller. It stays the same as long as the paths do.
    pub fn change_stamp(&self, word: &str, names: &[&str]) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.path, word).hash(&mut hasher);
        for name in names {
            let stat = self.reach(name, OFlags::PATH | OFlags::NOFOLLOW).and_then(rustix::fs::fstat);
            stat.map(|stat| (stat.st_ino, stat.st_ctime, stat.st_ctime_nsec)).ok().hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The folders among a folder's entries, each with a stamp that changes when it changes.
    pub fn folder_stamps<'e>(
        &self,
        name: &str,
        entries: &'e [FolderEntry],
    ) -> Result<Vec<FolderStamp<'e>>, RepoTreeError> {
        let failed = |error: Errno| RepoTreeError::Open { path: self.path.join(name), source: error.into() };
        let folder = self.reach(name, OFlags::PATH | OFlags::DIRECTORY).map_err(failed)?;
        let stamp = |entry: &'e FolderEntry| {
            let stat = rustix::fs::statat(&folder, &entry.name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
            let (seconds, nanoseconds) = (stat.st_ctime, stat.st_ctime_nsec as i64);
            Ok(FolderStamp { name: &entry.name, inode: stat.st_ino, seconds, nanoseconds })
        };
        entries.iter().filter(|entry| entry.is_folder).map(stamp).collect()
    }

    /// Replaces a file of ours, or makes it. Its mode stays what it was. A file that a person may write is exchanged
    /// instead ([`super::exchange`]).
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), RepoTreeError> {
        self.write(name, bytes, WriteTarget::Replace)
    }

    /// Makes a file that must not exist.
    pub fn create(&self, name: &str, bytes: &[u8]) -> Result<(), RepoTreeError> {
        self.write(name, bytes, WriteTarget::Create)
    }

    /// Writes the next version of a file beside it.
    pub(super) fn stage(&self, name: &str, bytes: &[u8], synced: bool) -> Result<(), RepoTreeError> {
        self.write(name, bytes, WriteTarget::Stage { synced })
    }

    /// Syncs a file.
    pub(super) fn sync(&self, name: &str) -> Result<(), RepoTreeError> {
        let synced = self.reach(name, OFlags::RDONLY | OFlags::NONBLOCK).and_then(rustix::fs::fsync);
        synced.map_err(|error| self.refused(name, error))
    }

    /// Exchanges a file and the version beside it; `false` if there is no such file.
    pub(super) fn exchange(&self, name: &str) -> Result<bool, RepoTreeError> {
        self.rename(name, |folder, last, beside| {
            rustix::fs::renameat_with(folder, beside, folder, last, RenameFlags::EXCHANGE)
        })
    }

    /// Moves a file beside its place; `false` if there is none.
    pub(super) fn displace(&self, name: &str) -> Result<bool, RepoTreeError> {
        self.rename(name, |folder, last, beside| rustix::fs::renameat(folder, last, folder, beside))
    }

    /// Moves the version beside a place into it, if there is one; `false` if the place is taken.
    pub(super) fn put_back(&self, name: &str) -> Result<bool, RepoTreeError> {
        let put = self.rename(name, |folder, last, beside| {
            rustix::fs::renameat_with(folder, beside, folder, last, RenameFlags::NOREPLACE)
        });
        match put {
            Err(RepoTreeError::Exists { .. }) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// Renames the version beside a file to a name that a person sees, and returns the name.
    pub(super) fn save(&self, name: &str) -> Result<Option<String>, RepoTreeError> {
        for number in 1.. {
            let saved = format!("{name}.saved-{number}");
            let new = saved.rsplit('/').next().unwrap_or(&saved);
            let moved = self.rename(name, |folder, _, beside| {
                rustix::fs::renameat_with(folder, beside, folder, new, RenameFlags::NOREPLACE)
            });
            match moved {
                Err(RepoTreeError::Exists { .. }) => {}
                other => return Ok(other?.then_some(saved)),
            }
        }
        Ok(None)
    }

    /// Opens the version beside a file for reading.
    pub(super) fn open_staged(&self, name: &str) -> Result<Option<File>, RepoTreeError> {
        self.open_file(&beside(name))
    }

    pub(super) fn staged(&self, name: &str) -> Result<Option<Vec<u8>>, RepoTreeError> {
        self.read(&beside(name))
    }

    /// Removes the version beside a file.
    pub(super) fn unstage(&self, name: &str) -> Result<(), RepoTreeError> {
        self.rename(name, |folder, _, beside| rustix::fs::unlinkat(folder, beside, AtFlags::empty()))
            .map(drop)
    }

    pub(super) fn sync_parent(&self, name: &str) -> Result<(), RepoTreeError> {
        let synced = self.parent(name).and_then(|(folder, _)| rustix::fs::fsync(&folder));
        synced.map_err(|error| self.refused(name, error))
    }

    /// Moves names in a file's folder, its own and the one beside it; `false` if there is nothing to move.
    fn rename(
        &self,
        name: &str,
        how: impl FnOnce(&OwnedFd, &str, &str) -> Result<(), Errno>,
    ) -> Result<bool, RepoTreeError> {
        match self.parent(name).and_then(|(folder, last)| how(&folder, last, &beside(last))) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.refused(name, error)),
        }
    }

    /// Removes a file, if it exists.
    pub fn remove(&self, name: &str) -> Result<(), RepoTreeError> {
        let done = self.parent(name).and_then(|(folder, last)| {
            rustix::fs::unlinkat(&folder, last, AtFlags::empty())?;
            rustix::fs::fsync(&folder)
        });
        match done {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.refused(name, error)),
        }
    }

    /// Removes a folder if it is empty.
    pub fn remove_empty_folder(&self, name: &str) {
        if let Ok((folder, last)) = self.parent(name) {
            let _ = rustix::fs::unlinkat(&folder, last, AtFlags::REMOVEDIR);
        }
    }

    pub fn make_folder(&self, name: &str) -> Result<(), RepoTreeError> {
        self.make_parent(&format!("{name}/.")).map(drop).map_err(|error| self.refused(name, error))
    }

    fn write(&self, name: &str, bytes: &[u8], target: WriteTarget) -> Result<(), RepoTreeError> {
        let (folder, last) = self.make_parent(name).map_err(|error| self.refused(name, error))?;
        let unfinished = format!(".{last}{UNFINISHED}");
        let outcome = self.write_whole(&folder, last, &unfinished, bytes, target);
        if outcome.is_err() {
            let _ = rustix::fs::unlinkat(&folder, &unfinished, AtFlags::empty());
        }
        outcome.map_err(|error| match (error, target) {
            // A folder has the name of the version beside the file.
            (Errno::ISDIR, WriteTarget::Stage { .. }) if self.is_folder(&beside(name)) => {
                RepoTreeError::Irregular { path: self.path.join(beside(name)) }
            }
            _ => self.refused(name, error),
        })
    }

    fn write_whole(
        &self,
        folder: &OwnedFd,
        last: &str,
        unfinished: &str,
        bytes: &[u8],
        target: WriteTarget,
    ) -> Result<(), Errno> {
        let mode = match rustix::fs::statat(folder, last, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(old) if FileType::from_raw_mode(old.st_mode) == FileType::RegularFile => {
                Some(Mode::from_raw_mode(old.st_mode))
            }
            Ok(old) if FileType::from_raw_mode(old.st_mode) == FileType::Symlink => return Err(Errno::LOOP),
            Ok(_) => return Err(Errno::ISDIR),
            Err(_) => None,
        };
        match rustix::fs::unlinkat(folder, unfinished, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        let opened = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let made = Mode::from_raw_mode(0o666);
        let mut file = File::from(rustix::fs::openat(folder, unfinished, opened, made)?);
        chown_to_parent(&file, folder)?;
        if let Some(mode) = mode {
            rustix::fs::fchmod(&file, mode)?;
        }
        file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        if !matches!(target, WriteTarget::Stage { synced: false }) {
            rustix::fs::fsync(&file)?;
        }
        match target {
            // Its folder is synced together with the exchange.
            WriteTarget::Stage { .. } => {
                return rustix::fs::renameat(folder, unfinished, folder, beside(last));
            }
            WriteTarget::Replace => rustix::fs::renameat(folder, unfinished, folder, last)?,
            WriteTarget::Create => {
                rustix::fs::renameat_with(folder, unfinished, folder, last, RenameFlags::NOREPLACE)?;
            }
        }
        rustix::fs::fsync(folder)
    }

    fn reach(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let name = if name.is_empty() { "." } else { name };
        rustix::fs::openat2(&self.root, name, flags | OFlags::CLOEXEC, Mode::empty(), BENEATH)
    }

    fn parent<'n>(&self, name: &'n str) -> Result<(OwnedFd, &'n str), Errno> {
        let (folder, last) = name.rsplit_once('/').unwrap_or((".", name));
        Ok((self.reach(folder, OFlags::RDONLY | OFlags::DIRECTORY)?, last))
    }

    /// Opens the folder of a file, and makes it and its parents where they are missing.
    fn make_parent<'n>(&self, name: &'n str) -> Result<(OwnedFd, &'n str), Errno> {
        match self.parent(name) {
            Err(Errno::NOENT) => {}
            found => return found,
        }
        let (folder, last) = name.rsplit_once('/').unwrap_or((".", name));
        let mut current = self.root.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        for part in folder.split('/') {
            match rustix::fs::mkdirat(&current, part, Mode::from_raw_mode(0o777)) {
                Ok(()) => rustix::fs::fsync(&current)?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let made = rustix::fs::openat2(&current, part, flags, Mode::empty(), BENEATH)?;
            chown_to_parent(&made, &current)?;
            current = made;
        }
        Ok((current, last))
    }

    fn refused(&self, name: &str, error: Errno) -> RepoTreeError {
        let path = self.path.join(name);
        match error {
            Errno::LOOP | Errno::XDEV => RepoTreeError::Link { path },
            Errno::EXIST => RepoTreeError::Exists { path },
            error => RepoTreeError::Write { path, source: error.into() },
        }
    }
}

/// How many links in a row are followed.
const MOST_LINKS: usize = 8;

/// The name that a link with this target has in the folder; `None` if it leads out.
fn resolved(link: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = link.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Gives a file that root wrote to the owner of the folder.
pub(super) fn chown_to_parent(made: impl AsFd, folder: impl AsFd) -> Result<(), Errno> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (made_by, owner) = (rustix::fs::fstat(&made)?, rustix::fs::fstat(&folder)?);
    if (made_by.st_uid, made_by.st_gid) == (owner.st_uid, owner.st_gid) {
        return Ok(());
    }
    let (user, group) = (rustix::fs::Uid::from_raw(owner.st_uid), rustix::fs::Gid::from_raw(owner.st_gid));
    rustix::fs::fchown(&made, Some(user), Some(group))
}

/// The place of a written file.
#[derive(Debug, Clone, Copy)]
enum WriteTarget {
    Replace,
    Create,
    /// Beside its final place.
    Stage {
        synced: bool,
    },
}

/// How the name of a file ends while it is written. There is one writer at a time, so the name need not be unique, and the
/// next writer writes over what a crash left.
const UNFINISHED: &str = ".agency-new";

/// Beside a file, under this name, lies a whole version of it: ours before an exchange, another one after it.
fn beside(name: &str) -> String {
    let (folder, last) = name.rsplit_once('/').map_or(("", name), |(folder, last)| (folder, last));
    let slash = if folder.is_empty() { "" } else { "/" };
    format!("{folder}{slash}.{last}.agency-swap")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_inside_the_folder_and_nowhere_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let (tree, at) =
            (RepoTree::open(folder.path()).expect("a tree"), |name: &str| folder.path().join(name));
        tree.create("docs/AGENTS.md", b"x").expect("made");
        for (link, target) in [
            ("A.md", "docs/AGENTS.md"),
            ("docs/B.md", "../A.md"),
            ("C.md", "./docs/../docs/new.md"),
            ("out.md", "../x.md"),
            ("absolute.md", "/etc/passwd"),
            ("loop.md", "loop.md"),
            ("deep.md", "docs/../../x.md"),
            ("self.md", "."),
        ] {
            symlink(target, at(link)).expect("linked");
        }
        for (name, leads) in [
            ("docs/AGENTS.md", "docs/AGENTS.md"),
            ("A.md", "docs/AGENTS.md"),
            ("docs/B.md", "docs/AGENTS.md"),
            ("C.md", "docs/new.md"),
            ("gone.md", "gone.md"),
            ("gone/a.md", "gone/a.md"),
        ] {
            assert_eq!(tree.follow(name).expect(name), leads);
        }
        for name in ["out.md", "absolute.md", "loop.md", "deep.md", "self.md"] {
            assert!(matches!(tree.follow(name), Err(RepoTreeError::Link { .. })), "{name}");
        }
    }

    /// The name was a file when it was resolved, and is a link when it is written.
    #[test]
    fn a_link_that_is_put_in_the_place_of_a_target_is_not_written_through() {
        let folder = tempfile::tempdir().expect("a folder");
        let outside = tempfile::tempdir().expect("a folder");
        let tree = RepoTree::open(folder.path()).expect("a tree");
        tree.create("AGENTS.md", b"x").expect("made");
        symlink("AGENTS.md", folder.path().join("CLAUDE.md")).expect("linked");
        let target = tree.follow("CLAUDE.md").expect("inside");
        let victim = outside.path().join("victim");
        std::fs::write(&victim, "theirs").expect("written");
        std::fs::remove_file(folder.path().join("AGENTS.md")).expect("removed");
        symlink(&victim, folder.path().join("AGENTS.md")).expect("linked");
        assert!(matches!(tree.read(&target), Err(RepoTreeError::Link { .. })));
        assert!(matches!(tree.replace(&target, b"ours"), Err(RepoTreeError::Link { .. })));
        assert!(tree.create(&target, b"ours").is_err());
        assert_eq!(std::fs::read_to_string(&victim).expect("read"), "theirs");
    }
}
