//! `agency verify`: is it done?
//!
//! The profile the task names is tried on the folder as it is, each command in a fresh sandbox; what was seen
//! becomes the artifact. The runs need no lock, and take as long as they take; only the record is made under
//! it.

#![allow(clippy::disallowed_methods, reason = "opens a log of ours")]

use std::path::{Path, PathBuf};

use agency_profiles::junit;
use agency_profiles::library::ProfileLibrary;
use agency_profiles::project_files::ProjectFiles;
use agency_profiles::proof::Proof;
use agency_profiles::prove::{ProofCandidate, ProofEvent, ProofRequest, ProveError, prove};
use agency_profiles::resolve::ResolvedProfile;
use agency_protocols::codifica::Codifica;
use agency_protocols::kodingx::artifact::VerifyResult;
use agency_protocols::kodingx::layout::{PROFILES, ROOT};
use agency_protocols::kodingx::task::Task;
use agency_protocols::kodingx::verification::{OverrideRequest, VerificationRecord};
use agency_protocols::kodingx::{BoardFile, KodingX};
use agency_protocols::names::TaskId;
use agency_sandbox::host::HostUser;
use agency_sandbox::monitor::NoMonitor;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::IsolationLevel;
use agency_supervisor::evidence;
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::app::approval::require_approver;
use crate::app::board::any_board::{AnyBoard, unsupported_verb};
use crate::app::board::{Caller, RepoContext, task_id};
use crate::app::configuration::trust::TrustRecord;
use crate::app::configuration::{ConfigOptions, Configuration};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::isolation;
use crate::app::state_folder;
use crate::cli::caller::ConfigArgs;
use crate::cli::caller::IsolationArg;
use crate::cli::exit::UNDONE;
use crate::cli::message;
use crate::cli::output::print_json;

/// Run a task's Definition of Done, and keep the proof
///
/// Each command runs in a sandbox of its own, on the folder as it is: everything in it can be written, and is
/// thrown away. There is no network unless a trusted profile asks for it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency verify --task T0007\n  agency verify --task T0007 --override --reason 'Hotfix INC-1234' --followup T0008 --as human"
)]
pub(crate) struct VerifyArgs {
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
    isolation: Option<IsolationArg>,
    /// Write a JUnit report, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    operator: ConfigArgs,
    /// As JSON, on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &VerifyArgs, who: &Caller) -> Result<u8, CommandError> {
    let here = crate::cli::caller::repository()?;
    let board = match here.board(who)? {
        AnyBoard::Kodingx(board) => board,
        AnyBoard::Codifica(board) => return run_codifica(command, who, &here, &board),
    };
    let found = board.find(here.tree(), &command.task).map_err(crate::app::board::board_error)?;
    let request = overriding(command, who, &here)?;
    if request.is_some() {
        board.no_open_p0(here.tree(), &found.value).map_err(crate::app::board::board_error)?;
    }
    let configuration = command.operator.load(&here.folder.root)?;
    message::notices(configuration.withheld_notice());
    let named = TaskProfile { task: &found.value.id, profile: &found.value.dod_profile, folder: PROFILES };
    let profile = profile(&here, &named, &command.operator.options())?;
    let board_folder = RelPath::parse(ROOT.as_bytes()).map_err(|error| CommandError::internal(&error))?;
    let proof = run_checks(command, &here, &configuration, &profile, &[board_folder])?;
    write_junit(command, &proof)?;
    let mut evidence = evidence::from_proof(&proof, &here.folder.root);
    evidence.notes.push(evidence::UNAUDITED.to_owned());
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    let verified = here.update_files(|tree| {
        board.record_verification(tree, &command.task, &evidence, request.as_ref(), &now)
    })?;
    if command.check_risks {
        tell_risks(&here, &board, &found)?;
    }
    tell(command, &verified, &proof)
}

fn write_junit(command: &VerifyArgs, proof: &Proof) -> Result<(), CommandError> {
    let Some(file) = &command.junit else { return Ok(()) };
    std::fs::write(file, junit::render(proof))
        .map_err(|error| CommandError::usage(format!("can't write {}: {error}", file.display())))
}

/// The same for a task of Codifica, where nobody overrides what is found.
fn run_codifica(
    command: &VerifyArgs,
    who: &Caller,
    here: &RepoContext,
    board: &Codifica,
) -> Result<u8, CommandError> {
    if command.overrides || command.check_risks {
        return Err(unsupported_verb(if command.overrides {
            "verify --override"
        } else {
            "verify --check-risks"
        }));
    }
    let found = board.find(here.tree(), &command.task).map_err(crate::app::board::board_error)?;
    let configuration = command.operator.load(&here.folder.root)?;
    message::notices(configuration.withheld_notice());
    let wanted = found.task.dod_profile.as_deref().unwrap_or(agency_protocols::codifica::PROFILE);
    let folder = agency_protocols::codifica::PROFILES;
    let profile = profile(
        here,
        &TaskProfile { task: &found.task.id, profile: wanted, folder },
        &command.operator.options(),
    )?;
    let proof = run_checks(command, here, &configuration, &profile, &[])?;
    write_junit(command, &proof)?;
    let mut evidence = evidence::from_proof(&proof, &here.folder.root);
    evidence.notes.push(evidence::UNAUDITED.to_owned());
    let (task, actor) = (&command.task, who.actor());
    super::codifica::evidence::record_proof((task, &actor), (&evidence, &proof), command.json, here, board)
}

