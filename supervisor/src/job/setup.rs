//! What is done to a workspace before an agent works on it: once for each key, and found again after that.
//!
//! The command is the configuration's and runs in a sandbox of its own, where only scratch can be written. What it
//! installs may depend on anything in the tree, and not only on the files its key is made of. So what is prepared on a
//! commit of the branch serves every tree of the same key; what is prepared on a tree that has not landed, whose files
//! an agent wrote, serves that very tree and no other.

#![allow(clippy::disallowed_methods, reason = "opens our own records")]

use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use agency_sandbox::host::{self, HostUser};
use agency_sandbox::launch;
use agency_sandbox::monitor::{MonitorDecision, RunMonitor};
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::{Deadlines, NetworkPolicy, Policy, ResourceLimits};
use agency_sandbox::session::{SessionCommand, SessionFolders};
use agency_sandbox::supervise::{CommandExit, StopCause};
use agency_sandbox::workspace::Workspace;
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::prepare::PreparedWorkspace;
use agency_sandbox::workspace::snapshot::{
    SetupKey, SetupLayer, SetupLayers, SetupLock, SetupRecipe, SnapshotLayers, Snapshots,
};
use agency_sandbox::workspace::state::StateFolder;

use super::JobFolder;
use super::agent_policy;
use super::control::ControlSocket;
use super::order::{JobOrder, SetupOrder, WorkspaceSetup};
use crate::log_excerpt::tail_on_one_line;

/// How long a setup may take.
const WALL: Duration = Duration::from_secs(30 * 60);
/// How long another shim's setup is waited for: it may have been begun just now, and is read when it is over.
const PATIENCE: Duration = Duration::from_secs(40 * 60);
/// How often is looked whether it is over.
const GLANCE: Duration = Duration::from_millis(50);
/// How much of its output is kept.
const LOGGED: u64 = 16 << 20;
/// How much of its output is told when it fails.
const LAST_WORDS: u64 = 600;
/// How many of the paths it may not change are named.
const NAMED: usize = 10;

const SHELL: &str = "/bin/sh";
/// Both streams are one, or the log would not have them in their order.
const ONE_STREAM: &str = "exec \"$0\" -c \"$1\" 2>&1";

type SetupResult<T> = Result<T, Box<dyn Error>>;

/// Why a workspace is not prepared, where that is not the sandbox's own failure.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    #[error("the setup `{command}` {how}{}{}", if last.is_empty() { "" } else { "; its last words: " }, last)]
    Failed { command: String, how: String, last: String },
    #[error("the setup `{command}` is being run by another process, which does not end")]
    Busy { command: String },
    /// The task is not wanted any more.
    #[error("stopped before the workspace was prepared")]
    Stopped,
}

/// What is needed to run one.
pub(super) struct SetupRunner<'a> {
    pub(super) place: &'a JobFolder,
    pub(super) order: &'a JobOrder,
    pub(super) host: &'a HostUser,
    pub(super) folder: &'a WorkspaceFolder,
    pub(super) state: &'a StateFolder,
    pub(super) reception: &'a ControlSocket,
}

