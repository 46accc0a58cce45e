//! A repository, found from its work tree, and what its `.git` says of itself, judged.
//!
//! A `.git` names other places: the repository of a linked worktree (`gitdir:`, `commondir`), folders of objects it
//! borrows from (`alternates`). The person who packed the folder wrote those names, and each of them could as well be
//! `~/.ssh`, or another repository whose trust a forged worktree wants to inherit. So a name is followed only where the
//! other side names this work tree too, or is by its shape nothing but git objects; and only where the owner is one git
//! would accept ([`super::ownership`]).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType};

use super::git_config;
use super::ownership::{self, OwnershipError, RepositoryOwnership};
use crate::untrusted::{self, UntrustedError};

/// A repository, as far as a sandbox cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryPaths {
    /// `.git`, or what it points at.
    pub git: PathBuf,
    /// Where objects and branches are; for a linked worktree, the main repository's.
    pub common: PathBuf,
}

/// Why a repository is not worked on.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    #[error(transparent)]
    Ownership(#[from] OwnershipError),
    #[error(transparent)]
    File(#[from] UntrustedError),
    #[error("{} names {}, which is not a repository", entry.display(), named.display())]
    NoRepository { entry: PathBuf, named: PathBuf },
    #[error("{} names {}, and that repository does not name {} as its work tree", entry.display(), named.display(), root.display())]
    NotNamedBack { entry: PathBuf, named: PathBuf, root: PathBuf },
    #[error("{} names {}, but this is no linked worktree of it", file.display(), named.display())]
    CommonDirectory { file: PathBuf, named: PathBuf },
    #[error("{} is a link or no folder", path.display())]
    Part { path: PathBuf },
    #[error("{} names {}, which is not a folder of git objects: it holds `{odd}`", list.display(), folder.display())]
    NoObjects { list: PathBuf, folder: PathBuf, odd: String },
    #[error("{} quotes a path, which is not followed", list.display())]
    QuotedAlternate { list: PathBuf },
    #[error("{} names more folders of objects than git follows", list.display())]
    TooManyAlternates { list: PathBuf },
    #[error("can't look at {}", path.display())]
    Unseen { path: PathBuf, source: io::Error },
}

impl RepositoryError {
    /// What a person can do about it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Ownership(error) => error.remedy(),
            Self::NotNamedBack { named, root, .. } => Some(format!(
                "if it is yours: `git worktree repair` there, or `git --git-dir={} config core.worktree {}`",
                named.display(),
                root.display()
            )),
            Self::NoRepository { entry, .. } => {
                Some(format!("remove {}, or restore what it names", entry.display()))
            }
            Self::CommonDirectory { file, .. } => Some(format!("remove {}", file.display())),
            Self::NoObjects { list, .. }
            | Self::QuotedAlternate { list }
            | Self::TooManyAlternates { list } => Some(format!("take the line out of {}", list.display())),
            Self::Part { path } => Some(format!("put a real folder at {}", path.display())),
            Self::File(_) | Self::Unseen { .. } => None,
        }
    }
}

/// A folder of git objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectFolder {
    pub path: PathBuf,
    /// Another repository names it by this very path.
    pub absolute: bool,
}

/// Files of a repository that every git opens and reads as a whole, and how large they may be. A million references take
/// 70 MiB.
const OPENED_BY_GIT: &[(&str, u64)] = &[
    ("config", git_config::LARGEST),
    ("packed-refs", 256 << 20),
    ("shallow", 256 << 20),
    ("info/exclude", 1 << 20),
];

/// Files of a `.git` that hold one path or one reference.
const SMALL: u64 = 64 << 10;

impl RepositoryPaths {
    /// The repository whose work tree this folder is; `None` where the folder has none.
    pub fn discover(root: &Path) -> Result<Option<(Self, RepositoryOwnership)>, RepositoryError> {
        let entry = root.join(".git");
        let kind = match entry.symlink_metadata() {
            Ok(meta) => meta.file_type(),
            Err(_) => return Ok(None),
        };
        if kind.is_dir() {
            return Self::of_folder(root, entry);
        }
        if !kind.is_file() {
            return Ok(None);
        }
        Self::of_file(root, entry).map(Some)
    }

