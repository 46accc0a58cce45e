//! Whose a work tree and its repository are, judged as git judges it, before anything in them is read.
//!
//! The owner of a folder decides what lies in it. Another user's repository may be a trap: a planted `.git`, a
//! configuration that runs programs. Git refuses to work there ("dubious ownership") unless the user's own
//! configuration says otherwise (`safe.directory`), and so do we. A folder that every user may write is refused, too.
//! One that a group may write is accepted, because teams and volumes work that way, and is attested.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use crate::account;
use crate::git::{BoundedOutput, CommandBounds, output_within};

/// What is known of one folder or file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PathOwner {
    path: PathBuf,
    uid: u32,
    mode: u32,
}

/// Why a repository is not worked on.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    #[error("{} belongs to {}, and you are {}", path.display(), account::name_of(*owner), account::name_of(*me))]
    Foreign { path: PathBuf, root: PathBuf, owner: u32, me: u32 },
    #[error("everybody may write in {}, so everybody may have put something there", path.display())]
    WorldWritable { path: PathBuf },
    #[error("can't look at {}", path.display())]
    Unseen { path: PathBuf, source: io::Error },
}

impl OwnershipError {
    /// What a person can do about it.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Foreign { root, .. } => Some(format!(
                "if you trust its owner: `git config --global --add safe.directory {}`",
                root.display()
            )),
            Self::WorldWritable { path } => Some(format!("`chmod o-w {}`", path.display())),
            Self::Unseen { .. } => None,
        }
    }
}

/// How a repository that may be worked on is owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RepositoryOwnership {
    /// It is another user's, and this user's own configuration of git says that it is safe.
    pub by_safe_directory: bool,
    /// A group may write in it.
    pub group_writable: bool,
}

/// Judges a work tree by its root, and by every folder and file that makes its repository.
pub(super) fn check(root: &Path, parts: &[&Path]) -> Result<RepositoryOwnership, OwnershipError> {
    let me = rustix::process::geteuid().as_raw();
    let look = |path: &Path| {
        let meta = path.symlink_metadata();
        let meta: Metadata =
            meta.map_err(|source| OwnershipError::Unseen { path: path.to_owned(), source })?;
        Ok(PathOwner { path: path.to_owned(), uid: meta.uid(), mode: meta.mode() })
    };
    let facts =
        std::iter::once(root).chain(parts.iter().copied()).map(look).collect::<Result<Vec<_>, _>>()?;
    judge(root, &facts, me, || safe_directories().iter().any(|safe| covers(safe, root)))
}

fn judge(
    root: &Path,
    facts: &[PathOwner],
    me: u32,
    is_safe: impl FnOnce() -> bool,
) -> Result<RepositoryOwnership, OwnershipError> {
    if let Some(open) = facts.iter().find(|fact| fact.mode & 0o002 != 0) {
        return Err(OwnershipError::WorldWritable { path: open.path.clone() });
    }
    let group_writable = facts.iter().any(|fact| fact.mode & 0o020 != 0);
    let Some(foreign) = facts.iter().find(|fact| fact.uid != me) else {
        return Ok(RepositoryOwnership { by_safe_directory: false, group_writable });
    };
    match is_safe() {
        true => Ok(RepositoryOwnership { by_safe_directory: true, group_writable }),
        false => Err(OwnershipError::Foreign {
            path: foreign.path.clone(),
            root: root.to_owned(),
            owner: foreign.uid,
            me,
        }),
    }
}

/// Whether a folder of objects that a repository borrows from may be borrowed from: the user's own, root's, or one that
/// the user's configuration names.
pub(super) fn check_borrowed(folder: &Path) -> Result<(), OwnershipError> {
    match check(folder, &[]) {
        Err(OwnershipError::Foreign { owner: 0, .. }) => Ok(()),
        other => other.map(drop),
    }
}

/// What git may cost that reads the user's own configuration.
const BOUNDS: CommandBounds = CommandBounds { time: Duration::from_secs(5), output: 1 << 20, memory: None };

