//! A board, where there is none yet.

use agency_protocols::codifica::contract::MARKER;
use agency_protocols::codifica::scaffold::{ScaffoldedFile, scaffold};
use agency_protocols::codifica::{Codifica, CodificaSettings};
use agency_protocols::names::AgentName;
use serde_json::json;

use crate::app::board::board_error;
use crate::app::error::CommandError;
use crate::cli::message;
use crate::cli::output::print_json;

/// Nothing of it is committed: whoever makes a board looks at it first.
pub(in crate::cli::board) fn init(
    agents: &[AgentName],
    force: bool,
    as_json: bool,
) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    if here.tree().exists(MARKER) && !force {
        return Err(CommandError::usage(format!("{MARKER} is there already; nothing was changed"))
            .with_hint(
                "`agency init --protocol codifica --force` writes it and the specification anew; tasks stay",
            ));
    }
    let deeds = here.update_files(|tree| scaffold(tree, agents, force))?;
    // What was written must be a board.
    Codifica::open(here.tree(), CodificaSettings::default()).map_err(board_error)?;
    tell(&deeds, as_json)
}

fn tell(deeds: &[ScaffoldedFile], as_json: bool) -> Result<u8, CommandError> {
    if as_json {
        print_json(&json!({ "version": 1, "files": deeds }))?;
        return Ok(0);
    }
    for deed in deeds {
        message::notice(&format!("{} {}", if deed.made { "made" } else { "kept" }, deed.path));
    }
    message::notice("commit them: agents claim tasks by commits");
    Ok(0)
}
