//! An agent at work: from an order to a commit of what it did.
//!
//! Everything the agent left is read when its last process is dead, and by descriptor. What it says of itself is
//! kept as a claim; what counts is what was seen.

#![allow(clippy::disallowed_methods, reason = "opens our own records, and the outbox by descriptor")]

use std::cell::Cell;
use std::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use agency_protocols::claim::{AgentClaim, ClaimKind, LONGEST_READ};
use agency_sandbox::boot;
use agency_sandbox::harvest::{Harvest, ViolationReason};
use agency_sandbox::host::HostUser;
use agency_sandbox::launch::{LaunchError, LaunchOutcome};
use agency_sandbox::monitor::{MonitorDecision, OutputStream, RunMonitor};
use agency_sandbox::output::redacted;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::Policy;
use agency_sandbox::scope::{Scope, ScopeVerdict};
use agency_sandbox::session::{SandboxSession, SessionCommand, SessionFolders};
use agency_sandbox::supervise::{self, StopCause};
use agency_sandbox::workspace::folder::WorkspaceFolder;
use agency_sandbox::workspace::prepare::PreparedWorkspace;
use agency_sandbox::workspace::state::{RunFolder, StateFolder};
use agency_sandbox::workspace::{LayerAddition, Workspace};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde_json::json;

use super::JobFolder;
use super::agent_policy;
use super::claim_reader::{AgentText, ClaimReader};
use super::control::ControlSocket;
use super::ended_agent::{self, EndedAgent, OrphanedAgent, SecretsDigest};
use super::not_run::{not_run, was_killed};
use super::order::{AgentOrder, JobKind, JobOrder};
use super::outcome::{AgentOutcome, JobResult, ProgramEnd, kept};
use super::placeholders::{PROMPT, Placeholders, REPORT, USAGE};
use super::setup::{self, SetupRunner};
use super::shim::waited_for_room;
use crate::host_fault::{self, HostFault};
use crate::output_signals::OutputScanner;
use agency_landing::candidate::{self, HarvestedWork};
use agency_landing::commit::{CommitMetadata, Signature};
use agency_landing::names::{Oid, OidFormat, TaskName};
use agency_landing::repository::{LandingRepository, RepositoryOptions};
use agency_sandbox::error_chain;

/// The most of a paper that is shown to it.
const LONGEST_PAPER: u64 = 8 << 20;
/// The most changed paths, refusals, warnings and names of protected files that its outcome lists.
const MOST_CHANGED: usize = 10_000;
const MOST_REFUSED: usize = 200;
const MOST_OPENINGS: usize = 10;
/// The most that is read of a file that says what it used.
const LONGEST_USAGE: u64 = 16 << 20;

type AgentJobResult<T> = Result<T, Box<dyn Error>>;

/// An agent that is to be run, or to be collected.
#[derive(Clone, Copy)]
pub(super) struct AgentJob<'a> {
    pub(super) place: &'a JobFolder,
    pub(super) order: &'a JobOrder,
    pub(super) agent: &'a AgentOrder,
    /// Reads what the agent wrote.
    pub(super) reader: &'a ClaimReader,
    pub(super) reception: &'a ControlSocket,
}

/// Runs an agent and collects what it did. The session is dropped when the result is on the disk.
pub(super) fn run(job: AgentJob<'_>) -> (JobResult, Option<SandboxSession>) {
    let AgentJob { place, order, agent, reception, .. } = job;
    let started_at = crate::clock::wall_seconds();
    let prepared = prepare(job, None);
    let prepared = prepared.and_then(|site| Ok((site, OutputScanner::new(&agent.program.reading)?)));
    let (mut site, ear) = match prepared {
        Ok(prepared) => prepared,
        Err(error) if setup::is_stopped(error.as_ref()) => return (JobResult::Stopped, None),
        Err(error) => return (not_run(place, error.as_ref()), None),
    };
    let disk = DiskWatch::new(&order.state);
    let outcome = match site.run(reception, &ear, &disk) {
        Ok(_) if disk.was_nearly_full() => return (JobResult::Lost { reason: disk.reason() }, None),
        Ok(outcome) => outcome,
        Err(error @ LaunchError::Uncollected { .. }) => {
            return (JobResult::Unread { reason: error_chain::on_one_line(&error) }, None);
        }
        Err(error) => return (not_run(place, &error), None),
    };
    let done = site.ended(job, started_at, ear, &outcome).and_then(|ended| {
        site.write_down(place, &ended);
        site.collect(job, ended, outcome.upper.as_fd())
    });
    (collected(place, done), Some(site.session))
}

