//! Takes landed work back: a revert that is verified and lands as any work does, and the task is open again.
//!
//! Each step finds what the step before it left, so an undo that was killed is finished by the next one: the revert names
//! the commit that it takes back, and the board is told last.

use agency_landing::land::LandOutcome;
use agency_landing::landed_record;
use agency_landing::names::{Oid, RefName, TaskName};
use agency_landing::refs;
use agency_landing::revert::{self, RevertMessage, RevertOutcome};
use agency_protocols::board_verbs::{BoardVerbs, UndoneTask};
use agency_protocols::names::TaskId;
use agency_protocols::store::Effects;
use agency_supervisor::attempt::{TaskKey, Term};
use agency_supervisor::base_check::{CheckContext, CheckedCommit};
use agency_supervisor::clock;
use agency_supervisor::run_event::BaseCheck;
use agency_supervisor::store::AttemptStore;
use serde::Serialize;

use crate::app::approval::require_person;
use crate::app::attempt_store::with_store;
use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::configuration::ConfigOptions;
use crate::app::error::{CommandError, ErrorKind};
use crate::app::run::helper_programs;
use crate::app::run::{LandingPlan, plan_undo};
use crate::app::wording::short_commit;

/// How often the branch may move while a revert is verified.
const TRIES: usize = 5;

/// Work that is to be taken back.
pub(crate) struct UndoRequest {
    pub(crate) task: TaskId,
    pub(crate) reason: String,
    pub(crate) options: ConfigOptions,
}

/// Work that was taken back.
#[derive(Debug, Serialize)]
pub(crate) struct UndoAnswer {
    version: u32,
    pub(crate) task: TaskId,
    /// The commit that had landed.
    pub(crate) undone: String,
    /// The commit that takes it back; `None` where the branch had nothing of it any more.
    pub(crate) commit: Option<String>,
    pub(crate) branch: String,
}

pub(crate) fn undo(
    here: &RepoContext,
    who: &Caller,
    request: &UndoRequest,
) -> Result<UndoAnswer, CommandError> {
    let task = &request.task;
    if request.reason.trim().is_empty() {
        return Err(CommandError::usage("an undo needs its reason"));
    }
    let board = here.board(who)?;
    let page = board.task_page(here.tree(), task).map_err(board_error)?;
    let profile = profile(here, board.as_ref(), task)?;
    let person = require_person(here, who, &format!("undoing {task}"))?;
    let person = person.unwrap_or_else(|| "a person".to_owned());
    let plan = plan_undo(here, who, request.options.clone())?;
    if let Some(sharing) = &plan.sharing {
        sharing.refresh().map_err(|error| failed(&error))?;
    }
    let name = TaskName::new(plan.protocol, task.as_str()).map_err(|error| failed(&error))?;
    let landed = landed_record::read(&plan.repository, &name).map_err(|error| failed(&error))?;
    let landed = landed.ok_or_else(|| {
        CommandError::new_message(ErrorKind::NoSuch, format!("{task} has not landed"))
            .with_hint(format!("`agency show {task}` shows its attempts"))
    })?;
    let signature = here.committer()?.signature(clock::wall_seconds());
    let message =
        RevertMessage { task: &name, title: &page.summary.title, reason: &request.reason, who: &signature };
    let branch = revert::branch_with_work(&plan.repository, &landed, &plan.settings.branch);
    let branch = branch.map_err(|error| failed(&error))?;
    let commit = take_back(here, &plan, (&landed.commit, &branch), &message, &profile)?;
    if let Some(commit) = commit.as_ref().filter(|_| branch != landed.branch) {
        let brought = revert::bring_along(&plan.repository, &name, commit, &signature);
        brought.map_err(|error| failed(&error))?;
    }
    let undone = UndoneTask { id: task, person: &person, reason: &request.reason };
    // Also where the task is open already: an undo that was killed may have written only a part of the board.
    here.update_board(board.as_ref(), |tree| match board.is_done(tree, task)? {
        true => board.task_undone(tree, &undone, &here.now),
        false => Ok(((), Effects::none())),
    })?;
    let key = TaskKey { protocol: plan.protocol.to_owned(), id: task.to_string() };
    with_store(here, async |store| store.forgive(&key).await)?;
    Ok(UndoAnswer {
        version: 1,
        task: task.clone(),
        undone: landed.commit.to_string(),
        commit: commit.map(|commit| commit.to_string()),
        branch: branch.to_string(),
    })
}

