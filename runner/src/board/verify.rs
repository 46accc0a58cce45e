//! `agency verify`: is it done?
//!
//! The profile the task names is tried on the folder as it is, each command in a fresh sandbox; what was seen
//! becomes the artifact. The runs need no lock, and take as long as they take; only the record is made under
//! it.

#![allow(clippy::disallowed_methods, reason = "opens a log of ours")]

use std::path::{Path, PathBuf};

use agency_profiles::junit;
use agency_profiles::library::Library;
use agency_profiles::proof::Proof;
use agency_profiles::prove::{Candidate, Event, Order, ProveError, prove};
use agency_profiles::resolve::Resolved;
use agency_profiles::sight::Sight;
use agency_protocols::codifica::Codifica;
use agency_protocols::kodingx::artifact::Verdict;
use agency_protocols::kodingx::layout::{PROFILES, ROOT};
use agency_protocols::kodingx::task::Task;
use agency_protocols::kodingx::verified::{OverrideRequest, Verified};
use agency_protocols::kodingx::{Found, KodingX};
use agency_protocols::names::TaskId;
use agency_sandbox::host::Host;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::Level;
use agency_sandbox::supervise::Nobody;
use agency_supervisor::evidence;
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use super::spoken::{Spoken, not_there};
use super::{Here, Who, approver, print_json, task_id};
use crate::arguments::Isolation;
use crate::configuration::trust::Trust;
use crate::configuration::{Configuration, Operator};
use crate::isolation;
use crate::message::{self, Failure, INTERNAL, UNAVAILABLE, UNDONE, USAGE};
use crate::state;

/// Run a task's Definition of Done, and keep the proof
///
/// Each command runs in a sandbox of its own, on the folder as it is: everything in it can be written, and is
/// thrown away. There is no network unless a trusted profile asks for it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency verify --task T0007\n  agency verify --task T0007 --override --reason 'Hotfix INC-1234' --followup T0008 --as human"
)]
pub(crate) struct Verify {
    /// The task
    #[arg(long, value_name = "ID", value_parser = task_id)]
    task: TaskId,
    /// Print what the risks say that the task is linked to. They are checked either way
    #[arg(long)]
    check_risks: bool,
    /// A person decides that the task may be DONE although its verification fails
    #[arg(long = "override", requires_all = ["reason", "followup"], help_heading = "Override")]
    overrides: bool,
    /// Why
    #[arg(long, value_name = "TEXT", requires = "overrides", help_heading = "Override")]
    reason: Option<String>,
    /// The task that makes up for it; a title makes one
    #[arg(long, value_name = "ID|TITLE", requires = "overrides", help_heading = "Override")]
    followup: Option<String>,
    /// Who decides [default: --as human:NAME, or git's user.email]
    #[arg(long, value_name = "NAME", requires = "overrides", help_heading = "Override")]
    approver: Option<String>,
    /// Stop at the first command that fails
    #[arg(long)]
    fail_fast: bool,
    /// How the commands are held [default: process]
    #[arg(long, value_enum)]
    isolation: Option<Isolation>,
    /// Write a JUnit report, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    operator: Operator,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &Verify, who: &Who) -> Result<u8, Failure> {
    let here = Here::find()?;
    let board = match here.board(who)? {
        Spoken::Kodingx(board) => board,
        Spoken::Codifica(board) => return run_codifica(command, who, &here, &board),
    };
    let found = board.find(here.tree(), &command.task).map_err(super::refused)?;
    let request = overriding(command, who, &here)?;
    if request.is_some() {
        board.no_open_p0(here.tree(), &found.value).map_err(super::refused)?;
    }
    let configuration = Configuration::load(&here.folder.root, &command.operator)?;
    configuration.mention_withheld();
    let named = Named { task: &found.value.id, profile: &found.value.dod_profile, folder: PROFILES };
    let profile = profile(&here, &named, &command.operator)?;
    let board_folder = RelPath::parse(ROOT.as_bytes()).map_err(|error| Failure::new(INTERNAL, &error))?;
    let proof = tried(command, &here, &configuration, &profile, &[board_folder])?;
    write_junit(command, &proof)?;
    let mut evidence = evidence::of(&proof, &here.folder.root);
    evidence.notes.push(evidence::UNAUDITED.to_owned());
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    let verified = here.act(|tree| board.verified(tree, &command.task, &evidence, request.as_ref(), &now))?;
    if command.check_risks {
        tell_risks(&here, &board, &found)?;
    }
    tell(command, &verified, &proof)
}

