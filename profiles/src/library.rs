//! Finding profiles by their names.
//!
//! A repository's own profiles come first, so that `node_strict` means what the repository says it means, and
//! then the builtin ones. `auto` asks the repository what it is; `a+b` is both, one after the other.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::builtin;
use crate::detect::{self, NothingDetected};
use crate::profile::{Name, NotAName, Origin, Parsed, Place, Profile, ProfileError};
use crate::resolve::{self, ResolveError, Resolved};
use crate::sight::{self, Sight};

/// A profile larger than this is not one a person wrote.
const LARGEST: u64 = 256 << 10;
/// How many files of the folder are listed.
const LISTED: usize = 1000;
const ENDINGS: [&str; 2] = ["yml", "yaml"];

/// What stands for "whatever this repository is".
pub const AUTO: &str = "auto";

/// The profiles there are.
#[derive(Debug, Clone, Default)]
pub struct Library {
    own: Option<PathBuf>,
}

/// A profile, and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub profile: Profile,
    pub origin: Origin,
    /// The text it was read from; a builtin one has none.
    pub text: Option<String>,
    /// What in its file was not understood.
    pub notes: Vec<String>,
}

/// Why there is no such profile, or none that can be run here.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error(transparent)]
    Name(#[from] NotAName),
    #[error("there is no profile `{name}`; the nearest is `{nearest}`, and there are {}", all.join(", "))]
    Unknown { name: Name, nearest: String, all: Vec<String> },
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    NothingDetected(#[from] NothingDetected),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

impl Library {
    /// With the folder of a repository's own profiles, which need not be there.
    pub fn new(own: Option<PathBuf>) -> Self {
        Self { own }
    }

    /// From what a task names to the commands that are to be run on what is seen.
    pub fn resolve(&self, wanted: &str, sight: &Sight) -> Result<Resolved, LibraryError> {
        let found = self.choose(wanted, sight)?;
        // Where the repository said what it is, a part of it may have nothing to check; a person who named a
        // profile meant it.
        let manner =
            if wanted == AUTO { resolve::Manner::SomeMayBeEmpty } else { resolve::Manner::NoneMayBeEmpty };
        Ok(resolve::resolve(&found, sight, manner)?)
    }

    /// The profiles that are meant: `auto`, a name, or several with `+` between them.
    pub fn choose(&self, wanted: &str, sight: &Sight) -> Result<Vec<Found>, LibraryError> {
        let names = match wanted {
            AUTO => detect::auto(sight)?,
            several => several.split('+').map(Name::parse).collect::<Result<_, _>>()?,
        };
        names.iter().map(|name| self.find(name)).collect()
    }

    pub fn find(&self, name: &Name) -> Result<Found, LibraryError> {
        if let Some(found) = self.find_own(name)? {
            return Ok(found);
        }
        if let Some(profile) = builtin::find(name) {
            return Ok(Found { profile, origin: Origin::Builtin, text: None, notes: Vec::new() });
        }
        let all = self.names();
        let likeness = |known: &&String| strsim::jaro_winkler(name.as_str(), known);
        let nearest =
            all.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).cloned().unwrap_or_default();
        Err(LibraryError::Unknown { name: name.clone(), nearest, all })
    }

    /// Every name there is, the repository's own first.
    pub fn names(&self) -> Vec<String> {
        let mut own: Vec<String> = self.own_files().iter().filter_map(|file| own_name(file)).collect();
        own.sort();
        own.dedup();
        let builtin =
            builtin::names().map(str::to_owned).filter(|name| !own.contains(name)).collect::<Vec<_>>();
        own.into_iter().chain(builtin).collect()
    }

    fn own_files(&self) -> Vec<String> {
        let listed = || -> Option<Vec<String>> {
            let entries = rustix::fs::Dir::new(sight::open_folder(self.own.as_ref()?).ok()?).ok()?;
            let text = |entry: rustix::fs::DirEntry| entry.file_name().to_str().ok().map(str::to_owned);
            Some(entries.flatten().take(LISTED).filter_map(text).collect())
        };
        listed().unwrap_or_default()
    }

    fn find_own(&self, name: &Name) -> Result<Option<Found>, LibraryError> {
        let Some(folder) = &self.own else { return Ok(None) };
        for ending in ENDINGS {
            let path = folder.join(format!("{name}.{ending}"));
            let Some(text) = read(folder, &path)? else { continue };
            let Parsed { profile, notes } = Profile::parse(&path, &text)?;
            if profile.name != *name {
                // A file that answers to one name and reports another would make the record useless.
                let reason = format!("is `{}`, but the file is called {name}.{ending}", profile.name);
                let at = Place { file: path, line: None };
                return Err(ProfileError::Field { at, field: "name".into(), reason }.into());
            }
            let origin = Origin::Repository { path };
            return Ok(Some(Found { profile, origin, text: Some(text), notes }));
        }
        Ok(None)
    }
}

impl Found {
    /// Whether somebody has to trust it before it is run: it is the repository's, and does something that no
    /// builtin profile does.
    pub fn needs_trust(&self) -> bool {
        matches!(self.origin, Origin::Repository { .. }) && !self.profile.same_as_builtin()
    }
}

fn own_name(file: &str) -> Option<String> {
    let (name, ending) = file.rsplit_once('.')?;
    (ENDINGS.contains(&ending) && Name::parse(name).is_ok()).then(|| name.to_owned())
}

/// A file of the folder itself, not one that a link leads to.
fn read(folder: &Path, path: &Path) -> Result<Option<String>, ProfileError> {
    let at = || Place { file: path.to_owned(), line: None };
    let failed = |source: io::Error| ProfileError::Read { at: at(), source };
    let unusable = |reason| Err(ProfileError::NotAFile { at: at(), reason });
    let root = match sight::open_folder(folder) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(ProfileError::Read {
                at: Place { file: folder.to_owned(), line: None },
                source: error,
            });
        }
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let name = path.file_name().unwrap_or_default();
    let file = match rustix::fs::openat2(root, name, flags, Mode::empty(), resolve) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return unusable("is a link, and links are not followed"),
        Err(error) => return Err(failed(error.into())),
    };
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return unusable("is not a file");
    }
    if meta.len() > LARGEST {
        return unusable("is larger than 256 KiB");
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}
