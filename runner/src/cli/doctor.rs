//! `agency doctor`: what this host can hold.

use std::io::Write;

use agency_sandbox::doctor::{HostCheck, containers, findings, state_folder};

use clap::Args;

use crate::app::error::CommandError;
use crate::cli::exit::UNAVAILABLE;

/// Show what this host can hold, and what to change where it can't
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  agency doctor --json")]
pub(crate) struct DoctorArgs {
    /// As JSON, on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(command: &DoctorArgs) -> Result<u8, CommandError> {
    let mut findings = findings();
    // Only cgroups have a substitute; without any of the others there is no sandbox of the first level.
    let able = findings.iter().all(|finding| finding.ok || finding.name == "cgroups");
    let bare = findings.iter().any(|finding| finding.ok && finding.name == "landlock");
    findings.push(containers());
    findings.push(state_folder());
    let engine = bare && findings.iter().all(|finding| finding.ok || finding.name != "containers");
    let levels = [("process", able), ("landlock", bare), ("container", engine)];
    let mut out = std::io::stdout().lock();
    let written = if command.json {
        let report = serde_json::json!({
            "version": 1, "process": able, "landlock": bare, "container": engine, "findings": findings,
        });
        writeln!(out, "{report:#}")
    } else {
        print(&mut out, &findings, &levels)
    };
    written.map_err(|error| CommandError::internal(&error))?;
    Ok(if able { 0 } else { UNAVAILABLE })
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
