//! Ctrl-C is heard at once, even if the store, the board or git hangs.

use std::fs;
use std::future::{Future, pending};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc as threads};
use std::time::{Duration, Instant};

use agency_landing::repository::{LandingRepository, RepositoryOptions};
use agency_protocols::board::{
    Board, BoardAgenda, BoardError, BoardEvent, BoardOutcome, Claimant, CorrectedReport, ObservedAttempt,
    ProofDecision, ProofEvidence, TaskBrief,
};
use agency_protocols::claim::ReportClaim;
use agency_protocols::names::{AgentName, TaskId};
use agency_protocols::store::tree::RepoTree;
use agency_protocols::store::{BoardStore, Effects};
use agency_sandbox::workspace::folder::WorkspaceFolder;
use jiff::Zoned;
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use super::{OURS, ready, settings};
use crate::agent_slots::AgentSlots;
use crate::attempt::{Attempt, AttemptEnd, Epoch, HumanDecision, Lease, Phase, TaskKey, Term, UsageTotals};
use crate::board_thread::BoardThread;
use crate::clock::{BootClock, BootInstant, Clock};
use crate::dispatch::{self, Interrupt, RunError, RunOptions, RunSummary};
use crate::driver::RunContext;
use crate::job::claim_reader::ClaimReader;
use crate::job::shim_client::ShimProgram;
use crate::own_terms::OwnTerms;
use crate::owner_lock;
use crate::run_event::{EventSink, RunEvent};
use crate::store::sqlite::{SqliteStore, open_store};
use crate::store::{
    AttemptStore, AttemptStoreError, ClaimRequest, ClaimResult, QueueMode, StoreEvent, SupervisorProcess,
};
use crate::train::Train;

/// How soon an interrupt has to be heard.
const SOON: Duration = Duration::from_millis(100);
/// How long a run may take to end after that.
const END: Duration = Duration::from_secs(10);

/// A store that never answers.
#[derive(Debug)]
struct HangingStore;

type Answer<T> = Result<T, AttemptStoreError>;

macro_rules! hangs {
    ($($name:ident($($type:ty),*) -> $answer:ty;)*) => {
        impl AttemptStore for HangingStore {
            $(fn $name(&self, $(_: $type),*) -> impl Future<Output = Answer<$answer>> + Send { pending() })*
        }
    };
}

