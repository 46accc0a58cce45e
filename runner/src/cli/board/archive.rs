//! `agency archive`: old work put aside.

use agency_protocols::names::TaskId;
use clap::Args;
use serde::Serialize;

use crate::app::board::Caller;
use crate::app::board::any_board::AnyBoard;
use crate::app::error::CommandError;
use crate::cli::message;
use crate::cli::output::print_json;

/// Put finished tasks aside, with their reports and artifacts
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency archive --older-than 30")]
pub(crate) struct ArchiveArgs {
    /// Only what was made more than so many days ago
    #[arg(long, value_name = "DAYS")]
    older_than: u32,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct ArchiveAnswer<'a, T> {
    version: u32,
    #[serde(flatten)]
    archived: &'a T,
}

pub(crate) fn run(command: &ArchiveArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let board = match here.board(who)? {
        AnyBoard::Kodingx(board) => board,
        AnyBoard::Codifica(board) => {
            let archived =
                here.update_board(board.as_ref(), |tree| board.archive(tree, command.older_than, &here.now))?;
            return tell(&archived, archived.tasks.len(), &archived.tasks, command.json);
        }
    };
    let archived = here.update_files(|tree| board.archive(tree, command.older_than, &here.now))?;
    tell(&archived, archived.files, &archived.tasks, command.json)
}

fn tell(document: &impl Serialize, count: usize, tasks: &[TaskId], json: bool) -> Result<u8, CommandError> {
    if json {
        print_json(&ArchiveAnswer { version: 1, archived: document })?;
    } else if tasks.is_empty() {
        message::notice("nothing is old enough and finished");
    } else {
        let ids: Vec<&str> = tasks.iter().map(TaskId::as_str).collect();
        message::notice(&format!("put {count} aside: {}", ids.join(", ")));
    }
    Ok(0)
}
