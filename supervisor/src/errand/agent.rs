//! An agent at work: from an order to a commit of what it did.
//!
//! Everything the agent left is read when its last process is dead, and by descriptor. What it says of itself is
//! kept as a claim; what counts is what was seen.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use agency_sandbox::egress::List;
use agency_sandbox::harvest::Harvest;
use agency_sandbox::host::{self, Host};
use agency_sandbox::launch::{self, LaunchError, Request};
use agency_sandbox::output;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::{Deadlines, Level, Limits, Network, Policy};
use agency_sandbox::scope::{Judgement, Scope};
use agency_sandbox::secret::Secret;
use agency_sandbox::supervise::{self, Stopped};
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::ground::Ground;
use agency_sandbox::workspace::state::{Run, State};
use agency_sandbox::workspace::{Added, Workspace};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde_json::json;

use super::Place;
use super::control::Reception;
use super::order::{AgentOrder, Order, Reach};
use super::outcome::{AgentDone, Done, End, Usage};
use super::shim::waited_for_room;
use crate::causes;
use crate::landing::candidate::{self, Work};
use crate::landing::commit::{Signature, Statement};
use crate::landing::names::{Format, Oid, Task};
use crate::landing::repository::{Opening, Repository};
use crate::room;
use crate::trace;

/// Where the agent finds what it is told, in its private repository, which is never part of its work.
const PROMPT: &[u8] = b"AGENCY_PROMPT.md";
/// What it is to call its report.
const REPORT: &str = "report.md";
/// Where it may say what it used.
const USAGE: &str = "usage.json";
/// The most of a report that is read.
const LONGEST_REPORT: u64 = 1 << 20;
/// The most of a paper that is shown to it.
const LONGEST_PAPER: u64 = 8 << 20;
/// How much of its output is kept, if nobody says otherwise.
const LOGGED: u64 = 64 << 20;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub(super) fn run(place: &Place, order: &Order, agent: &AgentOrder, reception: &Reception) -> Done {
    let site = match prepare(place, order, agent) {
        Ok(site) => site,
        Err(error) => return not_run(place, error.as_ref()),
    };
    let outcome = match site.run(reception) {
        Ok(outcome) => outcome,
        Err(error @ LaunchError::Uncollected { .. }) => {
            return Done::Unread { reason: causes::on_one_line(&error) };
        }
        Err(error) => return not_run(place, &error),
    };
    match site.collect(place, order, agent, outcome, reception) {
        Ok(done) => Done::Agent(Box::new(done)),
        Err(error) => Done::Unread { reason: causes::on_one_line(error.as_ref()) },
    }
}

