//! The work trees of a repository: which of them has a branch checked out, and what a person is in the middle
//! of there.
//!
//! All of it is read from files that git keeps for the purpose; asking git would make it obey the repository.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::{Error, files};
use super::names::RefName;
use super::refs;
use super::repository::{Repository, read_file};

/// A folder with its own HEAD and index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktree {
    /// Where its files are, unless nobody knows: a git directory somewhere else does not say.
    pub root: Option<PathBuf>,
    /// Where its HEAD and index are.
    pub git: PathBuf,
    /// A person said that it may be away for a while.
    pub locked: bool,
}

/// Where a work tree is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    Branch(RefName),
    /// At a commit, and on no branch.
    Detached,
}

/// Something that a person has begun and not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Merge,
    CherryPick,
    Revert,
    Rebase,
    Bisect,
}

impl fmt::Display for Operation {
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

/// What git leaves in a work tree's git directory while something is going on.
const TRACES: [(&str, Operation); 7] = [
    ("MERGE_HEAD", Operation::Merge),
    ("CHERRY_PICK_HEAD", Operation::CherryPick),
    ("REVERT_HEAD", Operation::Revert),
    ("rebase-merge", Operation::Rebase),
    ("rebase-apply", Operation::Rebase),
    ("sequencer", Operation::CherryPick),
    ("BISECT_LOG", Operation::Bisect),
];

impl Worktree {
    pub fn head(&self) -> Head {
        let path = self.git.join("HEAD");
        // Git once made HEAD a link to the branch's file.
        if let Ok(target) = fs::read_link(&path) {
            return RefName::parse(&target.to_string_lossy()).map_or(Head::Detached, Head::Branch);
        }
        let text = read_start(&path).unwrap_or_default();
        let name = text.strip_prefix("ref:").and_then(|name| RefName::parse(name.trim()).ok());
        name.map_or(Head::Detached, Head::Branch)
    }

    pub fn operation(&self) -> Option<Operation> {
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

    /// Whether its folder is there and says that it belongs here. A folder that was removed, and made again for
    /// something else, does not.
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
pub fn all(repository: &Repository) -> Result<Vec<Worktree>, Error> {
    let common = &repository.real.common;
    let mut found = Vec::new();
    // A repository that was found from its work tree has one, whatever its configuration says.
    let has_root = repository.root.is_some() && repository.real.git == *common;
    if has_root || !repository.is_bare() {
        found.push(Worktree { root: main_root(repository), git: common.clone(), locked: false });
    }
    let folder = common.join("worktrees");
    let is_real = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let entries = match fs::read_dir(&folder) {
        // Behind a link lie the work trees of another repository.
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

/// Whether a work tree's git directory says that it is this repository's.
fn is_of(git: &Path, common: &Path) -> bool {
    let text = read_bytes(&git.join("commondir")).unwrap_or_default();
    let named = git.join(OsStr::from_bytes(text.trim_ascii_end()));
    matches!((named.canonicalize(), common.canonicalize()), (Ok(named), Ok(common)) if named == common)
}

fn main_root(repository: &Repository) -> Option<PathBuf> {
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
pub fn with_branch(repository: &Repository, branch: &RefName) -> Result<Vec<Worktree>, Error> {
    let mut found = Vec::new();
    for worktree in all(repository)? {
        let on = match worktree.head() {
            Head::Branch(name) => refs::resolve(repository, &name)? == *branch,
            Head::Detached => false,
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