impl SetupRunner<'_> {
    /// The layer that prepares a commit, found or made.
    pub(super) fn prepare(&self, wanted: &SetupOrder, commit: &str) -> SetupResult<SetupLayer> {
        let repository =
            self.folder.repository.as_ref().ok_or("the work tree is in no repository any more")?;
        let snapshots = Snapshots::open(self.state, repository, Path::new("git"))?;
        let setups = snapshots.setups()?;
        let keyed_by = wanted.setup.keyed_by.iter().map(|path| RelPath::parse(path.as_bytes()));
        let keyed_by = keyed_by.collect::<Result<Vec<_>, _>>()?;
        let (network, place) = (serde_json::to_string(&wanted.setup.network)?, self.seen_at());
        let recipe = SetupRecipe {
            command: &wanted.setup.command,
            keyed_by: &keyed_by,
            network: &network,
            place: &place,
        };
        let own = snapshots.layers(commit)?;
        let key = setups.key(&own, &recipe)?;
        for landed in &wanted.landed {
            let landed = snapshots.layers(landed)?;
            if landed.tree == own.tree || setups.key(&landed, &recipe)? == key {
                return self.find_or_make(&setups, &key, &landed, &wanted.setup);
            }
        }
        self.find_or_make(&setups, &key.for_tree(&own.tree), &own, &wanted.setup)
    }

    /// Where the workspace is seen, and with whose programs. A copy lies somewhere else each time, so nothing there can
    /// count on its path.
    fn seen_at(&self) -> String {
        if self.order.level.moves_workspace() {
            return "a copy".to_owned();
        }
        let place = format!("at {}", self.folder.root.display());
        if !self.order.level.needs_image() {
            return place;
        }
        let image = self.order.container.as_ref().map_or("", |container| &container.image);
        format!("{place} in {image}")
    }

    fn find_or_make(
        &self,
        setups: &SetupLayers<'_>,
        key: &SetupKey,
        layers: &SnapshotLayers,
        setup: &WorkspaceSetup,
    ) -> SetupResult<SetupLayer> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = setups.find(key)? {
                return Ok(found);
            }
            if let Some(turn) = setups.lock(key)? {
                // The shim that had the turn before may have made just this.
                return match setups.find(key)? {
                    Some(found) => Ok(found),
                    None => self.make(setups, &turn, layers, setup),
                };
            }
            let now = Instant::now();
            if self.reception.attend(now) == MonitorDecision::Stop {
                return Err(SetupError::Stopped.into());
            }
            if now >= until {
                return Err(SetupError::Busy { command: setup.command.clone() }.into());
            }
            std::thread::sleep(GLANCE);
        }
    }

    fn make(
        &self,
        setups: &SetupLayers<'_>,
        turn: &SetupLock,
        layers: &SnapshotLayers,
        setup: &WorkspaceSetup,
    ) -> SetupResult<SetupLayer> {
        let folders = SessionFolders::open(self.order.level, self.host, self.state, &self.order.copies)
            .map_err(|error| error.source)?;
        let mut session = folders
            .begin(|run, state| PreparedWorkspace::from_commit(self.folder, &layers.commit, run, state))?;
        let policy = self.policy(setup)?;
        let mut log =
            File::options().read(true).append(true).create(true).mode(0o600).open(self.place.output())?;
        writeln!(log, "agency: setup: {}", setup.command)?;
        let before = log.metadata()?.len();
        let input = File::open("/dev/null")?;
        let command = SessionCommand {
            policy: &policy,
            host: self.host,
            command: &[SHELL, "-c", ONE_STREAM, SHELL, &setup.command].map(OsString::from),
            start: &RelPath::root(),
            terminal: false,
            streams: [input.as_fd(), log.as_fd(), log.as_fd()],
            attendant: self.reception,
        };
        let outcome = session.launch(&command, None)?;
        let how = match outcome.end {
            CommandExit::Exited(0) => None,
            CommandExit::Exited(code) => Some(format!("ended with exit code {code}")),
            CommandExit::Signaled(signal) => Some(format!("was ended by signal {signal}")),
            CommandExit::NotStarted(error) => {
                Some(format!("could not be started: {}", io::Error::from_raw_os_error(error)))
            }
            CommandExit::Stopped(StopCause::Wall | StopCause::Stall) => {
                Some(format!("ran for longer than {} min", WALL.as_secs() / 60))
            }
            CommandExit::Stopped(StopCause::Memory) => Some("used more memory than it may".to_owned()),
            CommandExit::Stopped(StopCause::Interrupted(_) | StopCause::Asked) => {
                return Err(SetupError::Stopped.into());
            }
        };
        if let Some(how) = how {
            let last = tail_on_one_line(&mut log, before, LAST_WORDS).unwrap_or_default();
            return Err(SetupError::Failed { command: setup.command.clone(), how, last }.into());
        }
        let harvest = session.ground.harvest(outcome.upper.as_fd(), &policy)?;
        for violation in harvest.violations.iter().take(NAMED) {
            writeln!(log, "agency: setup: left out: {violation}")?;
        }
        let prepared =
            setups.publish(turn, layers, &Workspace::scratch_upper(self.order.level, session.run()))?;
        if std::fs::read_dir(prepared.layer())?.next().is_none() {
            writeln!(log, "agency: setup: it left nothing in the folders that .gitignore names")?;
        }
        writeln!(log, "agency: setup: done after {:.1} s", outcome.elapsed.as_secs_f64())?;
        drop((outcome, session));
        launch::wait_until_alone();
        Ok(prepared)
    }

    /// Only scratch can be written, and no secrets are there.
    fn policy(&self, setup: &WorkspaceSetup) -> SetupResult<Policy> {
        let network = agent_policy::network(&setup.network)?;
        let mut environment = host::environment(self.host, self.order.level, std::env::vars_os(), &[]);
        environment.retain(|(name, _)| !name.as_bytes().starts_with(b"AGENCY_"));
        // Installers wait for a person to answer them unless this says that there is none.
        if !environment.iter().any(|(name, _)| name == "CI") {
            environment.push(("CI".into(), "true".into()));
        }
        if let NetworkPolicy::Hosts(list) = &network {
            environment = list.environment(environment);
        }
        environment.sort();
        Ok(Policy {
            level: self.order.level,
            network,
            limits: ResourceLimits { output: LOGGED, ..ResourceLimits::default() },
            deadlines: Deadlines { wall: Some(WALL), ..Deadlines::default() },
            environment,
            container: self.order.container(),
            ..Policy::deny_all()
        })
    }
}

/// Whether a setup is the reason why nothing was run.
pub(super) fn is_of_setup(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(SetupError::Failed { .. } | SetupError::Busy { .. }))
}

/// Whether a workspace is not prepared only because the task is not wanted any more.
pub(super) fn is_stopped(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(SetupError::Stopped))
}
