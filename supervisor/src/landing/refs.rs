//! References: reading them as they are now, and moving several at once or none.
//!
//! A [`Transaction`] is prepared first: every reference it names is locked and has the value it should have.
//! From then on nobody can move one of them, until it is committed or dropped. Git holds the locks, in a
//! process of its own, and gives them back when it reads the end of its input: also when we are killed.
//!
//! All of us take turns (`refs.lock`). The lock is lent to git as its error output, so it is held for as long as
//! that git lives, whoever started it. Therefore whoever has it knows that a lock file below `refs/agency` was
//! left by a git that was killed, and removes it. The lock of a branch may be a person's (`left_locks`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use agency_sandbox::path::escape;
use agency_sandbox::untrusted;

use super::commit::Signature;
use super::error::{Error, files, odd};
use super::kept::{Talk, Talks};
use super::left_locks::{self, Intent};
use super::names::{Oid, RefName};
use super::repository::{Repository, read_file, sync_names_in};
use super::turns::Turn;

/// A reference as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    pub at: Oid,
    /// The reference it stands for, where it is only another name.
    pub alias_of: Option<RefName>,
}

/// Those of these references that exist.
///
/// Read as git reads them: files of their own, and then the file of packed ones, which is written before the
/// others are removed. What was read may be old a moment later; a transaction finds out.
pub fn read(repository: &Repository, names: &[RefName]) -> Result<BTreeMap<RefName, Reference>, Error> {
    let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
    for name in names {
        let (end, alias_of) = follow(repository, name)?;
        match read_text(&repository.real.common.join(end.as_str()))? {
            Some(text) => {
                let at = Oid::parse(text.trim_end())?;
                found.insert(name.clone(), Reference { at, alias_of });
            }
            None => missing.push((name, end, alias_of)),
        }
    }
    if !missing.is_empty() {
        let packed = read_text(&repository.real.common.join("packed-refs"))?.unwrap_or_default();
        for (name, end, alias_of) in missing {
            if let Some(at) = find_packed(&packed, &end)? {
                found.insert(name.clone(), Reference { at, alias_of });
            }
        }
    }
    Ok(found)
}

/// Where one of them is.
pub fn at(repository: &Repository, name: &RefName) -> Result<Option<Oid>, Error> {
    Ok(read(repository, std::slice::from_ref(name))?.remove(name).map(|found| found.at))
}

/// The tree of a commit.
pub fn tree_of(repository: &Repository, commit: &Oid) -> Result<Oid, Error> {
    repository.ask(|objects| objects.tree_of(commit))
}

/// `<object> <name>` on a line.
fn find_packed(packed: &str, name: &RefName) -> Result<Option<Oid>, Error> {
    let line = packed.lines().find_map(|line| line.strip_suffix(name.as_str())?.strip_suffix(' '));
    line.map(Oid::parse).transpose()
}

/// That git finds a file where it looks for a reference, or nothing: it would wait for a pipe for ever, and write through
/// a link.
fn check(repository: &Repository, name: &RefName) -> Result<(), Error> {
    let name = name.as_str();
    // The reference, its lock and its log: what git writes, by name and through any link.
    for path in [name.to_owned(), format!("{name}.lock"), format!("logs/{name}")] {
        let checked = untrusted::check_real(&repository.real.common, Path::new(&path));
        checked.map_err(odd(&repository.real.common))?;
    }
    Ok(())
}

/// The same for all of our own.
pub(super) fn check_ours(repository: &Repository) -> Result<(), Error> {
    const DEEPEST: usize = 32;
    /// The name of an object, or of another reference.
    const LARGEST: u64 = 4096;
    let ours = Path::new("refs/agency");
    let checked = untrusted::check_folder(&repository.real.common, ours, DEEPEST, LARGEST);
    checked.map_err(odd(&repository.real.common))
}

