//! `agency trust`: shows a person what a repository wants to run, and records that they trust it.

use std::collections::{BTreeMap, BTreeSet};

use agency_landing::remote::{self, Upstream};
use agency_protocols::detect::{self, Protocol};
use agency_protocols::store::tree::RepoTreeError;
use agency_protocols::{codifica, kodingx};
use agency_sandbox::host::HostUser;
use agency_supervisor::startup;
use clap::Args;
use serde::Serialize;
use similar::TextDiff;

use crate::app::approval::{ConfirmationRequest, confirm};
use crate::app::board::{RepoContext, is_file_fault};
use crate::app::configuration::FILE;
use crate::app::configuration::trust::TrustRecord;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::state_folder;
use crate::cli::message;
use crate::cli::output::{for_terminal, print, print_json};

/// Trust this repository's own configuration and profiles, after a look at them
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency trust --yes")]
pub(crate) struct TrustArgs {
    /// Also share this repository's board at this address; a path of this machine is only ever trusted so
    #[arg(long, value_name = "ADDRESS")]
    upstream: Option<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
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

/// Where the board would be shared, if it is one that is.
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
    command: &TrustArgs,
    here: &RepoContext,
) -> Result<(BTreeSet<String>, Option<String>), CommandError> {
    let Some(upstream) = shared_at(here) else {
        return match &command.upstream {
            Some(address) => {
                Err(CommandError::usage(format!("--upstream {address}: no board is shared from here")))
            }
            None => Ok((BTreeSet::new(), None)),
        };
    };
    let shown = upstream.display_addresses();
    match &command.upstream {
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

#[derive(Debug, Serialize)]
struct TrustAnswer<'a> {
    version: u32,
    trusted: Vec<&'a String>,
    /// Those that were not, before.
    new: Vec<&'a String>,
}

pub(crate) fn run(command: &TrustArgs) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let root = &here.folder.root;
    let before = TrustRecord::of(root)?;
    let files = governed(&here)?;
    let (named, shared) = upstreams(command, &here)?;
    // What was trusted by its name stays so until another address is.
    let upstreams = if named.is_empty() { before.upstream_hashes().clone() } else { named };
    let is_new = !upstreams.is_subset(before.upstream_hashes());
    if let Some(shared) = shared.filter(|_| is_new || upstreams.is_empty()) {
        message::notice(&shared);
    }
    let new: Vec<&String> =
        files.iter().filter(|(name, text)| !before.covers(name, text)).map(|(name, _)| name).collect();
    if !command.json {
        let diff: String = new.iter().map(|name| difference(name, &before, &files[*name])).collect();
        print(&for_terminal(&diff))?;
    }
    if new.is_empty() && !is_new {
        message::notice(if files.is_empty() {
            "there is nothing here to trust"
        } else {
            "everything here is trusted"
        });
    } else if !command.yes {
        let question = match (new.len(), is_new) {
            (0, _) => "share the board there?".to_owned(),
            (count, false) => format!("may these {count} files say what is run here?"),
            (count, true) => {
                format!("may these {count} files say what is run here, and the board be shared there?")
            }
        };
        confirm(
            &here,
            &ConfirmationRequest {
                act: "trusting a repository",
                without_asking: "agency trust --yes",
                question: &question,
                refused: "nothing is trusted",
            },
        )?;
    }
    TrustRecord::save(root, &files, upstreams)?;
    if command.json {
        print_json(&TrustAnswer { version: 1, trusted: files.keys().collect(), new })?;
    } else if !new.is_empty() {
        message::notice(&format!(
            "trusted: {}",
            new.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
        ));
    }
    Ok(0)
}

/// What changed in a file since somebody trusted it; all of it, if nobody ever did.
fn difference(name: &str, before: &TrustRecord, text: &str) -> String {
    let old = before.text(name).unwrap_or_default();
    let from = if old.is_empty() { "/dev/null".to_owned() } else { format!("{name} (trusted)") };
    TextDiff::from_lines(old, text).unified_diff().header(&from, name).to_string()
}
