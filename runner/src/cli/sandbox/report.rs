//! What happened, for people and for programs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use agency_sandbox::egress::{ConnectionReason, NetworkTraffic};
use agency_sandbox::harvest::{ChangeKind, Harvest, ViolationReason as Refused};
use agency_sandbox::launch::LaunchOutcome;
use agency_sandbox::output::{self, OutputTotals};
use agency_sandbox::policy::Policy;
use agency_sandbox::supervise::{CommandExit, StopCause};
use agency_sandbox::workspace::folder::WorkspaceFolder;
use serde_json::{Value, json};

use crate::app::error::CommandError;
use crate::app::sandbox::{ChangesOutcome, SandboxAnswer, sandbox_failed};
use crate::cli::sandbox::arguments::SandboxArgs;

/// The format of the JSON report.
const VERSION: u32 = 1;

/// How many lines a list gets before it is cut.
const SHOWN: usize = 20;

/// Prints the report. Returns the exit code.
pub(super) fn tell(
    command: &SandboxArgs,
    policy: &Policy,
    folder: &WorkspaceFolder,
    SandboxAnswer { outcome, harvest: judged, changes: settled, .. }: &SandboxAnswer,
) -> Result<u8, CommandError> {
    let (code, by) = code(outcome, *settled);
    if command.json {
        let report = json!({
            "version": VERSION,
            "command": shown(&command.command, policy),
            "end": end(outcome.end),
            "exit": { "code": code, "by": by },
            "elapsed_ms": outcome.elapsed.as_millis() as u64,
            "output": outcome.output,
            "attestation": outcome.attestation,
            "repository": folder.repository.as_ref().map(|_| folder.custody),
            "network": outcome.network,
            "harvest": judged,
            "result": settled,
        });
        if io::stdout().is_terminal() {
            start_line(&outcome.output);
        }
        writeln!(io::stdout().lock(), "{report:#}").map_err(sandbox_failed)?;
    } else {
        let mut said = Vec::new();
        let written = say(&mut said, outcome, judged, *settled);
        if !said.is_empty() {
            start_line(&outcome.output);
        }
        // Nobody listening changes nothing about what happened.
        let _ = written.and_then(|()| io::stderr().lock().write_all(&said));
    }
    Ok(code)
}

/// Ends an unfinished line of the command on a terminal, and resets its colour.
fn start_line(output: &OutputTotals) {
    let mut out = io::stderr().lock();
    if out.is_terminal() && output.iter().any(|stream| stream.in_line) {
        let _ = out.write_all(b"\x1b[0m\n");
    }
}

/// The command as it was typed; its output has no secrets, so this has none either.
fn shown(command: &[OsString], policy: &Policy) -> Vec<String> {
    let redacted = |part: &OsString| output::redacted(&policy.secrets, part.as_bytes());
    command.iter().map(|part| String::from_utf8_lossy(&redacted(part)).into_owned()).collect()
}

/// The exit code, and whose it is: the command's or `agency`'s.
fn code(outcome: &LaunchOutcome, settled: ChangesOutcome) -> (u8, &'static str) {
    if settled == ChangesOutcome::Refused {
        return (20, "agency");
    }
    match outcome.end {
        CommandExit::Exited(code) => (code as u8, "command"),
        CommandExit::Signaled(signal) => (128u8.wrapping_add(signal as u8), "command"),
        CommandExit::Stopped(StopCause::Interrupted(_) | StopCause::Asked) => (130, "agency"),
        CommandExit::Stopped(StopCause::Wall | StopCause::Stall | StopCause::Memory) => (124, "agency"),
        CommandExit::NotStarted(NO_SUCH_FILE) => (127, "agency"),
        CommandExit::NotStarted(_) => (126, "agency"),
    }
}

const NO_SUCH_FILE: i32 = 2;

fn end(end: CommandExit) -> Value {
    match end {
        CommandExit::Exited(code) => json!({ "kind": "exited", "code": code }),
        CommandExit::Signaled(signal) => json!({ "kind": "signaled", "signal": signal }),
        CommandExit::Stopped(StopCause::Interrupted(signal)) => {
            json!({ "kind": "stopped", "why": "interrupted", "signal": signal })
        }
        CommandExit::Stopped(why) => json!({ "kind": "stopped", "why": why }),
        CommandExit::NotStarted(error) => json!({ "kind": "not-started", "error": error }),
    }
}