fn write_junit(command: &Verify, proof: &Proof) -> Result<(), Failure> {
    let Some(file) = &command.junit else { return Ok(()) };
    std::fs::write(file, junit::document(proof))
        .map_err(|error| Failure::usage(format!("can't write {}: {error}", file.display())))
}

/// The same for a task of Codifica, where nobody overrides what is found.
fn run_codifica(command: &Verify, who: &Who, here: &Here, board: &Codifica) -> Result<u8, Failure> {
    if command.overrides || command.check_risks {
        return Err(not_there(if command.overrides { "verify --override" } else { "verify --check-risks" }));
    }
    let found = board.find(here.tree(), &command.task).map_err(super::refused)?;
    let configuration = Configuration::load(&here.folder.root, &command.operator)?;
    configuration.mention_withheld();
    let wanted = found.task.dod_profile.as_deref().unwrap_or(agency_protocols::codifica::PROFILE);
    let folder = agency_protocols::codifica::PROFILES;
    let profile = profile(here, &Named { task: &found.task.id, profile: wanted, folder }, &command.operator)?;
    let proof = tried(command, here, &configuration, &profile, &[])?;
    write_junit(command, &proof)?;
    let mut evidence = evidence::of(&proof, &here.folder.root);
    evidence.notes.push(evidence::UNAUDITED.to_owned());
    let (task, actor) = (&command.task, who.actor());
    super::codifica::told::verified((task, &actor), (&evidence, &proof), command.json, here, board)
}

/// The decision of a person, if there is one. Asked for before anything is run.
fn overriding(command: &Verify, who: &Who, here: &Here) -> Result<Option<OverrideRequest>, Failure> {
    let (true, Some(reason), Some(followup)) = (command.overrides, &command.reason, &command.followup) else {
        return Ok(None);
    };
    let what = format!("overriding the verification of {}", command.task);
    let approver = approver(command.approver.as_deref(), who, here, &what)?;
    Ok(Some(OverrideRequest { approver, reason: reason.clone(), followup: followup.clone() }))
}

/// A task's profile, and where the repository keeps its own.
struct Named<'a> {
    task: &'a TaskId,
    profile: &'a str,
    folder: &'static str,
}

/// What the task's profile means here. One of the repository's own needs trust.
fn profile(here: &Here, named: &Named<'_>, operator: &Operator) -> Result<Resolved, Failure> {
    let Named { task, profile, folder } = named;
    let root = &here.folder.root;
    let sight = Sight::of(root).map_err(|error| Failure::new(INTERNAL, &error))?;
    let library = Library::new(Some(root.join(folder)));
    let resolved = library.resolve(profile, &sight).map_err(|error| {
        Failure::new(USAGE, &error).with_hint(format!("{task} names `{profile}`; profiles are in {folder}/"))
    })?;
    if operator.trust || resolved.untrusted().is_empty() {
        return Ok(resolved);
    }
    let trust = Trust::of(root)?;
    for own in resolved.untrusted() {
        let name = own.path.strip_prefix(root).unwrap_or(&own.path).to_string_lossy().into_owned();
        if !trust.covers(&name, &own.text) {
            return Err(Failure::usage(format!(
                "{name} is the repository's own profile, and nobody has trusted it as it is"
            ))
            .with_hint("`agency trust` shows it to you; --trust, or AGENCY_TRUST=1, trusts it this once"));
        }
    }
    Ok(resolved)
}