/// The decision of a person, if there is one. Asked for before anything is run.
fn overriding(
    command: &VerifyArgs,
    who: &Caller,
    here: &RepoContext,
) -> Result<Option<OverrideRequest>, CommandError> {
    let (true, Some(reason), Some(followup)) = (command.overrides, &command.reason, &command.followup) else {
        return Ok(None);
    };
    let what = format!("overriding the verification of {}", command.task);
    let approver = require_approver(here, who, command.approver.as_deref(), &what)?;
    Ok(Some(OverrideRequest { approver, reason: reason.clone(), followup: followup.clone() }))
}

/// A task's profile, and where the repository keeps its own.
struct TaskProfile<'a> {
    task: &'a TaskId,
    profile: &'a str,
    folder: &'static str,
}

/// What the task's profile means here. One of the repository's own needs trust.
fn profile(
    here: &RepoContext,
    named: &TaskProfile<'_>,
    operator: &ConfigOptions,
) -> Result<ResolvedProfile, CommandError> {
    let TaskProfile { task, profile, folder } = named;
    let root = &here.folder.root;
    let sight = ProjectFiles::open(root).map_err(|error| CommandError::internal(&error))?;
    let library = ProfileLibrary::new(Some(root.join(folder)));
    let resolved = library.resolve(profile, &sight).map_err(|error| {
        CommandError::new(ErrorKind::Usage, &error)
            .with_hint(format!("{task} names `{profile}`; profiles are in {folder}/"))
    })?;
    if operator.trust || resolved.untrusted().is_empty() {
        return Ok(resolved);
    }
    let trust = TrustRecord::of(root)?;
    resolved.check_trust(root, |file, text| trust.covers(file, text)).map_err(|error| {
        CommandError::usage(error.to_string())
            .with_hint("`agency trust` shows it to you; --trust, or AGENCY_TRUST=1, trusts it this once")
    })?;
    Ok(resolved)
}

fn run_checks(
    command: &VerifyArgs,
    here: &RepoContext,
    configuration: &Configuration,
    profile: &ResolvedProfile,
    aside: &[RelPath],
) -> Result<Proof, CommandError> {
    let level = isolation::default_level(command.isolation.map(IsolationLevel::from), configuration)?;
    let container = isolation::container(configuration)?;
    if level.needs_image() && profile.steps().iter().any(|step| step.image.is_none()) {
        isolation::check_container("a check", container.as_ref())?;
    }
    let host = HostUser::observe();
    let state = state_folder::of_folder(&here.folder)?;
    let logs = state.folder("verify").map_err(|error| CommandError::internal(&error))?.join(format!(
        "{}-{}",
        command.task,
        here.now.strftime("%Y%m%dT%H%M%S%.6f")
    ));
    let variables: Vec<_> = std::env::vars_os().collect();
    let order = ProofRequest {
        folder: &here.folder,
        candidate: ProofCandidate::Live,
        level,
        container: container.as_ref(),
        host: &host,
        state: &state,
        copies: &state_folder::copies_folder(&host)?,
        logs: &logs,
        variables: &variables,
        handed: &[],
        trusted: true,
        fail_fast: command.fail_fast,
        aside,
        prepared: None,
        clock: &Timestamp::now,
        attendant: &NoMonitor,
    };
    prove(&order, profile, &mut progress).map_err(|error| match &error {
        error if error.is_unavailable() => {
            CommandError::new(ErrorKind::Unavailable, error).with_hint(error.hint())
        }
        ProveError::Interrupted { .. } => CommandError::new(ErrorKind::Interrupted, &error),
        ProveError::NotTrusted { .. } | ProveError::Nothing => CommandError::new(ErrorKind::Usage, &error),
        _ => CommandError::internal(&error),
    })
}

fn progress(event: ProofEvent<'_>) {
    match event {
        ProofEvent::Started { index, total, cmd, .. } => {
            message::notice(&format!("[{}/{total}] {cmd}", index + 1));
        }
        ProofEvent::Ended { index, total, command } => {
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

fn tell_risks(here: &RepoContext, board: &KodingX, found: &BoardFile<Task>) -> Result<(), CommandError> {
    use agency_protocols::kodingx::layout::RISKS;
    use agency_protocols::kodingx::risks::RiskRegister;
    let text =
        here.tree().read_text(RISKS).map_err(|error| CommandError::internal(&error))?.unwrap_or_default();
    let register = RiskRegister::parse(&text);
    let (_, check) = board.linked_risks(here.tree(), &found.value).map_err(crate::app::board::board_error)?;
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
struct VerifyAnswer<'a> {
    version: u32,
    task: &'a TaskId,
    result: VerifyResult,
    artifact: &'a str,
    #[serde(rename = "override", skip_serializing_if = "Option::is_none")]
    overridden: Option<&'a agency_protocols::kodingx::artifact::Override>,
    #[serde(skip_serializing_if = "Option::is_none")]
    risk_check: Option<&'a agency_protocols::kodingx::artifact::RiskCheck>,
    proof: &'a Proof,
}

fn tell(command: &VerifyArgs, verified: &VerificationRecord, proof: &Proof) -> Result<u8, CommandError> {
    let id = &verified.task.id;
    if command.json {
        print_json(&VerifyAnswer {
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
    Ok(if verified.result == VerifyResult::Pass || verified.overridden.is_some() { 0 } else { UNDONE })
}
