//! The real repository, and the two of our own through which it is changed.
//!
//! Git obeys the configuration, hooks and attributes of the repository it stands in. So it never stands in the
//! real one. Two bare repositories of ours lie in the state folder:
//!
//! ```text
//! objects.git   reads and writes the real objects; its references are its own
//! refs.git      its references are the real ones, by links; used to move them, and for nothing else
//! ```
//!
//! Both have a configuration we wrote and no hooks. Locks on references are the real ones too, so that a
//! person's git and ours exclude each other as two of theirs would.
//!
//! One [`Repository`] serves any number of threads. Opening it starts one git, to read the configuration.

#![allow(clippy::disallowed_methods, reason = "opens our own helper repositories")]

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use agency_sandbox::git::OwnGit;
use agency_sandbox::untrusted::{self, UntrustedError};
use agency_sandbox::workspace::folder;

use super::compare;
use super::error::{Error, files, git, odd};
use super::kept::Kept;
use super::names::{Format, Oid};
use super::objects::{ObjectKind, Objects, Writer};
use super::refs::Mover;
use super::settings::{self, Reader, Remembered, Settings};
use super::spare::Spares;
use super::turns::Turns;
use crate::durable;

/// It names no branch of anybody: git would look for attributes there.
const HEAD: &str = "ref: refs/own/none\n";

/// What is needed to land in a repository.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// Git's path, or its name.
    pub program: &'a Path,
    pub repository: &'a folder::Repository,
    /// The work tree whose git directory `repository.git` is; none for a bare repository.
    pub root: Option<&'a Path>,
    /// A folder of ours, in the repository's own state folder: locks, journal and what is being prepared.
    pub place: &'a Path,
    /// Where the person's own git configuration is.
    pub home: Option<&'a Path>,
    /// How long somebody else's lock is waited for.
    pub patience: Duration,
}

/// A repository that can be landed in.
#[derive(Debug)]
pub struct Repository {
    pub(super) program: PathBuf,
    pub(super) real: folder::Repository,
    pub(super) root: Option<PathBuf>,
    pub(super) place: PathBuf,
    pub(super) format: Format,
    pub(super) settings: Settings,
    pub(super) spares: Spares,
    home: Option<PathBuf>,
    remembered: Remembered,
    pub(super) objects: OwnGit,
    pub(super) refs: OwnGit,
    /// Whose turn it is to land.
    pub(super) landing: Turns,
    /// Whose turn it is to move references.
    pub(super) moving: Turns,
    readers: Kept<Objects>,
    /// Of blobs, trees and commits.
    writers: [Kept<Writer>; 3],
    pub(super) movers: Kept<Mover>,
}

impl Repository {
    pub fn open(opening: &Opening<'_>) -> Result<Self, Error> {
        let common = &opening.repository.common;
        opening
            .repository
            .check_objects()
            .map_err(|error| Error::Unsupported { path: common.clone(), reason: error.to_string() })?;
        let program = found_in_path(opening.program);
        let settings = Reader { program: &program, home: opening.home }.read(common, common)?;
        let unsupported = |reason| Error::Unsupported { path: common.clone(), reason };
        let format = settings.format().map_err(unsupported)?;
        if let Some(other) = settings.text("extensions.refstorage").filter(|kind| *kind != "files") {
            let reason = format!("its references are kept as `{other}`, and only `files` can be moved");
            return Err(unsupported(reason));
        }
        let repository = Self::new(opening, program, format, settings);
        repository.make(&Turns::new(opening.place.join("making.lock"), opening.patience))?;
        Ok(repository)
    }

    /// One that somebody has opened before, to read and write its objects. No git is asked how it is configured,
    /// so nothing else can be done with it.
    pub fn open_objects(opening: &Opening<'_>, format: Format) -> Result<Self, Error> {
        let program = found_in_path(opening.program);
        Ok(Self::new(opening, program, format, Settings::default()))
    }

