//! The real repository, and the two of our own through which it is changed.
//!
//! Git obeys the configuration, hooks and attributes of the repository it stands in. So it never stands in the
//! real one. Two bare repositories of ours lie in the state folder:
//!
//! ```text
//! objects.git   reads and writes the real objects; its references are its own
//! refs.git      its references are the real ones, by links; used to read and move them, and for nothing else
//! ```
//!
//! Both have a configuration we wrote and no hooks. Locks on references are the real ones too, so that a
//! person's git and ours exclude each other as two of theirs would.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agency_sandbox::git::OwnGit;
use agency_sandbox::workspace::folder;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::{Error, files, git};
use super::names::Format;
use super::settings::{self, Reader, Settings};

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
    pub(super) home: Option<PathBuf>,
    pub(super) format: Format,
    pub(super) settings: Settings,
    /// Whom what we make is given to, when that is not who we are.
    pub(super) owner: Option<(u32, u32)>,
    pub(super) objects: OwnGit,
    pub(super) refs: OwnGit,
    pub(super) patience: Duration,
}

impl Repository {
    pub fn open(opening: &Opening<'_>) -> Result<Self, Error> {
        let common = &opening.repository.common;
        let stat = fs::metadata(common).map_err(files("look at", common))?;
        let owner =
            (rustix::process::geteuid().is_root() && stat.uid() != 0).then(|| (stat.uid(), stat.gid()));
        let settings = Reader { program: opening.program, home: opening.home, user: owner }.read(common)?;
        let unsupported = |reason| Error::Unsupported { path: common.clone(), reason };
        let format = settings.format().map_err(unsupported)?;
        if let Some(other) = settings.text("extensions.refstorage").filter(|kind| *kind != "files") {
            let reason = format!("its references are kept as `{other}`, and only `files` can be moved");
            return Err(unsupported(reason));
        }
        let real_objects = common.join("objects");
        let own = |name: &str| {
            let own =
                OwnGit::open(opening.program, &opening.place.join(name)).keeping_objects_in(&real_objects);
            owner.map_or(own.clone(), |(uid, gid)| own.as_user(uid, gid))
        };
        let repository = Self {
            program: found_in_path(opening.program),
            real: opening.repository.clone(),
            root: opening.root.map(Path::to_owned),
            place: opening.place.to_owned(),
            home: opening.home.map(Path::to_owned),
            format,
            settings,
            owner,
            objects: own("objects.git"),
            refs: own("refs.git"),
            patience: opening.patience,
        };
        repository.make()?;
        Ok(repository)
    }

    pub fn format(&self) -> Format {
        self.format
    }

