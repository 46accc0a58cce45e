//! What was asked and what holds, control by control, read back from the kernel.
//!
//! The agent's process stands at the gate, fully restricted, its program not yet started. Everything here is
//! read about that process from outside, through /proc, or was tried by it and answered by the kernel.
//! Nothing is copied from what we meant to do.
//!
//! Its view, its namespaces and its limits are final a little earlier, when it has them and goes on to give up its rights:
//! those are read then (`early`), and at the gate what it gave up.

mod container_controls;
mod early;
mod proc;
mod shared_limits;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::backend::SandboxBackend;
use crate::cgroup::Cgroup;
use crate::channel::ReadyReport;
use crate::control::{Control, ControlStatus};
use crate::egress::EgressListener;
use crate::landlock_rules;
use crate::policy::{IsolationLevel, Policy};
use crate::seccomp;
use crate::workspace::Workspace;
use crate::writable_directories::WritableDirectories;
pub(crate) use early::{EarlyProcess, OwnNamespaces};
use proc::ProcDirectory;

/// The format of an attestation.
pub const VERSION: u32 = 1;

/// What a sandbox was asked to hold and what it does.
#[derive(Debug, Clone, Serialize)]
pub struct Attestation {
    pub version: u32,
    pub level: IsolationLevel,
    pub kernel: String,
    /// What a container was made by and of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerOrigin>,
    pub controls: Vec<ControlStatement>,
}

/// Where a container comes from.
#[derive(Debug, Clone, Serialize)]
pub struct ContainerOrigin {
    pub engine: String,
    /// As it was asked for.
    pub image: String,
    /// The digest of what that was.
    pub digest: String,
}

/// One control's line.
#[derive(Debug, Clone, Serialize)]
pub struct ControlStatement {
    pub control: Control,
    pub requested: bool,
    pub enforced: Enforcement,
    /// By what, as the kernel tells it.
    pub how: String,
}

/// How well a control is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// The kernel refuses.
    Enforced,
    /// We look, and stop the agent.
    Watched,
    /// The user did not ask for it, and nothing holds it.
    Off,
    /// It was asked for, and this host has no way to hold it. It keeps a nuisance away, so the sandbox is started, and
    /// `how` says what is not held.
    NotHeld,
    /// It was asked for, and nothing holds it.
    Missing,
}

impl Attestation {
    /// What was asked for and is not held. A sandbox with such a control is not started.
    pub fn missing(&self) -> impl Iterator<Item = &ControlStatement> {
        self.controls.iter().filter(|statement| statement.enforced == Enforcement::Missing)
    }

    pub fn statement(&self, control: Control) -> Option<&ControlStatement> {
        self.controls.iter().find(|statement| statement.control == control)
    }
}

/// What else is needed to read the agent's process right.
pub(crate) struct AttestationRequest<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) workspace: &'a Workspace,
    pub(crate) opening: &'a WritableDirectories,
    pub(crate) home: &'a Path,
    pub(crate) hidden: Vec<PathBuf>,
    /// Toolchains that are in sight.
    pub(crate) toolchains: Vec<PathBuf>,
    pub(crate) cgroup: Option<&'a Cgroup>,
    pub(crate) root: bool,
    pub(crate) place: &'a SandboxBackend,
    /// Sockets that lead out of the network namespace.
    pub(crate) listeners: &'a [EgressListener],
}

/// What could be judged before the agent stood at the gate, in the order of [`Control::ALL`].
pub(crate) struct EarlyJudgements(Vec<Option<(ControlStatus, String)>>);

/// Judges what is final about the agent's process. At other levels than `process` that takes what it has tried by then.
pub(crate) fn judge(asked: &AttestationRequest<'_>, early: &EarlyProcess) -> EarlyJudgements {
    let judge = |control: &Control| match asked.place {
        SandboxBackend::View => early.observe(*control, asked),
        SandboxBackend::Bare(_) | SandboxBackend::Container(_) => None,
    };
    EarlyJudgements(Control::ALL.iter().map(judge).collect())
}

/// Reads the agent's process, which waits at the gate. One that is killed there is no proof that something is missing.
pub(crate) fn read(
    asked: &AttestationRequest<'_>,
    ready: &ReadyReport,
    early: EarlyProcess,
    judged: EarlyJudgements,
) -> io::Result<Attestation> {
    let process = AgentProcess::read(early)?;
    let controls: Vec<ControlStatement> = Control::ALL
        .iter()
        .zip(judged.0)
        .map(|(control, judged)| {
            let requested = asked.policy.requires(*control);
            let (held, how) = judged.unwrap_or_else(|| process.observe(*control, asked, ready));
            let enforced = match (requested, held) {
                (_, ControlStatus::Yes) => Enforcement::Enforced,
                (true, ControlStatus::Watched) => Enforcement::Watched,
                (true, ControlStatus::NotHere) => Enforcement::NotHeld,
                (true, ControlStatus::No) => Enforcement::Missing,
                (false, _) => Enforcement::Off,
            };
            ControlStatement { control: *control, requested, enforced, how }
        })
        .collect();
    if controls.iter().any(|one| one.enforced == Enforcement::Missing) && process.early.told.is_ending() {
        return Err(ended_early());
    }
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let container = match (asked.place, &asked.policy.container) {
        (SandboxBackend::Container(contained), Some(container)) => Some(ContainerOrigin {
            engine: contained.engine.version.clone(),
            image: container.image.clone(),
            digest: contained.image.id.clone(),
        }),
        _ => None,
    };
    Ok(Attestation { version: VERSION, level: asked.policy.level, kernel, container, controls })
}

