//! A run: the queue of a repository is worked off.
//!
//! What is configured becomes settings ([`settings`]), and whatever is wrong with it is said before anything starts
//! ([`prepare`]). Then the supervisor is in charge ([`PreparedRun::work`]). Whoever only wants to know what would happen
//! gets an answer instead ([`dry_run`]).

pub(crate) mod dry_run;
pub(crate) mod helper_programs;
pub(crate) mod outcome;
mod settings;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use agency_landing::names::RefName;
use agency_landing::repository::LandingRepository;
use agency_protocols::board::{Board, BoardAgenda, TaskRole};
use agency_protocols::names::TaskId;
use agency_sandbox::host::HostUser;
use agency_sandbox::policy::IsolationLevel;
use agency_sandbox::scope::{Scope, ScopeVerdict};
use agency_supervisor::board_sync::{BoardSync, MessageSink};
use agency_supervisor::board_thread::BoardThread;
use agency_supervisor::dispatch::{Interrupt, RunOptions, RunSummary};
use agency_supervisor::run_event::{EventSink, RunEvent};
pub(crate) use agency_supervisor::settings::LandingTarget;
use agency_supervisor::settings::{Committer, RunSettings};
use agency_supervisor::startup::{self, Startup};
use agency_supervisor::unmerged;
use tokio::sync::mpsc;

use crate::app::agents::pricing;
use crate::app::attempt_store::{confirm_store, open_repository, startup_error};
use crate::app::board::{Caller, RepoContext, board_error};
use crate::app::configuration::trust::TrustRecord;
use crate::app::configuration::{ConfigOptions, Configuration};
use crate::app::error::CommandError;
use crate::app::front_end::NoticesOnly;
use crate::app::isolation;
use crate::app::state_folder;
use settings::SettingsInputs;

/// What a run is asked to do. What is left out is configured, or has a default.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunRequest {
    /// Only these tasks, where some are named.
    pub(crate) tasks: Vec<TaskId>,
    /// Only tasks of this agent.
    pub(crate) agent: Option<String>,
    /// Only what is ready now.
    pub(crate) once: bool,
    /// Go on when there is nothing left to do.
    pub(crate) watch: bool,
    /// Go on with other agents when one of them can't be started.
    pub(crate) keep_going: bool,
    /// How many agents work at the same time.
    pub(crate) parallel: Option<u64>,
    pub(crate) isolation: Option<IsolationLevel>,
    pub(crate) land: Option<LandingTarget>,
    pub(crate) configuration: ConfigOptions,
    /// In whose name commits are made, where git is not to be asked.
    pub(crate) committer: Option<Committer>,
}

/// Why a run is planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunPurpose {
    Work,
    /// Nothing is changed, and what hinders a run is part of the answer.
    DryRun,
    /// Landed work is taken back: no agent is needed.
    Undo,
}

/// Everything that is known before a run begins.
struct RunPlan {
    agenda: BoardAgenda,
    protocol: &'static str,
    /// The folder of the repository's own profiles.
    profiles: Option<&'static str>,
    settings: RunSettings,
    options: RunOptions,
    /// Agents that can't be started, each with what is said of it.
    unusable: Vec<(String, CommandError)>,
    repository: Arc<LandingRepository>,
    /// How the board is shared, if git carries it.
    sharing: Option<BoardSync>,
}

/// A run in which nothing is wrong with what was asked and configured.
pub(crate) struct PreparedRun {
    pub(crate) settings: RunSettings,
    options: RunOptions,
    caller: Caller,
    repository: Arc<LandingRepository>,
    sharing: Option<BoardSync>,
    root: PathBuf,
    builder: Option<String>,
    notices: MessageSink,
}

