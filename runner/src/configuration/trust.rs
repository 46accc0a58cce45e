//! `agency trust`: a person has looked at what a repository wants to run.
//!
//! What is trusted is the content of each file, by its hash, in the user's own state: nothing inside a
//! repository can say of itself that it is trusted, and a file that changes has to be looked at again. The
//! trusted text is kept, so that the next look shows what changed.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agency_protocols::detect::{self, Protocol};
use agency_protocols::store::ETag;
use agency_protocols::store::lock::Lock;
use agency_protocols::store::tree::{Tree, TreeError};
use agency_protocols::{codifica, kodingx};
use agency_sandbox::host::Host;
use agency_sandbox::workspace::state::key_of;
use agency_supervisor::charge;
use agency_supervisor::landing::remote::{self, Upstream};
use clap::Args;
use serde::{Deserialize, Serialize};
use similar::TextDiff;

use super::{FILE, Operator};
use crate::board::{Here, confirmed, is_odd, print, print_json};
use crate::message::{self, Failure, INTERNAL, USAGE};
use crate::state;

/// Trust this repository's own configuration and profiles, after a look at them
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency trust --yes")]
pub(crate) struct TrustCommand {
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

/// What a person has trusted in one repository.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Trust {
    version: u32,
    /// The repository it is about.
    root: PathBuf,
    files: BTreeMap<String, Trusted>,
    /// Hashes of the addresses at which its board may be shared.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    upstreams: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Trusted {
    sha256: String,
    text: String,
}

const VERSION: u32 = 1;

impl Trust {
    /// What is trusted in the repository at `root`.
    pub(crate) fn of(root: &Path) -> Result<Self, Failure> {
        let file = record(root)?;
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Failure::new(INTERNAL, &error)),
        };
        let trust: Self = serde_json::from_slice(&bytes)
            .map_err(|error| Failure::usage(format!("{} can't be read: {error}", file.display())))?;
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
    pub(crate) fn upstreams(self, operator: &Operator) -> remote::Trusted {
        remote::Trusted { named: self.upstreams, network: operator.trust }
    }

    fn write(&self, root: &Path) -> Result<(), Failure> {
        let file = record(root)?;
        let folder = file.parent().unwrap_or(root);
        let failed = |error: &(dyn std::error::Error + 'static)| Failure::new(INTERNAL, error);
        std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        let _lock = Lock::take(&folder.join("lock")).map_err(|error| failed(&error))?;
        let bytes = serde_json::to_vec_pretty(self).map_err(|error| failed(&error))?;
        let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let tree = Tree::open(folder).map_err(|error| failed(&error))?;
        tree.replace(&name, &bytes).map_err(|error| failed(&error))
    }
}

/// Where it is written down: outside any repository, and of this very folder. Another one at the same path is another.
fn record(root: &Path) -> Result<PathBuf, Failure> {
    let name = key_of(root).map_err(|error| Failure::new(USAGE, &error))?;
    let folder = state::home()?.own("trust").map_err(|error| state::unusable(&error))?;
    Ok(folder.join(format!("{name}.json")))
}

/// The files of a repository that only have a say when they are trusted, with their texts.
fn governed(here: &Here) -> Result<BTreeMap<String, String>, Failure> {
    let failed = |error: TreeError| Failure::new(if is_odd(&error) { USAGE } else { INTERNAL }, &error);
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
fn shared_at(here: &Here) -> Option<Upstream> {
    let shares = detect::detect(here.tree()).contains(&Protocol::Codifica);
    let state = state::of(&here.folder).ok().filter(|_| shares && here.folder.repository.is_some())?;
    let repository = charge::open_repository(&here.folder, state.path(), &Host::observe().home).ok()?;
    let branch = charge::branch(&repository, &here.folder).ok()?;
    remote::upstream(&repository, &branch)
}

/// The hashes of the addresses a person trusts by this command, and what is said about them.
fn upstreams(command: &TrustCommand, here: &Here) -> Result<(BTreeSet<String>, Option<String>), Failure> {
    let Some(upstream) = shared_at(here) else {
        return match &command.upstream {
            Some(address) => {
                Err(Failure::usage(format!("--upstream {address}: no board is shared from here")))
            }
            None => Ok((BTreeSet::new(), None)),
        };
    };
    let shown = upstream.shown();
    match &command.upstream {
        Some(address) if !upstream.is_named(address) => {
            Err(Failure::usage(format!("--upstream {address}: the board is shared at {shown}")))
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
struct Document<'a> {
    version: u32,
    trusted: Vec<&'a String>,
    /// Those that were not, before.
    new: Vec<&'a String>,
}

pub(crate) fn run(command: &TrustCommand) -> Result<u8, Failure> {
    use std::io::IsTerminal;
    let here = Here::find()?;
    let root = &here.folder.root;
    let before = Trust::of(root)?;
    let files = governed(&here)?;
    let (named, shared) = upstreams(command, &here)?;
    // What was trusted by its name stays so until another address is.
    let upstreams = if named.is_empty() { before.upstreams.clone() } else { named };
    let is_new = !upstreams.is_subset(&before.upstreams);
    if let Some(shared) = shared.filter(|_| is_new || upstreams.is_empty()) {
        message::notice(&shared);
    }
    let new: Vec<&String> =
        files.iter().filter(|(name, text)| !before.covers(name, text)).map(|(name, _)| name).collect();
    if !command.json {
        let diff: String = new.iter().map(|name| difference(name, &before, &files[*name])).collect();
        print(&crate::board::task::shown(&diff))?;
    }
    if new.is_empty() && !is_new {
        message::notice(if files.is_empty() {
            "there is nothing here to trust"
        } else {
            "everything here is trusted"
        });
    } else if !command.yes {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Failure::usage("trusting a repository is for a person at a terminal")
                .with_hint("`agency trust --yes` trusts what it shows without asking"));
        }
        let question = match (new.len(), is_new) {
            (0, _) => "share the board there?".to_owned(),
            (count, false) => format!("may these {count} files say what is run here?"),
            (count, true) => {
                format!("may these {count} files say what is run here, and the board be shared there?")
            }
        };
        if !confirmed(&question)? {
            return Err(Failure::usage("nothing is trusted"));
        }
    }
    let trusted = |(name, text): (&String, &String)| {
        (name.clone(), Trusted { sha256: ETag::of(text.as_bytes()).to_string(), text: text.clone() })
    };
    let kept =
        Trust { version: VERSION, root: root.clone(), files: files.iter().map(trusted).collect(), upstreams };
    kept.write(root)?;
    if command.json {
        print_json(&Document { version: 1, trusted: files.keys().collect(), new })?;
    } else if !new.is_empty() {
        message::notice(&format!(
            "trusted: {}",
            new.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
        ));
    }
    Ok(0)
}

/// What changed in a file since somebody trusted it; all of it, if nobody ever did.
fn difference(name: &str, before: &Trust, text: &str) -> String {
    let old = before.files.get(name).map_or("", |known| known.text.as_str());
    let from = if old.is_empty() { "/dev/null".to_owned() } else { format!("{name} (trusted)") };
    TextDiff::from_lines(old, text).unified_diff().header(&from, name).to_string()
}

/// A repository says something that counts only when somebody has looked at it.
pub(crate) fn missing(of: &str) -> Failure {
    Failure::usage(format!("{FILE} is not trusted, so it can't say {of}"))
        .with_hint("`agency trust` shows it to you; --trust, or AGENCY_TRUST=1, trusts it this once")
}