/// Prints nothing for a command that changed nothing, so that it looks as it does without a sandbox.
fn say(
    out: &mut impl Write,
    outcome: &LaunchOutcome,
    judged: &Harvest,
    settled: ChangesOutcome,
) -> io::Result<()> {
    match outcome.end {
        CommandExit::NotStarted(error) => {
            let reason = io::Error::from_raw_os_error(error);
            writeln!(out, "agency: the command can't be started: {reason}")?;
            writeln!(
                out,
                "  hint: only the operating system, toolchains and this folder are visible inside; `--read PATH` shows more"
            )?;
        }
        CommandExit::Stopped(why) => {
            let why = match why {
                StopCause::Wall => "it ran for longer than --timeout allows",
                StopCause::Stall => "no output or file change for as long as --stall allows",
                StopCause::Memory => "it used more memory than it may; --memory says how much that is",
                StopCause::Interrupted(_) | StopCause::Asked => "interrupted",
            };
            writeln!(out, "agency: stopped: {why}")?;
        }
        CommandExit::Exited(_) | CommandExit::Signaled(_) => {}
    }
    if let Some(traffic) = &outcome.network {
        say_unreached(out, traffic)?;
    }
    for error in outcome.output.iter().filter_map(|stream| stream.error.as_ref()) {
        writeln!(out, "agency: not all of the output could be written: {error}")?;
    }
    if let Some(missing) = missing(&outcome.output) {
        writeln!(out, "agency: {missing}")?;
    }
    if !judged.violations.is_empty() {
        writeln!(out, "agency: refused, nothing was applied:")?;
        list(
            out,
            judged.violations.iter().map(|violation| format!("  {violation}")),
            judged.violations_left_out,
        )?;
        let openings = judged.violations.iter().filter_map(|violation| match &violation.reason {
            Refused::ControlFile { open, .. } => open.as_deref(),
            _ => None,
        });
        let openings: Vec<String> = openings.take(3).map(|open| format!("--write '{open}'")).collect();
        if !openings.is_empty() {
            writeln!(out, "  hint: {} opens what a tool obeys", openings.join(" "))?;
        }
    }
    say_changes(out, judged, settled)?;
    list(out, judged.warnings.iter().map(|warning| format!("  note: {warning}")), 0)
}

fn say_changes(out: &mut impl Write, judged: &Harvest, settled: ChangesOutcome) -> io::Result<()> {
    if judged.changes.is_empty() {
        return Ok(());
    }
    let count = judged.changes.len();
    let files = if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
    let fate = match settled {
        ChangesOutcome::Applied => "applied",
        ChangesOutcome::Patched => "written as a patch",
        ChangesOutcome::Discarded => "thrown away; --apply or --patch FILE keeps them",
        ChangesOutcome::Refused => "in scope, and thrown away with the rest",
        ChangesOutcome::Unfinished => "thrown away: the command had not ended",
    };
    writeln!(out, "agency: {files} changed, {fate}:")?;
    list(
        out,
        judged.changes.iter().map(|change| {
            let sign = match change.kind() {
                ChangeKind::Added => '+',
                ChangeKind::Modified => '~',
                ChangeKind::Deleted => '-',
                ChangeKind::TypeChanged => '!',
            };
            format!("  {sign} {}", change.path)
        }),
        0,
    )
}

/// Hosts that the agent asked for and was refused, each once.
fn say_unreached(out: &mut impl Write, traffic: &NetworkTraffic) -> io::Result<()> {
    let mut hosts: BTreeMap<(&str, u16, &str), u64> = BTreeMap::new();
    for event in traffic
        .events
        .iter()
        .filter(|event| event.address.is_none() && event.reason != ConnectionReason::Ended)
    {
        *hosts.entry((&event.host, event.port, event.reason.what())).or_default() += 1;
    }
    if hosts.is_empty() {
        return Ok(());
    }
    writeln!(out, "agency: not reached:")?;
    list(
        out,
        hosts.into_iter().map(|((host, port, why), count)| {
            let times = if count == 1 { String::new() } else { format!(" ({count} times)") };
            if host.is_empty() { format!("  {why}{times}") } else { format!("  {host}:{port}: {why}{times}") }
        }),
        0,
    )?;
    match traffic.left_out {
        0 => Ok(()),
        more => writeln!(out, "  … and {more} connections that were not written down"),
    }
}

/// What was left out of the output.
fn missing(output: &OutputTotals) -> Option<String> {
    let redacted = match output.iter().map(|stream| stream.redacted).sum() {
        0 => None,
        1 => Some("1 secret redacted in the output".to_owned()),
        count => Some(format!("{count} secrets redacted in the output")),
    };
    let left_out = match output.iter().map(|stream| stream.left_out).sum() {
        0 => None,
        bytes => Some(format!("{bytes} bytes of the output left out; --output raises the limit")),
    };
    let parts: Vec<String> = [redacted, left_out].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The first lines of a list, and how many more there are. `uncounted` are not in the list at all.
fn list(
    out: &mut impl Write,
    lines: impl ExactSizeIterator<Item = String>,
    uncounted: usize,
) -> io::Result<()> {
    let left = lines.len().saturating_sub(SHOWN) + uncounted;
    for line in lines.take(SHOWN) {
        writeln!(out, "{line}")?;
    }
    if left > 0 {
        let all = if uncounted == 0 { "all" } else { "the first" };
        writeln!(out, "  … and {left} more (--json lists {all})")?;
    }
    Ok(())
}
