//! Taking charge of a repository: everything is opened, a run is made, and what was opened is given back.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agency_protocols::names::TaskId;
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::snapshot::{SnapshotError, Snapshots};
use agency_sandbox::workspace::state::State;
use tokio::sync::mpsc;

use crate::attempt::TaskKey;
use crate::causes;
use crate::clock::{self, BootClock, Clock as _};
use crate::desk::Desk;
use crate::dispatch::{self, Interrupt, RunError, Summary, Wishes};
use crate::errand::claims::ClaimReader;
use crate::errand::send::Shim;
use crate::folder_watch::FolderWatch;
use crate::identity::IdentityError;
use crate::landing::names::RefName;
use crate::landing::repository::{Opening, Repository};
use crate::landing::undo::Undone;
use crate::landing::worktree::{self, Head, Operation};
use crate::landing::{self, board, land, refs, spare, strayed};
use crate::life::{Witness, Workshop};
use crate::notice::{Notice, Teller};
use crate::owner::{self, Presence};
use crate::retention::{self, TidyError};
use crate::roster::Roster;
use crate::settings::Settings;
use crate::sharing::Sharing;
use crate::store::sqlite::SqliteStore;
use crate::store::{Store, StoreError};
use crate::train::Train;

/// How long somebody else's lock in git is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often what is settled and old is cleared away, after the first time.
const TIDY_EVERY: Duration = Duration::from_secs(86_400);

