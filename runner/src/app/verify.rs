//! A task's Definition of Done, tried on the folder as it is, and the proof recorded.
//!
//! Each command runs in a fresh sandbox. The runs need no lock, and take as long as they take; only the record is made
//! under the lock of the board.

use agency_profiles::proof::Proof;
use agency_profiles::prove::{ProofCandidate, ProofEvent, ProofRequest, ProveError, prove};
use agency_profiles::resolve::ResolvedProfile;
use agency_protocols::board_verbs::{
    KeptVerification, OverrideRequest, RiskNote, VerificationInput, VerificationOptions, VerificationTarget,
};
use agency_protocols::names::TaskId;
use agency_sandbox::host::HostUser;
use agency_sandbox::monitor::NoMonitor;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::IsolationLevel;
use agency_supervisor::evidence;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::app::approval::require_approver;
use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::configuration::{ConfigOptions, Configuration};
use crate::app::error::{CommandError, ErrorKind};
use crate::app::isolation;
use crate::app::state_folder;
use crate::app::work_tree_profiles::WorkTreeProfiles;

/// A verification, as it is asked for.
pub(crate) struct VerifyRequest {
    pub(crate) task: TaskId,
    pub(crate) checks_risks: bool,
    pub(crate) wanted_override: Option<WantedOverride>,
    pub(crate) fail_fast: bool,
    pub(crate) isolation: Option<IsolationLevel>,
    pub(crate) options: ConfigOptions,
}

/// A person's wish that the task may be DONE although its verification fails.
pub(crate) struct WantedOverride {
    pub(crate) reason: String,
    pub(crate) followup: String,
    pub(crate) approver: Option<String>,
}

/// What was verified, and where the artifact is.
#[derive(Debug, Serialize)]
pub(crate) struct VerifyAnswer {
    version: u32,
    task: TaskId,
    result: String,
    artifact: String,
    #[serde(flatten)]
    fields: Map<String, Value>,
    pub(crate) proof: Proof,
    #[serde(skip)]
    pub(crate) kept: KeptVerification,
    #[serde(skip)]
    pub(crate) risks: Vec<RiskNote>,
}

/// Runs the checks and records what was seen. `progress` hears of each command, and `checked` of the proof before it is
/// recorded.
pub(crate) fn verify(
    here: &RepoContext,
    who: &Caller,
    request: &VerifyRequest,
    progress: &mut dyn FnMut(ProofEvent<'_>),
    checked: impl FnOnce(&Proof) -> Result<(), CommandError>,
) -> Result<VerifyAnswer, CommandError> {
    let (board, task) = (here.board(who)?, &request.task);
    let options = VerificationOptions {
        is_override: request.wanted_override.is_some(),
        checks_risks: request.checks_risks,
    };
    let target = board.verification_target(here.tree(), task, options).map_err(board_error)?;
    // A person is asked before anything runs.
    let wanted = request.wanted_override.as_ref();
    let approved = wanted.map(|wanted| approve(here, who, task, wanted)).transpose()?;
    let configuration = Configuration::load(&here.folder.root, &request.options)?;
    let notices = configuration.notices().iter().cloned().chain(configuration.withheld_notice());
    notices.for_each(|notice| here.notice(&notice));
    let profile = profile(here, task, &target, &request.options)?;
    let proof = run_checks(here, request, (&configuration, &profile), &target, progress)?;
    checked(&proof)?;
    let mut evidence = evidence::from_proof(&proof, &here.folder.root);
    evidence.notes.push(evidence::UNAUDITED.to_owned());
    let (actor, now) = (who.actor(), Timestamp::now().to_zoned(TimeZone::UTC));
    let input =
        VerificationInput { id: task, evidence: &evidence, request: approved.as_ref(), actor: &actor };
    let kept = here.update_board(board.as_ref(), |tree| board.keep_verification(tree, &input, &now))?;
    let risks = match request.checks_risks {
        true => board.linked_risk_notes(here.tree(), task).map_err(board_error)?,
        false => Vec::new(),
    };
    let (result, artifact, fields) = (kept.result.clone(), kept.artifact.clone(), kept.fields.clone());
    Ok(VerifyAnswer { version: 1, task: task.clone(), result, artifact, fields, proof, kept, risks })
}

fn approve(
    here: &RepoContext,
    who: &Caller,
    task: &TaskId,
    wanted: &WantedOverride,
) -> Result<OverrideRequest, CommandError> {
    let what = format!("overriding the verification of {task}");
    let approver = require_approver(here, who, wanted.approver.as_deref(), &what)?;
    Ok(OverrideRequest { approver, reason: wanted.reason.clone(), followup: wanted.followup.clone() })
}

/// The commands of the task's profile.
fn profile(
    here: &RepoContext,
    task: &TaskId,
    VerificationTarget { profile, profiles_folder, .. }: &VerificationTarget,
    options: &ConfigOptions,
) -> Result<ResolvedProfile, CommandError> {
    let profiles = WorkTreeProfiles::open(here, Some(profiles_folder), options)?;
    let resolved = profiles.resolve(profile);
    resolved.map_err(|error| {
        error.or_hint(&format!("{task} names `{profile}`; profiles are in {profiles_folder}/"))
    })
}

fn run_checks(
    here: &RepoContext,
    request: &VerifyRequest,
    (configuration, profile): (&Configuration, &ResolvedProfile),
    target: &VerificationTarget,
    progress: &mut dyn FnMut(ProofEvent<'_>),
) -> Result<Proof, CommandError> {
    let internal = |error: &(dyn std::error::Error + 'static)| CommandError::internal(error);
    let level = isolation::default_level(request.isolation, configuration)?;
    let container = isolation::container(configuration)?;
    if level.needs_image() && profile.steps().iter().any(|step| step.image.is_none()) {
        isolation::check_container("a check", container.as_ref())?;
    }
    let apart = target.apart.map(|path| RelPath::parse(path.as_bytes())).transpose();
    let apart: Vec<RelPath> = apart.map_err(|error| internal(&error))?.into_iter().collect();
    let host = HostUser::observe();
    let state = state_folder::of_folder(&here.folder)?;
    let moment = here.now.strftime("%Y%m%dT%H%M%S%.6f");
    let logs = state.folder("verify").map_err(|error| internal(&error))?;
    let variables: Vec<_> = std::env::vars_os().collect();
    let order = ProofRequest {
        folder: &here.folder,
        candidate: ProofCandidate::Live,
        level,
        container: container.as_ref(),
        host: &host,
        state: &state,
        copies: &state_folder::copies_folder(&host)?,
        logs: &logs.join(format!("{}-{moment}", request.task)),
        variables: &variables,
        handed: &[],
        trusted: true,
        fail_fast: request.fail_fast,
        aside: &apart,
        prepared: None,
        clock: &Timestamp::now,
        attendant: &NoMonitor,
    };
    prove(&order, profile, progress).map_err(|error| match &error {
        error if error.is_unavailable() => {
            CommandError::new(ErrorKind::Unavailable, error).with_hint(error.hint())
        }
        ProveError::Interrupted { .. } => CommandError::new(ErrorKind::Interrupted, &error),
        ProveError::NotTrusted { .. } | ProveError::Nothing => CommandError::new(ErrorKind::Usage, &error),
        _ => internal(&error),
    })
}
