//! A person's index: its entries for the paths that change, and its replacement.
//!
//! We replace the index as git does. The new index is `index.lock`, which keeps every other git away, and then replaces
//! `index` by a rename. It is complete before it becomes the lock, and our journal knows the file by then. So after a
//! crash we can tell our own lock from a person's.

#![allow(clippy::disallowed_methods, reason = "opens our own helper repository, and a folder to sync")]

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use agency_sandbox::path::RelPath;
use agency_sandbox::untrusted;
use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

use super::checkout_staging::{self, CheckoutStaging};
use super::error::{Error, files, untrusted};
use super::file_stamp::{FileIdentity, FileStamp};
use super::names::Oid;
use super::tree_diff::{ChangedPath, GitTreeEntry, GitTreeEntryKind};

/// Where a path is on the way from one tree to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexAt {
    From,
    To,
    /// A person put another entry there.
    Other,
}

/// The index's entries for the paths that change, and for paths in their way.
#[derive(Debug, Default)]
pub(super) struct IndexListing {
    /// `None` in the middle of a conflict.
    entries: HashMap<RelPath, Option<GitTreeEntry>>,
    /// Paths with something above or below them that is not part of the change.
    blocked: HashSet<RelPath>,
    /// Left out of a sparse checkout, or hidden by a person.
    skipped: HashSet<RelPath>,
}

/// The largest index that is copied. A million files take about 100 MiB.
const LARGEST: u64 = 1 << 30;

/// The name of the copy in the staging folder.
const COPY: &str = "index";

/// Copies the index into the staging folder. `None` when there is none, and so nothing is checked out.
pub(super) fn copy(bench: &CheckoutStaging, git: &Path) -> Result<Option<FileStamp>, Error> {
    let (real, copy) = (git.join("index"), bench.path(COPY));
    if real.is_symlink() {
        return Err(Error::Unsupported { path: git.to_owned(), reason: "its index is a link".to_owned() });
    }
    let before = FileStamp::of(&real)?;
    if before.is_some() {
        let mut from = untrusted::open(git, Path::new("index"), LARGEST).map_err(untrusted(git))?;
        let mut to = File::create(&copy).map_err(files("write", &copy))?;
        if let Some(from) = &mut from {
            std::io::copy(from, &mut to).map_err(files("copy", &real))?;
        }
    }
    match FileStamp::of(&real)? == before {
        true => Ok(before),
        false => Err(Error::Busy { what: real.display().to_string() }),
    }
}

impl IndexListing {
    /// Reads the whole copy: a path's obstacle may be above or below it.
    pub(super) fn read(bench: &CheckoutStaging, changed: &[ChangedPath]) -> Result<Self, Error> {
        let output = bench.run(COPY, "new", "ls-files", ["ls-files", "-s", "-v", "-z", "--full-name"])?;
        Self::parse(&output, changed).ok_or(Error::Answer { doing: "list an index" })
    }

