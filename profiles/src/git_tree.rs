//! Computes the git tree id of a folder as it is.
//!
//! A proof is about certain bytes, and a git tree id names them: the bytes of the last commit, of uncommitted work, and
//! of new files that no rule ignores. We compute it ourselves, because git would walk a tree that a stranger wrote and
//! obey the filters, attributes and configuration of nested repositories in it. Contents are taken raw, as everywhere
//! in this project, so the id of a file that git would convert (line endings, large file storage) is that of its bytes
//! on disk.
//!
//! We ask git one question, in an environment of our own: the contents of the last commit. A file that the commit has
//! counts even if a rule ignores it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Bound;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use agency_sandbox::git::{GitError, IsolatedGit};
use agency_sandbox::path::RelPath;
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::ignore_rules::IgnoreRules;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use sha2::Digest;

use crate::git_head::{GitHead, HashAlgorithm};
use crate::project_files;

const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_000;
const SUBMODULE: u32 = 0o160_000;
const TREE: u32 = 0o040_000;

/// How often a file is read again that changes while it is read.
const ATTEMPTS: usize = 3;

/// Everything of a folder that would be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderListing {
    format: HashAlgorithm,
    entries: BTreeMap<RelPath, GitEntry>,
    /// Nested repositories. Each is named by its recorded commit, or not at all.
    pub nested: Vec<RelPath>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct GitEntry {
    mode: u32,
    id: Vec<u8>,
}

/// The contents of the last commit.
#[derive(Debug, Clone, Default)]
pub struct CommittedTree {
    entries: BTreeMap<RelPath, GitEntry>,
    /// The id of its tree.
    pub tree: Option<String>,
}

/// Why a tree's id could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum TreeIdError {
    #[error("can't read {} to name the tree it is in", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} changes all the time, so the tree it is in has no name", path.display())]
    Restless { path: PathBuf },
    #[error("git can't list the commit {commit}")]
    Git { commit: String, source: GitError },
    #[error("git lists the commit {commit} in a form that is not known")]
    Unknown { commit: String },
}

impl CommittedTree {
    /// Reads a commit. `scratch` is an empty folder of ours, in which git runs.
    pub fn read(head: &GitHead, objects: &Path, scratch: &Path) -> Result<Self, TreeIdError> {
        let Some(commit) = &head.commit else { return Ok(Self::default()) };
        let failed = |source| TreeIdError::Git { commit: commit.clone(), source };
        let git = IsolatedGit::create(Path::new("git"), scratch).map_err(failed)?.with_objects(objects);
        if head.format == HashAlgorithm::Sha256 {
            const CONFIG: &str = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n";
            let path = scratch.join("config");
            std::fs::write(&path, CONFIG).map_err(|source| TreeIdError::Read { path, source })?;
        }
        let tree = git.run(["rev-parse", &format!("{commit}^{{tree}}")]).map_err(failed)?;
        let listed = git.run(["ls-tree", "-r", "-z", "--full-tree", commit]).map_err(failed)?;
        let entries = listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()).map(parse_line);
        let entries: Option<_> = entries.collect();
        let entries = entries.ok_or_else(|| TreeIdError::Unknown { commit: commit.clone() })?;
        Ok(Self { entries, tree: Some(String::from_utf8_lossy(&tree).trim().to_owned()) })
    }

    fn below(&self, directory: &RelPath) -> impl Iterator<Item = (&RelPath, &GitEntry)> {
        let from = (Bound::Excluded(directory.clone()), Bound::Unbounded);
        // `a.b` sorts between `a` and `a/b`.
        let past = |path: &RelPath| !path.as_bytes().starts_with(directory.as_bytes());
        self.entries
            .range(from)
            .take_while(move |(path, _)| !past(path))
            .filter(|(path, _)| path.is_within(directory))
    }
}

/// `100644 blob 0123…<tab>path`
fn parse_line(line: &[u8]) -> Option<(RelPath, GitEntry)> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let mut parts = std::str::from_utf8(&line[..tab]).ok()?.split(' ');
    let mode = u32::from_str_radix(parts.next()?, 8).ok()?;
    let id = parts.nth(1)?;
    let digits = |at: usize| u8::from_str_radix(id.get(at..at + 2)?, 16).ok();
    let id = (0..id.len()).step_by(2).map(digits).collect::<Option<_>>()?;
    Some((RelPath::parse(&line[tab + 1..]).ok()?, GitEntry { mode, id }))
}