hangs! {
    now() -> BootInstant;
    enter(&SupervisorProcess) -> Term;
    leave(Term) -> ();
    owners() -> Vec<(Term, SupervisorProcess)>;
    claim(&ClaimRequest<'_>, Term, Duration) -> ClaimResult;
    renew(Term, Duration) -> Vec<Lease>;
    adopt(&Lease, Term, Duration) -> Option<Lease>;
    advance(&Lease, &Phase) -> ();
    end(&Lease, &AttemptEnd, UsageTotals) -> ();
    note(&Lease, &str) -> ();
    holds(&Lease) -> bool;
    open() -> Vec<Attempt>;
    attempts(&TaskKey) -> Vec<Attempt>;
    latest() -> Vec<Attempt>;
    events(u64, usize) -> Vec<StoreEvent>;
    ask_to_cancel(&TaskKey) -> bool;
    answer(&TaskKey, Epoch, &HumanDecision) -> bool;
    spent(&TaskKey) -> UsageTotals;
    forgive(&TaskKey) -> ();
    forgiven(&TaskKey) -> Epoch;
    failures(&TaskKey) -> u32;
    mode() -> QueueMode;
    set_mode(QueueMode) -> ();
    version() -> u64;
    prune(i64) -> u64;
}

/// A board with one task, which is asked for nothing but its agenda.
#[derive(Debug)]
struct OneTask;

impl Board for OneTask {
    fn protocol(&self) -> &'static str {
        "kodingx"
    }

    fn folder(&self) -> Option<&'static str> {
        None
    }

    fn owned_globs(&self) -> Vec<String> {
        Vec::new()
    }

    fn scope_field(&self) -> &'static str {
        "scope"
    }

    fn profiles_folder(&self) -> Option<&'static str> {
        None
    }

    fn agenda(&self, _: &RepoTree) -> Result<BoardAgenda, BoardError> {
        Ok(BoardAgenda { ready: vec![ready(1)], ..BoardAgenda::default() })
    }

    fn brief(&self, _: &RepoTree, _: &TaskId) -> Result<TaskBrief, BoardError> {
        unreachable!("nothing is begun")
    }

    fn is_wanted(&self, _: &RepoTree, _: &TaskId) -> Result<bool, BoardError> {
        Ok(true)
    }

    fn is_done(&self, _: &RepoTree, _: &TaskId) -> Result<bool, BoardError> {
        Ok(false)
    }

    fn audit_brief(&self, _: &RepoTree, _: &TaskId, _: &AgentName) -> Result<TaskBrief, BoardError> {
        unreachable!("nothing is begun")
    }

    fn claim(&self, _: &RepoTree, _: &TaskId, _: &Claimant<'_>, _: &Zoned) -> Result<Effects, BoardError> {
        unreachable!("nothing is begun")
    }

    fn receive(&self, _: &RepoTree, _: &TaskId, _: &Zoned) -> Result<(Option<String>, Effects), BoardError> {
        unreachable!("nothing is begun")
    }

    fn record(&self, _: &RepoTree, _: &TaskId, _: &BoardEvent, _: &Zoned) -> Result<Effects, BoardError> {
        unreachable!("nothing is begun")
    }

    fn report(&self, _: Option<&ReportClaim>, _: &ObservedAttempt<'_>) -> CorrectedReport {
        unreachable!("nothing is begun")
    }

    fn record_proof(
        &self,
        _: &RepoTree,
        _: &TaskId,
        _: &ProofEvidence,
        _: &Zoned,
    ) -> Result<(ProofDecision, Effects), BoardError> {
        unreachable!("nothing is begun")
    }

    fn settle(&self, _: &RepoTree, _: &TaskId, _: &BoardOutcome, _: &Zoned) -> Result<Effects, BoardError> {
        unreachable!("nothing is begun")
    }
}

/// Hears every event, with the moment.
#[derive(Debug, Clone, Default)]
struct Ear(Arc<Mutex<Vec<(Instant, RunEvent)>>>);

impl EventSink for Ear {
    fn tell(&self, event: &RunEvent) {
        self.0.lock().expect("heard").push((Instant::now(), event.clone()));
    }
}

impl Ear {
    fn heard(&self, event: &RunEvent) -> Option<Instant> {
        self.0.lock().expect("heard").iter().find(|(_, heard)| heard == event).map(|(at, _)| *at)
    }
}

/// A repository whose git sleeps for as long as a file is there.
struct Ground {
    root: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let ground = Self { root };
        for folder in ["work", "state"] {
            fs::create_dir(ground.path(folder)).expect("made");
        }
        ground.git(&["init", "-q", "-b", "main"]);
        ground.git(&["commit", "-q", "--allow-empty", "-m", "first"]);
        let script = format!(
            "#!/bin/sh\nwhile test -e {0}; do touch {1}; sleep 0.05; done\nexec git \"$@\"\n",
            ground.path("hangs").display(),
            ground.path("asked").display(),
        );
        fs::write(ground.path("git"), script).expect("written");
        fs::set_permissions(ground.path("git"), fs::Permissions::from_mode(0o755)).expect("changed");
        ground
    }

    fn git(&self, arguments: &[&str]) {
        let done = Command::new("git")
            .current_dir(self.path("work"))
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(arguments)
            .output();
        assert!(done.expect("git runs").status.success(), "{arguments:?}");
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.root.path().join(name)
    }

    fn repository(&self) -> LandingRepository {
        let folder = WorkspaceFolder::discover(&self.path("work")).expect("a folder");
        LandingRepository::open(&RepositoryOptions {
            program: &self.path("git"),
            repository: folder.repository.as_ref().expect("a repository"),
            root: Some(&folder.root),
            place: &self.path("state/landing"),
            home: None,
            patience: Duration::from_secs(30),
        })
        .expect("opened")
    }

    fn context<S: AttemptStore>(&self, store: S, term: Term, ear: &Ear) -> Arc<RunContext<S>> {
        let (root, state) = (self.path("work"), self.path("state"));
        let (own_root, own_state) = (root.clone(), state.clone());
        let own_terms_state = state.clone();
        let board_thread = BoardThread::open(None, move || -> Result<_, String> {
            let check = agency_sandbox::file_writers::is_open_for_writing;
            let store = BoardStore::open(&own_root, &own_state, check).map_err(|error| error.to_string())?;
            Ok((store, Box::new(OneTask) as Box<dyn Board>))
        });
        let settings = crate::settings::RunSettings { root, state, ..settings() };
        Arc::new(RunContext {
            store: Arc::new(store),
            board_thread: board_thread.expect("a board"),
            repository: Arc::new(self.repository()),
            sharing: None,
            slots: AgentSlots::new(dispatch::parallel_of_agents(&settings)),
            settings,
            shim: ShimProgram { command: Vec::new() },
            reader: ClaimReader { command: Vec::new() },
            terms: OwnTerms::sample(&own_terms_state, term),
            train: Train::default(),
            began: BootClock.now(),
            events: Arc::new(ear.clone()),
            step_hook: Arc::new(|_, _, _| {}),
        })
    }
}