/// Collects what an agent did whose shim was killed after its end. Every process of it is dead.
pub(super) fn go_on(job: AgentJob<'_>, ended: EndedAgent) -> (JobResult, Option<SandboxSession>) {
    match reopen(job, ended) {
        Ok((site, ended, upper)) => {
            let done = collected(job.place, site.collect(job, ended, upper.as_fd()));
            (done, Some(site.session))
        }
        // That is not the agent's fault.
        Err(error) => {
            let reason = error_chain::on_one_line(error.as_ref());
            let reason = format!("its shim was killed, and what it did can't be collected: {reason}");
            (JobResult::Lost { reason }, None)
        }
    }
}

/// Everything to collect it with, and what it changed.
fn reopen(job: AgentJob<'_>, ended: EndedAgent) -> AgentJobResult<(PreparedSandbox, EndedAgent, File)> {
    let OrphanedAgent { ended, run, upper } = ended.take_over(job.place)?;
    let site = prepare(job, Some(run))?;
    if !ended.secrets.fits(&site.policy.secrets) {
        return Err("the secrets that it was given have been changed since".into());
    }
    Ok((site, ended, upper))
}

fn collected(place: &JobFolder, done: AgentJobResult<AgentOutcome>) -> JobResult {
    match done {
        Ok(done) => JobResult::Agent(Box::new(done)),
        Err(error) => {
            let reason = error_chain::on_one_line(error.as_ref());
            match HostFault::of(error.as_ref(), place.path()) {
                Some(fault) => {
                    JobResult::Lost { reason: format!("what it did could not be kept: {reason}; {fault}") }
                }
                None if was_killed(error.as_ref()) => JobResult::Lost { reason },
                None => JobResult::Unread { reason },
            }
        }
    }
}

/// Everything an agent needs to begin.
struct PreparedSandbox {
    host: HostUser,
    folder: WorkspaceFolder,
    state: StateFolder,
    policy: Policy,
    command: Vec<OsString>,
    input: File,
    log: File,
    session: SandboxSession,
}

/// Everything for an agent that is to begin, or for one that has ended in this run and is to be collected.
fn prepare(job: AgentJob<'_>, ended: Option<RunFolder>) -> AgentJobResult<PreparedSandbox> {
    let AgentJob { place, order, agent, reception, .. } = job;
    let host = HostUser::observe();
    let folder = WorkspaceFolder::discover(&order.root)?;
    if folder.repository.is_none() {
        return Err("the work tree is in no repository any more".into());
    }
    let state = StateFolder::at(&order.state);
    let folders =
        SessionFolders::open(order.level, &host, &state, &order.copies).map_err(|error| error.source)?;
    let context = SetupRunner { place, order, host: &host, folder: &folder, state: &state, reception };
    let prepared = agent.setup.as_ref().map(|setup| context.prepare(setup, agent.start())).transpose()?;
    let on_commit = |run: &RunFolder, state: &StateFolder| {
        PreparedWorkspace::from_commit(&folder, agent.start(), run, state)
    };
    let mut session = match ended {
        Some(run) => folders.resume(run, on_commit)?,
        None => folders.begin(on_commit)?,
    };
    if let Some(prepared) = prepared {
        session.add_setup(prepared);
    }
    let workspace = session.ground.workspace.clone().with_outbox(order.level, session.run());
    let words = Placeholders::new(&workspace, order, agent, session.run());
    let workspace = add_agent_files(workspace, agent, &words)?;
    let policy = agent_policy::policy(order, agent, &host, &words)?;
    session.ground.workspace = workspace.with_fsmonitor(&policy);
    let log = File::options().append(true).create(true).mode(0o600).open(place.output())?;
    let (command, input) = (words.command(agent), words.input(agent)?);
    Ok(PreparedSandbox { host, folder, state, policy, command, input, log, session })
}

