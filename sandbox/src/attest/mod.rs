//! What was asked and what holds, control by control, read back from the kernel.
//!
//! The agent's process stands at the gate, fully restricted, its program not yet started. Everything here is
//! read about that process from outside, through /proc, or was tried by it and answered by the kernel.
//! Nothing is copied from what we meant to do.
//!
//! Its view, its namespaces and its limits are final a little earlier, when it has them and goes on to give up its rights:
//! those are read then (`early`), and at the gate what it gave up.

mod contained;
mod early;
mod proc;
mod shared;

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::access;
use crate::cgroup::Cgroup;
use crate::channel::Ready;
use crate::control::Control;
use crate::egress::Listener;
use crate::launch::Place;
use crate::opening::Opening;
use crate::policy::{Level, Policy};
use crate::syscalls;
use crate::workspace::Workspace;
pub(crate) use early::{Early, Ours};
use proc::Proc;

/// The format of an attestation.
pub const VERSION: u32 = 1;

/// What a sandbox was asked to hold and what it does.
#[derive(Debug, Clone, Serialize)]
pub struct Attestation {
    pub version: u32,
    pub level: Level,
    pub kernel: String,
    /// What a container was made by and of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Made>,
    pub controls: Vec<Statement>,
}

/// Where a container comes from.
#[derive(Debug, Clone, Serialize)]
pub struct Made {
    pub engine: String,
    /// As it was asked for.
    pub image: String,
    /// The digest of what that was.
    pub digest: String,
}

/// One control's line.
#[derive(Debug, Clone, Serialize)]
pub struct Statement {
    pub control: Control,
    pub requested: bool,
    pub enforced: Enforced,
    /// By what, as the kernel tells it.
    pub how: String,
}

/// How well a control is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforced {
    /// The kernel refuses.
    Enforced,
    /// We look, and stop the agent.
    Watched,
    /// Nobody asked for it, and nothing holds it.
    Off,
    /// It was asked for, and this host has no way to hold it. It keeps a nuisance away, so the sandbox is started, and
    /// `how` says what is not held.
    NotHeld,
    /// It was asked for, and nothing holds it.
    Missing,
}

impl Attestation {
    /// What was asked for and is not held. A sandbox with such a control is not started.
    pub fn missing(&self) -> impl Iterator<Item = &Statement> {
        self.controls.iter().filter(|statement| statement.enforced == Enforced::Missing)
    }

    pub fn statement(&self, control: Control) -> Option<&Statement> {
        self.controls.iter().find(|statement| statement.control == control)
    }
}

/// What else is needed to read the agent's process right.
pub(crate) struct Asked<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) workspace: &'a Workspace,
    pub(crate) opening: &'a Opening,
    pub(crate) home: &'a Path,
    pub(crate) hidden: Vec<PathBuf>,
    /// Toolchains that are in sight.
    pub(crate) toolchains: Vec<PathBuf>,
    pub(crate) cgroup: Option<&'a Cgroup>,
    pub(crate) root: bool,
    pub(crate) place: &'a Place,
    /// Sockets that lead out of the network namespace.
    pub(crate) listeners: &'a [Listener],
}

/// What could be judged before the agent stood at the gate, in the order of [`Control::ALL`].
pub(crate) struct Judged(Vec<Option<(Held, String)>>);

/// Judges what is final about the agent's process. At other levels than `process` that takes what it has tried by then.
pub(crate) fn judge(asked: &Asked<'_>, early: &Early) -> Judged {
    let judge = |control: &Control| match asked.place {
        Place::View => early.observe(*control, asked),
        Place::Bare(_) | Place::Container(_) => None,
    };
    Judged(Control::ALL.iter().map(judge).collect())
}

