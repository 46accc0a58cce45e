//! Starts a sandbox and stands by it until it is over.
//!
//! Three processes take part. This one, the supervisor, stays outside and keeps the pipes, the deadlines and
//! the cgroup. The sandbox's first process builds the view (`init`), or keeps the processes together where
//! there is none (`bare`). The agent (`agent`) gives up everything and waits at a gate; what holds it is read
//! back there ([`crate::attest`]), and only if nothing that was asked for is missing does its program start.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{Gid, OFlags, Uid};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::access;
use crate::agent::Start;
use crate::ahead::Ahead;
use crate::attest::{self, Asked, Attestation, Early, Statement};
use crate::bare::replica::Replica;
use crate::bare::{Bare, clear_shared_memory, everyone, keeper};
use crate::cgroup::Cgroup;
use crate::channel::{self, FromSandbox, Handed, Ready};
use crate::control::Control;
use crate::egress::{self, Listener, Proxy, Traffic};
use crate::flow::Flow;
use crate::harvest::Base;
use crate::host::{Host, Surroundings};
use crate::identity::Identity;
use crate::init::{self, Birth};
use crate::janitor::Janitor;
use crate::opening::Opening;
use crate::output::redact::Needles;
use crate::output::{Stream, Tallies};
use crate::path::RelPath;
use crate::policy::{Level, Network, Policy};
use crate::supervise::{self, Conversation, End, Watch};
use crate::sys::{self, Brought, Clone};
use crate::terminal::RawTerminal;
use crate::view::{Plan, Step};
use crate::watch::Watcher;
use crate::workspace::state::Run;
use crate::workspace::{Layer, Workspace};

/// One command to run.
#[derive(Debug)]
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

    let Prepared { early, upper, master, listeners } = sandbox.wait_for_birth()?;
    let upper = match &bare {
        Some(bare) => open_folder(&bare.replica.upper).map_err(internal("can't open the agent's layer"))?,
        None => upper.ok_or_else(|| too_early("the sandbox has no layer"))?,
    };
    let hidden = hidden(request, &identity);
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

    let raw = RawTerminal::enter(request.streams[0], master.as_ref());
    let conversation =
        converse(request, pipes.ours, master).map_err(internal("can't connect the streams"))?;
    channel::say_go(&sandbox.channel, &Handed::default()).map_err(internal("can't talk to the sandbox"))?;
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
    })
    .map_err(internal("can't watch the sandbox"))?;
    let network = proxy.map(Proxy::stop);
    drop(raw);
    let sandbox = match &bare {
        None => Some(sandbox),
        Some(bare) => {
            drop(sandbox);
            collect(bare, request.workspace, &upper, &identity, janitor.as_ref())
                .map_err(internal("can't collect what the agent changed"))?;
            None
        }
    };
    let remains = Remains { _sandbox: sandbox, _cgroup: cgroup, _janitor: janitor };
    Ok(Outcome { end, output, attestation, elapsed: started.elapsed(), network, upper, remains })
}

/// What the kernel is still taking apart when every process of a sandbox is dead. Dropping it waits until
/// that is over: then no process, mount or cgroup is left.
#[derive(Debug)]
pub struct Remains {
    // In this order: a cgroup can be removed when its last process is gone.
    _sandbox: Option<Sandbox>,
    _cgroup: Option<Cgroup>,
    _janitor: Option<Janitor>,
}

/// A started sandbox. It is killed and reaped when it goes out of sight, whatever happened.
#[derive(Debug)]
struct Sandbox {
    pidfd: OwnedFd,
    pid: i32,
    channel: OwnedFd,
    /// What ends all of it.
    killer: rustix::process::Signal,
}

/// What a sandbox has said of itself when its view is final.
struct Prepared {
    early: Early,
    upper: Option<OwnedFd>,
    master: Option<OwnedFd>,
    listeners: Vec<Listener>,
}

impl Sandbox {
    /// Waits until the view is made and the agent's process is there; it goes on to give up everything else.
    fn wait_for_birth(&self) -> Result<Prepared, LaunchError> {
        let (mut upper, mut master, mut listeners) = (None, None, Vec::new());
        loop {
            match self.hear()? {
                (FromSandbox::Layer, layer) => upper = layer,
                (FromSandbox::Terminal, terminal) => master = terminal,
                (FromSandbox::Listener { address }, Some(socket)) => {
                    listeners.push(Listener { address, socket });
                }
                (FromSandbox::Born { pid }, _) => {
                    let early = match Early::read(pid) {
                        Ok(early) => early,
                        // It may be gone already, and have said why.
                        Err(error) => {
                            self.hear()?;
                            return Err(internal("can't read the agent's process")(error));
                        }
                    };
                    return Ok(Prepared { early, upper, master, listeners });
                }
                _ => {}
            }
        }
    }

