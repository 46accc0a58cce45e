//! `agency migrate`: a board in another version of its protocol.

use agency_protocols::kodingx::manifest::Version;
use clap::Args;

use super::{Here, Who};
use crate::message::{self, Failure};

/// Bring a board to another version of its protocol
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency migrate --to agency/1.1")]
pub(crate) struct Migrate {
    #[arg(long, value_name = "VERSION", value_parser = version)]
    to: Version,
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
    message::notice(&if changed {
        format!("from {} to {}", board.manifest.version, command.to)
    } else {
        format!("it is {} already", command.to)
    });
    Ok(0)
}
