//! The record of what a person trusts in one repository.
//!
//! What is trusted is the content of each file, by its hash, in the user's own state: nothing inside a
//! repository can say of itself that it is trusted, and a file that changes has to be looked at again. The
//! trusted text is kept, so that the next look shows what changed.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agency_landing::remote;
use agency_protocols::store::ETag;
use agency_protocols::store::lock::FileLock;
use agency_protocols::store::tree::RepoTree;
use agency_sandbox::workspace::state::key_of;
use serde::{Deserialize, Serialize};

use super::{ConfigOptions, FILE};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;

/// What a person has trusted in one repository.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct TrustRecord {
    version: u32,
    /// The repository it is about.
    root: PathBuf,
    files: BTreeMap<String, TrustedFile>,
    /// Hashes of the addresses at which its board may be shared.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    upstreams: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TrustedFile {
    sha256: String,
    text: String,
}

const VERSION: u32 = 1;

impl TrustRecord {
    /// What is trusted in the repository at `root`.
    pub(crate) fn of(root: &Path) -> Result<Self, CommandError> {
        let file = record(root)?;
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(CommandError::internal(&error)),
        };
        let trust: Self = serde_json::from_slice(&bytes)
            .map_err(|error| CommandError::usage(format!("{} can't be read: {error}", file.display())))?;
        // Two paths with one hash, or a format of the future: nothing is trusted.
        Ok(if trust.root == root && trust.version == VERSION { trust } else { Self::default() })
    }

    /// Whether this very text of a file is trusted.
    pub(crate) fn covers(&self, file: &str, text: &str) -> bool {
        self.files.get(file).is_some_and(|known| known.sha256 == ETag::of(text.as_bytes()).to_string())
    }

    /// The names of all texts that are trusted.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.files.values().map(|known| known.sha256.clone()).collect()
    }

    /// Where the board may be shared. An operator who trusts a repository this once trusts no path of this machine.
    pub(crate) fn upstreams(self, operator: &ConfigOptions) -> remote::TrustedUpstreams {
        remote::TrustedUpstreams { named: self.upstreams, network: operator.trust }
    }

    /// The hashes of the addresses at which the board may be shared.
    pub(crate) fn upstream_hashes(&self) -> &BTreeSet<String> {
        &self.upstreams
    }

    /// The text of a file as it was trusted.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.files.get(name).map(|known| known.text.as_str())
    }

    /// Records that these texts, and these addresses by their hashes, are trusted in the repository at `root`.
    pub(crate) fn save(
        root: &Path,
        texts: &BTreeMap<String, String>,
        upstreams: BTreeSet<String>,
    ) -> Result<(), CommandError> {
        let trusted = |(name, text): (&String, &String)| {
            (name.clone(), TrustedFile { sha256: ETag::of(text.as_bytes()).to_string(), text: text.clone() })
        };
        let files = texts.iter().map(trusted).collect();
        Self { version: VERSION, root: root.to_owned(), files, upstreams }.write(root)
    }

    fn write(&self, root: &Path) -> Result<(), CommandError> {
        let file = record(root)?;
        let folder = file.parent().unwrap_or(root);
        let failed = |error: &(dyn std::error::Error + 'static)| CommandError::internal(error);
        std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        let _lock = FileLock::take(&folder.join("lock")).map_err(|error| failed(&error))?;
        let bytes = serde_json::to_vec_pretty(self).map_err(|error| failed(&error))?;
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let tree = RepoTree::open(folder).map_err(|error| failed(&error))?;
        tree.replace(&name, &bytes).map_err(|error| failed(&error))
    }
}

/// Where it is written down: outside any repository, and of this very folder. Another one at the same path is another.
fn record(root: &Path) -> Result<PathBuf, CommandError> {
    let name = key_of(root).map_err(|error| CommandError::new(ErrorKind::Usage, &error))?;
    let folder =
        state_folder::home()?.user_folder("trust").map_err(|error| state_folder::state_error(&error))?;
    Ok(folder.join(format!("{name}.json")))
}

/// The error that a repository says something that counts only when a user has looked at it.
pub(crate) fn needs_trust_error(of: &str) -> CommandError {
    CommandError::usage(format!("{FILE} is not trusted, so it can't say {of}"))
        .with_hint("`agency trust` shows it to you; --trust, or AGENCY_TRUST=1, trusts it this once")
}
