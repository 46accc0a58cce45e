//! The last steps of the process that becomes the agent: it gives up everything, shows that it did, waits
//! for the word to go, and starts the program.
//!
//! The order matters. The user namespace comes first, while there is still the right to enter it; limits on
//! processes after it, because they are counted per namespace; capabilities, Landlock and the system call
//! filter last, each forbidding what the one before still needed.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sched::CloneFlags;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::agent_user::AgentUser;
use crate::channel::{self, ReadyReport, SandboxMessage};
use crate::control::Control;
use crate::host::HostUser;
use crate::landlock_level::LandlockSetup;
use crate::landlock_level::probes::ProbeResults;
use crate::landlock_rules::{self, LandlockRules};
use crate::policy::Policy;
use crate::seccomp::{self, AttackSurface};
use crate::sys;
use crate::user_limits::{self, InotifyLimits};
use crate::workspace::Workspace;
use crate::writable_directories::WritableDirectories;

/// What the agent is started with.
#[derive(Debug)]
pub(crate) struct AgentStart<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) identity: &'a AgentUser,
    /// Where to start.
    pub(crate) folder: PathBuf,
    pub(crate) command: &'a [OsString],
    pub(crate) around: AgentIsolation<'a>,
}

/// What lies around the agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AgentIsolation<'a> {
    /// A view that the first process made.
    View(ViewInputs<'a>),
    /// The host, without any namespaces.
    Bare(&'a LandlockSetup),
    /// A view that an engine made, with what may be done in it.
    Container(&'a LandlockRules, AttackSurface),
}

/// What a view is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ViewInputs<'a> {
    pub(crate) host: &'a HostUser,
    pub(crate) workspace: &'a Workspace,
    pub(crate) opening: &'a WritableDirectories,
}

impl AgentStart<'_> {
    fn bare(&self) -> Option<&LandlockSetup> {
        match self.around {
            AgentIsolation::Bare(bare) => Some(bare),
            AgentIsolation::View(_) | AgentIsolation::Container(..) => None,
        }
    }

    fn surface(&self) -> AttackSurface {
        match self.around {
            AgentIsolation::View(_) => AttackSurface::Kernel,
            AgentIsolation::Bare(bare) => bare.surface,
            AgentIsolation::Container(_, surface) => surface,
        }
    }
}

/// What a start could not do.
#[derive(Debug)]
pub(crate) struct StartFailure {
    pub(crate) what: String,
    pub(crate) error: i32,
}

pub(crate) fn failed<E: std::error::Error + 'static>(what: &str) -> impl Fn(E) -> StartFailure {
    let what = what.to_owned();
    move |error| StartFailure { error: errno_of(&error), what: describe(&what, &error) }
}

/// The whole chain of an error, as one line.
fn describe(what: &str, error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = what.to_owned();
    let mut next = Some(error);
    while let Some(error) = next {
        let line = error.to_string();
        if !text.ends_with(&line) {
            text = if text.is_empty() { line } else { format!("{text}: {line}") };
        }
        next = error.source();
    }
    text
}

fn errno_of(error: &(dyn std::error::Error + 'static)) -> i32 {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(errno) = error.downcast_ref::<rustix::io::Errno>() {
            return errno.raw_os_error();
        }
        if let Some(errno) = error.downcast_ref::<nix::Error>() {
            return *errno as i32;
        }
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return code;
        }
        next = error.source();
    }
    0
}

/// Standard input, output and error: pipes, or one terminal.
#[derive(Debug)]
pub(crate) enum AgentStreams {
    Pipes { input: OwnedFd, output: OwnedFd, error: OwnedFd },
    Terminal(OwnedFd),
}

/// Starts the process that becomes the agent. It borrows this one until its program starts.
pub(crate) fn spawn(
    start: &AgentStart<'_>,
    streams: &AgentStreams,
    host_proc: BorrowedFd<'_>,
    channel: BorrowedFd<'_>,
) -> Result<Pid, StartFailure> {
    sys::spawn_borrowing(|| {
        let StartFailure { what, error } = become_agent(start, streams, host_proc, channel);
        let _ = channel::send(channel, &SandboxMessage::Failed { what, error }, None);
        sys::exit_now(1)
    })
    .map_err(failed("can't start the agent's process"))
}