/// Finds out all that a run needs. Whatever is missing or wrong is one clear sentence.
pub(crate) fn prepare(
    mut here: RepoContext,
    who: &Caller,
    request: &RunRequest,
) -> Result<PreparedRun, CommandError> {
    here.builder.clone_from(&request.agent);
    let RunPlan { settings, options, repository, sharing, .. } = plan(&here, who, request, RunPurpose::Work)?;
    confirm_store(&here, &repository, &settings.state)?;
    Ok(PreparedRun {
        settings,
        options,
        caller: who.clone(),
        repository,
        sharing,
        notices: here.message_sink(),
        root: here.folder.root,
        builder: here.builder,
    })
}

impl PreparedRun {
    /// The supervisor is in charge, until nothing is left to do or `interrupts` brings an end.
    pub(crate) async fn work(
        self,
        events: Arc<dyn EventSink>,
        interrupts: mpsc::Receiver<Interrupt>,
    ) -> Result<RunSummary, CommandError> {
        let Self { settings, options, caller, repository, sharing, root, builder, notices } = self;
        let told = Arc::clone(&events);
        let tell: MessageSink =
            Arc::new(move |what| told.tell(&RunEvent::Trouble { task: None, what: what.to_owned() }));
        let sharing = sharing.map(|sharing| sharing.with_messages_to(tell));
        let board_thread = BoardThread::open(sharing.clone(), move || {
            let mut here = RepoContext::from_folder(&root, Arc::new(NoticesOnly(notices)))?;
            here.builder = builder;
            here.open(&caller)
        })?;
        let inputs = Startup {
            settings,
            repository,
            sharing,
            board_thread,
            shim: helper_programs::shim()?,
            reader: helper_programs::claim_reader(),
            events,
            step_hook: Arc::new(|_, _, _| {}),
        };
        startup::run(inputs, options, interrupts).await.map_err(startup_error)
    }
}

/// What a verb needs that lands something without an agent: the settings of a run, and where the board is shared.
pub(crate) struct LandingPlan {
    pub(crate) settings: RunSettings,
    pub(crate) repository: Arc<LandingRepository>,
    pub(crate) sharing: Option<BoardSync>,
    pub(crate) protocol: &'static str,
    pub(crate) profiles: Option<&'static str>,
}

/// Finds out what a verb needs to take landed work back.
pub(crate) fn plan_undo(
    here: &RepoContext,
    who: &Caller,
    configuration: ConfigOptions,
) -> Result<LandingPlan, CommandError> {
    let request = RunRequest { configuration, ..RunRequest::default() };
    let planned = plan(here, who, &request, RunPurpose::Undo)?;
    let RunPlan { settings, repository, sharing, protocol, profiles, .. } = planned;
    confirm_store(here, &repository, &settings.state)?;
    Ok(LandingPlan { settings, repository, sharing, protocol, profiles })
}

