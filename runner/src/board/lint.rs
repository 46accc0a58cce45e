//! `agency lint`: does this repository comply?

use agency_protocols::codifica;
use agency_protocols::finding::Finding;
use agency_protocols::kodingx::lint::lint;
use agency_sandbox::harvest::control;
use agency_sandbox::scope::Glob;
use clap::Args;
use serde::Serialize;

use super::spoken::{Spoken, not_there};
use super::task::shown;
use super::{Here, Who, code, print, print_json, strayed};
use crate::message::{self, Failure};

/// Check that the board complies with its protocol
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency lint --fix")]
pub(crate) struct Lint {
    /// Write what is computed from the tasks anew: STATE.md's lists and TASK_BOARD.md
    #[arg(long)]
    fix: bool,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    compliant: bool,
    findings: &'a [Finding],
}

pub(crate) fn run(command: &Lint, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let boards = match command.fix {
        true => vec![here.board(who)?],
        false => here.boards(who)?.all(),
    };
    let mut findings = Vec::new();
    for board in boards {
        findings.extend(match board {
            Spoken::Kodingx(board) => {
                if command.fix {
                    here.act(|tree| Ok(((), board.show_all(tree, &here.now)?)))?;
                }
                let profiles: Vec<String> = agency_profiles::builtin::names().map(str::to_owned).collect();
                let found = lint(&board, here.tree(), &profiles, &left_closed).map_err(super::refused)?;
                [found, strayed::of_kodingx(&here, &board)].concat()
            }
            Spoken::Codifica(_) if command.fix => return Err(not_there("lint --fix")),
            Spoken::Codifica(board) => {
                let found = codifica::lint::lint(&board, here.tree(), here.now.timestamp(), &left_closed)
                    .map_err(super::refused)?;
                [found, strayed::of_codifica(&here, &board)].concat()
            }
        });
    }
    let code = code(&findings);
    if command.json {
        print_json(&Document { version: 1, compliant: code == 0, findings: &findings })?;
        return Ok(code);
    }
    let text: String = findings
        .iter()
        .map(|finding| {
            let kind = if finding.is_error() { "" } else { "warning: " };
            format!("{kind}{finding}\n")
        })
        .collect();
    print(&shown(&text))?;
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    message::notice(&match (errors, findings.len()) {
        (0, 0) => "compliant".to_owned(),
        (0, warnings) => format!("compliant, with {warnings} warnings"),
        (errors, all) => format!("not compliant: {errors} errors, {} warnings", all - errors),
    });
    Ok(code)
}

/// What a glob of a scope seems to open, and does not, in a sentence.
pub(super) fn left_closed(glob: &str) -> Option<String> {
    let glob = Glob::parse(glob).ok()?;
    control::left_closed(&glob, &agency_supervisor::scope::protected())
}