/// What is said of a sandbox whose processes were gone before it was ready.
pub(crate) fn ended_early() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "it ended before it was ready")
}

/// Whether a process is gone or about to go.
pub(crate) fn is_ending(pid: i32) -> bool {
    ProcDirectory::of(pid).map_or(true, |told| told.is_ending())
}

/// A process as /proc tells it.
struct AgentProcess {
    early: EarlyProcess,
    status: String,
    descriptors: Vec<i32>,
}

impl AgentProcess {
    fn read(early: EarlyProcess) -> io::Result<Self> {
        let (status, descriptors) = Self::look(&early.told)
            .map_err(|error| if early.told.is_ending() { ended_early() } else { error })?;
        Ok(Self { status, early, descriptors })
    }

    fn look(told: &ProcDirectory) -> io::Result<(String, Vec<i32>)> {
        let mut descriptors = Vec::new();
        for number in told.descriptors()? {
            // The three standard ones are passed on. Of others, what is closed when the program starts does
            // not count: the flags are octal, as open(2) takes them.
            let passed = (0..3).contains(&number) || {
                let info = told.read(&format!("fdinfo/{number}"))?;
                let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("0").trim();
                i64::from_str_radix(flags, 8).unwrap_or(0) & i64::from(libc::O_CLOEXEC) == 0
            };
            if passed {
                descriptors.push(number);
            }
        }
        Ok((told.read("status")?, descriptors))
    }

    fn observe(
        &self,
        control: Control,
        asked: &AttestationRequest<'_>,
        ready: &ReadyReport,
    ) -> (ControlStatus, String) {
        let special = match (asked.place, &ready.tried) {
            (SandboxBackend::Bare(bare), Some(tried)) => {
                tried.observe(control, asked.policy, bare, asked.root)
            }
            (SandboxBackend::Container(contained), _) => self.observe_contained(control, asked, contained),
            _ => None,
        };
        if let Some(observed) = special.or_else(|| self.early.observe(control, asked)) {
            return observed;
        }
        match control {
            Control::Landlock => {
                let abi = landlock_rules::abi()
                    .map_or("no landlock".into(), |(abi, _)| format!("landlock abi {abi}"));
                let tried = match ready.landlock {
                    Ok(()) => "a probe was refused".to_owned(),
                    Err(0) => "a probe was not refused".to_owned(),
                    Err(error) => format!("a probe failed: {}", io::Error::from_raw_os_error(error)),
                };
                (ready.landlock.is_ok().into(), format!("{abi}, {tried}"))
            }
            Control::Seccomp => {
                let filters: u64 = self.number("Seccomp_filters");
                let on = self.status("Seccomp") == "2" && filters >= seccomp::FILTERS;
                (on.into(), format!("seccomp mode {}, {filters} filters", self.status("Seccomp")))
            }
            Control::NoNewPrivileges => (
                ControlStatus::from(self.status("NoNewPrivs") == "1"),
                format!("NoNewPrivs {}", self.status("NoNewPrivs")),
            ),
            Control::Capabilities => {
                // What could ever be gained is full for an ordinary user without a namespace, and means nothing:
                // no new privileges are.
                let bound =
                    asked.place.landlock_setup().is_some() && !asked.root && self.status("NoNewPrivs") == "1";
                let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"];
                let sets = if bound { &sets[..4] } else { &sets[..] };
                let held = sets.iter().find(|set| !self.status(set).trim_start_matches('0').is_empty());
                let how = held.map_or(format!("{} sets empty", sets.len()), |set| {
                    format!("{set} {}", self.status(set))
                });
                (held.is_none().into(), how)
            }
            Control::Descriptors => (
                ControlStatus::from(self.descriptors == [0, 1, 2]),
                format!("passed on: {:?}", self.descriptors),
            ),
            Control::CoreDumps => self.core_dumps(asked),
            Control::UserLimits => self.user_limits(asked, ready),
            // A control that is not looked at is not held.
            _ => (ControlStatus::No, "not looked at".into()),
        }
    }

    fn status(&self, key: &str) -> &str {
        let line = self.status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_default().trim()
    }

    fn number(&self, key: &str) -> u64 {
        self.status(key).parse().unwrap_or(0)
    }
}
