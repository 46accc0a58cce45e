//! The work trees of a repository: which has a branch checked out, and which operation a person has begun there.
//!
//! Everything is read from git's files; a git command would obey the repository's configuration.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::{Error, files};
use super::file_access::read_file;
use super::names::RefName;
use super::refs;
use super::repository::LandingRepository;

/// A folder with its own HEAD and index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    /// The folder of its files; `None` where the git directory does not say.
    pub root: Option<PathBuf>,
    /// Where its HEAD and index are.
    pub git: PathBuf,
    /// Whether a person locked it, because its folder may be missing for a while.
    pub locked: bool,
}

/// What the HEAD of a work tree names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorktreeHead {
    Branch(RefName),
    /// At a commit, and on no branch.
    Detached,
}

/// An operation that a person has begun and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GitOperation {
    Merge,
    CherryPick,
    Revert,
    Rebase,
    Bisect,
}

impl fmt::Display for GitOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Merge => "a merge",
            Self::CherryPick => "a cherry-pick",
            Self::Revert => "a revert",
            Self::Rebase => "a rebase",
            Self::Bisect => "a bisect",
        })
    }
}

/// The files in a work tree's git directory while an operation is not ended.
const TRACES: [(&str, GitOperation); 7] = [
    ("MERGE_HEAD", GitOperation::Merge),
    ("CHERRY_PICK_HEAD", GitOperation::CherryPick),
    ("REVERT_HEAD", GitOperation::Revert),
    ("rebase-merge", GitOperation::Rebase),
    ("rebase-apply", GitOperation::Rebase),
    ("sequencer", GitOperation::CherryPick),
    ("BISECT_LOG", GitOperation::Bisect),
];

impl Worktree {
    pub fn head(&self) -> WorktreeHead {
        let path = self.git.join("HEAD");
        // Git once made HEAD a link to the branch's file.
        if let Ok(target) = fs::read_link(&path) {
            return RefName::parse(&target.to_string_lossy())
                .map_or(WorktreeHead::Detached, WorktreeHead::Branch);
        }
        let text = read_start(&path).unwrap_or_default();
        let name = text.strip_prefix("ref:").and_then(|name| RefName::parse(name.trim()).ok());
        name.map_or(WorktreeHead::Detached, WorktreeHead::Branch)
    }

    pub fn operation(&self) -> Option<GitOperation> {
        let there = |name: &str| self.git.join(name).symlink_metadata().is_ok();
        TRACES.iter().find(|(name, _)| there(name)).map(|(_, operation)| *operation)
    }

    /// Whether a branch will be moved when the rebase going on here ends.
    fn rebases(&self, name: &RefName) -> bool {
        let says = |file: &str| read_start(&self.git.join(file)).unwrap_or_default();
        ["rebase-merge/head-name", "rebase-apply/head-name"]
            .iter()
            .any(|file| says(file).trim() == name.as_str())
            || says("rebase-merge/update-refs").lines().any(|line| line == name.as_str())
    }

    /// Whether its folder exists and names this git directory. A folder that was removed, and made again for another
    /// purpose, does not.
    pub fn is_there(&self) -> bool {
        self.root.as_ref().is_some_and(|root| leads_to(root, &self.git))
    }
}

/// Whether the `.git` of a folder is, or names, this git directory.
fn leads_to(root: &Path, git: &Path) -> bool {
    let path = root.join(".git");
    let named = match fs::symlink_metadata(&path) {
        Ok(stat) if stat.is_file() => {
            let text = read_bytes(&path).unwrap_or_default();
            let Some(name) = text.strip_prefix(b"gitdir: ") else { return false };
            root.join(OsStr::from_bytes(name.trim_ascii_end()))
        }
        Ok(_) => path,
        Err(_) => return false,
    };
    matches!((named.canonicalize(), git.canonicalize()), (Ok(named), Ok(git)) if named == git)
}

/// Every work tree, the main one first.
pub fn all(repository: &LandingRepository) -> Result<Vec<Worktree>, Error> {
    let common = &repository.real.common;
    let mut found = Vec::new();
    // A repository that was found from its work tree has one, even if its configuration says otherwise.
    let has_root = repository.root.is_some() && repository.real.git == *common;
    if has_root || !repository.is_bare() {
        found.push(Worktree { root: main_root(repository), git: common.clone(), locked: false });
    }
    let folder = common.join("worktrees");
    let is_real = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let entries = match fs::read_dir(&folder) {
        // A link leads to the work trees of another repository.
        Ok(_) if !is_real(&folder) => return Ok(found),
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(files("list", &folder)(error)),
    };
    for entry in entries {
        let git = entry.map_err(files("list", &folder))?.path();
        if !is_real(&git) || !is_of(&git, common) {
            continue;
        }
        // `<root>/.git`, on one line; a relative one is seen from here.
        let Some(text) = read_bytes(&git.join("gitdir")) else { continue };
        let root = git.join(OsStr::from_bytes(text.strip_suffix(b"\n").unwrap_or(&text)));
        let locked = git.join("locked").exists();
        found.push(Worktree { root: root.parent().map(Path::to_owned), git, locked });
    }
    Ok(found)
}

/// Whether a work tree's git directory names this repository.
fn is_of(git: &Path, common: &Path) -> bool {
    let text = read_bytes(&git.join("commondir")).unwrap_or_default();
    let named = git.join(OsStr::from_bytes(text.trim_ascii_end()));
    matches!((named.canonicalize(), common.canonicalize()), (Ok(named), Ok(common)) if named == common)
}

fn main_root(repository: &LandingRepository) -> Option<PathBuf> {
    let common = &repository.real.common;
    if repository.real.git == *common && repository.root.is_some() {
        return repository.root.clone();
    }
    match repository.settings.text("core.worktree") {
        Some(root) => Some(common.join(root)).filter(|root| leads_to(root, common)),
        None => common.file_name().filter(|name| *name == ".git").and(common.parent()).map(Path::to_owned),
    }
}

/// The work trees that have a branch checked out, or a rebase going on that will move it.
pub fn with_branch(repository: &LandingRepository, branch: &RefName) -> Result<Vec<Worktree>, Error> {
    let mut found = Vec::new();
    for worktree in all(repository)? {
        let on = match worktree.head() {
            WorktreeHead::Branch(name) => refs::resolve(repository, &name)? == *branch,
            WorktreeHead::Detached => false,
        };
        if on || worktree.rebases(branch) {
            found.push(worktree);
        }
    }
    Ok(found)
}

fn read_start(path: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&read_bytes(path)?).into_owned())
}

fn read_bytes(path: &Path) -> Option<Vec<u8>> {
    read_file(path, 64 * 1024).ok().flatten()
}
