//! Taking charge of a repository: everything is opened, a run is made, and what was opened is given back.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agency_protocols::names::TaskId;
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::snapshot::{SnapshotError, Snapshots};
use agency_sandbox::workspace::state::StateFolder;
use tokio::sync::mpsc;

use crate::agent_slots::AgentSlots;
use crate::attempt::TaskKey;
use crate::board_sync::{self, BoardSync};
use crate::board_thread::BoardThread;
use crate::clock::{self, BootClock, Clock as _};
use crate::dispatch::{self, Interrupt, RunError, RunOptions, RunSummary};
use crate::driver::{RunContext, StepHook};
use crate::folder_watch::FolderWatch;
use crate::job::claim_reader::ClaimReader;
use crate::job::shim_client::ShimProgram;
use crate::own_terms::OwnTerms;
use crate::owner_lock;
use crate::retention::{self, RetentionError};
use crate::run_event::{EventSink, RunEvent};
use crate::settings::RunSettings;
use crate::store::sqlite::open_store;
use crate::store::{AttemptStore, AttemptStoreError};
use crate::store_identity::IdentityError;
use crate::train::Train;
use agency_landing::names::RefName;
use agency_landing::repository::{LandingRepository, RepositoryOptions};
use agency_landing::undo::UndoOutcome;
use agency_landing::worktree::{self, GitOperation, WorktreeHead};
use agency_landing::{self, board_commit, land, lost_landings, refs, spare_objects};
use agency_sandbox::error_chain;

/// How long another process's lock in git is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often what is settled and old is cleared away, after the first time.
const TIDY_EVERY: Duration = Duration::from_secs(86_400);

/// How long a run that was interrupted takes leave of the repository, the board and the store.
const FAREWELL: Duration = Duration::from_secs(10);