/// Why nobody can take charge.
#[derive(Debug, thiserror::Error)]
pub enum ChargeError {
    #[error("{} is not a git repository", root.display())]
    NoRepository { root: PathBuf },
    #[error("HEAD is detached: there is no branch that work could land on")]
    Detached,
    #[error("the branch {branch} has no commit yet")]
    Unborn { branch: RefName },
    #[error("{operation} is under way in {}", root.display())]
    Busy { operation: Operation, root: PathBuf },
    #[error(transparent)]
    Landing(#[from] landing::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("can't use the state folder {}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Layers(#[from] SnapshotError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Somebody removed or renamed it while a run was at work.
    #[error("the state folder {} is gone: somebody removed or moved it while this run was at work", path.display())]
    StateGone { path: PathBuf },
    #[error(transparent)]
    Run(#[from] RunError),
}

impl ChargeError {
    /// Whether it is about how the repository is, and so for a person to change.
    pub fn is_about_the_repository(&self) -> bool {
        matches!(self, Self::NoRepository { .. } | Self::Detached | Self::Unborn { .. } | Self::Busy { .. })
            || matches!(self, Self::Landing(landing::Error::Unsupported { .. }))
            || matches!(self, Self::Store(StoreError::Damaged { .. }))
            || matches!(self, Self::Identity(IdentityError::OtherStore { .. } | IdentityError::InUse { .. }))
            || matches!(self, Self::Identity(IdentityError::Landing(error)) if error.is_about_references())
    }
}

/// Opens the repository a folder is in, to land in it.
pub fn open_repository(folder: &Folder, state: &Path, home: &Path) -> Result<Repository, ChargeError> {
    let Some(real) = &folder.repository else {
        return Err(ChargeError::NoRepository { root: folder.root.clone() });
    };
    Ok(Repository::open(&Opening {
        program: Path::new("git"),
        repository: real,
        root: Some(&folder.root),
        place: &state.join("landing"),
        home: Some(home),
        patience: PATIENCE,
    })?)
}

/// The branch that is checked out in a folder, if agents can start from it.
pub fn branch(repository: &Repository, folder: &Folder) -> Result<RefName, ChargeError> {
    let git = folder.repository.as_ref().map(|real| real.git.clone()).unwrap_or_default();
    let here = worktree::Worktree { root: Some(folder.root.clone()), git, locked: false };
    if let Some(operation) = here.operation() {
        return Err(ChargeError::Busy { operation, root: folder.root.clone() });
    }
    let Head::Branch(name) = here.head() else { return Err(ChargeError::Detached) };
    let branch = refs::resolve(repository, &name)?;
    match refs::read(repository, std::slice::from_ref(&branch))?.contains_key(&branch) {
        true => Ok(branch),
        false => Err(ChargeError::Unborn { branch }),
    }
}

/// Where the store of a repository is.
pub fn store_path(state: &Path) -> PathBuf {
    state.join("store.sqlite")
}

/// Opens the store of a repository.
pub async fn open_store(state: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(&store_path(state), Arc::new(BootClock), clock::wall).await
}

/// Everything a run needs from outside.
pub struct Charge {
    pub settings: Settings,
    pub repository: Arc<Repository>,
    /// For a board that git carries from clone to clone.
    pub sharing: Option<Sharing>,
    pub desk: Desk,
    pub shim: Shim,
    /// For outcomes of older shims, which did not read what their agents wrote.
    pub reader: ClaimReader,
    pub teller: Arc<dyn Teller>,
    pub witness: Witness,
}

impl std::fmt::Debug for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Charge").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A landing that was cut short is taken back; what people changed meanwhile stays, and they are told.
fn tell_undone(undone: &Undone, teller: &dyn Teller) {
    if let Undone::TakenBack { theirs } = undone
        && !theirs.is_empty()
    {
        let files: Vec<String> = theirs.iter().map(ToString::to_string).collect();
        let what = format!(
            "a landing was cut short and taken back; what you edited since stays: {}",
            files.join(", ")
        );
        teller.tell(&Notice::Trouble { task: None, what });
    }
}

fn tell_untidy(error: &TidyError, teller: &dyn Teller) {
    teller.tell(&Notice::Trouble { task: None, what: causes::on_one_line(error) });
}

/// Work that is done, and has left its branch, is named when a run begins and when it ends. Where that can't be found out,
/// there is something else to say.
async fn tell_strayed(repository: &Arc<Repository>, desk: &Desk, teller: &dyn Teller) {
    let looked = Arc::clone(repository);
    let Ok(Ok(strayed)) = tokio::task::spawn_blocking(move || strayed::find(&looked)).await else { return };
    for one in strayed {
        let key = TaskKey { protocol: one.task.protocol().to_owned(), id: one.task.id().to_owned() };
        let Ok(task) = TaskId::parse(&key.id) else { continue };
        if key.protocol == desk.protocol
            && desk.look(move |board, tree| board.is_done(tree, &task)).await.unwrap_or(false)
        {
            teller.tell(&Notice::Trouble { task: Some(key), what: one.sentence() });
        }
    }
}

/// What is wrong with copies of objects, or can't be written again, keeps nobody from working.
async fn look_after_spares(
    look: fn(&Repository) -> Result<(), landing::Error>,
    repository: &Arc<Repository>,
    teller: &dyn Teller,
) {
    let repository = Arc::clone(repository);
    if let Ok(Err(error)) = tokio::task::spawn_blocking(move || look(&repository)).await {
        teller.tell(&Notice::Trouble { task: None, what: causes::on_one_line(&error) });
    }
}

/// Nobody else does: a shim lives for one attempt, and can't know what the others have named.
async fn keep_spares<S: Store>(shop: Arc<Workshop<S>>) {
    loop {
        look_after_spares(spare::tend, &shop.repository, shop.teller.as_ref()).await;
        tokio::time::sleep(spare::BETWEEN_SWEEPS).await;
    }
}

/// A run may go on for months (`--watch`).
async fn keep_tidy<S: Store>(shop: Arc<Workshop<S>>) {
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        let tidied =
            retention::tidy_up(&shop.settings.state, &*shop.store, &shop.repository, clock::wall()).await;
        if let Err(error) = tidied {
            tell_untidy(&error, shop.teller.as_ref());
        }
    }
}

/// Takes charge until there is nothing left to do.
pub async fn run(
    charge: Charge,
    wishes: Wishes,
    interrupts: mpsc::Receiver<Interrupt>,
) -> Result<Summary, ChargeError> {
    let Charge { settings, repository, sharing, desk, shim, reader, teller, witness } = charge;
    let state = settings.state.clone();
    let failed = |source| ChargeError::State { path: state.clone(), source };
    let layers = State::at(&state);
    // Whoever else is at work here has had the disk all the time; without them, it may have lost power meanwhile.
    if !owner::is_anybody_present(&state) {
        Snapshots::distrust(&layers)?;
    }
    let store = open_store(&state).await?;
    // A store that lost a part of itself would say that nothing had landed.
    store.check().await?;
    let folder = FolderWatch::begin(&state).map_err(failed)?;
    let term = store.enter(&owner::myself()).await?;
    let presence = Presence::show(&state, term).map_err(failed)?;
    // What a landing that was cut short left in somebody's files is taken back before anything else.
    // First, because it may be what the others need.
    look_after_spares(spare::restore_named, &repository, teller.as_ref()).await;
    let opened = Arc::clone(&repository);
    let recover = move || {
        let undone = land::recover(&opened)?;
        board::recover(&opened).map(|()| undone)
    };
    match tokio::task::spawn_blocking(recover).await {
        Ok(recovered) => tell_undone(&recovered?, teller.as_ref()),
        Err(_) => return Err(failed(io::Error::other("a thread broke"))),
    }
    match retention::tidy_up(&state, &store, &repository, clock::wall()).await {
        Err(TidyError::Records(source)) => return Err(failed(source)),
        Err(TidyError::Store(error)) => return Err(error.into()),
        // They are in nobody's way, and tried again next time.
        Err(error @ (TidyError::References(_) | TidyError::Locked(_))) => {
            tell_untidy(&error, teller.as_ref());
        }
        Ok(()) => {}
    }
    tell_strayed(&repository, &desk, teller.as_ref()).await;
    let roster = Roster::new(dispatch::parallel_of_agents(&settings));
    let shop = Arc::new(Workshop {
        store: Arc::new(store),
        desk,
        repository,
        sharing,
        settings,
        shim,
        reader,
        term,
        train: Train::default(),
        roster,
        began: BootClock.now(),
        teller,
        witness,
    });
    let keepers = [tokio::spawn(keep_tidy(Arc::clone(&shop))), tokio::spawn(keep_spares(Arc::clone(&shop)))];
    let summary = tokio::select! {
        summary = dispatch::run(Arc::clone(&shop), wishes, interrupts) => summary,
        () = folder.gone() => return Err(ChargeError::StateGone { path: state }),
    };
    keepers.iter().for_each(|keeper| keeper.abort());
    // Whatever went wrong, it went wrong for that.
    if folder.is_gone() {
        return Err(ChargeError::StateGone { path: state });
    }
    let summary = summary?;
    look_after_spares(spare::restore_named, &shop.repository, shop.teller.as_ref()).await;
    tell_strayed(&shop.repository, &shop.desk, shop.teller.as_ref()).await;
    shop.store.leave(term).await?;
    drop(presence);
    // The next run can use them then, whatever happens to the machine until it begins. Without it, it makes them again.
    if let Err(error) = Snapshots::settle(&layers) {
        shop.teller.tell(&Notice::Trouble { task: None, what: causes::on_one_line(&error) });
    }
    Ok(summary)
}