    pub(super) fn reader(&self) -> Reader<'_> {
        Reader { program: &self.program, home: self.home.as_deref(), user: self.owner }
    }

    fn make(&self) -> Result<(), Error> {
        self.folder(&self.place)?;
        let made = ["objects.git", "refs.git"].map(|name| self.place.join(name));
        if !made.iter().all(|path| path.join("HEAD").exists()) {
            let _alone = self.lock("making.lock")?;
            for path in made.iter().filter(|path| !path.join("HEAD").exists()) {
                let new = path.with_extension("new");
                erase(&new)?;
                OwnGit::create(&self.program, &new).map_err(git("make a repository of our own"))?;
                // It names no branch of anybody: git would look for attributes there.
                write(&new.join("HEAD"), "ref: refs/own/none\n")?;
                self.connect(&new, path == self.refs.directory())?;
                self.give_all(&new)?;
                fs::rename(&new, path).map_err(files("make", path))?;
            }
        }
        let mut config = settings::own(self.format, true);
        if let Some(shared) = self.settings.text("core.sharedrepository")
            && shared.bytes().all(|byte| byte.is_ascii_alphanumeric())
        {
            config.push_str(&format!("\tsharedRepository = {shared}\n"));
        }
        let logs = match self.settings.text("core.logallrefupdates") {
            Some(_) => self.settings.is_on("core.logallrefupdates"),
            None => !self.is_bare(),
        };
        config.push_str(&format!("\tlogAllRefUpdates = {logs}\n"));
        for path in &made {
            self.keep(&path.join("config"), &config)?;
        }
        if logs {
            self.folder(&self.real.common.join("logs"))?;
            self.folder(&self.real.common.join("logs/refs"))?;
        }
        self.connect(self.objects.directory(), false)?;
        self.connect(self.refs.directory(), true)
    }

    /// Sees to it that what a repository of ours shares with the real one is the real one's.
    fn connect(&self, own: &Path, references: bool) -> Result<(), Error> {
        self.link(&own.join("shallow"), "shallow")?;
        if references {
            self.link(&own.join("refs"), "refs")?;
            self.link(&own.join("packed-refs"), "packed-refs")?;
            self.folder(&own.join("logs"))?;
            self.link(&own.join("logs/refs"), "logs/refs")?;
        }
        Ok(())
    }

    pub(super) fn is_bare(&self) -> bool {
        self.settings.is_on("core.bare")
    }

    /// A folder of ours.
    pub(super) fn folder(&self, path: &Path) -> Result<(), Error> {
        match DirBuilder::new().mode(0o755).create(path) {
            Ok(()) => self.give(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(files("make", path)(error)),
        }
    }

    pub(super) fn give(&self, path: &Path) -> Result<(), Error> {
        let Some((uid, gid)) = self.owner else { return Ok(()) };
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).map_err(files("give away", path))
    }

    fn give_all(&self, path: &Path) -> Result<(), Error> {
        self.give(path)?;
        if self.owner.is_some() && path.is_dir() && !path.is_symlink() {
            for entry in fs::read_dir(path).map_err(files("list", path))?.flatten() {
                self.give_all(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Sees to it that a file of ours says this.
    fn keep(&self, path: &Path, text: &str) -> Result<(), Error> {
        if fs::read(path).is_ok_and(|found| found == text.as_bytes()) {
            return Ok(());
        }
        let new = path.with_extension(std::process::id().to_string());
        write(&new, text)?;
        self.give(&new)?;
        fs::rename(&new, path).map_err(files("write", path))
    }

    /// The repository may have been moved since.
    fn link(&self, path: &Path, name: &str) -> Result<(), Error> {
        let real = self.real.common.join(name);
        if fs::read_link(path).is_ok_and(|target| target == real) {
            return Ok(());
        }
        let new = path.with_extension(std::process::id().to_string());
        let _ = fs::remove_file(&new);
        std::os::unix::fs::symlink(&real, &new).map_err(files("link", &new))?;
        self.give(&new)?;
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).map_err(files("remove", path))?;
        }
        fs::rename(&new, path).map_err(files("link", path))
    }

    /// Waits for a lock among our own processes, which goes with whoever holds it.
    pub(super) fn lock(&self, name: &str) -> Result<File, Error> {
        let path = self.place.join(name);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(&path).map_err(files("open", &path))?;
        self.give(&path)?;
        let until = Instant::now() + self.patience;
        let mut pause = Duration::from_micros(500);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::Error(error)) => return Err(files("lock", &path)(error)),
                Err(fs::TryLockError::WouldBlock) if Instant::now() >= until => {
                    return Err(Error::Busy { what: path.display().to_string() });
                }
                Err(fs::TryLockError::WouldBlock) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
            }
        }
    }
}

/// A program that was named is where the search path has it.
fn found_in_path(program: &Path) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = program.components().count() == 1;
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    named.then(|| places.find(|place| place.is_file())).flatten().unwrap_or(program.to_owned())
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(files("write", path))
}

pub(super) fn erase(path: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files("remove", path)(error)),
        _ => Ok(()),
    }
}

/// A plain file of the repository's, up to a size. What is none is as if it were not there.
pub(super) fn read_file(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut contents = Vec::new();
    file.take(most).read_to_end(&mut contents)?;
    Ok(Some(contents))
}
