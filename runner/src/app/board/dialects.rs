//! The protocols that are supported: the one place that knows a dialect by its type.

#![allow(clippy::disallowed_methods, reason = "opens our own state")]

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;

use agency_protocols::board::BoardError;
use agency_protocols::board_verbs::BoardVerbs;
use agency_protocols::codifica::{Codifica, CodificaSettings};
use agency_protocols::detect::Protocol;
use agency_protocols::kodingx::KodingX;
use agency_protocols::kodingx::layout::ROOT;
use agency_protocols::names::AgentName;

use super::{RepoContext, board_error};
use crate::app::configuration::{ConfigOptions, Configuration};
use crate::app::error::CommandError;
use crate::app::state_folder;

/// The board of a protocol.
pub(crate) fn open(here: &RepoContext, protocol: Protocol) -> Result<Box<dyn BoardVerbs>, CommandError> {
    let opened: Result<Box<dyn BoardVerbs>, BoardError> = match protocol {
        Protocol::Kodingx => KodingX::open(here.tree()).map(|board| Box::new(board) as _),
        Protocol::Codifica => {
            Codifica::open(here.tree(), codifica_settings(here)?).map(|board| Box::new(board) as _)
        }
        Protocol::ReviewLoop | Protocol::Contract | Protocol::Collaboration => {
            return Err(CommandError::usage(format!("the protocol `{protocol}` is not supported yet")));
        }
    };
    opened.map_err(|error| match error {
        BoardError::NoBoard => {
            let how = match protocol {
                Protocol::Kodingx if here.tree().exists(ROOT) => super::ADDS_MANIFEST.to_owned(),
                Protocol::Kodingx => "`agency init` makes a board".to_owned(),
                other => format!("`agency init --protocol {other}` makes a board"),
            };
            board_error(error).or_hint(&how)
        }
        error => board_error(error),
    })
}

/// The settings of a Codifica board that its repository does not hold.
fn codifica_settings(here: &RepoContext) -> Result<CodificaSettings, CommandError> {
    let configuration = Configuration::load(&here.folder.root, &ConfigOptions::default())?;
    let named = here.builder.clone().or_else(|| configuration.text("roles.builder").map(str::to_owned));
    let agent = named.map(|name| AgentName::parse(&name)).transpose();
    let agent = agent.map_err(|error| CommandError::usage(format!("roles.builder: {error}")))?;
    // A reader may have no state folder, and a clone that never claimed a task has no name.
    let state =
        here.folder.repository.as_ref().and_then(|real| state_folder::home().ok()?.existing(&real.common));
    Ok(CodificaSettings { site: state.and_then(|state| site(state.path())), agent })
}

/// The name of this clone, kept in its state folder.
const SITE: &str = "site";

fn site(state: &Path) -> Option<String> {
    let text = fs::read_to_string(state.join(SITE)).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Gives this clone a name, if it has none yet.
pub(super) fn name_site(state: &Path) -> std::io::Result<()> {
    if site(state).is_some() {
        return Ok(());
    }
    let mut bytes = [0; 6];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    // With a letter first it needs no quotes wherever it is written.
    let name = format!("c{name}");
    let next = state.join(format!("{SITE}.{name}"));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&next)?;
    file.write_all(format!("{name}\n").as_bytes())?;
    file.sync_all()?;
    // The first process to link it has named it.
    let linked = fs::hard_link(&next, state.join(SITE));
    fs::remove_file(&next)?;
    match linked {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        // On the disk before a claim is made in its name.
        _ => fs::File::open(state)?.sync_all(),
    }
}
