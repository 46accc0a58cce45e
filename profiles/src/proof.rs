//! Proofs: the record of a run of a profile, with its tree, its commands, how each of them ended, and which sandbox
//! they ran in.

use std::path::{Path, PathBuf};

use agency_sandbox::attest::{Attestation, ControlStatement};
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::IsolationLevel;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// The format of a proof.
pub const VERSION: u32 = 1;

/// A run of a profile, and its results.
#[derive(Debug, Clone, Serialize)]
pub struct Proof {
    pub version: u32,
    /// The profile's name.
    pub profile: String,
    /// The hash of the resolved profile.
    pub hash: String,
    pub level: IsolationLevel,
    /// The commit that was proved, or the one the folder is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The tree that was proved, by git's name for it. A folder that is in no repository has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Whether the tree differs from the commit's.
    pub dirty: bool,
    #[serde(serialize_with = "as_text")]
    pub started: Timestamp,
    #[serde(serialize_with = "as_text")]
    pub finished: Timestamp,
    pub commands: Vec<CommandProof>,
    /// The attestation of the first command's sandbox. The other commands record differences.
    pub attestation: Attestation,
    /// Files that were changed during the run: not all commands saw the same tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<RelPath>,
    pub notes: Vec<String>,
}

/// One command that was run.
#[derive(Debug, Clone, Serialize)]
pub struct CommandProof {
    pub cmd: String,
    /// Its own, or the one a shell would report: 124 after a deadline, 128 and more after a signal, 126 and 127 when it
    /// could not be started.
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    pub ended: CommandOutcome,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_path")]
    pub log: Option<PathBuf>,
    /// Controls whose state differs from the first command's sandbox.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<ControlStatement>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum CommandOutcome {
    /// By itself.
    Exited {
        code: i32,
    },
    /// It ran for longer than it may, with any exit code.
    TimedOut,
    /// It used more memory than it may.
    OutOfMemory,
    Killed {
        signal: i32,
    },
    /// The program could not be started.
    CouldNotStart {
        error: i32,
    },
    /// A command before it failed, and the run stopped at the first failure.
    NotRun,
}

impl Proof {
    /// Whether every command of the profile was run and succeeded, all of them on the same tree.
    pub fn passed(&self) -> bool {
        !self.commands.is_empty()
            && self.commands.iter().all(CommandProof::passed)
            && self.changed_meanwhile.is_empty()
    }
}

impl CommandProof {
    pub fn passed(&self) -> bool {
        self.ended == CommandOutcome::Exited { code: 0 }
    }
}

const NO_SUCH_FILE: i32 = 2;

impl CommandOutcome {
    /// The code a shell would give.
    pub fn exit_code(self) -> Option<i32> {
        match self {
            CommandOutcome::Exited { code } => Some(code),
            CommandOutcome::TimedOut => Some(124),
            CommandOutcome::OutOfMemory => Some(137),
            CommandOutcome::Killed { signal } => Some(128 + signal),
            CommandOutcome::CouldNotStart { error: NO_SUCH_FILE } => Some(127),
            CommandOutcome::CouldNotStart { .. } => Some(126),
            CommandOutcome::NotRun => None,
        }
    }
}

impl std::fmt::Display for CommandOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CommandOutcome::Exited { code } => write!(f, "exit code {code}"),
            CommandOutcome::TimedOut => f.write_str("stopped after its deadline"),
            CommandOutcome::OutOfMemory => f.write_str("stopped for using too much memory"),
            CommandOutcome::Killed { signal } => write!(f, "killed by signal {signal}"),
            CommandOutcome::CouldNotStart { error } => {
                write!(f, "could not be started: {}", std::io::Error::from_raw_os_error(*error))
            }
            CommandOutcome::NotRun => f.write_str("not run, because one before it failed"),
        }
    }
}

fn as_text<S: Serializer>(value: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_path<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Path::to_string_lossy).serialize(serializer)
}
