//! Running a profile, and writing down what happened.
//!
//! Every command gets a sandbox of its own: the candidate as it is, all of it writable, and thrown away
//! afterwards. So no command can lean on what another left behind, or break it, and the folder stays as it was.
//! A sandbox that can't be had is an error; it is neither a pass nor a failure of the work.
//!
//! The calling process must have a single thread whenever a command is started.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agency_sandbox::attest::{Attestation, Statement};
use agency_sandbox::host::{self, Host};
use agency_sandbox::launch::{self, LaunchError, Outcome, Request};
use agency_sandbox::output;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::{Deadlines, Level, Limits, Network as Reach, Policy};
use agency_sandbox::scope::{GlobError, Scope};
use agency_sandbox::secret::Secret;
use agency_sandbox::supervise::{End, Stopped};
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::ground::{Ground, GroundError};
use agency_sandbox::workspace::state::{Run, State};
use jiff::Timestamp;

use crate::head::Head;
use crate::profile::Network;
use crate::proof::{self, CommandProof, Ended, Proof};
use crate::resolve::{Resolved, Step};
use crate::tree::{Listing, Recorded, TreeError};

/// How much of each stream of a command is kept: its beginning, and its last 64 KiB.
const LOGGED: u64 = 64 << 20;

const SHELL: &str = "/bin/sh";
/// Both streams of a command are one, or its log would not have them in their order.
const ONE_STREAM: &str = "exec \"$0\" -c \"$1\" 2>&1";

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
    pub host: &'a Host,
    /// Where runs in the folder keep their files.
    pub state: &'a State,
    /// Below which private copies are kept, at the level that needs them.
    pub copies: &'a Path,
    /// Where each command's output goes, in a file of its own. Made if it is missing.
    pub logs: &'a Path,
    /// The variables a profile's `env` can name.
    pub variables: &'a [(OsString, OsString)],
    /// Whether somebody trusts the repository's own profiles.
    pub trusted: bool,
    /// Stop at the first command that does not succeed.
    pub fail_fast: bool,
    /// Paths of the folder that may change meanwhile, because they are no part of the work: a protocol's own
    /// files. The logs need not be named.
    pub aside: &'a [RelPath],
    pub clock: &'a dyn Fn() -> Timestamp,
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
    #[error("interrupted by signal {signal}")]
    Interrupted { signal: i32 },
    #[error("the whole folder can't be made writable")]
    Scope(#[from] GlobError),
}