fn plan(
    here: &RepoContext,
    who: &Caller,
    request: &RunRequest,
    purpose: RunPurpose,
) -> Result<RunPlan, CommandError> {
    let opened = here.board(who)?;
    let host = HostUser::observe();
    let configuration = Configuration::load(&here.folder.root, &request.configuration)?;
    configuration.notices().iter().for_each(|notice| here.notice(notice));
    state_folder::check_writable(&here.folder)?;
    state_folder::legacy_state_notice(&here.folder).iter().for_each(|notice| here.notice(notice));
    let (state, repository) = open_repository(here, &host)?;
    let branch = startup::branch(&repository, &here.folder).map_err(startup_error)?;
    let repository = Arc::new(repository);
    let committer = match &request.committer {
        Some(committer) => committer.clone(),
        None => here.committer()?,
    };
    let board = opened.as_ref();
    let sharing = board_sync(here, board, &repository, &branch, &committer, &request.configuration)?;
    if let Some(sharing) = &sharing
        && purpose == RunPurpose::Work
    {
        here.ensure_clone_name()?;
        // Whatever it is, it is said, and met again where it matters.
        let _ = sharing.refresh();
    }
    // What was brought up to date may be another board.
    let opened = if sharing.is_some() { here.board(who)? } else { opened };
    let board = opened.as_ref();
    let mut agenda = agenda(&request.tasks, here, board)?;
    unmerged::hold_back(&repository, &branch, board.protocol(), &mut agenda);
    let options = request.options();
    let builders = agenda.ready.iter().filter(|start| {
        let is_built = start.role == TaskRole::Builder && !start.handed_in && options.includes(start);
        is_built && purpose != RunPurpose::Undo
    });
    let level = isolation::default_level(request.isolation, &configuration)?;
    let mut unusable = settings::unusable(builders.clone(), &configuration, level, &host);
    if purpose == RunPurpose::Work && !request.keep_going && !unusable.is_empty() {
        return Err(unusable.swap_remove(0).1);
    }
    let settings = settings::settings(&SettingsInputs {
        request,
        configuration: &configuration,
        root: &here.folder.root,
        host: &host,
        state: state.path(),
        branch: &branch,
        committer,
        agents: &builders.map(|start| start.agent.as_str()).collect(),
        unusable: &unusable,
    })?;
    if purpose != RunPurpose::Undo {
        let builders = agenda.ready.iter().filter(|start| options.includes(start));
        let builders = builders.map(|start| start.agent.as_str());
        pricing::notices(&settings, builders).iter().for_each(|notice| here.notice(notice));
        mention_uncommitted(here, &repository, &branch, board);
    }
    let (protocol, profiles) = (board.protocol(), board.profiles_folder());
    Ok(RunPlan { agenda, protocol, profiles, settings, options, unusable, repository, sharing })
}

impl RunRequest {
    fn options(&self) -> RunOptions {
        let tasks = (!self.tasks.is_empty())
            .then(|| self.tasks.iter().map(ToString::to_string).collect::<BTreeSet<String>>());
        RunOptions { tasks, agent: self.agent.clone(), once: self.once, watch: self.watch }
    }
}

/// How the board is shared, if git carries it.
fn board_sync(
    here: &RepoContext,
    board: &dyn Board,
    repository: &Arc<LandingRepository>,
    branch: &RefName,
    committer: &Committer,
    options: &ConfigOptions,
) -> Result<Option<BoardSync>, CommandError> {
    if !board.is_shared() {
        return Ok(None);
    }
    let trusted = TrustRecord::of(&here.folder.root)?.upstreams(options);
    Ok(Some(BoardSync::new(
        Arc::clone(repository),
        branch.clone(),
        committer.clone(),
        board.owned_globs(),
        trusted,
        here.message_sink(),
    )))
}

/// What the board has to do. Tasks that are asked for by name have to be known to it.
fn agenda(tasks: &[TaskId], here: &RepoContext, board: &dyn Board) -> Result<BoardAgenda, CommandError> {
    let agenda = board.agenda(here.tree()).map_err(board_error)?;
    for task in tasks {
        let known = agenda.ready.iter().map(|start| &start.task);
        if !known.chain(agenda.waiting.iter().map(|waiting| &waiting.task)).any(|known| known == task) {
            // It is done, canceled, or not there at all; the board knows which.
            board.brief(here.tree(), task).map_err(board_error)?;
        }
    }
    Ok(agenda)
}

/// Agents start from a commit: what is not in it they don't see.
fn mention_uncommitted(
    here: &RepoContext,
    repository: &LandingRepository,
    branch: &RefName,
    board: &dyn Board,
) {
    let Ok(files) = agency_landing::uncommitted_files::files(repository, branch) else { return };
    let Ok(own) = Scope::parse(&board.owned_globs(), &[]) else { return };
    let theirs = files.iter().filter(|file| own.judge(file) != ScopeVerdict::InScope);
    let files: Vec<String> = theirs.map(ToString::to_string).collect();
    if files.is_empty() {
        return;
    }
    let shown = files.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let more = if files.len() > 5 { format!(" and {} more", files.len() - 5) } else { String::new() };
    here.notice(&format!("agents start from the last commit, and don't see your changes to {shown}{more}"));
}