    /// A `.git` that is the repository itself.
    fn of_folder(root: &Path, git: PathBuf) -> Result<Option<(Self, RepositoryOwnership)>, RepositoryError> {
        let custody = ownership::check(root, &[&git]);
        if !is_repository(&git) {
            // Something else of this name, as git sees it; the folder may lie in a repository further up.
            return Ok(None);
        }
        let custody = custody?;
        if let Some(text) = untrusted::read(&git, "commondir", SMALL)? {
            let named = git.join(path_of(&text));
            return Err(RepositoryError::CommonDirectory { file: git.join("commondir"), named });
        }
        let repository = Self { common: git.clone(), git };
        repository.check_parts()?;
        Ok(Some((repository, custody)))
    }

    /// A `.git` that says where the repository is: of a linked worktree, or of a submodule.
    fn of_file(root: &Path, entry: PathBuf) -> Result<(Self, RepositoryOwnership), RepositoryError> {
        // Before it is read.
        ownership::check(root, &[&entry])?;
        let text = untrusted::read(root, ".git", SMALL)?.unwrap_or_default();
        let named = root.join(path_of(text.strip_prefix(b"gitdir:").unwrap_or_default()));
        let missing = || RepositoryError::NoRepository { entry: entry.clone(), named: named.clone() };
        let git = named.canonicalize().ok().filter(|git| git != root && git.is_dir()).ok_or_else(missing)?;
        ownership::check(root, &[&git])?;
        let common = match untrusted::read(&git, "commondir", SMALL)? {
            Some(text) => git.join(path_of(&text)).canonicalize().map_err(|_| missing())?,
            None => git.clone(),
        };
        let custody = ownership::check(root, &[&entry, &git, &common])?;
        if !is_repository(&common) || !untrusted::exists(&git, "HEAD") {
            return Err(missing());
        }
        let repository = Self { git, common };
        match repository.names_back(&entry, root)? {
            true => repository.check_parts().map(|()| (repository, custody)),
            false => {
                Err(RepositoryError::NotNamedBack { entry, named: repository.git, root: root.to_owned() })
            }
        }
    }

    /// Whether a repository elsewhere says itself that this is its work tree.
    fn names_back(&self, entry: &Path, root: &Path) -> Result<bool, RepositoryError> {
        if self.git != self.common {
            let linked = self.git.parent() == Some(&*self.common.join("worktrees"));
            let text = untrusted::read(&self.git, "gitdir", SMALL)?.unwrap_or_default();
            let back = self.git.join(path_of(&text));
            let parent = back.parent().and_then(|parent| parent.canonicalize().ok());
            return Ok(linked && back.file_name() == entry.file_name() && parent.as_deref() == Some(root));
        }
        let config = untrusted::read_text(&self.common, "config", git_config::LARGEST)?.unwrap_or_default();
        let worktree = git_config::settings(&config).get("core.worktree").map(|path| self.git.join(path));
        Ok(worktree.and_then(|path| path.canonicalize().ok()).as_deref() == Some(root))
    }