    fn new(opening: &Opening<'_>, program: PathBuf, format: Format, settings: Settings) -> Self {
        let own = |name: &str| {
            let own = OwnGit::open(&program, &opening.place.join(name));
            own.keeping_objects_in(&opening.repository.common.join("objects"))
        };
        Self {
            objects: own("objects.git"),
            refs: own("refs.git"),
            landing: Turns::new(opening.place.join("landing.lock"), opening.patience),
            moving: Turns::new(opening.place.join("refs.lock"), opening.patience),
            program,
            real: opening.repository.clone(),
            root: opening.root.map(Path::to_owned),
            place: opening.place.to_owned(),
            format,
            settings,
            spares: Spares::new(opening.place.join("spares")),
            home: opening.home.map(Path::to_owned),
            remembered: Remembered::default(),
            readers: Kept::default(),
            writers: Default::default(),
            movers: Kept::default(),
        }
    }

    /// Where the person's own configuration is.
    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Asks for objects, as often as need be, with one git.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(&mut Objects) -> Result<T, Error>) -> Result<T, Error> {
        self.readers.with(|| Objects::start(self), ask)
    }

    /// Writes an object, which is on the disk then. No reference names it yet.
    pub(super) fn write_object(&self, kind: ObjectKind, contents: &[u8]) -> Result<Oid, Error> {
        let writers = &self.writers[kind as usize];
        let written = match writers.with(|| Writer::start(self, kind), |writer| writer.write(contents)) {
            Ok(written) => written,
            // One that is asked only this can say why it can't.
            Err(_) => {
                let arguments = ["hash-object", "-w", "-t", kind.name(), "--no-filters", "--stdin"];
                let output = OwnGit::run_with(self.objects.command(arguments), "hash-object", |input| {
                    input.write_all(contents).map_err(Error::Pipe)
                })?;
                Oid::of_line(&output)?
            }
        };
        if kind == ObjectKind::Commit {
            self.sync_names(&written)?;
        }
        self.spare(&written, kind, contents);
        Ok(written)
    }

    /// Makes an object that git has written, and all before it, be found after a crash of the machine. Git syncs what is
    /// in an object, and not the folder that names it. A commit is written down in records and in the store, which may
    /// lie on another disk than the objects.
    pub(super) fn sync_names(&self, object: &Oid) -> Result<(), Error> {
        let objects = self.real.common.join("objects");
        let loose = objects.join(object.as_str().get(..2).unwrap_or_default());
        // The folder of a loose object may be new itself.
        [loose, objects].iter().try_for_each(|folder| sync_names_in(folder))
    }

    /// The same for what git has packed.
    pub(super) fn sync_pack(&self) -> Result<(), Error> {
        sync_names_in(&self.real.common.join("objects/pack"))
    }

    /// How the person's git is configured in one work tree, by its git directory.
    pub(super) fn settings_in(&self, worktree: &Path) -> Result<Settings, Error> {
        let reader = Reader { program: &self.program, home: self.home.as_deref() };
        self.remembered.read(&reader, worktree, &self.real.common)
    }

    /// A git of ours, in a folder that was made for it.
    pub(super) fn own_git(&self, folder: &Path) -> OwnGit {
        OwnGit::open(&self.program, folder).with_objects(&self.real.common.join("objects"))
    }

    fn make(&self, making: &Turns) -> Result<(), Error> {
        self.folder(&self.place)?;
        let config = self.config();
        let own = [self.objects.directory(), self.refs.directory()];
        if own.iter().all(|folder| self.is_whole(folder, &config)) {
            return Ok(());
        }
        let _turn = making.take()?;
        self.objects.check_version().map_err(git("make a repository of our own"))?;
        if self.keeps_logs() {
            for name in ["logs", "logs/refs"] {
                let checked = untrusted::check_real(&self.real.common, Path::new(name));
                checked.map_err(odd(&self.real.common))?;
                self.folder(&self.real.common.join(name))?;
            }
        }
        for folder in own {
            self.folder(folder)?;
            self.folder(&folder.join("objects"))?;
            self.connect(folder)?;
            replace(&folder.join("HEAD"), HEAD)?;
            replace(&folder.join("config"), &config)?;
            durable::sync_folder(folder).map_err(files("sync", folder))?;
        }
        Ok(())
    }

    /// Whether a repository of ours is as it was made. After a loss of power its files may be there and be empty, and
    /// git takes a folder with an empty `HEAD` for no repository.
    fn is_whole(&self, own: &Path, config: &str) -> bool {
        let says =
            |name: &str, text: &str| fs::read(own.join(name)).is_ok_and(|found| found == text.as_bytes());
        says("HEAD", HEAD) && says("config", config) && own.join("refs").is_dir() && self.is_connected(own)
    }

    fn config(&self) -> String {
        let mut config = settings::own(self.format, true);
        if let Some(shared) = self.settings.text("core.sharedrepository")
            && shared.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            config.push_str(&format!("\tsharedRepository = {shared}\n"));
        }
        config.push_str(&format!("\tlogAllRefUpdates = {}\n", self.keeps_logs()));
        config
    }

    fn keeps_logs(&self) -> bool {
        match self.settings.text("core.logallrefupdates") {
            Some(_) => self.settings.is_on("core.logallrefupdates"),
            None => !self.is_bare(),
        }
    }

    /// What a repository of ours shares with the real one.
    fn shared(&self, own: &Path) -> &'static [&'static str] {
        match own == self.refs.directory() {
            true => &["shallow", "refs", "packed-refs", "logs/refs"],
            false => &["shallow"],
        }
    }

    /// The repository may have been moved since.
    fn is_connected(&self, own: &Path) -> bool {
        let linked = |name: &&str| {
            fs::read_link(own.join(name)).is_ok_and(|target| target == self.real.common.join(name))
        };
        self.shared(own).iter().all(linked)
    }

    fn connect(&self, own: &Path) -> Result<(), Error> {
        let shared = self.shared(own);
        if !shared.contains(&"refs") {
            self.folder(&own.join("refs"))?;
        }
        for name in shared {
            let (path, real) = (own.join(name), self.real.common.join(name));
            if let Some(folder) = path.parent() {
                self.folder(folder)?;
            }
            // In one step: a git of another process may be at work here.
            let new = path.with_extension("new");
            let _ = fs::remove_file(&new);
            std::os::unix::fs::symlink(&real, &new).map_err(files("link", &new))?;
            fs::rename(&new, &path).map_err(files("link", &path))?;
        }
        Ok(())
    }

    pub(super) fn is_bare(&self) -> bool {
        self.settings.is_on("core.bare")
    }

    /// A folder of ours.
    pub(super) fn folder(&self, path: &Path) -> Result<(), Error> {
        match DirBuilder::new().mode(0o755).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(files("make", path)(error)),
            _ => Ok(()),
        }
    }
}