/// Why a supervisor can't take charge.
#[derive(Debug, thiserror::Error)]
pub enum StartupError {
    #[error("{} is not a git repository", root.display())]
    NoRepository { root: PathBuf },
    #[error("HEAD is detached: there is no branch that work could land on")]
    Detached,
    #[error("the branch {branch} has no commit yet")]
    Unborn { branch: RefName },
    #[error("{operation} is under way in {}", root.display())]
    Busy { operation: GitOperation, root: PathBuf },
    #[error(transparent)]
    Landing(#[from] agency_landing::Error),
    #[error(transparent)]
    Store(#[from] AttemptStoreError),
    #[error("can't use the state folder {}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Layers(#[from] SnapshotError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It was removed or renamed while a run was at work.
    #[error("the state folder {} is gone: it was removed or moved while this run was at work", path.display())]
    StateGone { path: PathBuf },
    #[error(transparent)]
    Run(#[from] RunError),
}

impl StartupError {
    /// Whether it is about how the repository is, and so for a person to change.
    pub fn is_about_the_repository(&self) -> bool {
        matches!(self, Self::NoRepository { .. } | Self::Detached | Self::Unborn { .. } | Self::Busy { .. })
            || matches!(self, Self::Landing(agency_landing::Error::Unsupported { .. }))
            || matches!(self, Self::Store(AttemptStoreError::Damaged { .. }))
            || matches!(self, Self::Identity(IdentityError::OtherStore { .. } | IdentityError::InUse { .. }))
            || matches!(self, Self::Identity(IdentityError::Landing(error)) if error.is_about_references())
    }
}

/// Opens the repository a folder is in, to land in it.
pub fn open_repository(
    folder: &WorkspaceFolder,
    state: &Path,
    home: &Path,
) -> Result<LandingRepository, StartupError> {
    let Some(real) = &folder.repository else {
        return Err(StartupError::NoRepository { root: folder.root.clone() });
    };
    Ok(LandingRepository::open(&RepositoryOptions {
        program: Path::new("git"),
        repository: real,
        root: Some(&folder.root),
        place: &state.join("landing"),
        home: Some(home),
        patience: PATIENCE,
    })?)
}

/// The branch that is checked out in a folder, if agents can start from it.
pub fn branch(repository: &LandingRepository, folder: &WorkspaceFolder) -> Result<RefName, StartupError> {
    let git = folder.repository.as_ref().map(|real| real.git.clone()).unwrap_or_default();
    let here = worktree::Worktree { root: Some(folder.root.clone()), git, locked: false };
    if let Some(operation) = here.operation() {
        return Err(StartupError::Busy { operation, root: folder.root.clone() });
    }
    let WorktreeHead::Branch(name) = here.head() else { return Err(StartupError::Detached) };
    let branch = refs::resolve(repository, &name)?;
    match refs::read(repository, std::slice::from_ref(&branch))?.contains_key(&branch) {
        true => Ok(branch),
        false => Err(StartupError::Unborn { branch }),
    }
}

/// Everything a run needs from outside.
pub struct Startup {
    pub settings: RunSettings,
    pub repository: Arc<LandingRepository>,
    /// For a board that git carries from clone to clone.
    pub sharing: Option<BoardSync>,
    pub board_thread: BoardThread,
    pub shim: ShimProgram,
    /// For outcomes of older shims, which did not read what their agents wrote.
    pub reader: ClaimReader,
    pub events: Arc<dyn EventSink>,
    pub step_hook: StepHook,
}

impl std::fmt::Debug for Startup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Startup").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A landing that was cut short is taken back; what people changed meanwhile stays, and they are told.
fn tell_undone(undone: &UndoOutcome, events: &dyn EventSink) {
    if let UndoOutcome::TakenBack { theirs } = undone
        && !theirs.is_empty()
    {
        let files: Vec<String> = theirs.iter().map(ToString::to_string).collect();
        let what = format!(
            "a landing was cut short and taken back; what you edited since stays: {}",
            files.join(", ")
        );
        events.tell(&RunEvent::Trouble { task: None, what });
    }
}

fn tell_untidy(error: &RetentionError, events: &dyn EventSink) {
    events.tell(&RunEvent::Trouble { task: None, what: error_chain::on_one_line(error) });
}

/// Work that is done, and has left its branch, is named when a run begins and when it ends. Where that can't be found out,
/// there is something else to say.
async fn report_lost_landings(
    repository: &Arc<LandingRepository>,
    board_thread: &BoardThread,
    events: &dyn EventSink,
) {
    let looked = Arc::clone(repository);
    let Ok(Ok(strayed)) = tokio::task::spawn_blocking(move || lost_landings::find(&looked)).await else {
        return;
    };
    for one in strayed {
        let key = TaskKey { protocol: one.task.protocol().to_owned(), id: one.task.id().to_owned() };
        let Ok(task) = TaskId::parse(&key.id) else { continue };
        if key.protocol == board_thread.protocol
            && board_thread.read(move |board, tree| board.is_done(tree, &task)).await.unwrap_or(false)
        {
            events.tell(&RunEvent::Trouble { task: Some(key), what: one.sentence() });
        }
    }
}

/// Calls `look` on the copies of objects. If copies are wrong, or can't be written again, the run goes on.
async fn look_after_spares(
    look: fn(&LandingRepository) -> Result<(), agency_landing::Error>,
    repository: &Arc<LandingRepository>,
    events: &dyn EventSink,
) {
    let repository = Arc::clone(repository);
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || look(&repository)).await {
        events.tell(&RunEvent::Trouble { task: None, what: error_chain::on_one_line(&error) });
    }
}

/// Sweeps the copies of objects. No shim does: a shim lives for one attempt, and can't know what the others have named.
async fn sweep_spares_regularly<S: AttemptStore>(context: Arc<RunContext<S>>) {
    loop {
        look_after_spares(spare_objects::sweep, &context.repository, context.events.as_ref()).await;
        tokio::time::sleep(spare_objects::BETWEEN_SWEEPS).await;
    }
}

/// A run may go on for months (`--watch`).
async fn prune_regularly<S: AttemptStore>(context: Arc<RunContext<S>>) {
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        let tidied = retention::tidy_up(
            &context.settings.state,
            &*context.store,
            &context.repository,
            clock::wall_seconds(),
        )
        .await;
        if let Err(error) = tidied {
            tell_untidy(&error, context.events.as_ref());
        }
    }
}

/// Takes back what landings that were cut short left in people's files.
async fn take_back_landings(
    repository: &Arc<LandingRepository>,
    state: &Path,
    events: &dyn EventSink,
) -> Result<(), StartupError> {
    let opened = Arc::clone(repository);
    let recover = move || {
        let undone = land::recover(&opened)?;
        board_commit::recover(&opened, board_sync::revert_edits).map(|()| undone)
    };
    match tokio::task::spawn_blocking(recover).await {
        Ok(recovered) => {
            tell_undone(&recovered?, events);
            Ok(())
        }
        Err(_) => {
            let source = io::Error::other("a thread broke");
            Err(StartupError::State { path: state.to_owned(), source })
        }
    }
}

/// Takes charge until there is nothing left to do.
pub async fn run(
    inputs: Startup,
    wishes: RunOptions,
    interrupts: mpsc::Receiver<Interrupt>,
) -> Result<RunSummary, StartupError> {
    let Startup { settings, repository, sharing, board_thread, shim, reader, events, step_hook } = inputs;
    let state = settings.state.clone();
    let failed = |source| StartupError::State { path: state.clone(), source };
    let layers = StateFolder::at(&state);
    // Another supervisor at work here has had the disk all the time; without one, it may have lost power meanwhile.
    if !owner_lock::is_any_supervisor_alive(&state) {
        Snapshots::remove_unsynced(&layers)?;
    }
    let store = open_store(&state).await?;
    // A store that lost a part of itself would say that nothing had landed.
    store.check().await?;
    let folder = FolderWatch::begin(&state).map_err(failed)?;
    let terms = OwnTerms::enter(&store, &state).await?;
    // Before anything else, take back what an interrupted landing left in the user's files.
    // First the copies of objects, because the others may need them.
    look_after_spares(spare_objects::restore_named, &repository, events.as_ref()).await;
    take_back_landings(&repository, &state, events.as_ref()).await?;
    match retention::tidy_up(&state, &store, &repository, clock::wall_seconds()).await {
        Err(RetentionError::Records(source)) => return Err(failed(source)),
        Err(RetentionError::Store(error)) => return Err(error.into()),
        // They block nothing, and the next time tries again.
        Err(error @ (RetentionError::References(_) | RetentionError::Locked(_))) => {
            tell_untidy(&error, events.as_ref());
        }
        Ok(()) => {}
    }
    report_lost_landings(&repository, &board_thread, events.as_ref()).await;
    let slots = AgentSlots::new(dispatch::parallel_of_agents(&settings));
    let context = Arc::new(RunContext {
        store: Arc::new(store),
        board_thread,
        repository,
        sharing,
        settings,
        shim,
        reader,
        terms,
        train: Train::default(),
        slots,
        began: BootClock.now(),
        events,
        step_hook,
    });
    let keepers = [
        tokio::spawn(prune_regularly(Arc::clone(&context))),
        tokio::spawn(sweep_spares_regularly(Arc::clone(&context))),
    ];
    let summary = tokio::select! {
        summary = dispatch::run(Arc::clone(&context), wishes, interrupts) => summary,
        () = folder.wait_until_gone() => return Err(StartupError::StateGone { path: state }),
    };
    keepers.iter().for_each(|keeper| keeper.abort());
    // Each other error followed from that.
    if folder.is_gone() {
        return Err(StartupError::StateGone { path: state });
    }
    let summary = summary?;
    let farewell = async {
        look_after_spares(spare_objects::restore_named, &context.repository, context.events.as_ref()).await;
        report_lost_landings(&context.repository, &context.board_thread, context.events.as_ref()).await;
        context.terms.leave(context.store.as_ref()).await
    };
    match summary.interrupted {
        // What it was interrupted in may hang. The store learns from the lock that no supervisor is in charge any more.
        true => tokio::time::timeout(FAREWELL, farewell).await.unwrap_or(Ok(()))?,
        false => farewell.await?,
    }
    context.terms.release();
    // The next run can use them then, even after a crash of the machine. Without the sync, it makes them again.
    if let Err(error) = Snapshots::sync_layers(&layers) {
        context.events.tell(&RunEvent::Trouble { task: None, what: error_chain::on_one_line(&error) });
    }
    Ok(summary)
}
