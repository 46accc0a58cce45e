//! The person's repository, and the two repositories of ours through which we change it.
//!
//! Git obeys the configuration, hooks and attributes of the repository in which it runs. So it never runs in the
//! person's. Two bare repositories of ours lie in the state folder:
//!
//! ```text
//! objects.git   reads and writes the real objects; its references are its own
//! refs.git      its references are the real ones, by links; used to move them, and for nothing else
//! ```
//!
//! Both have a configuration we wrote and no hooks. Locks on references are the real ones too, so that a
//! person's git and ours exclude each other as two of theirs would.
//!
//! One [`LandingRepository`] serves any number of threads. Opening it starts one git, to read the configuration.

#![allow(clippy::disallowed_methods, reason = "opens our own helper repositories")]

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agency_sandbox::git::IsolatedGit;
use agency_sandbox::untrusted;
use agency_sandbox::workspace::folder;

use super::error::{Error, files, git, untrusted};
use super::file_access::{replace, sync_names_in};
use super::git_pool::GitPool;
use super::git_settings::{self, GitSettings, GitSettingsCache, GitSettingsReader};
use super::names::{Oid, OidFormat};
use super::objects::{ObjectKind, ObjectReader, ObjectWriter};
use super::process_lock::ProcessLock;
use super::ref_mover::{RefFiles, RefMover};
use super::spare_store::SpareObjects;
use agency_sandbox::durable;

/// A branch that does not exist: git would look for attributes in one that does.
const HEAD: &str = "ref: refs/own/none\n";

/// What is needed to land in a repository.
#[derive(Debug, Clone, Copy)]
pub struct RepositoryOptions<'a> {
    /// Git's path, or its name.
    pub program: &'a Path,
    pub repository: &'a folder::RepositoryPaths,
    /// The work tree whose git directory `repository.git` is; none for a bare repository.
    pub root: Option<&'a Path>,
    /// A folder of ours, in the repository's own state folder: locks, journal and what is being prepared.
    pub place: &'a Path,
    /// Where the person's own git configuration is.
    pub home: Option<&'a Path>,
    /// How long to wait for a lock of another process.
    pub patience: Duration,
}

/// A repository in which work can land.
#[derive(Debug)]
pub struct LandingRepository {
    pub(super) program: PathBuf,
    pub(super) real: folder::RepositoryPaths,
    pub(super) root: Option<PathBuf>,
    pub(super) place: PathBuf,
    pub(super) format: OidFormat,
    pub(super) settings: GitSettings,
    pub(super) spares: SpareObjects,
    home: Option<PathBuf>,
    remembered: GitSettingsCache,
    pub(super) objects: IsolatedGit,
    pub(super) refs: IsolatedGit,
    /// Held by the process that lands.
    pub(super) landing: ProcessLock,
    /// Held by the process that moves references.
    pub(super) moving: ProcessLock,
    readers: GitPool<ObjectReader>,
    /// One for each kind: blobs, trees and commits.
    writers: [GitPool<ObjectWriter>; 3],
    pub(super) movers: GitPool<RefMover>,
}

impl LandingRepository {
    pub fn open(opening: &RepositoryOptions<'_>) -> Result<Self, Error> {
        let common = &opening.repository.common;
        opening
            .repository
            .check_objects()
            .map_err(|error| Error::Unsupported { path: common.clone(), reason: error.to_string() })?;
        let program = found_in_path(opening.program);
        let settings = GitSettingsReader { program: &program, home: opening.home }.read(common, common)?;
        let unsupported = |reason| Error::Unsupported { path: common.clone(), reason };
        let format = settings.format().map_err(unsupported)?;
        if let Some(other) = settings.text("extensions.refstorage").filter(|kind| *kind != "files") {
            let reason = format!("its references are kept as `{other}`, and only `files` can be moved");
            return Err(unsupported(reason));
        }
        let repository = Self::new(opening, program, format, settings);
        repository.make(&ProcessLock::new(opening.place.join("making.lock"), opening.patience))?;
        Ok(repository)
    }

    /// Opens a repository that was opened before, only to read and write its objects. It reads no configuration, so
    /// nothing else can be done with it.
    pub fn open_objects(opening: &RepositoryOptions<'_>, format: OidFormat) -> Result<Self, Error> {
        let program = found_in_path(opening.program);
        Ok(Self::new(opening, program, format, GitSettings::default()))
    }

    fn new(
        opening: &RepositoryOptions<'_>,
        program: PathBuf,
        format: OidFormat,
        settings: GitSettings,
    ) -> Self {
        let own = |name: &str| {
            let own = IsolatedGit::open(&program, &opening.place.join(name));
            own.keeping_objects_in(&opening.repository.common.join("objects"))
        };
        Self {
            objects: own("objects.git"),
            refs: own("refs.git"),
            landing: ProcessLock::new(opening.place.join("landing.lock"), opening.patience),
            moving: ProcessLock::new(opening.place.join("refs.lock"), opening.patience),
            program,
            real: opening.repository.clone(),
            root: opening.root.map(Path::to_owned),
            place: opening.place.to_owned(),
            format,
            settings,
            spares: SpareObjects::new(opening.place.join("spares")),
            home: opening.home.map(Path::to_owned),
            remembered: GitSettingsCache::default(),
            readers: GitPool::default(),
            writers: Default::default(),
            movers: GitPool::default(),
        }
    }