impl ProveError {
    /// Whether what was asked for can't be held on this host.
    pub fn is_unavailable(&self) -> bool {
        let Self::Launch { source, .. } = self else { return false };
        matches!(source, LaunchError::Unavailable { .. } | LaunchError::NotHeld { .. })
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
        return Err(ProveError::NotTrusted { files: profile.untrusted().to_vec() });
    }
    let site = Site::open(order)?;
    let started = (order.clock)();
    let subject = Subject::observe(order, &site)?;
    let mut notes = [profile.notes(), &subject.notes].concat();
    let (mut commands, mut first) = (Vec::new(), None);
    let total = profile.steps().len();
    let mut enough = false;
    for (index, step) in profile.steps().iter().enumerate() {
        let (policy, unset) = policy(order, step)?;
        // Nothing that is kept has a secret in it, also if somebody wrote one into a profile.
        let cmd =
            String::from_utf8_lossy(&output::redacted(&policy.secrets, step.run.as_bytes())).into_owned();
        if enough {
            commands.push(not_run(cmd));
            continue;
        }
        let log = order.logs.join(log_name(index, total, &cmd));
        tell(Event::Started { index, total, cmd: &cmd, log: &log });
        let ran = Attempt { order, site: &site, step, policy: &policy }.run(&subject, &log)?;
        let attestation = first.get_or_insert_with(|| ran.attestation.clone());
        let unset = unset.into_iter().map(|name| format!("the variable {name} is not set"));
        notes.extend(unset.chain(ran.notes).map(|note| format!("`{cmd}`: {note}")));
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
        level: order.level,
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

/// What is proved, as it was when the proof began.
struct Subject {
    commit: Option<String>,
    tree: Option<String>,
    dirty: bool,
    notes: Vec<String>,
    held: Held,
}

enum Held {
    /// Nobody can change a commit; its layers are kept until the end.
    Commit(Box<Ground>),
    Folder(Listing, Recorded, Head),
    /// In no repository: nothing names it.
    Nameless,
}

impl Subject {
    fn observe(order: &Order<'_>, site: &Site) -> Result<Self, ProveError> {
        match (order.candidate, &order.folder.repository) {
            (Candidate::Commit(rev), _) => {
                let ground = Ground::commit(order.folder, rev, &site.runs.run(), order.state)?;
                let layers = ground.layers();
                let submodules = layers.map(|layers| layers.submodules.clone()).unwrap_or_default();
                let note =
                    |path: &RelPath| format!("the submodule {path} is an empty folder in a commit's tree");
                Ok(Self {
                    commit: layers.map(|layers| layers.commit.clone()),
                    tree: layers.map(|layers| layers.tree.clone()),
                    dirty: false,
                    notes: submodules.iter().map(note).collect(),
                    held: Held::Commit(Box::new(ground)),
                })
            }
            (Candidate::Live, Some(repository)) => {
                let head = Head::read(repository);
                let run = order.state.run();
                let failed = |source| ProveError::State { path: run.path().to_owned(), source };
                run.make().map_err(failed)?;
                let recorded =
                    Recorded::read(&head, &repository.common.join("objects"), &run.path().join("git"))?;
                let listing = Listing::read(order.folder, head.format, &recorded)?;
                let tree = listing.id();
                let note = |path: &RelPath| {
                    format!(
                        "{path} is a repository of its own: the tree names the commit that was recorded for it, not what it holds"
                    )
                };
                Ok(Self {
                    dirty: recorded.tree.as_ref() != Some(&tree),
                    commit: head.commit.clone(),
                    tree: Some(tree),
                    notes: listing.nested.iter().map(note).collect(),
                    held: Held::Folder(listing, recorded, head),
                })
            }
            (Candidate::Live, None) => {
                Ok(Self { commit: None, tree: None, dirty: false, notes: Vec::new(), held: Held::Nameless })
            }
        }
    }

    /// What somebody changed since, of what matters.
    fn changed(&self, order: &Order<'_>) -> Result<Vec<RelPath>, ProveError> {
        let Held::Folder(listing, recorded, head) = &self.held else { return Ok(Vec::new()) };
        let logs = order.logs.canonicalize().ok();
        let logs = logs.as_deref().and_then(|logs| logs.strip_prefix(&order.folder.root).ok());
        let logs = logs.and_then(|logs| RelPath::parse(logs.as_os_str().as_bytes()).ok());
        let later = Listing::read(order.folder, head.format, recorded)?;
        let mut changed = listing.differences(&later);
        changed.retain(|path| !order.aside.iter().chain(&logs).any(|aside| path.is_within(aside)));
        Ok(changed)
    }
}

/// What a sandbox is asked to hold, and which of the named variables there are none of.
fn policy(order: &Order<'_>, step: &Step) -> Result<(Policy, Vec<String>), ProveError> {
    let named: Vec<OsString> = step.env.iter().map(OsString::from).collect();
    let value = |name: &str| order.variables.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let unset = step.env.iter().filter(|name| value(name).is_none()).cloned().collect();
    let secrets = step
        .env
        .iter()
        .filter_map(|name| Some(Secret { name: name.clone(), value: value(name)?.as_bytes().to_vec() }));
    let mut environment = host::environment(order.host, order.variables.iter().cloned(), &named);
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
        level: order.level,
        scope: Scope::parse(&["**"], &[])?,
        network,
        limits: Limits { memory: Some(step.memory), output: LOGGED, ..Limits::default() },
        deadlines: Deadlines { wall: Some(step.timeout), ..Deadlines::default() },
        environment,
        secrets: secrets.collect(),
        ..Policy::closed()
    };
    Ok((policy, unset))
}

/// One command, about to be run.
struct Attempt<'a> {
    order: &'a Order<'a>,
    site: &'a Site,
    step: &'a Step,
    policy: &'a Policy,
}

/// One command that was run.
struct Ran {
    ended: Ended,
    elapsed: Duration,
    attestation: Attestation,
    notes: Vec<String>,
}

