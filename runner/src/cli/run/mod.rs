//! `agency run`: the queue is worked off.
//!
//! What is configured becomes settings ([`settings`]), whatever is wrong with it is said before anything starts,
//! and then the supervisor is in charge. What happens is told in one of three manners ([`reporter`]). Whoever only wants to
//! know what would happen is told that ([`dry_run`]).

pub(crate) mod adopt;
pub(crate) mod control;
pub(crate) mod decide;
mod dry_run;
mod events;
pub(crate) mod logs;
mod progress;
pub(crate) mod ps;
pub(crate) mod read_claim;
mod reporter;
pub(crate) mod settings;
pub(crate) mod store;
mod summary_table;
pub(crate) mod view;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agency_landing::names::RefName;
use agency_landing::repository::LandingRepository;
use agency_protocols::board::{Board, BoardAgenda, TaskRole};
use agency_protocols::names::TaskId;
use agency_sandbox::host::HostUser;
use agency_sandbox::policy::IsolationLevel;
use agency_sandbox::scope::{Scope, ScopeVerdict};
use agency_supervisor::attempt::{AttemptEnd, FailureKind, Term};
use agency_supervisor::board_sync::{BoardSync, MessageSink};
use agency_supervisor::board_thread::BoardThread;
use agency_supervisor::dispatch::{Interrupt, RunOptions, RunSummary, TaskResult};
use agency_supervisor::job::{self, shim_client::ShimProgram};
use agency_supervisor::run_event::{EventSink, RunEvent};
use agency_supervisor::settings::RunSettings;
use agency_supervisor::startup::{self, Startup};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::app::attempt_store::{confirm_store, startup_error};
use crate::app::board::{Caller, RepoContext, task_id};
use crate::app::configuration::ConfigOptions;
use crate::app::configuration::trust::TrustRecord;
use crate::app::error::CommandError;
use crate::app::isolation;
use crate::app::state_folder;
use crate::app::units;
use crate::cli::caller::ConfigArgs;
use crate::cli::caller::IsolationArg;
use crate::cli::exit::{INTERRUPTED, OUT_OF_SCOPE, UNDONE, error_exit_code};
use crate::cli::message;
use crate::cli::prompt::TerminalFrontEnd;
use crate::cli::telemetry;
use reporter::Reporter;

/// How long what still waits for files or for git when a run is over may take.
const LAST_WORK: Duration = Duration::from_secs(10);

