//! What was seen when a profile was run: which tree, which commands, how each of them ended, and what held them.

use std::path::{Path, PathBuf};

use agency_sandbox::attest::{Attestation, Statement};
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::Level;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// The format of a proof.
pub const VERSION: u32 = 1;

/// A profile that was run, and what came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Proof {
    pub version: u32,
    /// The profile's name.
    pub profile: String,
    /// That of the resolved profile.
    pub hash: String,
    pub level: Level,
    /// The commit that was proved, or the one the folder is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The tree that was proved, by git's name for it. A folder that is in no repository has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Whether the tree is another than the commit's.
    pub dirty: bool,
    #[serde(serialize_with = "as_text")]
    pub started: Timestamp,
    #[serde(serialize_with = "as_text")]
    pub finished: Timestamp,
    pub commands: Vec<CommandProof>,
    /// What held the first command. Others say where they differ.
    pub attestation: Attestation,
    /// Files that somebody changed while the commands were run: not all of them saw the same tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_meanwhile: Vec<RelPath>,
    pub notes: Vec<String>,
}

/// One command that was run.
#[derive(Debug, Clone, Serialize)]
pub struct CommandProof {
    pub cmd: String,
    /// Its own, or what a shell would say: 124 after a deadline, 128 and more after a signal, 126 and 127 when
    /// it could not be started.
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    pub ended: Ended,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_path")]
    pub log: Option<PathBuf>,
    /// Controls of which the sandbox says something else than the first one's did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<Statement>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum Ended {
    /// By itself.
    Exited {
        code: i32,
    },
    /// It ran for longer than it may, whatever it said in the end.
    TimedOut,
    /// It used more memory than it may.
    OutOfMemory,
    Killed {
        signal: i32,
    },
    /// There was nothing to run it with.
    CouldNotStart {
        error: i32,
    },
    /// One before it failed, and that was enough.
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
        self.ended == Ended::Exited { code: 0 }
    }
}

const NO_SUCH_FILE: i32 = 2;

impl Ended {
    /// The code a shell would give.
    pub fn exit_code(self) -> Option<i32> {
        match self {
            Ended::Exited { code } => Some(code),
            Ended::TimedOut => Some(124),
            Ended::OutOfMemory => Some(137),
            Ended::Killed { signal } => Some(128 + signal),
            Ended::CouldNotStart { error: NO_SUCH_FILE } => Some(127),
            Ended::CouldNotStart { .. } => Some(126),
            Ended::NotRun => None,
        }
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Exited { code } => write!(f, "exit code {code}"),
            Ended::TimedOut => f.write_str("stopped after its deadline"),
            Ended::OutOfMemory => f.write_str("stopped for using too much memory"),
            Ended::Killed { signal } => write!(f, "killed by signal {signal}"),
            Ended::CouldNotStart { error } => {
                write!(f, "could not be started: {}", std::io::Error::from_raw_os_error(*error))
            }
            Ended::NotRun => f.write_str("not run, because one before it failed"),
        }
    }
}

fn as_text<S: Serializer>(value: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_path<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_deref().map(Path::to_string_lossy).serialize(serializer)
}
