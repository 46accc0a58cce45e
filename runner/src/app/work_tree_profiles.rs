//! The profiles that tasks name, as the work tree has them: whether their checks can run here.

use std::path::PathBuf;

use agency_profiles::library::{LibraryError, ProfileLibrary};
use agency_profiles::project_files::ProjectFiles;
use agency_profiles::resolve::ResolvedProfile;

use crate::app::board::RepoContext;
use crate::app::configuration::ConfigOptions;
use crate::app::configuration::trust::TrustRecord;
use crate::app::error::{CommandError, ErrorKind};

/// Profiles of a work tree, which may be those of a stranger.
pub(crate) struct WorkTreeProfiles {
    root: PathBuf,
    library: ProfileLibrary,
    files: ProjectFiles,
    /// `None` where an operator trusts everything this once.
    trust: Option<TrustRecord>,
}

impl WorkTreeProfiles {
    /// `folder` is where the protocol keeps the repository's own profiles.
    pub(crate) fn open(
        here: &RepoContext,
        folder: Option<&str>,
        options: &ConfigOptions,
    ) -> Result<Self, CommandError> {
        let root = here.folder.root.clone();
        let files = ProjectFiles::open(&root).map_err(|error| CommandError::internal(&error))?;
        let trust = if options.trust { None } else { Some(TrustRecord::of(&root)?) };
        Ok(Self { library: ProfileLibrary::new(folder.map(|folder| root.join(folder))), root, files, trust })
    }

    /// The commands of a profile. One of the repository's own needs trust.
    pub(crate) fn resolve(&self, profile: &str) -> Result<ResolvedProfile, CommandError> {
        let resolved = self.library.resolve(profile, &self.files);
        let resolved = resolved.map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
        if let Some(trust) = &self.trust {
            resolved.check_trust(&self.root, |file, text| trust.covers(file, text)).map_err(|error| {
                CommandError::usage(error.to_string()).with_hint(
                    "`agency trust` shows it to you; --trust, or AGENCY_TRUST=1, trusts it this once",
                )
            })?;
        }
        Ok(resolved)
    }

    /// Why a profile's checks can't run here, if they can't.
    pub(crate) fn problem(&self, profile: &str) -> Option<String> {
        self.resolve(profile).err().map(|error| error.message)
    }

    /// Refuses a name that stands for no profile.
    pub(crate) fn check_name(&self, profile: &str) -> Result<(), CommandError> {
        match self.library.choose(profile, &self.files) {
            Err(error @ (LibraryError::Unknown { .. } | LibraryError::Name(_))) => {
                Err(CommandError::new(ErrorKind::Usage, &error))
            }
            _ => Ok(()),
        }
    }
}