fn failed(error: &(dyn std::error::Error + 'static)) -> CommandError {
    CommandError::internal(error)
}

fn not_done(message: String, hint: String) -> CommandError {
    CommandError::new_message(ErrorKind::Undone, message).with_hint(hint)
}

/// The checks that the branch has to pass without the work.
fn profile(here: &RepoContext, board: &dyn BoardVerbs, task: &TaskId) -> Result<String, CommandError> {
    let options = agency_protocols::board_verbs::VerificationOptions::default();
    let target = board.verification_target(here.tree(), task, options).map_err(board_error)?;
    Ok(target.profile)
}

/// Lands the revert. Returns its commit, if there was something to take back.
fn take_back(
    here: &RepoContext,
    plan: &LandingPlan,
    (landed, branch): (&Oid, &RefName),
    message: &RevertMessage<'_>,
    profile: &str,
) -> Result<Option<Oid>, CommandError> {
    let task = message.task.id();
    let commit = landed.as_str();
    // Only the branch that runs work on is shared; another one's commits are no business of the upstream.
    let sharing = plan.sharing.as_ref().filter(|_| *branch == plan.settings.branch);
    for _ in 0..TRIES {
        let tip = refs::at(&plan.repository, branch).map_err(|error| failed(&error))?;
        let Some(tip) = tip else {
            let what = format!("{branch} is not there any more; {task} had landed on it");
            return Err(CommandError::new_message(ErrorKind::NoSuch, what));
        };
        let made =
            match revert::revert(&plan.repository, landed, &tip, message).map_err(|error| failed(&error))? {
                RevertOutcome::Made { commit } => commit,
                RevertOutcome::Undone { by } => return Ok(Some(by)),
                RevertOutcome::Nothing => return Ok(None),
                RevertOutcome::Conflict { paths } => {
                    let paths: Vec<String> = paths.iter().take(5).map(ToString::to_string).collect();
                    return Err(not_done(
                        format!(
                            "{task} is not undone: later work changed the same lines of {}",
                            paths.join(", ")
                        ),
                        format!("`git revert {}` lets you bring both together", short_commit(commit)),
                    ));
                }
                RevertOutcome::NotThere => {
                    let what = format!("{} is not on {branch} any more", short_commit(commit));
                    return Err(CommandError::new_message(ErrorKind::NoSuch, what));
                }
            };
        verify(here, plan, &made, profile, task)?;
        let publish = sharing.map(|sharing| |commit: &Oid| sharing.publish(commit));
        let publish = publish.as_ref().map(|publish| publish as agency_landing::land::PublishCheck<'_>);
        let outcome = revert::land_revert(&plan.repository, branch, (&tip, &made), message, publish);
        match outcome.map_err(|error| failed(&error))? {
            LandOutcome::Landed { commit } => return Ok(Some(commit)),
            LandOutcome::Waits { obstacles } => {
                let obstacles: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
                return Err(not_done(
                    format!("{task} is not undone: {}", obstacles.join("; ")),
                    format!("then run `agency undo {task}` again; nothing has changed"),
                ));
            }
            LandOutcome::Busy { what } => {
                let hint = format!("run `agency undo {task}` again; nothing has changed");
                return Err(not_done(format!("{task} is not undone: {what}"), hint));
            }
            // The branch moved meanwhile.
            _ => {
                if let Some(sharing) = sharing {
                    sharing.refresh().map_err(|error| failed(&error))?;
                }
            }
        }
    }
    let hint = format!("run `agency undo {task}` again; nothing has changed");
    Err(not_done(format!("{task} is not undone: {branch} moved {TRIES} times meanwhile"), hint))
}

/// Runs the checks on the branch without the work.
fn verify(
    here: &RepoContext,
    plan: &LandingPlan,
    made: &Oid,
    profile: &str,
    task: &str,
) -> Result<(), CommandError> {
    let tree = refs::tree_of(&plan.repository, made).map_err(|error| failed(&error))?;
    let shim = helper_programs::shim()?;
    let tell = here.message_sink();
    let on_long = || tell(&format!("running the checks of `{profile}` without {task}"));
    let checks = CheckContext {
        settings: &plan.settings,
        shim: &shim,
        protocol: plan.protocol,
        profiles: plan.profiles,
        term: Term(0),
        on_long: &on_long,
    };
    let commit = CheckedCommit { commit: made.clone(), tree };
    let checked = crate::app::runtime::new()?.block_on(checks.check_commit(profile, &commit));
    let hint = "nothing has changed; mend that first, or revert it by hand".to_owned();
    match checked.map_err(|error| failed(&error))? {
        BaseCheck::Passed => Ok(()),
        BaseCheck::Failing { what, .. } => {
            Err(not_done(format!("{task} is not undone: without it, checks fail: {what}"), hint))
        }
        BaseCheck::Unfit { why, .. } | BaseCheck::Untried { why } => {
            Err(not_done(format!("{task} is not undone: its checks could not run: {why}"), hint))
        }
    }
}