fn tried(
    command: &Verify,
    here: &Here,
    configuration: &Configuration,
    profile: &Resolved,
    aside: &[RelPath],
) -> Result<Proof, Failure> {
    let level = isolation::usual(command.isolation, configuration)?;
    let container = isolation::container(configuration)?;
    if level == Level::Container && profile.steps().iter().any(|step| step.image.is_none()) {
        isolation::check_container("a check", container.as_ref())?;
    }
    let host = Host::observe();
    let state = state::of(&here.folder)?;
    let logs = state.folder("verify").map_err(|error| Failure::new(INTERNAL, &error))?.join(format!(
        "{}-{}",
        command.task,
        here.now.strftime("%Y%m%dT%H%M%S%.6f")
    ));
    let variables: Vec<_> = std::env::vars_os().collect();
    let order = Order {
        folder: &here.folder,
        candidate: Candidate::Live,
        level,
        container: container.as_ref(),
        host: &host,
        state: &state,
        copies: &state::copies(&host)?,
        logs: &logs,
        variables: &variables,
        handed: &[],
        trusted: true,
        fail_fast: command.fail_fast,
        aside,
        prepared: None,
        clock: &Timestamp::now,
        attendant: &Nobody,
    };
    prove(&order, profile, &mut progress).map_err(|error| match &error {
        error if error.is_unavailable() => Failure::new(UNAVAILABLE, error).with_hint(error.hint()),
        ProveError::Interrupted { .. } => Failure::new(message::INTERRUPTED, &error),
        ProveError::NotTrusted { .. } | ProveError::Nothing => Failure::new(USAGE, &error),
        _ => Failure::new(INTERNAL, &error),
    })
}

fn progress(event: Event<'_>) {
    match event {
        Event::Started { index, total, cmd, .. } => {
            message::notice(&format!("[{}/{total}] {cmd}", index + 1));
        }
        Event::Ended { index, total, command } => {
            let seconds = command.duration_ms as f64 / 1000.0;
            let mark = if command.passed() { "ok" } else { "FAILED" };
            message::notice(&format!("[{}/{total}] {mark}: {} ({seconds:.1} s)", index + 1, command.ended));
            if let (false, Some(log)) = (command.passed(), &command.log) {
                tail(log);
            }
        }
    }
}

/// How much of a failed command's output is shown.
const LINES: usize = 20;

fn tail(log: &Path) {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(16 << 10)..]).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        message::notice(&format!("  | {line}"));
    }
    message::notice(&format!("  all of it: {}", log.display()));
}

fn tell_risks(here: &Here, board: &KodingX, found: &Found<Task>) -> Result<(), Failure> {
    use agency_protocols::kodingx::layout::RISKS;
    use agency_protocols::kodingx::risks::Register;
    let text =
        here.tree().read_text(RISKS).map_err(|error| Failure::new(INTERNAL, &error))?.unwrap_or_default();
    let register = Register::parse(&text);
    let (_, check) = board.linked_risks(here.tree(), &found.value).map_err(super::refused)?;
    for id in &found.value.risks {
        let blocks = check.as_ref().is_some_and(|check| check.blocking_risks.contains(id));
        let known = match register.get(id) {
            Some(risk) => format!("{} {:?}", risk.priority, risk.status).to_uppercase(),
            None => "not in RISKS.md".to_owned(),
        };
        message::notice(&match blocks {
            true => format!("⚠ risk {id} ({known}) is linked: it is in the way of DONE"),
            false => format!("✓ risk {id} ({known}): ok"),
        });
    }
    Ok(())
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    version: u32,
    task: &'a TaskId,
    result: Verdict,
    artifact: &'a str,
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    overridden: Option<&'a agency_protocols::kodingx::artifact::Override>,
    #[serde(skip_serializing_if = "Option::is_none")]
    risk_check: Option<&'a agency_protocols::kodingx::artifact::RiskCheck>,
    proof: &'a Proof,
}

fn tell(command: &Verify, verified: &Verified, proof: &Proof) -> Result<u8, Failure> {
    let id = &verified.task.id;
    if command.json {
        print_json(&Document {
            version: 1,
            task: id,
            result: verified.result,
            artifact: &verified.artifact_path,
            overridden: verified.overridden.as_ref(),
            risk_check: verified.risk_check.as_ref(),
            proof,
        })?;
    } else {
        if let Some(check) = verified.risk_check.as_ref().filter(|check| !check.blocking_reason.is_empty()) {
            message::notice(&check.blocking_reason);
        }
        message::notice(&format!("{id}: {}, see {}", verified.result.as_str(), verified.artifact_path));
        match &verified.overridden {
            Some(given) => message::notice(&format!(
                "overridden by {}: {}, follow-up {}",
                given.approver, given.decision_ref, given.followup_task
            )),
            None if command.overrides => message::notice("it passed, so there was nothing to override"),
            None => {}
        }
    }
    Ok(if verified.result == Verdict::Pass || verified.overridden.is_some() { 0 } else { UNDONE })
}
