//! `agency lint`: does this repository comply?

use agency_protocols::codifica;
use agency_protocols::finding::Finding;
use agency_protocols::kodingx::lint::lint;
use agency_sandbox::harvest::protected;
use agency_sandbox::scope::Glob;
use clap::Args;
use serde::Serialize;

use crate::app::board::any_board::{AnyBoard, unsupported_verb};
use crate::app::board::{Caller, lost_commits};
use crate::app::error::CommandError;
use crate::cli::exit::findings_exit_code;
use crate::cli::message;
use crate::cli::output::{for_terminal, print, print_json};

/// Check that the board complies with its protocol
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency lint --fix")]
pub(crate) struct LintArgs {
    /// Write what is computed from the tasks anew: STATE.md's lists and TASK_BOARD.md
    #[arg(long)]
    fix: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct LintAnswer<'a> {
    version: u32,
    compliant: bool,
    findings: &'a [Finding],
}

pub(crate) fn run(command: &LintArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let boards = match command.fix {
        true => vec![here.board(who)?],
        false => here.boards(who)?.all(),
    };
    let mut findings = Vec::new();
    for board in boards {
        findings.extend(match board {
            AnyBoard::Kodingx(board) => {
                if command.fix {
                    here.update_files(|tree| Ok(((), board.rebuild_views(tree, &here.now)?)))?;
                }
                let profiles: Vec<String> = agency_profiles::builtin::names().map(str::to_owned).collect();
                let found = lint(&board, here.tree(), &profiles, &closed_glob_message)
                    .map_err(crate::app::board::board_error)?;
                [found, lost_commits::kodingx_findings(&here, &board)].concat()
            }
            AnyBoard::Codifica(_) if command.fix => return Err(unsupported_verb("lint --fix")),
            AnyBoard::Codifica(board) => {
                let found =
                    codifica::lint::lint(&board, here.tree(), here.now.timestamp(), &closed_glob_message)
                        .map_err(crate::app::board::board_error)?;
                [found, lost_commits::codifica_findings(&here, &board)].concat()
            }
        });
    }
    let code = findings_exit_code(&findings);
    if command.json {
        print_json(&LintAnswer { version: 1, compliant: code == 0, findings: &findings })?;
        return Ok(code);
    }
    let text: String = findings
        .iter()
        .map(|finding| {
            let kind = if finding.is_error() { "" } else { "warning: " };
            format!("{kind}{finding}\n")
        })
        .collect();
    print(&for_terminal(&text))?;
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    message::notice(&match (errors, findings.len()) {
        (0, 0) => "compliant".to_owned(),
        (0, warnings) => format!("compliant, with {warnings} warnings"),
        (errors, all) => format!("not compliant: {errors} errors, {} warnings", all - errors),
    });
    Ok(code)
}

/// What a glob of a scope seems to open, and does not, in a sentence.
pub(super) fn closed_glob_message(glob: &str) -> Option<String> {
    let glob = Glob::parse(glob).ok()?;
    protected::unopened_name(&glob, &agency_supervisor::scope::protected_names())
}
