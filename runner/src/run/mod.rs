//! `agency run`: the queue is worked off.
//!
//! What is configured becomes settings ([`settings`]), whatever is wrong with it is said before anything starts,
//! and then the supervisor is in charge. What happens is told in one of three manners ([`voice`]). Whoever only wants to
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
pub(crate) mod settings;
pub(crate) mod store;
mod table;
pub(crate) mod view;
mod voice;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use agency_protocols::board::{Agenda, Board, Role};
use agency_protocols::names::TaskId;
use agency_sandbox::host::Host;
use agency_sandbox::scope::{Judgement, Scope};
use agency_supervisor::attempt::{Ending, FailureKind, Term};
use agency_supervisor::charge::{self, Charge, ChargeError};
use agency_supervisor::desk::Desk;
use agency_supervisor::dispatch::{Fate, Interrupt, RunError, Summary, Wishes};
use agency_supervisor::errand::{self, send::Shim};
use agency_supervisor::identity::{self, Aside, IdentityError};
use agency_supervisor::landing::repository::Repository;
use agency_supervisor::notice::{Notice, Teller};
use agency_supervisor::settings::Settings;
use agency_supervisor::sharing::{Sharing, Tell};
use agency_supervisor::store::StoreError;
use clap::Args;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::arguments::Isolation;
use crate::board::{Here, Who, task_id};
use crate::configuration::trust::Trust;
use crate::configuration::{Configuration, Operator};
use crate::isolation;
use crate::message::{self, Failure, INTERNAL, INTERRUPTED, UNDONE, USAGE};
use crate::state;
use crate::telemetry;
use crate::units;
use voice::Voice;

/// A scope violation was refused.
pub(crate) const OUT_OF_SCOPE: u8 = 20;

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
pub(crate) struct Run {
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
    isolation: Option<Isolation>,
    /// Where work lands [default: run.land, or merge]
    #[arg(long, value_enum)]
    land: Option<settings::LandArgument>,
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
    operator: Operator,
    /// One JSON object for each event, on standard output; docs/events.md describes them
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &Run, who: &Who) -> Result<u8, Failure> {
    let mut here = Here::find()?;
    here.builder.clone_from(&command.agent);
    let spoken = here.board(who)?;
    let host = Host::observe();
    let configuration = Configuration::load(&here.folder.root, &command.operator)?;
    state::check_writable(&here.folder)?;
    state::mention_legacy(&here.folder);
    let state = state::of(&here.folder)?;
    let repository = charge::open_repository(&here.folder, state.path(), &host.home).map_err(refused)?;
    let branch = charge::branch(&repository, &here.folder).map_err(refused)?;
    let repository = Arc::new(repository);
    let sharing = match spoken.as_board().is_shared() {
        true => {
            let (committer, own) = (settings::committer(&here)?, spoken.as_board().own());
            let notice = Arc::new(message::notice);
            let trusted = Trust::of(&here.folder.root)?.upstreams(&command.operator);
            Some(Sharing::new(Arc::clone(&repository), branch.clone(), committer, own, trusted, notice))
        }
        false => None,
    };
    if let Some(sharing) = &sharing
        && !command.dry_run
    {
        here.name_itself()?;
        // Whatever it is, it is said, and met again where it matters.
        let _ = sharing.refresh();
    }
    // What was brought up to date may be another board.
    let spoken = if sharing.is_some() { here.board(who)? } else { spoken };
    let board = spoken.as_board();
    let agenda = agenda(command, &here, board)?;
    let tasks = (!command.task.is_empty())
        .then(|| command.task.iter().map(ToString::to_string).collect::<BTreeSet<String>>());
    let wishes = Wishes {
        tasks,
        agent: command.agent.clone(),
        once: command.once,
        keep_going: command.keep_going,
        watch: command.watch,
    };
    let builders = agenda
        .ready
        .iter()
        .filter(|start| start.role == Role::Builder && !start.handed_in && wishes.cover(start));
    let mut unusable = settings::unusable(
        builders.clone(),
        &configuration,
        isolation::usual(command.isolation, &configuration)?,
        &host,
    );
    if !command.dry_run && !command.keep_going && !unusable.is_empty() {
        return Err(unusable.swap_remove(0).1);
    }
    let settings = settings::settings(&settings::Given {
        command,
        configuration: &configuration,
        here: &here,
        host: &host,
        state: state.path(),
        branch: &branch,
        agents: &builders.map(|start| start.agent.as_str()).collect(),
        unusable: &unusable,
    })?;
    let asked = telemetry::asked(|name| std::env::var_os(name))?;
    mention_uncommitted(&repository, &branch, board);
    if command.dry_run {
        let (protocol, json) = (board.protocol(), command.json);
        let (agenda, settings, wishes) = (&agenda, &settings, &wishes);
        return dry_run::run(dry_run::Given { agenda, protocol, settings, wishes, unusable, json });
    }
    confirm_store(&here, &repository, state.path())?;
    let telemetry = telemetry::start(asked, &settings)?;
    let voice = Arc::new(Voice::new(command.json, &settings.state));
    let ended = work(&voice, wishes, who, &here, settings, Shared { repository, sharing });
    // However it ended: the terminal is as it was.
    voice.close();
    let (Ok(code) | Err(Failure { code, .. })) = &ended;
    telemetry.end(*code);
    ended
}

