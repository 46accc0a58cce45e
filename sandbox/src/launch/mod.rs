//! Starts a sandbox and stands by it until it is over.
//!
//! Three processes take part. This one, the supervisor, stays outside and keeps the pipes, the deadlines and
//! the cgroup. The sandbox's first process builds the view (`init`), or keeps the processes together where
//! there is none (`bare`). The agent (`agent`) gives up everything and waits at a gate; what holds it is read
//! back there ([`crate::attest`]), and only if nothing that was asked for is missing does its program start.

mod copy;
mod prepare;
mod sandbox;
mod streams;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::agent::Start;
use crate::ahead::Ahead;
use crate::attest::{self, Asked, Attestation, Statement};
use crate::bare::keeper;
use crate::cgroup::Cgroup;
use crate::channel::{self, Handed};
use crate::control::Control;
use crate::egress::{Proxy, Traffic};
use crate::host::Host;
use crate::init::{self, Birth};
use crate::janitor::Janitor;
use crate::output::Tallies;
use crate::path::RelPath;
use crate::policy::{Level, Network, Policy};
use crate::supervise::{self, Attendant, End, Stopped, Watch};
use crate::sys::{self, Brought, Clone};
use crate::terminal::RawTerminal;
use crate::watch::Watcher;
use crate::workspace::Workspace;
use crate::workspace::state::Run;
use copy::{bare, collect, open_folder};
use prepare::{Namespaces, cgroup, check_list, hidden, identify, make_layers, opening};
pub use sandbox::Remains;
use sandbox::{Prepared, Sandbox, too_early};
use streams::{Pipes, changed_since, converse, uppers, watch_signals};

/// One command to run.
pub struct Request<'a> {
    pub policy: &'a Policy,
    pub host: &'a Host,
    pub workspace: &'a Workspace,
    pub run: &'a Run,
    /// An empty folder the sandbox may build on, in a mount namespace of its own; runs may share one.
    pub staging: &'a Path,
    pub command: &'a [OsString],
    /// Where in the workspace it starts.
    pub start: &'a RelPath,
    /// Give it a terminal instead of pipes.
    pub terminal: bool,
    /// Our standard streams, in their usual order.
    pub streams: [BorrowedFd<'a>; 3],
    pub attendant: &'a dyn Attendant,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("policy", self.policy)
            .field("workspace", self.workspace)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub end: End,
    /// What became of the agent's output.
    pub output: Tallies,
    pub attestation: Attestation,
    pub elapsed: Duration,
    /// What the agent connected to, where it had a list of hosts.
    pub network: Option<Traffic>,
    /// What the agent changed, for [`crate::harvest`].
    pub upper: OwnedFd,
    pub remains: Remains,
}

/// Why a command was not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Something that was asked for can't be had here.
    #[error("{what}")]
    Unavailable { what: String, hint: String },
    #[error("asked for, but not held: {}", list(missing))]
    NotHeld { missing: Vec<Statement> },
    #[error("{what}")]
    Internal {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    /// It was run, and what it changed is lost.
    #[error("can't collect what the agent changed")]
    Uncollected { source: io::Error },
}

fn list(missing: &[Statement]) -> String {
    missing.iter().map(|one| format!("{} ({})", one.control, one.how)).collect::<Vec<_>>().join(", ")
}

fn internal<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> LaunchError {
    move |source| LaunchError::Internal { what, source: source.into() }
}

