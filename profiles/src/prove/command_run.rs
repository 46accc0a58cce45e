//! Runs one command of a profile in a sandbox of its own.

#![allow(clippy::disallowed_methods, reason = "opens a log of ours")]

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use agency_sandbox::attest::Attestation;
use agency_sandbox::host;
use agency_sandbox::launch::{self, LaunchError, LaunchOutcome};
use agency_sandbox::output;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::ContainerConfig;
use agency_sandbox::policy::{
    Deadlines, IsolationLevel, MemoryLimit, NetworkPolicy as Reach, Policy, ResourceLimits,
};
use agency_sandbox::scope::Scope;
use agency_sandbox::secret::NamedSecret;
use agency_sandbox::session::SessionCommand;
use agency_sandbox::supervise::{CommandExit, StopCause};

use super::request::{ProofFolders, ProofRequest, ProveError};
use super::subject::ProofSubject;
use crate::profile::ProfileNetwork;
use crate::proof::CommandOutcome;
use crate::resolve::ResolvedCommand;

/// How much of each stream of a command is kept: its beginning, and its last 64 KiB.
const LOGGED: u64 = 64 << 20;

const SHELL: &str = "/bin/sh";
/// Both streams of a command are one, so that its log has their lines in order.
const ONE_STREAM: &str = "exec \"$0\" -c \"$1\" 2>&1";

/// The sandbox's policy, and the named variables that are not set.
fn policy(order: &ProofRequest<'_>, step: &ResolvedCommand) -> Result<(Policy, Vec<String>), ProveError> {
    let named: Vec<OsString> = step.env.iter().map(OsString::from).collect();
    let value = |name: &str| order.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let unset = step.env.iter().filter(|name| value(name).is_none()).cloned().collect();
    let secrets = step
        .env
        .iter()
        .filter_map(|name| Some(NamedSecret { name: name.clone(), value: value(name)?.as_bytes().to_vec() }));
    let (level, container) = level_and_container(order, step);
    let mut environment = host::environment(order.host, level, order.variables.iter().cloned(), &named);
    environment.retain(|(name, _)| !order.handed.iter().any(|(handed, _)| handed == name));
    environment.extend(order.handed.iter().cloned());
    environment.sort();
    // Test runners wait for a person unless this variable says that there is none.
    if !environment.iter().any(|(name, _)| name == "CI") {
        environment.push(("CI".into(), "true".into()));
        environment.sort();
    }
    let network = match &step.network {
        ProfileNetwork::None => Reach::None,
        ProfileNetwork::Full => Reach::Full,
        ProfileNetwork::Hosts(list) => {
            environment = list.environment(environment);
            Reach::Hosts(list.clone())
        }
    };
    let policy = Policy {
        level,
        scope: Scope::parse(&["**"], &[])?,
        network,
        limits: ResourceLimits {
            memory: MemoryLimit::Bytes(step.memory),
            output: LOGGED,
            ..ResourceLimits::default()
        },
        deadlines: Deadlines { wall: Some(step.timeout), ..Deadlines::default() },
        environment,
        secrets: secrets.collect(),
        container,
        ..Policy::deny_all()
    };
    Ok((policy, unset))
}

/// A command whose profile names an image runs in a container of it, at every level.
fn level_and_container(
    order: &ProofRequest<'_>,
    step: &ResolvedCommand,
) -> (IsolationLevel, Option<ContainerConfig>) {
    let usual = || order.container.cloned().unwrap_or_default();
    let caches = step.caches.clone();
    match &step.image {
        Some(image) => {
            (IsolationLevel::Container, Some(ContainerConfig { image: image.clone(), caches, ..usual() }))
        }
        None if order.level.needs_image() => (order.level, Some(ContainerConfig { caches, ..usual() })),
        None => (order.level, None),
    }
}

/// One command, about to be run.
pub(super) struct CommandRun<'a> {
    order: &'a ProofRequest<'a>,
    site: &'a ProofFolders,
    step: &'a ResolvedCommand,
    policy: Policy,
    /// Variables that the profile names and that are not set.
    unset: Vec<String>,
}

/// One command that was run.
pub(super) struct CommandResult {
    pub(super) ended: CommandOutcome,
    pub(super) elapsed: Duration,
    pub(super) attestation: Attestation,
    pub(super) notes: Vec<String>,
}

impl<'a> CommandRun<'a> {
    pub(super) fn new(
        order: &'a ProofRequest<'a>,
        site: &'a ProofFolders,
        step: &'a ResolvedCommand,
    ) -> Result<Self, ProveError> {
        let (policy, unset) = policy(order, step)?;
        Ok(Self { order, site, step, policy, unset })
    }

    /// The command as it is recorded: without secrets, even where an author wrote one into a profile.
    pub(super) fn redacted_command(&self) -> String {
        let clean = output::redacted(&self.policy.secrets, self.step.run.as_bytes());
        String::from_utf8_lossy(&clean).into_owned()
    }

    pub(super) fn run(&self, subject: &ProofSubject, log: &Path) -> Result<CommandResult, ProveError> {
        let mut session =
            self.site.sessions.begin(|run, state| subject.prepare_ground(self.order, run, state))?;
        let unwritten = |source| ProveError::Log { path: log.to_owned(), source };
        let written = create(log).map_err(unwritten)?;
        let input = File::open("/dev/null").map_err(unwritten)?;
        launch::wait_until_alone();
        let command = SessionCommand {
            policy: &self.policy,
            host: self.order.host,
            command: &[SHELL, "-c", ONE_STREAM, SHELL, &self.step.run].map(OsString::from),
            start: &RelPath::root(),
            terminal: false,
            streams: [input.as_fd(), written.as_fd(), written.as_fd()],
            attendant: self.order.attendant,
        };
        let outcome = session.launch(&command, None).map_err(|error| self.failed(error))?;
        self.judge(&outcome)
    }

    fn failed(&self, source: LaunchError) -> ProveError {
        ProveError::Launch { cmd: self.redacted_command(), source }
    }

    fn judge(&self, outcome: &LaunchOutcome) -> Result<CommandResult, ProveError> {
        let ended = match outcome.end {
            CommandExit::Exited(code) => CommandOutcome::Exited { code },
            CommandExit::Signaled(signal) => CommandOutcome::Killed { signal },
            CommandExit::NotStarted(error) => CommandOutcome::CouldNotStart { error },
            CommandExit::Stopped(StopCause::Wall | StopCause::Stall) => CommandOutcome::TimedOut,
            CommandExit::Stopped(StopCause::Memory) => CommandOutcome::OutOfMemory,
            CommandExit::Stopped(StopCause::Interrupted(signal)) => {
                return Err(ProveError::Interrupted { signal });
            }
            CommandExit::Stopped(StopCause::Asked) => return Err(ProveError::Stopped),
        };
        let unset = self.unset.iter().map(|name| format!("the variable {name} is not set"));
        let mut notes: Vec<String> = unset.collect();
        let left_out: u64 = outcome.output.iter().map(|stream| stream.left_out).sum();
        if left_out > 0 {
            notes.push(format!("{left_out} bytes of its output are not in the log"));
        }
        for error in outcome.output.iter().filter_map(|stream| stream.error.as_ref()) {
            notes.push(format!("its log is not complete: {error}"));
        }
        Ok(CommandResult { ended, elapsed: outcome.elapsed, attestation: outcome.attestation.clone(), notes })
    }
}

/// Makes a log as a new file; an earlier file of that name is removed.
fn create(log: &Path) -> io::Result<File> {
    match fs::remove_file(log) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(log)
}