    /// Waits until the agent stands at the gate.
    fn wait_until_ready(&self) -> Result<Ready, LaunchError> {
        loop {
            if let (FromSandbox::Ready(ready), _) = self.hear()? {
                return Ok(ready);
            }
        }
    }

    fn hear(&self) -> Result<(FromSandbox, Option<OwnedFd>), LaunchError> {
        match channel::receive(&self.channel).map_err(internal("can't hear the sandbox"))? {
            Some((FromSandbox::Failed { what, error }, _)) => Err(unavailable(&what, error)),
            Some(heard) => Ok(heard),
            None => Err(too_early("the sandbox did not start")),
        }
    }
}

fn too_early(what: &'static str) -> LaunchError {
    LaunchError::Internal { what, source: io::Error::other("it ended before it was ready") }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // An agent that still stands at the gate goes by itself, and with it what its first process waits for.
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, self.killer);
        let _ = rustix::process::waitid(
            rustix::process::WaitId::PidFd(self.pidfd.as_fd()),
            rustix::process::WaitIdOptions::EXITED,
        );
    }
}

/// A list of hosts takes a network namespace to hold it, and names take somebody to look them up.
fn check_list(policy: &Policy) -> Result<(), LaunchError> {
    match &policy.network {
        Network::Hosts(_) if policy.level == Level::Landlock => Err(LaunchError::Unavailable {
            what: "a list of hosts can't be held without a network namespace".into(),
            hint: "use --net none or --net full, or --isolation process".into(),
        }),
        Network::Hosts(_) if !policy.wants(Control::Network) => Err(LaunchError::Unavailable {
            what: "a list of hosts can't be held without the control network".into(),
            hint: "leave the control on, or allow everything".into(),
        }),
        Network::Hosts(list) if list.needs_lookup() && egress::find_getent().is_none() => {
            Err(LaunchError::Unavailable {
                what: "host names can't be looked up here: there is no getent".into(),
                hint: "install it (Debian has it in libc-bin), or list addresses".into(),
            })
        }
        _ => Ok(()),
    }
}

fn identify(policy: &Policy, host: &Host) -> Result<Identity, LaunchError> {
    let (uid, gid) = (host.uid, host.gid);
    if policy.level == Level::Landlock {
        return match host.is_root() {
            true => Identity::nobody().map_err(internal("can't take a user for the agent")),
            false => Ok(Identity::caller(uid, gid)),
        };
    }
    match (policy.wants(Control::UserNamespace), host.is_root()) {
        (true, true) => Identity::nobody().map_err(internal("can't take a user for the agent")),
        (true, false) => Ok(Identity::caller(uid, gid)),
        (false, true) => Ok(Identity::Unmapped { uid, gid }),
        (false, false) => Err(LaunchError::Unavailable {
            what: "an ordinary user can't make any namespace without a user namespace".into(),
            hint: "leave the control user-namespace on, or run as root".into(),
        }),
    }
}

/// Which directories are opened, decided on the lower layers alone.
fn opening(policy: &Policy, workspace: &Workspace) -> io::Result<Opening> {
    if !policy.wants(Control::Scope) {
        return Ok(Opening { open: vec![RelPath::root()], ..Opening::default() });
    }
    Ok(Opening::plan(&policy.scope, &workspace.scratch, &base(workspace)?))
}

/// The lower layers of the workspace itself.
fn base(workspace: &Workspace) -> io::Result<Base> {
    let lowers = workspace.overlays.first().map(|overlay| overlay.lowers.as_slice()).unwrap_or_default();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |lower: &PathBuf| rustix::fs::open(lower, flags, rustix::fs::Mode::empty());
    Ok(Base::new(lowers.iter().map(open).collect::<Result<_, _>>()?))
}