/// What the repository says about leases and landings is believed only of the store in our state folder.
fn confirm_store(here: &Here, repository: &Repository, state: &Path) -> Result<(), Failure> {
    let Some(real) = &here.folder.repository else { return Ok(()) };
    let confirmed = identity::confirm(repository, state, &real.common);
    if let Some(Aside { count, to }) = confirmed.map_err(ChargeError::from).map_err(refused)? {
        message::notice(&format!(
            "{count} references below refs/agency belong to no store of yours; they are not used, and lie below {to} now"
        ));
    }
    Ok(())
}

/// The repository, and where its branch is shared if the board asks for that.
struct Shared {
    repository: Arc<Repository>,
    sharing: Option<Sharing>,
}

/// The supervisor is in charge, until nothing is left to do.
fn work(
    voice: &Arc<Voice>,
    wishes: Wishes,
    who: &Who,
    here: &Here,
    settings: Settings,
    Shared { repository, sharing }: Shared,
) -> Result<u8, Failure> {
    let who = who.clone();
    let (root, builder) = (here.folder.root.clone(), here.builder.clone());
    let told = Arc::<Voice>::clone(voice);
    let tell: Tell = Arc::new(move |what| told.tell(&Notice::Trouble { task: None, what: what.to_owned() }));
    let sharing = sharing.map(|sharing| sharing.told_to(tell));
    let desk = Desk::open(sharing.clone(), move || {
        let mut here = Here::at(&root)?;
        here.builder = builder;
        here.open(&who)
    })?;
    let shim = std::env::current_exe().map_err(|error| Failure::new(INTERNAL, &error))?;
    let charge = Charge {
        settings,
        repository,
        sharing,
        desk,
        shim: Shim { command: vec![shim.into(), "shim".into()] },
        reader: read_claim::reader(),
        teller: Arc::<Voice>::clone(voice),
        witness: Arc::new(|_, _, _| {}),
    };
    let summary = runtime()?.block_on(async {
        let (interrupt, interrupts) = mpsc::channel(4);
        listen(interrupt).map_err(|error| Failure::new(INTERNAL, &error))?;
        charge::run(charge, wishes, interrupts).await.map_err(refused)
    })?;
    voice.close();
    voice.summary(&summary);
    Ok(code(&summary))
}

/// What the board has to do. Tasks that are asked for by name have to be known to it.
fn agenda(command: &Run, here: &Here, board: &dyn Board) -> Result<Agenda, Failure> {
    let agenda = board.next(here.tree()).map_err(crate::board::refused)?;
    for task in &command.task {
        let known = agenda.ready.iter().map(|start| &start.task);
        if !known.chain(agenda.waiting.iter().map(|waiting| &waiting.task)).any(|known| known == task) {
            // It is done, canceled, or not there at all; the board knows which.
            board.brief(here.tree(), task).map_err(crate::board::refused)?;
        }
    }
    Ok(agenda)
}

/// Agents start from a commit: what is not in it they don't see.
fn mention_uncommitted(
    repository: &Repository,
    branch: &agency_supervisor::landing::names::RefName,
    board: &dyn Board,
) {
    let Ok(files) = agency_supervisor::landing::uncommitted::files(repository, branch) else { return };
    let Ok(own) = Scope::parse(&board.own(), &[]) else { return };
    let theirs = files.iter().filter(|file| own.judge(file) != Judgement::InScope);
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

/// One thread, and a few for what has to wait for files and for git.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let built = Builder::new_current_thread().enable_all().max_blocking_threads(8).build();
    built.map_err(|error| Failure::new(INTERNAL, &error))
}

fn refused(error: ChargeError) -> Failure {
    let code = if error.is_about_the_repository() { USAGE } else { INTERNAL };
    let failure = Failure::new(code, &error);
    match error {
        ChargeError::NoRepository { .. } => failure.with_hint("`git init`, and make a first commit"),
        ChargeError::Detached => failure.with_hint("switch to a branch first: `git switch NAME`"),
        ChargeError::Unborn { .. } => failure.with_hint("make a first commit"),
        ChargeError::Busy { .. } => failure.with_hint("end it or abort it first"),
        ChargeError::Identity(IdentityError::Landing(_)) => failure.with_hint(
            "`git for-each-ref refs/agency` shows what is there; `git update-ref -d NAME` removes what is odd",
        ),
        ChargeError::Identity(IdentityError::OtherStore { .. }) => {
            failure.with_hint("if you know where it comes from, `agency adopt` takes its queue over")
        }
        ChargeError::StateGone { .. } => {
            failure.with_hint("`agency adopt` gives the repository a new one; git remembers what landed")
        }
        ChargeError::Store(StoreError::Damaged { .. })
        | ChargeError::Run(RunError::Store(StoreError::Damaged { .. })) => failure.with_hint(store::REMEDY),
        _ => failure,
    }
}

fn code(summary: &Summary) -> u8 {
    let out_of_scope = |fate: &Fate| matches!(fate, Fate::Ended(Ending::Failed { failure, .. }) if failure.kind == FailureKind::Scope);
    let done = |fate: &Fate| matches!(fate, Fate::Ended(Ending::Done { .. } | Ending::Kept { .. }));
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
pub(crate) fn shim(folder: &Path, term: u64) -> Result<u8, Failure> {
    errand::shim::run(folder, Term(term), &read_claim::reader(), &mut std::io::stdout())
        .map(|()| 0)
        .map_err(|error| Failure::new(INTERNAL, &error))
}