/// Work off the board's tasks: each by its agent, in a sandbox, verified and landed
///
/// Agents start from the branch that is checked out, and see nothing that is not committed but the board itself.
/// What they do lands on that branch, if all of it is in scope and the task's Definition of Done holds there.
/// Ctrl-C lets what runs come to its end; a second one stops it. An agency that is killed, or told to go by
/// SIGTERM, leaves its agents at work; the next `agency run` takes them over. At a terminal it shows who is at work;
/// elsewhere it says line by line what happens.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  agency run --parallel 4\n  agency run --task T0007 --land branch\n  agency run --dry-run\n\nExit codes: 0 if all is done, 10 if something is not, 20 if a change was out of scope, 2 for a mistake in\nthe arguments, the configuration or the repository's state, 130 if interrupted."
)]
pub(crate) struct RunArgs {
    /// How many agents work at the same time [default: run.parallel, or 1]
    #[arg(long, value_name = "N", value_parser = units::count)]
    parallel: Option<u64>,
    /// Only tasks of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only this task; may be repeated
    #[arg(long, value_name = "ID", value_parser = task_id)]
    task: Vec<TaskId>,
    /// How agents are held [default: run.isolation, or process]
    #[arg(long, value_enum)]
    isolation: Option<IsolationArg>,
    /// Where work lands [default: run.land, or merge]
    #[arg(long, value_enum)]
    land: Option<settings::LandArg>,
    /// Only what is ready now; what becomes ready later is left
    #[arg(long)]
    once: bool,
    /// Go on when there is nothing left to do: tasks and reports that come are taken up
    #[arg(long, conflicts_with = "once")]
    watch: bool,
    /// Go on with other agents when one of them can't be started
    #[arg(long)]
    keep_going: bool,
    /// Only say what would start, what would start later, and why the rest would not
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    operator: ConfigArgs,
    /// One JSON object for each event, on standard output; docs/events.md describes them
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &RunArgs, who: &Caller) -> Result<u8, CommandError> {
    let mut here = crate::cli::caller::repository()?;
    here.builder.clone_from(&command.agent);
    let spoken = here.board(who)?;
    let host = HostUser::observe();
    let configuration = command.operator.load(&here.folder.root)?;
    state_folder::check_writable(&here.folder)?;
    message::notices(state_folder::legacy_state_notice(&here.folder));
    let state = state_folder::of_folder(&here.folder)?;
    let repository =
        startup::open_repository(&here.folder, state.path(), &host.home).map_err(startup_error)?;
    let branch = startup::branch(&repository, &here.folder).map_err(startup_error)?;
    let repository = Arc::new(repository);
    let sharing = board_sync(&here, spoken.as_board(), &repository, &branch, &command.operator.options())?;
    if let Some(sharing) = &sharing
        && !command.dry_run
    {
        here.ensure_clone_name()?;
        // Whatever it is, it is said, and met again where it matters.
        let _ = sharing.refresh();
    }
    // What was brought up to date may be another board.
    let spoken = if sharing.is_some() { here.board(who)? } else { spoken };
    let board = spoken.as_board();
    let agenda = agenda(command, &here, board)?;
    let tasks = (!command.task.is_empty())
        .then(|| command.task.iter().map(ToString::to_string).collect::<BTreeSet<String>>());
    let wishes = RunOptions {
        tasks,
        agent: command.agent.clone(),
        once: command.once,
        keep_going: command.keep_going,
        watch: command.watch,
    };
    let builders = agenda
        .ready
        .iter()
        .filter(|start| start.role == TaskRole::Builder && !start.handed_in && wishes.includes(start));
    let mut unusable = settings::unusable(
        builders.clone(),
        &configuration,
        isolation::default_level(command.isolation.map(IsolationLevel::from), &configuration)?,
        &host,
    );
    if !command.dry_run && !command.keep_going && !unusable.is_empty() {
        return Err(unusable.swap_remove(0).1);
    }
    let settings = settings::settings(&settings::SettingsInputs {
        command,
        configuration: &configuration,
        here: &here,
        host: &host,
        state: state.path(),
        branch: &branch,
        agents: &builders.map(|start| start.agent.as_str()).collect(),
        unusable: &unusable,
    })?;
    let asked = telemetry::trace_config(|name| std::env::var_os(name))?;
    mention_uncommitted(&repository, &branch, board);
    if command.dry_run {
        let (protocol, json) = (board.protocol(), command.json);
        let (agenda, settings, wishes) = (&agenda, &settings, &wishes);
        return dry_run::run(dry_run::DryRunInputs { agenda, protocol, settings, wishes, unusable, json });
    }
    confirm_store(&here, &repository, state.path())?;
    let telemetry = telemetry::start(asked, &settings)?;
    let voice = Arc::new(Reporter::new(command.json, &settings.state));
    let ended = work(&voice, wishes, who, &here, settings, RunRepository { repository, sharing });
    // However it ended: the terminal is as it was.
    voice.close();
    telemetry.end(match &ended {
        Ok(code) => *code,
        Err(error) => error_exit_code(error.kind),
    });
    ended
}

/// How the board is shared, if git carries it.
fn board_sync(
    here: &RepoContext,
    board: &dyn Board,
    repository: &Arc<LandingRepository>,
    branch: &RefName,
    options: &ConfigOptions,
) -> Result<Option<BoardSync>, CommandError> {
    if !board.is_shared() {
        return Ok(None);
    }
    let (committer, own) = (here.committer()?, board.owned_globs());
    let trusted = TrustRecord::of(&here.folder.root)?.upstreams(options);
    let notice = Arc::new(message::notice);
    Ok(Some(BoardSync::new(Arc::clone(repository), branch.clone(), committer, own, trusted, notice)))
}

/// The repository, and where its branch is shared if the board asks for that.
struct RunRepository {
    repository: Arc<LandingRepository>,
    sharing: Option<BoardSync>,
}

