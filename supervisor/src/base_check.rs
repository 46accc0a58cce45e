//! Runs a profile's checks on the branch as it is, before an agent is paid for work that could not be verified.
//!
//! A check that needs a missing program, a setup that fails and a profile that can't be resolved would fail for every
//! task. So the first task of a profile waits until its checks have run once on the base: as a job of its own, in a
//! folder that is named after everything that decides the result. A result that another run can use is found there
//! again. A check that fails on the base for another reason is only a warning: a task may be there to fix it.
//!
//! Nothing depends on the job: it has a short lease, and stops by itself soon after its supervisor.

use std::path::PathBuf;
use std::time::Duration;

use agency_landing::names::Oid;
use agency_landing::refs;
use agency_profiles::dependencies::suggest_setup;
use agency_profiles::library::ProfileLibrary;
use agency_profiles::project_files::ProjectFiles;
use agency_sandbox::erase;
use agency_sandbox::policy::{ContainerConfig, IsolationLevel};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::attempt::{Epoch, TaskKey};
use crate::clock::{BootClock, Clock};
use crate::driver::{DriveError, RunContext, unexpected};
use crate::failed_commands::FailedCommands;
use crate::job::order::{self, JobKind, JobOrder, ProofOrder, WorkspaceSetup};
use crate::job::outcome::JobResult;
use crate::job::{JobError, JobFolder, JobState, shim_client};
use crate::run_event::RunEvent;
use crate::settings::RunSettings;
use crate::store::AttemptStore;

/// Below the state folder.
pub(crate) const FOLDER: &str = "base-checks";
/// How long the job goes on without its supervisor, and how often it hears of it.
const LEASE: Duration = Duration::from_secs(60);
const BEAT: Duration = Duration::from_secs(10);
/// Of another run that does the same.
const OTHERS: usize = 3;
/// What a cargo that may not fetch says.
const OFFLINE: &str = "--offline";
/// What an interpreter says of a package that is not installed.
const NO_PACKAGE: [&str; 3] = ["No module named", "Cannot find module", "Cannot find package"];

/// What the checks of a profile came to on the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BaseCheck {
    Passed,
    /// They fail. A task may be there to fix them.
    Failing {
        what: String,
        log: Option<PathBuf>,
    },
    /// They would fail for every task.
    Unfit {
        why: String,
        log: Option<PathBuf>,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The machine lacked something, or the job was stopped: nothing is known.
    Untried {
        why: String,
    },
}

/// What decides the result, beside the tree.
#[derive(Serialize)]
struct CheckKey<'a> {
    tree: &'a str,
    profile: &'a str,
    /// What it is resolved to in the work tree, or why it can't be.
    resolved: &'a str,
    setup: Option<&'a WorkspaceSetup>,
    level: IsolationLevel,
    container: Option<&'a ContainerConfig>,
}

/// Runs the checks of a profile on the branch as it is, or finds what they came to.
pub(crate) async fn check<S: AttemptStore>(
    context: &RunContext<S>,
    profile: &str,
) -> Result<BaseCheck, DriveError> {
    let (base, tree) = base_of(context).await?;
    let place = JobFolder::new(folder(context, profile, &tree));
    for _ in 0..OTHERS {
        match place.state()? {
            JobState::Over(outcome) => {
                let found = judge(&outcome.done, &context.settings);
                if found.is_kept() {
                    return Ok(found);
                }
                forget(&place)?;
            }
            JobState::Lost => forget(&place)?,
            // Another run does the same.
            JobState::Alive => shim_client::wait_until_gone(&place).await?,
            JobState::Unordered | JobState::Waiting => break,
        }
    }
    context.events.tell(&RunEvent::CheckingBase { profile: profile.to_owned() });
    place.order(&order(context, profile, &base))?;
    carry_out(context, &place).await?;
    Ok(match place.state()? {
        JobState::Over(outcome) => judge(&outcome.done, &context.settings),
        _ => BaseCheck::Untried { why: "the checks of the base were stopped".to_owned() },
    })
}

/// The commit that agents start from, and its tree.
async fn base_of<S>(context: &RunContext<S>) -> Result<(Oid, Oid), DriveError> {
    let (repository, branch) = (context.repository.clone(), context.settings.branch.clone());
    let look = move || -> Result<Option<(Oid, Oid)>, agency_landing::Error> {
        let Some(base) = refs::at(&repository, &branch)? else { return Ok(None) };
        let tree = refs::tree_of(&repository, &base)?;
        Ok(Some((base, tree)))
    };
    let found = tokio::task::spawn_blocking(look).await.map_err(|_| unexpected("a thread broke"))?;
    found?.ok_or_else(|| unexpected("the branch has no commit to start from"))
}