impl PreparedSandbox {
    fn run(
        &mut self,
        reception: &ControlSocket,
        ear: &OutputScanner,
        disk: &DiskWatch,
    ) -> Result<LaunchOutcome, LaunchError> {
        let command = SessionCommand {
            policy: &self.policy,
            host: &self.host,
            command: &self.command,
            start: &RelPath::root(),
            terminal: false,
            streams: [self.input.as_fd(), self.log.as_fd(), self.log.as_fd()],
            attendant: &AgentMonitor { reception, ear, log: &self.log, disk },
        };
        self.session.launch(&command, None)
    }

    /// What is known of an agent that has ended, before its changes are looked at.
    fn ended(
        &self,
        job: AgentJob<'_>,
        started_at: i64,
        ear: OutputScanner,
        outcome: &LaunchOutcome,
    ) -> AgentJobResult<EndedAgent> {
        let (heard, usage) = ear.finish(self.left(USAGE, LONGEST_USAGE)?.as_deref());
        Ok(EndedAgent {
            boot: boot::id().unwrap_or_default(),
            started_at,
            run: self.session.run().path().to_owned(),
            upper: self.session.upper_path(job.order.level),
            secrets: SecretsDigest::of(&self.policy.secrets),
            end: end(outcome.end),
            stopped: job.reception.stopped(),
            elapsed_ms: u64::try_from(outcome.elapsed.as_millis()).unwrap_or(u64::MAX),
            usage,
            heard,
            attestation: serde_json::to_value(&outcome.attestation)?,
            network: json!(outcome.network),
            output: json!(outcome.output),
        })
    }

    /// Lets another shim go on from here, should this one be killed. It is a second chance: nothing fails without it.
    fn write_down(&self, place: &JobFolder, ended: &EndedAgent) {
        if ended.upper.is_some() && self.session.run().keep_while(&place.file(ended_agent::NAME)).is_ok() {
            let _ = ended.write(place);
        }
    }

    /// What the agent left for us under a name.
    fn left(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        match &self.session.ground.workspace.outbox {
            Some(outbox) => left(&outbox.source, name, most),
            None => Ok(None),
        }
    }

