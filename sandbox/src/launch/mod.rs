//! Starts a sandbox and supervises it until it is over.
//!
//! Three processes take part. This one, the supervisor, stays outside and keeps the pipes, the deadlines and
//! the cgroup. The sandbox's first process ([`crate::init`]) builds the view, or keeps the processes together where
//! there is none; it is cloned from us (`clone_start`), or connects from a container (`container_start`). The agent (`agent`)
//! gives up every right and waits at a gate. There its controls are read back ([`crate::attest`]), and its program starts
//! only if no requested control is missing.

mod clone_start;
mod container_start;
mod prepare;
mod private_copy;
mod sandbox;
mod streams;

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signalfd::SignalFd;

use crate::agent_user::AgentUser;
use crate::attest::{self, Attestation, AttestationRequest, ControlStatement, OwnNamespaces};
use crate::backend::SandboxBackend;
use crate::cgroup::Cgroup;
use crate::channel;
use crate::container::engine::EngineError;
use crate::container::running::RunningContainer;
use crate::control::Control;
use crate::egress::{EgressListener, EgressProxy, NetworkTraffic};
use crate::host::{HostPaths, HostUser};
use crate::janitor::Janitor;
use crate::memory_watch::MemoryWatcher;
use crate::monitor::RunMonitor;
use crate::namespace_prefetch::NamespacePrefetch;
use crate::output::OutputTotals;
use crate::path::RelPath;
use crate::policy::{IsolationLevel, NetworkPolicy, Policy};
use crate::supervise::{self, CommandExit, StopCause, SupervisionLoop, SupervisorStreams};
use crate::sys;
use crate::terminal::RawTerminal;
use crate::workspace::Workspace;
use crate::workspace::state::RunFolder;
use prepare::{check_list, hidden, identify, opening};
use private_copy::{collect, kill_leftovers, open_folder};
pub use sandbox::SandboxRemains;
use sandbox::{BirthReport, SandboxProcess, ended_before_ready};
use streams::{changed_since, connect_streams, uppers};

/// One command to run.
pub struct LaunchRequest<'a> {
    pub policy: &'a Policy,
    pub host: &'a HostUser,
    pub workspace: &'a Workspace,
    pub run: &'a RunFolder,
    /// An empty folder the sandbox may build on, in a mount namespace of its own; runs may share one.
    pub staging: &'a Path,
    pub command: &'a [OsString],
    /// Where in the workspace it starts.
    pub start: &'a RelPath,
    /// Give it a terminal instead of pipes.
    pub terminal: bool,
    /// Our standard streams, in their usual order.
    pub streams: [BorrowedFd<'a>; 3],
    pub attendant: &'a dyn RunMonitor,
}

impl std::fmt::Debug for LaunchRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LaunchRequest")
            .field("policy", self.policy)
            .field("workspace", self.workspace)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// The result of a launch.
#[derive(Debug)]
pub struct LaunchOutcome {
    pub end: CommandExit,
    /// The totals of the agent's output.
    pub output: OutputTotals,
    pub attestation: Attestation,
    pub elapsed: Duration,
    /// What the agent connected to, where it had a list of hosts.
    pub network: Option<NetworkTraffic>,
    /// What the agent changed, for [`crate::harvest`].
    pub upper: OwnedFd,
    pub remains: SandboxRemains,
}

/// Why a command was not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Something that was asked for can't be had here.
    #[error("{what}")]
    Unavailable { what: String, hint: String },
    #[error("sandbox not started, it would not enforce: {}", list(missing))]
    NotHeld { missing: Vec<ControlStatement> },
    #[error("{what}")]
    Internal {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// It was run, and what it changed is lost.
    #[error("can't collect what the agent changed")]
    Uncollected { source: io::Error },
    /// An engine can't give what was asked for.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Another process ended its container, or the container ended with its engine.
    #[error("the container was ended from outside{}", if *.engine { "" } else { ", and its engine does not answer any more" })]
    Lost { engine: bool },
}

impl LaunchError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unavailable { hint, .. } => Some(hint.clone()),
            Self::NotHeld { .. } => {
                Some("nothing was started; `agency doctor` tells what this host offers".to_owned())
            }
            Self::Engine(error) => Some(error.hint()),
            Self::Internal { .. } | Self::Uncollected { .. } | Self::Lost { .. } => None,
        }
    }

    /// Whether the sandbox ended by itself, or was killed, before it was ready.
    pub fn is_early_end(&self) -> bool {
        matches!(self, Self::Internal { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Whether it may be otherwise in a moment, and nothing was started.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Engine(EngineError::None { .. } | EngineError::Gone))
    }

    /// Whether something that was asked for can't be had here, and nothing was started.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::NotHeld { .. } | Self::Engine(_))
    }
}