impl FolderListing {
    /// Lists the whole folder.
    pub fn read(
        folder: &WorkspaceFolder,
        format: HashAlgorithm,
        recorded: &CommittedTree,
    ) -> Result<Self, TreeIdError> {
        let failed = |source| TreeIdError::Read { path: folder.root.clone(), source };
        let root = project_files::open_folder(&folder.root).map_err(failed)?;
        let ignored = folder.ignored();
        let mut walk = ListingWalk {
            folder,
            root,
            ignored,
            recorded,
            listing: Self { format, entries: BTreeMap::new(), nested: Vec::new() },
        };
        walk.read_all()?;
        Ok(walk.listing)
    }

    /// The id git would give the tree, in hexadecimal.
    pub fn id(&self) -> String {
        let all: Vec<(&[u8], &GitEntry)> =
            self.entries.iter().map(|(path, entry)| (path.as_bytes(), entry)).collect();
        hex(&tree_id(self.format, &all))
    }

    /// The paths in which two listings of a folder differ.
    pub fn differences(&self, later: &Self) -> Vec<RelPath> {
        let changed = self.entries.iter().filter(|(path, entry)| later.entries.get(*path) != Some(*entry));
        let added = later.entries.keys().filter(|path| !self.entries.contains_key(*path));
        let mut paths: Vec<RelPath> = changed.map(|(path, _)| path).chain(added).cloned().collect();
        paths.sort();
        paths
    }
}

/// Full paths sort as git sorts the names in a tree, because a folder's slash takes part: so the entries of a folder
/// are adjacent and in git's order already.
fn tree_id(format: HashAlgorithm, entries: &[(&[u8], &GitEntry)]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut add = |mode: u32, name: &[u8], id: &[u8]| {
        text.extend_from_slice(format!("{mode:o} ").as_bytes());
        text.extend_from_slice(name);
        text.push(0);
        text.extend_from_slice(id);
    };
    let mut rest = entries;
    while let Some((path, entry)) = rest.first() {
        let Some(slash) = path.iter().position(|byte| *byte == b'/') else {
            add(entry.mode, path, &entry.id);
            rest = &rest[1..];
            continue;
        };
        let count = rest.iter().take_while(|(other, _)| other.starts_with(&path[..=slash])).count();
        let inside: Vec<_> = rest[..count].iter().map(|(path, entry)| (&path[slash + 1..], *entry)).collect();
        add(TREE, &path[..slash], &tree_id(format, &inside));
        rest = &rest[count..];
    }
    let mut hasher = ObjectHasher::new(format, "tree", text.len() as u64);
    hasher.update(&text);
    hasher.finish()
}

/// One walk through a folder.
struct ListingWalk<'a> {
    folder: &'a WorkspaceFolder,
    root: OwnedFd,
    ignored: IgnoreRules,
    recorded: &'a CommittedTree,
    listing: FolderListing,
}