    /// What the agent did.
    fn collect(
        &self,
        job: AgentJob<'_>,
        ended: EndedAgent,
        upper: BorrowedFd<'_>,
    ) -> AgentJobResult<AgentOutcome> {
        let AgentJob { place, order, agent, reception, .. } = job;
        let EndedAgent { end, elapsed_ms, usage, heard, attestation, network, output, .. } = ended;
        let wrote = self.left(REPORT, LONGEST_READ)?;
        let PreparedSandbox { folder, state, session, policy, .. } = self;
        let harvest = session.ground.harvest(upper, policy)?;
        let must = Scope::parse(&agent.scope.must, &[])?;
        // What has to change did before, where earlier work is gone on with.
        let did_something = match must.write.is_empty() || agent.start.is_some() {
            true => !harvest.changes.is_empty(),
            false => harvest.changes.iter().any(|change| must.judge(&change.path) == ScopeVerdict::InScope),
        };
        let (mut warnings, _) = kept(harvest.warnings.iter().map(ToString::to_string), MOST_REFUSED);
        let candidate = match end == (ProgramEnd::Exited { code: 0 }) && harvest.is_clean() {
            true => {
                let repository = open_repository(folder, state, agent)?;
                let made = loop {
                    match commit(order, agent, &repository, &harvest, upper) {
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
        let usage = usage.map(|said| match said.capped(elapsed_ms) {
            None => said,
            Some(possible) => {
                let (said, most) = (said.tokens, possible.tokens);
                let seconds = elapsed_ms / 1000;
                warnings.push(format!(
                    "it says that it used {said} tokens in {seconds} s; {most} are counted for its task, and no more cost than they can have"
                ));
                possible
            }
        });
        let wrote = wrote.map(|text| String::from_utf8_lossy(&redacted(&policy.secrets, &text)).into_owned());
        let claim = match &wrote {
            Some(text) => Some(claimed(job, text)?),
            None => None,
        };
        let (changed, changed_left_out) =
            kept(harvest.changes.iter().map(|change| change.path.to_string()), MOST_CHANGED);
        let (violations, left_out) = kept(harvest.violations.iter().map(ToString::to_string), MOST_REFUSED);
        let openings = harvest.violations.iter().filter_map(|violation| match &violation.reason {
            ViolationReason::ControlFile { open, .. } => open.clone(),
            _ => None,
        });
        Ok(AgentOutcome {
            end,
            elapsed_ms,
            changed,
            changed_left_out,
            violations,
            violations_left_out: left_out + harvest.violations_left_out as u64,
            openings: kept(openings, MOST_OPENINGS).0,
            did_something,
            candidate: candidate.map(|commit| commit.to_string()),
            claim,
            report: None,
            usage,
            heard,
            warnings,
            attestation,
            network,
            output,
        })
    }
}

/// What the agent wrote, as a value of ours.
fn claimed(job: AgentJob<'_>, text: &str) -> io::Result<AgentClaim> {
    let AgentJob { place, order, agent, reader, reception } = job;
    let kind = match order.what {
        JobKind::Audit(_) => ClaimKind::Verdict,
        JobKind::Agent(_) | JobKind::Proof(_) => ClaimKind::Report,
    };
    loop {
        match reader.read(AgentText { kind, task: &order.task, agent: &agent.agent, text }) {
            Err(error) if waited_for_room(place, reception, &error) => {}
            // The machine could not run the reader: that is not the agent's fault.
            Err(error) if HostFault::of(&error, place.path()).is_some() => return Err(error),
            Err(error) => {
                return Ok(AgentClaim::unreadable(
                    kind,
                    text,
                    &format!("its reader could not be run: {error}"),
                ));
            }
            read => return read,
        }
    }
}

/// Who stands by an agent: the supervisor's words are heard, and so is what the agent says.
struct AgentMonitor<'a> {
    reception: &'a ControlSocket,
    ear: &'a OutputScanner,
    log: &'a File,
    disk: &'a DiskWatch,
}

/// Looks at the disk that catches what an agent writes. An agent that was refused a write may go on as if it had been
/// done: what it leaves is not to be believed. So it is stopped while there is a little room, and its attempt is lost.
struct DiskWatch {
    folder: PathBuf,
    next: Cell<Instant>,
    nearly_full: Cell<bool>,
}

impl DiskWatch {
    const EVERY: Duration = Duration::from_millis(100);

    fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), next: Cell::new(Instant::now()), nearly_full: Cell::new(false) }
    }

    fn attend(&self, now: Instant) -> MonitorDecision {
        if now >= self.next.get() {
            self.next.set(now + Self::EVERY);
            self.look();
        }
        if self.nearly_full.get() { MonitorDecision::Stop } else { MonitorDecision::GoOn }
    }

    fn look(&self) {
        self.nearly_full.set(self.nearly_full.get() || host_fault::is_nearly_full(&self.folder));
    }

    /// Whether it was, at any time since the agent began.
    fn was_nearly_full(&self) -> bool {
        self.look();
        self.nearly_full.get()
    }

    fn reason(&self) -> String {
        format!("the disk of {} was full while it worked", self.folder.display())
    }
}

impl RunMonitor for AgentMonitor<'_> {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.reception.descriptor()
    }

    fn due(&self) -> Option<Instant> {
        [self.reception.due(), self.ear.due(), Some(self.disk.next.get())].into_iter().flatten().min()
    }

    fn attend(&self, now: Instant) -> MonitorDecision {
        // Ask each of them, even if another one wants to stop.
        let wishes = [self.reception.attend(now), self.ear.attend(now), self.disk.attend(now)];
        if wishes.contains(&MonitorDecision::Stop) { MonitorDecision::Stop } else { MonitorDecision::GoOn }
    }

    fn progress(&self, what: &str) {
        // It stands in the log, where a user who waits for the agent looks.
        let _ = writeln!(&*self.log, "agency: {what}");
    }

    fn observe_output(&self, from: OutputStream, piece: &[u8], now: Instant) {
        self.ear.hear(from, piece, now);
    }
}