/// The private copy, and what the agent may do with it and around it.
fn bare(request: &Request<'_>, opening: &Opening, identity: &Identity) -> Result<Bare, LaunchError> {
    let (policy, host, workspace) = (request.policy, request.host, request.workspace);
    if policy.wants(Control::Landlock) && access::abi().is_none() {
        return Err(LaunchError::Unavailable {
            what: "this kernel has no Landlock".into(),
            hint: "boot with `lsm=landlock,…`, on Linux 5.13 or newer".into(),
        });
    }
    let hidden = policy.hide.iter().filter_map(|path| {
        let inside = path.strip_prefix(&workspace.path).ok()?;
        RelPath::parse(inside.as_os_str().as_encoded_bytes()).ok()
    });
    let hidden = hidden.chain(workspace.hidden.iter().cloned()).collect();
    let agent = match identity {
        Identity::Nobody { .. } => Some(identity.outside()),
        Identity::Caller { .. } | Identity::Unmapped { .. } => None,
    };
    if let Identity::Nobody { id, .. } = identity {
        clear_shared_memory(*id).map_err(internal("can't remove what an earlier run left in memory"))?;
    }
    // Whatever the keeper can't end, because it was killed itself, comes to us.
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(internal("can't keep what the agent leaves behind"))?;
    let replica = Replica::make(workspace, opening, &hidden, request.run, agent)
        .map_err(internal("can't copy the workspace"))?;
    Ok(Bare::new(policy, host, workspace, opening, replica))
}

/// When everybody is dead: what changed in the copy becomes the upper layer.
fn collect(
    bare: &Bare,
    workspace: &Workspace,
    upper: &OwnedFd,
    identity: &Identity,
    janitor: Option<&Janitor>,
) -> io::Result<()> {
    let user = match identity {
        Identity::Nobody { id, .. } => Some(*id),
        Identity::Caller { .. } | Identity::Unmapped { .. } => None,
    };
    everyone::sweep(user, &janitor.map(Janitor::pid).into_iter().collect::<Vec<_>>());
    if let Some(user) = user {
        clear_shared_memory(user)?;
    }
    let tree = open_folder(&bare.replica.tree)?;
    bare.replica.manifest.distil(tree.as_fd(), upper.as_fd(), &workspace.scratch)
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}