/// Becomes the agent. Returns only if it could not.
fn become_agent(
    start: &AgentStart<'_>,
    streams: &AgentStreams,
    host_proc: BorrowedFd<'_>,
    channel: BorrowedFd<'_>,
) -> StartFailure {
    match prepare(start, streams, host_proc, channel) {
        Err(failure) => failure,
        Ok(ready) => {
            if let Err(error) = channel::send(channel, &SandboxMessage::Ready(ready), None) {
                return failed("can't report to the supervisor")(error);
            }
            channel::spin_for_message(channel);
            channel::wait_for_go(channel);
            // This memory is also the first process's, and holds the supervisor's environment: from here on no process
            // of the agent's user may look into it. The program gets a memory of its own.
            if let Err(error) = nix::sys::prctl::set_dumpable(false) {
                return failed("can't close the first process's memory")(error);
            }
            let error = execute(start);
            let _ = channel::send(channel, &SandboxMessage::NotStarted { error: error as i32 }, None);
            sys::exit_now(if error == nix::Error::ENOENT { 127 } else { 126 })
        }
    }
}

fn prepare(
    start: &AgentStart<'_>,
    streams: &AgentStreams,
    host_proc: BorrowedFd<'_>,
    channel: BorrowedFd<'_>,
) -> Result<ReadyReport, StartFailure> {
    let policy = start.policy;
    rustix::process::setsid().map_err(failed("can't start a session"))?;
    connect(streams).map_err(failed("can't connect standard input and output"))?;
    if let (AgentUser::Nobody { .. }, AgentIsolation::View(_)) = (start.identity, start.around) {
        enter_user_namespace(start.identity, host_proc)?;
    }
    limit(start).map_err(failed("can't set a limit"))?;
    let pid = match start.around {
        // A container has no /proc of the host to ask. The kernel tells our number to the supervisor.
        AgentIsolation::Container(..) => None,
        AgentIsolation::View(_) | AgentIsolation::Bare(_) => {
            Some(own_pid(host_proc).map_err(failed("can't read the own process id"))?)
        }
    };
    channel::send(channel, &SandboxMessage::Born { pid }, None)
        .map_err(failed("can't report to the supervisor"))?;
    // As the kernel tells it to a process in the namespace.
    let shares_user =
        matches!((start.identity, start.around), (AgentUser::Caller { .. }, AgentIsolation::View(_)));
    let inotify = shares_user.then(|| InotifyLimits::of_namespace(host_proc).ok()).flatten();
    // The agent does not inherit the signal mask and the ignored signals of the process that started us.
    sys::reset_signals();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::process::chdir(&start.folder).map_err(failed("can't change to the folder to start in"))?;

    if policy.requires(Control::Capabilities) {
        let may_lack_the_right = !matches!(start.around, AgentIsolation::View(_));
        drop_capabilities(may_lack_the_right).map_err(failed("can't drop capabilities"))?;
    }
    if policy.requires(Control::NoNewPrivileges) {
        nix::sys::prctl::set_no_new_privs().map_err(failed("can't forbid new privileges"))?;
    }
    let mut landlock = Err(0);
    if policy.requires(Control::Landlock) {
        restrict_access(start)?;
        landlock =
            landlock_rules::verify_enforced(start.bare().map_or(Path::new("/tmp"), |bare| &bare.replica.tmp));
    }
    if policy.requires(Control::Descriptors) {
        sys::close_all_but(channel).map_err(failed("can't close descriptors"))?;
    }
    if policy.requires(Control::Seccomp) {
        seccomp::restrict(start.surface(), policy.requires(Control::CoreDumps))
            .map_err(failed("can't filter system calls"))?;
    }
    Ok(ReadyReport { landlock, inotify, tried: start.bare().map(ProbeResults::run) })
}

/// What the host calls this process: a link in its /proc that leads every reader to itself.
pub(crate) fn own_pid(host_proc: BorrowedFd<'_>) -> io::Result<i32> {
    let link = rustix::fs::readlinkat(host_proc, "self", Vec::new())?;
    link.to_str().ok().and_then(|pid| pid.parse().ok()).ok_or_else(|| io::Error::other("/proc/self is odd"))
}

fn connect(streams: &AgentStreams) -> io::Result<()> {
    let (input, output, error) = match streams {
        AgentStreams::Pipes { input, output, error } => (input, output, error),
        AgentStreams::Terminal(terminal) => {
            rustix::process::ioctl_tiocsctty(terminal)?;
            (terminal, terminal, terminal)
        }
    };
    rustix::stdio::dup2_stdin(input)?;
    rustix::stdio::dup2_stdout(output)?;
    rustix::stdio::dup2_stderr(error)?;
    Ok(())
}

/// Root's agent: the first process has become a host user without rights already; in a user namespace of its
/// own that user has a name. The namespace owns none of the others.
fn enter_user_namespace(identity: &AgentUser, host_proc: BorrowedFd<'_>) -> Result<(), StartFailure> {
    let ((uid, gid), (inside_uid, inside_gid)) = (identity.host_ids(), identity.inner_ids());
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER).map_err(failed("can't make a user namespace"))?;
    write_maps(host_proc, (inside_uid, uid), (inside_gid, gid)).map_err(failed("can't map the agent's user"))
}