    /// `H 100644 <object> <stage> TAB path NUL …`
    fn parse(output: &[u8], changed: &[ChangedPath]) -> Option<Self> {
        let exact: HashSet<&[u8]> = changed.iter().map(|one| one.path.as_bytes()).collect();
        let gone: HashSet<&[u8]> =
            changed.iter().filter(|one| one.new.is_none()).map(|one| one.path.as_bytes()).collect();
        let mut above: HashMap<RelPath, Vec<&RelPath>> = HashMap::new();
        for one in changed {
            one.path.ancestors().for_each(|folder| above.entry(folder).or_default().push(&one.path));
        }
        let mut listing = Self::default();
        for line in output.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let tab = line.iter().position(|byte| *byte == b'\t')?;
            let name = &line[tab + 1..];
            if !gone.contains(name) {
                let folders =
                    name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| &name[..end]);
                for folder in folders.filter(|folder| exact.contains(folder)) {
                    listing.blocked.insert(RelPath::parse(folder).ok()?);
                }
            }
            let path = RelPath::parse(name).ok()?;
            if let Some(below) = above.get(&path).filter(|_| !gone.contains(name)) {
                listing.blocked.extend(below.iter().map(|path| (*path).clone()));
            }
            if !exact.contains(name) {
                continue;
            }
            let text = std::str::from_utf8(&line[..tab]).ok()?;
            let [tag, mode, object, stage] = text.split(' ').collect::<Vec<_>>()[..] else { return None };
            let entry = GitTreeEntryKind::parse(mode).zip(Oid::parse(object).ok()).filter(|_| stage == "0");
            if tag.eq_ignore_ascii_case("s") {
                listing.skipped.insert(path.clone());
            }
            listing.entries.insert(path, entry.map(|(kind, object)| GitTreeEntry { kind, object }));
        }
        Some(listing)
    }

    /// Whether a path's entry is the old one, the new one or another.
    pub(super) fn at(&self, one: &ChangedPath) -> IndexAt {
        let entry = match self.entries.get(&one.path) {
            Some(None) => return IndexAt::Other,
            Some(Some(entry)) => Some(entry),
            None => None,
        };
        match entry {
            entry if entry == one.new.as_ref() => IndexAt::To,
            // A path that is removed needs no room.
            _ if one.new.is_some() && self.blocked.contains(&one.path) => IndexAt::Other,
            entry if entry == one.old.as_ref() => IndexAt::From,
            _ => IndexAt::Other,
        }
    }

    /// What is staged at a path that changes.
    pub(super) fn entry(&self, path: &RelPath) -> Option<&GitTreeEntry> {
        self.entries.get(path)?.as_ref()
    }

    pub(super) fn is_skipped(&self, path: &RelPath) -> bool {
        self.skipped.contains(path)
    }
}

/// Changes the copy to the next index, and returns its bytes.
pub(super) fn rewrite(
    bench: &CheckoutStaging,
    changed: &[&ChangedPath],
    skipped: &HashSet<RelPath>,
) -> Result<Vec<u8>, Error> {
    bench.set_paths(COPY, changed.iter().map(|one| (&one.path, one.new.as_ref())))?;
    let marked: Vec<&RelPath> = changed
        .iter()
        .filter(|one| one.new.is_some() && skipped.contains(&one.path))
        .map(|one| &one.path)
        .collect();
    if !marked.is_empty() {
        let arguments = ["update-index", "--skip-worktree", "-z", "--stdin"];
        CheckoutStaging::run_with(
            bench.command(COPY, "new", arguments),
            "update-index",
            marked,
            checkout_staging::write_path,
        )?;
    }
    let path = bench.path(COPY);
    fs::read(&path).map_err(files("read", &path))
}

/// The next index, complete, in a file beside the present index.
#[derive(Debug)]
pub(super) struct NextIndex {
    git: PathBuf,
    pub(super) file: FileIdentity,
}

const NEXT: &str = "index.agency";
const LOCK: &str = "index.lock";

impl NextIndex {
    /// Writes the next index with the mode of the present one.
    pub(super) fn write(git: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let (path, real) = (git.join(NEXT), git.join("index"));
        let failed = files("write", &path);
        let _ = fs::remove_file(&path);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(&failed)?;
        file.write_all(bytes).map_err(&failed)?;
        let old = fs::metadata(&real).ok();
        let mode = old.as_ref().map_or(0o644, |stat| stat.permissions().mode() & 0o777);
        file.set_permissions(fs::Permissions::from_mode(mode)).map_err(&failed)?;
        // A file that was edited in the second in which it was added looks unchanged. Git recognizes such a file by the
        // time of the index, and compares its contents; with a younger index it would not.
        if let Some(time) = old.and_then(|stat| stat.modified().ok()) {
            file.set_modified(time).map_err(&failed)?;
        }
        file.sync_all().map_err(&failed)?;
        let file = FileIdentity::of(&file.metadata().map_err(&failed)?);
        Ok(Self { git: git.to_owned(), file })
    }

