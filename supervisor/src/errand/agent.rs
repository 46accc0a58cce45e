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

use agency_protocols::claim::{Claim, ClaimKind, LONGEST_READ};
use agency_sandbox::boot;
use agency_sandbox::git::GitError;
use agency_sandbox::harvest::{Harvest, Reason};
use agency_sandbox::host::Host;
use agency_sandbox::launch::{self, LaunchError, Request};
use agency_sandbox::output::redacted;
use agency_sandbox::path::RelPath;
use agency_sandbox::policy::{Level, Policy};
use agency_sandbox::scope::{Judgement, Scope};
use agency_sandbox::supervise::{self, Attendant, Source, Stopped, Wish};
use agency_sandbox::workspace::folder::Folder;
use agency_sandbox::workspace::ground::Ground;
use agency_sandbox::workspace::snapshot::Prepared;
use agency_sandbox::workspace::state::{Run, State};
use agency_sandbox::workspace::{Added, Layer, Workspace};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde_json::json;

use super::Place;
use super::claims::{AgentText, ClaimReader};
use super::control::Reception;
use super::ended::{self, EndedAgent, Orphan, SecretsMark};
use super::given;
use super::order::{AgentOrder, Order, What};
use super::outcome::{AgentDone, Done, End, kept};
use super::setup::{self, Shop};
use super::shim::waited_for_room;
use super::words::{PROMPT, REPORT, USAGE, Words};
use crate::causes;
use crate::hearing::Ear;
use crate::host_fault::{self, HostFault};
use crate::landing::candidate::{self, Work};
use crate::landing::commit::{Signature, Statement};
use crate::landing::names::{Format, Oid, Task};
use crate::landing::repository::{Opening, Repository};

/// The most of a paper that is shown to it.
const LONGEST_PAPER: u64 = 8 << 20;
/// The most changed paths, refusals, warnings and names of protected files that its outcome lists.
const MOST_CHANGED: usize = 10_000;
const MOST_REFUSED: usize = 200;
const MOST_OPENINGS: usize = 10;
/// The most that is read of a file that says what it used.
const LONGEST_USAGE: u64 = 16 << 20;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// An agent that is to be run, or to be collected.
#[derive(Clone, Copy)]
pub(super) struct AgentJob<'a> {
    pub(super) place: &'a Place,
    pub(super) order: &'a Order,
    pub(super) agent: &'a AgentOrder,
    /// Reads what the agent wrote.
    pub(super) reader: &'a ClaimReader,
    pub(super) reception: &'a Reception,
}

/// What is left of a sandbox when its changes are collected. Dropping it removes the layers while the kernel still takes
/// the sandbox apart, and then waits for that.
#[derive(Debug)]
pub(super) struct Left {
    _run: Run,
    _remains: Option<launch::Remains>,
}

pub(super) fn run(job: AgentJob<'_>) -> (Done, Option<Left>) {
    let AgentJob { place, order, agent, reception, .. } = job;
    let started_at = crate::clock::wall();
    let prepared = prepare(job, None);
    let prepared = prepared.and_then(|site| Ok((site, Ear::new(&agent.program.reading)?)));
    let (site, ear) = match prepared {
        Ok(prepared) => prepared,
        Err(error) if setup::is_stopped(error.as_ref()) => return (Done::Stopped, None),
        Err(error) => return (not_run(place, error.as_ref()), None),
    };
    let disk = DiskWatch::new(&order.state);
    let outcome = match site.run(reception, &ear, &disk) {
        Ok(_) if disk.was_nearly_full() => return (Done::Lost { reason: disk.reason() }, None),
        Ok(outcome) => outcome,
        Err(error @ LaunchError::Uncollected { .. }) => {
            return (Done::Unread { reason: causes::on_one_line(&error) }, None);
        }
        Err(error) => return (not_run(place, &error), None),
    };
    let done = site.ended(job, started_at, ear, &outcome).and_then(|ended| {
        site.write_down(place, &ended);
        site.collect(job, ended, outcome.upper.as_fd())
    });
    (collected(place, done), Some(Left { _run: site.run, _remains: Some(outcome.remains) }))
}

/// Collects what an agent did whose shim was killed after its end. Every process of it is dead.
pub(super) fn go_on(job: AgentJob<'_>, ended: EndedAgent) -> (Done, Option<Left>) {
    match reopen(job, ended) {
        Ok((site, ended, upper)) => {
            let done = collected(job.place, site.collect(job, ended, upper.as_fd()));
            (done, Some(Left { _run: site.run, _remains: None }))
        }
        // That is not the agent's fault.
        Err(error) => {
            let reason = causes::on_one_line(error.as_ref());
            let reason = format!("its shim was killed, and what it did can't be collected: {reason}");
            (Done::Lost { reason }, None)
        }
    }
}

/// Everything to collect it with, and what it changed.
fn reopen(job: AgentJob<'_>, ended: EndedAgent) -> Result<(Site, EndedAgent, File)> {
    let Orphan { ended, run, upper } = ended.take_over(job.place)?;
    let site = prepare(job, Some(run))?;
    if !ended.secrets.fits(&site.policy.secrets) {
        return Err("the secrets that it was given have been changed since".into());
    }
    Ok((site, ended, upper))
}

