//! `agency migrate`: a board in another version of its protocol.

use agency_protocols::codifica::contract;
use agency_protocols::kodingx::manifest::ProtocolVersion;
use clap::Args;
use serde::Serialize;

use crate::app::board::Caller;
use crate::app::board::any_board::AnyBoard;
use crate::app::error::CommandError;
use crate::cli::message;
use crate::cli::output::print_json;

/// Bring a board to another version of its protocol
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency migrate --to agency/1.1")]
pub(crate) struct MigrateArgs {
    /// The version, e.g. agency/1.1; of Codifica, 0.2
    #[arg(long, value_name = "VERSION")]
    to: String,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct MigrateAnswer {
    version: u32,
    from: String,
    to: String,
    changed: bool,
}

fn unknown(text: &str, like: &str) -> CommandError {
    CommandError::usage(format!("`{text}` is no version; say it like {like}"))
}

pub(crate) fn run(command: &MigrateArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let (from, to, changed) = match here.board(who)? {
        AnyBoard::Kodingx(board) => {
            let to = ProtocolVersion::parse(&command.to).ok_or_else(|| unknown(&command.to, "agency/1.1"))?;
            let changed = here.update_files(|tree| {
                let effects = board.migrate(tree, to)?;
                Ok((!effects.is_empty(), effects))
            })?;
            (board.manifest.version.to_string(), to.to_string(), changed)
        }
        AnyBoard::Codifica(board) => {
            let to =
                contract::CodificaVersion::parse(&command.to).ok_or_else(|| unknown(&command.to, "0.2"))?;
            let changed = here.update_board(board.as_ref(), |_| {
                let effects = board.migrate(to)?;
                Ok((!effects.is_empty(), effects))
            })?;
            (board.contract.version.to_string(), to.to_string(), changed)
        }
    };
    if command.json {
        print_json(&MigrateAnswer { version: 1, from, to, changed })?;
        return Ok(0);
    }
    message::notice(&if changed { format!("from {from} to {to}") } else { format!("it is {to} already") });
    Ok(0)
}
