//! Running a profile, and writing down what happened.
//!
//! Every command gets a sandbox of its own: the candidate as it is, all of it writable, and thrown away
//! afterwards. So no command can lean on what another left behind, or break it, and the folder stays as it was.
//! A sandbox that can't be had is an error; it is neither a pass nor a failure of the work.
//!
//! The calling process must have a single thread whenever a command is started.

mod attempt;
mod subject;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use agency_sandbox::attest::{Attestation, Statement};
use agency_sandbox::container::Container;
use agency_sandbox::host::Host;
use agency_sandbox::launch::LaunchError;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::Level;
use agency_sandbox::scope::GlobError;
use agency_sandbox::supervise::Attendant;
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::ground::GroundError;
use agency_sandbox::workspace::snapshot::Prepared;
use agency_sandbox::workspace::state::State;
use jiff::Timestamp;

use crate::proof::{self, CommandProof, Ended, Proof};
use crate::resolve::Resolved;
use crate::tree::TreeError;
use attempt::Attempt;
use subject::Subject;

/// What is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate<'a> {
    /// The folder as it is, uncommitted work included.
    Live,
    /// A commit of its repository.
    Commit(&'a str),
}

/// What is to be proved, where, and by whose leave.
pub struct Order<'a> {
    pub folder: &'a Folder,
    pub candidate: Candidate<'a>,
    pub level: Level,
    /// What containers are made of, where a profile does not say.
    pub container: Option<&'a Container>,
    pub host: &'a Host,
    /// Where runs in the folder keep their files.
    pub state: &'a State,
    /// Below which private copies are kept, at the level that needs them.
    pub copies: &'a Path,
    /// Where each command's output goes, in a file of its own. Made if it is missing.
    pub logs: &'a Path,
    /// The variables a profile's `env` can name.
    pub variables: &'a [(OsString, OsString)],
    /// Variables that every command gets; no secrets.
    pub handed: &'a [(OsString, OsString)],
    /// Whether somebody trusts the repository's own profiles.
    pub trusted: bool,
    /// Stop at the first command that does not succeed.
    pub fail_fast: bool,
    /// Paths of the folder that may change meanwhile, because they are no part of the work: a protocol's own
    /// files. The logs need not be named.
    pub aside: &'a [RelPath],
    /// What a setup left, for a commit. A folder as it is has its own.
    pub prepared: Option<&'a Prepared>,
    pub clock: &'a dyn Fn() -> Timestamp,
    /// Who has a say while a command runs.
    pub attendant: &'a dyn Attendant,
}

impl std::fmt::Debug for Order<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Variables may hold secrets.
        f.debug_struct("Order")
            .field("folder", &self.folder.root)
            .field("candidate", &self.candidate)
            .finish_non_exhaustive()
    }
}