    /// Where the person's own configuration is.
    pub(super) fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }

    pub fn format(&self) -> OidFormat {
        self.format
    }

    /// Asks for objects, any number of times, with one git.
    pub(super) fn ask<T>(&self, ask: impl FnOnce(&mut ObjectReader) -> Result<T, Error>) -> Result<T, Error> {
        self.readers.with(|| ObjectReader::start(&self.objects, self.format), ask)
    }

    /// Writes an object. It is on the disk when this returns; no reference names it yet.
    pub(super) fn write_object(&self, kind: ObjectKind, contents: &[u8]) -> Result<Oid, Error> {
        let writers = &self.writers[kind as usize];
        let written = match writers
            .with(|| ObjectWriter::start(&self.objects, kind), |writer| writer.write(contents))
        {
            Ok(written) => written,
            // A git that runs for this object alone can report its error.
            Err(_) => {
                let arguments = ["hash-object", "-w", "-t", kind.name(), "--no-filters", "--stdin"];
                let output =
                    IsolatedGit::run_with(self.objects.command(arguments), "hash-object", |input| {
                        input.write_all(contents).map_err(Error::Pipe)
                    })?;
                Oid::of_line(&output)?
            }
        };
        if kind == ObjectKind::Commit {
            self.sync_names(&written)?;
        }
        self.spares.keep(&written, kind, contents);
        Ok(written)
    }

    /// Syncs the folders of an object, so that it and all objects before it are found after a crash of the machine. Git
    /// syncs the contents of an object, and not the folder with its name. Records and the store, which may lie on
    /// another disk than the objects, name a commit next.
    pub(super) fn sync_names(&self, object: &Oid) -> Result<(), Error> {
        let objects = self.real.common.join("objects");
        let loose = objects.join(object.as_str().get(..2).unwrap_or_default());
        // The folder of a loose object may be new itself.
        [loose, objects].iter().try_for_each(|folder| sync_names_in(folder))
    }

    /// What a git that moves references works with.
    pub(super) fn ref_files(&self) -> RefFiles<'_> {
        RefFiles {
            git: &self.refs,
            common: &self.real.common,
            place: &self.place,
            moving: &self.moving,
            format: self.format,
        }
    }

    /// Syncs the folder of packs.
    pub(super) fn sync_pack(&self) -> Result<(), Error> {
        sync_names_in(&self.real.common.join("objects/pack"))
    }

    /// The settings of the person's git in one work tree, given by its git directory.
    pub(super) fn settings_in(&self, worktree: &Path) -> Result<GitSettings, Error> {
        let reader = GitSettingsReader { program: &self.program, home: self.home.as_deref() };
        self.remembered.read(&reader, worktree, &self.real.common)
    }

    /// A repository of ours in a folder that was made for it.
    pub(super) fn own_git(&self, folder: &Path) -> IsolatedGit {
        IsolatedGit::open(&self.program, folder).with_objects(&self.real.common.join("objects"))
    }

    fn make(&self, making: &ProcessLock) -> Result<(), Error> {
        self.create_folder(&self.place)?;
        let config = self.config();
        let own = [self.objects.directory(), self.refs.directory()];
        if own.iter().all(|folder| self.is_whole(folder, &config)) {
            return Ok(());
        }
        let _turn = making.acquire()?;
        self.objects.check_version().map_err(git("make a repository of our own"))?;
        if self.keeps_logs() {
            for name in ["logs", "logs/refs"] {
                let checked = untrusted::check_real(&self.real.common, Path::new(name));
                checked.map_err(untrusted(&self.real.common))?;
                self.create_folder(&self.real.common.join(name))?;
            }
        }
        for folder in own {
            self.create_folder(folder)?;
            self.create_folder(&folder.join("objects"))?;
            self.connect(folder)?;
            replace(&folder.join("HEAD"), HEAD)?;
            replace(&folder.join("config"), &config)?;
            durable::sync_folder(folder).map_err(files("sync", folder))?;
        }
        Ok(())
    }

    /// Whether a repository of ours is as it was made. After a loss of power its files may be empty, and git does not
    /// take a folder with an empty `HEAD` for a repository.
    fn is_whole(&self, own: &Path, config: &str) -> bool {
        let says =
            |name: &str, text: &str| fs::read(own.join(name)).is_ok_and(|found| found == text.as_bytes());
        says("HEAD", HEAD) && says("config", config) && own.join("refs").is_dir() && self.is_connected(own)
    }

    fn config(&self) -> String {
        let mut config = git_settings::own(self.format, true);
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

    /// The files that a repository of ours shares with the person's, by links.
    fn shared(&self, own: &Path) -> &'static [&'static str] {
        match own == self.refs.directory() {
            true => &["shallow", "refs", "packed-refs", "logs/refs"],
            false => &["shallow"],
        }
    }

    /// Whether the links lead to the repository, which may have been moved.
    fn is_connected(&self, own: &Path) -> bool {
        let linked = |name: &&str| {
            fs::read_link(own.join(name)).is_ok_and(|target| target == self.real.common.join(name))
        };
        self.shared(own).iter().all(linked)
    }

    fn connect(&self, own: &Path) -> Result<(), Error> {
        let shared = self.shared(own);
        if !shared.contains(&"refs") {
            self.create_folder(&own.join("refs"))?;
        }
        for name in shared {
            let (path, real) = (own.join(name), self.real.common.join(name));
            if let Some(folder) = path.parent() {
                self.create_folder(folder)?;
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

    /// Makes a folder of ours, unless it exists.
    pub(super) fn create_folder(&self, path: &Path) -> Result<(), Error> {
        match DirBuilder::new().mode(0o755).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(files("make", path)(error)),
            _ => Ok(()),
        }
    }
}

/// The path of a program that is given by name, from the search path.
fn found_in_path(program: &Path) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = program.components().count() == 1;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    named.then(|| places.find(|place| place.is_file())).flatten().unwrap_or(program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_one() {
        fn shared<T: Send + Sync>() {}
        shared::<LandingRepository>();
    }
}