async fn until(is_so: impl Fn() -> bool) {
    let from = Instant::now();
    while !is_so() {
        assert!(from.elapsed() < END, "it does not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

type Ended = Result<RunSummary, RunError>;

/// A run that hangs hears the first interrupt at once, and ends by what comes after it.
async fn is_heard<S: AttemptStore>(
    context: Arc<RunContext<S>>,
    ear: Ear,
    hangs: impl Fn() -> bool,
    then: Interrupt,
) {
    let (interrupt, interrupts) = mpsc::channel(4);
    let run = tokio::spawn(async move {
        let ended: Ended = dispatch::run(context, RunOptions::default(), interrupts).await;
        ended
    });
    until(hangs).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let sent = Instant::now();
    interrupt.send(Interrupt::Drain).await.expect("sent");
    until(|| ear.heard(&RunEvent::Draining).is_some()).await;
    let heard = ear.heard(&RunEvent::Draining).expect("heard").duration_since(sent);
    assert!(heard < SOON, "{heard:?}");
    interrupt.send(then).await.expect("sent");
    let ended = tokio::time::timeout(END, run).await.expect("it ends").expect("no panic").expect("no error");
    assert!(ended.interrupted);
}

fn each(test: impl AsyncFn(Ground, Ear, Interrupt)) {
    for then in [Interrupt::Drain, Interrupt::Detach] {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(test(Ground::new(), Ear::default(), then));
        // A thread that waits for git would be waited for.
        runtime.shutdown_background();
    }
}

#[test]
fn an_interrupt_is_heard_while_the_store_hangs() {
    each(async |ground, ear, then| {
        let context = ground.context(HangingStore, OURS, &ear);
        is_heard(context, ear, || true, then).await;
    });
}

async fn store(ground: &Ground) -> (SqliteStore, Term) {
    let store = open_store(&ground.path("state")).await.expect("a store");
    let term = store.enter(&owner_lock::this_process()).await.expect("a term");
    (store, term)
}

#[test]
fn an_interrupt_is_heard_while_the_board_hangs() {
    each(async |ground, ear, then| {
        let (store, term) = store(&ground).await;
        let context = ground.context(store, term, &ear);
        let (go_on, hangs) = threads::channel::<()>();
        let board_thread = context.board_thread.clone();
        let blocked = tokio::spawn(async move {
            board_thread
                .read(move |_, _| {
                    let _ = hangs.recv();
                    Ok(())
                })
                .await
        });
        tokio::task::yield_now().await;
        is_heard(context, ear, || true, then).await;
        drop(go_on);
        assert!(blocked.await.is_ok());
    });
}

#[test]
fn an_interrupt_is_heard_while_git_hangs() {
    each(async |ground, ear, then| {
        let (store, term) = store(&ground).await;
        let context = ground.context(store, term, &ear);
        // A lease that git has to be asked about before the task is claimed.
        ground.git(&["update-ref", "refs/agency/lease/kodingx/T0001", "HEAD"]);
        fs::write(ground.path("hangs"), "").expect("written");
        let asked = ground.path("asked");
        is_heard(context, ear, || Path::exists(&asked), then).await;
        fs::remove_file(ground.path("hangs")).expect("removed");
    });
}