/// All of our own, read without git, for whoever can't wait until a person has put right what is odd among them: that is
/// passed over.
pub(super) fn ours(repository: &Repository) -> Result<BTreeMap<RefName, Oid>, Error> {
    const DEEPEST: usize = 8;
    let common = &repository.real.common;
    let parsed =
        |name: &str, text: &str| Some((RefName::parse(name).ok()?, Oid::parse(text.trim_end()).ok()?));
    let packed = read_text(&common.join("packed-refs"))?.unwrap_or_default();
    let packed = packed.lines().filter_map(|line| line.split_once(' '));
    let packed = packed.filter(|(_, name)| name.starts_with(OURS));
    let mut found: BTreeMap<RefName, Oid> = packed.filter_map(|(at, name)| parsed(name, at)).collect();
    let mut folders = vec![(OURS.trim_end_matches('/').to_owned(), DEEPEST)];
    while let Some((folder, depth)) = folders.pop() {
        if depth == 0 || untrusted::check_real(common, Path::new(&folder)).is_err() {
            continue;
        }
        for entry in fs::read_dir(common.join(&folder)).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let name = format!("{folder}/{name}");
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push((name, depth - 1)),
                Ok(kind) if kind.is_file() => {
                    let text = read_text(&entry.path()).ok().flatten().unwrap_or_default();
                    found.extend(parsed(&name, &text));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// How many names lead to names before it is a circle.
const LINKS: usize = 5;

/// The reference that a name stands for in the end, and that one if it is another.
fn follow(repository: &Repository, name: &RefName) -> Result<(RefName, Option<RefName>), Error> {
    let mut end = name.clone();
    for _ in 0..LINKS {
        // A name of a name is always a file of its own, or, as it once was, a link; it is never packed.
        let path = repository.real.common.join(end.as_str());
        let text = match fs::read_link(&path) {
            Ok(target) if target.as_os_str().as_bytes().starts_with(b"refs/") => {
                format!("ref: {}", target.to_string_lossy())
            }
            _ => read_text(&path)?.unwrap_or_default(),
        };
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
    /// It must have this value, and keeps it; `None` if it must not be there.
    Verify { name: RefName, at: Option<Oid> },
    /// It is moved; `from` is where it must be, `None` if it must not be there.
    Update { name: RefName, from: Option<Oid>, to: Oid },
    /// It goes, from where it must be. Git locks the file of packed references for it ([`super::settled`]).
    Delete { name: RefName, at: Oid },
}

impl Line {
    fn name(&self) -> &RefName {
        match self {
            Self::Verify { name, .. } | Self::Update { name, .. } | Self::Delete { name, .. } => name,
        }
    }

    /// Whether nobody but us moves this reference.
    fn is_ours(&self) -> bool {
        self.name().as_str().starts_with(OURS)
    }

    /// Whose lock it will have, and what that will say.
    fn intent(&self) -> Intent {
        let to = match self {
            Self::Update { to, .. } => Some(to),
            Self::Verify { .. } | Self::Delete { .. } => None,
        };
        Intent::new(self.name(), to)
    }

    fn text(&self, nothing: &str) -> String {
        // Git takes a value that is left out for one that is not asked about, so there always is one.
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

/// Who moves references, for the log that git keeps of branches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason<'a> {
    pub who: &'a Signature,
    pub text: String,
}

/// A git that moves references, one transaction after the other.
#[derive(Debug)]
pub(super) struct Mover {
    talk: Talk,
    /// Its error output, and the lock by which we take turns.
    said: File,
    /// What the transaction it has prepared changes, below the repository.
    moves: Vec<String>,
    /// Notes of earlier transactions whose locks may yet turn out to be ours; `None` until they are read.
    undecided: Option<Vec<Intent>>,
}

impl Talks for Mover {
    fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }
}

impl Mover {
    fn start(repository: &Repository, reason: Option<&Reason<'_>>) -> Result<Self, Error> {
        let turns = &repository.moving;
        let said = turns.open()?;
        let mut command = repository.refs.command(["update-ref", "--no-deref", "--stdin"]);
        command.stderr(said.try_clone().map_err(files("lend", turns.path()))?);
        if let Some(reason) = reason {
            command.args(["-m", &reason.text]);
            reason.who.as_committer(&mut command);
        }
        Ok(Self { talk: Talk::start(command)?, said, moves: Vec::new(), undecided: None })
    }

    fn turn<'a>(&self, repository: &'a Repository) -> Result<Turn<'a>, Error> {
        let file = self.said.try_clone().map_err(files("lend", repository.moving.path()))?;
        repository.moving.take_with(file)
    }

    /// Git's own message when one of the references can't be locked or is somewhere else.
    fn prepare(&mut self, repository: &Repository, lines: &[Line]) -> Result<(), Error> {
        for line in lines {
            check(repository, line.name())?;
        }
        let undecided = left_locks::clear(repository)?;
        for line in lines.iter().filter(|line| line.is_ours()) {
            // It is nearly never there; if it can't be removed, git says so.
            let _ = fs::remove_file(repository.real.common.join(format!("{}.lock", line.name().as_str())));
        }
        let theirs: Vec<Intent> = lines.iter().filter(|line| !line.is_ours()).map(Line::intent).collect();
        if !theirs.is_empty() {
            left_locks::note(repository, [&undecided[..], &theirs].concat())?;
        }
        self.undecided = Some(undecided);
        // Whatever a git before this one said.
        self.said.set_len(0).map_err(files("empty", repository.moving.path()))?;
        let nothing = repository.format.nothing();
        let text: String = lines.iter().map(|line| line.text(&nothing)).collect();
        let moved = lines.iter().filter(|line| !matches!(line, Line::Verify { .. }));
        self.moves = moved.map(|line| line.name().as_str().to_owned()).collect();
        if lines.iter().any(|line| matches!(line, Line::Delete { .. })) {
            self.moves.push("packed-refs".to_owned());
        }
        self.ask(&format!("start\n{text}prepare\n"), "prepare: ok")
    }

    /// They are where they should be then, also after a crash of the machine: the store, which may lie on another disk,
    /// is told next. Git syncs what a reference says, and not its name.
    fn commit(&mut self, repository: &Repository) -> Result<(), Error> {
        self.ask("commit\n", "commit: ok")?;
        let paths: Vec<PathBuf> =
            self.moves.drain(..).map(|path| repository.real.common.join(path)).collect();
        let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
        for folder in folders {
            // The last reference in it may have taken it along.
            sync_names_in(folder)?;
        }
        Ok(())
    }

    fn ask(&mut self, text: &str, answer: &str) -> Result<(), Error> {
        let asked = self.talk.ask(text.as_bytes(), |output| {
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
        // It removes its locks before it ends.
        self.talk.end();
        let mut said = vec![0; 16 * 1024];
        let length = self.said.read_at(&mut said, 0).unwrap_or(0);
        let message = match escape(said[..length].trim_ascii()) {
            // It says it into a file.
            nothing if nothing.is_empty() => {
                "git could not say why; there may be no room on the disk".to_owned()
            }
            message => message,
        };
        Error::Refs { message }
    }
}

/// Every reference of it is locked, and is where it should be.
#[derive(Debug)]
pub struct Transaction<'a> {
    repository: &'a Repository,
    mover: Mover,
    /// Given back after git has ended.
    _turn: Turn<'a>,
}

impl<'a> Transaction<'a> {
    pub fn prepare(repository: &'a Repository, lines: &[Line], reason: &Reason<'_>) -> Result<Self, Error> {
        restoring(repository, lines, || Self::prepare_once(repository, lines, reason))
    }

    fn prepare_once(repository: &'a Repository, lines: &[Line], reason: &Reason<'_>) -> Result<Self, Error> {
        let mover = Mover::start(repository, Some(reason))?;
        let turn = mover.turn(repository)?;
        let mut transaction = Self { repository, mover, _turn: turn };
        transaction.mover.prepare(repository, lines)?;
        Ok(transaction)
    }

    /// Moves them all. When this fails, what happened has to be looked at.
    pub fn commit(mut self) -> Result<(), Error> {
        self.mover.commit(self.repository)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let Some(undecided) = self.mover.undecided.take() else { return };
        // Whoever has the next turn finds what could not be noted, and looks again.
        let _ = match self.mover.talk.end() {
            // A git that ended by itself left no lock behind.
            Some(_) => left_locks::note(self.repository, undecided),
            // One that was killed may have. It is looked at before a person's can take its place.
            None => left_locks::clear(self.repository).map(drop),
        };
    }
}

/// Moves references of our own, of which git keeps no log. What a garbage collection takes away meanwhile of what they name
/// is written again, if it has a spare copy.
pub(super) fn transact(repository: &Repository, lines: &[Line]) -> Result<(), Error> {
    let collector = repository.collector();
    restoring(repository, lines, || transact_once(repository, lines))?;
    repository.outlast(collector, &named_by(lines));
    Ok(())
}

/// Tries again what git refused, if objects were missing that could be written again.
fn restoring<T>(
    repository: &Repository,
    lines: &[Line],
    attempt: impl Fn() -> Result<T, Error>,
) -> Result<T, Error> {
    match attempt() {
        Err(Error::Refs { .. }) if repository.restore_missing(named_by(lines))? => attempt(),
        done => done,
    }
}

/// The objects that references come to name.
pub(super) fn named_by(lines: &[Line]) -> Vec<&Oid> {
    let updates = lines.iter().filter_map(|line| match line {
        Line::Update { to, .. } => Some(to),
        Line::Verify { .. } | Line::Delete { .. } => None,
    });
    updates.collect()
}

fn transact_once(repository: &Repository, lines: &[Line]) -> Result<(), Error> {
    let start = || Mover::start(repository, None);
    repository.movers.with(start, |mover| {
        let _turn = mover.turn(repository)?;
        mover.prepare(repository, lines)?;
        mover.commit(repository)
    })
}

const OURS: &str = "refs/agency/";
