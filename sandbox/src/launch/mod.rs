//! Starts a sandbox and stands by it until it is over.
//!
//! Three processes take part. This one, the supervisor, stays outside and keeps the pipes, the deadlines and
//! the cgroup. The sandbox's first process builds the view (`init`), or keeps the processes together where
//! there is none (`bare`); it is born to us (`born`), or calls from a container (`called`). The agent (`agent`)
//! gives up everything and waits at a gate; what holds it is read back there ([`crate::attest`]), and only if
//! nothing that was asked for is missing does its program start.

mod born;
pub(crate) mod called;
mod copy;
mod prepare;
mod sandbox;
mod streams;

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signalfd::SignalFd;

use crate::ahead::Ahead;
use crate::attest::{self, Asked, Attestation, Ours, Statement};
use crate::bare::Bare;
use crate::bare::replica::Replica;
use crate::cgroup::Cgroup;
use crate::channel;
use crate::container::engine::EngineError;
use crate::control::Control;
use crate::egress::{Proxy, Traffic};
use crate::host::{Host, Surroundings};
use crate::janitor::Janitor;
use crate::output::Tallies;
use crate::path::RelPath;
use crate::policy::{Level, Network, Policy};
use crate::supervise::{self, Attendant, End, Stopped, Watch};
use crate::sys;
use crate::terminal::RawTerminal;
use crate::watch::Watcher;
use crate::workspace::Workspace;
use crate::workspace::state::Run;
use called::Contained;
use copy::{clear, collect, open_folder};
use prepare::{check_list, hidden, identify, opening};
pub use sandbox::Remains;
use sandbox::{Prepared, Sandbox, too_early};
use streams::{changed_since, converse, uppers};

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
    /// An engine can't give what was asked for.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Its container was ended by somebody else, or with its engine.
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
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Engine(EngineError::None { .. } | EngineError::Gone))
    }

    /// Whether something that was asked for can't be had here, and nothing was started.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::NotHeld { .. } | Self::Engine(_))
    }
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
    let identity = identify(policy, request.host)?;
    let opening = opening(policy, request.workspace).map_err(internal("can't look at the workspace"))?;
    // Whatever goes wrong from here on: the sandbox goes first, and last who cleans up after it, whose end is waited for
    // and who waits for everybody in the sandbox.
    let Begun { janitor, mut cgroup, signals, pipes, place, sandbox, started, aside } = match policy.level {
        Level::Process | Level::Landlock => born::begin(request, ahead, &opening, &identity)?,
        Level::Container => called::begin(request, &opening, &identity)?,
    };

    // Whatever can be known before the agent stands at the gate is looked up before: it waits there for us.
    let (hidden, toolchains) = match place {
        Place::View => {
            // Looked up anew, and not what was handed over: what came in between is in sight.
            let around = Surroundings::observe(request.host);
            let seen = |path: &PathBuf| policy.wants(Control::PrivateHome) && path.is_dir();
            (hidden(request, &around), around.toolchains.into_iter().filter(seen).collect())
        }
        Place::Bare(_) | Place::Container(_) => (Vec::new(), Vec::new()),
    };
    let ours = Ours::read().map_err(internal("can't read our own namespaces"))?;
    let Prepared { early, upper, spent, master, listeners } = sandbox.wait_for_birth(&ours)?;
    let upper = match place.replica() {
        Some(replica) => open_folder(&replica.upper).map_err(internal("can't open the agent's layer"))?,
        None => upper.ok_or_else(|| too_early("the sandbox has no layer"))?,
    };
    if let Place::Container(_) = place {
        cgroup = Some(Cgroup::of(early.pid()).map_err(internal("can't find the container's cgroup"))?);
    }
    let raw = RawTerminal::enter(request.streams[0], master.as_ref());
    let conversation = converse(request, pipes, master).map_err(internal("can't connect the streams"))?;
    let asked = Asked {
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
    let missing: Vec<Statement> = attestation.missing().cloned().collect();
    if !missing.is_empty() {
        return Err(LaunchError::NotHeld { missing });
    }

    channel::say_go(&sandbox.channel).map_err(internal("can't talk to the sandbox"))?;
    drop((aside, spent));
    let watched =
        attestation.statement(Control::Memory).is_some_and(|one| one.enforced == attest::Enforced::Watched);
    let memory = policy.limits.memory.bytes().filter(|_| watched);
    let memory = memory.map(|limit| (limit, Watcher::new(sandbox.pid)));
    let mut since = SystemTime::now();
    let uppers = match place.replica() {
        Some(replica) => vec![replica.tree.clone()],
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
        killer: sandbox.killer,
        signals,
        conversation,
        deadlines: policy.deadlines.clone(),
        memory,
        changed: &mut changed,
        attendant: request.attendant,
    })
    .map_err(internal("can't watch the sandbox"))?;
    // A controller kills without a word; whoever looks at the end wants to know what for.
    let killed = matches!(end, None | Some(End::Signaled(libc::SIGKILL)));
    let end = match killed && cgroup.as_ref().is_some_and(Cgroup::ran_out_of_memory) {
        true => Some(End::Stopped(Stopped::Memory)),
        false => end,
    };
    let network = proxy.map(Proxy::stop);
    drop(raw);
    let unread = |source| LaunchError::Uncollected { source };
    let (sandbox, contained) = match place {
        Place::View => (Some(sandbox), None),
        Place::Bare(bare) => {
            drop(sandbox);
            clear(&identity, janitor.as_ref()).map_err(unread)?;
            collect(&bare.replica, request.workspace, &upper).map_err(unread)?;
            (None, None)
        }
        Place::Container(mut contained) => {
            drop(sandbox);
            // What the dead left is collected while the engine takes the rest apart. Of those without a namespace of their own
            // only the engine knows whether they are.
            let dead = policy.wants(Control::PidNamespace) && contained.has_ended();
            if !dead || end.is_none() {
                contained.take_away()?;
            }
            if end.is_none() {
                return Err(LaunchError::Lost { engine: contained.engine.answers() });
            }
            collect(&contained.replica, request.workspace, &upper).map_err(unread)?;
            (None, Some(contained))
        }
    };
    // Without a word, it was killed.
    let end = end.unwrap_or(End::Signaled(libc::SIGKILL));
    let remains = Remains { _sandbox: sandbox, _contained: contained, _cgroup: cgroup, _janitor: janitor };
    Ok(Outcome { end, output, attestation, elapsed: started.elapsed(), network, upper, remains })
}

/// A sandbox whose first process is there, with what belongs to it.
struct Begun {
    sandbox: Sandbox,
    place: Place,
    /// Our ends of the agent's streams; `None` where it has a terminal.
    pipes: Option<[OwnedFd; 3]>,
    signals: SignalFd,
    cgroup: Option<Cgroup>,
    janitor: Option<Janitor>,
    /// Until the agent is let go, the sandbox has its processor and we another.
    aside: Option<sys::Aside>,
    started: Instant,
}

/// Where the agent works.
#[derive(Debug)]
pub(crate) enum Place {
    /// In an overlay, in a view of its own.
    View,
    /// On a copy, on the host.
    Bare(Box<Bare>),
    /// On a copy, in a container.
    Container(Box<Contained>),
}

impl Place {
    fn replica(&self) -> Option<&Replica> {
        match self {
            Place::View => None,
            Place::Bare(bare) => Some(&bare.replica),
            Place::Container(contained) => Some(&contained.replica),
        }
    }

    pub(crate) fn bare(&self) -> Option<&Bare> {
        match self {
            Place::Bare(bare) => Some(bare),
            Place::View | Place::Container(_) => None,
        }
    }
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