impl ListingWalk<'_> {
    fn read_all(&mut self) -> Result<(), TreeIdError> {
        let mut waiting = vec![RelPath::root()];
        while let Some(directory) = waiting.pop() {
            for (name, kind) in self.list(&directory)? {
                let path = directory.join(&name);
                if directory.is_root() && name == b".git" {
                    continue;
                }
                if kind != FileType::Directory {
                    let wanted =
                        self.recorded.entries.contains_key(&path) || !self.ignored.is_scratch(&path, false);
                    if wanted {
                        self.add(&path)?;
                    }
                } else if self.is_repository(&path) {
                    self.add_repository(path);
                } else if self.ignored.is_scratch(&path, true) {
                    let tracked: Vec<RelPath> =
                        self.recorded.below(&path).map(|(path, _)| path.clone()).collect();
                    for path in tracked {
                        self.add(&path)?;
                    }
                } else {
                    // A submodule that was never fetched is an empty folder.
                    match self.recorded.entries.get(&path) {
                        Some(entry) if entry.mode == SUBMODULE => self.add_repository(path),
                        _ => waiting.push(path),
                    }
                }
            }
        }
        Ok(())
    }

    /// A nested repository is not read. One that the last commit has keeps its recorded commit.
    fn add_repository(&mut self, path: RelPath) {
        if let Some(entry) = self.recorded.entries.get(&path).filter(|entry| entry.mode == SUBMODULE) {
            self.listing.entries.insert(path.clone(), entry.clone());
        }
        self.listing.nested.push(path);
    }

    fn is_repository(&self, path: &RelPath) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.open(&path.join(b".git"), flags).is_ok()
    }

    fn list(&self, directory: &RelPath) -> Result<Vec<(Vec<u8>, FileType)>, TreeIdError> {
        let failed = |error: Errno| self.failed(directory, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = match self.open(directory, flags) {
            Ok(held) => held,
            // It was removed meanwhile.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::new(held).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                found.push((name.to_vec(), self.kind_of(directory, &entry)));
            }
        }
        Ok(found)
    }

    /// The kind of an entry; some file systems do not give it in the list.
    fn kind_of(&self, directory: &RelPath, entry: &rustix::fs::DirEntry) -> FileType {
        if entry.file_type() != FileType::Unknown {
            return entry.file_type();
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = self.open(&directory.join(entry.file_name().to_bytes()), flags);
        let stat = held.and_then(rustix::fs::fstat);
        stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
    }

    /// Adds a file or a link. Other kinds are left out, and so are files that were removed meanwhile.
    fn add(&mut self, path: &RelPath) -> Result<(), TreeIdError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let stat = match self.open(path, flags).and_then(rustix::fs::fstat) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(self.failed(path, error)),
        };
        let entry = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => self.link(path)?,
            FileType::RegularFile => self.file(path)?,
            _ => return Ok(()),
        };
        self.listing.entries.extend(entry.map(|entry| (path.clone(), entry)));
        Ok(())
    }

    fn link(&self, path: &RelPath) -> Result<Option<GitEntry>, TreeIdError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The empty name means the open link itself.
        let target = self.open(path, flags).and_then(|held| rustix::fs::readlinkat(held, c"", Vec::new()));
        let target = match target {
            Ok(target) => target.into_bytes(),
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(self.failed(path, error)),
        };
        let mut hasher = ObjectHasher::new(self.listing.format, "blob", target.len() as u64);
        hasher.update(&target);
        Ok(Some(GitEntry { mode: LINK, id: hasher.finish() }))
    }

    fn file(&self, path: &RelPath) -> Result<Option<GitEntry>, TreeIdError> {
        let failed =
            |source: io::Error| TreeIdError::Read { path: self.folder.root.join(path.as_path()), source };
        for _ in 0..ATTEMPTS {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = match self.open(path, flags) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(failed(error.into())),
            };
            let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
            let size = stat.st_size as u64;
            let mut hasher = ObjectHasher::new(self.listing.format, "blob", size);
            if hasher.update_from(file).map_err(failed)? == size {
                let mode = if stat.st_mode & 0o100 == 0 { FILE } else { PROGRAM };
                return Ok(Some(GitEntry { mode, id: hasher.finish() }));
            }
        }
        Err(TreeIdError::Restless { path: self.folder.root.join(path.as_path()) })
    }

    fn open(&self, path: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_root() { Path::new(".") } else { path.as_path() };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }

    fn failed(&self, path: &RelPath, error: Errno) -> TreeIdError {
        TreeIdError::Read { path: self.folder.root.join(path.as_path()), source: error.into() }
    }
}

/// Hashes an object: its kind and size come first.
enum ObjectHasher {
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
}

impl ObjectHasher {
    fn new(format: HashAlgorithm, kind: &str, size: u64) -> Self {
        let mut hasher = match format {
            HashAlgorithm::Sha1 => Self::Sha1(sha1::Sha1::new()),
            HashAlgorithm::Sha256 => Self::Sha256(sha2::Sha256::new()),
        };
        hasher.update(format!("{kind} {size}\0").as_bytes());
        hasher
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
        }
    }

    /// Hashes a whole file, and returns its size.
    fn update_from(&mut self, mut file: File) -> io::Result<u64> {
        let mut buffer = [0; 64 * 1024];
        let mut total = 0;
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(total),
                Ok(length) => {
                    self.update(&buffer[..length]);
                    total += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha1(hasher) => hasher.finalize().to_vec(),
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