fn folder<S>(context: &RunContext<S>, profile: &str, tree: &Oid) -> PathBuf {
    let settings = &context.settings;
    let own = context.board_thread.profiles.map(|folder| settings.root.join(folder));
    let resolved = ProjectFiles::open(&settings.root)
        .map_err(|error| error.to_string())
        .and_then(|files| {
            ProfileLibrary::new(own).resolve(profile, &files).map_err(|error| error.to_string())
        })
        .map_or_else(|why| why, |resolved| resolved.hash());
    let key = CheckKey {
        tree: tree.as_str(),
        profile,
        resolved: &resolved,
        setup: settings.setup.as_ref(),
        level: settings.level,
        container: settings.container.as_ref(),
    };
    // Strings and numbers always become JSON.
    let digest = Sha256::digest(serde_json::to_vec(&key).unwrap_or_default());
    let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    settings.state.join(FOLDER).join(name)
}

fn order<S>(context: &RunContext<S>, profile: &str, base: &Oid) -> JobOrder {
    let settings = &context.settings;
    let task = TaskKey { protocol: context.board_thread.protocol.to_owned(), id: "base".to_owned() };
    let proof = ProofOrder {
        commit: base.to_string(),
        judged_by: base.to_string(),
        profile: profile.to_owned(),
        profiles: context.board_thread.profiles.map(str::to_owned),
        trust: settings.trust.clone(),
        setup: settings.setup_order([base.as_str()]),
    };
    JobOrder {
        version: order::VERSION,
        task,
        epoch: Epoch(0),
        root: settings.root.clone(),
        state: settings.state.clone(),
        copies: settings.copies.clone(),
        level: settings.level,
        container: settings.container.clone(),
        trace: None,
        what: JobKind::Proof(Box::new(proof)),
    }
}

/// Sends a shim, and stays with it until it is gone.
async fn carry_out<S: AttemptStore>(context: &RunContext<S>, place: &JobFolder) -> Result<(), DriveError> {
    let term = context.terms.newest();
    let waiting = match context.shim.send(place, term).await {
        Ok(waiting) => waiting,
        // Another run's shim is at it.
        Err(JobError::NotReady { said }) if said.is_empty() => {
            return Ok(shim_client::wait_until_gone(place).await?);
        }
        Err(error) => return Err(error.into()),
    };
    let begun = waiting.begin(term, BootClock.now() + LEASE).await;
    begun.map_err(|source| JobError::Start { source })?;
    let gone = shim_client::wait_until_gone(place);
    tokio::pin!(gone);
    let mut beat = tokio::time::interval(BEAT);
    loop {
        tokio::select! {
            gone = &mut gone => return Ok(gone?),
            // A shim that does not answer is about to be gone.
            _ = beat.tick() => drop(shim_client::renew(place, term, BootClock.now() + LEASE).await),
        }
    }
}

fn judge(done: &JobResult, settings: &RunSettings) -> BaseCheck {
    match done {
        JobResult::Proof(proof) if proof.evidence.passed => BaseCheck::Passed,
        JobResult::Proof(proof) => match FailedCommands::of(&proof.evidence) {
            Some(failed) => judge_failed(&failed, settings),
            None => BaseCheck::Untried { why: proof.evidence.notes.join("; ") },
        },
        JobResult::NotRun { reason, hint, .. } => {
            BaseCheck::Unfit { why: reason.clone(), log: None, hint: hint.clone() }
        }
        JobResult::NoRoom { reason }
        | JobResult::Away { reason }
        | JobResult::Lost { reason }
        | JobResult::Unread { reason } => BaseCheck::Untried { why: reason.clone() },
        JobResult::Stopped | JobResult::Agent(_) => BaseCheck::Untried { why: "it was stopped".to_owned() },
    }
}

/// Whether checks that fail would fail for every task.
fn judge_failed(failed: &FailedCommands, settings: &RunSettings) -> BaseCheck {
    let suggested = match settings.setup {
        Some(_) => None,
        None => ProjectFiles::open(&settings.root).ok().and_then(|files| suggest_setup(&files)),
    };
    let lacks_packages = suggested.is_some() && NO_PACKAGE.iter().any(|sign| failed.quoted().contains(sign));
    let lacks_crates = failed.quoted().contains(OFFLINE);
    if !lacks_packages && !lacks_crates && failed.without_program().is_none() {
        return BaseCheck::Failing { what: failed.to_string(), log: failed.log() };
    }
    let hint = match suggested {
        Some(setup) => format!("add to agency.toml, below [workspace]: {}", setup.to_toml()),
        None if lacks_crates => {
            "run `cargo fetch` once: a sandbox sees ~/.cargo and has no network".to_owned()
        }
        None => "install the program, or let `[workspace] setup` in agency.toml install it".to_owned(),
    };
    BaseCheck::Unfit { why: failed.to_string(), log: failed.log(), hint: Some(hint) }
}

impl BaseCheck {
    /// Whether a later run may believe it. What a person is told to change may have changed since.
    fn is_kept(&self) -> bool {
        matches!(self, Self::Passed | Self::Failing { .. })
    }

    /// Why tasks of the profile don't start, if they don't.
    pub(crate) fn bars(&self) -> Option<&str> {
        match self {
            Self::Unfit { why, .. } => Some(why),
            Self::Passed | Self::Failing { .. } | Self::Untried { .. } => None,
        }
    }
}

fn forget(place: &JobFolder) -> Result<(), DriveError> {
    let path = place.path();
    erase::tree(path)
        .map_err(|source| JobError::File { doing: "remove", path: path.to_owned(), source }.into())
}
