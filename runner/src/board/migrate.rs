//! `agency migrate`: a board in another version of its protocol.

use agency_protocols::codifica::contract;
use agency_protocols::kodingx::manifest::Version;
use clap::Args;
use serde::Serialize;

use super::spoken::Spoken;
use super::{Here, Who, print_json};
use crate::message::{self, Failure};

/// Bring a board to another version of its protocol
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency migrate --to agency/1.1")]
pub(crate) struct Migrate {
    /// The version, e.g. agency/1.1; of Codifica, 0.2
    #[arg(long, value_name = "VERSION")]
    to: String,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Document {
    version: u32,
    from: String,
    to: String,
    changed: bool,
}

fn unknown(text: &str, like: &str) -> Failure {
    Failure::usage(format!("`{text}` is no version; say it like {like}"))
}

pub(crate) fn run(command: &Migrate, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let (from, to, changed) = match here.board(who)? {
        Spoken::Kodingx(board) => {
            let to = Version::parse(&command.to).ok_or_else(|| unknown(&command.to, "agency/1.1"))?;
            let changed = here.act(|tree| {
                let effects = board.migrate(tree, to)?;
                Ok((!effects.is_empty(), effects))
            })?;
            (board.manifest.version.to_string(), to.to_string(), changed)
        }
        Spoken::Codifica(board) => {
            let to = contract::Version::parse(&command.to).ok_or_else(|| unknown(&command.to, "0.2"))?;
            let changed = here.act_on(board.as_ref(), |_| {
                let effects = board.migrate(to)?;
                Ok((!effects.is_empty(), effects))
            })?;
            (board.contract.version.to_string(), to.to_string(), changed)
        }
    };
    if command.json {
        print_json(&Document { version: 1, from, to, changed })?;
        return Ok(0);
    }
    message::notice(&if changed { format!("from {from} to {to}") } else { format!("it is {to} already") });
    Ok(0)
}