impl Attempt<'_> {
    fn run(&self, subject: &Subject, log: &Path) -> Result<Ran, ProveError> {
        if self.order.level == Level::Container {
            let (what, hint) = ("isolation `container` is not available yet", "use process or landlock");
            return Err(self.failed(LaunchError::Unavailable { what: what.into(), hint: hint.into() }));
        }
        let run = self.site.runs.run();
        let ground = self.ground(subject, &run)?;
        let unwritten = |source| ProveError::Log { path: log.to_owned(), source };
        let written = create(log).map_err(unwritten)?;
        let input = File::open("/dev/null").map_err(unwritten)?;
        wait_for_threads();
        let outcome = launch::run(
            &Request {
                policy: self.policy,
                host: self.order.host,
                workspace: &ground.workspace,
                run: &run,
                staging: &self.site.staging,
                command: &[SHELL, "-c", ONE_STREAM, SHELL, &self.step.run].map(OsString::from),
                start: &RelPath::root(),
                terminal: false,
                streams: [input.as_fd(), written.as_fd(), written.as_fd()],
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
        ProveError::Launch { cmd: self.step.run.clone(), source }
    }

    /// The candidate once more, with a layer of its own. On disk, where a build has room.
    fn ground(&self, subject: &Subject, run: &Run) -> Result<Ground, ProveError> {
        let (folder, state) = (self.order.folder, self.order.state);
        let layers = match &subject.held {
            Held::Commit(ground) => ground.layers(),
            Held::Folder(..) | Held::Nameless => None,
        };
        Ok(match layers {
            // By its id: a branch may move meanwhile.
            Some(layers) => Ground::commit(folder, &layers.commit, run, state)?,
            None => Ground::live(folder, false, run, state)?,
        })
    }

    fn judge(&self, outcome: &Outcome) -> Result<Ran, ProveError> {
        let ended = match outcome.end {
            End::Exited(code) => Ended::Exited { code },
            End::Signaled(signal) => Ended::Killed { signal },
            End::NotStarted(error) => Ended::CouldNotStart { error },
            End::Stopped(Stopped::Wall | Stopped::Stall) => Ended::TimedOut,
            End::Stopped(Stopped::Memory) => Ended::OutOfMemory,
            End::Stopped(Stopped::Interrupted(signal)) => return Err(ProveError::Interrupted { signal }),
        };
        let mut notes = Vec::new();
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

/// Controls of which the second says something else. How the kernel puts it differs with every sandbox.
fn differences(first: &Attestation, second: &Attestation) -> Vec<Statement> {
    let same = |one: &Statement| {
        first
            .statement(one.control)
            .is_some_and(|known| (known.requested, known.enforced) == (one.requested, one.enforced))
    };
    second.controls.iter().filter(|one| !same(one)).cloned().collect()
}

/// A log is a new file, whatever was there under its name.
fn create(log: &Path) -> io::Result<File> {
    match fs::remove_file(log) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().append(true).create_new(true).mode(0o600).open(log)
}

/// `01-pnpm-run-typecheck.log`
fn log_name(index: usize, total: usize, run: &str) -> String {
    const LONGEST: usize = 40;
    let words = run.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug =
        words.fold(String::new(), |slug, word| match (slug.is_empty(), slug.len() + word.len() < LONGEST) {
            (true, _) => word.chars().take(LONGEST).collect(),
            (false, true) => format!("{slug}-{word}"),
            (false, false) => slug,
        });
    let slug = if slug.is_empty() { "command".to_owned() } else { slug.to_ascii_lowercase() };
    let width = total.to_string().len().max(2);
    format!("{:0width$}-{slug}.log", index + 1)
}

/// A thread that was joined is gone for us a moment before it is for the kernel, and a process with threads
/// can't start a sandbox. Those that were not joined are noticed by the launch.
fn wait_for_threads() {
    for _ in 0..200 {
        let alone = rustix::fs::stat(c"/proc/self/task").is_ok_and(|stat| stat.st_nlink <= 3);
        if alone {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_named_after_its_command() {
        assert_eq!(log_name(0, 4, "pnpm typecheck"), "01-pnpm-typecheck.log");
        assert_eq!(log_name(9, 100, "cargo test --offline -- \"x\"/../y"), "010-cargo-test-offline-x-y.log");
        assert_eq!(log_name(1, 2, "!!!"), "02-command.log");
        assert!(log_name(0, 1, &"word ".repeat(50)).len() < 60);
        assert!(log_name(0, 1, &"x".repeat(500)).len() < 60);
    }
}
