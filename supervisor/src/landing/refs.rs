//! References: reading them as they are now, and moving several at once or none.
//!
//! A [`Transaction`] is prepared first: every reference it names is locked and has the value it should have.
//! From then on nobody can move one of them, until it is committed or dropped. Git holds the locks, in a
//! process of its own, and gives them back when it reads the end of its input: also when we are killed.
//!
//! All our processes take turns (`refs.lock`). The lock is lent to git as its error output, so it is held for
//! as long as that git lives, whoever started it. Therefore whoever has it knows that a lock file below
//! `refs/agency` was left by a git that was killed, and removes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use agency_sandbox::path::escape;

use super::error::{Error, files};
use super::names::{Oid, RefName};
use super::repository::{Repository, read_file};

/// A reference as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub at: Oid,
    /// The reference it stands for, where it is only another name.
    pub alias_of: Option<RefName>,
}

/// Those of these references that exist.
///
/// Read as git reads them: a file of its own first, then the file of packed ones, which is written before the
/// others are removed. What was read may be old a moment later; a transaction finds out.
pub fn read(repository: &Repository, names: &[RefName]) -> Result<BTreeMap<RefName, Reference>, Error> {
    let mut found = BTreeMap::new();
    let mut packed = None;
    for name in names {
        let (end, alias_of) = follow(repository, name)?;
        let path = repository.real.common.join(end.as_str());
        let loose = read_text(&path)?.map(|text| Oid::parse(text.trim_end())).transpose()?;
        let at = match loose {
            Some(at) => Some(at),
            None => {
                if packed.is_none() {
                    packed =
                        Some(read_text(&repository.real.common.join("packed-refs"))?.unwrap_or_default());
                }
                find_packed(packed.as_deref().unwrap_or_default(), &end)?
            }
        };
        if let Some(at) = at {
            found.insert(name.clone(), Reference { at, alias_of });
        }
    }
    Ok(found)
}

/// `<object> <name>` on a line.
fn find_packed(packed: &str, name: &RefName) -> Result<Option<Oid>, Error> {
    let line = packed.lines().find_map(|line| line.strip_suffix(name.as_str())?.strip_suffix(' '));
    line.map(Oid::parse).transpose()
}

/// How many names lead to names before it is a circle.
const LINKS: usize = 5;

/// The reference that a name stands for in the end, and that one if it is another.
fn follow(repository: &Repository, name: &RefName) -> Result<(RefName, Option<RefName>), Error> {
    let mut end = name.clone();
    for _ in 0..LINKS {
        // A name of a name is always a file of its own; it is never packed.
        let text = read_text(&repository.real.common.join(end.as_str()))?.unwrap_or_default();
        match text.strip_prefix("ref:") {
            Some(other) => end = RefName::parse(other.trim())?,
            None => return Ok((end.clone(), (end != *name).then_some(end))),
        }
    }
    Err(Error::Name { what: "a branch", name: name.as_str().to_owned() })
}

/// The reference that a name stands for in the end.
pub fn resolve(repository: &Repository, name: &RefName) -> Result<RefName, Error> {
    Ok(follow(repository, name)?.0)
}

/// A file of the repository's, which may be gone, or a folder by now.
fn read_text(path: &Path) -> Result<Option<String>, Error> {
    const MOST: u64 = 256 << 20;
    let contents = read_file(path, MOST).map_err(files("read", path))?;
    Ok(contents.map(|contents| String::from_utf8_lossy(&contents).into_owned()))
}

/// One part of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// It must have this value, and keeps it.
    Verify { name: RefName, at: Oid },
    /// It is moved; `from` is where it must be, `None` if it must not be there.
    Update { name: RefName, from: Option<Oid>, to: Oid },
    /// It is removed from where it must be.
    Delete { name: RefName, from: Oid },
}

impl Line {
    fn name(&self) -> &RefName {
        match self {
            Self::Verify { name, .. } | Self::Update { name, .. } | Self::Delete { name, .. } => name,
        }
    }