fn list(missing: &[ControlStatement]) -> String {
    missing.iter().map(|one| format!("{} ({})", one.control, one.how)).collect::<Vec<_>>().join(", ")
}

fn internal<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> LaunchError {
    move |source| LaunchError::Internal { what, source: source.into() }
}

/// Runs one command, in namespaces that were sent for ahead or are now. The calling process must have a
/// single thread.
pub fn run(
    request: &LaunchRequest<'_>,
    ahead: Option<NamespacePrefetch>,
) -> Result<LaunchOutcome, LaunchError> {
    let policy = request.policy;
    check_list(policy)?;
    let identity = identify(policy, request.host)?;
    let opening = opening(policy, request.workspace).map_err(internal("can't look at the workspace"))?;
    // On any error from here on, the sandbox goes first, and the janitor last: we wait for the janitor's end, and the
    // janitor waits for each process in the sandbox.
    let StartedSandbox { janitor, mut cgroup, signals, pipes, place, sandbox, started, aside } =
        match policy.level {
            IsolationLevel::Process | IsolationLevel::Landlock => {
                clone_start::begin(request, ahead, &opening, &identity)?
            }
            IsolationLevel::Container => container_start::begin(request, &opening, &identity)?,
        };

    // Look up all that can be known before the agent stands at the gate: there it waits for us.
    let (hidden, toolchains) = hidden_and_toolchains(request, &place);
    let ours = OwnNamespaces::read().map_err(internal("can't read our own namespaces"))?;
    let BirthReport { early, upper, spent, master, listeners } = sandbox.wait_for_birth(&ours)?;
    let upper = match place.replica() {
        Some(replica) => open_folder(&replica.upper).map_err(internal("can't open the agent's layer"))?,
        None => upper.ok_or_else(|| ended_before_ready("the sandbox has no layer"))?,
    };
    if let SandboxBackend::Container(_) = place {
        cgroup = Some(Cgroup::of(early.pid()).map_err(internal("can't find the container's cgroup"))?);
    }
    let raw = RawTerminal::enter(request.streams[0], master.as_ref());
    let conversation =
        connect_streams(request, pipes, master).map_err(internal("can't connect the streams"))?;
    let asked = AttestationRequest {
        policy,
        workspace: request.workspace,
        opening: &opening,
        home: &request.host.home,
        hidden,
        toolchains,
        cgroup: cgroup.as_ref(),
        root: request.host.is_root(),
        place: &place,
        listeners: &listeners,
    };
    let judged = attest::judge(&asked, &early);
    let ready = sandbox.wait_until_ready()?;
    let attestation = attest::read(&asked, &ready, early, judged)
        .map_err(internal("can't read back what holds the sandbox"))?;
    let missing: Vec<ControlStatement> = attestation.missing().cloned().collect();
    if !missing.is_empty() {
        return Err(LaunchError::NotHeld { missing });
    }

    channel::send_go(&sandbox.channel).map_err(internal("can't talk to the sandbox"))?;
    drop((aside, spent));
    let memory = watched_memory(policy, &attestation);
    let memory = memory.map(|limit| (limit, MemoryWatcher::new(sandbox.pid)));
    let uppers = match place.replica() {
        Some(replica) => vec![replica.tree.clone()],
        None => uppers(request.workspace, &upper),
    };
    let (end, output, network) =
        run_command(request, &sandbox, (signals, conversation), memory, &uppers, (listeners, started))?;
    // A controller kills without a word, so ask it whether it killed for memory.
    let killed = matches!(end, None | Some(CommandExit::Signaled(libc::SIGKILL)));
    let end = match killed && cgroup.as_ref().is_some_and(Cgroup::ran_out_of_memory) {
        true => Some(CommandExit::Stopped(StopCause::Memory)),
        false => end,
    };
    drop(raw);
    let (sandbox, contained) = match place {
        SandboxBackend::View => (Some(sandbox), None),
        SandboxBackend::Bare(_) | SandboxBackend::Container(_) => {
            drop(sandbox);
            (None, collect_copy(request, place, &identity, janitor.as_ref(), end.is_some(), &upper)?)
        }
    };
    // Without a word, it was killed.
    let end = end.unwrap_or(CommandExit::Signaled(libc::SIGKILL));
    let remains =
        SandboxRemains { _sandbox: sandbox, _contained: contained, _cgroup: cgroup, _janitor: janitor };
    Ok(LaunchOutcome { end, output, attestation, elapsed: started.elapsed(), network, upper, remains })
}

/// What of the host is hidden in the view, and which toolchains are in it. Looked up anew, and not what was handed over:
/// what came in between is in sight.
fn hidden_and_toolchains(
    request: &LaunchRequest<'_>,
    place: &SandboxBackend,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    match place {
        SandboxBackend::View => {
            let around = HostPaths::observe(request.host);
            let seen = |path: &PathBuf| request.policy.requires(Control::PrivateHome) && path.is_dir();
            (hidden(request, &around), around.toolchains.into_iter().filter(seen).collect())
        }
        SandboxBackend::Bare(_) | SandboxBackend::Container(_) => (Vec::new(), Vec::new()),
    }
}

