//! The fingerprint of a directory tree, to show that nothing in it changed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Everything about a tree that an attack could change. Access times are left out: looking changes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: &'static str,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    device: u64,
    modified: (i64, i64),
    /// Target of a link, or length and hash of a file.
    content: String,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Tree {
    pub fn of(root: &Path) -> io::Result<Self> {
        Self::of_all_but(root, &[])
    }

    /// Leaves out what is below `ignored`, which are relative to the root.
    pub fn of_all_but(root: &Path, ignored: &[&Path]) -> io::Result<Self> {
        let mut entries = BTreeMap::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(relative) = waiting.pop() {
            if ignored.contains(&relative.as_path()) {
                continue;
            }
            // Without the slash that joining an empty path would leave: it would follow a link.
            let path = if relative.as_os_str().is_empty() { root.to_owned() } else { root.join(&relative) };
            let entry = Entry::of(&path)?;
            if entry.kind == "directory" {
                for child in fs::read_dir(&path)? {
                    waiting.push(relative.join(child?.file_name()));
                }
            }
            entries.insert(relative, entry);
        }
        Ok(Self { entries })
    }

    /// What is different in a later fingerprint, one line for each path; nothing if they are the same.
    pub fn diff(&self, later: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, before) in &self.entries {
            match later.entries.get(path) {
                None => lines.push(format!("{}: deleted", shown(path))),
                Some(after) if after != before => {
                    lines.push(format!("{}: {}", shown(path), before.changes(after)));
                }
                Some(_) => {}
            }
        }
        for (path, after) in &later.entries {
            if !self.entries.contains_key(path) {
                lines.push(format!("{}: created ({})", shown(path), after.kind));
            }
        }
        lines
    }

    /// Fails the calling test if the tree at `root` is no longer this one.
    #[track_caller]
    pub fn assert_unchanged(&self, root: &Path) {
        let now = Self::of(root).expect("the tree can be read");
        let changes = self.diff(&now);
        assert!(changes.is_empty(), "{} changed:\n{}", root.display(), changes.join("\n"));
    }
}

impl Entry {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        let kind = metadata.file_type();
        let (kind, content) = if kind.is_dir() {
            ("directory", String::new())
        } else if kind.is_symlink() {
            ("link", fs::read_link(path)?.as_os_str().as_bytes().escape_ascii().to_string())
        } else if kind.is_file() {
            ("file", format!("{} bytes, sha256 {}", metadata.len(), hash(path)?))
        } else if kind.is_fifo() {
            ("FIFO", String::new())
        } else if kind.is_socket() {
            ("socket", String::new())
        } else {
            ("device", String::new())
        };
        Ok(Self {
            kind,
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            // Directories count their subdirectories on some filesystems; those are entries of their own.
            links: if kind == "directory" { 0 } else { metadata.nlink() },
            device: metadata.rdev(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            content,
            xattrs: xattrs(path)?,
        })
    }

    fn changes(&self, after: &Self) -> String {
        let mut text = String::new();
        let mut note = |what: &str, before: String, after: String| {
            if before != after {
                let comma = if text.is_empty() { "" } else { ", " };
                let _ = write!(text, "{comma}{what} {before} is now {after}");
            }
        };
        note("type", self.kind.to_owned(), after.kind.to_owned());
        note("mode", format!("{:o}", self.mode), format!("{:o}", after.mode));
        note("owner", format!("{:?}", self.owner), format!("{:?}", after.owner));
        note("link count", self.links.to_string(), after.links.to_string());
        note("device", self.device.to_string(), after.device.to_string());
        note("mtime", format!("{:?}", self.modified), format!("{:?}", after.modified));
        note("content", self.content.clone(), after.content.clone());
        note("xattrs", format!("{:?}", self.xattrs), format!("{:?}", after.xattrs));
        text
    }
}

fn hash(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn xattrs(path: &Path) -> io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::NOTSUP) => return Ok(found),
        Err(errno) => return Err(errno.into()),
    };
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

fn shown(path: &Path) -> String {
    match path.as_os_str().as_bytes() {
        b"" => ".".to_owned(),
        bytes => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn sample() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("sub")).expect("made");
        fs::write(folder.path().join("sub/file"), "one").expect("written");
        std::os::unix::fs::symlink("file", folder.path().join("sub/link")).expect("linked");
        folder
    }

    #[test]
    fn looking_changes_nothing() {
        let folder = sample();
        Tree::of(folder.path()).expect("read").assert_unchanged(folder.path());
    }

    #[test]
    fn each_kind_of_change_is_named() {
        let folder = sample();
        let before = Tree::of(folder.path()).expect("read");
        let file = folder.path().join("sub/file");
        let times = fs::metadata(&file).and_then(|metadata| metadata.modified()).expect("a time");

        fs::write(&file, "two").expect("written");
        File::options().write(true).open(&file).and_then(|file| file.set_modified(times)).expect("forged");
        let lines = before.diff(&Tree::of(folder.path()).expect("read"));
        assert!(matches!(&lines[..], [line] if line.starts_with("sub/file: content 3 bytes")), "{lines:?}");

        fs::write(&file, "one").expect("written");
        File::options().write(true).open(&file).and_then(|file| file.set_modified(times)).expect("forged");
        before.assert_unchanged(folder.path());

        fs::set_permissions(&file, fs::Permissions::from_mode(0o4711)).expect("changed");
        let lines = before.diff(&Tree::of(folder.path()).expect("read"));
        assert_eq!(lines, ["sub/file: mode 644 is now 4711"]);
    }

    #[test]
    fn what_was_created_or_deleted_is_named_and_what_is_ignored_is_not() {
        let folder = sample();
        let before = Tree::of_all_but(folder.path(), &[Path::new("sub")]).expect("read");
        fs::remove_file(folder.path().join("sub/link")).expect("removed");
        let after = Tree::of_all_but(folder.path(), &[Path::new("sub")]).expect("read");
        assert_eq!(before.diff(&after), Vec::<String>::new());

        let before = Tree::of(folder.path()).expect("read");
        fs::rename(folder.path().join("sub/file"), folder.path().join("sub/new\nname")).expect("renamed");
        let lines = before.diff(&Tree::of(folder.path()).expect("read"));
        assert!(lines.contains(&"sub/file: deleted".to_owned()), "{lines:?}");
        assert!(lines.contains(&"sub/new\\nname: created (file)".to_owned()), "{lines:?}");
    }
}
