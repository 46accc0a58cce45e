//! The git that moves references, and the commands it is given.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use agency_sandbox::git::IsolatedGit;
use agency_sandbox::path::escape;
use agency_sandbox::untrusted;

use super::error::{Error, files, untrusted};
use super::file_access::sync_names_in;
use super::git_pool::{HasPooledGit, PooledGit};
use super::names::{OURS, Oid, OidFormat, RefName};
use super::process_lock::{ProcessLock, ProcessLockGuard};
use super::signature::Signature;
use super::stale_locks::{self, LockIntent};

/// Checks that there is a regular file, or nothing, where git looks for a reference: git would wait for ever for a pipe, and
/// write through a link.
fn check(common: &Path, name: &RefName) -> Result<(), Error> {
    let name = name.as_str();
    // The reference, its lock and its log: what git writes, by name and through any link.
    for path in [name.to_owned(), format!("{name}.lock"), format!("logs/{name}")] {
        let checked = untrusted::check_real(common, Path::new(&path));
        checked.map_err(untrusted(common))?;
    }
    Ok(())
}

/// One part of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefCommand {
    /// The reference must have this value and keeps it; `None` if it must not exist.
    Verify { name: RefName, at: Option<Oid> },
    /// The reference moves; it must have the value `from`, `None` if it must not exist.
    Update { name: RefName, from: Option<Oid>, to: Oid },
    /// The reference is deleted; it must have the value `at`. Git locks the file of packed references for it
    /// ([`super::settled_refs`]).
    Delete { name: RefName, at: Oid },
}

impl RefCommand {
    fn name(&self) -> &RefName {
        match self {
            Self::Verify { name, .. } | Self::Update { name, .. } | Self::Delete { name, .. } => name,
        }
    }

    /// Whether the reference is one of ours, which no person moves.
    fn is_ours(&self) -> bool {
        self.name().as_str().starts_with(OURS)
    }

    /// The lock that git will take for it, and the text of that lock.
    fn intent(&self) -> LockIntent {
        let to = match self {
            Self::Update { to, .. } => Some(to),
            Self::Verify { .. } | Self::Delete { .. } => None,
        };
        LockIntent::new(self.name(), to)
    }

    fn text(&self, nothing: &str) -> String {
        // Git does not check a value that is left out, so we always write one.
        let or_nothing = |at: &Option<Oid>| at.as_ref().map_or(nothing, Oid::as_str).to_owned();
        match self {
            Self::Verify { name, at } => format!("verify {} {}\n", name.as_str(), or_nothing(at)),
            Self::Update { name, from, to } => {
                format!("update {} {to} {}\n", name.as_str(), or_nothing(from))
            }
            Self::Delete { name, at } => format!("delete {} {at}\n", name.as_str()),
        }
    }
}

/// Who moves a branch and why, for git's reflog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReflogReason<'a> {
    pub who: &'a Signature,
    pub text: String,
}

/// The files of a repository and of its state folder that a [`RefMover`] works with.
#[derive(Clone, Copy)]
pub(super) struct RefFiles<'a> {
    /// Our own repository, whose references are the real ones.
    pub(super) git: &'a IsolatedGit,
    /// The common git directory of the person's repository.
    pub(super) common: &'a Path,
    /// The folder of ours that has the notes about locks.
    pub(super) place: &'a Path,
    pub(super) moving: &'a ProcessLock,
    pub(super) format: OidFormat,
}

/// A git that moves references, one transaction after the other.
#[derive(Debug)]
pub(super) struct RefMover {
    talk: PooledGit,
    /// Its error output, and the lock by which we take turns.
    said: File,
    /// The files that the prepared transaction changes, relative to the repository.
    moves: Vec<String>,
    /// Notes of earlier transactions whose locks may still turn out to be ours; `None` until they are read.
    undecided: Option<Vec<LockIntent>>,
}

impl HasPooledGit for RefMover {
    fn pooled_git(&mut self) -> &mut PooledGit {
        &mut self.talk
    }
}

