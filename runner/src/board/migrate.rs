//! `agency migrate`: a board in another version of its protocol.

use agency_protocols::kodingx::manifest::Version;
use clap::Args;
use serde::Serialize;

use super::{Here, Who, print_json};
use crate::message::{self, Failure};

/// Bring a board to another version of its protocol
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency migrate --to agency/1.1")]
pub(crate) struct Migrate {
    /// The version, e.g. agency/1.1
    #[arg(long, value_name = "VERSION", value_parser = version)]
    to: Version,
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

fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).ok_or_else(|| format!("`{text}` is no version; say it like agency/1.1"))
}

pub(crate) fn run(command: &Migrate, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let board = here.board(who)?;
    let changed = here.act(|tree| {
        let effects = board.migrate(tree, command.to)?;
        Ok((!effects.is_empty(), effects))
    })?;
    if command.json {
        let (from, to) = (board.manifest.version.to_string(), command.to.to_string());
        print_json(&Document { version: 1, from, to, changed })?;
        return Ok(0);
    }
    message::notice(&if changed {
        format!("from {} to {}", board.manifest.version, command.to)
    } else {
        format!("it is {} already", command.to)
    });
    Ok(0)
}