/// The memory limit, where no controller holds it.
fn watched_memory(policy: &Policy, attestation: &Attestation) -> Option<u64> {
    let memory = attestation.statement(Control::Memory);
    let is_watched = memory.is_some_and(|one| one.enforced == attest::Enforcement::Watched);
    policy.limits.memory.bytes().filter(|_| is_watched)
}

/// Stands by while the command runs, with the proxy beside it where there is a list of hosts.
fn run_command(
    request: &LaunchRequest<'_>,
    sandbox: &SandboxProcess,
    (signals, conversation): (SignalFd, SupervisorStreams<'_>),
    memory: Option<(u64, MemoryWatcher)>,
    uppers: &[PathBuf],
    (listeners, started): (Vec<EgressListener>, Instant),
) -> Result<(Option<CommandExit>, OutputTotals, Option<NetworkTraffic>), LaunchError> {
    let mut since = SystemTime::now();
    let mut changed = || {
        let before = std::mem::replace(&mut since, SystemTime::now());
        uppers.iter().any(|upper| changed_since(upper, before))
    };
    let proxy = match &request.policy.network {
        NetworkPolicy::Hosts(list) => Some(EgressProxy::start(list, listeners, started)),
        NetworkPolicy::None | NetworkPolicy::Full => None,
    };
    let proxy = proxy.transpose().map_err(internal("can't start the proxy"))?;
    let (end, output) = supervise::run_until_exit(SupervisionLoop {
        init: sandbox.pidfd.try_clone().map_err(internal("can't watch the sandbox"))?,
        channel: sandbox.channel.try_clone().map_err(internal("can't watch the sandbox"))?,
        killer: sandbox.killer,
        signals,
        conversation,
        deadlines: request.policy.deadlines.clone(),
        memory,
        changed: &mut changed,
        attendant: request.attendant,
    })
    .map_err(internal("can't watch the sandbox"))?;
    Ok((end, output, proxy.map(EgressProxy::stop)))
}

/// Makes a layer of what changed in the private copy, once every process that could write there is dead.
fn collect_copy(
    request: &LaunchRequest<'_>,
    place: SandboxBackend,
    identity: &AgentUser,
    janitor: Option<&Janitor>,
    has_ended: bool,
    upper: &OwnedFd,
) -> Result<Option<Box<RunningContainer>>, LaunchError> {
    let unread = |source| LaunchError::Uncollected { source };
    match place {
        SandboxBackend::View => Ok(None),
        SandboxBackend::Bare(bare) => {
            kill_leftovers(identity, janitor).map_err(unread)?;
            collect(&bare.replica, request.workspace, upper).map_err(unread)?;
            Ok(None)
        }
        SandboxBackend::Container(mut contained) => {
            // What the dead left is collected while the engine takes the rest apart. Of those without a namespace of their
            // own only the engine knows whether they are.
            let dead = request.policy.requires(Control::PidNamespace) && contained.has_ended();
            if !dead || !has_ended {
                contained.remove()?;
            }
            if !has_ended {
                return Err(LaunchError::Lost { engine: contained.engine.is_alive() });
            }
            collect(&contained.replica, request.workspace, upper).map_err(unread)?;
            Ok(Some(contained))
        }
    }
}

/// A sandbox whose first process is there, with what belongs to it.
struct StartedSandbox {
    sandbox: SandboxProcess,
    place: SandboxBackend,
    /// Our ends of the agent's streams; `None` where it has a terminal.
    pipes: Option<[OwnedFd; 3]>,
    signals: SignalFd,
    cgroup: Option<Cgroup>,
    janitor: Option<Janitor>,
    /// Until the agent is let go, the sandbox has its processor and we another.
    aside: Option<sys::AffinityGuard>,
    started: Instant,
}

/// Waits for joined threads to go, for a caller that starts one sandbox after another. A joined thread is gone for us a
/// moment before it is for the kernel, and a process with threads can't start a sandbox. The launch notices threads
/// that were not joined.
pub fn wait_until_alone() {
    for _ in 0..200 {
        let alone = rustix::fs::stat(c"/proc/self/task").is_ok_and(|stat| stat.st_nlink <= 3);
        if alone {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the kernel refused, with what a person can do about it.
fn unavailable(what: &str, errno: i32) -> LaunchError {
    let reason = io::Error::from_raw_os_error(errno);
    let what =
        if errno == 0 || what.contains("os error") { what.to_owned() } else { format!("{what}: {reason}") };
    LaunchError::Unavailable { what, hint: crate::doctor::advice(errno) }
}
