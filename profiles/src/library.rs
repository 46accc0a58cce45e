//! Finds profiles by their names.
//!
//! A repository's own profiles come first, so that a repository can redefine `node_strict`, and then the builtin ones.
//! `auto` detects the profiles from the repository; `a+b` is both, one after the other.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::builtin;
use crate::detect::{self, NothingDetected};
use crate::likeness::nearest;
use crate::profile::{
    ParsedProfile, Profile, ProfileError, ProfileLocation, ProfileName, ProfileNameError, ProfileOrigin,
};
use crate::project_files::{self, ProjectFiles};
use crate::resolve::{self, LocatedProfile, ResolveError, ResolvedProfile};

/// The largest profile that is read. People write smaller ones.
const LARGEST: u64 = 256 << 10;
/// How many files of the folder are listed.
const LISTED: usize = 1000;
const ENDINGS: [&str; 2] = ["yml", "yaml"];

/// The name that stands for the detected profiles.
pub const AUTO: &str = "auto";

/// The known profiles: a repository's own, and the builtin ones.
#[derive(Debug, Clone, Default)]
pub struct ProfileLibrary {
    own: Option<PathBuf>,
}

/// Why a profile was not found, or can't be run here.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error(transparent)]
    Name(#[from] ProfileNameError),
    #[error("there is no profile `{name}`; {} {}", there_are(nearest.as_deref()), all.join(", "))]
    Unknown { name: ProfileName, nearest: Option<String>, all: Vec<String> },
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    NothingDetected(#[from] NothingDetected),
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

fn there_are(nearest: Option<&str>) -> String {
    nearest.map_or("there are".to_owned(), |nearest| format!("did you mean `{nearest}`? There are"))
}

impl ProfileLibrary {
    /// A library with the folder of a repository's own profiles, which may be missing.
    pub fn new(own: Option<PathBuf>) -> Self {
        Self { own }
    }

    /// Resolves the profile that a task names to commands for these project files.
    pub fn resolve(&self, wanted: &str, sight: &ProjectFiles) -> Result<ResolvedProfile, LibraryError> {
        let found = self.choose(wanted, sight)?;
        // A detected profile may have no command for this repository; a profile that a person named must have one.
        let manner = if wanted == AUTO {
            resolve::EmptyProfilePolicy::SomeMayBeEmpty
        } else {
            resolve::EmptyProfilePolicy::NoneMayBeEmpty
        };
        Ok(resolve::resolve(&found, sight, manner)?)
    }

    /// Finds the profiles of a specification: `auto`, a name, or several with `+` between them.
    pub fn choose(&self, wanted: &str, sight: &ProjectFiles) -> Result<Vec<LocatedProfile>, LibraryError> {
        let names = match wanted {
            AUTO => detect::detect_profiles(sight)?,
            several => several.split('+').map(ProfileName::parse).collect::<Result<_, _>>()?,
        };
        names.iter().map(|name| self.find(name)).collect()
    }

    pub fn find(&self, name: &ProfileName) -> Result<LocatedProfile, LibraryError> {
        if let Some(found) = self.find_own(name)? {
            return Ok(found);
        }
        if let Some(profile) = builtin::find(name) {
            return Ok(LocatedProfile {
                profile,
                origin: ProfileOrigin::Builtin,
                text: None,
                notes: Vec::new(),
            });
        }
        let all = self.names();
        let nearest = nearest(name.as_str(), all.iter().map(String::as_str)).map(str::to_owned);
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
            let entries = rustix::fs::Dir::new(project_files::open_folder(self.own.as_ref()?).ok()?).ok()?;
            let text = |entry: rustix::fs::DirEntry| entry.file_name().to_str().ok().map(str::to_owned);
            Some(entries.flatten().take(LISTED).filter_map(text).collect())
        };
        listed().unwrap_or_default()
    }

    fn find_own(&self, name: &ProfileName) -> Result<Option<LocatedProfile>, LibraryError> {
        let Some(folder) = &self.own else { return Ok(None) };
        for ending in ENDINGS {
            let path = folder.join(format!("{name}.{ending}"));
            let Some(text) = read(folder, &path)? else { continue };
            let ParsedProfile { profile, notes } = Profile::parse(&path, &text)?;
            if profile.name != *name {
                // A file whose name differs from its profile's would make the record useless.
                let reason = format!("is `{}`, but the file is called {name}.{ending}", profile.name);
                let at = ProfileLocation { file: path, line: None };
                return Err(ProfileError::Field { at, field: "name".into(), reason }.into());
            }
            let origin = ProfileOrigin::Repository { path };
            return Ok(Some(LocatedProfile { profile, origin, text: Some(text), notes }));
        }
        Ok(None)
    }
}

fn own_name(file: &str) -> Option<String> {
    let (name, ending) = file.rsplit_once('.')?;
    (ENDINGS.contains(&ending) && ProfileName::parse(name).is_ok()).then(|| name.to_owned())
}

/// Reads a file of the folder itself, and never through a link.
fn read(folder: &Path, path: &Path) -> Result<Option<String>, ProfileError> {
    let at = || ProfileLocation { file: path.to_owned(), line: None };
    let failed = |source: io::Error| ProfileError::Read { at: at(), source };
    let unusable = |reason| Err(ProfileError::NotAFile { at: at(), reason });
    let root = match project_files::open_folder(folder) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(ProfileError::Read {
                at: ProfileLocation { file: folder.to_owned(), line: None },
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
