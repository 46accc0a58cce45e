//! The work as a text that `git apply` accepts.
//!
//! Contents are handed to git as bytes on its input, not as paths it would open: `fast-import` runs no
//! filter, reads no attribute, and sees nothing of the agent's tree. Two commits are made, one of what the
//! changed paths were and one of what they became, and the difference is written.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::process::Stdio;

use super::tree::{self, CHUNK};
use super::{BaseLayers, HarvestChange, HarvestEntry};
use crate::git::{GitError, GitProcess, IsolatedGit, quote};
use crate::path::RelPath;

#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error("{path} can't be read for the patch")]
    Read { path: RelPath, source: io::Error },
    #[error("{path} is not what was harvested any more")]
    Changed { path: RelPath },
    #[error("the patch can't be written")]
    Write(#[from] io::Error),
}

const BEFORE: &str = "refs/agency/patch/before";
const AFTER: &str = "refs/agency/patch/after";

/// Writes the changes as a patch with full object names, binary contents, modes and renames, from what
/// harvesting `upper` over `base` gave.
pub fn write(
    git: &IsolatedGit,
    changes: &[HarvestChange],
    upper: BorrowedFd<'_>,
    base: &BaseLayers,
    out: &mut dyn Write,
) -> Result<(), PatchError> {
    let mut import = git.command(["fast-import", "--quiet", "--force", "--done"]);
    import.stdin(Stdio::piped()).stdout(Stdio::null());
    let (running, fed) = GitProcess::start(import, "fast-import")?.feed(|input| {
        commit(input, BEFORE)?;
        for change in changes {
            if let Some(entry) = &change.before {
                add(input, change, entry, || base.open(&change.path))?;
            }
        }
        commit(input, AFTER)?;
        for change in changes {
            if let Some(entry) = &change.after {
                add(input, change, entry, || Ok(tree::unlock_file(upper, &change.path)?.0))?;
            }
        }
        input.write_all(b"done\n").map_err(PatchError::Write)
    });
    match (fed, running.finish()) {
        // A closed pipe is only the sign of what git complains about.
        (Err(PatchError::Write(_)), Err(error)) => return Err(error.into()),
        (Err(error), _) => return Err(error),
        (Ok(()), finished) => finished?,
    }
    let difference = git.command([
        "diff-tree",
        "-p",
        "--binary",
        "--full-index",
        "-M",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        BEFORE,
        AFTER,
    ]);
    GitProcess::start(difference, "diff-tree")?.read_into(out)?.finish()?;
    Ok(())
}

/// A commit without a parent; the same input gives the same commit.
fn commit(input: &mut dyn Write, reference: &str) -> Result<(), PatchError> {
    Ok(write!(input, "commit {reference}\ncommitter agency <agency@localhost> 0 +0000\ndata 0\n")?)
}

fn add(
    input: &mut dyn Write,
    change: &HarvestChange,
    entry: &HarvestEntry,
    open: impl FnOnce() -> io::Result<File>,
) -> Result<(), PatchError> {
    let path = quote(change.path.as_bytes());
    match entry {
        HarvestEntry::Symlink { target } => {
            write!(input, "M 120000 inline {path}\ndata {}\n", target.len())?;
            input.write_all(target)?;
        }
        HarvestEntry::File { executable, size } => {
            let read = |source| PatchError::Read { path: change.path.clone(), source };
            let changed = || PatchError::Changed { path: change.path.clone() };
            let mut file = open().map_err(read)?;
            let mode = if *executable { "100755" } else { "100644" };
            write!(input, "M {mode} inline {path}\ndata {size}\n")?;
            let mut left = *size;
            let mut buffer = vec![0; CHUNK.min(usize::try_from(*size).unwrap_or(CHUNK).saturating_add(1))];
            loop {
                let length = tree::fill(&mut file, &mut buffer).map_err(read)?;
                left = left.checked_sub(length as u64).ok_or_else(changed)?;
                input.write_all(&buffer[..length])?;
                if length < buffer.len() {
                    break;
                }
            }
            if left > 0 {
                return Err(changed());
            }
        }
    }
    Ok(input.write_all(b"\n")?)
}
