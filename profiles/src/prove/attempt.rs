//! One command in a sandbox of its own.

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
use agency_sandbox::container::Container;
use agency_sandbox::host;
use agency_sandbox::launch::{self, LaunchError, Outcome, Request};
use agency_sandbox::output;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::{Deadlines, Level, Limits, Memory, Network as Reach, Policy};
use agency_sandbox::scope::Scope;
use agency_sandbox::secret::Secret;
use agency_sandbox::supervise::{End, Stopped};

use super::subject::Subject;
use super::{Order, ProveError, Site};
use crate::profile::Network;
use crate::proof::Ended;
use crate::resolve::Step;

/// How much of each stream of a command is kept: its beginning, and its last 64 KiB.
const LOGGED: u64 = 64 << 20;

const SHELL: &str = "/bin/sh";
/// Both streams of a command are one, or its log would not have them in their order.
const ONE_STREAM: &str = "exec \"$0\" -c \"$1\" 2>&1";

/// What a sandbox is asked to hold, and which of the named variables there are none of.
fn policy(order: &Order<'_>, step: &Step) -> Result<(Policy, Vec<String>), ProveError> {
    let named: Vec<OsString> = step.env.iter().map(OsString::from).collect();
    let value = |name: &str| order.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let unset = step.env.iter().filter(|name| value(name).is_none()).cloned().collect();
    let secrets = step
        .env
        .iter()
        .filter_map(|name| Some(Secret { name: name.clone(), value: value(name)?.as_bytes().to_vec() }));
    let (level, container) = contained(order, step);
    let mut environment = host::environment(order.host, level, order.variables.iter().cloned(), &named);
    environment.retain(|(name, _)| !order.handed.iter().any(|(handed, _)| handed == name));
    environment.extend(order.handed.iter().cloned());
    environment.sort();
    // Test runners wait for a person to watch them unless this says that there is none.
    if !environment.iter().any(|(name, _)| name == "CI") {
        environment.push(("CI".into(), "true".into()));
        environment.sort();
    }
    let network = match &step.network {
        Network::None => Reach::None,
        Network::Full => Reach::Full,
        Network::Hosts(list) => {
            environment = list.environment(environment);
            Reach::Hosts(list.clone())
        }
    };
    let policy = Policy {
        level,
        scope: Scope::parse(&["**"], &[])?,
        network,
        limits: Limits { memory: Memory::Bytes(step.memory), output: LOGGED, ..Limits::default() },
        deadlines: Deadlines { wall: Some(step.timeout), ..Deadlines::default() },
        environment,
        secrets: secrets.collect(),
        container,
        ..Policy::closed()
    };
    Ok((policy, unset))
}

/// A command whose profile names an image runs in a container of it, wherever the others run.
fn contained(order: &Order<'_>, step: &Step) -> (Level, Option<Container>) {
    let usual = || order.container.cloned().unwrap_or_default();
    let caches = step.caches.clone();
    match &step.image {
        Some(image) => (Level::Container, Some(Container { image: image.clone(), caches, ..usual() })),
        None if order.level == Level::Container => (order.level, Some(Container { caches, ..usual() })),
        None => (order.level, None),
    }
}

/// One command, about to be run.
pub(super) struct Attempt<'a> {
    order: &'a Order<'a>,
    site: &'a Site,
    step: &'a Step,
    policy: Policy,
    /// Variables that are to be passed and that there are none of.
    unset: Vec<String>,
}

/// One command that was run.
pub(super) struct Ran {
    pub(super) ended: Ended,
    pub(super) elapsed: Duration,
    pub(super) attestation: Attestation,
    pub(super) notes: Vec<String>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(order: &'a Order<'a>, site: &'a Site, step: &'a Step) -> Result<Self, ProveError> {
        let (policy, unset) = policy(order, step)?;
        Ok(Self { order, site, step, policy, unset })
    }

    /// The command as it is written down. Nothing that is kept has a secret in it, also if somebody wrote one
    /// into a profile.
    pub(super) fn shown(&self) -> String {
        let clean = output::redacted(&self.policy.secrets, self.step.run.as_bytes());
        String::from_utf8_lossy(&clean).into_owned()
    }

    pub(super) fn run(&self, subject: &Subject, log: &Path) -> Result<Ran, ProveError> {
        let run = self.site.runs.run();
        let ground = subject.ground(self.order, &run)?;
        let unwritten = |source| ProveError::Log { path: log.to_owned(), source };
        let written = create(log).map_err(unwritten)?;
        let input = File::open("/dev/null").map_err(unwritten)?;
        launch::wait_until_alone();
        let outcome = launch::run(
            &Request {
                policy: &self.policy,
                host: self.order.host,
                workspace: &ground.workspace,
                run: &run,
                staging: &self.site.staging,
                command: &[SHELL, "-c", ONE_STREAM, SHELL, &self.step.run].map(OsString::from),
                start: &RelPath::root(),
                terminal: false,
                streams: [input.as_fd(), written.as_fd(), written.as_fd()],
                attendant: self.order.attendant,
            },
            None,
        )
        .map_err(|error| self.failed(error))?;
        let ran = self.judge(&outcome)?;
        // The layers go while the kernel is still taking the sandbox apart; then that is waited for.
        drop(run);
        drop(outcome);
        Ok(ran)
    }

    fn failed(&self, source: LaunchError) -> ProveError {
        ProveError::Launch { cmd: self.shown(), source }
    }

    fn judge(&self, outcome: &Outcome) -> Result<Ran, ProveError> {
        let ended = match outcome.end {
            End::Exited(code) => Ended::Exited { code },
            End::Signaled(signal) => Ended::Killed { signal },
            End::NotStarted(error) => Ended::CouldNotStart { error },
            End::Stopped(Stopped::Wall | Stopped::Stall) => Ended::TimedOut,
            End::Stopped(Stopped::Memory) => Ended::OutOfMemory,
            End::Stopped(Stopped::Interrupted(signal)) => return Err(ProveError::Interrupted { signal }),
            End::Stopped(Stopped::Asked) => return Err(ProveError::Stopped),
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
        Ok(Ran { ended, elapsed: outcome.elapsed, attestation: outcome.attestation.clone(), notes })
    }
}

/// A log is a new file, whatever was there under its name.
fn create(log: &Path) -> io::Result<File> {
    match fs::remove_file(log) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(log)
}