/// What the user's and the machine's configuration of git call safe. No repository has a say in it: git is asked at the
/// top of the file system, and is told that there is none.
fn safe_directories() -> Vec<String> {
    let mut command = Command::new("git");
    command.args(["config", "--null", "--type=path", "--get-all", "safe.directory"]);
    command.current_dir("/").env("GIT_DIR", "/dev/null").stdin(Stdio::null());
    command.env_remove("GIT_WORK_TREE").env_remove("GIT_COMMON_DIR").env_remove("GIT_CONFIG");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let answer = match output_within(&mut command, BOUNDS) {
        Ok(BoundedOutput::Ended(output)) => output.stdout,
        _ => Vec::new(),
    };
    let mut safe = Vec::new();
    for entry in answer.strip_suffix(&[0]).map(|list| list.split(|byte| *byte == 0)).into_iter().flatten() {
        match std::str::from_utf8(entry) {
            // An empty value takes back what was said before.
            Ok("") => safe.clear(),
            Ok(path) => safe.push(path.to_owned()),
            Err(_) => {}
        }
    }
    safe
}

/// `*`, a folder, or everything below one (`folder/*`).
fn covers(safe: &str, root: &Path) -> bool {
    if safe == "*" {
        return true;
    }
    match safe.strip_suffix("/*") {
        Some(above) => root != Path::new(above) && root.starts_with(above),
        None => root == Path::new(safe.strip_suffix('/').unwrap_or(safe)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(all: &[(&str, u32, u32)]) -> Vec<PathOwner> {
        let one =
            |(path, uid, mode): &(&str, u32, u32)| PathOwner { path: path.into(), uid: *uid, mode: *mode };
        all.iter().map(one).collect()
    }

    fn said(all: &[(&str, u32, u32)], is_safe: bool) -> String {
        let judged = judge(Path::new("/r"), &facts(all), 1000, || is_safe);
        match judged {
            Ok(standing) => format!("{standing:?}"),
            Err(error) => format!("{error}; {}", error.remedy().unwrap_or_default()),
        }
    }

    #[test]
    fn what_is_mine_alone_is_worked_on_and_a_group_is_told() {
        let mine = [("/r", 1000, 0o755), ("/r/.git", 1000, 0o755)];
        assert_eq!(said(&mine, false), format!("{:?}", RepositoryOwnership::default()));
        let shared = [("/r", 1000, 0o2775), ("/r/.git", 1000, 0o755)];
        assert!(said(&shared, false).contains("group_writable: true"));
    }

    #[test]
    fn what_is_somebody_elses_is_refused_wherever_it_is_unless_the_user_says_otherwise() {
        for theirs in
            [[("/r", 1001, 0o755), ("/r/.git", 1000, 0o755)], [("/r", 1000, 0o755), ("/r/.git", 0, 0o755)]]
        {
            let refused = said(&theirs, false);
            assert!(refused.contains("belongs to") && refused.contains("safe.directory /r"), "{refused}");
            assert!(said(&theirs, true).contains("by_safe_directory: true"));
        }
    }

    #[test]
    fn what_everybody_may_write_is_refused_whatever_the_user_says() {
        let open = [("/r", 1000, 0o755), ("/r/.git", 1000, 0o777)];
        let refused = said(&open, true);
        assert!(
            refused.contains("everybody may write in /r/.git") && refused.contains("chmod o-w"),
            "{refused}"
        );
    }

    #[test]
    fn a_folder_is_safe_by_its_name_by_one_above_or_by_a_star() {
        let root = Path::new("/a/b");
        for safe in ["*", "/a/b", "/a/b/", "/a/*", "/*"] {
            assert!(covers(safe, root), "{safe}");
        }
        for other in ["/a", "/a/b/*", "/a/bc", "b", "/A/b", ""] {
            assert!(!covers(other, root), "{other}");
        }
    }
}