/// What is told while it goes on. The first index is 0.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    Started { index: usize, total: usize, cmd: &'a str, log: &'a Path },
    Ended { index: usize, total: usize, command: &'a CommandProof },
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    #[error("{} is the repository's own, and nobody has said that it is trusted", show(files))]
    NotTrusted { files: Vec<PathBuf> },
    #[error("the profile has no commands")]
    Nothing,
    #[error("can't write {}", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("can't keep the files of a run in {}", path.display())]
    State { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Ground(#[from] GroundError),
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The sandbox's own failure.
    #[error("`{cmd}` was not run")]
    Launch { cmd: String, source: LaunchError },
    #[error("stopped before it was done")]
    Stopped,
    #[error("interrupted by signal {signal}")]
    Interrupted { signal: i32 },
    #[error("the whole folder can't be made writable")]
    Scope(#[from] GlobError),
}

const USUAL_HINT: &str = "`agency doctor` tells what this host offers";

impl ProveError {
    /// What a person can do, where a command could not be run.
    pub fn hint(&self) -> String {
        let Self::Launch { source, .. } = self else { return USUAL_HINT.to_owned() };
        source.hint().unwrap_or_else(|| USUAL_HINT.to_owned())
    }

    /// Whether what was asked for can't be held on this host.
    pub fn is_unavailable(&self) -> bool {
        let Self::Launch { source, .. } = self else { return false };
        source.is_unavailable()
    }
}

fn show(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" and ")
}

/// Runs every command of a profile, and tells how it goes on.
pub fn prove(
    order: &Order<'_>,
    profile: &Resolved,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Proof, ProveError> {
    if !order.trusted && !profile.untrusted().is_empty() {
        return Err(ProveError::NotTrusted {
            files: profile.untrusted().iter().map(|own| own.path.clone()).collect(),
        });
    }
    let site = Site::open(order)?;
    let started = (order.clock)();
    let subject = Subject::observe(order, &site)?;
    let mut notes = [profile.notes(), &subject.notes].concat();
    let (mut commands, mut first) = (Vec::new(), None);
    let total = profile.steps().len();
    let mut enough = false;
    for (index, step) in profile.steps().iter().enumerate() {
        let attempt = Attempt::new(order, &site, step)?;
        let cmd = attempt.shown();
        if enough {
            commands.push(not_run(cmd));
            continue;
        }
        let log = order.logs.join(log_name(index, total, &cmd));
        tell(Event::Started { index, total, cmd: &cmd, log: &log });
        let ran = attempt.run(&subject, &log)?;
        let attestation = first.get_or_insert_with(|| ran.attestation.clone());
        notes.extend(ran.notes.iter().map(|note| format!("`{cmd}`: {note}")));
        let command = CommandProof {
            cmd,
            exit_code: ran.ended.exit_code(),
            duration_ms: u64::try_from(ran.elapsed.as_millis()).unwrap_or(u64::MAX),
            ended: ran.ended,
            log: Some(log),
            differs: differences(attestation, &ran.attestation),
        };
        tell(Event::Ended { index, total, command: &command });
        enough = order.fail_fast && !command.passed();
        commands.push(command);
    }
    let attestation = first.ok_or(ProveError::Nothing)?;
    let changed_meanwhile = subject.changed(order)?;
    if let Some(path) = changed_meanwhile.first() {
        let count = changed_meanwhile.len();
        notes.push(format!("the folder was changed while it was proved ({count} files, {path} among them): not all commands saw the same tree"));
    }
    Ok(Proof {
        version: proof::VERSION,
        profile: profile.name().to_owned(),
        hash: profile.hash(),
        level: attestation.level,
        commit: subject.commit,
        tree: subject.tree,
        dirty: subject.dirty,
        started,
        finished: (order.clock)(),
        commands,
        attestation,
        changed_meanwhile,
        notes,
    })
}

fn not_run(cmd: String) -> CommandProof {
    let ended = Ended::NotRun;
    CommandProof { cmd, exit_code: None, duration_ms: 0, ended, log: None, differs: Vec::new() }
}

/// Where runs keep what they need.
struct Site {
    /// Runs of commands.
    runs: State,
    staging: PathBuf,
}

impl Site {
    fn open(order: &Order<'_>) -> Result<Self, ProveError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ProveError::State { path, source }
        };
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder
            .create(order.logs)
            .map_err(|source| ProveError::Log { path: order.logs.to_owned(), source })?;
        let runs = match order.level {
            Level::Landlock => {
                State::for_copies(order.copies, order.host.is_root()).map_err(failed(order.copies))?
            }
            Level::Process | Level::Container => order.state.clone(),
        };
        let staging = order.state.folder("stage").map_err(failed(order.state.path()))?;
        Ok(Self { runs, staging })
    }
}

/// Controls of which the second says something else. How the kernel puts it differs with every sandbox.
fn differences(first: &Attestation, second: &Attestation) -> Vec<Statement> {
    let same = |one: &Statement| {
        first
            .statement(one.control)
            .is_some_and(|known| (known.requested, known.enforced) == (one.requested, one.enforced))
    };
    second.controls.iter().filter(|one| !same(one)).cloned().collect()
}

/// `01-pnpm-run-typecheck.log`
fn log_name(index: usize, total: usize, run: &str) -> String {
    const LONGEST: usize = 40;
    let words = run.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut slug = String::new();
    for word in words {
        if !slug.is_empty() && slug.len() + 1 + word.len() > LONGEST {
            break;
        }
        slug.push_str(if slug.is_empty() { "" } else { "-" });
        slug.extend(word.chars().take(LONGEST));
    }
    let slug = if slug.is_empty() { "command".to_owned() } else { slug.to_ascii_lowercase() };
    let width = total.to_string().len().max(2);
    format!("{:0width$}-{slug}.log", index + 1)
}

#[cfg(test)]
mod tests {
    use agency_sandbox::attest::Enforced;
    use agency_sandbox::control::Control;

    use super::*;

    #[test]
    fn a_log_is_named_after_its_command() {
        assert_eq!(log_name(0, 4, "pnpm typecheck"), "01-pnpm-typecheck.log");
        assert_eq!(log_name(9, 100, "cargo test --offline -- \"x\"/../y"), "010-cargo-test-offline-x-y.log");
        let long = "cargo clippy --workspace --all-targets --offline -- -D warnings";
        assert_eq!(log_name(1, 3, long), "02-cargo-clippy-workspace-all-targets.log");
        assert_eq!(log_name(1, 2, "!!!"), "02-command.log");
        assert!(log_name(0, 1, &"word ".repeat(50)).len() < 60);
        assert!(log_name(0, 1, &"x".repeat(500)).len() < 60);
    }
    fn attestation(memory: Enforced, how: &str) -> Attestation {
        let statement = |control, enforced| Statement { control, requested: true, enforced, how: how.into() };
        Attestation {
            version: 1,
            level: Level::Process,
            kernel: "6.12".into(),
            container: None,
            controls: vec![
                statement(Control::Network, Enforced::Enforced),
                statement(Control::Memory, memory),
            ],
        }
    }

    #[test]
    fn a_sandbox_that_holds_something_otherwise_is_told_apart_and_one_that_says_it_otherwise_is_not() {
        let first = attestation(Enforced::Enforced, "net:[1]");
        assert!(differences(&first, &attestation(Enforced::Enforced, "net:[2]")).is_empty());
        let watched = differences(&first, &attestation(Enforced::Watched, "net:[3]"));
        assert_eq!(watched.iter().map(|one| one.control).collect::<Vec<_>>(), [Control::Memory]);
    }
}