    /// Objects and references lie in the repository itself and not behind a link, and what objects it borrows are
    /// objects.
    fn check_parts(&self) -> Result<(), RepositoryError> {
        for name in ["objects", "refs"] {
            let path = self.common.join(name);
            if !path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                return Err(RepositoryError::Part { path });
            }
            if let Some(link) = link_in(&self.common, name)? {
                return Err(RepositoryError::Part { path: path.join(link) });
            }
        }
        untrusted::check(&self.git, &[("HEAD", SMALL), ("config.worktree", git_config::LARGEST)])?;
        untrusted::check(&self.common, OPENED_BY_GIT)?;
        untrusted::check_folder(&self.common, Path::new("objects/pack"), 0, u64::MAX)?;
        self.object_folders().map(drop)
    }

    /// That git finds files where it looks for objects: it would wait for a pipe for ever. Every folder of loose objects is
    /// listed, which is for those who read many of them.
    pub fn check_objects(&self) -> Result<(), UntrustedError> {
        untrusted::check_folder(&self.common, Path::new("objects"), 1, u64::MAX)
    }

    /// A file of the repository, up to a size; `None` where there is none.
    pub fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, UntrustedError> {
        untrusted::read(&self.common, name, most)
    }

    /// Where its objects are; the first is its own, the others are those it borrows from.
    pub fn object_folders(&self) -> Result<Vec<ObjectFolder>, RepositoryError> {
        /// Git follows five levels.
        const MOST: usize = 32;
        let own = self.common.join("objects");
        let mut found = vec![ObjectFolder { path: own, absolute: false }];
        let mut next = 0;
        while next < found.len() {
            let folder = found[next].path.clone();
            next += 1;
            let list = folder.join("info/alternates");
            let text = untrusted::read(&folder, "info/alternates", SMALL)?.unwrap_or_default();
            for line in text.split(|byte| *byte == b'\n') {
                if line.is_empty() || line[0] == b'#' {
                    continue;
                }
                if line[0] == b'"' {
                    return Err(RepositoryError::QuotedAlternate { list });
                }
                let named = Path::new(OsStr::from_bytes(line));
                let Ok(path) = folder.join(named).canonicalize() else { continue };
                if found.iter().any(|known| known.path == path) {
                    continue;
                }
                if found.len() == MOST {
                    return Err(RepositoryError::TooManyAlternates { list });
                }
                check_object_folder(&list, &path)?;
                found.push(ObjectFolder { path, absolute: named.is_absolute() });
            }
        }
        Ok(found)
    }
}

/// The shape that makes git take a folder for a repository.
fn is_repository(folder: &Path) -> bool {
    let is_folder = |name: &str| folder.join(name).is_dir();
    untrusted::exists(folder, "HEAD") && is_folder("objects") && is_folder("refs")
}

/// A link among what a folder of the repository holds.
fn link_in(common: &Path, name: &str) -> Result<Option<PathBuf>, RepositoryError> {
    let path = common.join(name);
    let failed =
        |error: rustix::io::Errno| RepositoryError::Unseen { path: path.clone(), source: error.into() };
    let Some(held) = untrusted::open_folder(common, name) else { return Ok(None) };
    for entry in Dir::new(held).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type() == FileType::Symlink {
            return Ok(Some(PathBuf::from(OsStr::from_bytes(entry.file_name().to_bytes()))));
        }
    }
    Ok(None)
}

/// That a folder holds git objects and nothing else, and is one git would accept the owner of.
fn check_object_folder(list: &Path, folder: &Path) -> Result<(), RepositoryError> {
    let odd =
        |odd: String| RepositoryError::NoObjects { list: list.to_owned(), folder: folder.to_owned(), odd };
    ownership::check_borrowed(folder)?;
    let is_hex = |name: &[u8]| name.iter().all(u8::is_ascii_hexdigit);
    let mut waiting = vec![PathBuf::from(".")];
    while let Some(path) = waiting.pop() {
        let top = path == Path::new(".");
        let Some(held) = untrusted::open_folder(folder, &path) else {
            return Err(odd(path.display().to_string()));
        };
        let failed = |error: rustix::io::Errno| RepositoryError::Unseen {
            path: folder.join(&path),
            source: error.into(),
        };
        for entry in Dir::new(held).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            let is_folder = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
            let is_file = matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown);
            let known = match name {
                b"." | b".." => true,
                b"info" | b"pack" if top => is_folder,
                name if top && name.len() == 2 && is_hex(name) && is_folder => {
                    waiting.push(PathBuf::from(OsStr::from_bytes(name)));
                    true
                }
                // What a git that was killed leaves.
                name if name.starts_with(b"tmp_obj") => is_file,
                name => !top && is_file && matches!(name.len(), 38 | 62) && is_hex(name),
            };
            if !known {
                return Err(odd(crate::path::escape(name)));
            }
        }
    }
    for name in ["pack", "info"] {
        if let Some(link) = link_in(folder, name)? {
            return Err(odd(link.display().to_string()));
        }
    }
    Ok(())
}

/// The path a file consists of.
fn path_of(text: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(text.trim_ascii()))
}
