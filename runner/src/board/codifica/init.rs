//! A board, where there is none yet.

use agency_protocols::codifica::contract::MARKER;
use agency_protocols::codifica::scaffold::{Deed, scaffold};
use agency_protocols::codifica::{Codifica, Setting};
use agency_protocols::names::AgentName;
use serde_json::json;

use crate::board::{Here, print_json, refused};
use crate::message::{self, Failure};

/// Nothing of it is committed: whoever makes a board looks at it first.
pub(in crate::board) fn init(agents: &[AgentName], force: bool, as_json: bool) -> Result<u8, Failure> {
    let here = Here::find()?;
    if here.tree().exists(MARKER) && !force {
        return Err(Failure::usage(format!("{MARKER} is there already; nothing was changed")).with_hint(
            "`agency init --protocol codifica --force` writes it and the specification anew; tasks stay",
        ));
    }
    let deeds = here.act(|tree| scaffold(tree, agents, force))?;
    // What was written must be a board.
    Codifica::open(here.tree(), Setting::default()).map_err(refused)?;
    tell(&deeds, as_json)
}

fn tell(deeds: &[Deed], as_json: bool) -> Result<u8, Failure> {
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