/// Reads the agent's process, which waits at the gate. One that is killed there is no proof that something is missing.
pub(crate) fn read(
    asked: &Asked<'_>,
    ready: &Ready,
    early: Early,
    judged: Judged,
) -> io::Result<Attestation> {
    let process = Process::read(early)?;
    let controls: Vec<Statement> = Control::ALL
        .iter()
        .zip(judged.0)
        .map(|(control, judged)| {
            let requested = asked.policy.wants(*control);
            let (held, how) = judged.unwrap_or_else(|| process.observe(*control, asked, ready));
            let enforced = match (requested, held) {
                (_, Held::Yes) => Enforced::Enforced,
                (true, Held::Watched) => Enforced::Watched,
                (true, Held::NotHere) => Enforced::NotHeld,
                (true, Held::No) => Enforced::Missing,
                (false, _) => Enforced::Off,
            };
            Statement { control: *control, requested, enforced, how }
        })
        .collect();
    if controls.iter().any(|one| one.enforced == Enforced::Missing) && process.early.told.is_ending() {
        return Err(ended_early());
    }
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let container = match (asked.place, &asked.policy.container) {
        (Place::Container(contained), Some(container)) => Some(Made {
            engine: contained.engine.version.clone(),
            image: container.image.clone(),
            digest: contained.image.id.clone(),
        }),
        _ => None,
    };
    Ok(Attestation { version: VERSION, level: asked.policy.level, kernel, container, controls })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    Yes,
    Watched,
    /// Nothing does, and nothing could on this host.
    NotHere,
    No,
}

impl From<bool> for Held {
    fn from(held: bool) -> Self {
        if held { Held::Yes } else { Held::No }
    }
}

/// What is said of a sandbox whose processes were gone before it was ready.
pub(crate) fn ended_early() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "it ended before it was ready")
}

/// Whether a process is gone or about to go.
pub(crate) fn is_ending(pid: i32) -> bool {
    Proc::of(pid).map_or(true, |told| told.is_ending())
}

/// A process as /proc tells it.
struct Process {
    early: Early,
    status: String,
    descriptors: Vec<i32>,
}

impl Process {
    fn read(early: Early) -> io::Result<Self> {
        let (status, descriptors) = Self::look(&early.told)
            .map_err(|error| if early.told.is_ending() { ended_early() } else { error })?;
        Ok(Self { status, early, descriptors })
    }

    fn look(told: &Proc) -> io::Result<(String, Vec<i32>)> {
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

    fn observe(&self, control: Control, asked: &Asked<'_>, ready: &Ready) -> (Held, String) {
        let special = match (asked.place, &ready.tried) {
            (Place::Bare(bare), Some(tried)) => tried.observe(control, asked.policy, bare, asked.root),
            (Place::Container(contained), _) => self.observe_contained(control, asked, contained),
            _ => None,
        };
        if let Some(observed) = special.or_else(|| self.early.observe(control, asked)) {
            return observed;
        }
        match control {
            Control::Landlock => {
                let abi =
                    access::abi().map_or("no landlock".into(), |(abi, _)| format!("landlock abi {abi}"));
                let tried = match ready.landlock {
                    Ok(()) => "a probe was refused".to_owned(),
                    Err(0) => "a probe was not refused".to_owned(),
                    Err(error) => format!("a probe failed: {}", io::Error::from_raw_os_error(error)),
                };
                (ready.landlock.is_ok().into(), format!("{abi}, {tried}"))
            }
            Control::Seccomp => {
                let filters: u64 = self.number("Seccomp_filters");
                let on = self.status("Seccomp") == "2" && filters >= syscalls::FILTERS;
                (on.into(), format!("seccomp mode {}, {filters} filters", self.status("Seccomp")))
            }
            Control::NoNewPrivileges => (
                Held::from(self.status("NoNewPrivs") == "1"),
                format!("NoNewPrivs {}", self.status("NoNewPrivs")),
            ),
            Control::Capabilities => {
                // What could ever be gained is full for an ordinary user without a namespace, and means nothing:
                // no new privileges are.
                let bound = asked.place.bare().is_some() && !asked.root && self.status("NoNewPrivs") == "1";
                let sets = ["CapInh", "CapPrm", "CapEff", "CapAmb", "CapBnd"];
                let sets = if bound { &sets[..4] } else { &sets[..] };
                let held = sets.iter().find(|set| !self.status(set).trim_start_matches('0').is_empty());
                let how = held.map_or(format!("{} sets empty", sets.len()), |set| {
                    format!("{set} {}", self.status(set))
                });
                (held.is_none().into(), how)
            }
            Control::Descriptors => {
                (Held::from(self.descriptors == [0, 1, 2]), format!("passed on: {:?}", self.descriptors))
            }
            Control::CoreDumps => self.core_dumps(asked),
            Control::UserLimits => self.user_limits(asked, ready),
            // What nobody looks at is not held.
            _ => (Held::No, "not looked at".into()),
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