impl RefMover {
    pub(super) fn start(at: RefFiles<'_>, reason: Option<&ReflogReason<'_>>) -> Result<Self, Error> {
        let turns = at.moving;
        let said = turns.open()?;
        let mut command = at.git.command(["update-ref", "--no-deref", "--stdin"]);
        command.stderr(said.try_clone().map_err(files("lend", turns.path()))?);
        if let Some(reason) = reason {
            command.args(["-m", &reason.text]);
            reason.who.as_committer(&mut command);
        }
        Ok(Self { talk: PooledGit::start(command)?, said, moves: Vec::new(), undecided: None })
    }

    pub(super) fn turn<'a>(&self, at: RefFiles<'a>) -> Result<ProcessLockGuard<'a>, Error> {
        let file = self.said.try_clone().map_err(files("lend", at.moving.path()))?;
        at.moving.acquire_with(file)
    }

    /// Prepares a transaction. The error is git's own message when a reference can't be locked or has another value.
    pub(super) fn prepare(&mut self, at: RefFiles<'_>, lines: &[RefCommand]) -> Result<(), Error> {
        for line in lines {
            check(at.common, line.name())?;
        }
        let undecided = stale_locks::clear(at.place, at.common)?;
        for line in lines.iter().filter(|line| line.is_ours()) {
            // The lock rarely exists; if it can't be removed, git reports it.
            let _ = fs::remove_file(at.common.join(format!("{}.lock", line.name().as_str())));
        }
        let theirs: Vec<LockIntent> =
            lines.iter().filter(|line| !line.is_ours()).map(RefCommand::intent).collect();
        if !theirs.is_empty() {
            stale_locks::note(at.place, [&undecided[..], &theirs].concat())?;
        }
        self.undecided = Some(undecided);
        // The output of the git before this one.
        self.said.set_len(0).map_err(files("empty", at.moving.path()))?;
        let nothing = at.format.null_id();
        let text: String = lines.iter().map(|line| line.text(&nothing)).collect();
        let moved = lines.iter().filter(|line| !matches!(line, RefCommand::Verify { .. }));
        self.moves = moved.map(|line| line.name().as_str().to_owned()).collect();
        if lines.iter().any(|line| matches!(line, RefCommand::Delete { .. })) {
            self.moves.push("packed-refs".to_owned());
        }
        self.ask(&format!("start\n{text}prepare\n"), "prepare: ok")
    }

    /// Commits the prepared transaction. The new values are durable when this returns: the store, which may lie on
    /// another disk, records them next. Git syncs the text of a reference, and not its name.
    pub(super) fn commit(&mut self, at: RefFiles<'_>) -> Result<(), Error> {
        self.ask("commit\n", "commit: ok")?;
        let paths: Vec<PathBuf> = self.moves.drain(..).map(|path| at.common.join(path)).collect();
        let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        for folder in folders {
            // Git may have removed the folder with its last reference.
            sync_names_in(folder)?;
        }
        Ok(())
    }

    /// Ends a transaction, whether it was committed or is dropped, and with it the notes about its locks.
    pub(super) fn close(&mut self, at: RefFiles<'_>) {
        let Some(undecided) = self.undecided.take() else { return };
        // The next git to take a turn reads the notes again, so an error here is repeated there.
        let _ = match self.talk.end() {
            // A git that ended by itself left no lock behind.
            Some(_) => stale_locks::note(at.place, undecided),
            // One that was killed may have. It is looked at before a person's can take its place.
            None => stale_locks::clear(at.place, at.common).map(drop),
        };
    }

    fn ask(&mut self, text: &str, answer: &str) -> Result<(), Error> {
        let asked = self.talk.request(text.as_bytes(), |output| {
            let mut line = String::new();
            while line.trim_end() != answer {
                line.clear();
                if output.read_line(&mut line)? == 0 {
                    return Err(Error::Answer { doing: "move references" });
                }
            }
            Ok(())
        });
        asked.map_err(|_| self.refused())
    }

    fn refused(&mut self) -> Error {
        // Git removes its locks before it ends.
        self.talk.end();
        let mut said = vec![0; 16 * 1024];
        let length = self.said.read_at(&mut said, 0).unwrap_or(0);
        let message = match escape(said[..length].trim_ascii()) {
            // Git writes its message into a file.
            nothing if nothing.is_empty() => {
                "git could not say why; there may be no room on the disk".to_owned()
            }
            message => message,
        };
        Error::Refs { message }
    }
}
