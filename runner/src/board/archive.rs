//! `agency archive`: old work put aside.

use agency_protocols::names::TaskId;
use clap::Args;
use serde::Serialize;

use super::spoken::Spoken;
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
struct Document<'a, T> {
    version: u32,
    #[serde(flatten)]
    archived: &'a T,
}

pub(crate) fn run(command: &Archive, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let board = match here.board(who)? {
        Spoken::Kodingx(board) => board,
        Spoken::Codifica(board) => {
            let archived =
                here.act_on(board.as_ref(), |tree| board.archive(tree, command.older_than, &here.now))?;
            return tell(&archived, archived.tasks.len(), &archived.tasks, command.json);
        }
    };
    let archived = here.act(|tree| board.archive(tree, command.older_than, &here.now))?;
    tell(&archived, archived.files, &archived.tasks, command.json)
}

fn tell(document: &impl Serialize, count: usize, tasks: &[TaskId], json: bool) -> Result<u8, Failure> {
    if json {
        print_json(&Document { version: 1, archived: document })?;
    } else if tasks.is_empty() {
        message::notice("nothing is old enough and finished");
    } else {
        let ids: Vec<&str> = tasks.iter().map(TaskId::as_str).collect();
        message::notice(&format!("put {count} aside: {}", ids.join(", ")));
    }
    Ok(0)
}