/// A name that no other thread or process uses.
pub(super) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A program that was named is where the search path has it.
fn found_in_path(program: &Path) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = program.components().count() == 1;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    named.then(|| places.find(|place| place.is_file())).flatten().unwrap_or(program.to_owned())
}

/// Makes the names in a folder of the repository survive a crash of the machine, if it is there.
pub(super) fn sync_names_in(folder: &Path) -> Result<(), Error> {
    match compare::open_folder(folder).and_then(|folder| Ok(rustix::fs::fsync(folder)?)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        synced => synced.map_err(files("sync", folder)),
    }
}

/// Makes a file say this, durably.
fn replace(path: &Path, text: &str) -> Result<(), Error> {
    durable::write(path, text.as_bytes()).map_err(files("write", path))
}

pub(super) fn erase(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files("remove", path)(error)),
        _ => Ok(()),
    }
}

/// A file of the repository's, up to a size. What is none is as if it were not there.
pub(super) fn read_file(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let (folder, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    match untrusted::read(folder, name, most) {
        Ok(found) => Ok(found),
        Err(UntrustedError::Kind { .. }) => Ok(None),
        Err(UntrustedError::Io { source, .. }) => match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(source),
        },
        Err(refused) => Err(io::Error::other(refused)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_one() {
        fn shared<T: Send + Sync>() {}
        shared::<Repository>();
    }
}
