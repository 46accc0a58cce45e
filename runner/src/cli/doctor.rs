//! `agency doctor`: which isolation levels work on this host.

use std::io::Write;

use agency_sandbox::doctor::HostCheck;
use clap::Args;

use crate::app::board::has_board;
use crate::app::doctor::{DoctorAnswer, apparmor_profile, examine};
use crate::app::error::CommandError;
use crate::cli::exit::UNAVAILABLE;
use crate::cli::message;

/// Check which isolation levels work here, and how to fix those that don't
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency doctor --json")]
pub(crate) struct DoctorArgs {
    /// Print an AppArmor profile that gives this program alone user namespaces
    #[arg(long, conflicts_with = "json")]
    apparmor_profile: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(command: &DoctorArgs) -> Result<u8, CommandError> {
    if command.apparmor_profile {
        crate::cli::output::print(&apparmor_profile()?)?;
        return Ok(0);
    }
    let answer = examine();
    let levels =
        [("process", answer.process), ("landlock", answer.landlock), ("container", answer.container)];
    let mut out = std::io::stdout().lock();
    let written = match command.json {
        true => serde_json::to_writer_pretty(&mut out, &answer)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out)),
        false => print(&mut out, &answer.findings, &levels),
    };
    written.map_err(|error| CommandError::internal(&error))?;
    if !command.json {
        message::notice(next_step(&answer));
    }
    Ok(if answer.process { 0 } else { UNAVAILABLE })
}

/// What to do after the list.
fn next_step(answer: &DoctorAnswer) -> &'static str {
    let is_at_board = std::env::current_dir().is_ok_and(|folder| has_board(&folder));
    match (answer.process, answer.landlock) {
        (true, _) if is_at_board => "next: `agency agents` shows which agents work here",
        (true, _) => "next: `agency demo` shows agency at work; `agency init` makes a board here",
        (false, true) => {
            "next: change what the lines above name, or run agents with `--isolation landlock`, which needs less"
        }
        (false, false) => "next: change what the lines above name; without it no agent can start here",
    }
}

fn print(out: &mut impl Write, findings: &[HostCheck], levels: &[(&str, bool)]) -> std::io::Result<()> {
    for finding in findings {
        writeln!(
            out,
            "{} {:<16} {}",
            if finding.ok { "ok     " } else { "missing" },
            finding.name,
            finding.detail
        )?;
        if let Some(hint) = &finding.hint {
            writeln!(out, "                         {hint}")?;
        }
    }
    writeln!(out)?;
    for (level, able) in levels {
        writeln!(out, "Isolation `{level}` {} be held here.", if *able { "can" } else { "can't" })?;
    }
    Ok(())
}