/// Why nothing was run, and what may help.
pub(super) fn not_run(place: &Place, error: &(dyn Error + 'static)) -> Done {
    let reason = causes::on_one_line(error);
    if room::is_missing(error, place.path()) {
        return Done::NoRoom { reason: format!("{reason}; the disk is full") };
    }
    let hint = causes::all(error).find_map(|cause| match cause.downcast_ref() {
        Some(LaunchError::Unavailable { hint, .. }) => Some(hint.clone()),
        _ => None,
    });
    Done::NotRun { reason, hint }
}

/// Everything an agent needs to begin.
struct Site {
    host: Host,
    folder: Folder,
    state: State,
    ground: Ground,
    policy: Policy,
    staging: std::path::PathBuf,
    command: Vec<OsString>,
    input: File,
    log: File,
    /// Last, so that what it removes is not used any more.
    run: Run,
}

fn prepare(place: &Place, order: &Order, agent: &AgentOrder) -> Result<Site> {
    let host = Host::observe();
    let folder = Folder::around(&order.root)?;
    let repository = folder.repository.clone().ok_or("the work tree is in no repository any more")?;
    let state = State::in_repository(&repository.common)?;
    let run = match order.level {
        Level::Landlock => State::for_copies(&order.copies, host.is_root())?.run(),
        Level::Process | Level::Container => state.run(),
    };
    let mut ground = Ground::commit(&folder, agent.start(), &run, &state)?;
    ground.workspace = furnish(ground.workspace.clone(), order, agent, &run)?;
    let words = Words::new(&ground.workspace, order, agent, &run);
    let policy = policy(order, agent, &host, &words)?;
    if let Ok(program) = std::env::current_exe() {
        ground.workspace = ground.workspace.answered_by(&program, &policy);
    }
    let staging = state.folder("stage")?;
    let log = File::options().append(true).create(true).mode(0o600).open(place.output())?;
    let (command, input) = (words.command(agent), words.input(agent)?);
    Ok(Site { host, folder, state, ground, policy, staging, command, input, log, run })
}

impl Site {
    fn run(&self, reception: &Reception) -> std::result::Result<launch::Outcome, LaunchError> {
        let request = Request {
            policy: &self.policy,
            host: &self.host,
            workspace: &self.ground.workspace,
            run: &self.run,
            staging: &self.staging,
            command: &self.command,
            start: &RelPath::root(),
            terminal: false,
            streams: [self.input.as_fd(), self.log.as_fd(), self.log.as_fd()],
            attendant: reception,
        };
        launch::run(&request, None)
    }

    /// What the agent did. The layers go with it.
    fn collect(
        self,
        place: &Place,
        order: &Order,
        agent: &AgentOrder,
        outcome: launch::Outcome,
        reception: &Reception,
    ) -> Result<AgentDone> {
        let Site { folder, state, ground, policy, run, .. } = self;
        let harvest = ground.harvest(outcome.upper.as_fd(), &policy)?;
        let must = Scope::parse(&agent.scope.must, &[])?;
        // What has to change did before, where earlier work is gone on with.
        let did_something = match must.write.is_empty() || agent.start.is_some() {
            true => !harvest.changes.is_empty(),
            false => harvest.changes.iter().any(|change| must.judge(&change.path) == Judgement::InScope),
        };
        let end = end(outcome.end);
        let mut warnings: Vec<String> = harvest.warnings.iter().map(ToString::to_string).collect();
        let candidate = match end == (End::Exited { code: 0 }) && harvest.is_clean() {
            true => {
                let repository = open_repository(&folder, &state, agent)?;
                let made = loop {
                    match commit(order, agent, &repository, &harvest, outcome.upper.as_fd()) {
                        Err(error) if waited_for_room(place, reception, error.as_ref()) => {}
                        made => break made?,
                    }
                };
                // It is for people to read; the work is in the commit.
                if let Some(commit) = &made
                    && let Err(error) = write_patch(place, &repository, agent, commit)
                {
                    warnings.push(format!("its patch could not be written: {error}"));
                }
                made
            }
            false => None,
        };
        let left = |name: &str| match &ground.workspace.outbox {
            Some(outbox) => left(&outbox.source, name),
            None => Ok(None),
        };
        let usage = left(USAGE)?.and_then(|text| usage(&text));
        let report = left(REPORT)?
            .map(|text| String::from_utf8_lossy(&output::redacted(&policy.secrets, &text)).into_owned());
        let done = AgentDone {
            end,
            elapsed_ms: u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX),
            changed: harvest.changes.iter().map(|change| change.path.to_string()).collect(),
            violations: harvest.violations.iter().map(ToString::to_string).collect(),
            did_something,
            candidate: candidate.map(|commit| commit.to_string()),
            report,
            usage,
            warnings,
            attestation: serde_json::to_value(&outcome.attestation)?,
            network: json!(outcome.network),
            output: json!(outcome.output),
        };
        // The layers go while the kernel is still taking the sandbox apart; then that is waited for.
        drop(run);
        drop(outcome);
        Ok(done)
    }
}

/// The workspace, with everything an agent gets beside the tree.
fn furnish(workspace: Workspace, order: &Order, agent: &AgentOrder, run: &Run) -> Result<Workspace> {
    let mut workspace = workspace.with_outbox(order.level, run);
    for folder in &agent.live {
        workspace = workspace.with_live(RelPath::parse(folder.as_bytes())?);
    }
    if let Some(overlay) = workspace.overlays.first_mut() {
        let path = RelPath::root().join(b".git").join(PROMPT);
        overlay.added.push(Added::File(path, agent.prompt.clone().into_bytes()));
        for paper in &agent.papers {
            let path = RelPath::root().join(b".git").join(paper.name.as_bytes());
            let mut text = Vec::new();
            File::open(&paper.source)?.take(LONGEST_PAPER).read_to_end(&mut text)?;
            overlay.added.push(Added::File(path, text));
        }
    }
    Ok(workspace)
}

/// What stands for the placeholders of a command.
struct Words {
    pairs: Vec<(&'static str, OsString)>,
}

impl Words {
    fn new(workspace: &Workspace, order: &Order, agent: &AgentOrder, run: &Run) -> Self {
        let seen = workspace.seen_at(order.level, run);
        let left = |name: &str| match &workspace.outbox {
            Some(outbox) => outbox.at.join(name).into_os_string(),
            None => OsString::new(),
        };
        let prompt = seen.join(".git").join(OsStr::from_bytes(PROMPT));
        let pairs = vec![
            ("prompt", agent.prompt.clone().into()),
            ("prompt_file", prompt.into_os_string()),
            ("task_id", order.task.id.clone().into()),
            ("task_file", seen.join(&agent.task_file).into_os_string()),
            ("report_file", left(REPORT)),
            ("usage_file", left(USAGE)),
            ("workspace", seen.into_os_string()),
        ];
        Self { pairs }
    }