    /// Makes the next index the lock; `false` when another git has the lock.
    pub(super) fn lock(&self) -> Result<bool, Error> {
        let (next, lock) = (self.git.join(NEXT), self.git.join(LOCK));
        let locked = match rustix::fs::renameat_with(CWD, &next, CWD, &lock, RenameFlags::NOREPLACE) {
            // Network file systems do not support the flags of `renameat2`, but hard links.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rustix::fs::linkat(CWD, &next, CWD, &lock, AtFlags::empty())
            }
            other => other,
        };
        match locked {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(files("lock", &lock)(error)),
        }
    }

    /// Puts the next index in place. That releases the lock.
    pub(super) fn place(&self) -> Result<(), Error> {
        let (lock, real) = (self.git.join(LOCK), self.git.join("index"));
        fs::rename(&lock, &real).map_err(files("replace", &real))?;
        let _ = fs::remove_file(self.git.join(NEXT));
        let folder = File::open(&self.git).map_err(files("open", &self.git))?;
        folder.sync_all().map_err(files("sync", &self.git))
    }
}

/// Removes the lock that an unfinished landing left, and no lock of another program.
pub(super) fn unlock(git: &Path, next: &FileIdentity) -> Result<(), Error> {
    for name in [LOCK, NEXT] {
        let path = git.join(name);
        if name == LOCK && !next.is_at(&path) {
            continue;
        }
        match fs::remove_file(&path) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(files("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a git holds the lock of the index.
pub(super) fn is_locked(git: &Path) -> bool {
    git.join(LOCK).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oid(digit: char) -> Oid {
        Oid::parse(&digit.to_string().repeat(40)).expect("a name")
    }

    fn changed(path: &str, old: Option<char>, new: Option<char>) -> ChangedPath {
        let entry = |digit: char| GitTreeEntry { kind: GitTreeEntryKind::File, object: oid(digit) };
        let path = RelPath::parse(path.as_bytes()).expect("a path");
        ChangedPath { path, old: old.map(entry), new: new.map(entry), target: None }
    }

    fn at(listed: &[(&str, char, &str)], changed: &[ChangedPath]) -> Vec<IndexAt> {
        let text: String = listed
            .iter()
            .map(|(tag, digit, path)| format!("{tag} 100644 {} 0\t{path}\0", oid(*digit)))
            .collect();
        let listing = IndexListing::parse(text.as_bytes(), changed).expect("parses");
        changed.iter().map(|one| listing.at(one)).collect()
    }

    #[test]
    fn a_path_is_where_it_was_where_it_goes_or_somewhere_else() {
        let paths = [changed("a", Some('1'), Some('2'))];
        assert_eq!(at(&[("H", '1', "a"), ("H", '9', "b")], &paths), [IndexAt::From]);
        assert_eq!(at(&[("H", '2', "a")], &paths), [IndexAt::To]);
        assert_eq!(at(&[("H", '3', "a")], &paths), [IndexAt::Other]);
        assert_eq!(at(&[], &paths), [IndexAt::Other]);
        assert_eq!(at(&[], &[changed("a", None, Some('2'))]), [IndexAt::From]);
        assert_eq!(at(&[], &[changed("a", Some('1'), None)]), [IndexAt::To]);
    }

    #[test]
    fn a_conflict_is_somewhere_else() {
        let text = format!("M 100644 {} 1\ta\0M 100644 {} 2\ta\0", oid('1'), oid('2'));
        let paths = [changed("a", Some('1'), Some('2'))];
        let listing = IndexListing::parse(text.as_bytes(), &paths).expect("parses");
        assert_eq!(listing.at(&paths[0]), IndexAt::Other);
    }

    #[test]
    fn a_file_a_person_staged_above_or_below_is_in_the_way() {
        let below = [changed("a", None, Some('2'))];
        assert_eq!(at(&[("H", '1', "a/b")], &below), [IndexAt::Other]);
        let above = [changed("a/b", None, Some('2'))];
        assert_eq!(at(&[("H", '1', "a")], &above), [IndexAt::Other]);
        assert_eq!(at(&[("H", '1', "a.b"), ("H", '1', "ab")], &above), [IndexAt::From]);
    }

    #[test]
    fn a_folder_that_gives_way_to_a_file_is_not() {
        let paths = [changed("d", None, Some('2')), changed("d/one", Some('1'), None)];
        assert_eq!(at(&[("H", '1', "d/one")], &paths), [IndexAt::From, IndexAt::From]);
        assert_eq!(at(&[("H", '2', "d")], &paths), [IndexAt::To, IndexAt::To]);
    }
}