/// The workspace, with everything an agent gets beside the tree.
fn add_agent_files(
    mut workspace: Workspace,
    agent: &AgentOrder,
    words: &Placeholders,
) -> AgentJobResult<Workspace> {
    for folder in &agent.live {
        workspace = workspace.with_live(RelPath::parse(folder.as_bytes())?);
    }
    if let Some(overlay) = workspace.overlays.first_mut() {
        let path = RelPath::root().join(b".git").join(PROMPT);
        overlay.added.push(LayerAddition::File(path, words.prompt.clone().into_bytes()));
        for attachment in &agent.papers {
            let path = RelPath::root().join(b".git").join(attachment.name.as_bytes());
            let mut text = Vec::new();
            File::open(&attachment.source)?.take(LONGEST_PAPER).read_to_end(&mut text)?;
            overlay.added.push(LayerAddition::File(path, text));
        }
    }
    Ok(workspace)
}

fn end(end: supervise::CommandExit) -> ProgramEnd {
    match end {
        supervise::CommandExit::Exited(code) => ProgramEnd::Exited { code },
        supervise::CommandExit::Signaled(signal) => ProgramEnd::Signaled { signal },
        supervise::CommandExit::NotStarted(error) => ProgramEnd::NotStarted { error },
        supervise::CommandExit::Stopped(StopCause::Wall) => ProgramEnd::Wall,
        supervise::CommandExit::Stopped(StopCause::Stall) => ProgramEnd::Stall,
        supervise::CommandExit::Stopped(StopCause::Memory) => ProgramEnd::Memory,
        supervise::CommandExit::Stopped(StopCause::Interrupted(_) | StopCause::Asked) => ProgramEnd::Asked,
    }
}

/// What the agent did, as a commit that nothing names yet.
fn commit(
    order: &JobOrder,
    agent: &AgentOrder,
    repository: &LandingRepository,
    harvest: &Harvest,
    upper: BorrowedFd<'_>,
) -> AgentJobResult<Option<Oid>> {
    let base = Oid::parse(agent.start())?;
    let task = TaskName::new(&order.task.protocol, &order.task.id)?;
    let author = Signature::of_agent(&agent.agent, crate::clock::wall_seconds());
    let statement = CommitMetadata {
        author: &author,
        committer: &author,
        subject: &agent.subject,
        body: "",
        task: &task,
        epoch: order.epoch.0,
        verify: None,
    };
    Ok(candidate::write(repository, &HarvestedWork { harvest, upper, base: &base }, &statement)?)
}

/// The real repository, to write objects into.
fn open_repository(
    folder: &WorkspaceFolder,
    state: &StateFolder,
    agent: &AgentOrder,
) -> AgentJobResult<LandingRepository> {
    let real = folder.repository.as_ref().ok_or("the work tree is in no repository any more")?;
    let place = state.folder("landing")?;
    let opening = RepositoryOptions {
        program: Path::new("git"),
        repository: real,
        root: Some(&folder.root),
        place: &place,
        home: None,
        patience: Duration::from_secs(30),
    };
    Ok(LandingRepository::open_objects(&opening, OidFormat::of(&Oid::parse(&agent.base)?))?)
}

/// For people who want to see it without git.
fn write_patch(
    place: &JobFolder,
    repository: &LandingRepository,
    agent: &AgentOrder,
    commit: &Oid,
) -> AgentJobResult<()> {
    let patch = candidate::patch(repository, &Oid::parse(&agent.base)?, commit)?;
    Ok(std::fs::write(place.file("work.patch"), patch)?)
}

/// What the agent left for us under a name: a plain file, up to a size, and not through any link.
fn left(outbox: &Path, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
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
    file.take(most).read_to_end(&mut text)?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_a_plain_file_or_none() {
        let outbox = tempfile::tempdir().expect("a folder");
        assert_eq!(left(outbox.path(), REPORT, LONGEST_READ).expect("read"), None);
        std::os::unix::fs::symlink("/etc/passwd", outbox.path().join(REPORT)).expect("a link");
        assert_eq!(left(outbox.path(), REPORT, LONGEST_READ).expect("read"), None);
        std::fs::remove_file(outbox.path().join(REPORT)).expect("gone");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            outbox.path().join(REPORT),
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .expect("a pipe");
        assert_eq!(left(outbox.path(), REPORT, LONGEST_READ).expect("read"), None);
        std::fs::remove_file(outbox.path().join(REPORT)).expect("gone");
        std::fs::write(outbox.path().join(REPORT), "done").expect("a file");
        assert_eq!(left(outbox.path(), REPORT, LONGEST_READ).expect("read"), Some(b"done".to_vec()));
    }
}