    /// A command with its placeholders filled in. What is put in is not looked at again.
    fn command(&self, agent: &AgentOrder) -> Vec<OsString> {
        agent.command.iter().map(|argument| self.fill_in(argument)).collect()
    }

    fn fill_in(&self, argument: &str) -> OsString {
        let mut filled = OsString::new();
        let mut rest = argument;
        while let Some(start) = rest.find('{') {
            filled.push(&rest[..start]);
            rest = &rest[start..];
            let known = self
                .pairs
                .iter()
                .find(|(name, _)| rest[1..].strip_prefix(name).is_some_and(|after| after.starts_with('}')));
            match known {
                Some((name, value)) => {
                    filled.push(value);
                    rest = &rest[name.len() + 2..];
                }
                None => {
                    filled.push("{");
                    rest = &rest[1..];
                }
            }
        }
        filled.push(rest);
        filled
    }

    /// The same for programs that look at their environment, as `AGENCY_TASK_ID` and so on.
    fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        let shown = self.pairs.iter().filter(|(name, _)| *name != "prompt");
        shown.map(|(name, value)| (format!("AGENCY_{}", name.to_uppercase()).into(), value.clone()))
    }

    /// An agent whose command does not say where the prompt goes reads it from its input.
    fn input(&self, agent: &AgentOrder) -> io::Result<File> {
        if agent
            .command
            .iter()
            .any(|argument| argument.contains("{prompt}") || argument.contains("{prompt_file}"))
        {
            return File::open("/dev/null");
        }
        let mut file = tempfile_in_memory()?;
        file.write_all(agent.prompt.as_bytes())?;
        io::Seek::rewind(&mut file)?;
        Ok(file)
    }
}

