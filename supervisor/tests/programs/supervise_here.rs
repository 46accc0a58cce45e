//! A supervisor as `agency run` starts one, that does something to itself at a chosen moment. It is a program of
//! its own because the tests kill it and stop it there.
//!
//! `supervise_here key=value …` with `script` (what the agent `shell` runs); if need be `parallel` (1), `lease`
//! (seconds, 900), `auditor` (what the agent `judge` runs, which then judges), and what to do to itself: `kill` or `stop`, each `STEP:SIDE` with `before` or `after`, the
//! first time that a task comes there. `supervise_here steps` prints every step there is, and
//! `supervise_here shim FOLDER TERM` is a shim, and `supervise_here read-claim …` reads what an agent wrote.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agency_landing::remote::{self, TrustedUpstreams};
use agency_protocols::board::Board;
use agency_protocols::claim::ClaimKind;
use agency_protocols::claim_reader;
use agency_protocols::codifica::{Codifica, CodificaSettings};
use agency_protocols::detect::Protocol;
use agency_protocols::kodingx::KodingX;
use agency_protocols::names::{AgentName, TaskId};
use agency_protocols::store::BoardStore;
use agency_sandbox::fsmonitor;
use agency_sandbox::host::HostUser;
use agency_sandbox::policy::IsolationLevel;
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::state::StateHome;
use agency_supervisor::attempt::Term;
use agency_supervisor::board_sync::BoardSync;
use agency_supervisor::board_thread::BoardThread;
use agency_supervisor::budget::Budget;
use agency_supervisor::dispatch::RunOptions;
use agency_supervisor::driver::{AttemptStep, StepHook, StepSide};
use agency_supervisor::job::order::{AgentProgram, NetworkAccess, ProfileTrust};
use agency_supervisor::job::{self, claim_reader::ClaimReader, shim_client::ShimProgram};
use agency_supervisor::run_event::NullSink;
use agency_supervisor::settings::{AgentSettings, Committer, LandingTarget, LeaseTimes, RunSettings};
use agency_supervisor::startup::{self, Startup};
use agency_supervisor::store_identity;
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::mpsc;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[allow(clippy::print_stdout)]
fn main() -> Result<()> {
    if let Some(answer) = fsmonitor::answer(std::env::args_os()) {
        return Ok(io::stdout().write_all(&answer)?);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("steps") => AttemptStep::ALL.iter().for_each(|step| println!("{}", step.name())),
        Some("shim") => {
            let (folder, term) = (Path::new(&arguments[1]), Term(arguments[2].parse()?));
            job::shim::run(folder, term, &reader(), &mut io::stdout())?;
        }
        Some("read-claim") => read_claim(&arguments[1..])?,
        _ => supervise(&Arguments(arguments))?,
    }
    Ok(())
}

fn reader() -> ClaimReader {
    ClaimReader { command: ["/proc/self/exe", "read-claim"].map(OsString::from).to_vec() }
}

/// As the runner's command of that name does it.
fn read_claim(arguments: &[String]) -> Result<()> {
    let [protocol, kind, task, agent] = arguments else { return Err("four arguments are needed".into()) };
    let protocol = Protocol::parse(protocol).ok_or("no protocol")?;
    let kind = ClaimKind::parse(kind).ok_or("no kind")?;
    let text = io::read_to_string(io::stdin())?;
    let claim = claim_reader::read(protocol, kind, &TaskId::parse(task)?, &AgentName::parse(agent)?, &text);
    Ok(serde_json::to_writer(io::stdout(), &claim)?)
}

struct Arguments(Vec<String>);

impl Arguments {
    fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().find_map(|one| one.strip_prefix(key)?.strip_prefix('='))
    }

    fn number(&self, key: &str, usual: u64) -> Result<u64> {
        Ok(self.value(key).map(str::parse).transpose()?.unwrap_or(usual))
    }
}

