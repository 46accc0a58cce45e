//! What a repository wants to run, shown to a person, and the record that they trust it.

use std::collections::{BTreeMap, BTreeSet};

use agency_landing::remote::{self, Upstream};
use agency_protocols::detect::{self, Protocol};
use agency_protocols::store::tree::RepoTreeError;
use agency_protocols::{codifica, kodingx};
use agency_sandbox::host::HostUser;
use agency_supervisor::startup;
use serde::Serialize;
use similar::TextDiff;

use crate::app::board::{RepoContext, is_file_fault};
use crate::app::configuration::FILE;
use crate::app::configuration::trust::TrustRecord;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;

/// What a repository wants to run, beside what a person trusted before.
pub(crate) struct TrustReview {
    before: TrustRecord,
    files: BTreeMap<String, String>,
    upstreams: BTreeSet<String>,
    /// The files that are new or were changed since.
    pub(crate) new: Vec<String>,
    pub(crate) is_upstream_new: bool,
    /// Where the board is shared, in a sentence, if that is not trusted already.
    pub(crate) shared: Option<String>,
}

/// What is trusted now.
#[derive(Debug, Serialize)]
pub(crate) struct TrustAnswer {
    version: u32,
    trusted: Vec<String>,
    /// Those that were not, before.
    new: Vec<String>,
}

/// Looks at everything that needs trust. `address` is an upstream that a person names.
pub(crate) fn review(here: &RepoContext, address: Option<&str>) -> Result<TrustReview, CommandError> {
    let before = TrustRecord::of(&here.folder.root)?;
    let files = governed(here)?;
    let (named, shared) = upstreams(address, here)?;
    // What was trusted by its name stays so until another address is.
    let upstreams = if named.is_empty() { before.upstream_hashes().clone() } else { named };
    let is_upstream_new = !upstreams.is_subset(before.upstream_hashes());
    let shared = shared.filter(|_| is_upstream_new || upstreams.is_empty());
    let new = files.iter().filter(|(name, text)| !before.covers(name, text)).map(|(name, _)| name.clone());
    let new = new.collect();
    Ok(TrustReview { before, files, upstreams, new, is_upstream_new, shared })
}

impl TrustReview {
    pub(crate) fn is_all_trusted(&self) -> bool {
        self.new.is_empty() && !self.is_upstream_new
    }

    pub(crate) fn has_no_files(&self) -> bool {
        self.files.is_empty()
    }

    /// What changed since a person trusted it.
    pub(crate) fn diff(&self) -> String {
        self.new.iter().map(|name| difference(name, &self.before, &self.files[name])).collect()
    }

    /// Records that a person trusts all of it.
    pub(crate) fn save(self, here: &RepoContext) -> Result<TrustAnswer, CommandError> {
        TrustRecord::save(&here.folder.root, &self.files, self.upstreams)?;
        Ok(TrustAnswer { version: 1, trusted: self.files.into_keys().collect(), new: self.new })
    }
}

/// The files of a repository that only have a say when they are trusted, with their texts.
fn governed(here: &RepoContext) -> Result<BTreeMap<String, String>, CommandError> {
    let failed = |error: RepoTreeError| {
        CommandError::new(if is_file_fault(&error) { ErrorKind::Usage } else { ErrorKind::Internal }, &error)
    };
    let mut names = vec![FILE.to_owned()];
    for folder in [kodingx::layout::PROFILES, codifica::PROFILES] {
        for entry in here.tree().list(folder).map_err(failed)? {
            if entry.name.ends_with(".yml") || entry.name.ends_with(".yaml") {
                names.push(format!("{folder}/{}", entry.name));
            }
        }
    }
    let mut found = BTreeMap::new();
    for name in names {
        if let Some(text) = here.tree().read_text(&name).map_err(failed)? {
            found.insert(name, text);
        }
    }
    Ok(found)
}

/// The upstream of a board that git carries.
fn shared_at(here: &RepoContext) -> Option<Upstream> {
    let shares = detect::detect(here.tree()).contains(&Protocol::Codifica);
    let state =
        state_folder::of_folder(&here.folder).ok().filter(|_| shares && here.folder.repository.is_some())?;
    let repository = startup::open_repository(&here.folder, state.path(), &HostUser::observe().home).ok()?;
    let branch = startup::branch(&repository, &here.folder).ok()?;
    remote::upstream(&repository, &branch)
}

/// The hashes of the addresses a person trusts by this command, and what is said about them.
fn upstreams(
    address: Option<&str>,
    here: &RepoContext,
) -> Result<(BTreeSet<String>, Option<String>), CommandError> {
    let Some(upstream) = shared_at(here) else {
        return match address {
            Some(address) => {
                Err(CommandError::usage(format!("--upstream {address}: no board is shared from here")))
            }
            None => Ok((BTreeSet::new(), None)),
        };
    };
    let shown = upstream.display_addresses();
    match address {
        Some(address) if !upstream.is_named(address) => {
            Err(CommandError::usage(format!("--upstream {address}: the board is shared at {shown}")))
        }
        None if upstream.is_local() => {
            let what = format!(
                "the board is shared at {shown}, a path of this machine: name it to trust it, `agency trust --upstream {shown}`"
            );
            Ok((BTreeSet::new(), Some(what)))
        }
        _ => Ok((upstream.hashes(), Some(format!("the board is shared at {shown}")))),
    }
}

/// What changed in a file since a person trusted it; all of it, if it was never trusted.
fn difference(name: &str, before: &TrustRecord, text: &str) -> String {
    let old = before.text(name).unwrap_or_default();
    let from = if old.is_empty() { "/dev/null".to_owned() } else { format!("{name} (trusted)") };
    TextDiff::from_lines(old, text).unified_diff().header(&from, name).to_string()
}