/// The supervisor is in charge, until nothing is left to do.
fn work(
    voice: &Arc<Reporter>,
    wishes: RunOptions,
    who: &Caller,
    here: &RepoContext,
    settings: RunSettings,
    RunRepository { repository, sharing }: RunRepository,
) -> Result<u8, CommandError> {
    let who = who.clone();
    let (root, builder) = (here.folder.root.clone(), here.builder.clone());
    let told = Arc::<Reporter>::clone(voice);
    let tell: MessageSink =
        Arc::new(move |what| told.tell(&RunEvent::Trouble { task: None, what: what.to_owned() }));
    let sharing = sharing.map(|sharing| sharing.with_messages_to(tell));
    let desk = BoardThread::open(sharing.clone(), move || {
        let mut here = RepoContext::from_folder(&root, Arc::new(TerminalFrontEnd))?;
        here.builder = builder;
        here.open(&who)
    })?;
    let shim = std::env::current_exe().map_err(|error| CommandError::internal(&error))?;
    let charge = Startup {
        settings,
        repository,
        sharing,
        desk,
        shim: ShimProgram { command: vec![shim.into(), "shim".into()] },
        reader: read_claim::reader(),
        teller: Arc::<Reporter>::clone(voice),
        witness: Arc::new(|_, _, _| {}),
    };
    let runtime = crate::app::runtime::new()?;
    let summary = runtime.block_on(async {
        let (interrupt, interrupts) = mpsc::channel(4);
        listen(interrupt).map_err(|error| CommandError::internal(&error))?;
        startup::run(charge, wishes, interrupts).await.map_err(startup_error)
    });
    // A thread that waits for git comes to its end, unless git does not.
    runtime.shutdown_timeout(LAST_WORK);
    let summary = summary?;
    voice.close();
    voice.summary(&summary);
    Ok(code(&summary))
}

/// What the board has to do. Tasks that are asked for by name have to be known to it.
fn agenda(command: &RunArgs, here: &RepoContext, board: &dyn Board) -> Result<BoardAgenda, CommandError> {
    let agenda = board.agenda(here.tree()).map_err(crate::app::board::board_error)?;
    for task in &command.task {
        let known = agenda.ready.iter().map(|start| &start.task);
        if !known.chain(agenda.waiting.iter().map(|waiting| &waiting.task)).any(|known| known == task) {
            // It is done, canceled, or not there at all; the board knows which.
            board.brief(here.tree(), task).map_err(crate::app::board::board_error)?;
        }
    }
    Ok(agenda)
}

/// Agents start from a commit: what is not in it they don't see.
fn mention_uncommitted(repository: &LandingRepository, branch: &RefName, board: &dyn Board) {
    let Ok(files) = agency_landing::uncommitted_files::files(repository, branch) else { return };
    let Ok(own) = Scope::parse(&board.owned_globs(), &[]) else { return };
    let theirs = files.iter().filter(|file| own.judge(file) != ScopeVerdict::InScope);
    let files: Vec<String> = theirs.map(ToString::to_string).collect();
    if files.is_empty() {
        return;
    }
    let shown = files.iter().take(5).cloned().collect::<Vec<_>>().join(", ");
    let more = if files.len() > 5 { format!(" and {} more", files.len() - 5) } else { String::new() };
    message::notice(&format!(
        "agents start from the last commit, and don't see your changes to {shown}{more}"
    ));
}

/// Ctrl-C is for us, and what ends a service lets its agents live.
fn listen(interrupt: mpsc::Sender<Interrupt>) -> std::io::Result<()> {
    for (kind, meant) in [
        (SignalKind::interrupt(), Interrupt::Drain),
        (SignalKind::terminate(), Interrupt::Detach),
        (SignalKind::hangup(), Interrupt::Detach),
    ] {
        let mut heard = signal(kind)?;
        let interrupt = interrupt.clone();
        tokio::spawn(async move {
            while heard.recv().await.is_some() {
                if interrupt.send(meant).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}

fn code(summary: &RunSummary) -> u8 {
    let out_of_scope = |fate: &TaskResult| matches!(fate, TaskResult::Ended(AttemptEnd::Failed { failure, .. }) if failure.kind == FailureKind::Scope);
    let done = |fate: &TaskResult| {
        matches!(fate, TaskResult::Ended(AttemptEnd::Done { .. } | AttemptEnd::Kept { .. }))
    };
    match summary {
        summary if summary.interrupted => INTERRUPTED,
        summary if summary.tasks.values().any(out_of_scope) => OUT_OF_SCOPE,
        summary
            if !summary.tasks.values().all(done)
                || !summary.waiting.is_empty()
                || !summary.troubles.is_empty() =>
        {
            UNDONE
        }
        _ => 0,
    }
}

/// What a supervisor starts for each sandbox.
pub(crate) fn shim(folder: &Path, term: u64) -> Result<u8, CommandError> {
    job::shim::run(folder, Term(term), &read_claim::reader(), &mut std::io::stdout())
        .map(|()| 0)
        .map_err(|error| CommandError::internal(&error))
}