    fn text(&self, nothing: &str) -> String {
        match self {
            Self::Verify { name, at } => format!("verify {} {at}\n", name.as_str()),
            Self::Update { name, from, to } => {
                format!("update {} {to} {}\n", name.as_str(), from.as_ref().map_or(nothing, Oid::as_str))
            }
            Self::Delete { name, from } => format!("delete {} {from}\n", name.as_str()),
        }
    }
}

/// Who moves references, for the log that git keeps of branches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason<'a> {
    pub who: &'a super::commit::Signature,
    pub text: String,
}

/// Every reference of it is locked, and is where it should be.
#[derive(Debug)]
pub struct Transaction {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Git's error output, and the lock that keeps our processes apart.
    said: File,
}

impl Transaction {
    /// Git's own message when one of the references can't be locked or is somewhere else.
    pub fn prepare(repository: &Repository, lines: &[Line], reason: &Reason<'_>) -> Result<Self, Error> {
        let said = repository.lock("refs.lock")?;
        let path = repository.place.join("refs.lock");
        said.set_len(0).map_err(files("empty", &path))?;
        clear_left_locks(repository, lines);
        let mut command = repository.refs.command(["update-ref", "--no-deref", "--stdin", "-m"]);
        command.arg(&reason.text).stdin(Stdio::piped());
        command.stderr(said.try_clone().map_err(files("lend", &path))?);
        reason.who.as_committer(&mut command);
        let mut child = command.spawn().map_err(files("start", &repository.program))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::Answer { doing: "start a transaction" });
        };
        let mut transaction = Self { child, input: Some(input), output: BufReader::new(output), said };
        let nothing = repository.format.nothing();
        let text: String = lines.iter().map(|line| line.text(&nothing)).collect();
        transaction.ask(&format!("start\n{text}prepare\n"), "prepare: ok")?;
        Ok(transaction)
    }

    /// Moves them all. When this fails, what happened has to be looked at.
    pub fn commit(mut self) -> Result<(), Error> {
        self.ask("commit\n", "commit: ok")?;
        drop(self.input.take());
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => Err(self.refused()),
        }
    }

    fn ask(&mut self, text: &str, answer: &str) -> Result<(), Error> {
        // Whether git reads on is seen in what it answers.
        let _ =
            self.input.as_mut().map(|input| input.write_all(text.as_bytes()).and_then(|()| input.flush()));
        let mut line = String::new();
        loop {
            line.clear();
            match self.output.read_line(&mut line) {
                Ok(1..) if line.trim_end() == answer => return Ok(()),
                Ok(1..) => {}
                Ok(0) | Err(_) => return Err(self.refused()),
            }
        }
    }

    fn refused(&self) -> Error {
        let mut said = vec![0; 4096];
        let length = self.said.read_at(&mut said, 0).unwrap_or(0);
        Error::Refs { message: escape(said[..length].trim_ascii()) }
    }
}

/// Whatever was not committed is given up.
impl Drop for Transaction {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Prepares and commits.
pub fn transact(repository: &Repository, lines: &[Line], reason: &Reason<'_>) -> Result<(), Error> {
    Transaction::prepare(repository, lines, reason)?.commit()
}

/// Removes lock files of references that a git of ours was killed with. The caller has `refs.lock`.
///
/// Below `refs/agency` they can't be anybody else's. The lock of a branch may be a person's; ours says where
/// the branch was to go, and nobody else takes it there.
fn clear_left_locks(repository: &Repository, lines: &[Line]) {
    for line in lines {
        let mut path = PathBuf::from(line.name().as_str()).into_os_string();
        path.push(".lock");
        let path = repository.real.common.join(path);
        let ours = line.name().as_str().starts_with("refs/agency/");
        let goes_there = match line {
            Line::Update { to, .. } => {
                std::fs::read(&path).is_ok_and(|found| found.trim_ascii_end() == to.as_str().as_bytes())
            }
            Line::Verify { .. } | Line::Delete { .. } => false,
        };
        if ours || goes_there {
            // It is nearly never there; if it can't be removed, git says so.
            let _ = std::fs::remove_file(&path);
        }
    }
}