/// Runs one command, in namespaces that were sent for ahead or are now. The calling process must have a
/// single thread.
pub fn run(request: &Request<'_>, ahead: Option<Ahead>) -> Result<Outcome, LaunchError> {
    let policy = request.policy;
    check_list(policy)?;
    let send = || Ahead::send(request.host, policy.level, &policy.without, &policy.network);
    let ahead = ahead.unwrap_or_else(send);
    let identity = identify(policy, request.host)?;
    let opening = opening(policy, request.workspace).map_err(internal("can't look at the workspace"))?;
    let bare = match policy.level {
        Level::Landlock => Some(bare(request, &opening, &identity)?),
        Level::Process | Level::Container => None,
    };
    let cgroup = cgroup(request)?;
    let janitor = cgroup
        .as_ref()
        .map(|cgroup| Janitor::employ(cgroup.paths().cloned().collect()))
        .transpose()
        .map_err(internal("can't start the process that cleans up"))?;
    let signals = watch_signals().map_err(internal("can't watch for signals"))?;
    let (ours, theirs) = channel::pair().map_err(internal("can't talk to the sandbox"))?;
    let pipes = Pipes::make(request.terminal, &identity).map_err(internal("can't make pipes"))?;

    let birthplace = cgroup
        .as_ref()
        .map(Cgroup::birthplace)
        .transpose()
        .map_err(internal("can't open the cgroup"))?
        .flatten();
    let must_enter = cgroup.is_some() && birthplace.is_none();
    let namespaces = Namespaces::of(policy, request.host, &identity);
    let clone = sys::clone_into(namespaces.at_birth, birthplace.as_ref().map(AsFd::as_fd))
        .map_err(|error| unavailable("can't make namespaces", error.raw_os_error().unwrap_or(0)))?;
    let started = Instant::now();
    let (pid, pidfd) = match clone {
        Clone::Parent { pid, pidfd } => (pid.as_raw(), pidfd),
        Clone::Child => {
            drop((ours, signals, pipes.ours));
            let root = bare.as_ref().map_or(&request.workspace.path, |bare| &bare.replica.tree);
            let start = Start {
                policy,
                identity: &identity,
                opening: &opening,
                workspace: request.workspace,
                folder: root.join(request.start.as_path()),
                host: request.host,
                command: request.command,
                bare: bare.as_ref(),
            };
            let (staging, pipes) = (request.staging, pipes.theirs);
            match bare {
                Some(_) => keeper::live(keeper::Birth { start, pipes }, &theirs),
                None => init::live(Birth { start, staging, namespaces: namespaces.later, pipes }, &theirs),
            }
        }
    };
    // Until the agent is let go, the sandbox has this processor and we another.
    let aside = sys::step_aside();
    drop((theirs, pipes.theirs));
    // A first process of a namespace takes everyone along; a keeper has to be asked.
    let killer = if bare.is_some() { rustix::process::Signal::HUP } else { rustix::process::Signal::KILL };
    let sandbox = Sandbox { pidfd, pid, channel: ours, killer };

    // While the first process makes its namespaces and the ground of the view, its layers are made here.
    if bare.is_none() {
        make_layers(request.workspace, request.run, &identity)
            .map_err(internal("can't make the agent's layer"))?;
    }
    let Brought { user, network } = ahead
        .finish(request.workspace.owner, identity.outside())
        .map_err(|error| unavailable("can't make namespaces", error.raw_os_error().unwrap_or(0)))?;
    if must_enter && let Some(cgroup) = &cgroup {
        cgroup.enter(pid).map_err(internal("can't move the sandbox into its cgroup"))?;
    }
    channel::say_go(&sandbox.channel, &Handed { idmap: user, network })
        .map_err(internal("can't talk to the sandbox"))?;

    // Whatever can be known before the agent stands at the gate is looked up before: it waits there for us.
    let hidden = hidden(request, &identity);
    let Prepared { early, upper, master, listeners } = sandbox.wait_for_birth()?;
    let upper = match &bare {
        Some(bare) => open_folder(&bare.replica.upper).map_err(internal("can't open the agent's layer"))?,
        None => upper.ok_or_else(|| too_early("the sandbox has no layer"))?,
    };
    let raw = RawTerminal::enter(request.streams[0], master.as_ref());
    let conversation =
        converse(request, pipes.ours, master).map_err(internal("can't connect the streams"))?;
    let ready = sandbox.wait_until_ready()?;
    let asked = Asked {
        policy,
        workspace: request.workspace,
        opening: &opening,
        home: &request.host.home,
        hidden,
        cgroup: cgroup.as_ref(),
        root: request.host.is_root(),
        bare: bare.as_ref(),
        listeners: &listeners,
    };
    let attestation =
        attest::read(&asked, &ready, early).map_err(internal("can't read back what holds the sandbox"))?;
    let missing: Vec<Statement> = attestation.missing().cloned().collect();
    if !missing.is_empty() {
        return Err(LaunchError::NotHeld { missing });
    }

    channel::say_go(&sandbox.channel, &Handed::default()).map_err(internal("can't talk to the sandbox"))?;
    drop(aside);
    let watched =
        attestation.statement(Control::Memory).is_some_and(|one| one.enforced == attest::Enforced::Watched);
    let memory = policy
        .limits
        .memory
        .filter(|_| watched)
        .map(|limit| Watcher::new(sandbox.pid).map(|watcher| (limit, watcher)))
        .transpose()
        .map_err(|error| LaunchError::Internal {
            what: "can't watch memory",
            source: io::Error::other(error),
        })?;
    let mut since = SystemTime::now();
    let uppers = match &bare {
        Some(bare) => vec![bare.replica.tree.clone()],
        None => uppers(request.workspace, &upper),
    };
    let mut changed = || {
        let before = std::mem::replace(&mut since, SystemTime::now());
        uppers.iter().any(|upper| changed_since(upper, before))
    };
    let proxy = match &policy.network {
        Network::Hosts(list) => Some(Proxy::start(list, listeners, started)),
        Network::None | Network::Full => None,
    };
    let proxy = proxy.transpose().map_err(internal("can't start the proxy"))?;
    let (end, output) = supervise::stand_by(Watch {
        init: sandbox.pidfd.try_clone().map_err(internal("can't watch the sandbox"))?,
        channel: sandbox.channel.try_clone().map_err(internal("can't watch the sandbox"))?,
        killer,
        signals,
        conversation,
        deadlines: policy.deadlines.clone(),
        memory,
        changed: &mut changed,
        attendant: request.attendant,
    })
    .map_err(internal("can't watch the sandbox"))?;
    // A controller kills without a word; whoever looks at the end wants to know what for.
    let end = match (end, &cgroup) {
        (End::Signaled(libc::SIGKILL), Some(cgroup)) if cgroup.ran_out_of_memory() => {
            End::Stopped(Stopped::Memory)
        }
        (end, _) => end,
    };
    let network = proxy.map(Proxy::stop);
    drop(raw);
    let sandbox = match &bare {
        None => Some(sandbox),
        Some(bare) => {
            drop(sandbox);
            collect(bare, request.workspace, &upper, &identity, janitor.as_ref())
                .map_err(|source| LaunchError::Uncollected { source })?;
            None
        }
    };
    let remains = Remains { _sandbox: sandbox, _cgroup: cgroup, _janitor: janitor };
    Ok(Outcome { end, output, attestation, elapsed: started.elapsed(), network, upper, remains })
}

/// For whoever starts one sandbox after another. A thread that was joined is gone for us a moment before it is for the
/// kernel, and a process with threads can't start a sandbox. Those that were not joined are noticed by the launch.
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