/// Maps one user and one group of the current user namespace. `proc` is a writable proc file system.
pub(crate) fn write_maps(proc: BorrowedFd<'_>, uid: (u32, u32), gid: (u32, u32)) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    let write = |name: &str, text: String| -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(proc, format!("self/{name}").as_str(), flags, Mode::empty())?;
        rustix::io::write(&file, text.as_bytes())?;
        Ok(())
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{} {} 1", uid.0, uid.1))?;
    write("gid_map", format!("{} {} 1", gid.0, gid.1))
}

fn limit(start: &AgentStart<'_>) -> nix::Result<()> {
    let policy = start.policy;
    if policy.requires(Control::CoreDumps) {
        // One, and not none: with a limit of one the kernel hands no core to a program, with none it does, and either
        // is too small for a file. Where more than none is forbidden there are files at least that are not written.
        let (_, most) = getrlimit(Resource::RLIMIT_CORE)?;
        setrlimit(Resource::RLIMIT_CORE, most.min(1), most.min(1))?;
    }
    if policy.requires(Control::UserLimits) {
        user_limits::lower_in_process()?;
    }
    // A container has a controller for it; the user's number would be counted on the whole host.
    if policy.requires(Control::Processes)
        && let Some(processes) = policy.limits.processes
        && !matches!(start.around, AgentIsolation::Container(..))
    {
        // Without a user namespace it counts everything its user has.
        let others = start.bare().map_or(0, |bare| bare.others);
        let (_, most) = getrlimit(Resource::RLIMIT_NPROC)?;
        let limit = processes.saturating_add(others).min(most);
        setrlimit(Resource::RLIMIT_NPROC, limit, limit)?;
    }
    if policy.requires(Control::FileSize)
        && let Some(size) = policy.limits.file_size
    {
        setrlimit(Resource::RLIMIT_FSIZE, size, size)?;
    }
    Ok(())
}

/// Empties every set. What can ever be gained is emptied too where that takes no right we lack: an ordinary
/// user without a namespace has none to gain anything by, and in a container the engine has done it.
fn drop_capabilities(may_lack_the_right: bool) -> rustix::io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    match clear_bounding_set() {
        Err(rustix::io::Errno::PERM) if may_lack_the_right => {}
        other => other?,
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )
}

/// From here on no program can bring any back.
pub(crate) fn clear_bounding_set() -> rustix::io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A kernel older than the capability.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn restrict_access(start: &AgentStart<'_>) -> Result<(), StartFailure> {
    let restricted = match start.around {
        AgentIsolation::View(view) => landlock_rules::restrict(&view_rules(start.policy, view)),
        AgentIsolation::Bare(bare) => landlock_rules::restrict(&bare.rules),
        AgentIsolation::Container(rules, _) => landlock_rules::restrict(rules),
    };
    restricted.map_err(failed("can't restrict file access"))
}

/// What may be done in a view: the mounts say the same.
pub(crate) fn view_rules(policy: &Policy, view: ViewInputs<'_>) -> LandlockRules {
    let mut write: Vec<PathBuf> = ["/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from).into();
    write.push(view.host.home.clone());
    write.extend(view.workspace.writable(view.opening, &policy.scope));
    write.extend(policy.folders.iter().map(|folder| folder.target.clone()));
    if !policy.requires(Control::ReadOnlyHost) {
        write.push("/".into());
    }
    LandlockRules { read: vec!["/".into()], write, devices: vec!["/dev".into()], ..LandlockRules::default() }
}

/// Looks the command up in the agent's own PATH, in the agent's own view, and starts it.
fn execute(start: &AgentStart<'_>) -> nix::Error {
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).unwrap_or_default();
    let arguments: Vec<CString> = start.command.iter().map(|argument| c_string(argument)).collect();
    let variables = start.bare().map_or(&start.policy.environment, |bare| &bare.environment);
    let environment: Vec<CString> = variables
        .iter()
        .map(|(name, value)| {
            let mut entry = name.clone();
            entry.push("=");
            entry.push(value);
            c_string(&entry)
        })
        .collect();
    let Some(program) = start.command.first() else {
        return nix::Error::ENOENT;
    };
    let run = |path: &CStr| match nix::unistd::execve(path, &arguments, &environment) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    if program.as_bytes().contains(&b'/') {
        return run(&c_string(program));
    }
    let path = variables.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let mut result = nix::Error::ENOENT;
    for folder in std::env::split_paths(&path.unwrap_or_default()) {
        let error = run(&c_string(folder.join(program).as_os_str()));
        // Something that is there but can't be run explains more than something that is not there.
        if error != nix::Error::ENOENT && error != nix::Error::ENOTDIR {
            result = error;
        }
        if !matches!(error, nix::Error::ENOENT | nix::Error::ENOTDIR | nix::Error::EACCES) {
            break;
        }
    }
    result
}