fn collected(place: &Place, done: Result<AgentDone>) -> Done {
    match done {
        Ok(done) => Done::Agent(Box::new(done)),
        Err(error) => {
            let reason = causes::on_one_line(error.as_ref());
            match HostFault::of(error.as_ref(), place.path()) {
                Some(fault) => {
                    Done::Lost { reason: format!("what it did could not be kept: {reason}; {fault}") }
                }
                None if was_killed(error.as_ref()) => Done::Lost { reason },
                None => Done::Unread { reason },
            }
        }
    }
}

/// Why nothing was run, and what may help.
pub(super) fn not_run(place: &Place, error: &(dyn Error + 'static)) -> Done {
    let reason = causes::on_one_line(error);
    if let Some(fault) = HostFault::of(error, place.path()) {
        return Done::NoRoom { reason: format!("{reason}; {fault}") };
    }
    let launch = causes::all(error).find_map(|cause| cause.downcast_ref::<LaunchError>());
    match launch {
        Some(LaunchError::Lost { .. }) => Done::Lost { reason },
        // Somebody killed it: that is not the task's fault.
        Some(error) if error.is_early_end() => Done::Lost { reason },
        Some(error) if error.is_passing() => Done::Away { reason },
        _ if was_killed(error) => Done::Lost { reason },
        _ => Done::NotRun { reason, hint: launch.and_then(LaunchError::hint) },
    }
}

/// Whether a git was killed. That is not the task's fault.
fn was_killed(error: &(dyn Error + 'static)) -> bool {
    causes::all(error).any(|cause| cause.downcast_ref::<GitError>().is_some_and(GitError::was_killed))
}

/// Everything an agent needs to begin.
struct Site {
    host: Host,
    folder: Folder,
    state: State,
    ground: Ground,
    /// What a setup left, held for as long as it is mounted.
    _prepared: Option<Prepared>,
    policy: Policy,
    staging: PathBuf,
    command: Vec<OsString>,
    input: File,
    log: File,
    /// Last, so that what it removes is not used any more.
    run: Run,
}

/// Everything for an agent that is to begin, or for one that has ended in this run and is to be collected.
fn prepare(job: AgentJob<'_>, ended: Option<Run>) -> Result<Site> {
    let AgentJob { place, order, agent, reception, .. } = job;
    let host = Host::observe();
    let folder = Folder::around(&order.root)?;
    if folder.repository.is_none() {
        return Err("the work tree is in no repository any more".into());
    }
    let state = State::at(&order.state);
    let run = match order.level {
        _ if let Some(run) = ended => run,
        Level::Landlock => State::for_copies(&order.copies, host.is_root())?.run(),
        Level::Process | Level::Container => state.run(),
    };
    let shop = Shop { place, order, host: &host, folder: &folder, state: &state, reception };
    let prepared = agent.setup.as_ref().map(|setup| shop.prepare(setup, agent.start())).transpose()?;
    let mut ground = Ground::commit(&folder, agent.start(), &run, &state)?;
    if let Some(prepared) = &prepared {
        ground.workspace = ground.workspace.prepared(prepared);
    }
    let workspace = ground.workspace.clone().with_outbox(order.level, &run);
    let words = Words::new(&workspace, order, agent, &run);
    ground.workspace = furnish(workspace, agent, &words)?;
    let policy = given::policy(order, agent, &host, &words)?;
    ground.workspace = ground.workspace.answered(&policy);
    let staging = state.folder("stage")?;
    let log = File::options().append(true).create(true).mode(0o600).open(place.output())?;
    let (command, input) = (words.command(agent), words.input(agent)?);
    Ok(Site { host, folder, state, ground, _prepared: prepared, policy, staging, command, input, log, run })
}

impl Site {
    fn run(
        &self,
        reception: &Reception,
        ear: &Ear,
        disk: &DiskWatch,
    ) -> std::result::Result<launch::Outcome, LaunchError> {
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
            attendant: &Post { reception, ear, log: &self.log, disk },
        };
        launch::run(&request, None)
    }

    /// What is known of an agent that has ended, before anybody looks at what it changed.
    fn ended(
        &self,
        job: AgentJob<'_>,
        started_at: i64,
        ear: Ear,
        outcome: &launch::Outcome,
    ) -> Result<EndedAgent> {
        let (heard, usage) = ear.finish(self.left(USAGE, LONGEST_USAGE)?.as_deref());
        let layer = self.ground.workspace.overlays.first().map(|overlay| &overlay.layer);
        let upper = match (job.order.level, layer) {
            (Level::Process, Some(Layer::Disk { upper, .. })) => Some(upper.clone()),
            (Level::Process, _) => None,
            (Level::Landlock | Level::Container, _) => Some(self.run.path().join("upper")),
        };
        Ok(EndedAgent {
            boot: boot::id().unwrap_or_default(),
            started_at,
            run: self.run.path().to_owned(),
            upper,
            secrets: SecretsMark::of(&self.policy.secrets),
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
    fn write_down(&self, place: &Place, ended: &EndedAgent) {
        if ended.upper.is_some() && self.run.keep_while(&place.file(ended::NAME)).is_ok() {
            let _ = ended.write(place);
        }
    }

    /// What the agent left for us under a name.
    fn left(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        match &self.ground.workspace.outbox {
            Some(outbox) => left(&outbox.source, name, most),
            None => Ok(None),
        }
    }

    /// What the agent did.
    fn collect(&self, job: AgentJob<'_>, ended: EndedAgent, upper: BorrowedFd<'_>) -> Result<AgentDone> {
        let AgentJob { place, order, agent, reception, .. } = job;
        let EndedAgent { end, elapsed_ms, usage, heard, attestation, network, output, .. } = ended;
        let wrote = self.left(REPORT, LONGEST_READ)?;
        let Site { folder, state, ground, policy, .. } = self;
        let harvest = ground.harvest(upper, policy)?;
        let must = Scope::parse(&agent.scope.must, &[])?;
        // What has to change did before, where earlier work is gone on with.
        let did_something = match must.write.is_empty() || agent.start.is_some() {
            true => !harvest.changes.is_empty(),
            false => harvest.changes.iter().any(|change| must.judge(&change.path) == Judgement::InScope),
        };
        let (mut warnings, _) = kept(harvest.warnings.iter().map(ToString::to_string), MOST_REFUSED);
        let candidate = match end == (End::Exited { code: 0 }) && harvest.is_clean() {
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
            Reason::ControlFile { open, .. } => open.clone(),
            _ => None,
        });
        Ok(AgentDone {
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
fn claimed(job: AgentJob<'_>, text: &str) -> io::Result<Claim> {
    let AgentJob { place, order, agent, reader, reception } = job;
    let kind = match order.what {
        What::Audit(_) => ClaimKind::Verdict,
        What::Agent(_) | What::Proof(_) => ClaimKind::Report,
    };
    loop {
        match reader.read(AgentText { kind, task: &order.task, agent: &agent.agent, text }) {
            Err(error) if waited_for_room(place, reception, &error) => {}
            // The machine could not run the reader: that is not the agent's fault.
            Err(error) if HostFault::of(&error, place.path()).is_some() => return Err(error),
            Err(error) => {
                return Ok(Claim::unread(kind, text, &format!("its reader could not be run: {error}")));
            }
            read => return read,
        }
    }
}

/// Who stands by an agent: the supervisor's words are heard, and so is what the agent says.
struct Post<'a> {
    reception: &'a Reception,
    ear: &'a Ear,
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

    fn attend(&self, now: Instant) -> Wish {
        if now >= self.next.get() {
            self.next.set(now + Self::EVERY);
            self.look();
        }
        if self.nearly_full.get() { Wish::Stop } else { Wish::GoOn }
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

impl Attendant for Post<'_> {
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.reception.descriptor()
    }

    fn due(&self) -> Option<Instant> {
        [self.reception.due(), self.ear.due(), Some(self.disk.next.get())].into_iter().flatten().min()
    }

    fn attend(&self, now: Instant) -> Wish {
        // Each of them is asked, whatever the others want.
        let wishes = [self.reception.attend(now), self.ear.attend(now), self.disk.attend(now)];
        if wishes.contains(&Wish::Stop) { Wish::Stop } else { Wish::GoOn }
    }

    fn told(&self, what: &str) {
        // It stands in the log, where whoever waits for the agent looks.
        let _ = writeln!(&*self.log, "agency: {what}");
    }

    fn hear(&self, from: Source, piece: &[u8], now: Instant) {
        self.ear.hear(from, piece, now);
    }
}

/// The workspace, with everything an agent gets beside the tree.
fn furnish(mut workspace: Workspace, agent: &AgentOrder, words: &Words) -> Result<Workspace> {
    for folder in &agent.live {
        workspace = workspace.with_live(RelPath::parse(folder.as_bytes())?);
    }
    if let Some(overlay) = workspace.overlays.first_mut() {
        let path = RelPath::root().join(b".git").join(PROMPT);
        overlay.added.push(Added::File(path, words.prompt.clone().into_bytes()));
        for paper in &agent.papers {
            let path = RelPath::root().join(b".git").join(paper.name.as_bytes());
            let mut text = Vec::new();
            File::open(&paper.source)?.take(LONGEST_PAPER).read_to_end(&mut text)?;
            overlay.added.push(Added::File(path, text));
        }
    }
    Ok(workspace)
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
    upper: BorrowedFd<'_>,
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
    fn a_git_that_is_killed_is_not_the_tasks_fault() {
        use std::os::unix::process::ExitStatusExt;
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::new(folder.path().to_owned());
        let ended = |status| GitError::Failed {
            command: "ls-tree".into(),
            status: std::process::ExitStatus::from_raw(status),
            message: String::new(),
        };
        assert!(matches!(not_run(&place, &ended(9)), Done::Lost { .. }));
        assert!(matches!(not_run(&place, &ended(11)), Done::NotRun { .. }));
        assert!(matches!(not_run(&place, &ended(128 << 8)), Done::NotRun { .. }), "an exit code");
    }

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