fn supervise(arguments: &Arguments) -> Result<()> {
    let root = std::env::current_dir()?;
    let host = HostUser::observe();
    let folder = WorkspaceFolder::discover(&root)?;
    let state = folder.state(&StateHome::find()?)?.path().to_owned();
    let repository = startup::open_repository(&folder, &state, &host.home)?;
    let branch = startup::branch(&repository, &folder)?;
    let real = folder.repository.as_ref().ok_or("no repository")?;
    store_identity::confirm(&repository, &state, &real.common)?;
    let agent = AgentSettings {
        program: AgentProgram {
            command: ["sh", "-c", arguments.value("script").unwrap_or("true")].map(str::to_owned).to_vec(),
            network: arguments
                .value("network")
                .map_or(NetworkAccess::None, |hosts| NetworkAccess::Hosts(hosts.to_owned())),
            ..AgentProgram::default()
        },
        ..AgentSettings::default()
    };
    let mut agents = BTreeMap::from([("shell".to_owned(), agent)]);
    if let Some(script) = arguments.value("auditor") {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        agents.insert(
            "judge".to_owned(),
            AgentSettings {
                program: AgentProgram { command, ..AgentProgram::default() },
                ..AgentSettings::default()
            },
        );
    }
    let settings = RunSettings {
        checks_base: false,
        unusable: BTreeMap::new(),
        root: folder.root.clone(),
        state: state.clone(),
        copies: PathBuf::from("/var/tmp"),
        level: IsolationLevel::Process,
        container: None,
        branch,
        land: LandingTarget::Merge,
        auditor: arguments.value("auditor").map(|_| "judge".to_owned()),
        setup: None,
        agents,
        trust: ProfileTrust::All,
        committer: Committer { name: "agency".to_owned(), email: "agency@localhost".to_owned() },
        parallel: usize::try_from(arguments.number("parallel", 1)?)?,
        attempts: 3,
        repeats: 2,
        budget: Budget::default(),
        backoff: Duration::from_millis(100),
        // One that stops itself in the middle of a heartbeat would take the store's lock along.
        leases: LeaseTimes {
            ttl: Duration::from_secs(arguments.number("lease", 900)?),
            heartbeat: Duration::from_secs(300),
        },
    };
    let repository = Arc::new(repository);
    let shared = folder.root.join("codifica.json").exists();
    let own = ["codifica.json", "work.md", "assets/*/verify-*.json"].map(str::to_owned).to_vec();
    let sharing = shared.then(|| {
        let (branch, committer) = (settings.branch.clone(), settings.committer.clone());
        // What a test shares is its own.
        let upstream = remote::upstream(&repository, &branch);
        let named = upstream.map(|upstream| upstream.hashes()).unwrap_or_default();
        let trusted = TrustedUpstreams { named, network: false };
        BoardSync::new(Arc::clone(&repository), branch, committer, own, trusted, Arc::new(|_| {}))
    });
    let inputs = Startup {
        settings,
        repository,
        board_thread: board_thread(sharing.clone(), folder.root, state)?,
        sharing,
        shim: ShimProgram { command: vec![std::env::current_exe()?.into(), "shim".into()] },
        reader: reader(),
        events: Arc::new(NullSink),
        step_hook: step_hook(arguments)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (_interrupt, interrupts) = mpsc::channel(1);
    let summary = runtime.block_on(startup::run(inputs, RunOptions::default(), interrupts))?;
    for (task, fate) in &summary.tasks {
        writeln!(io::stdout(), "{task}: {fate:?}")?;
    }
    match summary.troubles.is_empty() {
        true => Ok(()),
        false => Err(summary.troubles.join("; ").into()),
    }
}

fn board_thread(sharing: Option<BoardSync>, root: PathBuf, state: PathBuf) -> Result<BoardThread> {
    BoardThread::open(sharing.clone(), move || -> Result<(BoardStore, Box<dyn Board>)> {
        let store = BoardStore::open(&root, &state, agency_sandbox::file_writers::is_open_for_writing)?;
        if sharing.is_some() {
            let setting =
                CodificaSettings { site: Some("here".to_owned()), agent: AgentName::parse("shell").ok() };
            let board = Codifica::open(store.tree(), setting)?;
            return Ok((store, Box::new(board)));
        }
        let board = KodingX::open(store.tree())?;
        Ok((store, Box::new(board)))
    })
}

/// What is done when a step is come to.
fn step_hook(arguments: &Arguments) -> Result<StepHook> {
    for (act, signal) in [("kill", Signal::KILL), ("stop", Signal::STOP)] {
        let Some((step, side)) = arguments.value(act).and_then(|moment| moment.split_once(':')) else {
            continue;
        };
        let step = *AttemptStep::ALL.iter().find(|known| known.name() == step).ok_or("no such step")?;
        let side = match side {
            "before" => StepSide::Before,
            "after" => StepSide::After,
            _ => return Err("a side is before or after".into()),
        };
        let done = std::sync::atomic::AtomicBool::new(false);
        return Ok(Arc::new(move |_, at, which| {
            if (at, which) == (step, side) && !done.swap(true, std::sync::atomic::Ordering::SeqCst) {
                let _ = kill_process(getpid(), signal);
            }
        }));
    }
    Ok(Arc::new(|_, _, _| {}))
}