/// Makes the layers that are on disk. The upper one is what the agent sees: it must be the agent's, with the
/// mode of the folder it covers.
fn make_layers(workspace: &Workspace, run: &Run, identity: &Identity) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    for overlay in workspace.overlays.iter().chain(&workspace.stores) {
        let Layer::Disk { upper, work } = &overlay.layer else { continue };
        run.make()?;
        std::fs::create_dir(upper)?;
        if let Some(lower) = overlay.lowers.first() {
            std::fs::create_dir(work)?;
            let mode = std::fs::metadata(lower)?.permissions().mode();
            std::fs::set_permissions(upper, std::fs::Permissions::from_mode(mode & 0o7777))?;
        }
        if let Identity::Nobody { .. } = identity {
            let (uid, gid) = identity.outside();
            std::os::unix::fs::chown(upper, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

/// Which namespaces the sandbox lives in, and which of them it makes after its birth.
struct Namespaces {
    at_birth: CloneFlags,
    later: CloneFlags,
}

impl Namespaces {
    fn of(policy: &Policy, host: &Host, identity: &Identity) -> Self {
        if policy.level == Level::Landlock {
            return Self { at_birth: CloneFlags::empty(), later: CloneFlags::empty() };
        }
        // Root builds everything as root and enters a user namespace last: one that owns none of the others.
        let mut at_birth = CloneFlags::CLONE_NEWNS;
        if let Identity::Caller { .. } = identity {
            at_birth |= CloneFlags::CLONE_NEWUSER;
        }
        if policy.wants(Control::PidNamespace) {
            at_birth |= CloneFlags::CLONE_NEWPID;
        }
        // Root's was sent for ahead.
        let own_network = policy.wants(Control::Network) && policy.network != Network::Full;
        let mut later = CloneFlags::empty();
        for (wanted, flag) in [
            (policy.wants(Control::IpcNamespace), CloneFlags::CLONE_NEWIPC),
            (policy.wants(Control::UtsNamespace), CloneFlags::CLONE_NEWUTS),
            (policy.wants(Control::CgroupNamespace), CloneFlags::CLONE_NEWCGROUP),
            (own_network && !host.is_root(), CloneFlags::CLONE_NEWNET),
        ] {
            later.set(flag, wanted);
        }
        Self { at_birth, later }
    }
}

/// Every path that must be covered, as the agent would name it.
fn hidden(request: &Request<'_>, identity: &Identity) -> Vec<PathBuf> {
    let surroundings = Surroundings::observe(request.host);
    let plan = Plan::new(request.policy, request.host, &surroundings, identity.inside(), request.terminal);
    let planned = plan.covers.into_iter().filter_map(|step| match step {
        Step::Hide { at } => Some(at),
        _ => None,
    });
    let workspace = request.workspace;
    let inside = workspace.hidden.iter().map(|path| workspace.path.join(path.as_path()));
    planned.chain(inside).chain([workspace.state.clone()]).collect()
}

fn cgroup(request: &Request<'_>) -> Result<Option<Cgroup>, LaunchError> {
    let policy = request.policy;
    // Nothing but a cgroup holds a whole tree to a limit of memory; the others have another way.
    if !policy.wants(Control::Memory) {
        return Ok(None);
    }
    let name = request.run.path().file_name().unwrap_or_default().to_string_lossy();
    let processes = policy.limits.processes.filter(|_| policy.wants(Control::Processes));
    Cgroup::create(&format!("agency-{name}"), policy.limits.memory, processes)
        .map_err(internal("can't make a cgroup"))
}

fn watch_signals() -> io::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGWINCH] {
        set.add(signal);
    }
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

/// Three pipes, or none where a terminal takes their place.
struct Pipes {
    theirs: Option<[OwnedFd; 3]>,
    ours: Option<[OwnedFd; 3]>,
}

impl Pipes {
    fn make(terminal: bool, identity: &Identity) -> io::Result<Self> {
        if terminal {
            return Ok(Self { theirs: None, ours: None });
        }
        let (input, their_input) = {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&write, true)?;
            (write, read)
        };
        let (output, their_output) = pipe_with(PipeFlags::CLOEXEC)?;
        let (error, their_error) = pipe_with(PipeFlags::CLOEXEC)?;
        // Programs open them again, as /dev/stdout; then it matters whose they are.
        if let Identity::Nobody { .. } = identity {
            let (uid, gid) = identity.outside();
            for pipe in [&their_input, &their_output, &their_error] {
                rustix::fs::fchown(pipe, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
        }
        Ok(Self {
            theirs: Some([their_input, their_output, their_error]),
            ours: Some([input, output, error]),
        })
    }
}

fn converse<'a>(
    request: &Request<'a>,
    pipes: Option<[OwnedFd; 3]>,
    master: Option<OwnedFd>,
) -> io::Result<Conversation<'a>> {
    let [input, output, error] = request.streams;
    let needles = Rc::new(Needles::new(&request.policy.secrets));
    let limit = request.policy.limits.output;
    let stream = |from, to, raw| Stream::new(from, to, &needles, limit, raw);
    match (pipes, master) {
        (Some([to_agent, from_agent, errors]), _) => Ok(Conversation {
            input: Some(Flow::new(input, to_agent)),
            output: vec![stream(from_agent, output, false), stream(errors, error, false)],
            terminal: None,
        }),
        (None, Some(master)) => Ok(Conversation {
            input: Some(Flow::new(input, master.try_clone()?)),
            output: vec![stream(master.try_clone()?, output, true)],
            terminal: Some(master),
        }),
        (None, None) => Err(io::Error::other("the sandbox handed over no terminal")),
    }
}

/// Every folder that shows a sign of life when the agent writes something.
fn uppers(workspace: &Workspace, upper: &OwnedFd) -> Vec<PathBuf> {
    use std::os::fd::AsRawFd;
    let stores = workspace.stores.iter().filter_map(|store| match &store.layer {
        Layer::Disk { upper, .. } => Some(upper.clone()),
        Layer::Memory => None,
    });
    std::iter::once(PathBuf::from(format!("/proc/self/fd/{}/", upper.as_raw_fd()))).chain(stores).collect()
}

/// Whether anything below changed after `since`: only asked when nothing else was heard for long.
fn changed_since(folder: &Path, since: SystemTime) -> bool {
    let newer = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        let at = since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        path.symlink_metadata().is_ok_and(|meta| {
            (meta.ctime(), meta.ctime_nsec()) >= (at.as_secs() as i64, i64::from(at.subsec_nanos()))
        })
    };
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        if newer(&folder) {
            return true;
        }
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            } else if newer(&entry.path()) {
                return true;
            }
        }
    }
    false
}

/// What the kernel refused, with what a person can do about it.
fn unavailable(what: &str, errno: i32) -> LaunchError {
    let reason = io::Error::from_raw_os_error(errno);
    let what =
        if errno == 0 || what.contains("os error") { what.to_owned() } else { format!("{what}: {reason}") };
    LaunchError::Unavailable { what, hint: crate::doctor::advice(errno) }
}