fn tempfile_in_memory() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("prompt", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

fn policy(order: &Order, agent: &AgentOrder, host: &Host, words: &Words) -> Result<Policy> {
    let named: Vec<OsString> = agent.env.iter().map(OsString::from).collect();
    let mut environment = host::environment(host, std::env::vars_os(), &named);
    environment.retain(|(name, _)| !name.as_bytes().starts_with(b"AGENCY_") || named.contains(name));
    environment.extend(words.variables());
    trace::hand_on(order, &mut environment);
    let network = match &agent.network {
        Reach::None => Network::None,
        Reach::Full => Network::Full,
        Reach::Hosts(hosts) => Network::Hosts(List::parse(hosts)?),
    };
    if let Network::Hosts(list) = &network {
        environment = list.environment(environment);
    }
    let secrets = agent.env.iter().filter_map(|name| {
        Some(Secret { name: name.clone(), value: std::env::var_os(name)?.as_bytes().to_vec() })
    });
    let usual = Limits::default();
    let ms = |value: Option<u64>| value.map(Duration::from_millis);
    Ok(Policy {
        level: order.level,
        scope: Scope::parse(&agent.scope.write, &agent.scope.deny)?,
        network,
        limits: Limits {
            memory: agent.limits.memory,
            processes: agent.limits.processes.or(usual.processes),
            output: agent.limits.output.unwrap_or(LOGGED),
            ..usual
        },
        deadlines: Deadlines {
            wall: ms(agent.limits.wall_ms),
            stall: ms(agent.limits.stall_ms),
            grace: ms(agent.limits.grace_ms).unwrap_or(Deadlines::default().grace),
        },
        environment,
        secrets: secrets.collect(),
        ..Policy::closed()
    })
}

fn end(end: supervise::End) -> End {
    match end {
        supervise::End::Exited(code) => End::Exited { code },
        supervise::End::Signaled(signal) => End::Signaled { signal },
        supervise::End::NotStarted(error) => End::NotStarted { error },
        supervise::End::Stopped(Stopped::Wall) => End::Wall,
        supervise::End::Stopped(Stopped::Stall) => End::Stall,
        supervise::End::Stopped(Stopped::Memory) => End::Memory,
        supervise::End::Stopped(Stopped::Interrupted(_) | Stopped::Asked) => End::Asked,
    }
}

/// What the agent did, as a commit that nothing names yet.
fn commit(
    order: &Order,
    agent: &AgentOrder,
    repository: &Repository,
    harvest: &Harvest,
    upper: std::os::fd::BorrowedFd<'_>,
) -> Result<Option<Oid>> {
    let base = Oid::parse(agent.start())?;
    let task = Task::new(&order.task.protocol, &order.task.id)?;
    let author =
        Signature::new(&agent.agent, &format!("{}@agency.invalid", agent.agent), crate::clock::wall(), 0);
    let statement = Statement {
        author: &author,
        committer: &author,
        subject: &agent.subject,
        body: "",
        task: &task,
        epoch: order.epoch.0,
        verify: None,
    };
    Ok(candidate::write(repository, &Work { harvest, upper, base: &base }, &statement)?)
}

/// The real repository, to write objects into.
fn open_repository(folder: &Folder, state: &State, agent: &AgentOrder) -> Result<Repository> {
    let real = folder.repository.as_ref().ok_or("the work tree is in no repository any more")?;
    let place = state.folder("landing")?;
    let opening = Opening {
        program: Path::new("git"),
        repository: real,
        root: Some(&folder.root),
        place: &place,
        home: None,
        patience: Duration::from_secs(30),
    };
    Ok(Repository::open_objects(&opening, Format::of(&Oid::parse(&agent.base)?))?)
}

/// For people who want to see it without git.
fn write_patch(place: &Place, repository: &Repository, agent: &AgentOrder, commit: &Oid) -> Result<()> {
    let patch = candidate::patch(repository, &Oid::parse(&agent.base)?, commit)?;
    Ok(std::fs::write(place.file("work.patch"), patch)?)
}

/// What the agent left for us under a name: a plain file, up to a size, and not through any link.
fn left(outbox: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let folder = match File::open(outbox) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // What can't be opened, or is something else, is no report.
    let Ok(file) = rustix::fs::openat2(&folder, name, flags, Mode::empty(), resolve) else {
        return Ok(None);
    };
    let file = File::from(file);
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(LONGEST_REPORT).read_to_end(&mut text)?;
    Ok(Some(text))
}

/// What the agent says it used: `{"tokens": 1200, "cost": 0.04}`, or `input_tokens` and `output_tokens`. Anything
/// else says nothing.
fn usage(text: &[u8]) -> Option<Usage> {
    let said: serde_json::Value = serde_json::from_slice(text).ok()?;
    let count = |key: &str| said.get(key).and_then(serde_json::Value::as_u64);
    let both = || match (count("input_tokens"), count("output_tokens")) {
        (None, None) => None,
        (read, written) => Some(read.unwrap_or(0).saturating_add(written.unwrap_or(0))),
    };
    let cost = said.get("cost").and_then(serde_json::Value::as_f64).filter(|cost| *cost >= 0.0);
    let tokens = count("tokens").or_else(both);
    // A number that is too large becomes the largest there is.
    (tokens.is_some() || cost.is_some()).then(|| Usage {
        tokens: tokens.unwrap_or(0),
        cost_micros: (cost.unwrap_or(0.0) * 1_000_000.0).round() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_once() {
        let words = Words { pairs: vec![("prompt", "do {task_id} {".into()), ("task_id", "T1".into())] };
        assert_eq!(words.fill_in("--say={prompt}"), "--say=do {task_id} {");
        assert_eq!(words.fill_in("{task_id}{task_id}}"), "T1T1}");
        assert_eq!(words.fill_in("a{b}${HOME}{"), "a{b}${HOME}{");
    }

    #[test]
    fn what_an_agent_says_it_used_is_a_claim_that_harms_nobody() {
        let said = |text: &str| usage(text.as_bytes()).map(|usage| (usage.tokens, usage.cost_micros));
        assert_eq!(said(r#"{"tokens": 1200, "cost": 0.04}"#), Some((1200, 40_000)));
        assert_eq!(said(r#"{"input_tokens": 7, "output_tokens": 5}"#), Some((12, 0)));
        assert_eq!(said(r#"{"cost": 1e300}"#), Some((0, u64::MAX)));
        for nothing in ["", "[]", "{}", "12", r#"{"tokens": -4}"#, r#"{"cost": -1}"#, r#"{"tokens": "many"}"#]
        {
            assert_eq!(said(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_report_is_a_plain_file_or_none() {
        let outbox = tempfile::tempdir().expect("a folder");
        assert_eq!(left(outbox.path(), REPORT).expect("read"), None);
        std::os::unix::fs::symlink("/etc/passwd", outbox.path().join(REPORT)).expect("a link");
        assert_eq!(left(outbox.path(), REPORT).expect("read"), None);
        std::fs::remove_file(outbox.path().join(REPORT)).expect("gone");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            outbox.path().join(REPORT),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .expect("a pipe");
        assert_eq!(left(outbox.path(), REPORT).expect("read"), None);
        std::fs::remove_file(outbox.path().join(REPORT)).expect("gone");
        std::fs::write(outbox.path().join(REPORT), "done").expect("a file");
        assert_eq!(left(outbox.path(), REPORT).expect("read"), Some(b"done".to_vec()));
    }
}
