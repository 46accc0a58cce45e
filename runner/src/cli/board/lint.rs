//! `agency lint`: does this repository comply?

use agency_protocols::finding::Finding;
use clap::Args;

use crate::app::board::Caller;
use crate::app::error::CommandError;
use crate::app::lint::lint;
use crate::cli::caller::repository;
use crate::cli::exit::findings_exit_code;
use crate::cli::message;
use crate::cli::output::{for_terminal, print, print_json};

/// Check that the board complies with its protocol
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency lint --fix")]
pub(crate) struct LintArgs {
    /// Rewrite what is computed from the tasks: the lists in STATE.md, and TASK_BOARD.md
    #[arg(long)]
    fix: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &LintArgs, who: &Caller) -> Result<u8, CommandError> {
    let answer = lint(&repository()?, who, command.fix)?;
    let (findings, code) = (&answer.findings, findings_exit_code(&answer.findings));
    if command.json {
        print_json(&answer)?;
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
    let errors = findings.iter().filter(|one: &&Finding| one.is_error()).count();
    message::notice(&match (errors, findings.len()) {
        (0, 0) => "compliant".to_owned(),
        (0, warnings) => format!("compliant, with {warnings} warnings"),
        (errors, all) => format!("not compliant: {errors} errors, {} warnings", all - errors),
    });
    Ok(code)
}
