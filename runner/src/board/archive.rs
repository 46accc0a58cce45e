//! `agency archive`: old work put aside.

use clap::Args;
use serde::Serialize;

use super::{Here, Who, print_json};
use crate::message::{self, Failure};

/// Put finished tasks aside, with their reports and artifacts
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency archive --older-than 30")]
pub(crate) struct Archive {
    /// Only what was made more than so many days ago
    #[arg(long, value_name = "DAYS")]
    older_than: u32,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    #[serde(flatten)]
    archived: &'a agency_protocols::kodingx::archive::Archived,
}

pub(crate) fn run(command: &Archive, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let board = here.board(who)?;
    let archived = here.act(|tree| board.archive(tree, command.older_than, &here.now))?;
    if command.json {
        print_json(&Document { version: 1, archived: &archived })?;
    } else if archived.tasks.is_empty() {
        message::notice("nothing is old enough and finished");
    } else {
        let ids: Vec<&str> = archived.tasks.iter().map(|id| id.as_str()).collect();
        message::notice(&format!("put {} files aside: {}", archived.files, ids.join(", ")));
    }
    Ok(0)
}
